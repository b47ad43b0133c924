"""Find in-place writes that Thunder loses, and gradients that Thunder computes from overwritten values."""

from __future__ import annotations

import dataclasses

import numpy as np

from workbench.analysis.equivalence.terms import Terms, may_write
from workbench.analysis.equivalence.value_numbering import ValueNumbering
from workbench.core.graph import BACKWARD, Graph, Kind, StatementFlag, ValueFlag


def lost_writes(program: Graph, derived: Graph) -> tuple[str, ...]:
    """Return the names of arguments that a program writes, and that a trace made from the program does not write.

    Values are not compared, because gradient rules and executors decompose composites in their own ways.

    Parameters
    ----------
    program : Graph
        Graph of the program's own trace, before any transform.
    derived : Graph
        The joint graph or an execution graph, with the same origins.
    """
    terms = Terms()
    told = _drop_unknown_writes(program)
    if not may_write(told, terms):
        return ()
    before, after = (
        ValueNumbering(terms, graph, drops_casts=False).result().written
        for graph in (told, _drop_unknown_writes(derived))
    )
    return tuple(name for name in before if name not in after)


@dataclasses.dataclass(frozen=True)
class StaleRead:
    """A read of a value after it was overwritten, because of which a gradient is wrong.

    Attributes
    ----------
    reader, value, write : int
        Rows of the statement that reads the value, of the value, and of the statement that overwrites it.
    """

    reader: int
    value: int
    write: int


def stale_reads(joint: Graph) -> tuple[StaleRead, ...]:
    """Find gradients that are computed as if an in-place write had not happened.

    There are three cases. A gradient rule needs a value of its forward statement, but the backward reads the memory
    after a write, and gets the new content. A forward statement reads overwritten memory by a name from before the
    write, so its gradient goes to the old value. A value with a gradient is written into a part of memory that the
    program has allocated, and a later read by an older name does not pass a gradient to the value. Eager PyTorch tracks
    each write, keeps a copy, or refuses.

    Parameters
    ----------
    joint : Graph
        The claimed joint graph, before fusion.
    """
    statements, values = joint.statements, joint.values
    version = np.zeros(len(joint.storages), np.int64)
    overwritten = np.full(len(joint.storages), -1, np.int64)
    differentiated = set(statements.origin[statements.side == BACKWARD].tolist()) - {-1}
    made: dict[int, int] = {}
    """For each value that receives a gradient, the version of its storage when the value was made."""
    meant: dict[int, set[int]] = {}
    """For each value, the versions of its storage when the forward made or read the value."""
    named: dict[int, int] = {}
    """For each value of the forward, the version of its storage when the value was made."""
    carried: dict[int, int] = {}
    """For each storage that is no argument, its version after a value with a gradient was last written into it."""
    given = {int(at) for at in values.storage[(values.flags & ValueFlag.ARGUMENT) != 0]}
    found: dict[int, StaleRead] = {}
    for row in np.flatnonzero(statements.parent < 0).tolist():
        inputs = [v for v in statements.inputs[row].tolist() if values.storage[v] >= 0]
        outputs = [v for v in statements.outputs[row].tolist() if values.storage[v] >= 0]
        if statements.kind[row] == Kind.FENCE:
            # A fence renames its inputs, so each output has the version of the input.
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


def _drop_unknown_writes(graph: Graph) -> Graph:
    """Return the graph without `INPLACE` flags.

    Only copies then count as writes. Otherwise an operator that is not decomposed would count as a write to any input.
    """
    statements = dataclasses.replace(graph.statements, flags=graph.statements.flags & ~StatementFlag.INPLACE)
    return dataclasses.replace(graph, statements=statements)
