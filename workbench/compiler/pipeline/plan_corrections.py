"""Find the corrections of unmodified Thunder that affect a program, with their lines; see `trace.corrections`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workbench.compiler.interop.thunder_api import BoundSymbol, BoundSymbolTag, TensorProxy, TraceCtx, dtypes, prims
from workbench.compiler.lowering import thunder_fixes
from workbench.compiler.pipeline import repeated_draws
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.trace import corrections
from workbench.compiler.trace.corrections import KINDS, Corrected, Correction
from workbench.compiler.trace.stable_ids import line_of, origin_of, origin_text


def find_corrections(stage: LeverContext, outcome: LeverOutcome, initial: TraceCtx) -> tuple[Correction, ...]:
    """Return the corrections that affect a program.

    Parameters
    ----------
    stage : LeverContext
    outcome : LeverOutcome
        Results of the stock plan.
    initial : TraceCtx
        The first trace of the program, before any transform.
    """
    few = stage.few or stage
    found: dict[str, list[str]] = {}
    for name, bsym, line in (*_program_corrections(few, initial), *_claimed_corrections(few)):
        found.setdefault(name, []).append(line or _line(few, bsym))
    for name, bsyms in repeated_draws.draw_differences(stage, outcome).items():
        found[name] = [_line(stage, bsym) for bsym in bsyms]
    return tuple(corrections.correction(name, found[name]) for name in KINDS if name in found)


def _line(stage: LeverContext, bsym: BoundSymbol) -> str:
    index = origin_of(bsym)
    return origin_text(stage.origins[index]) if index >= 0 else line_of(bsym)


def _all_bsyms(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    for bsym in bsyms:
        yield bsym
        yield from _all_bsyms(bsym.subsymbols)


def _program_corrections(stage: LeverContext, initial: TraceCtx) -> Iterator[tuple[str, BoundSymbol, str]]:
    """Yield corrections that show in the program's own statements, with the statement and the line.

    A statement has a `Corrected` tag, or is of a kind whose gradient is corrected.
    """
    differentiated = {origin_of(bsym) for bsym in stage.claimed.bound_symbols if BoundSymbolTag.BACKWARD in bsym.tags}
    for bsym in (stage.program or initial).bound_symbols:
        for part in _all_bsyms((bsym,)):
            for tag in part.tags:
                if isinstance(tag, Corrected):
                    yield tag.name, bsym, tag.line
            if part.sym.name == "einsum" and _has_random_order(part.args[0]):
                yield corrections.EINSUM, bsym, ""
            if part.sym.id is prims.PrimIDs.ARGMIN and stage.has_backward:
                yield corrections.ARGMIN, bsym, ""
            if part.sym.id is prims.PrimIDs.MUL and origin_of(bsym) in differentiated and _is_complex(part):
                yield corrections.COMPLEX_PRODUCT, bsym, ""


def _is_complex(bsym: BoundSymbol) -> bool:
    return any(isinstance(arg, TensorProxy) and dtypes.is_complex_dtype(arg.dtype) for arg in bsym.args)


def _claimed_corrections(stage: LeverContext) -> Iterator[tuple[str, BoundSymbol, str]]:
    """Yield corrections that show in the claimed joint trace, with the statement."""
    for bsym in stage.claimed.bound_symbols:
        if bsym.sym.name == thunder_fixes.as_complex.name:
            yield corrections.COMPLEX_VIEW, bsym, ""
        elif bsym.sym.name == thunder_fixes.pad.name and isinstance(bsym.args[1], complex):
            yield corrections.COMPLEX_PAD, bsym, ""
        elif bsym.sym.name == "zeros" and bsym.args[:1] == ((),) and BoundSymbolTag.BACKWARD in bsym.tags:
            made = bsym.flat_proxy_outs[0].name
            # Thunder inserts these zeros between the gradients of two statements. Name the statement that reads them.
            readers = (each for each in stage.claimed.bound_symbols if made in (a.name for a in each.flat_proxy_args))
            yield corrections.ZEROS, next((each for each in readers if origin_of(each) >= 0), bsym), ""


def _has_random_order(equation: object) -> bool:
    """Return whether Thunder iterates over a set with several labels of an ``einsum``, so that the order is random."""
    given, _, kept = str(equation).replace(" ", "").replace(".", "").partition("->")
    operands = given.split(",")
    contracted = {label for label in given if label.isalpha() and label not in kept}
    alone = (
        {label for label in one if label in kept and not any(label in other for other in operands if other is not one)}
        for one in operands
    )
    return len(contracted) > 1 or any(len(labels) > 1 for labels in alone)
