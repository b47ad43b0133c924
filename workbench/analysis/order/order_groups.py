"""Find groups of statements of the forward or the backward. The lever `order` can move each group independently."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.order.min_peak_order import HalfStep
from workbench.core.graph import Graph, StatementFlag, ValueFlag, layer_of

_KEPT = ValueFlag.OUTPUT | ValueFlag.GRADIENT | ValueFlag.SAVED


def recomputed_by_layer(graph: Graph, rows: NDArray[np.intp]) -> dict[str, list[int]]:
    """Map each layer to the statements among `rows` that recompute statements of the layer.

    Statements outside of layers are listed under their module, or under ``program`` if they have no module.
    """
    found: defaultdict[str, list[int]] = defaultdict(list)
    clones = np.flatnonzero(graph.statements.flags[rows] & StatementFlag.CLONE)
    for place, origin in zip(clones.tolist(), graph.statements.origin[rows[clones]].tolist(), strict=True):
        scope = graph.origins[origin].scope if origin >= 0 else ""
        found[layer_of(scope) or scope or "program"].append(place)
    return dict(found)


def gradient_statements(graph: Graph, half: HalfStep) -> list[int]:
    """Return the statements that contribute to only one final statement, provided that it returns a gradient."""
    flags, makes = graph.values.flags, graph.statements.outputs
    gives = [bool((flags[makes[row]] & ValueFlag.GRADIENT).any()) for row in half.rows]
    return [place for place, ends in enumerate(_ends(graph, half)) if len(ends) == 1 and gives[min(ends)]]


def update_statements(graph: Graph, half: HalfStep) -> list[int]:
    """Return the statements that contribute only to in-place writes into arguments."""
    written = _writers(graph, half)
    return [place for place, ends in enumerate(_ends(graph, half)) if ends and ends <= written]


def _writers(graph: Graph, half: HalfStep) -> set[int]:
    """Return the statements that write into an argument."""
    statements, storage = graph.statements, graph.values.storage
    given = set(storage[(graph.values.flags & ValueFlag.ARGUMENT) != 0].tolist()) - {-1}
    return {
        place
        for place, row in enumerate(half.rows)
        if statements.flags[row] & StatementFlag.INPLACE and given & set(storage[statements.outputs[row]].tolist())
    }


def _ends(graph: Graph, half: HalfStep) -> list[set[int]]:
    """Return, for each statement, the final statements that depend on it. A final statement depends on itself.

    A statement is final if it returns an output, a gradient or a saved value, or if it writes into an argument.
    """
    flags, statements, written = graph.values.flags, graph.statements, _writers(graph, half)
    readers: defaultdict[int, list[int]] = defaultdict(list)
    for place, row in enumerate(half.rows):
        for value in statements.inputs[row].tolist():
            readers[value].append(place)
    found: list[set[int]] = [set() for _ in half.rows]
    for place in reversed(range(len(half.rows))):
        makes = statements.outputs[half.rows[place]]
        if place in written or (flags[makes] & _KEPT).any():
            found[place].add(place)
        for value in makes.tolist():
            for reader in readers[value]:
                if reader > place:
                    found[place] |= found[reader]
    return found
