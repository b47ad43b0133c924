"""PyTorch functions that check values of tensors are traced without the check, and give PyTorch's results."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

import workbench
from tests.trial_counts import combined
from workbench.compiler.interop.torch_versions import SETTINGS_PER_THREAD
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
ONES, COUNTS = torch.ones(6), torch.tensor([1, 0, 3, 1, 2, 1])
COVARIANCES: dict[str, Program] = {
    "of rows": torch.cov,
    "of one row": lambda x: torch.cov(x[0]),
    "of one row of two dimensions": lambda x: torch.cov(x[:1], correction=0),
    "of whole numbers": lambda x: torch.cov((x.detach() * 9).long()) * x[:, :4],
    "of counted columns": lambda x: torch.cov(x, fweights=COUNTS),
    "of weighed columns": lambda x: torch.cov(x, aweights=x[0].exp()),
    "of columns counted and weighed": lambda x: torch.cov(x, correction=2, fweights=COUNTS, aweights=x[0].exp()),
    "of columns weighed, without correction": lambda x: torch.cov(x, correction=0, aweights=x[0].exp()),
    "of one column": lambda x: torch.cov(x[:, :1]),
    "of too few counted columns": lambda x: torch.cov(x, correction=7, aweights=ONES, fweights=ONES.long()),
    "of correlated rows": torch.corrcoef,
    "of a correlated row": lambda x: torch.corrcoef(x[0]),
    "of a weight without dimensions": lambda x: torch.cov(2 * x[:, :1], correction=0, aweights=x[0, 0].exp()),
    "of complex rows": lambda x: torch.view_as_real(torch.cov(torch.complex(x, x.sin()))),
    "of a row that is constant": lambda x: torch.corrcoef(torch.cat([x, ONES[None]])),
}
FRACTIONS = (0.0, 0.3, 1.0, torch.tensor(0.75), torch.tensor([0.1, 0.5, 0.9]))


def same(program: Program, x: torch.Tensor, capture: str = "dynamo") -> None:
    bench = workbench.open(program, x, device="cpu", executor="torch", capture=capture)
    found = []
    for run in (program, bench.config.jit(program)):
        made = run(x)
        found.append((made, *torch.autograd.grad(made.sin().sum(), x)))
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_a_mean_and_a_variance_equals_eager(name: str) -> None:
    same(LOSSES[name], torch.randn(4, 6, requires_grad=True))


@pytest.mark.filterwarnings("ignore:cov.*degrees of freedom")
@pytest.mark.parametrize("name", COVARIANCES)
def test_covariances_equal_eager(name: str) -> None:
    same(COVARIANCES[name], torch.randn(4, 6, requires_grad=True))


def test_correlations_of_complex_rows_equal_eager() -> None:
    """Thunder's gradient of a complex quotient is wrong, so PyTorch runs the quotient as an opaque part."""
    x = torch.randn(4, 6, requires_grad=True)
    same(lambda x: torch.view_as_real(torch.corrcoef(torch.complex(x, x.square()))), x, capture="parts")


@pytest.mark.parametrize(("q", "dim", "keepdim"), combined(FRACTIONS, [None, 0, -1], [False, True]), ids=str)
def test_quantiles_equal_eager(q: float | torch.Tensor, dim: int | None, keepdim: bool) -> None:
    same(lambda x: torch.quantile(x, q, dim, keepdim), torch.randn(4, 6, requires_grad=True))


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles_between_elements_equal_eager(interpolation: str) -> None:
    x = torch.randn(4, 6)
    x[1, 2] = torch.nan
    same(lambda x: torch.quantile(x, 0.35, 1, interpolation=interpolation), x.requires_grad_())


def test_torch_compile_still_checks_values_after_a_program_was_opened() -> None:
    workbench.open(LOSSES["a mean"], torch.randn(4, 6, requires_grad=True), device="cpu", executor="torch")
    with pytest.raises(Exception, match="data-dependent"):
        torch.compile(LOSSES["a mean"], backend="eager", fullgraph=True)(torch.randn(4, 6))


def looks(x: torch.Tensor) -> torch.Tensor:
    return x.quantile(0.5)


def covaries(x: torch.Tensor) -> torch.Tensor:
    return x.cov()


def of_cubes(x: torch.Tensor) -> torch.Tensor:
    return torch.cov(x[None])


def of_few_weights(x: torch.Tensor) -> torch.Tensor:
    return torch.cov(x, aweights=x[0, :1])


def counts(x: torch.Tensor) -> torch.Tensor:
    return torch.bincount(x.long().flatten(), minlength=5)


ROWS = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2.0)

REFUSED: dict[str, tuple[Callable[..., torch.Tensor], torch.Tensor, str]] = {
    "a method": (looks, torch.randn(4), "torch.quantile(x, q), torch.cov(x) or torch.corrcoef(x), which can be traced"),
    "another method": (covaries, torch.randn(4, 6), "torch.cov(x) or torch.corrcoef(x), which can be traced"),
    "three dimensions": (of_cubes, torch.randn(4, 6), "torch.cov refuses these shapes"),
    "a weight for all": (of_few_weights, torch.randn(4, 6), "torch.cov refuses these shapes"),
    "counts": (
        counts,
        torch.ones(4),
        "the length of the result depends on values: count into a tensor of known length",
    ),
    "a batch norm": (nn.BatchNorm1d(4, momentum=None), torch.randn(3, 4), "set a momentum, such as 0.1"),
    "an embedding": (nn.Embedding(4, 2, max_norm=1.0), torch.tensor([1, 2]), "create the embedding without max_norm"),
    "a softmax by rows": (
        lambda x: ROWS(x, torch.tensor([0, 12])).loss,
        torch.randn(2, 8),
        "compute the same loss by torch.nn.functional.nll_loss(module.log_prob(x), target)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_necessary_value_check_is_refused_with_a_remedy(name: str) -> None:
    if name == "a method" and SETTINGS_PER_THREAD:
        same(looks, torch.randn(4, requires_grad=True))  # Dynamo traces the method since PyTorch 2.12
        return
    program, given, advice = REFUSED[name]
    with pytest.raises(ProgramError, match=re.escape(advice)):
        workbench.open(program, given, device="cpu", capture="dynamo")
