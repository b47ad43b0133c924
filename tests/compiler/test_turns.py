"""Who works ahead can tell that others wait."""

from __future__ import annotations

import threading
import time

from workbench.compiler.turns import Turns


def test_it_is_known_whether_a_thread_waits() -> None:
    turns, taken = Turns(), threading.Event()

    def take() -> None:
        with turns:
            taken.set()

    other = threading.Thread(target=take)
    with turns:
        with turns:
            assert not turns.awaited
        other.start()
        last_s = time.monotonic() + 20
        while not turns.awaited:
            assert time.monotonic() < last_s
            time.sleep(0.001)
        assert not taken.is_set()
    other.join(20)
    assert taken.is_set()
    assert not turns.awaited
