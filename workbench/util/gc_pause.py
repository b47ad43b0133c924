"""Run the garbage collector less often during work that makes many lasting objects, such as capture and planning.

Traces consist of millions of objects that stay alive as long as the program is open. Python runs a full collection
each time the number of objects has grown by a quarter. Such a collection visits all objects and frees almost none.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

THRESHOLDS = (8_000_000, 1000, 1000)
"""Arguments of `gc.set_threshold`. The first number is how many new objects trigger a collection of the new objects.
The second and third numbers are so large that full collections practically never run.

Opening a Llama of 128 layers creates about 4 million objects, of which 1 % are in unreachable cycles. Even if all of
the 8 million new objects before a collection were garbage, they would take only 800 MB.
"""

MANY = 500_000
"""If a block leaves more new objects than this, they move to the oldest generation without being visited.

Opening a Llama of 32 layers leaves 1.2 million objects. In the middle generation, a collection during one of the next
ten choices would visit all of them, and would take as long as the choice itself.
"""

FROZEN_BY_PYTHON = 5_000
"""Python freezes fewer objects than this when it starts (375 in Python 3.12)."""

_lock = threading.Lock()
_inside = 0
_before = gc.get_threshold()


@contextlib.contextmanager
def paused_gc() -> Iterator[None]:
    """Raise the garbage collector's thresholds in this process until the last thread leaves this context.

    If other code changes the thresholds in the meantime, the new thresholds stay.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            # Do not change a higher threshold (fewer collections) or 0 (no collections).
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
        if gc.get_count()[0] > MANY and gc.get_freeze_count() < FROZEN_BY_PYTHON:
            # These two calls move lists of objects and visit no object. If other code has frozen objects, do not call
            # `unfreeze`, because it would release these objects too.
            gc.freeze()
            gc.unfreeze()
        gc.set_threshold(*_before)


def _restore_after_fork() -> None:
    """Restore the thresholds and make a new lock in a forked process.

    The parent's other threads do not exist in the forked process, and one of them may have held the old lock.
    """
    global _lock, _inside
    if _inside:
        _restore()
    _lock, _inside = threading.Lock(), 0


os.register_at_fork(after_in_child=_restore_after_fork)
