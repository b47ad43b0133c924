"""*Run All* of the quickstart in fresh kernels, with the app shown while its cells run: no cell fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.browser.harness import Lab
from tests.trial_counts import amount

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.drawn, pytest.mark.timeout(900)]

CORES = 2
TIMES = amount(1, 3, 10)
UNRUN = """() => Array.from(jupyterapp.shell.currentWidget.content.model.cells)
    .filter(cell => cell.type === 'code' && !cell.executionCount).length"""


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keep some cores busy with one process each."""
    with ExitStack() as stack:
        for _ in range(cores):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


@pytest.mark.parametrize("cores", [0, pytest.param(CORES, marks=pytest.mark.long)], ids=["idle", "busy"])
@pytest.mark.parametrize("time", range(TIMES))
def test_run_all_of_the_quickstart_fails_in_no_cell(lab: Lab, cores: int, time: int) -> None:
    with busy(cores):
        lab.open_notebook("quickstart.ipynb")
        lab.run_all()
        lab.wait_until(lambda: bool(lab.page.evaluate(UNRUN) == 0), timeout_s=600)
    assert lab.kernel_eval("print(run.state, run.error)") == "done None"
    assert not [output["evalue"] for output in lab.outputs() if output["output_type"] == "error"]
