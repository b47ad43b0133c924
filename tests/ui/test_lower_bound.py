"""If a CPU kernel could not be measured, each predicted peak on the screen, in text and in JSON is a lower bound."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench as wb
from workbench.compiler.planner.plan import Plan
from workbench.runs.process import request, run_store
from workbench.ui.controls.figure_strip import Baseline, figures
from workbench.ui.controls.messages import title_of_picture
from workbench.ui.tabs.experiments import run_row
from workbench.ui.tabs.peak_table import predicted_content


@pytest.mark.parametrize("is_bound", [False, True])
def test_a_peak_that_is_a_lower_bound_is_called_one(
    is_bound: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = wb.open("mlp", device="cpu", layers=1, executor="torch")
    monkeypatch.setattr(Plan, "peak_at_least", property(lambda plan: is_bound))
    plan = bench.plan
    peak = figures(plan, None, Baseline("no choices", plan), same_choices=True)[0]["values"][0]
    assert peak["text"].startswith("≥ ") == is_bound
    assert plan.to_json()["peak_is_lower_bound"] == is_bound
    ids = [str(row) for row in range(len(plan.graph.statements))]
    texts = [title_of_picture(bench), predicted_content(plan, ids, None)["head"], repr(bench.fit("100%"))]
    assert ["at least " in text for text in texts] == [is_bound] * 3

    folder, peak_bytes = bench.prepare(folder=tmp_path / "run"), bench.plan.peak_bytes
    asked = request.read_request(folder)
    predicted = (None, peak_bytes) if is_bound else (peak_bytes, None)
    assert (asked.predicted_peak_bytes, asked.peak_bound_bytes) == predicted
    assert run_row(run_store.open(folder))["predicted"].startswith("≥ ") == is_bound
