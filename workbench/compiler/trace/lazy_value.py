"""A value that is computed at its first use, under the planning lock."""

from __future__ import annotations

from collections.abc import Callable

from workbench.util.planning_lock import planned_property


class LazyValue[T]:
    """A value that is computed at its first use.

    Parameters
    ----------
    make : callable
        Computes the value.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    @property
    def value(self) -> T:
        """Return the value. If another thread is computing it, wait for that thread."""
        return self._cached_value

    @planned_property
    def _cached_value(self) -> T:
        return self._make()
