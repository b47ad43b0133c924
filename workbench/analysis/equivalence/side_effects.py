"""Find in-place writes that Thunder's transforms lose, and gradients that are wrong because of an in-place write."""

from __future__ import annotations

import dataclasses

import numpy as np

from workbench.analysis.equivalence.terms import Terms, may_write
from workbench.analysis.equivalence.value_numbering import ValueNumbering
from workbench.core.graph import BACKWARD, Graph, Kind, StatementFlag, ValueFlag


def lost_writes(program: Graph, derived: Graph) -> tuple[str, ...]:
    """Return the names of the arguments that a program writes in place, but a trace made from the program does not.

    Only the set of written arguments is compared. Their content is not compared, because gradient rules and executors
    decompose composites differently.

    Parameters
    ----------
    program : Graph
        Graph of the program's trace before the first transform.
    derived : Graph
        The joint graph, or an execution graph, of the same program.
    """
    terms = Terms()
    told = _drop_unknown_writes(program)
    if not may_write(told, terms):
        return ()
    after = written_arguments(derived, terms)
    return tuple(name for name in written_arguments(program, terms) if name not in after)


def written_arguments(graph: Graph, terms: Terms | None = None) -> tuple[str, ...]:
    """Return the names of the arguments that copies of a graph write in place."""
    return tuple(ValueNumbering(terms or Terms(), _drop_unknown_writes(graph), drops_casts=False).result().written)


@dataclasses.dataclass(frozen=True)
class StaleRead:
    """A read of overwritten memory that makes a gradient wrong.

    Attributes
    ----------
    reader : int
        Row of the statement that reads the value.
    value : int
        Row of the value.
    write : int
        Row of the statement that has overwritten the value's memory.
    """

    reader: int
    value: int
    write: int


def stale_reads(joint: Graph) -> tuple[StaleRead, ...]:
    """Find gradients that are computed as if an in-place write had not happened.

    There are three cases:

    1. A gradient rule needs a value as the forward has read it. But the memory is overwritten before the backward reads
       it, so the rule gets the new content.
    2. A forward statement reads overwritten memory by the name of a value from before the write. The gradient goes to
       this old value, and not to the value that was written.
    3. A value with a gradient is written into memory that the program has allocated. A later statement reads this
       memory by the name of an older value, so the written value gets no gradient.

    Eager PyTorch handles these cases: it tracks each write, keeps a copy, or raises an error.

    Parameters
    ----------
    joint : Graph
        The joint graph after executors were chosen for its statements, before fusion.
    """
    statements, values = joint.statements, joint.values
    version = np.zeros(len(joint.storages), np.int64)
    overwritten = np.full(len(joint.storages), -1, np.int64)
    differentiated = set(statements.origin[statements.side == BACKWARD].tolist()) - {-1}
    made: dict[int, int] = {}
    """Maps each value that gets a gradient to the version of its storage when the value was made."""
    meant: dict[int, set[int]] = {}
    """Maps each value to the versions that its storage had when the forward made or read the value."""
    named: dict[int, int] = {}
    """Maps each value of the forward to the version of its storage when the value was made."""
    carried: dict[int, int] = {}
    """Maps a storage to its version after the last write of a value that gets a gradient. It contains no arguments."""
    given = {int(at) for at in values.storage[(values.flags & ValueFlag.ARGUMENT) != 0]}
    found: dict[int, StaleRead] = {}
    for row in np.flatnonzero(statements.parent < 0).tolist():
        inputs = [v for v in statements.inputs[row].tolist() if values.storage[v] >= 0]
        outputs = [v for v in statements.outputs[row].tolist() if values.storage[v] >= 0]
        if statements.kind[row] == Kind.FENCE:
            # Each output of a fence is an input under a new name, so it has the version of this input.
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
    """Return the graph without `INPLACE` flags, so that only copies count as writes.

    With `INPLACE` flags, an operator that is not decomposed would count as a write to all of its inputs.
    """
    statements = dataclasses.replace(graph.statements, flags=graph.statements.flags & ~StatementFlag.INPLACE)
    return dataclasses.replace(graph, statements=statements)
