"""Intervals of step times contain the true median as often as stated. Variants are interleaved in random order."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import workbench
from workbench.compiler.driver.statement_timers import StatementClocks
from workbench.programs import resolve
from workbench.runs.log import event_log, events
from workbench.runs.measure import interleaved_timing, statement_times
from workbench.runs.measure.accuracy import Stepper
from workbench.runs.measure.statement_times import CLOCKED_STEPS, DeviceActivity, gaps, launch_bound, turns_of
from workbench.runs.process import follow_run
from workbench.runs.process.request import prepare


def test_an_interval_contains_the_true_median_as_often_as_stated() -> None:
    draw = np.random.default_rng(1)
    held = [(e := interleaved_timing.estimate(draw.lognormal(0.0, 0.3, 25))).low <= 1.0 <= e.high for _ in range(60)]
    assert sum(held) / len(held) > 0.85


def test_few_samples_give_their_range() -> None:
    assert interleaved_timing.estimate([2.0, 1.0]) == interleaved_timing.MedianEstimate(1.5, 1.0, 2.0, 2)
    assert interleaved_timing.estimate([3.0] * 9) == interleaved_timing.MedianEstimate(3.0, 3.0, 3.0, 9)


def test_the_ratio_of_interleaved_samples_has_a_narrower_interval() -> None:
    """Changes of the machine's speed affect both samples of a pair equally, so these changes cancel in the ratio."""
    draw = np.random.default_rng(2)
    speed = draw.lognormal(0.0, 0.5, 40)
    one, other = 1.1 * speed * draw.lognormal(0, 0.01, 40), speed * draw.lognormal(0, 0.01, 40)
    paired, apart = interleaved_timing.ratio(one, other, paired=True), interleaved_timing.ratio(one, other)
    assert paired.low < 1.1 < paired.high
    assert paired.high - paired.low < apart.high - apart.low


def test_variants_are_interleaved_in_random_order() -> None:
    order: list[str] = []
    found = interleaved_timing.take_interleaved(
        {"a": lambda: 1, "b": lambda: 2}, 20, 60.0, on_sample=lambda name, _: order.append(name)
    )
    assert found == {"a": [1] * 20, "b": [2] * 20}
    turns = {tuple(order[i : i + 2]) for i in range(0, 40, 2)}
    assert turns == {("a", "b"), ("b", "a")}


def test_at_least_three_turns_are_taken_in_any_budget() -> None:
    assert interleaved_timing.take_interleaved({"a": lambda: 1}, 10, 0.0) == {
        "a": [1] * interleaved_timing.LEAST_SAMPLES
    }


def test_progress_counts_to_the_turns_that_the_budget_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(interleaved_timing, "time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def sample() -> None:
        clock[0] += 10.0

    told: list[tuple[int, int, float]] = []
    for count, budget_s in ((20, 5.0), (20, 90.0), (4, math.inf)):
        interleaved_timing.take_interleaved(
            {"a": sample, "b": sample}, count, budget_s, on_progress=lambda *words: told.append(words)
        )
    # Three turns in any case; five turns in 90 seconds, because a turn that has begun ends; all turns without a budget.
    least, most, every = told[:6], told[6:16], told[16:]
    assert (least[0], least[-1]) == ((1, 6, 50.0), (6, 6, 0.0))
    assert (most[0], most[-1]) == ((1, 10, 90.0), (10, 10, 0.0))
    assert (every[0], every[-1]) == ((1, 8, 70.0), (8, 8, 0.0))


def test_on_a_cpu_the_device_time_of_a_step_is_its_wall_time() -> None:
    found = interleaved_timing.time_step(Stepper(torch.tanh, (torch.ones(4),), {}))
    assert 0 < found.host_s <= found.wall_s == found.device_s
    assert found.yardstick_s > 0


def test_the_recorded_step_is_the_nearest_to_the_median_of_steps_without_clocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulate a busy machine: of the steps with clocks in forward and backward, all but one take 0.117 s."""
    module, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()), torch.randn(2, 4)
    bench = workbench.open(module, x, device="cpu", executor="torch")
    stepper = Stepper(module, (x,), {}, bench.config.jit(module))
    stepper.step()
    clocks = StatementClocks(stepper.run)
    assert len(clocks.sides) == 2
    time_step, clocked_sides, busy_s = interleaved_timing.time_step, 0, iter([0.117, 0.0098, *[0.117] * 500])

    def start(*sides: int) -> None:
        nonlocal clocked_sides
        clocked_sides = len(sides)
        StatementClocks.start(clocks, *sides)

    def stop() -> None:
        nonlocal clocked_sides
        clocked_sides = 0
        StatementClocks.stop(clocks)

    def timed(stepper: Stepper) -> interleaved_timing.StepTime:
        wall_s = next(busy_s) if clocked_sides == 2 else 0.00934
        return dataclasses.replace(time_step(stepper), wall_s=wall_s)

    monkeypatch.setattr(clocks, "start", start)
    monkeypatch.setattr(clocks, "stop", stop)
    monkeypatch.setattr(interleaved_timing, "time_step", timed)
    times = statement_times.measure(stepper, clocks, 60.0, [], time.monotonic)
    assert times.one_step_s == 0.0098
    assert times.overhead_low <= 0 <= times.overhead_high


def test_noise_is_the_relative_spread_of_the_yardstick_times() -> None:
    assert interleaved_timing.noise([1.0] * 10) == 0.0
    assert interleaved_timing.noise([0.9, 1.0, 1.1] * 10) == pytest.approx(0.1)


def test_a_device_waits_at_the_start_and_in_bubbles() -> None:
    works = [
        DeviceActivity("a", 7, 0.6, 1.0),
        DeviceActivity("b", 7, 1.1, 2.0),
        DeviceActivity("copy", 8, 1.5, 2.5),
        DeviceActivity("c", 7, 2.7, 3.0),
    ]
    found = gaps(works)
    assert found.head_gap_s == 0.6
    assert found.bubbles == ((1.0, 1.1), (2.5, 2.7))
    assert found.bubbles_s == pytest.approx(0.3)
    assert found.busy_s == pytest.approx(2.1)
    assert gaps([]).busy_s == 0.0


def test_a_step_is_launch_bound_if_the_host_takes_as_long_as_the_device() -> None:
    assert launch_bound(2.9, 2.1, "cuda")[0] is True
    assert launch_bound(1.0, 2.1, "cuda")[0] is False
    assert launch_bound(1.0, 1.0, "cpu")[0] is None


def test_all_ranks_time_the_same_number_of_steps() -> None:
    """If a rank ran more steps than the others, its collectives would wait forever."""
    assert {turns_of(step_s, float("inf")) for step_s in (1e-4, 2e-3, 3e-3, 1.0)} == {CLOCKED_STEPS}
    assert turns_of(2e-3, 5.0) > turns_of(3e-3, 5.0) > turns_of(1.0, 5.0) == CLOCKED_STEPS


@pytest.mark.slow
def test_cpu_time_of_other_processes_is_detected_and_own_time_is_not() -> None:
    def watched(work: Callable[[], object]) -> float:
        # Use the minimum of three samples, because other load on this machine may raise a sample.
        found = []
        for _ in range(3):
            watch = interleaved_timing.LoadWatch()
            until = time.perf_counter() + 0.5
            while time.perf_counter() < until:
                work()
            found.append(watch.busy_cores())
        return min(found)

    quiet = watched(lambda: None)
    burning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.3)
        assert watched(lambda: time.sleep(0.01)) > 0.4
    finally:
        burning.kill()
        burning.wait()
    assert quiet < os.cpu_count()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("other_cores", "free_cores", "marked"),
    [(None, None, False), (0.1, -0.1, False), (6.0, 2.0, False), (0.5, -0.5, True), (1.5, -1.5, True)],
)
def test_step_times_under_other_load_are_marked(
    tmp_path: Path, other_cores: float | None, free_cores: float | None, marked: bool
) -> None:
    folder = prepare(tmp_path / "run", resolve("mlp", device="cpu"))
    log = event_log.EventLog(folder / event_log.LOG_FILE)
    log.write(events.Started(t_s=0.0, pid=1, time_s=1.0))
    given = {} if other_cores is None else {"other_cores": other_cores, "free_cores": free_cores}
    log.write(events.StepTimes(t_s=1.0, step_s=0.2, samples_s=[0.2] * 3, **given))
    log.write(events.Finished(t_s=2.0))
    run = follow_run.follow(folder)
    said = f"measured under other load: other processes used {other_cores:.1f} cores meanwhile" if marked else ""
    assert run.beside_load == said
    assert run.to_json()["beside_load"] == said
