"""Options of lever `saved` change a plan as predicted. Offloaded storages are copied back ahead of their readers."""

from __future__ import annotations

import cProfile
import itertools
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from tests.compiler.frontend import test_module_reuse as stacks
from tests.compiler.layers.test_layers import Over, batch
from tests.levers import proof
from workbench.bench import Workbench
from workbench.compiler.interop.devices import copy_bandwidth
from workbench.compiler.memory.offload import ARRIVE, RELOAD
from workbench.core.lever import lever_named
from workbench.errors import ChoiceError
from workbench.levers.saved import MIN_CUT, REPEATED


class Block(nn.Module):
    """Two layer norms with statements between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)
        self.norm, self.out = nn.LayerNorm(32), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.second(nn.functional.gelu(self.norm(self.first(x)))))


def build() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return Block(), (torch.randn(8, 16),), {}


def opened(executor: str, module: Any = None) -> Workbench:
    made, args, _ = build()
    return workbench.open(module or made, *args, device="cpu", executor=executor)


def storages(bench: Workbench) -> list[Any]:
    return [site for site in bench.sites("saved") if site.bytes]


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["torch", "torchcompile"])
def test_an_effect_equals_the_result_of_the_choice(executor: str) -> None:
    bench = opened(executor)
    for site in storages(bench):
        for option, effect in bench.effects(site.id).items():
            before = bench.plan
            changed = bench.choose({site.id: option})
            assert (effect.peak_bytes, effect.saved_bytes) == (changed.peak_bytes, changed.saved_bytes)
            assert bench.plan.peak_bytes == before.peak_bytes + effect.peak_bytes
            bench.undo()


def test_recomputing_may_raise_the_saved_bytes_and_the_effect_reports_this() -> None:
    def sum_of_two(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sin(x @ w + y @ w).sum()

    args = [torch.randn(8, 8, requires_grad=True) for _ in range(3)]
    bench = workbench.open(sum_of_two, *args, executor="torch")
    site = next(site for site in storages(bench) if site.id.endswith("/add"))
    assert bench.effects(site.id)["recompute"].saved_bytes == -site.bytes
    bench.choose({"saved.inputs": "cut"})
    assert bench.effects(site.id)["recompute"].saved_bytes == site.bytes
    assert bench.choose({site.id: "recompute"}).saved_bytes == site.bytes


def test_ids_have_the_names_of_operators_and_not_of_thunders_implementations() -> None:
    ids = {site.id for site in opened("torch").sites("saved")}
    assert "saved:gelu>div" in {id.replace("Block/", "") for id in ids}
    assert not [id for id in ids if "impl" in id or "prim" in id]


def test_a_statement_has_the_same_id_for_two_executors() -> None:
    def reordered(x: torch.Tensor) -> torch.Tensor:
        return (x.exp().t().reshape(-1).sin() * 2).sum()

    x = torch.randn(3, 4, requires_grad=True)
    ids = [
        {
            site.id
            for site in workbench.open(reordered, x, device="cpu", executor=executor).sites("saved")
            if site.values
        }
        for executor in ("torch", "torchcompile")
    ]
    assert ids[0] == ids[1]
    assert "saved:reordered/reshape" in ids[0]


@pytest.mark.slow
def test_recomputation_before_and_after_fusion_differ_and_both_are_right() -> None:
    bench = opened("torchcompile")
    known = proof.reference(build, build)
    site = next(s for s in storages(bench) if s.id.endswith("gelu>mul.1"))
    bench.choose({site.id: "recompute"})
    plans = {}
    for stage in ("before_fusion", "after_fusion"):
        bench.choose({"saved.stage": stage})
        plans[stage] = bench.plan
        proof.holds(bench, build, known, measure=False)
    before, after = plans["before_fusion"], plans["after_fusion"]
    assert (before.saved_bytes, before.flops) != (after.saved_bytes, after.flops)


@pytest.mark.slow
def test_a_plan_reports_offloaded_bytes_and_their_time_at_the_measured_bandwidth() -> None:
    bench = opened("torch")
    chosen = storages(bench)[:2]
    bench.choose({site.id: "offload" for site in chosen})
    moved = sum(site.bytes for site in chosen)
    assert bench.plan.counts["offloaded_bytes"] == moved
    assert bench.plan.counts["offload_us"] == round(2e6 * moved / copy_bandwidth("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [0, 3, 1000])
def test_an_offloaded_storage_returns_ahead_of_its_reader_but_not_before_the_backward(ahead: int) -> None:
    bench = opened("torch")
    site = next(s for s in storages(bench) if s.id == "saved:norm/layer_norm>sub")
    bench.choose({site.id: "offload", "saved.ahead": str(ahead)})
    backward = bench.plan.split.backward
    assert backward is not None
    work = [b for b in backward.bound_symbols if b.sym.name not in ("python_del", "clear_mutable_collection")]
    back = next(i for i, b in enumerate(work) if b.sym.name.startswith(RELOAD))
    there = next(i for i, b in enumerate(work) if b.sym.name.startswith(ARRIVE))
    if ahead < 1000:
        assert there - back - 1 == ahead
    else:
        assert not [b.sym.name for b in work[:back] if b.sym.name not in ("unpack_sequence", "unpack_trivial")]


@pytest.mark.slow
def test_save_recompute_and_offload_mix_and_undo_restores_each_plan() -> None:
    bench = opened("torch")
    known = proof.reference(build, build)
    options = itertools.cycle(("recompute", "offload", "save"))
    states = [proof.state(bench)]
    for site in storages(bench):
        try:
            bench.choose({site.id: next(options)})
        except ChoiceError:
            continue
        if proof.state(bench) != states[-1]:
            states.append(proof.state(bench))
    assert {"recompute", "offload", "save"} == {site.choice for site in storages(bench)}
    proof.holds(bench, build, known)
    for expected in reversed(states[:-1]):
        bench.undo()
        assert proof.state(bench) == expected


def test_views_of_one_storage_are_one_site() -> None:
    def two_views(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b = torch.chunk(torch.tanh(x), 2, 0)
        return (a * b * w).sum()

    bench = workbench.open(
        two_views, torch.randn(8, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True), executor="torch"
    )
    shared = next(site for site in storages(bench) if "tanh" in site.id)
    assert len(shared.values) > 1
    assert shared.bytes == 8 * 4 * 4
    assert bench.choose({shared.id: "offload"}).saved_bytes == -shared.bytes


@pytest.mark.slow
@pytest.mark.long
def test_planning_offloads_makes_function_calls_in_proportion_to_the_layers() -> None:
    calls = []
    for layers in (6, 12):
        bench = workbench.open("llama", device="planned", executor="torch", layers=layers)
        away = {site.id: "offload" for site in bench.sites("saved") if "offload" in {*site.options} - {*site.illegal}}
        assert len(away) > 15 * layers
        with cProfile.Profile() as profile:
            bench.plan_under(away)
        calls.append(sum(entry.callcount for entry in profile.getstats()))
    assert calls[1] < 2.15 * calls[0]


@pytest.mark.slow
def test_recomputing_after_fusion_repeats_the_fusion_that_returns_the_value() -> None:
    torch.manual_seed(0)
    stack, given_to = stacks.Stack(Over, 2), batch()
    bench = workbench.open(stack, *given_to, device="planned", executor="nvfuser")
    pinned = {"remat.weight": "0.0", "remat:layers.0/mul.2": "recompute"}
    bench.choose(pinned)
    graph = bench.plan.graph
    statements = graph.statements
    handed: dict[int, int] = {}
    for row in range(len(statements)):
        for value in statements.outputs[row].tolist() if statements.parent[row] < 0 else ():
            handed.setdefault(value, row)
    members = [row for row in range(len(statements)) if statements.parent[row] >= 0]
    made = [(value, int(statements.parent[row])) for row in members for value in statements.outputs[row].tolist()]
    assert any(handed.get(value, fusion) < fusion for value, fusion in made)
    assert {value: int(graph.values.producer[value]) for value in handed} == handed
    bench.choose({"saved:layers.0/reciprocal": "recompute", "saved.stage": "after_fusion"})
    assert bench.plan.proof.proven


@pytest.mark.slow
def test_a_value_recomputed_inside_a_fusion_is_not_used_outside_it() -> None:
    torch.manual_seed(0)
    stack, given_to = stacks.Stack(stacks.Normed, 3), batch()
    bench = workbench.open(stack, *given_to, device="planned", executor="nvfuser")
    again = (
        *("remat:layers.2.norm/layer_norm>sub", "remat:layers.1.batch/batch_norm>shallow_copy.4"),
        *("saved:layers.2.norm/layer_norm>rsqrt", "saved:layers.2.norm/layer_norm>mul"),
        *("saved:layers.2/masked_fill>where", "saved:layers.1.batch/batch_norm>add.3"),
    )
    bench.choose({"remat.weight": "1.0", **dict.fromkeys(again, "recompute")})
    assert bench.plan.proof.proven


@pytest.mark.slow
def test_a_site_says_why_its_outcome_differs_from_its_choice() -> None:
    bench, random, seen = workbench.open("mlp", device="planned", executor="torchcompile"), Random(0), set()
    for _ in range(12):
        bench.choose({"remat.preset": "stock"})
        legal = {site.id: [o for o in site.options if o not in site.illegal] for site in bench.sites("saved")}
        bench.choose({id: random.choice(options) for id, options in legal.items()})
        differ = {site.id: site.cause for site in bench.sites("saved") if site.outcome != site.choice}
        bench.choose({"remat.preset": "off"})
        for site in bench.sites("saved"):
            cause = differ.get(site.id, "")
            seen.add(cause)
            if site.outcome != site.choice:
                assert site.cause == REPEATED
                assert lever_named("saved").explain_outcome(site).endswith(REPEATED)
            else:
                assert not cause or cause.startswith(MIN_CUT)
    assert len(seen) == 5, "each cause, and none"
