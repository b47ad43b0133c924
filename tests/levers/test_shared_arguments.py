"""A replayed config knows which arguments share memory and how they are laid out, as the plan does."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Literal

import pytest
import torch

import workbench as wb
from workbench.errors import ConfigWarning

CAPTURES: tuple[Literal["dynamo", "interpreter"], ...] = ("dynamo", "interpreter")
KINDS = ("apart", "same", "view", "rows")


def overwrites(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Read `y`, then write into `x`: if both share memory, the read cannot be repeated."""
    hidden = torch.sin(y * 2) @ w
    x.mul_(3)
    return torch.sin(hidden) @ w


def arguments(kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    w, b = torch.randn(8, 8, requires_grad=True), torch.randn(12, 8)
    if kind == "rows":
        return b[:8], b[4:], w
    b = b[:8].clone()
    return b, {"apart": b.clone(), "same": b, "view": b[:]}[kind], w


def gradient(call: object, kind: str) -> torch.Tensor:
    assert callable(call)
    given = arguments(kind)
    call(*given).sum().backward()
    assert given[2].grad is not None
    return given[2].grad


@pytest.mark.parametrize("opened", KINDS)
@pytest.mark.parametrize("capture", CAPTURES)
def test_gradients_are_right_for_arguments_that_share_memory(
    capture: Literal["dynamo", "interpreter"], opened: str
) -> None:
    bench = wb.open(overwrites, *arguments(opened), executor="torch", device="cpu", capture=capture)
    chosen = {
        site.id: "recompute"
        for site in bench.sites("saved")
        if "recompute" in site.options and "recompute" not in site.illegal
    }
    call = dataclasses.replace(bench.config, choices=chosen).jit(overwrites)
    assert "saved:overwrites/matmul" in chosen
    for kind in (opened, *KINDS):
        torch.testing.assert_close(gradient(call, kind), gradient(overwrites, kind), msg=lambda m, k=kind: f"{k}: {m}")


def contiguous(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sin(x.contiguous()) @ w


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_replayed_config_has_the_sites_of_its_bench_if_an_argument_is_transposed(
    capture: Literal["dynamo", "interpreter"],
) -> None:
    def given() -> Sequence[torch.Tensor]:
        return torch.randn(8, 8).requires_grad_().t(), torch.randn(8, 8, requires_grad=True)

    bench = wb.open(contiguous, *given(), executor="torch", device="cpu", capture=capture)
    bench.choose({"saved:contiguous/contiguous": "recompute"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConfigWarning)
        bench.config.jit(contiguous)(*given())
