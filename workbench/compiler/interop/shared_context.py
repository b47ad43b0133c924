"""What is changed for a process while some of its threads are inside of a `with`: put back when the last leaves."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from types import TracebackType


class SharedContext:
    """A context that several threads can be inside of at once, each as often as it likes.

    Parameters
    ----------
    changes : callable
        The context that the first to enter goes into and the last to leave comes out of.
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


def together(changes: Callable[[], Iterator[None]]) -> Callable[[], SharedContext]:
    """As `contextlib.contextmanager`, of what changes something for the whole process."""
    shared = SharedContext(contextlib.contextmanager(changes))

    @functools.wraps(changes)
    def given() -> SharedContext:
        return shared

    return given
