"""Check that simulation and measurement rank orders of collectives equally, on gloo ranks with a slow link.

Orders whose simulated steps differ by at most 5 % may be ranked differently. `slow_link.py` slows the link.
`python -m pytest benchmarks/collectives/bench_ranking.py -s` prints the table of `waits_ranking.csv`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from benchmarks.collectives import slow_link
from tests.levers.waits.torchrun import torchrun
from workbench.analysis.cost.collective_overlap import StatementSeconds, costs, simulate
from workbench.analysis.cost.machines import H100
from workbench.core.graph import Graph, Kind
from workbench.runs.measure import interleaved_timing

RANKS, TURNS = 2, 11
BYTES_PER_S, LATENCY_S = 80e6, 1e-3

ORDERS = {
    "stock": {},
    "just in time": {"waits.issue": "just_in_time", "waits.wait": "late", "waits.gradients": "earliest"},
    "consumer order, waits late, gradients stock": {"waits.issue": "consumer", "waits.wait": "late"},
    "waits late, not reordered": {"waits.wait": "late", "waits.gradients": "earliest"},
    "consumer order, waits late": {"waits.issue": "consumer", "waits.wait": "late", "waits.gradients": "earliest"},
    "each waited for at once": {"waits.issue": "consumer", "waits.wait": "early", "waits.gradients": "earliest"},
}


def step_s(graph: Graph, seconds: dict[str, float]) -> float:
    """Return the seconds of a simulated step, from measured times of statements and the figures of the slow link."""
    link = dataclasses.replace(H100, link_bytes_per_s=BYTES_PER_S, latency_s=LATENCY_S)
    communication_s = costs(graph, link, RANKS).communication_s
    statements = graph.statements
    # On a CPU, the host is also the device. Launch times are 0, because the measured times of statements include them.
    computes = (statements.parent < 0) & ~np.isin(statements.kind, (Kind.COLLECTIVE, Kind.WAIT))
    names = ([graph.values.name[value] for value in outputs[:1]] for outputs in statements.outputs)
    took = [sum(seconds.get(name, 0.0) for name in first) for first in names]
    return simulate(graph, StatementSeconds(np.zeros(len(took)), np.where(computes, took, 0.0), communication_s)).step_s


@pytest.mark.timeout(1800)
def test_simulation_and_measurement_rank_orders_equally(tmp_path: Path) -> None:
    bench = wb.open(
        "fsdp_llama",
        device="cpu",
        executor="torch",
        ranks=RANKS,
        settings={"layers": 2, "dim": 384, "heads": 4, "vocab": 512, "batch": 2, "sequence": 128},
    )
    spec = {
        "program": bench.program.spec,
        "parallel": "fsdp",
        "orders": ORDERS,
        "bytes_per_s": BYTES_PER_S,
        "latency_s": LATENCY_S,
        "turns": TURNS,
    }
    told = torchrun(tmp_path, RANKS, Path(slow_link.__file__), json.dumps(spec))
    simulated = {name: step_s(bench.plan_under(choices).graph, told[0]["seconds"]) for name, choices in ORDERS.items()}
    # A step takes the time of its slowest rank.
    measured = {
        name: interleaved_timing.estimate(np.max([rank["samples"][name] for rank in told], axis=0).tolist())
        for name in ORDERS
    }
    by_simulation = sorted(ORDERS, key=simulated.__getitem__)
    by_measurement = sorted(ORDERS, key=lambda name: measured[name].median)
    print(f"\n{RANKS} gloo ranks, a link of {BYTES_PER_S / 1e6:g} MB/s and {LATENCY_S * 1e3:g} ms, {TURNS} turns")
    print("| order | simulated ms (rank) | measured ms, median (95 % interval) | (rank) |")
    print("|---|---|---|---|")
    for name in by_simulation:
        found = measured[name]
        print(
            f"| {name} | {1e3 * simulated[name]:.0f} ({by_simulation.index(name) + 1}) "
            f"| {1e3 * found.median:.0f} ({1e3 * found.low:.0f} to {1e3 * found.high:.0f}) "
            f"| ({by_measurement.index(name) + 1}) |"
        )
    # If two simulated steps differ by more than 5 %, the faster one must also be faster when measured.
    for one, other in itertools.combinations(by_simulation, 2):
        if simulated[other] > 1.05 * simulated[one]:
            assert measured[one].median < measured[other].median, (one, other)
