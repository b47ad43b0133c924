"""Bars of the communication lanes beside the U: each collective from where it is issued to where it is waited for."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.cost.collective_overlap import layer_of
from workbench.core.graph import FORWARD, Graph, Kind, StatementFlag
from workbench.core.lever import Site
from workbench.ui.graph.layout_arrays import GraphLayout

LEVER = "waits"
LANE, FIRST, STEP = 44.0, 8.0, 8.0
"""Width of the lane beside a column, from that to its first bar, and from bar to bar, in pixels: as on the page."""
COLUMNS = 5
"""Bars beside each other; where more are on their way, they cover each other."""

_PASSES = (Kind.COLLECTIVE, Kind.WAIT, Kind.ARGUMENT, Kind.RETURN)


@dataclass(frozen=True)
class Bars:
    """One row per bar.

    Attributes
    ----------
    issue, wait : tuple of int
        Indices of the sites that its two ends are.
    count : tuple of int
        Collectives that it stands for: those of folded layers lie on each other.
    peers : tuple of tuple of tuple of int
        The first of them and its twins in folded layers: the sites of their two ends, and the rows of the statements
        that these stand right before.
    group : int32
        Its process group, an index into the graph's; -1 where all run in one.
    side, column : int8, int32
    issue_node, wait_node : int32
        The nodes that its ends stand right before.
    y0, y1 : float32
        Heights of its ends, in pixels at zoom 1.
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
    """The bars of a graph's collectives, in the order in which they are issued."""
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
    # In the order in which they are issued, as those of each bar are.
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
            tuple([other[1:] for other in same if _twins(sites[one[1]].id, sites[other[1]].id)])
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
    """Rows of some columns, as numbers."""
    return zip(*(column[rows].tolist() for column in columns), strict=True)


def moved(graph: Graph, layout: GraphLayout, sites: Sequence[Site], id: str, node: int) -> dict[str, int]:
    """What putting the end of a bar right before a node moves.

    Parameters
    ----------
    graph : Graph
    layout : GraphLayout
    sites : sequence of Site
    id : str
        Of the end's site.
    node : int
        One that stands for a statement.

    Returns
    -------
    dict of str to int
        Per site the statement that it is put before: where the bar stands for folded layers, in each of them its own.
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
            # Layers follow each other as their statements do.
            ordered = sorted(peers, key=lambda peer: peer[2 + end])
            return {sites[peer[end]].id: row for peer, row in zip(ordered, rows, strict=True)}
    return {id: there}


def _rows(graph: Graph, layout: GraphLayout, node: int) -> list[int]:
    """The statements that a node stands for, one in each folded layer."""
    if not layout.nodes.heading[node]:
        return np.flatnonzero((layout.node_of == node) & ~layout.hidden).tolist()
    # A heading has no twins of its own: its fusion's are those of its members.
    parent = graph.statements.parent
    placed = (layout.node_of >= 0) & ~layout.hidden
    member = np.flatnonzero((parent == layout.nodes.statement[node]) & placed)[0]
    return np.unique(parent[(layout.node_of == layout.node_of[member]) & placed]).tolist()


def _twins(one: str, other: str) -> bool:
    """Whether two sites are of the same parameter, in layers that differ in their number."""
    return one == other or _without_number(one) == _without_number(other) != ""


@functools.lru_cache(maxsize=1 << 14)
def _without_number(id: str) -> str:
    """A site's id without the number of the layer; empty where there is none."""
    place = id.partition(":")[2]
    layer = layer_of(place)
    stem = re.sub(r"(?<![^_])\d+$", "", layer)
    return stem + "#" + place.removeprefix(layer) if stem != layer else ""


def _next(graph: Graph, layout: GraphLayout) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each row the first statement of its side, from there on, that keeps its place, and the node that shows it."""
    statements = graph.statements
    rows, nodes = np.full((2, len(statements)), -1, np.int32)
    keeps = ~np.isin(statements.kind, list(_PASSES)) & (statements.flags & StatementFlag.VIEW.value == 0)
    # A fusion is shown by the first of its members that is.
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
            # What comes after all of them stands with the last.
            coming = able[np.minimum(np.searchsorted(able, of_side), len(able) - 1)]
            rows[of_side], nodes[of_side] = coming, here[coming]
    return rows, nodes


def _edge(layout: GraphLayout, node: NDArray[np.int32], side: NDArray[np.int8]) -> NDArray[np.float32]:
    """The edge at which a statement begins: forward the upper one, backward the lower one."""
    nodes = layout.nodes
    edge = np.where(side == FORWARD, nodes.y[node], nodes.y[node] + nodes.height[node])
    return edge.astype(np.float32)


def _columns(side: NDArray[np.int8], y0: NDArray[np.float32], y1: NDArray[np.float32]) -> NDArray[np.int32]:
    """Bars of a side that overlap get columns of their own, as far as there are."""
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
