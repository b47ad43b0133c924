"""Bars of the communication lanes beside the U: each collective from where it is issued to where it is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workbench.graph import FORWARD, Graph, Kind, StatementFlag
from workbench.levers.base import Site
from workbench.ui.layout import Layout

LEVER = "waits"
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
    side, column : int8, int32
    issue_node, wait_node : int32
        The nodes that its ends stand right before.
    y0, y1 : float32
        Heights of its ends, in pixels at zoom 1.
    """

    issue: tuple[int, ...]
    wait: tuple[int, ...]
    count: tuple[int, ...]
    side: NDArray[np.int8]
    column: NDArray[np.int32]
    issue_node: NDArray[np.int32]
    wait_node: NDArray[np.int32]
    y0: NDArray[np.float32]
    y1: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.issue)


def bars(graph: Graph, layout: Layout, sites: Sequence[Site]) -> Bars:
    """The bars of a graph's collectives, in the order in which they are issued."""
    number = {site.id: index for index, site in enumerate(sites) if site.lever == LEVER and site.values}
    next_node = _next_nodes(graph, layout)
    statements, values = graph.statements, graph.values
    found: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for id, index in number.items():
        value = graph.value_index.get(sites[index].values[0], -1)
        wait = int(values.producer[value]) if value >= 0 and f"{id}!wait" in number else -1
        if wait < 0 or statements.kind[wait] != Kind.WAIT:
            continue
        issue = int(values.producer[statements.inputs[wait][0]])
        ends = int(next_node[issue]), int(next_node[wait])
        if issue >= 0 and min(ends) >= 0:
            found.setdefault(ends, []).append((issue, index, number[f"{id}!wait"]))
    ordered = sorted(found.items(), key=lambda item: min(item[1]))
    first = [min(group) for _, group in ordered]
    issue_node = np.asarray([ends[0] for ends, _ in ordered], np.int32)
    wait_node = np.asarray([ends[1] for ends, _ in ordered], np.int32)
    side = layout.nodes.side[issue_node].astype(np.int8)
    y0, y1 = _edge(layout, issue_node, side), _edge(layout, wait_node, side)
    return Bars(
        issue=tuple(issue for _, issue, _ in first),
        wait=tuple(wait for _, _, wait in first),
        count=tuple(len(group) for _, group in ordered),
        side=side,
        column=_columns(side, y0, y1),
        issue_node=issue_node,
        wait_node=wait_node,
        y0=y0,
        y1=y1,
    )


def _next_nodes(graph: Graph, layout: Layout) -> NDArray[np.int32]:
    """For each row the node of the first statement of its side, from there on, that keeps its place."""
    statements = graph.statements
    found = np.full(len(statements), -1, np.int32)
    parts: dict[int, int] = {}
    for member in np.flatnonzero(statements.parent >= 0).tolist()[::-1]:
        if layout.node_of[member] >= 0:
            parts[int(statements.parent[member])] = int(layout.node_of[member])
    node: dict[int, int] = {}
    last: dict[int, int] = {}
    for row in np.flatnonzero(statements.parent < 0).tolist()[::-1]:
        side = int(statements.side[row])
        here = parts.get(row, int(layout.node_of[row]))
        keeps = statements.kind[row] not in _PASSES and not statements.flags[row] & StatementFlag.VIEW
        if here >= 0 and keeps and layout.nodes.side[here] == side:
            node[side] = here
            last.setdefault(side, here)
        # What comes after all of them stands with the last.
        found[row] = node.get(side, -1)
    for row in np.flatnonzero((statements.parent < 0) & (found < 0)).tolist():
        found[row] = last.get(int(statements.side[row]), -1)
    return found


def _edge(layout: Layout, node: NDArray[np.int32], side: NDArray[np.int8]) -> NDArray[np.float32]:
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
        upper, lower = np.minimum(y0, y1), np.maximum(y0, y1)
        for row in rows[np.lexsort((-lower[rows], upper[rows]))].tolist():
            free = next((c for c, until in enumerate(taken) if until < upper[row]), len(taken))
            if free == len(taken):
                taken.append(0.0)
            taken[free] = float(lower[row])
            column[row] = free % COLUMNS
    return column
