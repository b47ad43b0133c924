"""Measure the error of step times that are predicted from the stock plan's statement times (torch, CPU)."""

from __future__ import annotations

from pathlib import Path

import workbench as wb
from workbench.analysis.cost.roofline import predict_step
from workbench.runs.log import events
from workbench.runs.measure.statement_times import calibration
from workbench.runs.process import request, start_run
from workbench.runs.process.request import RunOptions

SETTINGS = {"layers": 4, "width": 512, "hidden": 2048, "batch": 512}
"""With these sizes a statement takes milliseconds, so Python's overhead is small."""

TOLERANCE = 0.10


def test_the_predicted_step_time_of_another_plan_is_accurate(benchmark, tmp_path: Path) -> None:
    stock = wb.open("mlp", device="cpu", executor="torch", settings=SETTINGS)
    planned = wb.open("mlp", device="cpu", executor="torch", settings=SETTINGS)
    saved = [site for site in planned.sites("saved") if "recompute" in site.options and "recompute" not in site.illegal]
    for site in saved:
        try:
            planned.choose({site.id: "recompute"})
        except wb.ChoiceError:
            continue
    # Interleave the steps of both plans, so that changes of the machine's speed affect both.
    folder = request.prepare(
        tmp_path / "run",
        stock.program,
        config_text=stock.config.text(),
        variants={"replanned": planned.config.text()},
        options=RunOptions(samples=30, sampling_s=30.0, measure_peak=False, check_accuracy=False, cold=False),
    )
    run = start_run.start(folder).wait(600)
    assert run.state == "done", (run.error, run.detail)
    variant = events.last_of(run.events, events.VariantTimes)
    assert variant is not None
    learned = calibration(run, stock.plan.graph)
    predicted = benchmark(predict_step, planned.plan.graph, learned)
    off = predicted.step_s / variant.step_s - 1
    benchmark.extra_info |= {
        "stock_s": run.step_s,
        "predicted_s": predicted.step_s,
        "measured_s": variant.step_s,
        "ratio_low": variant.ratio_low,
        "ratio_high": variant.ratio_high,
        "off": off,
        "measured_share": predicted.measured_share,
        "noise": run.times["noise"] if run.times else None,
    }
    print(benchmark.extra_info)
    assert abs(off) < TOLERANCE
