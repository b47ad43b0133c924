"""Random draws that unmodified Thunder repeats or merges, and plans here make once each: one sentence for each line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from workbench.compiler.fusion.fusion_boundaries import tagged_by_thunder
from workbench.compiler.fusion.rematerialize import RematOptions, rematerialize
from workbench.compiler.interop.thunder_api import BoundSymbol, TraceCtx, dead_code
from workbench.compiler.lowering.call_normalization import draws_inside
from workbench.compiler.lowering.checkpoint_regions import CHECKPOINTED
from workbench.compiler.pipeline.lever_context import Made, Stage
from workbench.compiler.trace.stable_ids import origin_of

_CHECKPOINTED = (
    "draws random numbers inside of a region that is computed again in the backward. Unmodified Thunder ignores "
    "preserve_rng_state of torch.utils.checkpoint and draws other numbers there, so that its gradients are wrong. Here "
    "the draw is saved, and gradients are those of the numbers that were drawn"
)
_CUT = (
    "draws random numbers in a fusion, and unmodified Thunder draws other numbers in a fusion that reads them, so that "
    "its gradients are wrong. Here the draw is saved, and gradients are those of the numbers that were drawn"
)
_MERGED = (
    "draws random numbers more than once, with the same arguments, and unmodified Thunder takes all of these draws for "
    "one. Here each is drawn by itself"
)


def is_difference(warning: str) -> bool:
    """Whether a warning of a plan is one of the `differences`."""
    return warning.endswith((_CHECKPOINTED, _CUT, _MERGED))


def differences(stage: Stage, made: Made) -> tuple[str, ...]:
    """Sentences on how a plan draws otherwise than unmodified Thunder's.

    Parameters
    ----------
    stage : Stage
    made : Made
        What the stock plan came to.
    """
    if not stage.random:
        return ()
    cases: list[tuple[Callable[[], Iterator[BoundSymbol]], str]] = [
        (lambda: _checkpointed(stage), _CHECKPOINTED),
        (lambda: _cut(made.partitioned), _CUT),
        (lambda: _merged(stage, made.partitioned), _MERGED),
    ]
    found = ((origin_of(bsym), words) for bsyms, words in cases for bsym in bsyms())
    return tuple(f"{stage.where(index)} {words}" for index, words in dict.fromkeys(found) if index >= 0)


def _checkpointed(stage: Stage) -> Iterator[BoundSymbol]:
    """Statements of the program that draw among others that are computed again."""
    for bsym in stage.program.bound_symbols if stage.program is not None else ():
        if CHECKPOINTED in bsym.tags:
            yield bsym


def _cut(partitioned: TraceCtx | None) -> Iterator[BoundSymbol]:
    """Draws that Thunder's rematerialization puts into more than one fusion."""
    if partitioned is None:
        return
    made = {id(bsym): bsym for bsym in _members(partitioned) if draws_inside(bsym) and not tagged_by_thunder(bsym)}
    if made:
        times = Counter(id(bsym) for bsym in _members(rematerialize(partitioned, RematOptions(repeats_draws=True))))
        yield from (bsym for at, bsym in made.items() if times[at] > 1)


def _merged(stage: Stage, partitioned: TraceCtx | None) -> Iterator[BoundSymbol]:
    """Draws that Thunder's elimination of common subexpressions, for nvFuser, takes for one with an earlier one."""
    if partitioned is None or stage.executor != "nvfuser":
        return
    fusions = [bsym.subsymbols for bsym in partitioned.bound_symbols if bsym.sym.is_fusion]
    for group in ([bsym for bsym in partitioned.bound_symbols if not bsym.sym.is_fusion], *fusions):
        yield from _equal(group)


def _equal(bsyms: Sequence[BoundSymbol]) -> Iterator[BoundSymbol]:
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
