"""Put the statements of a split trace into another order, and delete each value after its last use."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    CollectionProxy,
    Proxy,
    TraceCtx,
    TraceProvenance,
    TraceTag,
    clear_mutable_collection,
    comment_symbols,
    from_trace,
    prims,
    tree_flatten,
)
from workbench.compiler.trace.stable_ids import is_statement


def apply_order(trace: TraceCtx, statements: Sequence[BoundSymbol], provenance: str) -> TraceCtx:
    """Return a split trace with `statements` as its statements, and deletions that fit their order."""
    edited = from_trace(trace)
    edited.names = set(trace.names)
    gone = (prims.PrimIDs.DEL, prims.PrimIDs.RETURN)
    edited.bound_symbols = [
        b
        for b in trace.bound_symbols
        if not is_statement(b) and b.sym.id not in gone and b.sym.name != "clear_mutable_collection"
    ]
    edited.bound_symbols += statements
    edited.bound_symbols.append(trace.bound_symbols[-1])
    edited.bound_symbols = insert_deletions(edited.bound_symbols, clear_collections=TraceTag.BACKWARD in trace.tags)
    edited.set_provenance(TraceProvenance(provenance))
    return edited


def insert_deletions(bound_symbols: Sequence[BoundSymbol], *, clear_collections: bool) -> list[BoundSymbol]:
    """Return `bound_symbols` with a deletion of each value after its last use.

    `bound_symbols` contains no deletions and ends with the `return`. The result is equal to that of Thunder's
    `del_last_used`. `insert_deletions` is faster, because it does not bind the signature of each deletion.
    """
    handled = {out.name for out in tree_flatten(bound_symbols[-1].args)[0] if isinstance(out, Proxy)}
    found: list[BoundSymbol] = []
    for bsym in reversed(bound_symbols):
        gone: dict[str, Proxy] = {}
        if bsym.sym.id not in comment_symbols:
            for proxy in (*bsym.flat_proxy_outs, *bsym.flat_proxy_args):
                if proxy.name not in handled:
                    gone.setdefault(proxy.name, proxy)
        handled.update(gone)
        if gone and bsym.sym.id is not prims.PrimIDs.RETURN:
            proxies = tuple(gone.values())
            deletion = BoundSymbol(prims.python_del, proxies, {}, None)
            deletion.__dict__["flat_proxy_args"] = proxies
            found.append(deletion)
            if clear_collections:
                collections = (proxy for proxy in proxies if isinstance(proxy, CollectionProxy))
                found += [clear_mutable_collection.bind(proxy, output=None) for proxy in collections]
        found.append(bsym)
    return found[::-1]
