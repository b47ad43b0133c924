"""A part whose input the step overwrites before the part's backward reads a copy of the input, and has choices."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.core.config import parse
from workbench.runs.worker import worker


class Average(torch.nn.Module):
    """A later part updates a buffer that the first part reads."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("mean", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(torch.sin(x * self.mean))
        torch._dynamo.graph_break()
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * hidden.mean(0))
        return hidden.cos()


class ThroughData(torch.nn.Module):
    """A write that `_version` does not count, so that eager PyTorch may read the new values: PyTorch runs the part."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(torch.sin(x * 2))
        torch._dynamo.graph_break()
        x.data.mul_(3)
        return self.linear(hidden.cos())


class OfTwoParts(ThroughData):
    """Two parts read an input that a third part overwrites."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(torch.sin(x * 2))
        torch._dynamo.graph_break()
        made = self.linear((hidden + x).sin())
        torch._dynamo.graph_break()
        x.mul_(3)
        return made.sin() * x


class ReturnsItsInput(ThroughData):
    """The first part returns a view of the input, so that a write into the view must reach the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, view = self.linear(torch.sin(x * 2)), x[1:]
        torch._dynamo.graph_break()
        view.mul_(3)
        return self.linear(hidden.cos() + x)


class Unwritten(ThroughData):
    """Writes only into what no earlier part reads."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(torch.sin(x * 2))
        torch._dynamo.graph_break()
        return self.linear(hidden.cos().mul_(3))


def made(model: Callable[[], Any]) -> tuple[Any, torch.Tensor]:
    torch.manual_seed(0)
    return model(), torch.randn(4, 8)


def gradient(call: Any, model: Any, x: torch.Tensor) -> torch.Tensor:
    call(x).sum().backward()
    found: torch.Tensor = model.linear.weight.grad
    return found


@pytest.mark.parametrize("model", [Average, ThroughData, OfTwoParts, ReturnsItsInput, Unwritten])
def test_gradients_are_right_if_a_later_part_writes_into_an_input(model: Callable[[], Any]) -> None:
    eager, x = made(model)
    right = gradient(eager, eager, x)
    program, x = made(model)
    bench = wb.open(program, x, executor="torch", device="cpu", capture="parts")
    chosen = {
        site.id: "recompute"
        for site in bench.sites()
        if ":saved:" in site.id and "recompute" in site.options and "recompute" not in site.illegal
    }
    assert any(id.startswith("part1:") for id in chosen) is (model not in (ReturnsItsInput, ThroughData))
    assert any("+" in told for told in bench.config.parts.values()) is (model in (Average, OfTwoParts))
    for choices in ({}, chosen):
        program, x = made(model)
        found = gradient(dataclasses.replace(bench.config, choices=choices).jit(program), program, x)
        torch.testing.assert_close(found, right)


def test_the_reason_says_that_the_step_writes_into_memory_that_the_part_reads() -> None:
    bench = wb.open(*made(ReturnsItsInput), executor="torch", device="cpu", capture="parts")
    assert "the step later writes into memory that the part reads" in bench.parts[0].refusal


def test_a_config_names_the_copied_inputs_and_survives_its_text() -> None:
    bench = wb.open(*made(Average), executor="torch", device="cpu", capture="parts")
    assert "reads a copy of l_self_buffers_mean_, because the step later writes into it" in repr(bench)
    config = bench.config
    assert config.parts["part1"].endswith("+l_self_buffers_mean_")
    assert parse(config.text()) == config
    assert list(worker._names_of_parts(config.text())) == [part.piece.key for part in bench._parts_captured.parts]


def between(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first = x * 1
    view = first.reshape(-1)
    torch._dynamo.graph_break()
    first.add_(1)
    return first * 2, view + 1


@torch.compiler.disable
def triple(x: torch.Tensor) -> None:
    x.mul_(3)


def by_pytorch(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first = x * 1
    row = first[0]
    triple(row)
    return first * 2, row + 1


def detached(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first = x * 1
    view = first.reshape(-1)
    triple(view.detach())
    return first, view


@pytest.mark.slow
@pytest.mark.parametrize("program", [between, by_pytorch, detached])
def test_pytorch_runs_a_part_if_the_step_writes_into_two_results_that_share_memory(program: Callable[..., Any]) -> None:
    """Autograd refuses such a write into results of a `torch.autograd.Function`, as a plan is."""
    x = torch.randn(3, 4, requires_grad=True)
    bench = wb.open(program, x, executor="torch", device="cpu")
    assert "writes into two results of the part that share memory" in bench.parts[0].refusal
    compiled = bench.config.jit(program)
    for found, right in zip(compiled(x), program(x), strict=True):
        assert torch.equal(found, right)
        given = [torch.autograd.grad(made.sum(), x, retain_graph=True)[0] for made in (found, right)]
        assert torch.equal(*given)
