"""A program is divided into layers. If a layer differs from the layer before it, the graph names the difference."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from tests.compiler.frontend import test_module_reuse as stacks
from tests.trial_counts import beyond
from workbench.bench import Workbench
from workbench.compiler.driver import capture
from workbench.core.graph import Graph
from workbench.ui.graph import layout

WIDTH = 8


class Block(nn.Module):
    """Two linear layers with an activation and a factor between them, and a residual connection."""

    def __init__(
        self, width: int = 16, act: Callable[[torch.Tensor], torch.Tensor] = torch.tanh, factor: float = 1.0
    ) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(WIDTH, width), nn.Linear(width, WIDTH)
        self.act, self.factor = act, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.out(self.act(self.into(x)) * self.factor)


class Drops(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(nn.functional.dropout(x, 0.1))


class Writes(Block):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        self.count.add_(1.0)
        return y


class InPlace(Block):
    """A block with the statements of `Block`, because its in-place write is replaced by a new value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.out(self.act(self.into(x)).mul_(self.factor))


class Reads(Block):
    """A block with the statements of `Block`, except that the product reads another value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.into(x)
        self.act(y)
        return x + self.out(y * self.factor)


class Blocks(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x.sum()


def frozen(block: nn.Module) -> nn.Module:
    return block.requires_grad_(False)


def opened(*blocks: nn.Module) -> Workbench:
    return workbench.open(Blocks(*blocks), torch.randn(4, WIDTH), device="cpu", executor="torch")


@pytest.mark.parametrize(
    ("other", "difference"),
    beyond(
        3,
        [
            (lambda: Block(), ""),
            (lambda: Block(width=24), "linear of (24, 8) in place of (16, 8)"),
            (lambda: Block(act=torch.sigmoid), "sigmoid in place of tanh"),
            (lambda: Block(factor=2.0), "mul of 2.0 in place of 1.0"),
            (lambda: frozen(Block()), "linear of one without in place of a tensor with a gradient"),
            (lambda: Drops(), "dropout in place of linear"),
            (lambda: Writes(), "update_aliases at its end"),
            (lambda: InPlace(), ""),
            (lambda: Reads(), "mul reads another value"),
        ],
        pytest.mark.slow,
        rows=True,
    ),
)
def test_the_first_difference_from_the_layer_before_is_named(other: Callable[[], nn.Module], difference: str) -> None:
    graph = opened(Block(), Block(), other(), other(), Block()).plan.graph
    assert graph.layer_differences.get("blocks.2", "") == difference
    assert list(graph.layer_differences) == (["blocks.2", "blocks.4"] if difference else [])


def sections(graph: Graph) -> list[tuple[int, str]]:
    """Return, for each layer in the graph, how many layers it stands for, and its difference from the layer above."""
    return [(section.identical, section.differs) for section in layout.compute(graph).sections if section.stem]


def test_layers_with_different_constants_do_not_fold_into_one() -> None:
    graph = opened(*(Block() for _ in range(3)), *(Block(factor=2.0) for _ in range(3))).plan.graph
    difference = "mul of 2.0 in place of 1.0"
    shown = sections(graph)
    assert shown[-1] == (3, difference)
    assert sum(count for count, _ in shown) == 6
    # A graph without `layer_differences` would fold these layers: their statements have equal names and sizes.
    alone = sections(dataclasses.replace(graph, layer_differences={}))
    assert difference not in [differs for _, differs in alone]
    assert alone[-1][0] > 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "mlp"])
def test_identical_layers_have_no_difference_and_fold(name: str) -> None:
    graph = workbench.open(name, layers=4, device="planned", executor="torch").plan.graph
    assert graph.layer_differences == {}
    assert sum(count for count, _ in sections(graph)) >= 4


def test_differences_are_saved_with_the_graph() -> None:
    graph = opened(Block(), Block(width=24)).plan.graph
    assert Graph.from_json(graph.to_json()).layer_differences == graph.layer_differences != {}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [stacks.Layer, stacks.Numbered, stacks.ByName, stacks.InPlace, stacks.AppliedOtherwise, stacks.Without]
)
def test_layers_that_reuse_a_trace_have_no_difference(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "_REASONS", 99)
    stack, x = stacks.Stack(kind, 7), torch.randn(4, stacks.WIDTH)
    bench = workbench.open(stack, x, device="planned", executor="torch", capture="dynamo")
    traced = set(re.findall(r"(layers\.\d+): ", bench.capture_reason))
    assert bench.plan.graph.layer_differences.keys() <= traced | {"layers.1"}
