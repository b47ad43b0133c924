"""Python looks for cycles as before once nothing was planned for a while, and not while something is."""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from workbench.compiler import cycles


class Node:
    """What refers to itself, so that only a look for cycles finds it."""

    def __init__(self) -> None:
        self.itself = self


def a_cycle() -> weakref.ref[Node]:
    return weakref.ref(Node())


def until(found: Callable[[], bool], within_s: float = 20.0) -> None:
    last_s = time.monotonic() + within_s
    while not found():
        assert time.monotonic() < last_s
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def none_put_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test begins and ends as if nothing had been planned for a while."""
    monkeypatch.setattr(cycles, "REST_S", 0.02)
    until(lambda: cycles._resting is None)
    yield
    until(lambda: cycles._resting is None)


def test_they_are_looked_for_as_before_once_nothing_is_planned() -> None:
    before, cycle = gc.get_threshold(), None

    @cycles.few_collections()
    def fails() -> None:
        nonlocal cycle
        with cycles.few_collections():
            assert gc.get_threshold() == cycles.THRESHOLDS
        assert gc.get_threshold() == cycles.THRESHOLDS
        cycle = a_cycle()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert before != cycles.THRESHOLDS
    until(lambda: gc.get_threshold() == before)
    assert cycle is not None
    until(lambda: cycle() is None)


def test_they_wait_for_all_that_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    with cycles.few_collections():
        cycle = a_cycle()
        with cycles.few_collections():
            pass
        time.sleep(0.2)
        assert cycle() is not None
    # One plan after the other is no rest.
    monkeypatch.setattr(cycles, "REST_S", 0.5)
    for _ in range(8):
        with cycles.few_collections():
            time.sleep(0.1)
        assert cycle() is not None


def test_they_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycles, "REST_S", 1.0)
    with cycles.few_collections():
        cycle = a_cycle()
    with cycles.few_collections():
        assert cycle() is not None
    monkeypatch.setattr(cycles, "LONGEST_S", -1.0)
    with cycles.few_collections():
        assert cycle() is None
        assert gc.get_threshold() == cycles.THRESHOLDS


def test_all_objects_are_looked_through_once_many_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    collect_them = gc.collect

    def collect(generation: int) -> None:
        looked_at.append(generation)
        collect_them(generation)

    monkeypatch.setattr(cycles, "MANY", 10_000)
    kept: list[list[None]] = []
    gc.collect()
    monkeypatch.setattr(cycles.gc, "collect", collect)
    monkeypatch.setattr(cycles, "_made", 0)
    for count in range(1, 4):
        with cycles.few_collections():
            kept.extend([None] for _ in range(6_000))
        until(lambda count=count: len(looked_at) == count)  # type: ignore[misc]
    assert looked_at == [1, 2, 1]


def test_who_has_them_off_keeps_them_off() -> None:
    gc.disable()
    try:
        with cycles.few_collections():
            cycle = a_cycle()
        until(lambda: cycles._resting is None)
        assert cycle() is not None
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_looks_for_them() -> None:
    before = gc.get_threshold()
    with cycles.few_collections():
        child = os.fork()
        if not child:
            os._exit(gc.get_threshold() != before)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
