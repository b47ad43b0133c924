"""Predictions for a GPU were written to a file before the measurement. Current plans must predict the same figures."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from benchmarks.gpu import predictions
from tests.needs import needs_nvfuser
from workbench.analysis.cost.machines import MACHINES
from workbench.gpu_check.parts import large_layers, launches, questions
from workbench.gpu_check.parts.check_part import Conditions


@pytest.mark.slow
@pytest.mark.parametrize("subject", ["mlp", "residual_chain, 2 layers", "llama", "7B shapes, 1 layer, 4096 tokens"])
def test_written_predictions_are_those_of_todays_plans(subject: str) -> None:
    """If a prediction changes on purpose, rewrite the file. New rows have the date of the change."""
    written = {
        (row["subject"], row["figure"]): float(row["predicted"])
        for row in predictions.read()
        if (row["question"], row["subject"]) == ("1", subject)
    }
    planned = predictions.memory("1", subject, predictions.open_subject(subject))
    assert {(subject, figure): value for _, subject, figure, value in planned} == written
    assert len(written) == 3


@pytest.mark.slow
@needs_nvfuser
@pytest.mark.parametrize("machine", questions.CARD_BYTES)
def test_written_times_of_launches_are_those_of_todays_rates(machine: str) -> None:
    written = {
        (row["subject"], row["figure"]): float(row["predicted"])
        for row in predictions.read()
        if (row["question"], row["machine"]) == ("6", machine)
    }
    today = {(subject, figure): value for _, subject, figure, value in predictions.launch_times(MACHINES[machine])}
    assert today == pytest.approx(written)
    # For the two small widths, the host takes longer than the device (launch-bound). Without synchronization, the
    # slower variant of the ranking appears faster.
    assert [written[f"mlp, width {width}", "launch bound"] for width in launches.WIDTHS] == [1, 1, 0, 0]
    assert written[launches.RANKING, "flips"] == 1


@pytest.mark.parametrize("machine", questions.CARD_BYTES)
def test_a_figure_is_compared_with_a_step_of_the_queue(machine: str) -> None:
    on_a_gpu = Conditions(device="cuda", executor="nvfuser", rehearse=False, folder=Path(), machine=machine)
    queue = {step.id for step in questions.steps(on_a_gpu)}
    rows = [row for row in predictions.read() if row["machine"] in (questions.EVERY_GPU, machine)]
    assert {row["step"] for row in rows if row["step"]} <= queue
    assert all(bool(row["step"]) == bool(row["compared_with"]) for row in rows)
    assert {row["question"] for row in rows if row["step"]} == {"1", "2", "3", "6", "7"}


def test_a_measured_figure_that_differs_from_the_written_one_is_wrong() -> None:
    step = "7: 2 layers, 4096 tokens, offloaded, 8 ahead"
    peak_bytes = next(
        float(r["predicted"]) for r in predictions.read() if (r["step"], r["figure"]) == (step, "peak_bytes")
    )
    right = questions.beside_written(step, {"measured_peak_bytes": peak_bytes, "hidden_share": 0.9}, "H100")
    assert right["written hidden_share"] == 1
    assert "wrong" not in right
    figures = {"measured_peak_bytes": 1.02 * peak_bytes, "hidden_share": 0.5}
    wrong = questions.beside_written(step, figures, "H100")["wrong"]
    assert (
        wrong == "the written peak is -2.0% off, 1% allowed; 50% of the transfers are hidden, all predicted, 80% wanted"
    )


def test_transfers_are_hidden_while_other_work_runs() -> None:
    def work(name: str, start_s: float, end_s: float) -> dict[str, object]:
        return {"name": name, "stream": 7, "start_s": start_s, "end_s": end_s}

    copy, back = "Memcpy DtoH (Device -> Pinned)", "Memcpy HtoD (Pinned -> Device)"
    kernels = [work("a", 0, 4), work("b", 2, 5), work(copy, 1, 3), work(back, 4, 8), work("Memcpy DtoD", 7, 8)]
    # The first copy takes 2 s, and other work runs during all of it. The second copy takes 4 s, and other work runs
    # during its first second and its last second.
    assert large_layers.hidden_share(kernels) == pytest.approx(4 / 6)
    assert large_layers.hidden_share([work("a", 0, 4)]) is None


def test_every_written_prediction_names_its_question_machine_and_date() -> None:
    rows = predictions.read()
    assert {row["question"] for row in rows} == set(predictions.QUESTIONS)
    for row in rows:
        datetime.date.fromisoformat(row["date"])
        assert (row["machine"] in questions.CARD_BYTES) == (row["question"] in predictions.PER_MACHINE)
