"""For programs on ranks, capture by Dynamo gives the statements, plans and configs that the interpreter gives."""

from __future__ import annotations

import dataclasses
import re
import warnings
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from thunder.core.proxies import Proxy
from thunder.core.pytree import tree_flatten
from torch import Tensor, nn

import workbench as wb
from tests.compiler.frontend.test_dynamo import assert_same, constant
from tests.trial_counts import beyond
from workbench.compiler.frontend import fake_process_group, sharded_graphs
from workbench.compiler.planner.plan import Plan
from workbench.compiler.trace.stable_ids import is_statement
from workbench.errors import ConfigWarning, ProgramError

WAYS = ("dynamo", "interpreter")
CHOICES: list[dict[str, str]] = [
    {"waits.bucket": "layer"},
    {"waits.bucket": "1MiB", "waits.issue": "earliest", "waits.wait": "late"},
    {"waits.issue": "in_flight(2)", "waits.gradients": "earliest"},
]


class Tied(nn.Module):
    """Eleven layers, so that layer 10 sorts before layer 2 as text, and a weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 6)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(11))
        self.head = nn.Linear(6, 10, bias=False)
        self.head.weight = self.embed.weight
        self.unused = nn.Linear(3, 3)

    def forward(self, tokens: Tensor, scale: float = 1.0) -> Tensor:
        """Return the loss for ``tokens`` of shape (batch, sequence)."""
        x = self.embed(tokens)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return (self.head(x) * scale).square().mean()


def executed(plan: Plan) -> list[tuple[str, ...]]:
    """Return the plan's statements as text. Values are numbered by first use, so that names do not matter."""
    numbers: dict[str, int] = {}

    def text(leaf: Any) -> str:
        return f"%{numbers.setdefault(leaf.name, len(numbers))}" if isinstance(leaf, Proxy) else constant(leaf)

    return [
        (bsym.sym.name, *map(text, tree_flatten((bsym.args, bsym.kwargs, bsym.output))[0]))
        for trace in (plan.split.forward, plan.split.backward)
        if trace is not None
        for bsym in filter(is_statement, trace.bound_symbols)
    ]


def program(name: str, programs: ModuleType) -> tuple[Any, tuple[Tensor, ...]]:
    made = {
        "blocks": (programs.Blocks, torch.zeros(4, 5)),
        "normed": (programs.Normed, torch.zeros(4, 10)),
        "split": (programs.Split, torch.zeros(4, 5)),
        "tied": (Tied, torch.zeros(3, 4, dtype=torch.int64)),
    }
    module, x = made[name]
    return module(), (x,)


LLAMA = {"device": "planned", "executor": "nvfuser", "settings": {"layers": 2}}
CPU = {"device": "cpu", "executor": "torch"}
SHARED: list[tuple[str, str, int, dict[str, Any]]] = [
    ("fsdp_llama", "fsdp", 8, LLAMA),
    ("fsdp_llama", "fsdp_zero3", 64, LLAMA),
    ("ddp_llama", "ddp", 4, LLAMA),
    ("tensor_parallel_mlp", "tensor", 4, {"device": "planned", "executor": "nvfuser"}),
    ("tied", "fsdp", 3, CPU),
    ("tied", "fsdp_zero3", 2, CPU),
    ("tied", "ddp", 3, CPU),
    ("blocks", "fsdp", 2, CPU),
    ("blocks", "fsdp_zero3", 5, CPU),
    ("blocks", "ddp", 2, CPU),
    ("normed", "fsdp", 4, {"device": "cpu", "executor": "torchcompile"}),
    ("normed", "ddp", 2, {"device": "cpu", "executor": "torchcompile"}),
    ("split", "tensor", 2, CPU),
]
IN_TEST = (("tied", "fsdp_zero3"), ("blocks", "ddp"), ("split", "tensor"))
"""The pairs of program and parallel mode that `make test` runs. `make long` runs all pairs."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "ranks", "given"),
    [pytest.param(*each, marks=[] if each[:2] in IN_TEST else pytest.mark.long) for each in SHARED],
)
def test_both_front_ends_give_the_same_plans(
    name: str, kind: str, ranks: int, given: dict[str, Any], programs: ModuleType
) -> None:
    model, args = (name, ()) if "settings" in given or name.endswith("mlp") else program(name, programs)
    benches = [wb.open(model, *args, ranks=ranks, parallel=kind, capture=way, **given) for way in WAYS]
    assert_same(*benches)
    known = {site.id for site in benches[0].sites()}
    for choices in ({}, *CHOICES):
        fit = {id: option for id, option in choices.items() if id in known}
        one, other = (bench._planner.plan(fit) for bench in benches)
        assert executed(one) == executed(other)
        assert one.peak_bytes == other.peak_bytes
        assert one.overlap is not None
        assert other.overlap is not None
        assert one.overlap.to_json() == other.overlap.to_json()


class Small(nn.Module):
    """A module with a linear, a buffer and a list."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))
        self.seen: list[Tensor] = []


class Counts(Small):
    def forward(self, x: Tensor) -> Tensor:
        self.calls = self.calls + 1
        return self.inner(x).sum() * self.calls


class Breaks(Small):
    def forward(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return self.inner(x).sum()


class GivesBack(Small):
    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"loss": self.inner(x).sum(), "all": [self.inner.weight]}


class Keeps(Small):
    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(self.inner.bias)
        return self.inner(x).sum()


def small(kind: type[Small], **given: Any) -> wb.Workbench:
    return wb.open(kind(), torch.ones(2, 4), ranks=2, parallel="fsdp", **CPU, **given)


def test_if_dynamo_cannot_shard_a_module_the_interpreter_captures_it_and_the_reason_is_given() -> None:
    reason = r".*test_dynamo_capture.py:\d+ \(torch._dynamo.graph_break\(\)\): Dynamo gives no whole graph: "
    bench = small(Breaks)
    assert (bench.capture, bench.config.capture) == ("interpreter", "interpreter")
    assert re.match(f"not by Dynamo: {reason}", bench.capture_reason)
    with pytest.raises(ProgramError, match=reason):
        small(Breaks, capture="dynamo")


def test_a_module_that_keeps_a_parameter_in_a_list_is_refused_with_its_name() -> None:
    """The interpreter would append the parameter only while it traces."""
    with pytest.raises(
        ProgramError, match=r"it returns or keeps its parameter inner\.bias, but each rank has only a part"
    ):
        small(Keeps)


@pytest.mark.slow
def test_a_module_that_returns_a_parameter_is_refused_with_its_name() -> None:
    with pytest.raises(ProgramError, match=r"it returns or keeps its parameter inner\.weight, but each rank"):
        small(GivesBack)
    config = small(Counts).config
    module = GivesBack()
    with fake_process_group.fake_group(fake_process_group.Ranks(2, "fsdp"), module, "cpu") as shared:
        jitted = config.jit(module, transforms=shared)
        with pytest.raises(ProgramError, match=r"keeps its parameter inner\.weight"):
            jitted(torch.ones(2, 4))


def test_capture_in_parts_is_refused_on_several_ranks() -> None:
    with pytest.raises(ProgramError, match=r"capture='parts' is for programs of one process.*use capture='auto'"):
        small(Counts, capture="parts")


@pytest.mark.slow
def test_a_buffer_that_each_call_replaces_is_in_the_state_dict() -> None:
    config, module = small(Counts).config, Counts()
    with fake_process_group.fake_group(fake_process_group.Ranks(2, "fsdp"), module, "cpu") as shared:
        jitted = config.jit(module, transforms=shared)
        assert not hasattr(jitted, "_lc_cs"), "nothing may be compiled before the first call"
        for calls in (1.0, 2.0):
            jitted(torch.ones(2, 4))
            assert jitted.state_dict()["calls"] == module.calls == calls
        assert jitted._lc_cs.cache_misses == 1
        jitted.load_state_dict({**jitted.state_dict(), "calls": torch.tensor(7.0)}, assign=True)
        jitted(torch.ones(2, 4))
        assert jitted.state_dict()["calls"] == 8.0
        assert [tuple(p.shape) for p in jitted.parameters()] == [(2, 4), (2,)]


def test_a_transform_that_moves_tensors_to_another_device_is_noticed() -> None:
    module = Counts()
    elsewhere = SimpleNamespace(device=torch.device("meta"))
    here = [SimpleNamespace(device=torch.device("cpu")), SimpleNamespace(device=None), SimpleNamespace()]
    assert sharded_graphs.changes_device(module, [elsewhere])
    assert not sharded_graphs.changes_device(module, here)


@pytest.mark.slow
@pytest.mark.parametrize("kind", beyond(1, ["fsdp_zero3", "fsdp", "ddp"]))
def test_choices_of_one_front_end_fit_the_other(kind: str, programs: ModuleType) -> None:
    model, args = program("normed", programs)
    one, other = (
        wb.open(model, *args, ranks=2, parallel=kind, **CPU, capture=way) for way in ("dynamo", "interpreter")
    )
    for bench in (one, other):
        gathers = [site.id for site in bench.sites("waits") if site.id.startswith("waits:inner_0_bias")]
        bench.choose({gathers[-1]: "early", "waits.wait": "late"})
    for bench, way in ((one, "interpreter"), (other, "dynamo")):
        config = dataclasses.replace(bench.config, capture=way)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConfigWarning)
            again = wb.open(model, *args, config=config)
        assert again.capture == way
        assert executed(again.plan) == executed(bench.plan)
