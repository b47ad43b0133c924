"""A report is a single HTML page that needs no network. By default, a report overwrites only reports."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page, sync_playwright

import workbench as wb
from tests.browser.chromium import find_chromium
from tests.browser.test_accessibility import AXE
from workbench.bench.report.html_report import BEGIN, commands
from workbench.cli import entry
from workbench.errors import ConfigError
from workbench.summary import human_bytes

FAULTS = """async () => {
    const { violations, passes } = await axe.run(document.body, { runOnly: ["wcag2a", "wcag2aa", "wcag22aa"] });
    const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
    const told = serious.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
    return { looked: passes.length, serious: told };
}"""


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    bench = wb.open("mlp", device="cpu", executor="torch", layers=2)
    site = next(site for site in bench.sites("saved") if site.values and not site.illegal)
    bench.choose({site.id: "recompute"})
    return bench


@pytest.fixture(scope="module")
def path(bench: wb.Workbench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bench.report(tmp_path_factory.mktemp("report") / "out.html")


def test_a_report_loads_nothing_from_the_network_and_holds_choices_figures_and_commands(
    bench: wb.Workbench, path: Path
) -> None:
    text = path.read_text()
    assert re.findall(r"(?:src|href)\s*=\s*[\"']?(?:https?:|//)|@import|url\(", text) == []
    assert "/tmp/" not in text.replace(str(path), "")
    ((id, option),) = bench.choices.items()
    assert f"<td>{id}</td><td>{option}</td>" in text
    assert human_bytes(bench.plan.peak_bytes) in text
    assert commands(bench)[0].replace("'", "&#x27;") in text


def test_the_commands_of_a_report_make_the_same_plan(bench: wb.Workbench, capfd: pytest.CaptureFixture[str]) -> None:
    command = shlex.split(commands(bench)[0])
    assert entry.run([*command[1:], "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["saved_bytes"] == bench.plan.saved_bytes


@pytest.mark.parametrize("capture", ["interpreter", "parts"])
def test_the_commands_of_a_report_capture_the_program_in_the_same_way(
    capture: str, capfd: pytest.CaptureFixture[str]
) -> None:
    bench = wb.open("mlp", device="cpu", executor="torch", layers=1, capture=capture)
    plans, runs = map(shlex.split, commands(bench))
    assert entry.run([*plans[1:], "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["capture"] == capture
    assert " ".join(plans[2:]) in " ".join(runs)


def test_the_commands_of_a_report_keep_the_modes_under_which_the_program_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with torch.no_grad():
        bench = wb.open("mlp", device="cpu", executor="torch", layers=1)
    plans, runs = map(shlex.split, commands(bench))
    # The page contains this file.
    bench.export(tmp_path / "choices.py")
    monkeypatch.chdir(tmp_path)
    assert entry.run([*plans[1:], "--json"]) == 0
    planned = json.loads(capfd.readouterr().out)
    assert (planned["statements"], planned["saved_bytes"]) == (bench.plan.statements, 0)
    assert " ".join(plans[2:]) in " ".join(runs)


def test_a_report_replaces_a_report_and_another_file_only_with_overwrite(
    bench: wb.Workbench, path: Path, tmp_path: Path
) -> None:
    assert bench.report(path).read_bytes().startswith(BEGIN)
    other = tmp_path / "page.html"
    other.write_text("<!doctype html><p>mine</p>")
    with pytest.raises(ConfigError, match="not a report"):
        bench.report(other)
    assert "mine" in other.read_text()
    assert bench.report(other, overwrite=True).read_bytes().startswith(BEGIN)


def test_the_command_writes_a_report(tmp_path: Path) -> None:
    out = tmp_path / "x.html"
    given = ["report", "mlp", "--device", "cpu", "--executor", "torch", "--set", "layers=1", "--out", str(out)]
    assert entry.run(given) == 0
    assert out.read_bytes().startswith(BEGIN)
    out.write_text("mine")
    assert entry.run(given) == 2
    assert out.read_text() == "mine"


@pytest.fixture(scope="module")
def offline() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(offline=True, viewport={"width": 1440, "height": 900}).new_page()
        yield page
        browser.close()


@pytest.mark.browser
def test_a_report_is_rendered_without_a_network_and_its_graph_zooms(
    bench: wb.Workbench, path: Path, offline: Page
) -> None:
    said, asked = [], []
    offline.on("console", lambda message: said.append(message.text))
    offline.on("pageerror", lambda error: said.append(str(error)))
    offline.on("request", lambda request: asked.append(request.url))
    offline.goto(path.as_uri())
    offline.wait_for_selector("body[data-ready=true]")
    offline.wait_for_function("document.querySelector('.wb-graph').__workbench.state().drawn_ms > 0")
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert human_bytes(bench.plan.peak_bytes) in offline.locator("[data-figure=peak]").inner_text()
    ask = "given => document.querySelector('.wb-graph').__workbench."
    zoom = offline.evaluate(f"{ask}state().zoom", None)
    canvas = offline.locator(".wb-graph canvas").first
    box = canvas.bounding_box()
    assert box is not None
    offline.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    offline.keyboard.down("Control")
    offline.mouse.wheel(0, -200)
    offline.keyboard.up("Control")
    offline.wait_for_function(f"document.querySelector('.wb-graph').__workbench.state().zoom > {zoom}")
    offline.locator("#wb-alive tr.wb-can").first.click()
    assert offline.evaluate(f"{ask}state().selected", None)
    (id,) = bench.choices
    offline.evaluate(f"{ask}view.setZoom(1, 0, 0)", None)
    at = offline.evaluate(f"{ask}position(given)", id)
    offline.mouse.click(at["x"], at["y"])
    assert "recompute chosen" in offline.locator("#wb-about").inner_text()
    offline.get_by_role("button", name="Dark").click()
    offline.wait_for_function("document.querySelector('.wb-graph').__workbench.state().dark")


@pytest.mark.browser
def test_axe_finds_no_serious_fault_in_the_html_pages(
    bench: wb.Workbench, path: Path, offline: Page, tmp_path: Path
) -> None:
    compared = wb.compare(bench, bench, names=("one", "other")).write(tmp_path / "compared.html")
    for page in (path, compared):
        offline.goto(page.as_uri())
        if page == path:
            offline.wait_for_selector("body[data-ready=true]")
        offline.evaluate(AXE.read_text())
        found = offline.evaluate(FAULTS)
        assert found["looked"] > 5, "axe checked hardly anything of the page"
        assert found["serious"] == []
