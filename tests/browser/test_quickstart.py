"""Run the quickstart notebook in a real JupyterLab without a network, and replay its config in plain Python."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil
import pytest

from tests.browser.app import TALL, figure, live, press, show_cell, turn
from tests.browser.harness import Lab
from tests.notebooks.run import used_bytes

# The kernel, two workers and the replay compile. On two busy cores, the test may therefore exceed the usual time limit.
pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(1200)]

RUN_TIMEOUT_S = 480
BINDER_BYTES = 2e9
"""Memory of a Binder session in bytes. JupyterLab takes about 0.1 GB of it."""
APP_CELL = 4
SAVED_STILL = (
    "next(s.id for s in bench.sites('saved') if s.values and s.choice == 'save' and 'recompute' not in s.illegal)"
)
REPLAY = """
import json, workbench as wb
from workbench.programs import resolve
config = wb.load("chosen.py")
program = resolve(config.program, settings=config.settings, device=config.device)
print(json.dumps({"loss": config.jit(program.callable)(*program.args, **program.kwargs).item(), **config.choices}))
"""


def run_to_the_end(lab: Lab) -> None:
    """Run all cells of the open notebook. Assert that none fails, and that a Binder session has enough memory."""
    kernel = psutil.Process(int(lab.kernel_eval("import os\nprint(os.getpid())")))
    used: list[int] = []
    lab.run_all()
    unrun = """() => Array.from(jupyterapp.shell.currentWidget.content.model.cells)
        .filter(cell => cell.type === 'code' && !cell.executionCount).length"""

    def ran() -> bool:
        used.append(used_bytes(kernel))
        return bool(lab.page.evaluate(unrun) == 0)

    lab.wait_until(ran, timeout_s=RUN_TIMEOUT_S)
    assert BINDER_BYTES / 20 < max(used) < BINDER_BYTES
    assert not [output for output in lab.outputs() if output["output_type"] == "error"]


def test_the_quickstart_chooses_runs_cancels_exports_and_replays(lab: Lab) -> None:
    lab.page.set_viewport_size(TALL)
    lab.open_notebook("quickstart.ipynb")
    run_to_the_end(lab)
    memory, accuracy = (output["data"]["text/plain"] for output in lab.outputs()[-2:])
    assert "measured_peak_bytes" in memory
    assert "None" not in memory
    assert accuracy.startswith("(True, ")
    assert lab.kernel_eval("print(run.state, run.memory['measured_peak_bytes'] > 0)") == "done True"
    show_cell(lab, APP_CELL)
    lab.wait_until(lambda: "Done" in live(lab), timeout_s=RUN_TIMEOUT_S)
    assert "measured" in figure(lab, "peak")
    assert "ok" in figure(lab, "accuracy")
    cut = "cells => cells.filter(cell => cell.scrollHeight > cell.clientHeight + 1).map(cell => cell.innerText)"
    assert not lab.page.locator(".wb-figure").evaluate_all(cut), "a figure is cut off"
    # One list has the live values at the predicted peak. A second list has the live values at the measured peak.
    for kind in ("predicted", "measured"):
        lab.page.wait_for_selector(f'.wb-alive [data-kind="{kind}"] tbody tr', state="attached")
    lab.screenshot("quickstart-done")
    loss = float(lab.kernel_eval("print(loss.item())"))

    site = lab.kernel_eval(f"print({SAVED_STILL})")
    saved, peak = figure(lab, "saved"), figure(lab, "peak")
    turn(lab, site)
    lab.wait_until(lambda: lab.kernel_eval(f"print(bench.site({site!r}).choice)") == "recompute")
    lab.wait_until(lambda: figure(lab, "saved") != saved and figure(lab, "peak") != peak)
    # At first, the strip shows an estimate beside the older measurement, which is grey.
    lab.wait_until(lambda: "estimated" not in figure(lab, "peak"))
    assert "earlier plan" in figure(lab, "peak"), "the strip must say that the measured peak is of an earlier plan"
    lab.page.wait_for_selector(".wb-plot canvas")
    lab.screenshot("quickstart-turned")

    press(lab, "Compile & run")
    lab.wait_until(lambda: "Compiling" in live(lab), timeout_s=RUN_TIMEOUT_S)
    lab.screenshot("quickstart-running")
    press(lab, "Cancel")
    lab.wait_until(lambda: lab.kernel_eval("print(bench.runs[-1].state)") == "cancelled")
    lab.wait_until(lambda: "Cancelled" in live(lab))

    lab.page.get_by_role("button", name="What the file is for").click()
    lab.page.get_by_role("textbox", name="File to export to").fill("chosen.py")
    press(lab, "Export to chosen.py")
    lab.wait_until(lambda: (lab.folder / "chosen.py").exists())
    told = subprocess.run([sys.executable, "-c", REPLAY], cwd=lab.folder, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    replayed = json.loads(told.stdout.splitlines()[-1])
    assert replayed["loss"] == pytest.approx(loss, rel=1e-6)
    assert replayed[site] == "recompute"
    assert not [line for line in lab.console if "uncaught" in line or "Could not" in line]
