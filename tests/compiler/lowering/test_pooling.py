"""In all modes, pooling gives PyTorch's values and gradients, even if several elements of a window are the largest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

import workbench
from workbench.errors import ProgramError

pytestmark = pytest.mark.slow

Pool = Callable[[torch.Tensor], torch.Tensor]


def with_ties(x: torch.Tensor) -> torch.Tensor:
    """Round values, so that many are equal, without an effect on the gradient."""
    return x + (x * 2).round().detach() - x.detach()


LARGEST: dict[str, tuple[Pool, tuple[int, ...]]] = {
    "padded": (lambda x: functional.max_pool1d(x, 3, 2, 1), (2, 4, 9)),
    "equal elements": (lambda x: functional.max_pool1d(x, 3), (4, 9)),
    "infinities": (lambda x: functional.max_pool1d(x.masked_fill(x > 1, -float("inf")), 3), (2, 4, 9)),
    "one dimension, ceil_mode": (lambda x: functional.max_pool1d(x, 3, 2, ceil_mode=True), (2, 4, 10)),
    "images, ceil_mode": (lambda x: functional.max_pool2d(x, 3, 2, ceil_mode=True), (2, 4, 8, 9)),
    "apart, ceil_mode": (
        lambda x: functional.max_pool2d(x, (2, 3), (3, 2), (1, 1), (1, 2), ceil_mode=True),
        (2, 4, 8, 9),
    ),
    "volumes without a stride": (lambda x: functional.max_pool3d(x, 2), (2, 4, 6, 4, 4)),
    "volumes, ceil_mode": (lambda x: functional.max_pool3d(x, 3, 2, 1, ceil_mode=True), (2, 4, 6, 4, 7)),
    "undone, one dimension": (lambda x: undone(x, 1), (2, 3, 8)),
    "undone, images": (lambda x: undone(x, 2), (2, 3, 8, 9)),
    "undone, volumes": (lambda x: undone(x, 3), (2, 3, 4, 6, 5)),
}


def undone(x: torch.Tensor, dims: int) -> torch.Tensor:
    """Pool, and then move the largest elements back to their positions, as SegNet does."""
    pool, back = (getattr(functional, f"{name}{dims}d") for name in ("max_pool", "max_unpool"))
    made, places = pool(x, 2, return_indices=True, ceil_mode=True)
    return torch.as_tensor(back(made.tanh(), places, 2, output_size=x.shape))


AVERAGED: dict[str, tuple[Pool, tuple[int, ...]]] = {
    "images": (lambda x: functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False), (2, 4, 8, 9)),
    "one dimension": (lambda x: functional.avg_pool1d(x, 5, 1, 2, count_include_pad=False), (2, 4, 8)),
    "ceil_mode": (lambda x: functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 4, 8, 10)),
    "ceil_mode without padding": (
        lambda x: functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, count_include_pad=False),
        (2, 4, 8, 11),
    ),
    "ceil_mode with a divisor": (
        lambda x: functional.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, divisor_override=5),
        (2, 4, 8, 11),
    ),
    "volumes": (
        lambda x: functional.avg_pool3d(x, 3, 2, 1, count_include_pad=False, ceil_mode=True),
        (2, 4, 8, 5, 6),
    ),
    "adaptive, one length kept": (lambda x: functional.adaptive_avg_pool2d(x, (None, 3)), (2, 4, 8, 5)),
}


def check(program: Pool, x: torch.Tensor, executor: str = "torch") -> None:
    bench = workbench.open(program, x, device="cpu", capture="dynamo", executor=executor)
    eager, ours = program(x), bench.config.jit(program)(x)
    torch.testing.assert_close(ours, eager, equal_nan=True)
    along = torch.randn_like(eager)
    torch.testing.assert_close(torch.autograd.grad(ours, x, along), torch.autograd.grad(eager, x, along))


@pytest.mark.parametrize("name", LARGEST)
def test_max_pooling_equals_pytorchs(name: str) -> None:
    pool, shape = LARGEST[name]
    torch.manual_seed(0)
    check(lambda x: pool(with_ties(x)), torch.randn(shape, requires_grad=True))


@pytest.mark.parametrize("name", AVERAGED)
def test_average_pooling_equals_pytorchs(name: str) -> None:
    pool, shape = AVERAGED[name]
    torch.manual_seed(0)
    check(pool, torch.randn(shape, requires_grad=True))


def test_adaptive_pooling_between_regions_equals_pytorchs() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8, 5, requires_grad=True)
    check(lambda x: functional.adaptive_avg_pool2d(x.sin(), 2).cos(), x, "torchcompile")


def test_the_interpreter_refuses_padding_that_would_give_nan() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return functional.max_pool1d(x.sin(), 3, 2, 1)

    with pytest.raises(ProgramError, match=r"test_pooling\.py.*max_pool1d returns NaN.*capture='auto'"):
        workbench.open(program, torch.randn(2, 4, 9, requires_grad=True), device="cpu", capture="interpreter")
