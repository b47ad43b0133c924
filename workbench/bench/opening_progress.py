"""Say in a notebook what `open` does, if it takes more than a few seconds."""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

_AFTER_S = 4.0
"""The first text appears after this many seconds."""
_EVERY_S = 1.0


class OpeningProgress:
    """Context in which one line of the notebook's cell names the present step of `open`, and the time so far.

    The line appears only in a notebook, and only if the context takes more than a few seconds. At the end, the line
    says how long the context took.

    Parameters
    ----------
    name : str
        Name of the program.
    show : callable, optional
        Shows a text in place of the text before it; by default in the output of the notebook's cell. Without a
        notebook, nothing is shown by default.
    """

    def __init__(self, name: str, show: Callable[[str], None] | None = None, after_s: float = _AFTER_S) -> None:
        self._name, self._step, self._after_s = name, "tracing the program", after_s
        self._show = show if show is not None else _cell_line()
        self._begin_s = time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def say(self, step: str) -> None:
        """Name the step that begins now."""
        self._step = step

    def __enter__(self) -> Self:
        if self._show is not None:
            # The notebook finds the cell of an output by a context variable.
            run = contextvars.copy_context().run
            self._thread = threading.Thread(target=run, args=(self._run, self._show), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, show: Callable[[str], None]) -> None:
        wait_s = self._after_s
        while not self._ended.wait(wait_s):
            show(f"Opening {self._name}: {self._step}, {self._seconds()} s so far")
            wait_s = _EVERY_S
        if wait_s != self._after_s:
            show(f"Opening {self._name} took {self._seconds()} s")

    def _seconds(self) -> int:
        return round(time.monotonic() - self._begin_s)


def _cell_line() -> Callable[[str], None] | None:
    """Return a function that shows a text in the notebook's cell in place of its last text; None without a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not hasattr(shell, "kernel"):
        return None
    display: Any = sys.modules["IPython"].display
    line = display.DisplayHandle(uuid.uuid4().hex)
    begun = False

    def show(text: str) -> None:
        nonlocal begun
        (line.update if begun else line.display)({"text/plain": text}, raw=True)
        begun = True

    return show
