"""In the simulation of a program with several process groups, each group has its own communication stream."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from thunder.core.proxies import DistParallelType
from thunder.distributed import prims
from thunder.distributed.tensor_parallel.common import TensorParallelLayerType
from torch.testing._internal.distributed.fake_pg import FakeStore

import workbench as wb
from tests.levers.waits.test_overlap import ONE, graph, schedules, seconds
from workbench.analysis.cost import chrome_trace
from workbench.analysis.cost.collective_overlap import (
    COMMUNICATION,
    COMPUTE,
    StatementSeconds,
    communication_streams,
    costs,
    lower_bound,
    simulate,
)
from workbench.analysis.cost.machines import H100
from workbench.analysis.graphs.reorder_graph import reorder_graph
from workbench.core.graph import Graph, Kind
from workbench.ui.graph.collective_lanes import bars
from workbench.ui.graph.layout import compute
from workbench.ui.graph.payload import payload
from workbench.ui.tabs.timeline_tab import simulated_lanes


def grouped(made: Graph, groups: list[int], ranks: tuple[int, ...]) -> Graph:
    """Return a graph in which the n-th collective belongs to the n-th group of `groups`."""
    column = np.full(len(made.statements), -1, np.int32)
    column[made.statements.kind == Kind.COLLECTIVE] = groups
    return dataclasses.replace(made, statements=dataclasses.replace(made.statements, group=column), groups=ranks)


@st.composite
def several(draw: st.DrawFn) -> tuple[Graph, StatementSeconds]:
    """Draw a schedule whose collectives belong to up to three process groups."""
    made, cost = draw(schedules())
    count = int((made.statements.kind == Kind.COLLECTIVE).sum())
    return grouped(made, [draw(st.integers(0, 2)) for _ in range(count)], (2, 4, 8)), cost


def by_paths(made: Graph, cost: StatementSeconds) -> tuple[float, dict[int, float]]:
    """Return the step time and each statement's end, computed as longest paths through the graph of dependencies."""
    statements = made.statements
    # A statement has two nodes: its host work and its device work. A wait's device node takes no time, and is in the
    # compute stream.
    nodes: dict[tuple[str, int], tuple[float, list[tuple[str, int]]]] = {}
    last: dict[str, tuple[str, int]] = {}
    for row in range(len(statements)):
        before = [last["host"]] if "host" in last else []
        nodes["host", row] = (float(cost.host_s[row]), before)
        last["host"] = ("host", row)
        kind = statements.kind[row]
        stream = f"group {statements.group[row]}" if kind == Kind.COLLECTIVE else "compute"
        needs = [("host", row), *(last[s] for s in {stream, "compute"} if s in last)]
        if kind == Kind.WAIT:
            needs.append(("device", int(made.values.producer[statements.inputs[row][0]])))
        took = {Kind.COLLECTIVE: cost.communication_s[row], Kind.WAIT: 0.0}.get(Kind(kind), cost.compute_s[row])
        # The node ends `took` seconds after the last of its needs has ended.
        nodes["device", row] = (float(took), needs)
        last[stream] = ("device", row)
    ends: dict[tuple[str, int], float] = {}
    for node, (took, needs) in nodes.items():
        ends[node] = took + max((ends[need] for need in needs), default=0.0)
    return max(ends.values()), {row: ends["device", row] for row in range(len(statements))}


@pytest.mark.slow
@given(several())
def test_streams_follow_longest_paths(given_: tuple[Graph, StatementSeconds]) -> None:
    made, cost = given_
    found = simulate(made, cost)
    step_s, ends = by_paths(made, cost)
    assert found.step_s == pytest.approx(step_s)
    for row, (_, start, end) in found.busy.items():
        assert end == pytest.approx(ends[row])
        assert start <= end


@given(schedules())
def test_one_group_is_simulated_like_an_unnamed_group(given_: tuple[Graph, StatementSeconds]) -> None:
    made, cost = given_
    count = int((made.statements.kind == Kind.COLLECTIVE).sum())
    one = grouped(made, [0] * count, (8,))
    assert communication_streams(one) == (COMMUNICATION,)
    assert simulate(one, cost).bars == simulate(made, cost).bars
    assert lower_bound(one, cost) == lower_bound(made, cost)
    assert np.array_equal(costs(one, H100, 4).communication_s, costs(made, H100, 8).communication_s)


@given(several())
def test_several_streams_are_never_slower_than_one_and_never_beat_the_bound(
    given_: tuple[Graph, StatementSeconds],
) -> None:
    made, cost = given_
    together = grouped(made, [0] * int((made.statements.kind == Kind.COLLECTIVE).sum()), (8,))
    assert simulate(made, cost).step_s <= simulate(together, cost).step_s + 1e-9
    assert lower_bound(made, cost) <= simulate(made, cost).step_s + 1e-9
    assert lower_bound(made, cost) <= lower_bound(together, cost) + 1e-9


def test_only_different_groups_send_at_the_same_time() -> None:
    lines = (("gather", "w", "f"), ("gather", "w2", "f2"), ("wait", "f", "g"), ("wait", "f2", "g2"))
    made = graph(*lines, ("matmul", "x g g2", "y"))
    two, one = grouped(made, [0, 1], (2, 4)), grouped(made, [0, 0], (2,))
    assert (simulate(two, seconds(two)).step_s, simulate(one, seconds(one)).step_s) == (14.0, 24.0)
    assert (lower_bound(two, seconds(two)), lower_bound(one, seconds(one))) == (14.0, 24.0)


def test_a_ring_of_two_moves_half_and_a_ring_of_eight_seven_eighths() -> None:
    made = graph(("gather", "w", "f"), ("gather", "w2", "f2"), sizes={"f": 800_000, "f2": 800_000})
    two, eight = (costs(grouped(made, [0, 1], (2, 8)), H100, 16).communication_s - H100.latency_s).tolist()
    assert eight / two == pytest.approx((7 / 8) / (1 / 2))


def test_collectives_keep_their_groups_in_json_and_in_another_order() -> None:
    made = graph(("gather", "w", "f"), ("gather", "w2", "f2"), ("wait", "f", "g"), ("wait", "f2", "g2"))
    two = grouped(made, [0, 1], (2, 4))
    again = Graph.from_json(two.to_json())
    assert (again.groups, again.statements.group.tolist()) == ((2, 4), [0, 1, -1, -1])
    assert reorder_graph(two, np.asarray([1, 0, 3, 2])).statements.group.tolist() == [1, 0, -1, -1]


def test_json_of_a_graph_without_groups_is_still_read() -> None:
    old = json.loads(graph(*ONE).to_json())
    del old["groups"], old["statements"]["group"]
    found = Graph.from_json(json.dumps(old))
    assert (found.groups, found.statements.group.tolist()) == ((), [-1, -1, -1])


@contextlib.contextmanager
def four_ranks() -> Iterator[tuple[dist.ProcessGroup, dist.ProcessGroup]]:
    """Act as rank 0 of four, without other processes. Yield this rank's groups for sharding and tensor parallelism."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        yield dist.new_group([0, 1]), dist.new_group([0, 2])
    finally:
        dist.destroy_process_group()


def test_a_program_of_two_groups_has_two_communication_lanes() -> None:
    """One group gathers weights, and the other sums partial products, as in sharding with tensor parallelism."""
    with four_ranks() as (sharded, split):

        def step(x, up, down, more):
            full = [prims.wait(prims.all_gather(w, sharded, True)) for w in (up, down, more)]
            h = torch.tanh(x @ full[0])
            part = prims.all_reduce(h @ full[1], prims.DistributedReduceOps.SUM, split, True)
            return prims.wait(part) + h @ full[2]

        tensors = torch.randn(8, 16), *(torch.randn(8, 16) for _ in range(3))
        bench = wb.open(step, *tensors, device="cpu", executor="torch")
        late = bench._planner.plan({"waits.wait": "late", "waits.issue": "consumer"})
    for plan in (bench.stock_plan, late):
        made, found = plan.graph, plan.overlap
        assert found is not None
        assert made.groups == (2, 2)
        names = [made.statements.name[row] for row in np.flatnonzero(made.statements.group >= 0)]
        groups = made.statements.group[made.statements.group >= 0].tolist()
        assert sorted(zip(("gather" in name for name in names), groups, strict=True)) == [(False, 1), *[(True, 0)] * 3]
        assert (found.cost.communication_s[made.statements.group >= 0] > H100.latency_s).all()
        streams = communication_streams(made)
        assert len(streams) == 2
        lanes = {lane["name"] for lane in simulated_lanes(made, found, [])}
        assert {f"{stream}, sim." for stream in (*streams, COMPUTE)} <= lanes
        threads = {
            event["tid"] for event in chrome_trace.simulated_step(made, found)["traceEvents"] if event["ph"] == "X"
        }
        assert {f"{stream}, simulated" for stream in streams} <= threads
        assert found.lower_bound_s <= found.simulation.step_s + 1e-12


def test_a_training_step_of_two_groups_has_lanes_and_bars_for_each_group() -> None:
    """Both groups shard weights, and one also splits a linear by rows. Thunder has a backward for these collectives."""
    with four_ranks() as (sharded, split):

        def step(x, up, down, more):
            full = [prims.synchronize(w, sharded, DistParallelType.FULLY_SHARDED) for w in (up, down)]
            h = torch.tanh(x @ full[0])
            part = prims.synchronize_tensor_parallel_output(
                h @ full[1], split, TensorParallelLayerType.ROW_PARALLEL_LINEAR
            )
            other = prims.synchronize(more, split, DistParallelType.FULLY_SHARDED)
            return (part + h @ other).sum()

        tensors = torch.randn(8, 16), *(torch.randn(8, 16, requires_grad=True) for _ in range(3))
        bench = wb.open(step, *tensors, device="cpu", executor="torch")
        ordered = {"waits.issue": "consumer", "waits.wait": "late", "waits.gradients": "earliest"}
        plans = [bench._planner.plan(choices) for choices in ({}, ordered, {"waits.bucket": "1MiB"})]
    for plan in plans:
        made, found = plan.graph, plan.overlap
        assert found is not None
        assert made.groups == (2, 2)
        assert {lane["name"] for lane in simulated_lanes(made, found, [])} >= {
            f"{stream}, sim." for stream in communication_streams(made)
        }
        assert found.lower_bound_s <= found.simulation.step_s + 1e-12
    stock, late, _ = plans
    assert stock.overlap.order.distances != late.overlap.order.distances
    # A bucket joins collectives of the same group, here two gathers and two reductions, but never of two groups.
    issued = [plan.graph.statements.group[plan.graph.statements.kind == Kind.COLLECTIVE].tolist() for plan in plans]
    assert list(map(Counter, issued)) == [{0: 4, 1: 3}, {0: 4, 1: 3}, {0: 2, 1: 3}]
    layout = compute(stock.graph, stock.sites)
    shown = bars(stock.graph, layout, stock.sites)
    assert sorted(np.repeat(shown.group, shown.count).tolist()) == [0, 0, 0, 0, 1, 1, 1]
    told = " ".join(payload(stock.graph, layout, stock.sites)["strings"])
    assert "process group 1 of 2: 2 ranks" in told
    assert "process group 2 of 2: 2 ranks" in told
