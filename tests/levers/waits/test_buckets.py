"""A bucket sends several collectives as one, with the results of single collectives. Training equals eager PyTorch."""

from __future__ import annotations

import dataclasses
import math
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench as wb
from tests.trial_counts import amount
from workbench.analysis.cost.collective_overlap import layer_of_parameter
from workbench.compiler.api import Plan
from workbench.compiler.pipeline.collective_schedule import CollectiveSchedule
from workbench.errors import ChoiceError
from workbench.levers.waits import bucketing, constraints
from workbench.levers.waits.bucketing import (
    BucketRule,
    group_collectives,
    pack,
    pack_scatter,
    unpack,
    unpack_gather,
)

ORDERED = {"waits.issue": "consumer", "waits.wait": "late", "waits.gradients": "earliest"}
SHAPES = st.lists(st.lists(st.integers(1, 4), max_size=2), min_size=1, max_size=4)


def tensors(shapes: list[list[int]], ranks: int, seed: int) -> list[torch.Tensor]:
    """Return tensors whose first dimension is a multiple of the number of ranks. Some are not contiguous."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for at, shape in enumerate(shapes):
        full = torch.randn((shape[0] * ranks if shape else ranks, *shape[1:]), generator=generator)
        made.append(full.t().contiguous().t() if full.ndim == 2 and at % 2 else full)
    return made


def schedules(bench: wb.Workbench) -> list[CollectiveSchedule]:
    """Return the collective schedules of the stock plan's forward and backward. They have no buckets."""
    split = bench.stock_plan.split
    context = bench._captured.context
    return [constraints.schedule(trace, context) for trace in (split.forward, split.backward)]


def planned_under(bench: wb.Workbench, choices: dict[str, str]) -> Plan:
    return bench._planner.plan(choices)


@given(shapes=SHAPES, ranks=st.integers(1, 4))
def test_a_bucketed_gather_equals_single_gathers(shapes: list[list[int]], ranks: int) -> None:
    full = tensors(shapes, ranks, 0)
    gathered = torch.cat([pack([t.chunk(ranks)[rank] for t in full]) for rank in range(ranks)])
    for one, wanted in zip(unpack_gather(gathered, [t.shape for t in full], ranks), full, strict=True):
        assert torch.equal(one, wanted)
        assert one.is_contiguous()


@given(shapes=SHAPES, ranks=st.integers(1, 4))
def test_a_bucketed_reduction_equals_single_reductions(shapes: list[list[int]], ranks: int) -> None:
    gradients = [tensors(shapes, ranks, seed) for seed in range(ranks)]
    parts = sum(pack_scatter(of, ranks) for of in gradients).chunk(ranks)
    whole = sum(pack(of) for of in gradients)
    for rank in range(ranks):
        wanted = [sum(each).chunk(ranks)[rank] for each in zip(*gradients, strict=True)]
        found = unpack(parts[rank], [t.shape for t in wanted])
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    for one, each in zip(unpack(whole, [t.shape for t in gradients[0]]), zip(*gradients, strict=True), strict=True):
        assert torch.equal(one, sum(each))


@pytest.mark.parametrize(
    ("place", "layer"),
    [
        ("transformer_h_0_attn_attn_weight>all_gather", "transformer_h_0"),
        ("transformer_h_10_mlp_fc_1_weight<reduce_scatter", "transformer_h_10"),
        ("0_weight>all_gather", "0"),
        ("lm_head_weight>all_gather", "lm_head"),
        ("scale>all_gather", "scale"),
    ],
)
def test_a_layer_is_the_outermost_numbered_module(place: str, layer: str) -> None:
    assert layer_of_parameter(place) == layer


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 150, 400, 10**6])
def test_no_bucket_exceeds_the_limit_and_no_collective_is_in_two_buckets(sharded: wb.Workbench, limit: int) -> None:
    for schedule in schedules(sharded):
        found = group_collectives(schedule, BucketRule(limit_bytes=limit))
        places = [c.place for bucket in found for c in bucket]
        assert len(places) == len(set(places))
        for bucket in found:
            assert sum(bucketing._full_bytes(schedule, c) for c in bucket) <= limit
    if limit == 10**6:
        assert [len(group_collectives(s, BucketRule(limit_bytes=limit))) for s in schedules(sharded)] == [1, 1]


@pytest.mark.slow
def test_a_bucket_per_layer_leaves_one_collective_per_layer(sharded: wb.Workbench) -> None:
    plan = planned_under(sharded, {"waits.bucket": "layer"})
    stock = sharded.stock_plan
    assert stock.overlap is not None
    assert plan.overlap is not None
    # 9 parameters belong to two layers, the embedding and the head, so buckets leave 4 gathers and 4 reductions.
    assert (stock.overlap.order.collectives, plan.overlap.order.collectives) == (2 * 9, 2 * 4)
    places = {site.id for site in plan.sites if site.lever == "waits" and not site.id.endswith("!wait")}
    assert {"waits:layers_0_2_weight+2<reduce_scatter", "waits:head_weight>all_gather"} <= places


def test_reductions_in_place_of_the_same_memory_are_not_in_one_bucket(programs: ModuleType) -> None:
    bench = wb.open(programs.Blocks(), torch.randn(4, 5), ranks=2, parallel="ddp", device="cpu", executor="torch")
    trace, schedule = bench.stock_plan.split.backward, schedules(bench)[1]
    first, second, *others = (c.issue for c in schedule.collectives)
    statements, before = list(schedule.statements), list(schedule.before)
    for issue in (first, second):
        statements[issue] = statements[issue].from_bsym(args=(*statements[issue].args[:4], True))
    before[second] = (*before[second], schedule.collectives[0].wait)
    tied = dataclasses.replace(schedule, statements=tuple(statements), before=tuple(before))
    found = group_collectives(tied, BucketRule())
    assert sorted(c.issue for bucket in found for c in bucket) == others
    bucketing.insert_buckets(trace, tied, found)


def test_a_plan_counts_the_bytes_that_buckets_copy(sharded: wb.Workbench) -> None:
    plan = planned_under(sharded, {"waits.bucket": "1MiB"})
    shapes = [p.shape for p in sharded.program.callable.parameters()]
    padded = 4 * sum(math.ceil(s[0] / 2) * 2 * math.prod(s[1:]) for s in shapes)
    assert plan.counts["buckets"] == 2
    # The gather copies shards into the bucket, and full tensors out of it. The reduction copies full gradients into the
    # bucket, and copies nothing out of it, because its outputs are views.
    assert plan.counts["bucket_copied_bytes"] == padded // 2 + padded + padded
    assert sharded.stock_plan.counts["bucket_copied_bytes"] == sharded.stock_plan.counts["buckets"] == 0
    assert plan.peak_bytes > sharded.stock_plan.peak_bytes
    kernels = {plan.graph.statements.name[r]: plan.overlap.cost.compute_s[r] for r in range(len(plan.graph.statements))}
    assert kernels["bucket_unpack_gather"] > 0
    assert kernels["bucket_unpack"] == 0


def test_buckets_are_ordered_like_single_collectives(sharded: wb.Workbench) -> None:
    stock = planned_under(sharded, {"waits.bucket": "layer"}).overlap
    ordered = planned_under(sharded, {"waits.bucket": "layer", **ORDERED}).overlap
    assert stock is not None
    assert ordered is not None
    assert ordered.order.inversions == 0
    assert sum(ordered.order.distances) > sum(stock.order.distances)
    assert ordered.lower_bound_s == pytest.approx(stock.lower_bound_s)
    assert ordered.lower_bound_s <= ordered.simulation.step_s


def test_a_collective_placed_by_hand_stays_out_of_buckets(sharded: wb.Workbench) -> None:
    choices = {"waits.bucket": "1MiB", "waits:layers_1_0_weight>all_gather": "just_in_time"}
    plan = planned_under(sharded, choices)
    assert plan.unmatched == ()
    assert next(s for s in plan.sites if s.id == "waits:layers_1_0_weight>all_gather").outcome == "just_in_time"
    assert plan.overlap is not None
    assert plan.overlap.order.collectives == 3


@pytest.mark.slow
@given(
    bucket=st.sampled_from(["layer", "1MiB"]),
    issue=st.sampled_from(["stock", "earliest", "consumer", "just_in_time", "in_flight(1)", "in_flight(2)"]),
    wait=st.sampled_from(["stock", "late", "early"]),
    gradients=st.sampled_from(["stock", "earliest"]),
    again=st.booleans(),
)
@settings(max_examples=8)
def test_any_order_of_buckets_is_a_plan(
    sharded: wb.Workbench, regathered: wb.Workbench, bucket: str, issue: str, wait: str, gradients: str, again: bool
) -> None:
    bench = regathered if again else sharded
    plan = planned_under(
        bench, {"waits.bucket": bucket, "waits.issue": issue, "waits.wait": wait, "waits.gradients": gradients}
    )
    # Planning validates both traces, so a plan with both traces is legal.
    assert plan.split.forward is not None
    assert plan.split.backward is not None
    assert plan.unmatched == ()


@pytest.mark.parametrize("option", ["0MiB", "25 MiB", "25", "all"])
def test_an_invalid_bucket_size_is_refused(sharded: wb.Workbench, option: str) -> None:
    with pytest.raises(ChoiceError, match="legal: none, layer, 25MiB, 100MiB, 500MiB or NMiB with any N from 1"):
        sharded.choose({"waits.bucket": option})


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.drawn
def test_training_on_two_ranks_equals_pytorch(programs: ModuleType, on_ranks: list[dict[str, float | str]]) -> None:
    for found in on_ranks:
        assert set(programs.IN_TEST) <= found.keys() <= programs.CASES.keys()
        assert len(found) == amount(len(programs.IN_TEST), len(programs.CASES), len(programs.CASES))
        failed = {name: outcome for name, outcome in found.items() if not isinstance(outcome, float)}
        assert not failed, "\n".join(map(str, failed.values()))
        assert max(found.values()) < 1e-9
