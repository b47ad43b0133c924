"""Reorder the statements of an execution graph, and update the list of values that each statement frees."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import BACKWARD, Graph, Ragged

Rows = NDArray[np.intp]


def top_rows(graph: Graph) -> Rows:
    """Return the rows of all statements that are not members of fusions, in program order."""
    return np.flatnonzero(graph.statements.parent < 0)


def with_members(graph: Graph, order: Sequence[int] | Rows) -> Rows:
    """Return `order` with the rows of each fusion's members inserted after the fusion.

    `order` contains only rows of `top_rows`.
    """
    top = top_rows(graph)
    size = np.diff(np.append(top, len(graph.statements)))
    chosen = np.asarray(order, np.intp)
    length = size[np.searchsorted(top, chosen)]
    return _ranges(chosen, length)


def reorder_graph(graph: Graph, rows: Rows) -> Graph:
    """Return the graph with its rows in the order `rows`.

    Parameters
    ----------
    graph : Graph
        An execution graph.
    rows : (statements,) intp
        All rows of `graph` in their new order, as from `with_members`. Forward rows must precede backward rows.

    Returns
    -------
    Graph
        The graph with the same values and storages. If the old graph frees a value in the forward, the new graph frees
        it after the last forward statement that reads or outputs it. If there is no such statement, the new graph frees
        the value at the same position as the old graph. The same holds for the backward.
    """
    statements, values = graph.statements, graph.values
    new_row = np.empty(len(rows), np.int32)
    new_row[rows] = np.arange(len(rows), dtype=np.int32)
    names, which = statements.names
    moved = dataclasses.replace(
        statements,
        name=tuple(map(statements.name.__getitem__, rows.tolist())),
        executor=tuple(map(statements.executor.__getitem__, rows.tolist())),
        kind=statements.kind[rows],
        side=statements.side[rows],
        parent=_renumber(statements.parent[rows], new_row),
        origin=statements.origin[rows],
        flags=statements.flags[rows],
        transient_bytes=statements.transient_bytes[rows],
        flops=statements.flops[rows],
        inputs=statements.inputs.take_rows(rows),
        outputs=statements.outputs.take_rows(rows),
        frees=_frees(graph, new_row),
        group=statements.group[rows],
        computes=tuple(map(statements.computes.__getitem__, rows.tolist())),
    )
    vars(moved)["names"] = names, which[rows]
    return dataclasses.replace(
        graph,
        statements=moved,
        values=dataclasses.replace(values, producer=_renumber(values.producer, new_row)),
    )


def _renumber(column: NDArray[np.int32], new_row: NDArray[np.int32]) -> NDArray[np.int32]:
    renumbered: NDArray[np.int32] = np.where(column >= 0, new_row[column], column).astype(np.int32)
    return renumbered


def _ranges(starts: Rows, lengths: NDArray[np.integer]) -> Rows:
    """Return the numbers ``start, …, start + length - 1`` of each range, one range after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    rows: Rows = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return rows


def _entries(ragged: Ragged) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Return the row number and the item of each entry of a ragged array."""
    return np.repeat(np.arange(len(ragged)), np.diff(ragged.offsets)), ragged.items


def _frees(graph: Graph, new_row: NDArray[np.int32]) -> Ragged:
    """Return the values that each row frees in the new order."""
    statements = graph.statements
    backward = statements.side == BACKWARD
    count, touched = len(graph.values), []
    for ragged in (statements.inputs, statements.outputs):
        row, value = _entries(ragged)
        top = statements.parent[row] < 0
        touched.append((row[top], value[top]))
    row, value = (np.concatenate(parts) for parts in zip(*touched, strict=True))
    last = np.full((2, count), -1, np.int32)
    np.maximum.at(last, (backward[row].astype(np.intp), value), new_row[row])
    freed_by, freed = _entries(statements.frees)
    after = last[backward[freed_by].astype(np.intp), freed]
    # The forward (or the backward) may free a value although none of its statements reads or outputs the value. Then
    # free the value at the same position as before.
    by_place = np.sort(new_row[statements.parent < 0])
    place = np.searchsorted(top_rows(graph), freed_by)
    after = np.where(after >= 0, after, by_place[place])
    order = np.argsort(after, kind="stable")
    lengths = np.bincount(after, minlength=len(statements))
    return Ragged(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32), freed[order].astype(np.int32))
