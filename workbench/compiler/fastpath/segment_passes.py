"""Dead code elimination and deletions, segment by segment.

Both passes visit the statements of a trace from the last to the first. What they do to a segment depends only on the
segment, and on which of its names later statements mention. Later plans therefore reuse the new segment.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

from workbench.compiler.fastpath import passes
from workbench.compiler.interop.thunder_api import (
    Proxy,
    TraceCtx,
    TraceProvenance,
    dce,
    del_last_used,
    from_trace,
    prims,
    region_utils,
    tree_flatten,
    utils,
)
from workbench.compiler.trace.bsym_memo import PlanMemo, identity, made_names, read_names
from workbench.compiler.trace.segments import Segment, attach, attached, changed


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
    needed = _names_in(trace.output)
    left = []
    for segment in reversed(segments):
        wanted = frozenset(needed.intersection(segment.made))

        def remove(segment: Segment = segment, wanted: frozenset[str] = wanted) -> Segment:
            return changed(segment, passes.without_dead(segment.bsyms, wanted), memo.get_or_make)

        kept: Segment = memo.get_or_make(("alive in segment", identity(segment), wanted), segment, remove)
        needed.update(kept.read)
        left.append(kept)
    return _result(trace, left[::-1], "Dead Code Elimination (took 0 milliseconds)")


def delete_last_used(trace: TraceCtx, memo: PlanMemo | None, *, clear: bool = False) -> TraceCtx:
    """Return the trace with a deletion after the last use of each value, as Thunder's `del_last_used` does.

    `clear` is Thunder's argument `clear_mutable_collections`.
    """
    segments = attached(trace) if memo is not None else None
    if memo is None or segments is None:
        return del_last_used(trace, clear_mutable_collections=clear)
    handled = _names_in(utils.sequencify(trace.output))
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
    return _result(trace, left[::-1], "Delete Last Used (took 0 milliseconds)")


def _mentioned(segment: Segment) -> tuple[str, ...]:
    """Return the names that Thunder's pass considers in a segment."""
    ignored = (*region_utils.comment_symbols, prims.PrimIDs.DEL)
    bsyms = [bsym for bsym in segment.bsyms if bsym.sym.id not in ignored]
    return tuple(chain.from_iterable([(*made_names(bsym), *read_names(bsym)) for bsym in bsyms]))


def _names_in(tree: Any) -> set[str]:
    return {leaf.name for leaf in tree_flatten(tree)[0] if isinstance(leaf, Proxy)}


def _result(trace: TraceCtx, segments: list[Segment], provenance: str) -> TraceCtx:
    done = from_trace(trace)
    attach(done, [segment for segment in segments if segment.bsyms])
    done.set_provenance(TraceProvenance(provenance))
    return done
