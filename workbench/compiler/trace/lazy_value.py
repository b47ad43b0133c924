"""A lazily computed value, made under the planning lock."""

from __future__ import annotations

from collections.abc import Callable

from workbench.compiler.trace.planning_lock import planned_property


class LazyValue[T]:
    """A value that is made when it is first asked for.

    Parameters
    ----------
    make : callable
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    @property
    def value(self) -> T:
        """The value; a thread that asks while it is made waits for it."""
        return self._made

    @planned_property
    def _made(self) -> T:
        return self._make()
