"""Measure the time to prove a plan, for graphs of realistic sizes.

``python -m pytest benchmarks/choices/test_proof.py`` prints a table of CPU times. There are two goals. After a toggle,
a plan of 1,000 statements is proven within 20 ms; the values of the stock plan are then already numbered. Two new
graphs of 10,000 statements are proven equal within 1 s.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.analysis.equivalence.plans import plan
from workbench.analysis.equivalence.prove import Prover, prove
from workbench.core.graph import Graph

pytestmark = pytest.mark.benchmark(group="proof", timer=time.process_time)


def chain(statements: int, writes: bool) -> Graph:
    """Return a graph of layers. Each has six statements, with views, a constant and, if `writes`, an in-place write."""
    lines = ["take h0, w"]
    for i in range(statements // 6):
        lines += [
            f"a{i} = linear($h{i}, $w)",
            f"b{i} in 0 = view($a{i}, (2, 2))",
            f"c{i} = mul($b{i}, 0x1.{i % 4096:03x}p-1)",
            f"d{i} = tanh($c{i})",
            f"e{i} in 0 = view($d{i}, (4))",
            f"h{i + 1} in 1 = copy_($e{i}, $a{i})" if writes else f"h{i + 1} = add($e{i}, $h{i})",
        ]
    return plan("\n".join([*lines, f"return h{statements // 6}"]))


@pytest.mark.parametrize("writes", [False, True], ids=["pure", "writes"])
def test_a_plan_of_a_thousand_statements_is_proven_after_a_toggle(benchmark: Any, writes: bool) -> None:
    graph = chain(1000, writes)
    prover = Prover(graph)
    assert benchmark(lambda: prover.prove(graph)).proven


@pytest.mark.parametrize("writes", [False, True], ids=["pure", "writes"])
def test_two_new_graphs_of_ten_thousand_statements_are_proven_equal(benchmark: Any, writes: bool) -> None:
    graph = chain(10_000, writes)
    assert benchmark(lambda: prove(graph, graph)).proven
