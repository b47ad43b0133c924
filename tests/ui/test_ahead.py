"""What is likely to be clicked is estimated while nothing else is done, and nothing waits for that."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

import workbench as wb
from tests.test_few import LAYERS, SHAPES, moved
from workbench.compiler.hooks import Superseded
from workbench.ui import ahead, choosing
from workbench.ui.ahead import Ahead
from workbench.ui.app import App

QUIET_S = 0.02


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "QUIET_S", QUIET_S)


class Few:
    """Estimates that end when they are told to, or when something newer is to be found."""

    worth, awaited = True, False

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.found: list[str] = []
        self.ends = threading.Event()

    def estimate(
        self, plan: Any, in_force: Any, choices: Mapping[str, str], newer: Callable[[], bool], *, waited_for: bool
    ) -> None:
        assert not waited_for
        (id,) = choices
        self.begun.append(id)
        while not self.ends.wait(0.001):
            if newer():
                raise Superseded
        self.found.append(id)


class Worked:
    """An `Ahead` over a bench that only looks like one."""

    def __init__(self) -> None:
        self.few, self.asked = Few(), False
        fused = SimpleNamespace(census=SimpleNamespace(count=1))
        self.bench: Any = SimpleNamespace(plan=fused, choices={}, runs=(), few=self.few)
        self.ahead = Ahead(
            self.bench,
            lambda: ({id: "recompute"} for id in "abc"),
            lambda choices: set(choices) <= set(self.few.found),
            lambda: self.asked,
        )

    def until(self, found: Callable[[], bool]) -> None:
        last_s = time.monotonic() + 20
        while not found():
            assert time.monotonic() < last_s, (self.few.begun, self.few.found)
            time.sleep(0.002)


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worked]:
    # What pytest's own threads do is nothing else that is done.
    monkeypatch.setattr(Ahead, "_others_work", lambda _: False)
    found = Worked()
    yield found
    found.ahead.close()
    found.until(lambda: not found.ahead.working)


def test_what_is_likely_is_estimated_once_the_likeliest_first(worked: Worked) -> None:
    worked.few.ends.set()
    for _ in range(2):
        worked.ahead.begin()
        worked.until(lambda: not worked.ahead.working)
    assert worked.few.begun == worked.few.found == ["a", "b", "c"]


@pytest.mark.parametrize("what", ["asked", "awaited", "run"])
def test_it_ends_when_anything_is_asked_for_and_goes_on_when_that_is_done(worked: Worked, what: str) -> None:
    worked.ahead.begin()
    worked.until(lambda: worked.few.begun == ["a"])
    worked.asked, worked.few.awaited = what == "asked", what != "asked"
    worked.bench.runs = (SimpleNamespace(state="running"),) * (what == "run")
    worked.few.ends.clear()
    time.sleep(10 * QUIET_S)
    worked.few.awaited = what == "awaited"
    time.sleep(10 * QUIET_S)
    assert worked.few.begun == ["a"]
    assert not worked.few.found
    worked.few.ends.set()
    worked.asked = worked.few.awaited = False
    worked.bench.runs = (SimpleNamespace(state="done"),)
    worked.until(lambda: not worked.ahead.working)
    assert worked.few.found == ["a", "b", "c"]


def test_it_ends_when_another_thread_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    # So long that this thread gets its share of any machine meanwhile.
    monkeypatch.setattr(ahead, "QUIET_S", 0.5)
    worked = Worked()
    worked.ahead.begin()
    worked.until(lambda: bool(worked.few.begun))
    begun_s, begun = time.thread_time(), len(worked.few.begun)
    while time.thread_time() - begun_s < 0.3:
        pass
    worked.few.ends.set()
    assert not worked.few.found
    assert len(worked.few.begun) == begun
    worked.until(lambda: not worked.ahead.working)
    assert worked.few.found == ["a", "b", "c"]


def test_it_ends_with_the_app(worked: Worked) -> None:
    worked.ahead.begin()
    worked.until(lambda: worked.few.begun == ["a"])
    worked.ahead.close()
    worked.until(lambda: not worked.ahead.working)
    worked.ahead.begin()
    assert not worked.ahead.working
    assert worked.few.begun == ["a"]


def test_it_takes_so_much_time_and_no_more(worked: Worked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MOST_S", 0.05)
    worked.ahead._left_s = 0.12
    begun: list[int] = []

    def estimate(*_: Any, **__: Any) -> None:
        begun.append(1)
        begun_s = time.thread_time()
        while time.thread_time() - begun_s < 0.03:
            pass

    monkeypatch.setattr(worked.few, "estimate", estimate)
    per_plan = []
    for _ in range(4):
        before = len(begun)
        worked.ahead.begin()
        worked.until(lambda: not worked.ahead.working)
        per_plan.append(len(begun) - before)
    # Of three kinds two are found in the time; of the whole time nothing is left after two plans.
    assert per_plan == [2, 2, 0, 0]


def test_what_goes_wrong_is_told_to_the_log_alone(worked: Worked, caplog: pytest.LogCaptureFixture) -> None:
    worked.few.begun = None  # type: ignore[assignment]
    with caplog.at_level(logging.ERROR):
        worked.ahead.begin()
        worked.until(lambda: not worked.ahead.working)
    assert "could not be estimated" in caplog.text


def ahead_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "workbench-ahead"]


def test_nothing_is_estimated_where_nothing_is_fused_or_there_is_no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "REST_S", 0.0)
    begun: list[Any] = []
    monkeypatch.setattr(Ahead, "begin", lambda self: begun.append(self))
    plain = App(wb.open("mlp", device="cpu", layers=1))
    plain.choosing._resting.join()
    wb.open("mlp", device="planned", executor="nvfuser", layers=1)
    assert not begun
    fused = App(wb.open("mlp", device="planned", executor="nvfuser", layers=1))
    fused.choosing._resting.join()
    assert {*begun} == {fused.choosing.ahead}
    plain.close()
    fused.close()


@pytest.mark.slow
def test_a_click_on_what_was_estimated_ahead_has_its_figures_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "REST_S", 0.0)
    monkeypatch.setattr(Ahead, "_others_work", lambda _: False)
    bench = wb.open("llama", layers=LAYERS, executor="nvfuser", **SHAPES)
    app = App(bench)
    shown = app.graph.data, app.strip.content, app.preview.content, app.controls.content, app.inspector.content
    app.choosing._resting.join()
    last_s = time.monotonic() + 120
    while app.choosing.ahead.working:
        assert time.monotonic() < last_s
        time.sleep(0.05)
    likely = list(app.choosing._likely())
    known = [choices for choices in likely if app.choosing.weigh(choices) is not None]
    assert len(known) >= 3
    # The likeliest, of all folded layers.
    assert known[0] == likely[0]
    assert len(known[0]) > LAYERS // 2
    for choices in known[:3]:
        gain = app.choosing.weigh(choices)
        assert gain is not None
        assert (gain.peak_bytes, gain.saved_bytes) == moved(bench, choices)
    # Nothing on the screen is another for it.
    after = app.graph.data, app.strip.content, app.preview.content, app.controls.content, app.inspector.content
    assert all(one is other for one, other in zip(shown, after, strict=True))
    app.close()
    assert not ahead_threads()
