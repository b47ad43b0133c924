"""One thread at a time; who works ahead can tell that others wait, and let them go first."""

from __future__ import annotations

import threading


class Turns:
    """A lock, which a thread can take again while it holds it, that knows whether others wait for it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._counting = threading.Lock()
        self._waiting = 0

    @property
    def awaited(self) -> bool:
        """Whether a thread waits for it."""
        return self._waiting > 0

    def __enter__(self) -> None:
        if self._lock.acquire(blocking=False):
            return
        with self._counting:
            self._waiting += 1
        try:
            self._lock.acquire()
        finally:
            with self._counting:
                self._waiting -= 1

    def __exit__(self, *_: object) -> None:
        self._lock.release()
