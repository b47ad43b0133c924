"""Memoized version of Thunder's split of a joint trace into forward and backward.

Thunder copies each statement. This version gives later plans the copies of earlier plans. Passes after the split then
find unchanged statements by identity.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial
from typing import Any, NamedTuple

from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    CollectionProxy,
    Proxy,
    TensorProxy,
    TraceCtx,
    TraceTag,
    check_cotangents,
    from_trace,
    prims,
    split_into_forward_and_backward,
    tracectx,
    tree_flatten,
    tree_flatten_with_dataclass,
)
from workbench.compiler.trace.bsym_memo import PlanMemo, identity, made_names, read_names
from workbench.compiler.trace.dead_code import remove_dead
from workbench.compiler.trace.segments import Segment, attach, keep_attached, segment_of, segments_of


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
    ahead, back, needed, cotangents = _divide(trace, returned, memo)
    saved: dict[str, Any] = {}
    for segment in back:
        read = segment.get_or_make("values read", partial(_values_read, segment))
        saved |= {name: arg for name, arg in read.items() if name in needed}
    tensors = tuple([each for each in saved.values() if isinstance(each, TensorProxy)])
    others = tuple([each for each in saved.values() if not isinstance(each, TensorProxy)])
    forward = from_trace(trace)
    forward.tags.add(TraceTag.AUGMENTED_FORWARD)
    forward.names = forward.names.copy()
    output = {key: value for key, value in returned.items() if key != "fw_flat_out"}
    flat = tuple(tree_flatten_with_dataclass(returned["fw_flat_out"])[0])
    with tracectx(forward):
        prims.python_return({**output, "output": returned["fw_flat_out"], "flat_output": flat}, (tensors, others))
    attach(forward, [*ahead, Segment(forward.bound_symbols)])
    if not back and all(gradient is None for gradient in returned["output"]):
        return forward, None
    return forward, _backward(forward, back, (tensors, others), cotangents, tuple(returned["output"]), memo)


def _values_read(segment: Segment) -> dict[str, Any]:
    return {arg.name: arg for bsym in segment.bsyms for arg in bsym.flat_proxy_args}


def _proxies(tree: Any) -> list[Any]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, Proxy)]


def _divide(trace: TraceCtx, returned: Any, memo: PlanMemo) -> tuple[list[Segment], list[Segment], set[str], list[Any]]:
    """Divide the statements of a joint trace.

    Return copies of the statements of the forward, and of those of the backward. Also return the names of all values
    that the forward has, and the gradients of the outputs that the backward receives.
    """
    outputs = returned["fw_flat_out"]
    cotangents: list[Any] = [None] * len(outputs)
    places: dict[str, list[int]] = {}
    for place, output in enumerate(outputs):
        if isinstance(output, TensorProxy):
            places.setdefault(output.name, []).append(place)
    needed = {leaf.name for leaf in _proxies(outputs)}
    needed.update(each.name for each in returned["flat_args"] if isinstance(each, Proxy))
    ahead: list[Segment] = []
    back: list[Segment] = []
    for segment in reversed(segments_of(trace)):
        wanted = frozenset(needed.intersection(segment.get_or_make("decisive", partial(_decisive, segment))))

        def divide(segment: Segment = segment, wanted: frozenset[str] = wanted) -> _Divided:
            return _divide_segment(segment, wanted, memo)

        found: _Divided = memo.get_or_make(("divided", identity(segment), wanted), segment, divide)
        for bsym in found.gradients:
            cotangents[places[bsym.args[0].name].pop(0)] = bsym.output
        needed.update(found.needed)
        ahead += [found.ahead] if found.ahead.bsyms else []
        back += [found.back] if found.back.bsyms else []
    return ahead[::-1], back[::-1], needed, cotangents


def _is_copy(bsym: BoundSymbol) -> bool:
    return bsym.sym.id is prims.PrimIDs.COPY_ or bsym.sym.name == "copy_"


def _decisive(segment: Segment) -> tuple[str, ...]:
    """Return the names that decide which statements are in the forward: what they make, and what copies write into."""
    return (*segment.made, *[bsym.args[1].name for bsym in segment.bsyms if _is_copy(bsym)])


class _Divided(NamedTuple):
    """The statements of a segment that are in the forward, and those that are in the backward.

    `gradients` are its statements `get_grad`, from the last to the first. `needed` are the names that the forward has.
    """

    ahead: Segment
    back: Segment
    gradients: tuple[BoundSymbol, ...]
    needed: frozenset[str]


def _divide_segment(segment: Segment, wanted: Set[str], memo: PlanMemo) -> _Divided:
    """Divide the statements of a segment of which later statements of the forward need the names `wanted`."""
    needed = set(wanted)
    ahead: list[BoundSymbol] = []
    back: list[BoundSymbol] = []
    gradients: list[BoundSymbol] = []
    for bsym in reversed(segment.bsyms):
        id = bsym.sym.id
        if id is prims.PrimIDs.RETURN:
            continue
        if id is prims.PrimIDs.GET_GRAD:
            gradients.append(bsym)
        elif id is prims.PrimIDs.UNPACK_TRIVIAL or not needed.isdisjoint(made_names(bsym)):
            ahead.append(bsym)
            needed.update(read_names(bsym), made_names(bsym))
        elif _is_copy(bsym) and bsym.args[1].name in needed:
            ahead.append(bsym)
            needed.update(read_names(bsym))
        else:
            back.append(bsym)
    copies = (
        [memo.get_or_make(("split", identity(each)), each, each.from_bsym) for each in reversed(side)]
        for side in (ahead, back)
    )
    mine, other = (segment_of(side, memo.get_or_make) for side in copies)
    return _Divided(mine, other, tuple(gradients), frozenset(needed - wanted))


def _backward(
    forward: TraceCtx,
    segments: Sequence[Segment],
    saved: Sequence[tuple[Any, ...]],
    cotangents: list[Any],
    gradients: tuple[Any, ...],
    memo: PlanMemo,
) -> TraceCtx:
    """Return the backward trace. It unpacks the saved values and the cotangents, and then has `segments`."""

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
        prims.python_return(gradients)
    *unpacking, returning = trace.bound_symbols
    attach(trace, [Segment(unpacking), *segments, Segment([returning])])
    done = remove_dead(trace, memo)
    checked: TraceCtx = check_cotangents(done)
    if checked is not done:
        keep_attached(done, checked)
    return checked
