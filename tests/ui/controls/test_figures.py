"""The strip colours a change of the step time green or red only beyond noise, and names the baseline of the change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.runs.sweep.test_compare import around, recorded
from workbench.runs.log import event_log, events
from workbench.runs.process import follow_run, request, run_store
from workbench.runs.process.follow_run import Run
from workbench.ui.controls.figure_strip import Baseline, PreviousRun, figures


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    return wb.open("mlp", device="cpu", layers=1)


def step(bench: wb.Workbench, run: Run, against: Baseline) -> dict[str, Any]:
    shown = figures(bench.plan, run, against, same_choices=True)
    return next(figure for figure in shown if figure["key"] == "step")["values"][0]


@pytest.mark.parametrize(
    ("center", "text", "tone"), [(1.0, "within noise", "even"), (1.5, "slower", "bad"), (0.5, "faster", "good")]
)
def test_a_different_step_time_is_red_or_green_only_beyond_noise(bench, tmp_path: Path, center, text, tone) -> None:
    pinned = recorded(tmp_path / "before", around(1.0), yardstick_s=50e-6)
    run = recorded(tmp_path / "now", around(center), yardstick_s=51e-6)
    value = step(bench, run, Baseline("pinned: before", None, pinned))
    assert text in value["delta"]
    assert (value["delta_vs"], value["delta_tone"]) == ("vs pinned: before", tone)
    assert "not measured interleaved" in value["delta_tip"]


@pytest.mark.parametrize(
    ("ratio", "text", "tone"),
    [(1.25, "−20.0 %, faster", "good"), (0.8, "+25.0 %, slower", "bad"), (1.01, "within", "even")],
)
def test_a_step_compared_with_stock_has_the_verdict_of_interleaved_timing(
    bench, tmp_path: Path, ratio, text, tone
) -> None:
    interval = {"ratio_low": ratio - 0.1, "ratio_high": ratio + 0.1}
    beside = events.VariantTimes(t_s=1.5, name="stock", step_s=ratio, samples_s=[ratio], ratio=ratio, **interval)
    run = recorded(tmp_path / "now", around(1.0), beside)
    value = step(bench, run, Baseline("stock", bench.stock_plan, interleaved="stock"))
    assert value["delta"].startswith(text)
    assert (value["delta_vs"], value["delta_tone"]) == ("vs stock", tone)


def test_a_run_is_not_compared_with_a_second_reading_of_itself(bench, tmp_path: Path) -> None:
    run = recorded(tmp_path / "now", around(1.0), events.Compiled(t_s=1.5, compile_s=2.0, attributed=1.0, stages=[]))
    shown = figures(bench.plan, run, Baseline("pinned: now", None, run_store.open(run.run_dir)), same_choices=True)
    assert [value for figure in shown for value in figure["values"] if "delta" in value] == []


def test_a_difference_of_compile_times_has_no_verdict_and_no_colour(bench, tmp_path: Path) -> None:
    runs = [
        recorded(tmp_path / name, around(1.0), events.Compiled(t_s=1.5, compile_s=s, attributed=1.0, stages=[]))
        for name, s in (("before", 2.0), ("now", 3.65))
    ]
    shown = figures(bench.plan, runs[1], Baseline("stock", bench.stock_plan, runs[0]), same_choices=True)
    value = next(figure for figure in shown if figure["key"] == "compile")["values"][0]
    assert (value["delta"], value["delta_tone"]) == ("+1.65 s", "even")
    assert "no verdict" in value["delta_tip"]


def test_a_pinned_run_of_another_variant_of_the_program_is_not_a_baseline_for_plans(bench, tmp_path: Path) -> None:
    pinned = recorded(tmp_path / "other", around(1.0))
    site = next(s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal)
    bench.choose({site.id: "recompute"})
    shown = figures(bench.plan, None, Baseline("pinned: other", None, pinned), same_choices=True)
    bench.undo()
    assert [value for figure in shown for value in figure["values"] if "delta" in value] == []


def test_old_measurements_stay_until_the_current_run_replaces_them(bench, tmp_path: Path) -> None:
    stock = Baseline("stock", bench.stock_plan)
    compiled = events.Compiled(t_s=1.5, compile_s=2.0, attributed=1.0, stages=[])
    before = PreviousRun(recorded(tmp_path / "before", around(1.0), compiled), same_choices=False)
    folder = request.prepare(tmp_path / "now", bench.program)

    def shown() -> dict[str, dict[str, Any]]:
        run = follow_run.follow(folder)
        found = figures(bench.plan, run, stock, same_choices=True, previous=before)
        return {figure["key"]: figure["values"][0] for figure in found}

    event_log.append(folder / event_log.LOG_FILE, events.Phase(t_s=0.1, phase="compile"))
    assert (shown()["compile"]["text"], shown()["compile"]["kind"]) == ("2.00 s", "earlier plan")
    assert shown()["step"]["kind"] == "earlier plan"
    assert shown()["accuracy"]["text"] == "–"
    event_log.append(folder / event_log.LOG_FILE, events.Compiled(t_s=1.5, compile_s=3.0, attributed=1.0, stages=[]))
    assert (shown()["compile"]["text"], shown()["compile"]["kind"]) == ("3.00 s", "measured")
    assert shown()["step"]["kind"] == "earlier plan"


def test_the_predicted_step_comes_first_until_this_plan_is_measured(bench, tmp_path: Path) -> None:
    stock = Baseline("stock", bench.stock_plan)
    run = recorded(tmp_path / "run", around(1.0))

    def step(run: Run | None, *, same: bool) -> list[dict[str, Any]]:
        shown = figures(bench.plan, run, stock, same_choices=same, step_s=lambda plan: 0.578)
        return next(figure for figure in shown if figure["key"] == "step")["values"]

    assert [(value["text"], value["kind"]) for value in step(None, same=True)] == [("≈\u00a0578 ms", "predicted")]
    earlier = step(run, same=False)
    assert [value["kind"] for value in earlier[:2]] == ["predicted", "earlier plan"]
    assert [bool(value.get("earlier")) for value in earlier[:2]] == [False, True]
    assert "measured under other choices" in earlier[1]["tip"]
    measured = step(run, same=True)
    assert (measured[0]["kind"], measured[-1]["kind"]) == ("measured", "predicted")
    assert not any(value.get("earlier") for value in measured)


def test_a_copy_below_a_microsecond_is_not_shown_as_zero_time() -> None:
    bench = wb.open("mlp", layers=1, width=4, hidden=4, batch=1, device="cpu")
    id = next(site.id for site in bench.sites("saved") if site.values and "offload" not in site.illegal)
    bench.choose({id: "offload"})
    assert bench.plan.counts["offloaded_bytes"] > 0
    shown = {one["key"]: one for one in figures(bench.plan, None, Baseline("stock", None), same_choices=True)}
    assert [value["text"] for value in shown["offload"]["values"]][1] == "< 1 µs"
