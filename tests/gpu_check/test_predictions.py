"""Predictions for a GPU that were written down before a measurement: plans of today still predict them."""

from __future__ import annotations

import pytest

from benchmarks import gpu_predictions


@pytest.mark.parametrize("subject", ["mlp", "residual_chain, 2 layers", "llama", "7B shapes, 1 layer, 4096 tokens"])
def test_written_predictions_are_those_of_todays_plans(subject: str) -> None:
    """If a change is wanted, rewrite the file: the new rows name the commit before them."""
    written = {
        (row["subject"], row["figure"]): float(row["predicted"])
        for row in gpu_predictions.read()
        if (row["question"], row["subject"]) == ("1", subject)
    }
    planned = gpu_predictions.memory("1", subject, gpu_predictions.PEAKS[subject]())
    assert {(subject, figure): value for _, subject, figure, value in planned} == written
    assert len(written) == 3


def test_every_written_prediction_names_its_question_and_commit() -> None:
    rows = gpu_predictions.read()
    assert {row["question"] for row in rows} == set(gpu_predictions.QUESTIONS)
    assert all(len(row["commit"]) >= 7 for row in rows)
