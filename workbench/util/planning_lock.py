"""Process-wide lock for capturing and planning programs, one at a time.

Planning shares fake tensor modes, memo tables, facts about statements, and the contexts of Thunder and Dynamo. Lazily
computed values use the same lock. With two locks, threads that take them in different orders could deadlock.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from types import TracebackType
from typing import Any, Self, overload


class Superseded(Exception):
    """Planning ended because a newer request replaces it."""


class _YieldedError(Exception):
    """Planning in a background thread ended because a foreground thread is waiting; it restarts afterwards."""


class PlanningLock:
    """A reentrant lock that gives foreground threads priority over background threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._owner, self._depth, self._foreground = 0, 0, 0
        self._thread = threading.local()

    @property
    def is_mine(self) -> bool:
        """Return whether this thread holds the lock."""
        return self._owner == threading.get_ident()

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Context in which this thread is a background thread."""
        before, self._thread.background = self._is_background, True
        try:
            yield
        finally:
            self._thread.background = before

    def give_way(self) -> None:
        """End planning in a background thread if a foreground thread is waiting.

        Raises
        ------
        _YieldedError
            `one_at_a_time` catches the exception and plans again.
        """
        if self._foreground and self._is_background and getattr(self._thread, "restarts", False):
            raise _YieldedError

    def set_restart(self, *, on: bool) -> None:
        """Record whether this thread's work under the lock restarts after it gave way."""
        self._thread.restarts = on

    def drop_parent_threads(self) -> None:
        """Drop the threads of the parent process, because a forked process does not have them."""
        self._changed, self._foreground = threading.Condition(threading.Lock()), 0
        if not self.is_mine:
            self._owner = self._depth = 0

    @property
    def _is_background(self) -> bool:
        return getattr(self._thread, "background", False)

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner == me:
            self._depth += 1
            return
        foreground = not self._is_background
        with self._changed:
            self._foreground += foreground
            try:
                self._changed.wait_for(lambda: not self._owner and (foreground or not self._foreground))
                self._owner, self._depth = me, 1
            finally:
                self._foreground -= foreground
                # Wake background threads that have seen this thread wait.
                self._changed.notify_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            with self._changed:
                self._owner = 0
                self._changed.notify_all()


PLANNING = PlanningLock()


os.register_at_fork(after_in_child=PLANNING.drop_parent_threads)


def one_at_a_time[**P, T](plan: Callable[P, T]) -> Callable[P, T]:
    """Call a function under the lock; if it gives way to a foreground thread, call it again."""

    @functools.wraps(plan)
    def planned(*args: P.args, **kwargs: P.kwargs) -> T:
        outermost = not PLANNING.is_mine
        while True:
            with PLANNING:
                if outermost:
                    PLANNING.set_restart(on=True)
                try:
                    return plan(*args, **kwargs)
                except _YieldedError:
                    if not outermost:
                        raise
                finally:
                    if outermost:
                        PLANNING.set_restart(on=False)

    return planned


class planned_property[T](cached_property[T]):
    """A `cached_property` that is computed under the lock, so never by two threads at once."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with PLANNING:
            return super().__get__(instance, owner)
