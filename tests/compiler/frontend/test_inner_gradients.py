"""A step that asks for the gradient of a value inside of a part gets the gradient of eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from tests.trial_counts import beyond
from workbench.bench import PartsBench


class Features(nn.Module):
    """A model that returns its result and the hidden values from which it computes the result."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 3)

    def features(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.tanh(self.inner(x))
        return torch.tanh(self.outer(hidden)), hidden


class Importance(Features):
    """Weighs hidden values by their gradients, as Grad-CAM does."""

    create_graph = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result, hidden = self.features(x)
        (gradient,) = torch.autograd.grad(result.sum(), hidden, retain_graph=True, create_graph=self.create_graph)
        return (gradient.mean(1, keepdim=True) * hidden).relu().mean() + result.square().mean()


class Penalty(Importance):
    """Differentiates the gradient again, as a penalty of the path's length does."""

    create_graph = True


class Unused(Features):
    """Asks for a gradient that may be missing. Without the gradient inside of the part, a wrong one would be used."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result, hidden = self.features(x)
        torch._dynamo.graph_break()
        (result.square().sum() + hidden.sum()).backward(inputs=[hidden], retain_graph=True)
        assert hidden.grad is not None
        return (result * hidden.grad.detach()[:, :3]).sum()


class Retaining(Features):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result, hidden = self.features(x)
        hidden.retain_grad()
        (result.square().sum() + hidden.sum()).backward(retain_graph=True)
        assert hidden.grad is not None
        return (result * hidden.grad.detach()[:, :3]).sum()


class Hooked(Features):
    """Changes a gradient inside of a part by a hook."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result, hidden = self.features(x)
        torch._dynamo.graph_break()
        hidden.register_hook(lambda gradient: 3 * gradient)
        return result.square().sum() + hidden.sum()


class BeforeNode(Features):
    """Changes the gradients that an autograd node inside of a part receives."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result, hidden = self.features(x)
        torch._dynamo.graph_break()
        hidden.grad_fn.register_prehook(lambda gradients: tuple(3 * each for each in gradients))
        return result.square().sum() + hidden.sum()


class BehindNode(Features):
    """Changes the gradients that an autograd node inside of a part returns."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result, hidden = self.features(x)
        torch._dynamo.graph_break()
        hidden.grad_fn.register_hook(lambda gradients, _: tuple(3 * each for each in gradients))
        return result.square().sum() + hidden.sum()


class Outer(Features):
    """Differentiates by a result on which no other result of its part depends."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.inner(x))
        torch._dynamo.graph_break()
        result = torch.tanh(self.outer(hidden))
        (gradient,) = torch.autograd.grad(result.sum(), hidden)
        return (gradient * hidden).sum()


def gradients(call: Callable[..., Any], model: nn.Module, x: torch.Tensor) -> list[torch.Tensor | None]:
    found: list[torch.Tensor | None] = []
    for _ in range(2):
        model.zero_grad()
        loss = call(x)
        loss.backward()
        found += [loss.detach(), *(parameter.grad for parameter in model.parameters())]
    return found


@pytest.mark.parametrize("kind", beyond(2, [Importance, Hooked, Penalty, Unused, Retaining], pytest.mark.slow))
def test_a_gradient_inside_of_a_part_is_eagers(kind: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind()
    x, eager = torch.randn(5, 4), copy.deepcopy(model)
    bench = workbench.open(model, x, device="cpu", executor="torch")
    assert isinstance(bench, PartsBench)
    assert "the gradient of a result on which other results" in bench.parts[0].refusal
    for ours, theirs in zip(gradients(bench.config.jit(model), model, x), gradients(eager, eager, x), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BeforeNode, BehindNode])
def test_pytorch_runs_a_part_with_a_hook_on_a_node(kind: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = kind()
    x, eager = torch.randn(5, 4), copy.deepcopy(model)
    bench = workbench.open(model, x, device="cpu", executor="torch")
    assert isinstance(bench, PartsBench)
    assert "registers a hook on an autograd node" in bench.parts[0].refusal
    for ours, theirs in zip(gradients(bench.config.jit(model), model, x), gradients(eager, eager, x), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_gradient_between_two_parts_leaves_the_part_planned() -> None:
    torch.manual_seed(0)
    model = Outer()
    x, eager = torch.randn(5, 4), copy.deepcopy(model)
    bench = workbench.open(model, x, device="cpu", executor="torch")
    assert isinstance(bench, PartsBench)
    assert [part.opaque for part in bench.parts] == [False, False, False]
    for ours, theirs in zip(gradients(bench.config.jit(model), model, x), gradients(eager, eager, x), strict=True):
        torch.testing.assert_close(ours, theirs)
