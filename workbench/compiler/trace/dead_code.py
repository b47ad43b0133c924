"""Find and remove statements and subsymbols without effect, as Thunder's dead code elimination does.

What dead code elimination does to a segment depends only on the segment, and on which of its values later statements
need. Later plans therefore reuse the new segment.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import chain
from typing import Any

from workbench.compiler.interop.thunder_api import (
    Proxy,
    TraceCtx,
    TraceProvenance,
    dce,
    from_trace,
    prims,
    tree_flatten,
)
from workbench.compiler.trace.bsym_memo import CLEAN, PlanMemo, identity, made_names, read_names
from workbench.compiler.trace.segments import Segment, attach, attached, changed, returned_by


def is_kept(bsym: Any) -> bool:
    """Return whether a statement or one of its subsymbols has the tag `DONT_DCE`, which forbids removal."""
    if prims.OpTags.DONT_DCE in (bsym.sym.tags or ()) or (bsym.tags and prims.OpTags.DONT_DCE in bsym.tags):
        return True
    return any(map(is_kept, bsym.subsymbols))


def remove_noops(bsym: Any) -> None:
    """Remove a statement's subsymbols without effect, at all levels. The statement is changed in place."""
    inside = bsym.subsymbols
    if bsym.__dict__.get(CLEAN) is inside or (type(inside) is list and not inside):
        return
    left = []
    for sub in inside:
        within = sub.subsymbols
        # Skip the call of `does_nothing` if its result is known. If a statement has outputs, and is a primitive or has
        # subsymbols, the result is False.
        if not (sub.flat_proxy_outs and (within or sub.sym.is_prim)) and does_nothing(sub, bsym):
            continue
        if within or type(within) is not list:
            remove_noops(sub)
        left.append(sub)
    if len(left) != len(inside) or not isinstance(inside, list):
        bsym.subsymbols = inside = left
    bsym.__dict__[CLEAN] = inside


def does_nothing(sub: Any, bsym: Any) -> bool:
    """Return whether dead code elimination removes the subsymbol `sub` of the statement `bsym`."""
    if not sub.subsymbols and not sub.sym.is_prim:
        return True
    return not sub.flat_proxy_outs and not is_kept(bsym)


def is_clean(bsym: Any) -> bool:
    """Return whether dead code elimination would remove no subsymbol of a statement, at any level."""
    inside = bsym.subsymbols
    if bsym.__dict__.get(CLEAN) is inside:
        return True
    return isinstance(inside, list) and not any(does_nothing(sub, bsym) or not is_clean(sub) for sub in inside)


def clean(bsyms: Sequence[Any]) -> list[Any]:
    """Apply `remove_noops` to each statement, and return the statements as a list."""
    for bsym in bsyms:
        remove_noops(bsym)
    return list(bsyms)


def without_dead(bsyms: Sequence[Any], needed_later: Set[str]) -> list[Any]:
    """Return the statements that have an effect, without their dead subsymbols. Each name has one maker."""
    needed, left = set(needed_later), []
    for bsym in reversed(bsyms):
        if needed.isdisjoint(made_names(bsym)) and not is_kept(bsym):
            continue
        if bsym.__dict__.get(CLEAN) is not bsym.subsymbols:
            remove_noops(bsym)
        needed.update(read_names(bsym))
        if bsym.flat_outs:
            left.append(bsym)
    left.reverse()
    return left


def remove_dead(trace: TraceCtx, memo: PlanMemo | None) -> TraceCtx:
    """Return the trace without dead code, as Thunder's `dce` does.

    Thunder's pass runs if the trace has no attached segments, if a statement outputs a number, or if several statements
    make one name.
    """
    segments = attached(trace) if memo is not None else None
    if memo is None or segments is None or any(segment.makes_numbers for segment in segments):
        return dce(trace)
    made = list(chain.from_iterable([segment.made for segment in segments]))
    if len(set(made)) != len(made):
        return dce(trace)
    needed = {leaf.name for leaf in tree_flatten(returned_by(trace))[0] if isinstance(leaf, Proxy)}
    left = []
    for segment in reversed(segments):
        wanted = frozenset(needed.intersection(segment.made))

        def remove(segment: Segment = segment, wanted: frozenset[str] = wanted) -> Segment:
            return changed(segment, without_dead(segment.bsyms, wanted), memo.get_or_make)

        kept: Segment = memo.get_or_make(("alive in segment", identity(segment), wanted), segment, remove)
        needed.update(kept.read)
        left.append(kept)
    done = from_trace(trace)
    attach(done, [segment for segment in reversed(left) if segment.bsyms])
    done.set_provenance(TraceProvenance("Dead Code Elimination (took 0 milliseconds)"))
    return done
