"""*Run All* of an impatient user: the page shows the notebook, but the notebook's kernel has not started."""

from __future__ import annotations

import urllib.parse

from tests.browser.harness import Lab

CELLS = [
    "import workbench as wb",
    "bench = wb.open('mlp', device='cpu', executor='torch')",
    "bench.app()",
    "print('all', 'ran')",
]
SLOW_START = """
    const fetched = window.fetch;
    window.fetch = async (request, ...more) => {
        const asks = new URL(request.url ?? request, location).pathname.endsWith("/api/sessions");
        if (asks && request.method === "POST") await new Promise(resolve => setTimeout(resolve, 2000));
        return fetched(request, ...more);
    };
"""
"""Delay the start of kernels, so that the page shows the cells before the kernel starts."""

SHOWN = """count => {
    const notebook = globalThis.jupyterapp?.shell?.currentWidget;
    return notebook?.content?.model?.cells?.length === count && !notebook.sessionContext.hasNoKernel;
}"""
"""Whether the page shows `count` cells, and the name of the kernel that it has asked for.

Before it has asked for one, *Run All* opens JupyterLab's dialog to select a kernel.
"""
KERNEL = "() => String(jupyterapp.shell.currentWidget.sessionContext.session?.kernel)"
COUNTS = "() => Array.from(jupyterapp.shell.currentWidget.content.model.cells, cell => cell.executionCount)"


def open_early(lab: Lab, name: str, cells: int) -> None:
    """Open a notebook. Return when the page shows its cells, before its kernel starts."""
    lab.page.add_init_script(SLOW_START)
    path = urllib.parse.quote(f"{lab.name}/{name}")
    lab.page.goto(f"{lab.server.url}/lab/workspaces/{lab.name}/tree/{path}?reset", wait_until="commit")
    lab.page.wait_for_function(SHOWN, arg=cells)
    assert lab.page.evaluate(KERNEL) in ("undefined", "null")


def test_run_all_before_the_kernel_has_started_runs_each_cell_once(lab: Lab) -> None:
    lab.write_notebook("early.ipynb", CELLS)
    open_early(lab, "early.ipynb", len(CELLS))
    lab.run_all()
    lab.run_all()  # nothing has happened, so the user asks again
    lab.wait_marker("all ran")
    assert lab.page.evaluate(COUNTS) == [1, 2, 3, 4]
    lab.page.wait_for_selector(".jp-OutputArea canvas")
