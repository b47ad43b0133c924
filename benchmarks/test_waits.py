"""Orders of collectives: the table of policies on Llama-2-7B, and how long applying one takes.

`python -m pytest benchmarks/test_waits.py -s` prints the table of docs/waits.md. WAITS_LAYERS takes another size.
"""

from __future__ import annotations

import os
import time

import pytest
from thunder.core.trace import from_trace
from thunder.distributed.utils import sort_waits

import workbench as wb
from workbench.analysis.machines import H100, PCIE, Machine
from workbench.analysis.overlap import costs, lower_bound, order, simulate
from workbench.compiler import reorder
from workbench.compiler.reader import read_execution
from workbench.compiler.stage import Stage
from workbench.graph import FORWARD, Graph
from workbench.levers.waits import keys

LAYERS = int(os.environ.get("WAITS_LAYERS", "32"))
RANKS = 8

POLICIES = {
    "stock": {},
    "just in time": {"waits.issue": "just_in_time", "waits.wait": "late", "waits.gradients": "earliest"},
    "consumer order, waits late, gradients stock": {"waits.issue": "consumer", "waits.wait": "late"},
    "waits late, not reordered": {"waits.wait": "late", "waits.gradients": "earliest"},
    "consumer order, waits late": {"waits.issue": "consumer", "waits.wait": "late", "waits.gradients": "earliest"},
    "4 in flight": {"waits.issue": "in_flight(4)", "waits.wait": "late", "waits.gradients": "earliest"},
}


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    return wb.open(
        "fsdp_llama",
        device="planned",
        executor="nvfuser",
        ranks=RANKS,
        settings={
            "layers": LAYERS,
            "dim": 4096,
            "heads": 32,
            "hidden": 11008,
            "vocab": 32000,
            "batch": 2,
            "sequence": 4096,
            "dtype": "bfloat16",
        },
    )


def stage_of(bench: wb.Workbench) -> Stage:
    """A stage whose schedules are those of the stock plan's traces."""
    stage = bench._captured.fresh_stage()
    split = bench.stock_plan.split
    stage.communication = {
        side: reorder.schedule(trace, stage)
        for side, trace in (("forward", split.forward), ("backward", split.backward))
    }
    return stage


def reordered(bench: wb.Workbench, stage: Stage, choices: dict[str, str]) -> Graph:
    split = bench.stock_plan.split
    forward, backward = (
        reorder.reordered(
            trace,
            stage.communication[side],
            stage.communication[side].arrange(keys(stage.communication[side], choices)),
        )
        for side, trace in (("forward", split.forward), ("backward", split.backward))
    )
    return read_execution(forward, backward, stage)


def row(name: str, graph: Graph, machine: Machine) -> str:
    cost = costs(graph, machine, RANKS)
    found, report = simulate(graph, cost), order(graph)
    forward, backward = found.forward_s, found.step_s - found.forward_s
    # Of the forward: gradients on their way are held anyway, they are returned.
    top = graph.statements.parent < 0
    in_flight = found.in_flight_bytes[graph.statements.side[top] == FORWARD].max()
    return (
        f"| {name} | {1e3 * forward:.1f} ({1e3 * found.stall_s[0]:.1f}) | {in_flight / 1e9:.2f} "
        f"| {1e3 * backward:.1f} ({1e3 * found.stall_s[1]:.1f}) | {1e3 * found.step_s:.1f} | {report.inversions} "
        f"| {report.without_compute} of {report.collectives} | {1e3 * lower_bound(graph, cost):.1f} |"
    )


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("machine", [H100, PCIE], ids=lambda machine: machine.name)
def test_order_table(bench: wb.Workbench, machine: Machine) -> None:
    stage = stage_of(bench)
    print(f"\n{LAYERS} layers, {RANKS} ranks, {machine.name}, simulated")
    print(
        "| order | forward ms (stall) | in flight GB | backward ms (stall) | step | inversions | no compute | bound |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, choices in POLICIES.items():
        print(row(name, reordered(bench, stage, choices) if choices else bench.stock_plan.graph, machine))


@pytest.mark.timeout(3000)
def test_applying_a_policy(bench: wb.Workbench, benchmark) -> None:
    split = bench.stock_plan.split
    stage = bench._captured.fresh_stage()

    def apply() -> None:
        for trace in (split.forward, split.backward):
            schedule = reorder.schedule(trace, stage)
            reorder.reordered(trace, schedule, schedule.arrange(keys(schedule, POLICIES["4 in flight"])))

    def thunder() -> None:
        for trace in (split.forward, split.backward):
            edited = from_trace(trace)
            edited.bound_symbols = [b for b in trace.bound_symbols if b.sym.name not in ("python_del",)]
            sort_waits(edited)

    start = time.perf_counter()
    thunder()
    benchmark.extra_info["thunder_sort_waits_s"] = time.perf_counter() - start
    benchmark.pedantic(apply, rounds=3, warmup_rounds=1)


@pytest.mark.timeout(3000)
def test_moving_one_wait_and_simulating(bench: wb.Workbench, benchmark) -> None:
    """The wait of the last layer's first weight, moved by hand, and the step simulated again on the stock graph."""
    stage = stage_of(bench)
    graph = bench.stock_plan.graph
    schedule = stage.communication["forward"]
    cost = costs(graph, H100, RANKS)
    collective = schedule.collectives[-1]
    name = (*schedule.names, "end")[schedule.high[collective.wait]]
    choices = {f"waits:{collective.place}!wait": f"at({name})"}
    rows = [i for i in range(len(graph.statements)) if graph.statements.parent[i] < 0]
    forward = len(schedule.statements)

    def move() -> None:
        arranged = schedule.arrange(keys(schedule, choices))
        simulate(graph, cost, [rows[i] for i in arranged] + rows[forward:])

    benchmark.pedantic(move, rounds=5, warmup_rounds=1)
