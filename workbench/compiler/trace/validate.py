"""Check that the statements of a plan read only values that exist. Build the error message for an unequal plan."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from workbench.analysis.equivalence.prove import Proof
from workbench.compiler.interop.thunder_api import TraceCtx, prims
from workbench.compiler.trace.bsym_memo import made_names, read_names, shared_of
from workbench.compiler.trace.segments import Segment, attached
from workbench.core.graph import Graph
from workbench.errors import PlanError

_UNPACKING = {prims.PrimIDs.UNPACK_TRIVIAL, prims.PrimIDs.UNPACK_SEQUENCE}


def validate(forward: TraceCtx, backward: TraceCtx | None) -> None:
    """Check that statements and members of fusions read only values that are defined and not deleted.

    Raises
    ------
    PlanError
        If the check fails. The message names the statement and the value.
    """
    _validate(forward, "forward")
    if backward is not None:
        _validate(backward, "backward")


def validate_order(graph: Graph) -> None:
    """Check that each statement of an execution graph is later than the statements that make its inputs.

    Raises
    ------
    PlanError
        If the check fails. The message names the statement and the value.
    """
    statements, values = graph.statements, graph.values
    reader = np.repeat(np.arange(len(statements)), np.diff(statements.inputs.offsets))
    read = statements.inputs.items
    early = np.flatnonzero((statements.parent[reader] < 0) & (values.producer[read] >= reader))
    if len(early):
        row, value = int(reader[early[0]]), int(read[early[0]])
        side = "backward" if statements.side[row] else "forward"
        raise PlanError(f"{side}: {statements.name[row]} reads {values.name[value]}, which nothing before it defines")


class _Names(NamedTuple):
    """The names of a segment.

    `needed` are read before the segment defines them, `read` are all that are read.
    """

    needed: frozenset[str]
    read: frozenset[str]
    defined: frozenset[str]
    deleted: frozenset[str]


def _names_of(segment: Segment, side: str) -> _Names | None:
    """Return the names of a segment; None if it reads a value that it has deleted, or a fusion in it is invalid."""
    needed, read, defined, deleted = (set[str]() for _ in range(4))
    for bsym in segment.bsyms:
        if bsym.sym.id in _UNPACKING:
            defined.update(made_names(bsym), read_names(bsym))
            continue
        given = read_names(bsym)
        if not deleted.isdisjoint(given):
            return None
        needed.update(name for name in given if name not in defined)
        read.update(given)
        if bsym.sym.id is prims.PrimIDs.DEL:
            deleted.update(given)
            continue
        if bsym.sym.is_fusion:
            try:
                _validate_once(bsym, side)
            except PlanError:
                return None
        defined.update(made_names(bsym))
    return _Names(frozenset(needed), frozenset(read), frozenset(defined), frozenset(deleted))


def _validate(trace: TraceCtx, side: str) -> None:
    defined: set[str] = set()
    deleted: set[str] = set()
    segments = attached(trace)
    for segment in segments or ():
        found: _Names | None = segment.get_or_make("names to validate", partial(_names_of, segment, side))
        if found is None or not (defined.issuperset(found.needed) and deleted.isdisjoint(found.read)):
            break
        defined.update(found.defined)
        deleted.update(found.deleted)
    else:
        if segments is not None:
            return
    # Name the first statement that is not valid.
    _validate_statements(trace, side)


def _validate_statements(trace: TraceCtx, side: str) -> None:
    defined: set[str] = set()
    deleted: set[str] = set()
    for bsym in trace.bound_symbols:
        if bsym.sym.id in _UNPACKING:
            defined.update(out.name for out in bsym.flat_proxy_outs)
            defined.update(arg.name for arg in bsym.flat_proxy_args)
            continue
        read = read_names(bsym)
        if not (deleted.isdisjoint(read) and defined.issuperset(read)):
            name = next(name for name in read if name in deleted or name not in defined)
            why = "after it was deleted" if name in deleted else "which nothing before it defines"
            raise PlanError(f"{side}: {bsym.sym.name} reads {name}{',' * (name not in deleted)} {why}")
        if bsym.sym.id is prims.PrimIDs.DEL:
            deleted.update(read)
            continue
        if bsym.sym.is_fusion:
            _validate_once(bsym, side)
        defined.update(made_names(bsym))


_VALID = "valid members"
"""Key in a fusion's `shared_of`. The value is the list of subsymbols that `_validate_members` has checked."""


def _validate_once(bsym: object, side: str) -> None:
    if shared_of(bsym).get(_VALID) is not bsym.subsymbols:  # type: ignore[attr-defined]
        _validate_members(bsym, side)
        shared_of(bsym)[_VALID] = bsym.subsymbols  # type: ignore[attr-defined]


def _validate_members(bsym: object, side: str) -> None:
    symbol = bsym.sym  # type: ignore[attr-defined]
    known = set(read_names(bsym))
    for member in bsym.subsymbols:  # type: ignore[attr-defined]
        if not known.issuperset(read_names(member)):
            missing = [name for name in read_names(member) if name not in known]
            raise PlanError(
                f"{side}: in {symbol.name}, {member.sym.name} reads {missing[0]}, which is not among its inputs"
            )
        known.update(made_names(member))
    for name in made_names(bsym):
        if name not in known:
            raise PlanError(f"{side}: {symbol.name} returns {name}, which it does not make")


def inequality_message(proof: Proof, program: str) -> str:
    """Return the error message for a plan that is not proven equal to the stock plan."""
    return (
        f"{proof.message}. The plan under these choices would not compute the same as {program}; nothing was changed. "
        "Make another choice there, and report this: no offered choice should have this effect"
    )
