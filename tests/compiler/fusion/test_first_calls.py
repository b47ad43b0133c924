"""If several threads make the first call of a fusion at once, the fusion is compiled and counted only once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.needs import needs_nvfuser
from workbench.compiler.fusion import executors
from workbench.compiler.fusion.executors import Compilation, LazyRegion
from workbench.compiler.trace import copy_sets

THREADS = 4


class Watching:
    """An observer of compilations that records the beginning and the end of each fusion's compilation."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.ended: list[tuple[str, int]] = []

    def stage(self, name: str, seconds: float) -> None:
        """Ignore stages."""

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        self.begun.append((name, index))

    def fusion_end(self, name: str, index: int, count: int, seconds: float, *_: Any) -> None:
        self.ended.append((name, index))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the compiler by a slow stand-in. Return the list to which the stand-in adds the compiled regions."""
    found: list[str] = []

    def make(members: list[str], *_: Any, **__: Any) -> Callable[..., Any]:
        code: list[str] = []

        def call(x: int) -> int:
            # The first call compiles, as with `torch.compile`.
            if not code:
                time.sleep(0.05)
                code.append(members[0])
                found.append(members[0])
            return x + 1

        return call

    monkeypatch.setattr(executors, "make_compiled", make)
    monkeypatch.setattr(executors, "memory_with_several_views", lambda *_: False)
    monkeypatch.setattr(executors, "fusion_key", lambda bsym: bsym.key)
    return found


def region(compilation: Compilation, name: str) -> LazyRegion:
    made = LazyRegion(compilation, name, None)
    bsym: Any = SimpleNamespace(subsymbols=[name], args=[], output=[], key="the structure")
    made.bsym = bsym
    return made


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run all calls at the same time, each in its own thread. Return their results."""
    together, found = threading.Barrier(len(calls)), list[Any]()

    def run(call: Callable[[], Any]) -> None:
        together.wait()
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 - compared in the main thread
            found.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_a_region_that_threads_call_together_is_compiled_once(compiled: list[str]) -> None:
    watching = Watching()
    compilation = Compilation(watching)
    one = region(compilation, "one")
    assert at_once([lambda: one(1)] * THREADS) == [2] * THREADS
    assert compiled == ["one"]
    assert watching.begun == watching.ended == [("one", 0)]
    assert compilation.begun == 1


def test_regions_of_one_structure_that_threads_call_together_are_compiled_once(compiled: list[str]) -> None:
    watching = Watching()
    compilation = Compilation(watching)
    compilation.options = executors.FusionOptions(share=True)
    regions = [region(compilation, f"region {number}") for number in range(THREADS)]
    assert at_once([lambda each=each: each(1) for each in regions]) == [2] * THREADS  # type: ignore[misc]
    assert len(compiled) == len(watching.begun) == compilation.begun == 1


@needs_nvfuser
def test_an_nvfuser_fusion_that_threads_call_is_defined_and_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_sets, "copy_facts", lambda bsym: [])
    monkeypatch.setattr(copy_sets, "copies_without_set", lambda bsym, policies: set())
    defined, executed = [], []

    def execute(x: int) -> int:
        time.sleep(0.05)
        executed.append(x)
        return x + 1

    def define(descriptors: Any) -> Any:
        time.sleep(0.05)
        defined.append(descriptors)
        return SimpleNamespace(execute=execute)

    watching = Watching()
    compilation = Compilation(watching)
    wrapper = SimpleNamespace(get_fd=define)
    bsym: Any = SimpleNamespace(sym=SimpleNamespace(name="nvFusion0"), _call_ctx={"nvFusion0": wrapper})
    executors._control_definition(bsym, compilation)
    # Each thread gets the definition and then executes it, as in nvFuser's wrapper.
    assert at_once([lambda: wrapper.get_fd("floats").execute(1)] * THREADS) == [2] * THREADS
    assert defined == ["floats"]
    assert len(executed) == THREADS
    assert watching.begun == watching.ended == [("nvFusion0", 0)]
