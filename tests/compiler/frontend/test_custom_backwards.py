"""A `torch.autograd.Function` with an unusual backward runs as in eager PyTorch, or is refused with its source line.

A backward may write its own tensors. If the backward writes a shared tensor, the program runs in parts. A function may
mark results as not differentiable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from tests.trial_counts import beyond
from workbench.errors import ProgramError


def function(
    backward: Callable[[Any, torch.Tensor], torch.Tensor], *, save_buffer: bool = False
) -> type[torch.autograd.Function]:
    """Return a `torch.autograd.Function` that doubles its first argument and keeps a buffer in its context."""

    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
            ctx.buffer = buffer
            ctx.save_for_backward(*((x, buffer) if save_buffer else (x,)))
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return backward(ctx, grad), None

    return Doubles


def adds(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    ctx.buffer.add_(grad.sum(0))
    return grad * 2


def averages(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    _, buffer = ctx.saved_tensors
    buffer.mul_(0.9).add_(grad.sum(0), alpha=0.1)
    return grad * 2


def stores(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    ctx.buffer[0] = grad.sum()
    return grad * 2


def stores_in_a_view(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    ctx.buffer.view(2, 3)[1].copy_(grad[0, :3])
    return grad * 2


def writes_what_is_saved(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    x.detach().mul_(0)
    return grad * 2


SEEN = {"adds": adds, "stores": stores, "stores in a view": stores_in_a_view, "saved": writes_what_is_saved}


def writes_its_own(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    made = torch.zeros_like(grad)
    made.add_(grad).mul_(2)
    made[0].mul_(3)
    return made


class Model(nn.Module):
    def __init__(self, function: type[torch.autograd.Function]) -> None:
        super().__init__()
        self.register_buffer("buffer", torch.zeros(6))
        self.weight = nn.Parameter(torch.ones(6))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function.apply(x * self.weight, self.buffer).sin().sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    beyond(2, [*(function(each) for each in SEEN.values()), function(averages, save_buffer=True)]),
    ids=[*SEEN, "averages"],
)
def test_a_backward_that_writes_a_shared_tensor_is_refused_as_one_graph_and_runs_in_parts(made: Any) -> None:
    x = torch.randn(4, 6)
    with pytest.raises(
        ProgramError, match=r"test_custom_backwards\.py:\d+ .*backward .* writes in place into memory that is used"
    ):
        workbench.open(Model(made), x, device="cpu", executor="torch", capture="dynamo")
    config = workbench.open(Model(made), x, device="cpu", executor="torch").config
    found = []
    for wrap in (lambda model: model, config.jit):
        model = Model(made)
        (gradient,) = torch.autograd.grad(wrap(model)(x), model.weight)
        found.append((gradient, model.buffer))
    torch.testing.assert_close(found[1], found[0])


def test_a_backward_may_write_its_own_tensors() -> None:
    x, model = torch.randn(4, 6), Model(function(writes_its_own))
    bench = workbench.open(model, x, device="cpu", executor="torch", capture="dynamo")
    assert bench.plan.proof.proven
    assert bench.plan.warnings == ()
    (known,), (found,) = (torch.autograd.grad(f(x), model.weight) for f in (model, bench.config.jit(model)))
    torch.testing.assert_close(found, known)


def marked(*places: int, count: int = 2) -> type[torch.autograd.Function]:
    """Return a `torch.autograd.Function` with `count` results. Results at `places` are marked not differentiable."""

    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> Any:
            results = (x * 2, x.sin(), x.argmax(1, keepdim=True))[:count]
            ctx.mark_non_differentiable(*[results[at] for at in places])
            return results

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor, *grads: Any) -> torch.Tensor:
            return grad * 2 + (grads[0] if grads else 0)

    return Marked


@pytest.mark.parametrize(
    ("places", "count"),
    beyond(
        2, [((), 2), ((2,), 3), ((0,), 2), ((1,), 2), ((0, 1), 2), ((1, 2), 3), ((0,), 1)], pytest.mark.slow, rows=True
    ),
)
def test_no_gradient_flows_through_marked_results(places: tuple[int, ...], count: int) -> None:
    made = marked(*places, count=count)

    def program(x: torch.Tensor) -> torch.Tensor:
        first, *rest = made.apply(x * 1)
        return (first * x).sum() + (rest[0] * x).sum() if rest else (first * x).sum()

    x = torch.randn(4, 6, requires_grad=True)
    bench = workbench.open(program, x, device="cpu", executor="torch", capture="dynamo")
    (known,), (found,) = (torch.autograd.grad(f(x), x) for f in (program, bench.config.jit(program)))
    torch.testing.assert_close(found, known)


class Single(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        ctx.mark_non_differentiable(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


@pytest.mark.parametrize(
    ("capture", "advice"), [("dynamo", r"Function\.apply\(x\)\.detach\(\)"), ("interpreter", "capture='auto'")]
)
def test_a_mark_on_a_single_returned_tensor_is_refused_with_the_line(capture: str, advice: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (Single.apply(x * 1) * x).sum()

    x = torch.randn(4, 6, requires_grad=True)
    with pytest.raises(ProgramError, match=rf"test_custom_backwards\.py:\d+ .*{advice}"):
        workbench.open(program, x, device="cpu", executor="torch", capture=capture)
