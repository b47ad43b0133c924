"""Memoized version of Thunder's pass that deletes each value after its last use.

What the pass does to a segment depends only on the segment, and on which of its names later statements mention. Later
plans therefore reuse the new segment.
"""

from __future__ import annotations

from functools import partial
from itertools import chain

from workbench.compiler.fastpath import passes
from workbench.compiler.interop.thunder_api import (
    Proxy,
    TraceCtx,
    TraceProvenance,
    del_last_used,
    from_trace,
    prims,
    region_utils,
    tree_flatten,
    utils,
)
from workbench.compiler.trace.bsym_memo import PlanMemo, identity, made_names, read_names
from workbench.compiler.trace.segments import Segment, attach, attached, changed, returned_by


def delete_last_used(trace: TraceCtx, memo: PlanMemo | None, *, clear: bool = False) -> TraceCtx:
    """Return the trace with a deletion after the last use of each value, as Thunder's `del_last_used` does.

    `clear` is Thunder's argument `clear_mutable_collections`.
    """
    segments = attached(trace) if memo is not None else None
    if memo is None or segments is None:
        return del_last_used(trace, clear_mutable_collections=clear)
    handled = {leaf.name for leaf in tree_flatten(utils.sequencify(returned_by(trace)))[0] if isinstance(leaf, Proxy)}
    left = []
    for segment in reversed(segments):
        mentioned = segment.get_or_make("mentioned", partial(_mentioned, segment))
        known = frozenset(handled.intersection(mentioned))

        def delete(segment: Segment = segment, known: frozenset[str] = known) -> Segment:
            bsyms = passes.with_deletions(segment.bsyms, known, clear_mutable_collections=clear)
            return changed(segment, bsyms, memo.get_or_make)

        key = ("deletions of segment", identity(segment), known, clear)
        left.append(memo.get_or_make(key, segment, delete) if segment.is_plain else delete())
        handled.update(mentioned)
    done = from_trace(trace)
    attach(done, left[::-1])
    done.set_provenance(TraceProvenance("Delete Last Used (took 0 milliseconds)"))
    return done


def _mentioned(segment: Segment) -> tuple[str, ...]:
    """Return the names that Thunder's pass considers in a segment."""
    ignored = (*region_utils.comment_symbols, prims.PrimIDs.DEL)
    bsyms = [bsym for bsym in segment.bsyms if bsym.sym.id not in ignored]
    return tuple(chain.from_iterable([(*made_names(bsym), *read_names(bsym)) for bsym in bsyms]))
