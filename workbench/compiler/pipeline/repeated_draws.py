"""Find random draws that unmodified Thunder repeats or merges; a plan executes each draw exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from workbench.compiler.fusion.fusion_crossings import is_tagged_by_thunder
from workbench.compiler.fusion.rematerialize import RematOptions, rematerialize
from workbench.compiler.interop.thunder_api import BoundSymbol, TraceCtx, dead_code
from workbench.compiler.lowering.call_normalization import draws_inside
from workbench.compiler.lowering.checkpoint_regions import CHECKPOINTED
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.trace.corrections import CHECKPOINTED_DRAWS, CUT_DRAWS, MERGED_DRAWS
from workbench.compiler.trace.stable_ids import origin_of


def draw_differences(context: LeverContext, outcome: LeverOutcome) -> dict[str, list[BoundSymbol]]:
    """Map the name of each correction to the statements whose draws the correction changes.

    Parameters
    ----------
    context : LeverContext
    outcome : LeverOutcome
        Results of the stock plan.
    """
    if not context.random:
        return {}
    found = {
        CHECKPOINTED_DRAWS: _checkpointed_draws(context),
        CUT_DRAWS: _rematerialized_draws(outcome.partitioned),
        MERGED_DRAWS: _merged_draws(context, outcome.partitioned),
    }
    drawn = ((name, [bsym for bsym in bsyms if origin_of(bsym) >= 0]) for name, bsyms in found.items())
    return {name: bsyms for name, bsyms in drawn if bsyms}


def _checkpointed_draws(context: LeverContext) -> Iterator[BoundSymbol]:
    """Yield statements of the program that draw in a region of `torch.utils.checkpoint`."""
    for bsym in context.program.bound_symbols if context.program is not None else ():
        if CHECKPOINTED in bsym.tags:
            yield bsym


def _rematerialized_draws(partitioned: TraceCtx | None) -> Iterator[BoundSymbol]:
    """Yield draws that Thunder's rematerialization would copy into more than one fusion."""
    if partitioned is None:
        return
    made = {id(bsym): bsym for bsym in _members(partitioned) if draws_inside(bsym) and not is_tagged_by_thunder(bsym)}
    if made:
        times = Counter(id(bsym) for bsym in _members(rematerialize(partitioned, RematOptions(repeats_draws=True))))
        yield from (bsym for at, bsym in made.items() if times[at] > 1)


def _merged_draws(context: LeverContext, partitioned: TraceCtx | None) -> Iterator[BoundSymbol]:
    """Yield draws that Thunder's common subexpression elimination for nvFuser would merge with an equal draw."""
    if partitioned is None or context.executor != "nvfuser":
        return
    fusions = [bsym.subsymbols for bsym in partitioned.bound_symbols if bsym.sym.is_fusion]
    for group in ([bsym for bsym in partitioned.bound_symbols if not bsym.sym.is_fusion], *fusions):
        yield from _equal_draws(group)


def _equal_draws(bsyms: Sequence[BoundSymbol]) -> Iterator[BoundSymbol]:
    first: dict[object, BoundSymbol] = {}
    for bsym in bsyms:
        if bsym.sym.id in dead_code.NON_FUNCTIONAL_OPS or not draws_inside(bsym):
            continue
        earlier = first.setdefault(bsym.rhs, bsym)
        if earlier is not bsym:
            yield earlier
            yield bsym


def _members(trace: TraceCtx) -> Iterator[BoundSymbol]:
    for bsym in trace.bound_symbols:
        if bsym.sym.is_fusion:
            yield from bsym.subsymbols
