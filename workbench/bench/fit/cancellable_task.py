"""`Background`: a computation in a thread that can be cancelled and that reports its progress."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Self

from workbench.errors import DefectError, WorkbenchError
from workbench.runs.process import callbacks
from workbench.util.planning_lock import PLANNING

_LOGGER = logging.getLogger(__name__)


class _TaskCancelled(Exception):
    """The computation was cancelled."""


class Background:
    """Base class of cancellable computations in a thread. The computations do not change the bench.

    Attributes
    ----------
    error : WorkbenchError or None
        The error that ended the computation; None if there was no error. An exception that is not a `WorkbenchError`
        becomes a `DefectError`.
    """

    def __init__(self) -> None:
        self.error: WorkbenchError | None = None
        self._stop = threading.Event()
        self._whole = self._ended = False
        self._observers: list[Callable[[], None]] = []

    @property
    def state(self) -> str:
        """``working``, ``done``, ``cancelled`` or ``failed``."""
        if not self._ended:
            return "working"
        if self.error is not None:
            return "failed"
        return "done" if self._whole else "cancelled"

    def observe(self, callback: Callable[[], None]) -> None:
        """Call `callback` in the computation's thread, after each result and at the end."""
        self._observers.append(callback)

    def cancel(self) -> None:
        """Stop the computation. The results so far stay available."""
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> Self:
        """Wait until the computation has ended, or for `timeout_s` seconds.

        Raises
        ------
        WorkbenchError
            The error that ended the computation, if there was one.
        """
        self._thread.join(timeout_s)
        if self.error is not None:
            raise self.error
        return self

    def _start(self, name: str, find: Callable[[], None], on_end: Callable[[], None] = lambda: None) -> None:
        """Start a thread that calls `find`. After the state is final, the thread calls `on_end`, then the observers."""

        def work() -> None:
            try:
                with PLANNING.in_background():
                    find()
                self._whole = True
            except _TaskCancelled:
                pass
            except WorkbenchError as error:
                self.error = error
            except BaseException as error:
                _LOGGER.exception("%s failed", name)
                self.error = DefectError.of(error)
                self.error.__cause__ = error
            finally:
                self._ended = True
                on_end()
                self._notify()

        self._thread = threading.Thread(target=work, name=name, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        """Raise an exception if the computation was cancelled. The computation calls this method between its steps."""
        if self._stop.is_set() and threading.current_thread() is self._thread:
            raise _TaskCancelled

    def _notify(self) -> None:
        for callback in tuple(self._observers):
            # If an observer fails, the computation and the other observers go on. An observer may cancel the
            # computation.
            with contextlib.suppress(_TaskCancelled):
                callbacks.call(callback, subject=self._thread.name, passes=_TaskCancelled)
