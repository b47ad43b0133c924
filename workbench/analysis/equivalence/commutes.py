"""Check that a reordered graph computes the same results: no statement has moved past a statement it depends on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import Graph, Kind, Ragged, StatementFlag

_SENT = (Kind.COLLECTIVE, Kind.WAIT)


def commutes(graph: Graph, rows: NDArray[np.intp]) -> bool:
    """Return whether a new order of statements computes the same results, whatever the statements compute.

    The check takes a twentieth of the time of a proof by value numbering, because it ignores what statements compute.
    The check requires the following:

    - No statement moves from the forward to the backward, or back. Members stay right after their fusion.
    - Each value is made before it is read.
    - Each access of memory comes after as many writes to this memory as in the old order. A tensor that a collective
      sends counts as read until the wait of the collective. A collective and its wait count as writing their outputs.
      An in-place statement counts as writing the memory of all its inputs and outputs.
    - Random draws keep their order. Collectives without a wait keep their order, too.

    Parameters
    ----------
    graph : Graph
        An execution graph.
    rows : (statements,) intp
        The graph's rows in their new order; see `workbench.analysis.graphs.reorder_graph`.

    Returns
    -------
    bool
        True only if the results are certainly equal. False means that this check cannot decide.
    """
    statements, values = graph.statements, graph.values
    count = len(statements)
    if len(rows) != count or not np.array_equal(np.sort(rows), np.arange(count)):
        return False
    new_row = np.empty(count, np.intp)
    new_row[rows] = np.arange(count)
    parent = statements.parent
    top = np.where(parent >= 0, parent, np.arange(count))
    # Members stay right behind their fusion, and no statement moves from the forward to the backward or back.
    if not np.array_equal(new_row - new_row[top], np.arange(count) - top):
        return False
    if not np.array_equal(statements.side[rows], statements.side):
        return False
    made, making = _top_level_entries(statements.outputs, parent)
    read, reading = _top_level_entries(statements.inputs, parent)
    first = np.full(len(values), count, np.intp)
    np.minimum.at(first, made, new_row[making])
    inside = values.producer[read] >= 0
    if (first[read[inside]] >= new_row[reading[inside]]).any():
        return False
    flags = np.zeros(count, np.int64)
    np.bitwise_or.at(flags, top, statements.flags)
    return _is_in_order(graph, new_row, np.flatnonzero((parent < 0) & (flags & StatementFlag.RANDOM.value != 0))) and (
        _is_memory_in_order(graph, new_row, flags)
    )


def _top_level_entries(ragged: Ragged, parent: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Return all entries of `ragged` in rows that are not members of fusions, and the row of each entry."""
    row = np.repeat(np.arange(len(ragged)), np.diff(ragged.offsets))
    outer = parent[row] < 0
    return ragged.items[outer], row[outer]


def _is_in_order(graph: Graph, new_row: NDArray[np.intp], selected: NDArray[np.intp]) -> bool:
    return bool((np.diff(new_row[selected]) > 0).all())


def _is_memory_in_order(graph: Graph, new_row: NDArray[np.intp], flags: NDArray[np.int64]) -> bool:
    """Return whether each access of memory comes after as many writes to this memory as in the old order."""
    statements, values = graph.statements, graph.values
    parent, kind = statements.parent, statements.kind
    storage = values.storage.astype(np.intp)
    # A value that the forward passes to the backward has two rows in the table of values: one for the forward, and one
    # for the backward. Give the storages of both rows the same number.
    same = [(given, taken) for given, taken in zip(graph.ends.given, graph.ends.received, strict=True)]
    same = [(given, taken) for given, taken in same if given >= 0 and taken >= 0]
    alias = np.arange(int(storage.max(initial=-1)) + 1)
    for given, taken in same:
        if storage[given] >= 0 and storage[taken] >= 0:
            alias[storage[taken]] = alias[storage[given]]
    where = np.where(storage >= 0, np.append(alias, -1)[storage], -1)
    parts = [_top_level_entries(ragged, parent) for ragged in (statements.inputs, statements.outputs)]
    outputs = np.repeat([False, True], [len(parts[0][0]), len(parts[1][0])])
    value, row = (np.concatenate(column) for column in zip(*parts, strict=True))
    # Add a read of the sent tensor at each wait.
    issues = np.full(len(statements), -1, np.intp)
    waits = np.flatnonzero((kind == Kind.WAIT) & (parent < 0))
    for wait in waits.tolist():
        sent = [int(values.producer[v]) for v in statements.inputs[wait].tolist()]
        if len(sent) != 1 or sent[0] < 0:
            return False
        issues[wait] = sent[0]
    waited = np.zeros(len(statements), bool)
    waited[issues[waits]] = True
    left = np.flatnonzero((kind == Kind.COLLECTIVE) & (parent < 0) & ~waited)
    if not _is_in_order(graph, new_row, left):
        return False
    until = [(v, wait) for wait in waits.tolist() for v in statements.inputs[issues[wait]].tolist()]
    value = np.concatenate([value, np.asarray([v for v, _ in until], value.dtype)])
    row = np.concatenate([row, np.asarray([wait for _, wait in until], row.dtype)])
    outputs = np.concatenate([outputs, np.zeros(len(until), bool)])
    writes = (flags[row] & StatementFlag.INPLACE.value != 0) | (outputs & np.isin(kind[row], _SENT))
    place = where[value]
    if (writes & (place < 0)).any():
        return False
    # Values without memory have the index -1, so they use the last entry.
    written = np.zeros(len(alias) + 1, bool)
    written[place[writes]] = True
    counts = written[place]
    place, row, writes = place[counts], row[counts], writes[counts]
    return all(
        np.array_equal(one, other)
        for one, other in zip(
            _writes_before_accesses(place, row, row, writes, len(statements)),
            _writes_before_accesses(place, row, new_row[row], writes, len(statements)),
            strict=True,
        )
    )


def _writes_before_accesses(
    memory: NDArray[np.intp], row: NDArray[np.intp], position: NDArray[np.intp], writes: NDArray[np.bool_], count: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Count the writes to a memory before each statement that accesses this memory.

    Return three arrays with one entry for each pair of a memory and a statement that accesses it: a key of the pair,
    whether the statement writes the memory, and the number of earlier writes.

    Parameters
    ----------
    memory, row, writes : (accesses,) intp, intp, bool
        For each access: the memory, the statement, and whether the statement writes.
    position : (accesses,) intp
        Position of the statement in an order.
    count : int
        Number of statements.
    """
    # Merge all accesses of one statement to one memory into one access: a write if at least one of them is a write.
    key, inverse = np.unique(memory * count + row, return_inverse=True)
    written = np.zeros(len(key), bool)
    np.logical_or.at(written, inverse, writes)
    when = np.zeros(len(key), np.intp)
    when[inverse] = position
    order = np.lexsort((when, key // count))
    before = np.cumsum(written[order]) - written[order]
    # Writes to memories with smaller numbers are counted, too. This adds the same number in both orders.
    found = np.empty(len(key), np.intp)
    found[order] = before
    return key, written.astype(np.intp), found
