"""The memory of each statement is divided among kinds, and no byte is lost or counted twice."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.analysis.small_graphs import graph
from workbench.analysis.memory.bytes_by_kind import KINDS, bytes_by_kind
from workbench.analysis.memory.liveness import timeline
from workbench.core.graph import ValueFlag

ARGUMENT, OUTPUT, GRADIENT = ValueFlag.ARGUMENT, ValueFlag.OUTPUT, ValueFlag.GRADIENT
COTANGENT, SAVED = ValueFlag.COTANGENT, ValueFlag.SAVED


def test_each_storage_has_one_kind() -> None:
    step = graph(
        [("a", "x", "s t", ""), ("b", "t", "y", "t"), ("c", "s g", "d", "s g")],
        backward=2,
        flags={"x": ARGUMENT | SAVED, "s": SAVED, "y": OUTPUT, "g": COTANGENT, "d": GRADIENT},
        sizes={"x": 1, "s": 10, "t": 100, "y": 1000, "g": 10_000, "d": 100_000},
        transient={"b": 7},
    )
    found = dict(zip(KINDS, bytes_by_kind(step).tolist(), strict=True))
    assert found == {
        "parameters and inputs": [1, 1, 1],
        "saved": [10, 10, 10],
        "gradients": [0, 0, 110_000],
        "transient": [100, 1107, 1000],
    }


@pytest.mark.slow
@pytest.mark.parametrize("program", ["mlp", "llama"])
def test_the_kinds_add_up_to_the_memory_of_each_statement(program: str) -> None:
    bench = wb.open(program, layers=1, device="cpu", executor="torch")
    able = [site.id for site in bench.sites("saved") if site.values and "recompute" not in site.illegal]
    bench.choose(dict.fromkeys(able[::2], "recompute"))
    for plan in (bench.plan, bench.stock_plan):
        kinds = bytes_by_kind(plan.graph)
        assert kinds.sum(axis=0).tolist() == timeline(plan.graph).statement_peak_bytes.tolist()
        assert kinds.min() >= 0
        assert kinds[KINDS.index("saved"), plan.graph.first_backward] == plan.saved_bytes > 0
