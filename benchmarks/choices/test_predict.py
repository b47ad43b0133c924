"""Measure the time to predict the figures of a toggle by arithmetic, and to trace the program with stock Thunder."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import thunder
from thunder.extend import FusionExecutor

import workbench

REPEATS = 3


def seconds(work: Callable[[], Any]) -> float:
    """Return the median elapsed seconds of `REPEATS` calls."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def test_predicting_a_toggle_costs_milliseconds(benchmark: Any) -> None:
    bench = workbench.open("llama", layers=4, device="cpu", executor="torch")
    site = next(s for s in bench.sites("saved") if s.bytes and not s.illegal and s.choice == "save")

    def plan_again() -> None:
        function, args, kwargs = bench.program.build()
        executors = [e for e in thunder.get_default_executors() if not isinstance(e, FusionExecutor)]
        thunder.jit(function, executors=executors)._lc_cd.get_computation_and_inputs(*args, **kwargs)

    predicted = benchmark(bench.predict, {site.id: "recompute"})
    bench.choose({site.id: "recompute"})
    assert (predicted.peak_bytes, predicted.saved_bytes) == (bench.plan.peak_bytes, bench.plan.saved_bytes)
    again_s = seconds(plan_again)
    predict_s = benchmark.stats.stats.median if benchmark.stats else again_s
    benchmark.extra_info.update(plan_again_s=again_s, ratio=again_s / predict_s)
    assert predict_s < 0.05
