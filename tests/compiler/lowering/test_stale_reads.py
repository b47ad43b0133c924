"""A plan warns if a gradient is wrong because Thunder ignores an in-place write. With Dynamo, gradients are right."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import workbench
from workbench.compiler.lowering import functionalize

type Op = Callable[[torch.Tensor], torch.Tensor | None]


def scale_then_read_the_view(y: torch.Tensor) -> torch.Tensor:
    flat = y.view(-1)
    y.mul_(3)
    return flat.exp().sum()


def scale_by_its_sum(y: torch.Tensor) -> None:
    y /= y.sum(dim=-1, keepdim=True)


def scale_through_the_view(y: torch.Tensor) -> None:
    y.view(-1).mul_(3)


def assign_rows(y: torch.Tensor) -> torch.Tensor:
    """Compute each row from rows before it, as a gated delta rule does."""
    rows = -y
    for at in range(1, 4):
        rows[at] = rows[at].clone() * rows[:at].clone().sum(0)
    return (rows * rows).sum()


def assign_to_zeros(y: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(8, 5)
    made[0] = y[0].cos()
    for at in range(1, 4):
        made[at] = made[at - 1].clone() * y[at]
    return made.reshape(-1).square().sum()


def assign_in_a_checkpoint(y: torch.Tensor) -> torch.Tensor:
    """Read a value before a part of it is overwritten. The backward of a checkpoint reads this value again."""

    def region(given: torch.Tensor) -> torch.Tensor:
        rows = given * 2
        before = rows.clone()
        rows[0] = 0.0
        return (before * given + rows).sin()

    made: torch.Tensor = checkpoint(region, y, use_reentrant=False)
    return made.sum()


ASSIGNED: dict[str, Op] = {"assign_rows": assign_rows, "assign_to_zeros": assign_to_zeros}
RIGHT: dict[str, Op] = ASSIGNED | {
    "assign_in_a_checkpoint": assign_in_a_checkpoint,
    "relu": lambda y: F.relu(y, inplace=True),
    "relu6": lambda y: F.relu6(y, inplace=True),
    "leaky_relu": lambda y: F.leaky_relu(y, 0.1, inplace=True),
    "celu": lambda y: F.celu(y, inplace=True),
    "hardsigmoid": lambda y: F.hardsigmoid(y, inplace=True),
    "clamp": lambda y: y.clamp_(0, 1),
    "tanh": lambda y: y.tanh_(),
    "scale": lambda y: y.mul_(2),
    "copy": lambda y: y.copy_(y.neg()),
}
WRONG: dict[str, Op] = {
    "elu": lambda y: F.elu(y, inplace=True),
    "selu": lambda y: F.selu(y, inplace=True),
    "silu": lambda y: F.silu(y, inplace=True),
    "hardswish": lambda y: F.hardswish(y, inplace=True),
    "scale_by_its_sum": scale_by_its_sum,
    "hardswish_then_silu": lambda y: F.silu(F.hardswish(y, inplace=True), inplace=True),
    "square_then_sine": lambda y: y.square_().sin_(),
    "silu_then_relu": lambda y: F.relu(F.silu(y, inplace=True), inplace=True),
    "write_into_a_row": lambda y: y[0].copy_(torch.ones(5)),
    "scale_then_read_the_view": scale_then_read_the_view,
    "scale_through_the_view": scale_through_the_view,
}


FREE = (
    *("elu", "selu", "silu", "hardswish", "scale_by_its_sum"),
    *("hardswish_then_silu", "square_then_sine", "silu_then_relu"),
)
"""Cases that overwrite values without aliases. Capture by Dynamo replaces these writes by out-of-place operators."""


def cases(every: Iterable[Any]) -> list[Any]:
    """Return the cases as pytest parameters. All except the first are marked `slow`, so `make quick` skips them."""
    return [
        pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=[pytest.mark.slow] * (at > 0))
        for at, one in enumerate(every)
    ]


def opened(op: Op, capture: str = "dynamo") -> tuple[workbench.Workbench, float]:
    """Open a program that applies an op in place. Return the bench, and the largest error of the gradient."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        also = op(y)
        return (y * x).sum() + (also if also is not None and also is not y and also.shape == () else 0)

    x = torch.linspace(-3, 3, 40).reshape(8, 5).requires_grad_()
    bench = workbench.open(program, x, device="cpu", executor="torch", capture=capture)
    (eager,) = torch.autograd.grad(program(x), x)
    (found,) = torch.autograd.grad(bench.config.jit(program)(x), x)
    return bench, float((found - eager).abs().max())


@pytest.mark.parametrize("name", cases(WRONG))
def test_a_gradient_from_overwritten_memory_gives_a_warning(name: str) -> None:
    bench, off = opened(WRONG[name], "interpreter")
    assert off > 0.01, "Thunder now computes this gradient right: remove the case"
    (warning,) = bench.plan.warnings
    assert "test_stale_reads.py" in warning
    assert "overwrites a tensor that a gradient depends on" in warning


@pytest.mark.parametrize("name", cases(FREE))
def test_a_write_to_a_value_without_aliases_is_computed_out_of_place(name: str) -> None:
    bench, off = opened(WRONG[name])
    assert off < 1e-5
    assert bench.plan.warnings == ()
    assert "copy_" not in bench.plan.text()


@pytest.mark.parametrize("name", cases(name for name in WRONG if name not in FREE))
def test_with_dynamo_gradients_through_aliases_of_a_written_value_are_right(name: str) -> None:
    bench, off = opened(WRONG[name])
    assert off < 1e-5
    assert bench.plan.warnings == ()


def buffered(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(8, 5)
    y[1:3].copy_(x[:2])
    return (y * x).sum()


def test_a_gradient_that_is_lost_through_a_write_into_a_part_gives_a_warning() -> None:
    x = torch.linspace(-3, 3, 40).reshape(8, 5).requires_grad_()
    bench = workbench.open(buffered, x, device="cpu", executor="torch", capture="interpreter")
    (eager,) = torch.autograd.grad(buffered(x), x)
    (found,) = torch.autograd.grad(bench.config.jit(buffered)(x), x)
    assert (found - eager).abs().max() > 0.01, "Thunder now computes this gradient right: remove the case"
    (warning,) = bench.plan.warnings
    assert "is computed as if nothing had been written into it" in warning


class Normed(torch.nn.Module):
    """A module that overwrites the result of batch normalization, as MobileNetV3 does."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.hardswish(self.norm(x), inplace=True).square().sum()


@pytest.mark.slow
def test_a_write_to_the_whole_result_of_an_operator_is_computed_out_of_place() -> None:
    x = torch.linspace(-3, 3, 40).reshape(8, 5).sin().requires_grad_()
    bench = workbench.open(Normed(), x, device="cpu", executor="torch")
    (eager,) = torch.autograd.grad(Normed()(x), x)
    (found,) = torch.autograd.grad(bench.config.jit(Normed())(x), x)
    torch.testing.assert_close(found, eager)
    assert bench.plan.warnings == ()


@pytest.mark.parametrize("name", cases(RIGHT))
def test_right_gradients_give_no_warning(name: str) -> None:
    bench, off = opened(RIGHT[name])
    assert off < 1e-5
    assert bench.plan.warnings == ()


@pytest.mark.parametrize("name", cases(RIGHT | WRONG))
def test_hazards_known_from_operators_are_those_found_in_the_differentiated_trace(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, _ = opened((RIGHT | WRONG)[name])
    monkeypatch.setattr(functionalize, "_known_hazards", lambda *_: None)
    searched, _ = opened((RIGHT | WRONG)[name])
    assert bench.plan.text() == searched.plan.text()


@pytest.mark.parametrize("name", cases(["silu", "elu", "selu", "hardswish", "silu_then_relu", *ASSIGNED]))
def test_no_differentiated_trace_is_searched_for_a_known_hazard(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(trace: Any) -> set[str]:
        raise AssertionError("the differentiated trace is searched")

    monkeypatch.setattr(functionalize, "_overwriting_results", search)
    bench, off = opened((WRONG | RIGHT)[name])
    assert off < 1e-5
    assert bench.plan.warnings == ()


def assign_to_exponentials(x: torch.Tensor) -> torch.Tensor:
    rows = x.exp()
    rows[0] = x[1]
    return rows.sum()


def assign_to_factors(x: torch.Tensor) -> torch.Tensor:
    rows = -x
    product = rows[0] * rows[1]
    rows[0] = x[1]
    return (rows * product).sum()


def assign_to_an_index(x: torch.Tensor) -> torch.Tensor:
    index = torch.zeros(2, dtype=torch.int64)
    index[0] = 3
    rows = x[index]
    index[1] = 5
    return (rows * x[index]).sum()


@pytest.mark.parametrize("program", cases([assign_to_exponentials, assign_to_factors, assign_to_an_index]))
def test_an_assignment_to_values_that_a_gradient_reads_is_searched(
    program: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []
    stock = functionalize._overwriting_results

    def search(trace: Any) -> set[str]:
        searched.append(trace)
        return stock(trace)

    monkeypatch.setattr(functionalize, "_overwriting_results", search)
    x = torch.linspace(-3, 3, 40).reshape(8, 5).requires_grad_()
    workbench.open(program, x, device="cpu", executor="torch", capture="dynamo")
    assert searched


def sum_then_sine(x: torch.Tensor) -> torch.Tensor:
    memory = torch.zeros(8, 5)
    memory.add_(x)
    return (memory.sin_() * 2).sum()


def sum_then_silu(x: torch.Tensor) -> torch.Tensor:
    memory = torch.zeros(8, 5)
    memory.add_(x)
    return (F.silu(memory, inplace=True) * 2).sum()


@pytest.mark.parametrize("program", cases([sum_then_sine, sum_then_silu]))
def test_memory_that_gets_a_gradient_by_a_write_and_is_then_overwritten(
    program: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x = torch.linspace(-3, 3, 40).reshape(8, 5).requires_grad_()
    bench = workbench.open(program, x, device="cpu", executor="torch")
    (eager,) = torch.autograd.grad(program(x), x)
    (found,) = torch.autograd.grad(bench.config.jit(program)(x), x)
    torch.testing.assert_close(found, eager)


def test_a_value_whose_memory_is_overwritten_later_may_not_be_recomputed() -> None:
    """The program saves a view of a sum, and then overwrites the input of the sum, as a router of experts does."""

    def program(x: torch.Tensor) -> torch.Tensor:
        top, _ = torch.topk(torch.softmax(torch.sin(x), -1), 2, dim=-1)
        scale_by_its_sum(top)
        return (top * top).sum()

    x = torch.randn(4, 6, requires_grad=True)
    bench = workbench.open(program, x, device="cpu", executor="torch", capture="interpreter")
    (site,) = [site for site in bench.sites("saved") if site.id.endswith("/sum")]
    assert "which is written in place and may have changed by then" in site.illegal["recompute"]
