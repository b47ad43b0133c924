"""Call observers of runs from a single thread, one call after another, with no lock held."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

_LOGGER = logging.getLogger(__name__)


class _Queue:
    """Pending calls, and the thread that makes them."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, act: Callable[[], None]) -> None:
        self._calls.put(act)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name="workbench-events", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            call(self._calls.get(), subject="a run")


_QUEUE = _Queue()


def _renew() -> None:
    """Make a new queue in a forked process, where the old queue's thread does not run and its lock may stay locked."""
    global _QUEUE
    _QUEUE = _Queue()


os.register_at_fork(after_in_child=_renew)


def post(act: Callable[[], None]) -> None:
    """Call `act` soon, after all functions that were posted before, in the single thread that calls observers."""
    _QUEUE.put(act)


def call(
    callback: Callable[..., object], *arguments: Any, subject: str, passes: type[BaseException] | tuple[()] = ()
) -> None:
    """Call an observer. Log its exceptions instead of raising them, so that a broken view affects nothing else.

    A `KeyboardInterrupt` in the main thread is raised, because it comes from the user.

    Parameters
    ----------
    callback : callable
    *arguments
    subject : str
        Name of the observed object, for the log.
    passes : type, optional
        Type of exceptions that do not come from the observer. They are raised again and not logged.
    """
    try:
        callback(*arguments)
    except passes:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # the exception is the user's own, not the observer's
        _LOGGER.exception("an observer of %s failed", subject)
