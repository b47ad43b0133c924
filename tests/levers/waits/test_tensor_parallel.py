"""Tensor parallelism splits pairs of linears over ranks. A module that cannot be split is refused."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import workbench as wb
from workbench.errors import ProgramError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def split() -> wb.Workbench:
    return wb.open("tensor_parallel_mlp", device="cpu", executor="torch", ranks=2, settings={"dim": 8, "hidden": 12})


class Two(nn.Module):
    """Two linears with an activation between them."""

    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.up = nn.Linear(4, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.down = nn.Linear(hidden, 4)

    def between(self, x: Tensor) -> Tensor:
        return F.relu(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.between(self.up(x))).mean()


class Softmaxed(Two):
    def between(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1)


class LayerNormed(Two):
    def between(self, x: Tensor) -> Tensor:
        return self.norm(x)


class Reversed(Two):
    def between(self, x: Tensor) -> Tensor:
        return torch.flip(x, (-1,))


class Gated(nn.Module):
    """SwiGLU. `up` could be split, but its result is multiplied by the result of `gate`, which cannot be split."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 8)
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x)).mean()


class Twice(Two):
    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x)) + F.relu(self.up(x + 1))).mean()


def test_ranks_sum_the_result_of_a_layer_and_the_gradient_of_its_input(split: wb.Workbench) -> None:
    places = [s.id for s in split.sites("waits") if ":" in s.id and not s.id.endswith("!wait")]
    assert places == [
        "waits:layers.0.down/linear>all_reduce",
        "waits:layers.1.down/linear>all_reduce",
        "waits:layers.1.up/linear<matmul>all_reduce",
        "waits:layers.0.up/linear<matmul>all_reduce",
    ]


def test_each_rank_holds_a_part_of_the_parameters_of_a_pair(split: wb.Workbench) -> None:
    graph = split.plan.graph
    shapes = {name: graph.values.shape[i] for i, name in enumerate(graph.values.name)}
    assert shapes["t_layers_0_up_weight"] == (6, 8)
    assert shapes["t_layers_0_up_bias"] == (6,)
    assert shapes["t_layers_0_down_weight"] == (8, 6)
    assert shapes["t_layers_0_down_bias"] == (8,)


def test_each_statement_has_its_source(split: wb.Workbench) -> None:
    ids = {site.id for site in split.sites("saved")}
    assert {"saved:layers.0.up/linear", "saved:layers.1/gelu>mul.1"} <= ids
    assert split.site("saved:layers.0.up/linear").source


def test_collectives_needed_by_the_next_statement_are_not_bucketed(split: wb.Workbench) -> None:
    plan = split._planner.plan({"waits.bucket": "1MiB"})
    assert plan.counts["buckets"] == 0
    assert plan.overlap is not None
    assert plan.overlap.order.collectives == 4


def test_an_in_place_sum_takes_no_additional_memory(split: wb.Workbench) -> None:
    graph = split.plan.graph
    for row, name in enumerate(graph.statements.name):
        if "all_reduce" in name:
            (sent,) = (v for v in graph.statements.inputs[row] if graph.values.storage[v] >= 0)
            assert graph.values.storage[graph.statements.outputs[row][0]] == graph.values.storage[sent]


def test_tensor_parallelism_is_planned_for_an_absent_gpu() -> None:
    bench = wb.open("tensor_parallel_mlp", device="planned", executor="nvfuser", ranks=8, settings={"layers": 1})
    assert bench.plan.overlap is not None
    assert bench.plan.overlap.order.collectives == 2
    assert "cuda" in bench.plan.text()


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (nn.Linear(4, 4), "no module contains two linear layers"),
        (Two(hidden=9), "the 9 features between up and down cannot be divided by 2 ranks"),
        (Softmaxed(), "softmax does not compute each feature separately"),
        (LayerNormed(), "layer_norm also takes t_norm_weight, which is not split over ranks"),
        (Reversed(), "flip does not compute each feature separately"),
        (Gated(), "which is not split over ranks"),
        (Twice(), "up is used 2 times"),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, nn.Module) else "",
)
def test_a_module_that_cannot_be_split_is_refused(module: nn.Module, reason: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(reason)):
        wb.open(module, torch.ones(2, 4), ranks=2, parallel="tensor", device="cpu", executor="torch")


def test_a_config_refuses_an_unknown_parallel_mode() -> None:
    with pytest.raises(
        wb.errors.ConfigError, match="parallel='zero9' is unknown; legal: fsdp, fsdp_zero3, ddp, tensor"
    ):
        wb.Config(program="p", executor="torch", device="cpu", parallel="zero9")
