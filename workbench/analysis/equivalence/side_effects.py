"""Compare the writes of a program with those of Thunder's trace of it: the check of the stock plan itself."""

from __future__ import annotations

import dataclasses

import numpy as np

from workbench.analysis.equivalence.terms import Terms, may_write
from workbench.analysis.equivalence.value_numbering import ValueNumbering
from workbench.core.graph import BACKWARD, Graph, Kind, StatementFlag, ValueFlag


def lost_writes(program: Graph, made: Graph) -> tuple[str, ...]:
    """Arguments that a program writes into and that nothing made of it writes into any more.

    Values are not compared: gradient rules and executors decompose composite ops in their own ways.

    Parameters
    ----------
    program : Graph
        Of the trace as interpreted, before anything was done to it.
    made : Graph
        The joint graph, or an execution graph, of the same origins.
    """
    terms = Terms()
    told = _without_unknown_writes(program)
    if not may_write(told, terms):
        return ()
    before, after = (
        ValueNumbering(terms, graph, drops_casts=False).result().written
        for graph in (told, _without_unknown_writes(made))
    )
    return tuple(name for name in before if name not in after)


@dataclasses.dataclass(frozen=True)
class StaleRead:
    """A value that gradient rules use in its original form although it was overwritten.

    Attributes
    ----------
    reader, value, write : int
        Rows: of the statement that reads it, of the value, and of the write.
    """

    reader: int
    value: int
    write: int


def stale_reads(joint: Graph) -> tuple[StaleRead, ...]:
    """Find the gradients that are computed as if a write in place had not happened.

    A gradient rule refers to the value that its forward statement read or made: a backward that reads the same memory
    after a write gets another value. A forward read under a name from before a write passes its gradient on as if
    nothing had been written; so does the program's own memory after a write of a value with a gradient into a part of
    it. Eager PyTorch follows each write, keeps a copy, or refuses.

    Parameters
    ----------
    joint : Graph
        As claimed, before any fusion and split.
    """
    statements, values = joint.statements, joint.values
    version = np.zeros(len(joint.storages), np.int64)
    overwritten = np.full(len(joint.storages), -1, np.int64)
    differentiated = set(statements.origin[statements.side == BACKWARD].tolist()) - {-1}
    made: dict[int, int] = {}
    """Version of the values that gradients pass to; no entry for the others."""
    meant: dict[int, set[int]] = {}
    named: dict[int, int] = {}
    """Version of the memory when a value got its name."""
    carried: dict[int, int] = {}
    """Per storage of the program's own, the version made by a write of a value that gradients pass to."""
    given = {int(at) for at in values.storage[(values.flags & ValueFlag.ARGUMENT) != 0]}
    found: dict[int, StaleRead] = {}
    for row in np.flatnonzero(statements.parent < 0).tolist():
        inputs = [v for v in statements.inputs[row].tolist() if values.storage[v] >= 0]
        outputs = [v for v in statements.outputs[row].tolist() if values.storage[v] >= 0]
        if statements.kind[row] == Kind.FENCE:
            # Aliases of the same value: a read, and a gradient, belong to the earlier content.
            for value, other in zip(inputs, outputs, strict=True):
                if value in made:
                    made[other] = made[value]
                if value in named:
                    named[other] = named[value]
            continue
        forward = statements.side[row] != BACKWARD
        for value in inputs:
            storage = values.storage[value]
            now = int(version[storage])
            if forward:
                meant.setdefault(value, set()).add(now)
                stale = made.get(value, now) != now
                if int(statements.origin[row]) in differentiated and value not in made:
                    stale |= carried.get(int(storage), -1) > named.get(value, now)
            else:
                stale = now not in meant.get(value, {now})
            if stale:
                found.setdefault(value, StaleRead(row, value, int(overwritten[storage])))
        if statements.flags[row] & StatementFlag.INPLACE:
            for storage in {int(values.storage[v]) for v in outputs} & {int(values.storage[v]) for v in inputs}:
                version[storage] += 1
                overwritten[storage] = row
                if storage not in given and any(v in made for v in inputs if values.storage[v] != storage):
                    carried[storage] = int(version[storage])
        if forward:
            for value in outputs:
                now = int(version[values.storage[value]])
                meant.setdefault(value, set()).add(now)
                named[value] = now
                if statements.origin[row] in differentiated:
                    made[value] = now
    return tuple(found.values())


def _without_unknown_writes(graph: Graph) -> Graph:
    """Return the graph without writes of unknown destination: an undecomposed op may write into any input."""
    statements = dataclasses.replace(graph.statements, flags=graph.statements.flags & ~StatementFlag.INPLACE)
    return dataclasses.replace(graph, statements=statements)
