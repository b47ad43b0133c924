"""Run the cells of a notebook in a real kernel, and evaluate expressions in this kernel.

::

    with session(read(source), folder) as kernel:
        kernel.run_all()
        assert kernel.value("bench.plan.saved_bytes") > 0
        assert "too many" in kernel.run("check('wrong answer')")
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from nbclient import NotebookClient
from nbformat import NotebookNode, v4

from tests.browser import forked_kernels
from tests.notebooks.source import ROOT

CELL_TIMEOUT_S = 1800
SAMPLED_EVERY_S = 1.0
_NO_DRIVER = "No CUDA runtime is found"
"""PyTorch prints this text on machines that have CUDA's compiler but no GPU. `cleaned` removes it from notebooks."""
_WIDGET = "application/vnd.jupyter.widget-view+json"
_CPU = """
import os, resource
sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
"""


class Session:
    """A notebook and its running kernel.

    Attributes
    ----------
    notebook : NotebookNode
        The notebook. Running a cell writes outputs into it.
    peak_bytes : int
        Largest sampled memory of the kernel and its child processes, counted as in `used_bytes`.
    """

    def __init__(self, notebook: NotebookNode, client: NotebookClient, forked: bool) -> None:
        self.notebook = notebook
        self.peak_bytes = 0
        self._client = client
        # Jupyter's child process is not the forked kernel, but a client that requested it. Ask the kernel for its id.
        pid = self.value("__import__('os').getpid()") if forked else client.km.provisioner.process.pid
        self._kernel = psutil.Process(pid)

    def sample(self) -> None:
        """Measure the memory of the kernel and its child processes, and update `peak_bytes`."""
        self.peak_bytes = max(self.peak_bytes, used_bytes(self._kernel))

    def run_all(self) -> None:
        """Run all cells.

        Raises
        ------
        CellExecutionError
            If a cell fails.
        """
        count = 0
        for i, cell in enumerate(self.notebook.cells):
            if cell.cell_type == "code":
                count += 1
                self._client.execute_cell(cell, i)
                cell.execution_count = count
        self.sample()

    def run(self, code: str) -> str:
        """Run further code, such as an answer to an exercise. Return its outputs as text."""
        cell = v4.new_code_cell(code)
        self.notebook.cells.append(cell)
        try:
            self._client.execute_cell(cell, len(self.notebook.cells) - 1)
        finally:
            self.notebook.cells.pop()
        return text_of(cell)

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the kernel, and return its value. The value must be plain JSON data."""
        return json.loads(self.run(f"import json as _json\nprint(_json.dumps({expression}))"))

    def cpu_s(self) -> float:
        """Return the CPU seconds of the kernel and of its child processes that have ended."""
        return float(self.run(_CPU))


def environment() -> dict[str, str]:
    """Return the environment variables for kernels.

    They silence PyTorch's profiler. Without them, the profiler would print that no GPU was found if a notebook imports
    PyTorch before the workbench.
    """
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2", "KINETO_LOG_LEVEL": "99"}


@contextmanager
def session(notebook: NotebookNode, folder: Path, *, forked: bool = False) -> Iterator[Session]:
    """Start a kernel for a notebook. When the `with` block ends, end the kernel and all its child processes.

    Parameters
    ----------
    notebook : NotebookNode
    folder : Path
        The kernel's working directory. The workbench also writes the folders of runs into it.
    forked : bool
        If true, the kernel is forked from a process that has imported all needed modules. This works only inside
        `forked_kernels.served`.
    """
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name=forked_kernels.NAME if forked else "python3",
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
        record_timing=False,
    )
    with client.setup_kernel(env=environment()):
        opened = Session(notebook, client, forked)
        stop = threading.Event()
        watch = threading.Thread(target=_watch, args=(opened, stop), daemon=True)
        watch.start()
        try:
            yield opened
        finally:
            stop.set()
            watch.join()


def _watch(session: Session, stop: threading.Event) -> None:
    while not stop.wait(SAMPLED_EVERY_S):
        session.sample()


def used_bytes(process: psutil.Process) -> int:
    """Return the bytes of memory of a kernel and its child processes.

    Processes share the pages of mapped files, such as PyTorch's libraries. These pages count once: for the process that
    has the most of them. Other processes of the machine that map the same files do not change the result.
    """
    try:
        started = process.children(recursive=True)
    except psutil.NoSuchProcess:
        started = []
    # A forked kernel shares anonymous pages with its parent process. Count them for the kernel, because a kernel that
    # was not forked would own them.
    pages = [_pages(process, "Anonymous"), *(_pages(each, "Pss_Anon") for each in started)]
    return sum(own for own, _ in pages) + max(of_files for _, of_files in pages)


def _pages(process: psutil.Process, own: str) -> tuple[int, int]:
    """Return two numbers of bytes of a process from `smaps_rollup`: memory of its own (field `own`), and of files."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        lines = []
    if not lines:  # the process has ended
        return 0, 0
    kib = {name: int(amount.split()[0]) for name, amount in (line.split(":") for line in lines)}
    return (kib[own] + kib["Pss_Shmem"]) * 1024, (kib["Rss"] - kib["Anonymous"]) * 1024


def text_of(cell: NotebookNode) -> str:
    """Return the outputs of a cell as text."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif output.output_type in ("execute_result", "display_data"):
            parts.append(output.data.get("text/plain", ""))
    return "".join(parts)


def executed(notebook: NotebookNode, folder: Path) -> tuple[NotebookNode, dict[str, float]]:
    """Run a notebook from top to bottom. Return the notebook in the form for a commit, and the cost of the run.

    Returns
    -------
    notebook : NotebookNode
        The notebook after `cleaned`, which leaves only the text and the picture of each widget.
    took : dict
        ``seconds``, ``cpu_s``, ``peak_bytes``.
    """
    start = time.perf_counter()
    with session(notebook, folder) as kernel:
        kernel.run_all()
        took = {"seconds": time.perf_counter() - start, "cpu_s": kernel.cpu_s(), "peak_bytes": kernel.peak_bytes}
    return cleaned(notebook), took


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Remove from a notebook, in place: views of widgets, execution times, and messages about a missing driver."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if _NO_DRIVER not in output.get("text", "")]
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(_WIDGET, None)
    return notebook
