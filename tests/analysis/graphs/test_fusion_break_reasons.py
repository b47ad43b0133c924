"""Each statement next to a fusion has the reason why the fusion does not include the statement."""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from tests.analysis.small_graphs import graph
from workbench.analysis.graphs.fusion_break_reasons import boundaries
from workbench.core.graph import Graph, Kind, StatementFlag

LINES = [
    ("linear", "x w", "a", ""),
    ("fusion0", "a", "b", ""),
    ("linear", "b w", "c", ""),
    ("dropout", "b", "d", ""),
    ("fusion1", "b c d", "e", ""),
    ("gather", "e", "f", ""),
    ("fusion2", "e", "g", ""),
    ("fusion3", "e", "h", ""),
]


def example() -> Graph:
    made = graph(LINES, backward=7)
    kinds = [Kind.FUSION if name.startswith("fusion") else Kind.OP for name, *_ in LINES]
    kinds[5] = Kind.COLLECTIVE
    flags = [0, 0, StatementFlag.MATMUL, StatementFlag.RANDOM, 0, 0, 0, 0]
    flags[0] = StatementFlag.MATMUL
    statements = dataclasses.replace(
        made.statements,
        kind=np.asarray(kinds, np.int8),
        flags=np.asarray(flags, np.int32),
        executor=("torch",) * len(LINES),
    )
    return dataclasses.replace(made, statements=statements)


def test_each_neighbour_has_its_reason():
    found = {(edge.before, edge.statement): edge for edge in boundaries(example(), 4)}
    words = {2: "matrix product", 3: "random", 5: "collective", 6: "nothing is between", 7: "backward"}
    for (before, row), edge in found.items():
        assert before == (row < 4)
        if row in words:
            assert words[row] in edge.reason
    assert set(found) == {(True, 1), (True, 2), (True, 3), (False, 5), (False, 6), (False, 7)}


def test_a_statement_between_two_fusions_that_would_create_a_cycle_is_named():
    edge = next(edge for edge in boundaries(example(), 4) if edge.statement == 1)
    names = example().statements.name
    between = {names[row].rpartition(".")[2] for row in (2, 3)}
    assert re.search(r"another fusion: (\w+) depends on .*creates a cycle", edge.reason)[1] in between
    assert {edge.statement for edge in boundaries(example(), 1)} == {0, 2, 3, 4}
