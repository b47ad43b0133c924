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
"""Thresholds for `gc.set_threshold`. The first one is the number of new objects after which Python visits them. With
the second and third one, full collections practically never run.

Opening a Llama of 128 layers creates about 4 million objects; 1 % of these objects are in unreachable cycles. If 8
million objects were garbage, they would take 800 MB.
"""

_lock = threading.Lock()
_inside = 0
_before = gc.get_threshold()


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Raise the thresholds of the process until the last thread leaves this context.

    If other code changes the thresholds in the meantime, they stay as the other code has set them.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            # A higher threshold means fewer collections, and 0 means no collections. Leave both unchanged.
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
    """Restore the thresholds in a forked process, and make a new lock.

    Other threads of the parent process do not exist in the forked process, and one of them may have held the lock.
    """
    global _lock, _inside
    if _inside:
        _restore()
    _lock, _inside = threading.Lock(), 0


os.register_at_fork(after_in_child=_restore_after_fork)
