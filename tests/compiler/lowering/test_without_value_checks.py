"""Functions that check values before they compute: traced without that check, they give PyTorch's results."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import workbench
from workbench.errors import ProgramError

pytestmark = pytest.mark.slow

Program = Callable[[torch.Tensor], torch.Tensor]

LOSSES: dict[str, Program] = {
    "a mean": lambda x: functional.gaussian_nll_loss(x, x.cos(), x.square()),
    "a sum, full": lambda x: functional.gaussian_nll_loss(x, x.cos(), x.square(), full=True, reduction="sum"),
    "clamped": lambda x: functional.gaussian_nll_loss(x, x.cos(), x.square(), eps=0.5, reduction="none"),
    "one variance for a row": lambda x: functional.gaussian_nll_loss(x, x.cos(), x.square().mean(-1)),
    "a module": lambda x: nn.GaussianNLLLoss()(x[:, :1], x[:, 1:2], x[:, 2:].exp().sum(-1, keepdim=True)),
}
FRACTIONS = (0.0, 0.3, 1.0, torch.tensor(0.75), torch.tensor([0.1, 0.5, 0.9]))


def same(program: Program, x: torch.Tensor) -> None:
    bench = workbench.open(program, x, device="cpu", executor="torch", capture="dynamo")
    found = []
    for run in (program, bench.config.jit(program)):
        made = run(x)
        found.append((made, *torch.autograd.grad(made.sin().sum(), x)))
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_a_mean_and_a_variance_equals_eager(name: str) -> None:
    same(LOSSES[name], torch.randn(4, 6, requires_grad=True))


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [None, 0, -1])
@pytest.mark.parametrize("q", FRACTIONS, ids=str)
def test_quantiles_equal_eager(q: float | torch.Tensor, dim: int | None, keepdim: bool) -> None:
    same(lambda x: torch.quantile(x, q, dim, keepdim), torch.randn(4, 6, requires_grad=True))


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles_between_elements_equal_eager(interpolation: str) -> None:
    x = torch.randn(4, 6)
    x[1, 2] = torch.nan
    same(lambda x: torch.quantile(x, 0.35, 1, interpolation=interpolation), x.requires_grad_())


def test_a_users_own_compilation_keeps_the_value_checks() -> None:
    workbench.open(LOSSES["a mean"], torch.randn(4, 6, requires_grad=True), device="cpu", executor="torch")
    with pytest.raises(Exception, match="data-dependent"):
        torch.compile(LOSSES["a mean"], backend="eager", fullgraph=True)(torch.randn(4, 6))


def looks(x: torch.Tensor) -> torch.Tensor:
    return x.quantile(0.5)


def counts(x: torch.Tensor) -> torch.Tensor:
    return torch.bincount(x.long().flatten(), minlength=5)


ROWS = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2.0)

REFUSED: dict[str, tuple[Callable[..., torch.Tensor], torch.Tensor, str]] = {
    "a method": (looks, torch.randn(4), "call torch.quantile(x, q), which is known"),
    "counts": (counts, torch.ones(4), "how many it gives depends on values: count into a length that is known"),
    "a batch norm": (nn.BatchNorm1d(4, momentum=None), torch.randn(3, 4), "give it a momentum, such as 0.1"),
    "an embedding": (nn.Embedding(4, 2, max_norm=1.0), torch.tensor([1, 2]), "make the embedding without max_norm"),
    "a softmax by rows": (
        lambda x: ROWS(x, torch.tensor([0, 12])).loss,
        torch.randn(2, 8),
        "torch.nn.functional.nll_loss(module.log_prob(x), target) is the same loss",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_necessary_value_check_is_refused_with_a_remedy(name: str) -> None:
    program, given, advice = REFUSED[name]
    with pytest.raises(ProgramError, match=re.escape(advice)):
        workbench.open(program, given, device="cpu")
