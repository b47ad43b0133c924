"""Memoized version of Thunder's split of a joint trace into forward and backward.

Thunder copies each statement. This version gives later plans the copies of earlier plans. Passes after the split then
find unchanged statements by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    CollectionProxy,
    Proxy,
    TensorProxy,
    TraceCtx,
    TraceTag,
    check_cotangents,
    dce,
    from_trace,
    prims,
    split_into_forward_and_backward,
    tracectx,
    tree_flatten,
    tree_flatten_with_dataclass,
)
from workbench.compiler.trace.bsym_memo import PlanMemo, identity, made_names, read_names


def split(trace: TraceCtx, memo: PlanMemo | None) -> tuple[TraceCtx, TraceCtx | None]:
    """Split a joint trace into forward and backward, as Thunder does.

    Parameters
    ----------
    trace : TraceCtx
    memo : PlanMemo or None
        Memo of earlier plans of the program. Without a memo, Thunder's own split runs.
    """
    if memo is None:
        split_traces: tuple[TraceCtx, TraceCtx | None] = split_into_forward_and_backward(trace)
        return split_traces
    returned = trace.bound_symbols[-1].args[0]
    ahead, back, needed, cotangents = _divide(trace, returned)
    ahead, back = (
        [memo.get_or_make(("split", identity(each)), each, each.from_bsym) for each in side] for side in (ahead, back)
    )
    saved = {arg.name: arg for bsym in back for arg in bsym.flat_proxy_args if arg.name in needed}
    tensors = tuple([each for each in saved.values() if isinstance(each, TensorProxy)])
    others = tuple([each for each in saved.values() if not isinstance(each, TensorProxy)])
    forward = from_trace(trace)
    forward.tags.add(TraceTag.AUGMENTED_FORWARD)
    forward.names = forward.names.copy()
    forward.bound_symbols += ahead
    output = {key: value for key, value in returned.items() if key != "fw_flat_out"}
    flat = tuple(tree_flatten_with_dataclass(returned["fw_flat_out"])[0])
    with tracectx(forward):
        prims.python_return({**output, "output": returned["fw_flat_out"], "flat_output": flat}, (tensors, others))
    if not back and all(gradient is None for gradient in returned["output"]):
        return forward, None
    return forward, _backward(forward, back, (tensors, others), cotangents, tuple(returned["output"]))


def _proxies(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Proxy)]


def _divide(trace: TraceCtx, returned: Any) -> tuple[list[BoundSymbol], list[BoundSymbol], set[str], list[Any]]:
    """Divide the statements of a joint trace.

    Return the statements of the forward, those of the backward, the names of all values that the forward has, and the
    gradients of the outputs that the backward receives.
    """
    outputs = returned["fw_flat_out"]
    cotangents: list[Any] = [None] * len(outputs)
    places: dict[str, list[int]] = {}
    for place, output in enumerate(outputs):
        if isinstance(output, TensorProxy):
            places.setdefault(output.name, []).append(place)
    needed = {leaf.name for leaf in _proxies(outputs)}
    needed.update(each.name for each in returned["flat_args"] if isinstance(each, Proxy))
    ahead: list[BoundSymbol] = []
    back: list[BoundSymbol] = []
    for bsym in reversed(trace.bound_symbols[:-1]):
        id = bsym.sym.id
        if id is prims.PrimIDs.GET_GRAD:
            cotangents[places[bsym.args[0].name].pop(0)] = bsym.output
        elif id is prims.PrimIDs.UNPACK_TRIVIAL or not needed.isdisjoint(made_names(bsym)):
            ahead.append(bsym)
            needed.update(read_names(bsym), made_names(bsym))
        elif (id is prims.PrimIDs.COPY_ or bsym.sym.name == "copy_") and bsym.args[1].name in needed:
            ahead.append(bsym)
            needed.update(read_names(bsym))
        else:
            back.append(bsym)
    ahead.reverse()
    back.reverse()
    return ahead, back, needed, cotangents


def _backward(
    forward: TraceCtx,
    statements: Sequence[BoundSymbol],
    saved: Sequence[tuple[Any, ...]],
    cotangents: list[Any],
    gradients: tuple[Any, ...],
) -> TraceCtx:
    """Return the backward trace. It unpacks the saved values and the cotangents, and then has `statements`."""

    def backward_fn(saved_for_backward: Any, cotangents: Any) -> None:
        pass

    trace = TraceCtx(fn=backward_fn)
    trace.tags.add(TraceTag.BACKWARD)
    trace.names, trace.name_ctr = forward.names, forward.name_ctr
    trace.names -= {"saved_for_backward", "cotangents"}
    with tracectx(trace):
        lists = [CollectionProxy(list(each), name=f"C{at}") for at, each in enumerate(saved)]
        packed = CollectionProxy(lists, name="saved_for_backward")
        received = CollectionProxy(cotangents, name="cotangents")
        trace.args = ([each.collection() for each in lists], received.collection())
        prims.unpack_trivial(packed, name="saved_for_backward")
        prims.unpack_trivial(received, name="cotangents")
        for each in (packed, received, *lists):
            prims.unpack_sequence(each, len(each.coll))
    trace.bound_symbols += statements
    with tracectx(trace):
        prims.python_return(gradients)
    checked: TraceCtx = check_cotangents(dce(trace))
    return checked
