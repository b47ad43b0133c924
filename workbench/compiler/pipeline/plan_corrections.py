"""Find which corrections of unmodified Thunder affect a program, and in which lines; see `trace.corrections`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workbench.compiler.interop.thunder_api import BoundSymbol, BoundSymbolTag, TensorProxy, TraceCtx, dtypes, prims
from workbench.compiler.lowering import thunder_fixes
from workbench.compiler.pipeline import repeated_draws
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.trace import corrections
from workbench.compiler.trace.corrections import KINDS, Corrected, Correction
from workbench.compiler.trace.stable_ids import line_of, origin_of, origin_text


def find_corrections(context: LeverContext, outcome: LeverOutcome, initial: TraceCtx) -> tuple[Correction, ...]:
    """Return the corrections that affect a program.

    Parameters
    ----------
    context : LeverContext
    outcome : LeverOutcome
        Results of the stock plan.
    initial : TraceCtx
        The first trace of the program, before any transform.
    """
    few = context.few or context
    found: dict[str, list[str]] = {}
    for name, bsym, line in (*_program_corrections(few, initial), *_claimed_corrections(few)):
        found.setdefault(name, []).append(line or _line(few, bsym))
    for name, bsyms in repeated_draws.draw_differences(context, outcome).items():
        found[name] = [_line(context, bsym) for bsym in bsyms]
    return tuple(corrections.correction(name, found[name]) for name in KINDS if name in found)


def _line(context: LeverContext, bsym: BoundSymbol) -> str:
    index = origin_of(bsym)
    return origin_text(context.origins[index]) if index >= 0 else line_of(bsym)


def _all_bsyms(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    for bsym in bsyms:
        yield bsym
        yield from _all_bsyms(bsym.subsymbols)


def _program_corrections(context: LeverContext, initial: TraceCtx) -> Iterator[tuple[str, BoundSymbol, str]]:
    """Yield name, statement and line of each correction that can be found in the program's own trace.

    Such a statement has a `Corrected` tag, or is of a kind that Thunder computes or differentiates wrongly. The line is
    an empty text if it is the line of the statement's origin.
    """
    differentiated = {origin_of(bsym) for bsym in context.claimed.bound_symbols if BoundSymbolTag.BACKWARD in bsym.tags}
    for bsym in (context.program or initial).bound_symbols:
        for part in _all_bsyms((bsym,)):
            for tag in part.tags:
                if isinstance(tag, Corrected):
                    yield tag.name, bsym, tag.line
            if part.sym.name == "einsum" and _has_random_order(part.args[0]):
                yield corrections.EINSUM, bsym, ""
            if part.sym.id is prims.PrimIDs.ARGMIN and context.has_backward:
                yield corrections.ARGMIN, bsym, ""
            if part.sym.id is prims.PrimIDs.MUL and origin_of(bsym) in differentiated and _is_complex(part):
                yield corrections.COMPLEX_PRODUCT, bsym, ""


def _is_complex(bsym: BoundSymbol) -> bool:
    return any(isinstance(arg, TensorProxy) and dtypes.is_complex_dtype(arg.dtype) for arg in bsym.args)


def _claimed_corrections(context: LeverContext) -> Iterator[tuple[str, BoundSymbol, str]]:
    """Yield name, statement and an empty text for each correction that can be found in the claimed joint trace."""
    for bsym in context.claimed.bound_symbols:
        if bsym.sym.name == thunder_fixes.as_complex.name:
            yield corrections.COMPLEX_VIEW, bsym, ""
        elif bsym.sym.name == thunder_fixes.pad.name and isinstance(bsym.args[1], complex):
            yield corrections.COMPLEX_PAD, bsym, ""
        elif bsym.sym.name == "zeros" and bsym.args[:1] == ((),) and BoundSymbolTag.BACKWARD in bsym.tags:
            made = bsym.flat_proxy_outs[0].name
            # Thunder inserts these zeros without an origin. Report the first statement with an origin that reads them.
            readers = (each for each in context.claimed.bound_symbols if made in (a.name for a in each.flat_proxy_args))
            yield corrections.ZEROS, next((each for each in readers if origin_of(each) >= 0), bsym), ""


def _has_random_order(equation: object) -> bool:
    """Return whether Thunder iterates over a set of several labels of an ``einsum``; set order differs by process."""
    given, _, kept = str(equation).replace(" ", "").replace(".", "").partition("->")
    operands = given.split(",")
    contracted = {label for label in given if label.isalpha() and label not in kept}
    alone = (
        {label for label in one if label in kept and not any(label in other for other in operands if other is not one)}
        for one in operands
    )
    return len(contracted) > 1 or any(len(labels) > 1 for labels in alone)
