"""The process-wide lock under which programs are captured and planned, one at a time.

Threads must not plan at the same time, because they share fake tensor modes, memo tables, and the contexts of Thunder
and Dynamo. Lazily computed values use the same lock: with a second lock, threads that acquire both locks in different
orders could deadlock.
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
    """Raised to end planning because a newer request must be planned."""


class _YieldedError(Exception):
    """Raised to interrupt planning in a background thread for a waiting foreground thread. Planning restarts later."""


class PlanningLock:
    """A reentrant lock that gives foreground threads priority over background threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._owner, self._depth, self._foreground = 0, 0, 0
        self._thread = threading.local()

    @property
    def is_mine(self) -> bool:
        """True if the calling thread holds the lock."""
        return self._owner == threading.get_ident()

    @property
    def is_wanted(self) -> bool:
        """True if a foreground thread waits for the lock."""
        return self._foreground > 0

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Make the calling thread a background thread inside this context."""
        before, self._thread.background = self._is_background, True
        try:
            yield
        finally:
            self._thread.background = before

    def give_way(self) -> None:
        """Interrupt planning if it runs in a background thread and can restart, and a foreground thread is waiting.

        Raises
        ------
        _YieldedError
            If planning is interrupted. `one_at_a_time` catches the exception and plans again.
        """
        if self._foreground and self._is_background and getattr(self._thread, "restarts", False):
            raise _YieldedError

    def let_others(self) -> None:
        """Wait until the lock is free and no foreground thread waits for it."""
        with self.in_background(), self:
            pass

    def set_restart(self, *, on: bool) -> None:
        """Set whether the calling thread's work under the lock can be interrupted and restarted."""
        self._thread.restarts = on

    def drop_parent_threads(self) -> None:
        """Reset the lock in a forked process, where only the forking thread exists.

        If the forking thread held the lock, it still holds the lock. Otherwise no thread holds the lock.
        """
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
                # Wake the background threads: they also wait until no foreground thread waits.
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
    """Return a function that runs `plan` under the lock. After each interruption, `plan` runs again from its start."""

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
                except UnboundLocalError as error:
                    # Thunder reads a name in a `finally`. The name is unbound if a KeyboardInterrupt came before its
                    # assignment.
                    if isinstance(error.__context__, KeyboardInterrupt):
                        raise error.__context__ from None
                    raise
                finally:
                    if outermost:
                        PLANNING.set_restart(on=False)

    return planned


class planned_property[T](cached_property[T]):
    """A `cached_property` that is computed under the lock, so that two threads never compute it simultaneously."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is None:
            return self
        with PLANNING:
            return super().__get__(instance, owner)
