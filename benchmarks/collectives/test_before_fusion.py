"""Compare plans whose collectives are ordered before fusion with plans whose collectives are ordered after it.

The figures are the number of fusions, the peak memory, and the simulated step time of a Llama with small shapes and of
one with the shapes of Llama-2-7B.

`python -m pytest benchmarks/collectives/test_before_fusion.py -s` prints the figures of `waits_before_fusion.csv`.
WAITS_LAYERS sets the number of layers.
"""

from __future__ import annotations

import os

import pytest

import workbench as wb
from workbench.analysis.cost.machines import H100, PCIE
from workbench.compiler.api import Plan

LAYERS = int(os.environ.get("WAITS_LAYERS", "2"))
RANKS = 8
LATE = {"waits.wait": "late", "waits.gradients": "earliest"}
ORDERS = {
    "waits late, not reordered": LATE,
    "consumer order, waits late": {**LATE, "waits.issue": "consumer"},
    "4 in flight": {**LATE, "waits.issue": "in_flight(4)"},
    "just in time": {**LATE, "waits.issue": "just_in_time"},
}


def row(name: str, stage: str, plan: Plan) -> str:
    cells = [name, stage, str(plan.census.count), f"{plan.peak_bytes / 1e6:.2f}"]
    for machine in (H100, PCIE):
        found = plan.overlap_on(machine)
        assert found is not None
        cells.append(f"{1e3 * found.simulation.step_s:.2f} ({1e3 * sum(found.simulation.stall_s):.2f})")
    return f"| {' | '.join(cells)} |"


SHAPES = {
    "as it comes: float32, 64 features": {},
    "Llama-2-7B shapes, bfloat16": {
        "dim": 4096,
        "heads": 32,
        "hidden": 11008,
        "vocab": 32000,
        "batch": 2,
        "sequence": 4096,
        "dtype": "bfloat16",
    },
}


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("shapes", SHAPES)
def test_collectives_ordered_before_fusion_leave_no_fewer_fusions(shapes: str) -> None:
    settings = {"layers": LAYERS, **SHAPES[shapes]}
    bench = wb.open("fsdp_llama", device="planned", executor="nvfuser", ranks=RANKS, settings=settings)
    print(f"\n{shapes}, {LAYERS} layers, {RANKS} ranks, planned under nvFuser, simulated")
    print("| order | placed | fusions | peak MB | H100 ms (stall) | PCIe box ms (stall) |")
    print("|---|---|---|---|---|---|")
    print(row("stock", "", bench.stock_plan))
    for name, choices in ORDERS.items():
        plans = {
            stage: bench._planner.plan({**choices, "waits.stage": stage}) for stage in ("after_fusion", "before_fusion")
        }
        for stage, plan in plans.items():
            print(row(name, stage, plan))
        assert plans["before_fusion"].census.count >= plans["after_fusion"].census.count
