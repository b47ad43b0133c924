"""A notebook in a real kernel: its cells run in order, and what they left behind is asked for from outside.

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
"""PyTorch says so on machines that have CUDA's compiler and no GPU; it is theirs, and no output of a notebook."""
_WIDGET = "application/vnd.jupyter.widget-view+json"
_CPU = """
import os, resource
sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
"""


class Session:
    """A notebook with its kernel running.

    Attributes
    ----------
    notebook : NotebookNode
        Gets the outputs.
    peak_bytes : int
        The most memory that the kernel and all that it started had at once, sampled, as `used_bytes` counts.
    """

    def __init__(self, notebook: NotebookNode, client: NotebookClient, forked: bool) -> None:
        self.notebook = notebook
        self.peak_bytes = 0
        self._client = client
        # What Jupyter started only asks for one that is forked.
        pid = self.value("__import__('os').getpid()") if forked else client.km.provisioner.process.pid
        self._kernel = psutil.Process(pid)

    def sample(self) -> None:
        """Look how much memory is used now."""
        self.peak_bytes = max(self.peak_bytes, used_bytes(self._kernel))

    def run_all(self) -> None:
        """Run all cells.

        Raises
        ------
        CellExecutionError
            Of the first that fails.
        """
        count = 0
        for i, cell in enumerate(self.notebook.cells):
            if cell.cell_type == "code":
                count += 1
                self._client.execute_cell(cell, i)
                cell.execution_count = count
        self.sample()

    def run(self, code: str) -> str:
        """Run something else, such as an answer to an exercise; gives what was printed or shown, as text."""
        cell = v4.new_code_cell(code)
        self.notebook.cells.append(cell)
        try:
            self._client.execute_cell(cell, len(self.notebook.cells) - 1)
        finally:
            self.notebook.cells.pop()
        return text_of(cell)

    def value(self, expression: str) -> Any:
        """What an expression is in the kernel now; it has to be plain JSON data."""
        return json.loads(self.run(f"import json as _json\nprint(_json.dumps({expression}))"))

    def cpu_s(self) -> float:
        """Processor seconds of the kernel and of all that it started and that has ended."""
        return float(self.run(_CPU))


def environment() -> dict[str, str]:
    """Of a kernel. The profiler writes of a missing GPU where PyTorch is imported before the workbench."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2", "KINETO_LOG_LEVEL": "99"}


@contextmanager
def session(notebook: NotebookNode, folder: Path, *, forked: bool = False) -> Iterator[Session]:
    """A kernel for a notebook, whose files go to `folder`; ended with all that it started.

    Parameters
    ----------
    notebook : NotebookNode
    folder : Path
        The kernel's working directory, and where runs are kept.
    forked : bool
        Whether it is forked from one that has imported all, inside of `forked_kernels.served`.
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
    """Memory of a kernel and of all that it started.

    Pages of files, such as PyTorch's libraries, count as often as the process has them that has most: who else on the
    machine has them mapped makes no difference.
    """
    try:
        started = process.children(recursive=True)
    except psutil.NoSuchProcess:
        started = []
    # All of the kernel's own: what a forked one shares with others it would have alone elsewhere.
    pages = [_pages(process, "Anonymous"), *(_pages(each, "Pss_Anon") for each in started)]
    return sum(own for own, _ in pages) + max(of_files for _, of_files in pages)


def _pages(process: psutil.Process, own: str) -> tuple[int, int]:
    """Bytes of a process that are no file's, counted as the system calls `own`, and those that are."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        lines = []
    if not lines:  # it has ended
        return 0, 0
    kib = {name: int(amount.split()[0]) for name, amount in (line.split(":") for line in lines)}
    return (kib[own] + kib["Pss_Shmem"]) * 1024, (kib["Rss"] - kib["Anonymous"]) * 1024


def text_of(cell: NotebookNode) -> str:
    """The outputs of a cell as text."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(output.text)
        elif output.output_type in ("execute_result", "display_data"):
            parts.append(output.data.get("text/plain", ""))
    return "".join(parts)


def executed(notebook: NotebookNode, folder: Path) -> tuple[NotebookNode, dict[str, float]]:
    """A notebook run from top to bottom, as it is committed, and what that took.

    Returns
    -------
    notebook : NotebookNode
        As `cleaned` leaves it: the text and picture of a widget stay.
    took : dict
        ``seconds``, ``cpu_s``, ``peak_bytes``.
    """
    start = time.perf_counter()
    with session(notebook, folder) as kernel:
        kernel.run_all()
        took = {"seconds": time.perf_counter() - start, "cpu_s": kernel.cpu_s(), "peak_bytes": kernel.peak_bytes}
    return cleaned(notebook), took


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """The notebook, which it changes, without what is alive only with a kernel: a widget's view."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if _NO_DRIVER not in output.get("text", "")]
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(_WIDGET, None)
    return notebook
