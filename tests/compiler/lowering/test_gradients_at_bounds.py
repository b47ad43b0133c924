"""At bounds, at zeros and for equal elements, gradients equal PyTorch's. Thunder's own gradients differ or are NaN."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import workbench
from tests.compiler.lowering.test_pooling import check, with_ties
from tests.trial_counts import beyond

NAN = float("nan")
ROWS = torch.tensor([[0.0], [1.0], [2.0], [1.0]])

CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "at the bounds": lambda x: with_ties(x).clamp(-1, 1),
    "at a bound that is a tensor": lambda x: torch.clamp(with_ties(x), min=torch.tensor(1.0)),
    "bounds with gradients": lambda x: with_ties(x).clamp(x.T.round() + x.T - x.T.detach(), torch.tensor(1.0)),
    "bounds that cross": lambda x: x.clamp(0.5, -0.5),
    "NaN": lambda x: torch.where(x > 1, NAN, x).clamp(-0.5, 0.5),
    "a bound that is NaN": lambda x: x.clamp(min=torch.tensor([NAN, 0.0, 0.0, 0.0])),
    "in place": lambda x: (with_ties(x) * 1).clamp_(min=0.0),
    "in 16 bits": lambda x: x.bfloat16().clamp(-0.3, 1).float(),
    "the first of the largest": lambda x: with_ties(x).max(1).values * with_ties(x).max(0, keepdim=True)[1],
    "the largest of all": lambda x: with_ties(x).max() * with_ties(x).amax(1),
    "the larger of two": lambda x: torch.max(with_ties(x), torch.tensor(0.0)),
    "rows of zeros, normalized": lambda x: functional.normalize(x * ROWS, dim=-1),
    "rows of zeros, normalized by other norms": lambda x: (
        functional.normalize(x * ROWS, p=3) + functional.normalize(x * ROWS, p=1)
    ),
    "a deviation of zero": lambda x: (x * ROWS).std(1) + x.std(),
    "norms": lambda x: (
        (x * ROWS).norm(p=2, dim=-1, keepdim=True)
        + x.norm(3, 1)
        + torch.norm(x, p=1, dim=(0, 1))
        + x.norm() * x.norm(dim=0)
    ),
    "a factor of zero": lambda x: (x * ROWS).prod(0) + x.prod() + x[:3].prod(0, keepdim=True),
    "to the power of zero": lambda x: with_ties(x) ** 0 + x + (x * ROWS).pow(0.0),
    "an angle at the origin": lambda x: torch.atan2(x * ROWS, x.T * ROWS) + torch.arctan2(x, x[0]),
    "truncated": lambda x: x * x.trunc(),
}


@pytest.mark.parametrize("name", beyond(1, CASES, pytest.mark.slow))
def test_gradients_equal_those_of_pytorch(name: str) -> None:
    torch.manual_seed(0)
    check(CASES[name], torch.randn(4, 4, requires_grad=True))


def test_results_of_integers_equal_those_of_pytorch() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.clamp(0, 2).max(1).values + x.prod(1) + x.trunc().sum(1)

    x = torch.arange(-4, 8).reshape(3, 4)
    bench = workbench.open(program, x, device="cpu", capture="dynamo")
    torch.testing.assert_close(bench.config.jit(program)(x), program(x))
