"""Python looks for cycles once a program is captured or planned, and not while a person waits for that.

Traces are millions of objects that live as long as the program is open, hardly one of them garbage: of a large one a
quarter of the time was spent looking through them. Python looks through all of them again each time there are a quarter
more.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Iterator

THRESHOLDS = (8_000_000, 1000, 1000)
"""As `gc.set_threshold` takes them: that many objects more before Python looks at these; never at all there are.

A Llama of 128 layers is opened with half as many, of which a hundredth are in cycles that nothing else holds. Were all
of them, it would be 800 MB.
"""

REST_S = 1.0
"""Nothing was captured or planned for as long before cycles are looked for."""

LONGEST_S = 30.0
"""CPU seconds of one plan after the other, after which they are looked for between two."""

MANY = 500_000
"""Objects made since all were looked through, after which all are again: Python would soon, while somebody waits."""

_lock = threading.RLock()
_inside = 0
_before = gc.get_threshold()
_put_off_s: float | None = None
"""When cycles began to be put off; none if they are not."""
_left_s = 0.0
_made = 0
_resting: threading.Thread | None = None


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Inside, and `REST_S` after, cycles are not looked for; for the whole process while any thread is inside."""
    global _inside, _before, _put_off_s, _left_s, _resting
    with _lock:
        now_s = time.process_time()
        if not _inside and _put_off_s is not None and now_s - _put_off_s > LONGEST_S:
            _look()
        if _put_off_s is None:
            _before, _put_off_s = gc.get_threshold(), now_s
            gc.set_threshold(*THRESHOLDS)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            _left_s = time.monotonic()
            if _resting is None:
                _resting = threading.Thread(target=_rest, name="workbench-cycles", daemon=True)
                _resting.start()


def _rest() -> None:
    global _resting
    while True:
        with _lock:
            rest_s = REST_S if _inside else _left_s + REST_S - time.monotonic()
            if rest_s <= 0:
                _resting = None
                _look()
                return
        time.sleep(rest_s)


def _look() -> None:
    global _put_off_s, _made
    if _put_off_s is not None:
        _put_off_s = None
        _made += gc.get_count()[0]
        gc.set_threshold(*_before)
        if gc.isenabled():
            gc.collect(2 if _made > MANY else 1)
            _made *= _made <= MANY


def _forked() -> None:
    """The thread that rests is not in a forked process, and who held the lock may not be either."""
    global _lock, _inside, _put_off_s, _resting
    if _put_off_s is not None:
        gc.set_threshold(*_before)
    _lock, _inside, _put_off_s, _resting = threading.RLock(), 0, None, None


os.register_at_fork(after_in_child=_forked)
