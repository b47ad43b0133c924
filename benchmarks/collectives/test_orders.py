"""Measure orders of collectives: the effect of policies on Llama-2-7B, and the time to apply a policy or move a wait.

`python -m pytest benchmarks/collectives/test_orders.py -s` prints the rows of `waits_orders.csv`. WAITS_LAYERS sets the
number of layers.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import time

import pytest
from thunder.core.trace import from_trace
from thunder.distributed.utils import sort_waits

import workbench as wb
from workbench.analysis.cost.collective_overlap import COMMUNICATION, Overlap
from workbench.analysis.cost.machines import H100, PCIE, Machine
from workbench.levers.waits.order_search import CLOSE

LAYERS = int(os.environ.get("WAITS_LAYERS", "32"))
RANKS = 8
POLICY_S, MOVE_S, LONGEST_MOVE_S = 0.3, 0.05, 0.5
"""Limits in CPU seconds: for applying a policy, for the median of moves of a wait, and for the longest move."""
SLOW = dataclasses.replace(H100, name="H100 with 50 GB/s between GPUs", link_bytes_per_s=50e9)

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


def row(name: str, overlap: Overlap) -> str:
    found, report = overlap.simulation, overlap.order
    forward, backward = found.forward_s, found.step_s - found.forward_s
    return (
        f"| {name} | {1e3 * forward:.1f} ({1e3 * found.stall_s[0]:.1f}) | {found.ahead_peak_bytes / 1e9:.2f} "
        f"| {1e3 * backward:.1f} ({1e3 * found.stall_s[1]:.1f}) | {1e3 * found.step_s:.1f} | {report.inversions} "
        f"| {report.without_compute} of {report.collectives} | {1e3 * overlap.lower_bound_s:.1f} |"
    )


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("machine", [H100, PCIE, SLOW], ids=lambda machine: machine.name)
def test_each_order_has_its_expected_stall_and_bytes_in_flight(bench: wb.Workbench, machine: Machine) -> None:
    print(f"\n{LAYERS} layers, {RANKS} ranks, {machine.name}, simulated")
    print(
        "| order | forward ms (stall) | in flight GB | backward ms (stall) | step | inversions | no compute | bound |"
    )
    print("|---|---|---|---|---|---|---|---|")
    begun = time.perf_counter()
    found = bench.search_waits(machine=machine)
    searched_s = time.perf_counter() - begun
    rows = {**POLICIES, "found by search": found.choices}
    table = {name: bench.plan_under(choices).overlap_on(machine) for name, choices in rows.items()}
    for name, overlap in table.items():
        assert overlap is not None
        print(row(name, overlap))
    print(f"found in {searched_s:.2f} s: {found.choices}, {found.over_bound:.2%} above the bound")

    simulation = {name: overlap.simulation for name, overlap in table.items()}
    stock, late, consumer = (
        simulation[n] for n in ("stock", "waits late, not reordered", "consumer order, waits late")
    )
    assert table["stock"].order.inversions > 0
    # In stock order, compute waits for most of the communication, so little of it overlaps with compute.
    sent_s = sum(bar.end_s - bar.start_s for bar in stock.bars if bar.stream == COMMUNICATION)
    assert stock.exposed_communication_s > 0.75 * sent_s
    assert late.stall_s[0] == pytest.approx(stock.stall_s[0], rel=0.02)
    # At 50 GB/s, the gathers take longer than the forward's compute, so no order can hide all gathers.
    assert consumer.stall_s[0] < (0.5 if machine is SLOW else 0.05) * stock.stall_s[0]
    assert simulation["4 in flight"].ahead_peak_bytes < 0.06 * consumer.ahead_peak_bytes
    presets = [one.step_s for name, one in simulation.items() if name != "found by search"]
    assert simulation["found by search"].step_s <= min(presets) * (1 + CLOSE)
    if machine is H100:
        assert found.over_bound < 0.02


@pytest.mark.timeout(3000)
@pytest.mark.benchmark(timer=time.process_time)
def test_a_policy_is_applied_faster_than_thunder_sorts_waits(bench: wb.Workbench, benchmark) -> None:
    """Time the reordering of both traces by a policy. It must take less time than Thunder's `sort_waits`."""
    sort_waits_s = thunder_sorts(bench)
    fresh = itertools.count(5)

    def apply() -> None:
        # Each call uses a new number, so that no cached plan is used.
        split = bench.plan_under({**POLICIES["4 in flight"], "waits.issue": f"in_flight({next(fresh)})"}).split
        assert split.forward.bound_symbols

    benchmark.extra_info["thunder_sort_waits_s"] = sort_waits_s
    benchmark.pedantic(apply, rounds=9, warmup_rounds=1)
    told("a policy", benchmark, sort_waits_s)
    assert benchmark.stats.stats.median < min(POLICY_S, sort_waits_s)


@pytest.mark.timeout(3000)
@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("way", ["effect", "choose"])
def test_a_wait_is_moved_in_a_quarter_of_the_time_in_which_thunder_sorts_waits(
    bench: wb.Workbench, benchmark, way: str
) -> None:
    """Time moving one wait by hand, each time to a later statement: the plan, its memory, and its simulated step."""
    sort_waits_s = thunder_sorts(bench)
    assert bench.plan.overlap is not None
    schedule = bench._captured.planned.bases[()].outcome.value.communication["forward"]
    # `effect` and `choose` move different collectives, because plans of the same moves would be cached.
    collective = schedule.collectives[LAYERS + (way == "choose")]
    places = itertools.count(schedule.low[collective.issue])

    def move() -> None:
        choices = {f"waits:{collective.place}!wait": f"at({schedule.names[next(places)]})"}
        assert getattr(bench, way)(choices).overlap is not None

    benchmark.extra_info["thunder_sort_waits_s"] = sort_waits_s
    benchmark.pedantic(move, rounds=30, warmup_rounds=2)
    bench.choose({f"waits:{collective.place}!wait": "policy"})
    told(f"a move, {way}", benchmark, sort_waits_s)
    assert benchmark.stats.stats.median < min(MOVE_S, sort_waits_s / 4)
    assert benchmark.stats.stats.max < LONGEST_MOVE_S


def told(what: str, benchmark, sort_waits_s: float) -> None:
    """Print the CPU times. Wall time would depend on the machine's load."""
    found = benchmark.stats.stats
    print(
        f"\n{what}: median {1e3 * found.median:.0f} ms, longest {1e3 * found.max:.0f} ms of CPU; "
        f"Thunder's sort_waits {1e3 * sort_waits_s:.0f} ms"
    )


def thunder_sorts(bench: wb.Workbench) -> float:
    """Return the CPU seconds that Thunder's `sort_waits` takes for both traces."""
    split = bench.stock_plan.split
    start = time.process_time()
    for trace in (split.forward, split.backward):
        edited = from_trace(trace)
        edited.bound_symbols = [b for b in trace.bound_symbols if b.sym.name != "python_del"]
        sort_waits(edited)
    return time.process_time() - start
