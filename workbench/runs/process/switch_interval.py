"""Shorten the interpreter's switch interval while this process follows runs."""

from __future__ import annotations

import sys
import threading

SWITCH_INTERVAL_S = 0.0005
"""Maximum switch interval while a run is followed; see `_ShortSwitchInterval`."""


class _ShortSwitchInterval:
    """Context manager: while at least one thread is in its block, all threads get the interpreter's lock soon.

    The threads get the lock even while a notebook's cell computes.

    A thread requests the lock after it has waited for the switch interval, if no other thread took the lock meanwhile.
    If a cell briefly releases the lock more often than once in this interval, for example to access a file, the thread
    never requests the lock. The cell always takes the lock back first, and the other threads starve. This once delayed
    a click on Cancel by seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within = 0
        self._before_s = self._set_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before_s, SWITCH_INTERVAL_S))
                self._set_s = sys.getswitchinterval()
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            # Keep a value that other code has set in the meantime.
            if not self._within and sys.getswitchinterval() == self._set_s:
                sys.setswitchinterval(self._before_s)


SHORT_SWITCH_INTERVAL = _ShortSwitchInterval()
