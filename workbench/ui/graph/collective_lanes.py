"""Bars of collectives, in lanes beside the graph's columns. A bar goes from the start of a collective to its wait."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.cost.collective_overlap import layer_of_parameter
from workbench.core.graph import FORWARD, Graph, Kind, StatementFlag
from workbench.core.lever import Site
from workbench.ui.graph.layout_arrays import GraphLayout

LEVER = "waits"
LANE, FIRST, STEP = 44.0, 8.0, 8.0
"""Width of the lane beside a column, distance from the column to the first bar, and distance between bars, in pixels.
The page uses the same values.
"""
COLUMNS = 5
"""Maximum number of bars beside each other. If more collectives are under way at once, bars cover each other."""

_PASSES = (Kind.COLLECTIVE, Kind.WAIT, Kind.ARGUMENT, Kind.RETURN)


@dataclass(frozen=True)
class Bars:
    """One row for each bar.

    Attributes
    ----------
    issue, wait : tuple of int
        Indices of the sites of the bar's two ends.
    count : tuple of int
        Number of collectives that the bar stands for. Collectives whose ends are at the same two nodes share a bar.
        Collectives of folded layers are counted, too.
    peers : tuple of tuple of tuple of int
        For each bar, its first collective and the counterparts of this collective in other layers. A collective has
        four numbers: the sites of its two ends, and the rows of the statements right after the ends.
    group : int32
        Index of the collective's process group in the graph's groups; -1 if all collectives run in one group.
    side, column : int8, int32
    issue_node, wait_node : int32
        The nodes right after the bar's ends.
    y0, y1 : float32
        Heights of the bar's ends, in pixels at zoom 1.
    """

    issue: tuple[int, ...]
    wait: tuple[int, ...]
    count: tuple[int, ...]
    peers: tuple[tuple[tuple[int, int, int, int], ...], ...]
    group: NDArray[np.int32]
    side: NDArray[np.int8]
    column: NDArray[np.int32]
    issue_node: NDArray[np.int32]
    wait_node: NDArray[np.int32]
    y0: NDArray[np.float32]
    y1: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.issue)


def bars(graph: Graph, layout: GraphLayout, sites: Sequence[Site]) -> Bars:
    """Return the bars of a graph's collectives in issue order."""
    number = {site.id: index for index, site in enumerate(sites) if site.lever == LEVER and site.values}
    next_row, next_node = _next(graph, layout) if number else np.empty((2, 0), np.int32)
    statements, values, value_index = graph.statements, graph.values, graph.value_index
    groups = statements.group if len(graph.groups) > 1 else np.full(len(statements), -1, np.int32)
    pairs = [
        (index, ending, value_index.get(sites[index].values[0], -1))
        for id, index in number.items()
        if (ending := number.get(f"{id}!wait")) is not None
    ]
    begins, ends, value = np.asarray(pairs, np.int32).reshape(-1, 3).T
    wait = np.where(value >= 0, np.append(values.producer, -1)[value], -1)
    there = (wait >= 0) & (statements.kind[wait] == Kind.WAIT) if len(wait) else np.zeros(0, bool)
    begins, ends, wait = begins[there], ends[there], wait[there]
    issue = values.producer[statements.inputs.items[statements.inputs.offsets[wait]]]
    there = issue >= 0
    there[there] = np.minimum(next_node[issue[there]], next_node[wait[there]]) >= 0
    columns = (issue, begins, ends, *(next_row[one] for one in (issue, wait)))
    places = (next_node[issue], next_node[wait], groups[issue])
    order = np.lexsort((ends, begins, issue))
    order = order[there[order]]
    found: dict[tuple[int, ...], list[tuple[int, int, int, int, int]]] = {}
    for place, one in zip(_rows_of(places, order), _rows_of(columns, order), strict=True):
        found.setdefault(place, []).append(one)
    # Bars are in issue order, and so are the collectives of each bar.
    ordered = list(found.items())
    first = [same[0] for _, same in ordered]
    issue_node = np.asarray([key[0] for key, _ in ordered], np.int32)
    wait_node = np.asarray([key[1] for key, _ in ordered], np.int32)
    side = layout.nodes.side[issue_node].astype(np.int8)
    y0, y1 = _edge(layout, issue_node, side), _edge(layout, wait_node, side)
    return Bars(
        issue=tuple(one[1] for one in first),
        wait=tuple(one[2] for one in first),
        count=tuple(len(same) for _, same in ordered),
        peers=tuple(
            tuple([other[1:] for other in same if _are_twins(sites[one[1]].id, sites[other[1]].id)])
            for one, (_, same) in zip(first, ordered, strict=True)
        ),
        group=np.asarray([key[2] for key, _ in ordered], np.int32),
        side=side,
        column=_columns(side, y0, y1),
        issue_node=issue_node,
        wait_node=wait_node,
        y0=y0,
        y1=y1,
    )


def _rows_of(columns: Sequence[NDArray[np.integer[Any]]], rows: NDArray[np.intp]) -> Iterator[tuple[Any, ...]]:
    """Yield the entries of several columns in the given rows, as numbers."""
    return zip(*(column[rows].tolist() for column in columns), strict=True)


def sites_moved(graph: Graph, layout: GraphLayout, sites: Sequence[Site], id: str, node: int) -> dict[str, int]:
    """Return the sites that change when the end of a bar is moved to the place right before a node.

    Parameters
    ----------
    graph : Graph
    layout : GraphLayout
    sites : sequence of Site
    id : str
        Id of the end's site.
    node : int
        A node that stands for a statement.

    Returns
    -------
    dict of str to int
        For each site, the statement before which the end is put. In folded layers, each layer has its own statement.
    """
    there = int(layout.nodes.statement[node])
    shown = bars(graph, layout, sites)
    for end, firsts in enumerate((shown.issue, shown.wait)):
        for first, peers in zip(firsts, shown.peers, strict=True):
            if sites[first].id != id:
                continue
            rows = _rows(graph, layout, node)
            if len(rows) != len(peers):
                return {id: there}
            # Layers are in the same order as their statements.
            ordered = sorted(peers, key=lambda peer: peer[2 + end])
            return {sites[peer[end]].id: row for peer, row in zip(ordered, rows, strict=True)}
    return {id: there}


def _rows(graph: Graph, layout: GraphLayout, node: int) -> list[int]:
    """Return the statements that a node stands for, one per folded layer."""
    if not layout.nodes.heading[node]:
        return np.flatnonzero((layout.node_of == node) & ~layout.hidden).tolist()
    # A heading stands for one fusion in each layer: the fusion that contains the counterpart of the first member.
    parent = graph.statements.parent
    placed = (layout.node_of >= 0) & ~layout.hidden
    member = np.flatnonzero((parent == layout.nodes.statement[node]) & placed)[0]
    return np.unique(parent[(layout.node_of == layout.node_of[member]) & placed]).tolist()


def _are_twins(first: str, second: str) -> bool:
    """Return whether two site ids are equal, or have layer numbers and differ only in these."""
    return first == second or _strip_number(first) == _strip_number(second) != ""


@functools.lru_cache(maxsize=1 << 14)
def _strip_number(id: str) -> str:
    """Return a site's id without the layer number; empty if it has no layer number."""
    place = id.partition(":")[2]
    layer = layer_of_parameter(place)
    stem = re.sub(r"(?<![^_])\d+$", "", layer)
    return stem + "#" + place.removeprefix(layer) if stem != layer else ""


def _next(graph: Graph, layout: GraphLayout) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return, for each statement, the next computing statement on its side, and the node of this next statement.

    A statement that computes is its own next statement. Views, collectives, waits, arguments and returns do not
    compute. After a side's last computing statement, this last statement is returned. Statements that are not drawn are
    skipped.
    """
    statements = graph.statements
    rows, nodes = np.full((2, len(statements)), -1, np.int32)
    keeps = ~np.isin(statements.kind, list(_PASSES)) & (statements.flags & StatementFlag.VIEW.value == 0)
    # The first visible member of a fusion shows the fusion.
    here = layout.node_of.copy()
    members = np.flatnonzero((statements.parent >= 0) & ~layout.hidden & (layout.node_of >= 0))
    fusions, first = np.unique(statements.parent[members], return_index=True)
    here[fusions] = layout.node_of[members[first]]
    top = np.flatnonzero(statements.parent < 0)
    for side in np.unique(statements.side).tolist():
        able = top[(here[top] >= 0) & keeps[top] & (statements.side[top] == side)]
        able = able[layout.nodes.side[here[able]] == side]
        of_side = top[statements.side[top] == side]
        if len(able):
            # Statements after the last computing statement get this last one.
            coming = able[np.minimum(np.searchsorted(able, of_side), len(able) - 1)]
            rows[of_side], nodes[of_side] = coming, here[coming]
    return rows, nodes


def _edge(layout: GraphLayout, node: NDArray[np.int32], side: NDArray[np.int8]) -> NDArray[np.float32]:
    """Return the edge at which a statement begins: the upper edge in the forward, the lower edge in the backward."""
    nodes = layout.nodes
    edge = np.where(side == FORWARD, nodes.y[node], nodes.y[node] + nodes.height[node])
    return edge.astype(np.float32)


def _columns(side: NDArray[np.int8], y0: NDArray[np.float32], y1: NDArray[np.float32]) -> NDArray[np.int32]:
    """Assign overlapping bars of a side to different columns, as long as there are free columns."""
    column = np.zeros(len(side), np.int32)
    for one in np.unique(side).tolist():
        taken: list[float] = []
        rows = np.flatnonzero(side == one)
        upper, lower = np.minimum(y0, y1)[rows], np.maximum(y0, y1)[rows]
        order = np.lexsort((-lower, upper))
        for row, start, end in zip(rows[order].tolist(), upper[order].tolist(), lower[order].tolist(), strict=True):
            free = next((c for c, until in enumerate(taken) if until < start), len(taken))
            if free == len(taken):
                taken.append(0.0)
            taken[free] = end
            column[row] = free % COLUMNS
    return column
