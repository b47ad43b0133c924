"""Fewer searches for garbage cycles while a program is captured or planned.

Traces are millions of objects that live as long as the program is open, and hardly one of them is garbage. Python
searches all of them again each time there are a quarter more.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

THRESHOLDS = (8_000_000, 1000, 1000)
"""For `gc.set_threshold`: new objects before Python searches these; all objects are not searched.

A Llama of 128 layers is opened with half as many, of which a hundredth are in cycles that nothing else holds. Were all
of them, it would be 800 MB.
"""

_lock = threading.Lock()
_inside = 0
_before = gc.get_threshold()


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Raise the process's thresholds until the last thread has left; thresholds that somebody else set stay."""
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            # Who searches less than that, or never, wants to.
            if 0 < _before[0] < THRESHOLDS[0]:
                gc.set_threshold(*THRESHOLDS)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _restore()


def _restore() -> None:
    if gc.get_threshold() == THRESHOLDS:
        gc.set_threshold(*_before)


def _forked() -> None:
    """Restore in a forked process: the threads that were inside are not there, and one may have held the lock."""
    global _lock, _inside
    if _inside:
        _restore()
    _lock, _inside = threading.Lock(), 0


os.register_at_fork(after_in_child=_forked)
