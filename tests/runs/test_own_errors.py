"""Errors of eager PyTorch itself are allowed if the program cannot run in double precision; larger errors are not."""

from __future__ import annotations

import pytest
import torch

from tests.runs.test_accuracy import Parts, logistic, outcome
from workbench.runs.measure import tensor_diff


@pytest.mark.parametrize(("scale", "ok"), [(1.0, True), (1.5, False)])
def test_rounding_is_allowed_if_the_program_runs_in_float32_only(scale: float, ok: bool) -> None:
    single = torch.tensor([0.416])

    def program(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float32:
            raise TypeError("float32 only")
        return logistic(x, 15)

    def build() -> Parts:
        return program, (single.clone(),), {}

    error = float((logistic(single, 15, False) - logistic(single, 15)).abs())
    assert error > 10 * tensor_diff.RELATIVE_TOLERANCE[torch.float32]
    checked = outcome(build, lambda _: lambda x: scale * logistic(x, 15, False))
    assert checked.worst_float64 is None
    assert checked.ok is ok
