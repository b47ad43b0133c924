"""Run the garbage collector less often while a program is captured or planned.

Traces are millions of objects that live as long as the program is open, and almost none of them become garbage. Python
visits all of them again each time their number has grown by a quarter.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

THRESHOLDS = (8_000_000, 1000, 1000)
"""Thresholds for `gc.set_threshold`: the number of new objects before Python visits them. Full collections practically
never run.

Opening a Llama of 128 layers creates half that number of objects. A hundredth of them are in unreachable cycles. If all
of the allowed objects were garbage, they would take 800 MB.
"""

_lock = threading.Lock()
_inside = 0
_before = gc.get_threshold()


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Raise the process's thresholds until the last thread has left. Keep thresholds that other code sets meanwhile."""
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            # Keep a higher threshold, for fewer collections, or 0, for none: other code set it on purpose.
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


def _restore_after_fork() -> None:
    """Restore the thresholds in a forked process.

    Its parent's other threads do not exist there, and one may have held the lock.
    """
    global _lock, _inside
    if _inside:
        _restore()
    _lock, _inside = threading.Lock(), 0


os.register_at_fork(after_in_child=_restore_after_fork)
