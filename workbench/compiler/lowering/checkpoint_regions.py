"""Regions of `torch.utils.checkpoint`: mark their values to be recomputed in the backward, except random draws.

Thunder ignores ``preserve_rng_state``. Thunder's backward would draw other numbers than the forward, so gradients would
be wrong. This module saves the result of each draw in a region, and the backward recomputes other values from these
results.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from workbench.compiler.interop.thunder_api import BoundSymbol, BoundSymbolTag, ProxyTag, TraceCtx
from workbench.compiler.lowering.call_normalization import draws_inside


@dataclasses.dataclass(frozen=True)
class CheckpointTag:
    """Tag of a statement that draws random numbers inside a recomputed region."""


CHECKPOINTED = CheckpointTag()


def mark_recomputed(
    bsyms: Iterable[BoundSymbol], results: Collection[str], policy: Collection[str] = frozenset()
) -> None:
    """Mark the values of a checkpointed region to be recomputed. Unlike Thunder's interpreter, exempt random draws.

    Parameters
    ----------
    bsyms : iterable of BoundSymbol
        Statements of the region.
    results : collection of str
        Names of the values that the region takes and returns. These values are saved.
    policy : collection of str, optional
        Names of the values that the region's selective checkpointing saves.
    """
    for bsym in bsyms:
        outputs = [proxy for proxy in bsym.flat_proxy_outs if proxy.name not in results]
        saved = any(proxy.name in policy for proxy in outputs)
        if saved and not draws_inside(bsym):
            _mark_parts(bsym, {proxy.name for proxy in outputs})
            continue
        if not draws_inside(bsym):
            for proxy in outputs:
                proxy.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
            continue
        bsym.tags.add(CHECKPOINTED)
        # Tag the subsymbols one by one, because Thunder copies a tag of the whole statement to all its subsymbols.
        for sub in bsym.subsymbols:
            if draws_inside(sub):
                mark_recomputed([sub], results)
            elif any(proxy.name not in results for proxy in sub.flat_proxy_outs):
                sub.tags.add(BoundSymbolTag.RECOMPUTE_IN_BACKWARD)


def _mark_parts(bsym: BoundSymbol, results: Collection[str]) -> None:
    """Mark the subsymbols that compute a statement's intermediate values, but not those that compute `results`."""
    for sub in bsym.subsymbols:
        if any(proxy.name not in results for proxy in sub.flat_proxy_outs):
            sub.tags.add(BoundSymbolTag.RECOMPUTE_IN_BACKWARD)


def is_marked(bsym: BoundSymbol) -> bool:
    """Return whether the backward computes any result or intermediate value of a statement again."""
    return (
        BoundSymbolTag.RECOMPUTE_IN_BACKWARD in bsym.tags
        or any(ProxyTag.RECOMPUTE_IN_BACKWARD in proxy.tags for proxy in bsym.flat_proxy_outs)
        or any(map(is_marked, bsym.subsymbols))
    )


def save_draws(trace: TraceCtx) -> None:
    """Undo the marks for recomputation that Thunder's interpreter gave to random draws. All other marks stay.

    Parameters
    ----------
    trace : TraceCtx
        Trace from the interpreter. Its statements are changed in place.
    """
    for bsym in trace.bound_symbols:
        outputs = bsym.flat_proxy_outs
        marked = [proxy for proxy in outputs if ProxyTag.RECOMPUTE_IN_BACKWARD in proxy.tags]
        if marked and draws_inside(bsym):
            for proxy in marked:
                proxy.tags.discard(ProxyTag.RECOMPUTE_IN_BACKWARD)
            mark_recomputed([bsym], {proxy.name for proxy in outputs if not any(proxy is each for each in marked)})
