"""What is made when it is first asked for, by whichever thread asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property


class Later[T]:
    """What is made when it is first asked for.

    Parameters
    ----------
    make : callable
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._one_at_a_time = threading.RLock()

    @property
    def value(self) -> T:
        """What was made; whoever asks meanwhile waits for it."""
        with self._one_at_a_time:
            return self._made

    @cached_property
    def _made(self) -> T:
        return self._make()
