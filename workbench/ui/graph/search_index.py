"""Index for the graph's search: all statements, including statements in folded layers and hidden views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.core.graph import BACKWARD, Graph, Kind
from workbench.ui.graph.layout_arrays import GraphLayout
from workbench.ui.graph.node_names import short_name
from workbench.ui.graph.payload import Strings
from workbench.ui.graph.site_anchors import GraphIndex


def search_index(graph: Graph, layout: GraphLayout, node_ids: Sequence[str]) -> dict[str, Any]:
    """Return the texts that the page searches, statement by statement.

    Parameters
    ----------
    graph : Graph
    layout : GraphLayout
    node_ids : sequence of str
        Id of each node of the layout.

    Returns
    -------
    dict
        ``rows``: columns with an entry for each statement that can be shown, in the order of the screen. ``strings``:
        the texts to which the columns ``name`` and ``full`` refer. ``origins``: scope, source line and symbol of each
        statement of the program. The column ``origin`` refers to them; it is -1 for a row without an origin.
    """
    statements = graph.statements
    index = GraphIndex.of(graph)
    rows = np.flatnonzero(index.shown)
    # A fusion without an origin gets the block of its first member.
    first = np.where(statements.origin >= 0, statements.origin + 1, np.append(index.block[1:], 0))
    side, block = statements.side[rows], np.where(index.headed, first, index.block)[rows]
    # The forward runs downwards on the screen, and the backward upwards.
    order = np.lexsort((np.where(side == BACKWARD, -rows, rows), side, block))
    rows, block = rows[order], block[order]
    strings, values, ids = Strings(), [_values_of(graph, row) for row in rows.tolist()], ids_of(graph, layout, node_ids)
    names = [statements.name[row] for row in rows.tolist()]
    return {
        "origins": [
            [one.scope, " ".join(filter(None, (f"{one.file}:{one.line}" if one.file else "", one.text))), one.symbol]
            for one in graph.origins
        ],
        "rows": {
            "id": [ids[row] for row in rows.tolist()],
            "name": strings.column(list(map(short_name, names))).tolist(),
            "full": strings.column(names).tolist(),
            "values": [" ".join(made) for made in values],
            "origin": (block - 1).tolist(),
        },
        "strings": list(strings),
    }


def ids_of(graph: Graph, layout: GraphLayout, node_ids: Sequence[str]) -> list[str]:
    """Return, for each statement, the id of its own node or, if it has none, the id that its node would have.

    See `workbench.ui.graph.node_names.node_ids`.
    """
    ids, statements, value_names = [], graph.statements, graph.values.name
    made_values, parents = statements.outputs.lists(), [*statements.parent.tolist(), -1]
    for row, (kind, made) in enumerate(zip(statements.kind.tolist(), made_values, strict=True)):
        if kind == Kind.FUSION:
            ids.append(f"f:{statements.name[row]}")
        elif made and parents[row + 1] != row:
            ids.append(f"t:{value_names[made[0]]}")
        else:
            ids.append(f"s:{row}")
    for row, id in zip(layout.nodes.statement.tolist(), node_ids, strict=True):
        if row >= 0:
            ids[row] = id
    taken = set(node_ids)
    own = {int(row) for row in layout.nodes.statement if row >= 0}
    for row, id in enumerate(ids):
        if row not in own and id in taken:
            # Two statements can make values with the same name: a statement, and its recomputation in the backward.
            ids[row] = f"s:{row}"
        taken.add(ids[row])
    return ids


def _values_of(graph: Graph, row: int) -> list[str]:
    """Return the names of the values that a statement makes; none for a fusion, because its members make its values.

    The members of a fusion are in the rows right after it.
    """
    if row + 1 < len(graph.statements) and graph.statements.parent[row + 1] == row:
        return []
    return [graph.values.name[value] for value in graph.statements.outputs[row].tolist()]
