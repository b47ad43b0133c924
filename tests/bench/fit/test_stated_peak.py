"""A peak that is stated while the curve is being computed is answered first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import workbench
from workbench import Workbench
from workbench.bench.fit.fit_with_cuts import FitterWithCuts
from workbench.bench.fit.pareto_curve import Curve
from workbench.errors import PlanError

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return workbench.open("mlp", device="cpu", layers=3)


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event. Until it is set, no curve finds its least peak."""
    search, release = FitterWithCuts.lowest_peak, threading.Event()

    def held(fitter: FitterWithCuts) -> object:
        while threading.current_thread().name == "workbench-curve" and not release.wait(0.01):
            fitter._go_on()
        return search(fitter)

    monkeypatch.setattr(FitterWithCuts, "lowest_peak", held)
    yield release
    release.set()


@pytest.fixture
def curve(bench: Workbench, release: threading.Event) -> Iterator[Curve]:
    curve = bench.curve(points=3)
    yield curve
    curve.cancel()
    curve.wait(60)


def test_a_stated_peak_is_answered_before_the_least_peak_of_the_curve(
    bench: Workbench, curve: Curve, release: threading.Event
) -> None:
    alone = bench.fit("95%")
    assert alone.choices
    assert curve.fit("95%").choices == alone.choices
    assert curve.explain(alone.choices).peak_bytes == alone.peak_bytes
    assert curve.step_s(alone.choices) == pytest.approx(alone.step_s + alone.added_s)
    # Only a refusal needs the least peak. The fit searches for it without the curve.
    with pytest.raises(PlanError, match="The least peak found is"):
        curve.fit("1 KiB")
    assert (curve.state, curve.done) == ("working", 0)
    release.set()
    assert curve.wait(60).points == bench.curve(points=3).wait(60).points
    assert curve.fit("95%").choices == alone.choices


def test_peaks_stated_at_once_are_all_answered(bench: Workbench, curve: Curve) -> None:
    shares = ("95%", "97%", "99%")
    with ThreadPoolExecutor(len(shares)) as pool:
        found = list(pool.map(curve.fit, shares))
    assert [fit.choices for fit in found] == [bench.fit(share).choices for share in shares]


def test_a_stated_peak_does_not_wait_for_one_limit_of_the_curve(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, reached, release = FitterWithCuts.fit_peak, threading.Event(), threading.Event()

    def held(fitter: FitterWithCuts, limit_bytes: int) -> object:
        while threading.current_thread().name == "workbench-curve" and not release.wait(0.01):
            reached.set()
            fitter._go_on()
        return find(fitter, limit_bytes)

    monkeypatch.setattr(FitterWithCuts, "fit_peak", held)
    curve = bench.curve(points=3)
    assert reached.wait(60)
    assert curve.fit("95%").choices == bench.fit("95%").choices
    assert (curve.state, curve.done) == ("working", 0)
    release.set()
    assert curve.wait(60).done == 3


def test_a_curve_is_cancelled_while_it_waits_for_a_stated_peak(
    bench: Workbench, curve: Curve, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, reached, answer = FitterWithCuts.fit_peak, threading.Event(), threading.Event()

    def slow(fitter: FitterWithCuts, limit_bytes: int) -> object:
        reached.set()
        assert answer.wait(60)
        return find(fitter, limit_bytes)

    expected = bench.fit("95%").choices
    monkeypatch.setattr(FitterWithCuts, "fit_peak", slow)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(curve.fit, "95%")
        assert reached.wait(60)
        curve.cancel()
        assert curve.wait(60).state == "cancelled"
        answer.set()
        assert asked.result(60).choices == expected
    # A cancelled curve still answers.
    assert curve.fit("95%").choices == expected
