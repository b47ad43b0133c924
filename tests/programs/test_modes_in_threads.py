"""Programs that run in several threads each have their own modes. Afterwards, the process has its former modes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

import workbench
from workbench.programs import modes, placement

WAIT_S = 30.0
"""Timeout of a wait for another thread. No wait takes that long unless a thread hangs."""

SOON_S = 0.2
"""A thread that has not continued after this time is taken to be waiting."""

X = torch.ones(2, 4)


class Inside:
    """A thread that activates modes and keeps them active until `leave` is called."""

    def __init__(self, pool: ThreadPoolExecutor, named: dict[str, str], then: dict[str, str] | None = None) -> None:
        self.entered, self.ended, self._leave = threading.Event(), threading.Event(), threading.Event()
        self._named, self._then = named, then
        self._found: Future[list[dict[str, str]]] = pool.submit(self._stay)

    def _stay(self) -> list[dict[str, str]]:
        with modes.active_modes(self._named):
            found = [modes.current_modes()]
            self.entered.set()
            assert self._leave.wait(WAIT_S)
            if self._then is not None:
                with modes.active_modes(self._then):
                    found.append(modes.current_modes())
            found.append(modes.current_modes())
        self.ended.set()
        return found

    def leave(self) -> None:
        self._leave.set()

    def found(self) -> list[dict[str, str]]:
        return self._found.result(WAIT_S)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as made:
        yield made


DIFFERENT = [
    ({"default_dtype": "float64"}, {"default_dtype": "bfloat16"}),
    ({"deterministic": "on"}, {"deterministic": "warn"}),
    ({"default_dtype": "float64"}, {"deterministic": "warn"}),
    ({"default_dtype": "float64"}, {}),
]


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_threads_with_different_modes_run_one_after_the_other(
    first: dict[str, str], second: dict[str, str], pool: ThreadPoolExecutor
) -> None:
    one = Inside(pool, first)
    assert one.entered.wait(WAIT_S)
    other = Inside(pool, second)
    assert not other.entered.wait(SOON_S)
    one.leave()
    assert other.entered.wait(WAIT_S)
    other.leave()
    assert one.found() == [first, first]
    assert other.found() == [second, second]
    assert modes.current_modes() == {}


@pytest.mark.parametrize("same", [{"default_dtype": "float64"}, {"deterministic": "on"}, {}])
def test_threads_with_the_same_modes_run_together(same: dict[str, str], pool: ThreadPoolExecutor) -> None:
    one, other = Inside(pool, same), Inside(pool, same)
    assert one.entered.wait(WAIT_S)
    assert other.entered.wait(WAIT_S)
    one.leave()
    assert one.ended.wait(WAIT_S)
    other.leave()
    assert one.found() == other.found() == [same, same]
    assert modes.current_modes() == {}


def test_threads_that_activate_different_modes_inside_equal_modes_do_not_deadlock(pool: ThreadPoolExecutor) -> None:
    double, half = {"default_dtype": "float64"}, {"default_dtype": "bfloat16"}
    both = [Inside(pool, double, half), Inside(pool, double, {"deterministic": "on"})]
    assert all(each.entered.wait(WAIT_S) for each in both)
    for each in both:
        each.leave()
    assert both[0].found() == [double, half, double]
    assert both[1].found() == [double, {**double, "deterministic": "on"}, double]
    assert modes.current_modes() == {}


def test_a_mode_that_code_sets_inside_active_modes_is_kept() -> None:
    with modes.active_modes({}):
        torch.set_default_dtype(torch.float64)
    try:
        assert modes.current_modes() == {"default_dtype": "float64"}
    finally:
        torch.set_default_dtype(torch.float32)


def makes_its_own(x: torch.Tensor) -> torch.Tensor:
    return x * torch.ones(4)


@pytest.mark.slow
@pytest.mark.parametrize("work", ["open", "call"])
def test_a_program_without_modes_is_compiled_without_the_modes_of_another_thread(
    work: str, pool: ThreadPoolExecutor
) -> None:
    config = workbench.open(makes_its_own, X, capture="dynamo").config
    todo: dict[str, Callable[[], set[str]]] = {
        "open": lambda: set(workbench.open(makes_its_own, X, capture="dynamo").plan.graph.values.dtype),
        "call": lambda: {str(config.jit(makes_its_own)(X).dtype).removeprefix("torch.")},
    }
    other = Inside(pool, {"default_dtype": "float64"})
    assert other.entered.wait(WAIT_S)
    given = pool.submit(todo[work])
    with pytest.raises(TimeoutError):
        given.result(SOON_S)
    other.leave()
    assert given.result(WAIT_S) == {"float32"}
    assert other.found() == [{"default_dtype": "float64"}] * 2


@pytest.mark.slow
def test_threads_call_programs_with_different_default_types(pool: ThreadPoolExecutor) -> None:
    def of(dtype: torch.dtype) -> Callable[[], torch.dtype]:
        torch.set_default_dtype(dtype)
        try:
            config = workbench.open(makes_its_own, X.to(dtype), capture="dynamo").config
        finally:
            torch.set_default_dtype(torch.float32)
        jitted, x = config.jit(makes_its_own), X.to(dtype)
        return lambda: jitted(x).dtype

    dtypes = [torch.float64, torch.bfloat16, torch.float32]
    calls = [of(dtype) for dtype in dtypes]
    called = [pool.submit(lambda call=call: {call() for _ in range(200)}) for call in calls]
    assert [each.result(WAIT_S) for each in called] == [{dtype} for dtype in dtypes]
    assert modes.current_modes() == {}


@pytest.mark.parametrize("given_up", [modes.turn_given_up, lambda: modes.active_modes({"default_dtype": "float64"})])
def test_a_setting_that_is_changed_and_restored_in_a_turn_stays_restored(
    given_up: Callable[[], contextlib.AbstractContextManager[None]],
) -> None:
    try:
        with modes.active_modes({}), placement.restored_settings():
            torch.use_deterministic_algorithms(True)
            with given_up():
                pass
        assert modes.current_modes() == {}
    finally:
        torch.use_deterministic_algorithms(False)
