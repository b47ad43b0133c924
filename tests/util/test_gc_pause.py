"""Planning pauses Python's garbage collector and restores it afterwards. Thresholds set in between are kept."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator

import pytest
import torch

import workbench
from workbench.interop.torch_private import dynamo_config
from workbench.util import gc_pause


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    assert before != gc_pause.THRESHOLDS
    yield before
    assert not gc_pause._inside
    gc.set_threshold(*before)


def test_thresholds_are_restored_when_the_outermost_block_ends(thresholds: tuple[int, int, int]) -> None:
    @gc_pause.paused_gc()
    def fails() -> None:
        with gc_pause.paused_gc():
            assert gc.get_threshold() == gc_pause.THRESHOLDS
        assert gc.get_threshold() == gc_pause.THRESHOLDS
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert gc.get_threshold() == thresholds


def test_thresholds_are_restored_when_the_last_thread_leaves(thresholds: tuple[int, int, int]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with gc_pause.paused_gc():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with gc_pause.paused_gc():
        thread.start()
        assert inside.wait(60)
    assert gc.get_threshold() == gc_pause.THRESHOLDS
    leave.set()
    thread.join()
    assert gc.get_threshold() == thresholds


def test_thresholds_that_other_code_sets_inside_a_block_stay() -> None:
    with gc_pause.paused_gc(), gc_pause.paused_gc():
        gc.set_threshold(5_000, 7, 7)
    assert gc.get_threshold() == (5_000, 7, 7)
    with gc_pause.paused_gc():
        assert gc.get_threshold() == gc_pause.THRESHOLDS
    assert gc.get_threshold() == (5_000, 7, 7)


@pytest.mark.parametrize("given", [(0, 10, 10), (50_000_000, 10, 10)])
def test_if_a_user_has_fewer_or_no_collections_the_thresholds_stay(given: tuple[int, int, int]) -> None:
    gc.set_threshold(*given)
    with gc_pause.paused_gc():
        assert gc.get_threshold() == given
    assert gc.get_threshold() == given


def test_no_collection_runs_and_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[object] = []
    monkeypatch.setattr(gc, "collect", lambda *given: collected.append(given))
    threads = set(threading.enumerate())
    gc.disable()
    try:
        for _ in range(3):
            with gc_pause.paused_gc():
                assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert collected == []
    assert set(threading.enumerate()) == threads


def breaks(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return torch.sin(x)


@pytest.mark.parametrize(("program", "capture"), [(torch.sin, "dynamo"), (breaks, "parts")])
def test_a_program_is_opened_without_a_collection(
    program: Callable[[torch.Tensor], torch.Tensor], capture: str
) -> None:
    looked_at: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        looked_at.append(info["generation"])

    before = dynamo_config.run_gc_after_compile
    dynamo_config.run_gc_after_compile = True
    try:
        with gc_pause.paused_gc():
            gc.callbacks.append(note)
            bench = workbench.open(program, torch.ones(3, requires_grad=True), capture=capture)
            gc.callbacks.remove(note)
        assert bench.capture == capture
        assert looked_at == []
        assert dynamo_config.run_gc_after_compile
    finally:
        dynamo_config.run_gc_after_compile = before


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_the_original_thresholds() -> None:
    before = gc.get_threshold()
    with gc_pause.paused_gc():
        child = os.fork()
        if not child:
            ok = gc.get_threshold() == before
            with gc_pause.paused_gc():
                ok = ok and gc.get_threshold() == gc_pause.THRESHOLDS
            os._exit(not (ok and gc.get_threshold() == before))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def place_of_new_objects(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Make many objects in a block. Return the generations of the first and of the last object after the block."""
    monkeypatch.setattr(gc_pause, "MANY", 10_000)
    with gc_pause.paused_gc():
        kept = [[number] for number in range(gc_pause.MANY + 5_000)]
    ends = kept[0], kept[-1]
    return [n for n in range(3) for each in gc.get_objects(n) if any(each is end for end in ends)]


def test_many_new_objects_are_in_the_oldest_generation_after_their_block(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.unfreeze()  # `conftest` freezes the objects of the imports
    try:
        assert place_of_new_objects(monkeypatch) == [2, 2]
    finally:
        gc.freeze()


def test_objects_that_other_code_has_frozen_stay_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    assert 2 not in place_of_new_objects(monkeypatch)
    assert gc.get_freeze_count() > 0.9 * frozen > gc_pause.FROZEN_BY_PYTHON


def test_the_garbage_collector_stays_paused_while_a_new_plan_is_compared_and_shown(
    mlp_bench: workbench.Workbench, thresholds: tuple[int, int, int]
) -> None:
    seen: list[tuple[int, int, int]] = []
    site = next(site for site in mlp_bench.sites("saved") if "recompute" not in site.illegal and site.values)
    forget = mlp_bench.observe(lambda: seen.append(gc.get_threshold()))
    mlp_bench.choose({site.id: "recompute"})
    forget()
    assert seen == [gc_pause.THRESHOLDS]
    assert gc.get_threshold() == thresholds
