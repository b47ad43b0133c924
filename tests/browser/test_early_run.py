"""*Run All* of an impatient user: the page shows the notebook, but the notebook's kernel has not started."""

from __future__ import annotations

import urllib.parse

import pytest

from tests.browser.harness import Lab

CELLS = [
    "import workbench as wb",
    "bench = wb.open('mlp', device='cpu', executor='torch')",
    "bench.app()",
    "print('all', 'ran')",
]
SLOW_SESSIONS = """
    const fetched = window.fetch;
    window.fetch = async (request, ...more) => {
        const asks = new URL(request.url ?? request, location).pathname.endsWith("/api/sessions");
        if (asks && request.method === "METHOD") await new Promise(resolve => setTimeout(resolve, 2000));
        return fetched(request, ...more);
    };
"""
"""Delay the start of kernels, so that the page shows the cells before the kernel starts.

A page lists the sessions (GET), and then asks for a new session with a kernel (POST).
"""
SHOWN = """([count, asked]) => {
    const notebook = globalThis.jupyterapp?.shell?.currentWidget;
    return notebook?.content?.model?.cells?.length === count && notebook.sessionContext.hasNoKernel !== asked;
}"""
KERNEL = "() => String(jupyterapp.shell.currentWidget.sessionContext.session?.kernel)"
COUNTS = "() => Array.from(jupyterapp.shell.currentWidget.content.model.cells, cell => cell.executionCount)"


@pytest.mark.parametrize("method", ["GET", "POST"], ids=["before it is asked for", "after it is asked for"])
def test_run_all_before_the_kernel_has_started_runs_each_cell_once(lab: Lab, method: str) -> None:
    lab.write_notebook("early.ipynb", CELLS)
    lab.page.add_init_script(SLOW_SESSIONS.replace("METHOD", method))
    path = urllib.parse.quote(f"{lab.name}/early.ipynb")
    lab.page.goto(f"{lab.server.url}/lab/workspaces/{lab.name}/tree/{path}?reset", wait_until="commit")
    lab.page.wait_for_function(SHOWN, arg=[len(CELLS), method == "POST"])
    assert lab.page.evaluate(KERNEL) in ("undefined", "null")
    lab.run_all()
    lab.run_all()  # nothing has happened, so the user asks again
    lab.wait_marker("all ran")
    assert lab.page.evaluate(COUNTS) == [1, 2, 3, 4]
    lab.page.wait_for_selector(".jp-OutputArea canvas")
    assert lab.page.locator(".jp-Dialog").count() == 0
