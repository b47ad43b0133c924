"""Python looks for cycles among what is new alone while a program is captured or planned.

Traces are millions of objects that live as long as the program is open, hardly one of them garbage. Each time a quarter
more are there, Python looks through all of them.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

THRESHOLDS = (50_000, 20, 1 << 30)
"""As `gc.set_threshold` takes them: seldom among the young, and never among all."""

_lock = threading.Lock()
_inside = 0
_before = gc.get_threshold()


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Inside, cycles are looked for among young objects alone; for the whole process while any thread is inside."""
    global _inside, _before
    with _lock:
        _inside += 1
        if _inside == 1:
            _before = gc.get_threshold()
            gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                gc.set_threshold(*_before)
