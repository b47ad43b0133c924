"""A real JupyterLab opens the file of a saved plan without a kernel, and shows it read-only."""

from __future__ import annotations

import json

import nbformat
import pytest

import workbench as wb
from tests.browser.app import GRAPH, click, figure, graph
from tests.browser.harness import Lab
from workbench.bench.report import saved_plan
from workbench.summary import human_bytes

pytestmark = pytest.mark.browser

COLOURS = """() => {
    const canvas = document.querySelector(".wb-graph canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
}"""
"""Script that returns the number of colours on the canvas. A blank canvas has one."""


def test_a_saved_plan_is_rendered_without_a_kernel(lab: Lab) -> None:
    bench = wb.open("mlp", device="cpu", executor="torch")
    site, other = [s for s in bench.sites("saved") if s.values and not s.illegal][:2]
    bench.choose({site.id: "recompute"})
    document = json.loads(bench.save(lab.folder / "mlp.plan.json").read_text())

    lab.page.set_viewport_size({"width": 1440, "height": 900})
    lab.open_file("mlp.plan.json")
    lab.page.wait_for_selector(f".jp-MimeDocument {GRAPH} canvas")
    lab.wait_until(lambda: graph(lab, "state().drawn_ms") > 0)
    assert lab.page.evaluate(COLOURS) > 10
    assert human_bytes(bench.plan.peak_bytes) in figure(lab, "peak")
    assert human_bytes(bench.plan.saved_bytes) in figure(lab, "saved")
    assert "not measured" not in lab.page.locator(".wb-strip").inner_text()
    assert f"{site.id}: recompute" in lab.page.locator(".wb-saved-choices").inner_text()
    assert {arc["id"]: arc["style"] for arc in graph(lab, "state().arcs")}[site.id] == 1

    # A click on an arc selects it and changes no choice. A click on a choice above the graph selects the choice's arc.
    click(lab, other.id)
    about = lab.page.locator(".wb-saved-site")
    assert other.id in about.inner_text()
    assert graph(lab, "state().selected") == other.id
    assert {arc["id"]: arc["style"] for arc in graph(lab, "state().arcs")}[other.id] == 0
    lab.page.locator(".wb-saved-choices").get_by_role("button", name=site.id).click()
    assert graph(lab, "state().selected") == site.id
    lab.screenshot("saved-plan")
    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    lab.wait_until(lambda: graph(lab, "state().dark"))
    lab.page.wait_for_selector("#jupyterlab-splash", state="detached")
    lab.screenshot("saved-plan-dark")
    assert graph(lab, "state().selected") == site.id
    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")
    # This test started no kernel. Look only at its own folder, because kernels of earlier tests may still run.
    sessions = lab.page.evaluate("() => [...jupyterapp.serviceManager.sessions.running()].map(session => session.path)")
    assert [path for path in sessions if path.startswith(f"{lab.folder.name}/")] == []

    # For a document of another version, JupyterLab shows a message and draws nothing.
    (lab.folder / "newer.plan.json").write_text(json.dumps({**document, "format_version": 99}))
    open_too(lab, "newer.plan.json")
    lab.page.get_by_text("saved in format version 99; this view reads version 1").wait_for()

    # A saved plan in a cell's stored output is drawn without running the cell.
    output = nbformat.v4.new_output("display_data", data={saved_plan.MIME_TYPE: document, "text/plain": "a plan"})
    cell = nbformat.v4.new_code_cell("display(plan)", outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), lab.folder / "output.ipynb")
    open_too(lab, "output.ipynb")
    lab.page.wait_for_selector(f".jp-OutputArea .wb-saved {GRAPH} canvas")
    lab.screenshot("saved-plan-output")
    assert [line for line in lab.console if not line.startswith("warning: ")] == []


def open_too(lab: Lab, name: str) -> None:
    """Open a further file of the test's folder, in a new tab."""
    lab.page.evaluate("path => jupyterapp.commands.execute('docmanager:open', { path })", f"{lab.name}/{name}")
