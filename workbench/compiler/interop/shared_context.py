"""Context manager for process-wide changes. The first thread to enter makes them, and the last to leave undoes them."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from types import TracebackType


class SharedContext:
    """A context manager that several threads may use at the same time. Each thread may enter it several times.

    Parameters
    ----------
    changes : callable
        Returns a context manager that makes and undoes the changes. That context manager is entered
        when the first thread enters, and exited when the last thread leaves.
    """

    def __init__(self, changes: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._changes = changes
        self._lock = threading.Lock()
        self._inside = 0
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._entered.enter_context(self._changes())
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._entered.close()


def shared_context(changes: Callable[[], Iterator[None]]) -> Callable[[], SharedContext]:
    """Turn a generator function into a function that always returns the same `SharedContext`.

    Use this as a decorator, like `contextlib.contextmanager`.
    """
    shared = SharedContext(contextlib.contextmanager(changes))

    @functools.wraps(changes)
    def get_context() -> SharedContext:
        return shared

    return get_context
