"""Recompute values in the backward: in front of their readers, insert copies of the statements that make them."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.memory.recompute_set import Recompute
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    BoundSymbolTag,
    Proxy,
    TraceCtx,
    TraceProvenance,
    Variable,
    from_trace,
    prims,
    tracectx,
    variableify,
)
from workbench.compiler.trace.bsym_memo import PlanMemo, identity, ids, made_names, read_names
from workbench.compiler.trace.dead_code import remove_dead
from workbench.compiler.trace.segments import Segment, attach, attached, changed
from workbench.compiler.trace.stable_ids import CLONE_PREFIX, is_statement
from workbench.core.graph import Graph


def recompute_in_backward(
    trace: TraceCtx,
    graph: Graph,
    change: Recompute,
    backward: NDArray[np.bool_],
    memo: PlanMemo,
) -> TraceCtx:
    """Insert the clones of `change` into the joint trace, and let the backward read the results of the clones.

    `change` and `backward` refer to rows of `graph`, which was read from the joint trace. Other levers may have edited
    the trace after it was read. `memo` has the clones of earlier plans.
    """
    memo.begin()
    bsyms = trace.bound_symbols
    known = attached(trace)
    segments = known or (Segment(bsyms),)
    rows = {*change.before, *chain.from_iterable(change.before.values())}
    names = {row: graph.values.name[graph.statements.outputs[row][0]] for row in rows}
    at = _makers(segments, frozenset(names.values()))
    position = {at[names[row]]: [at[names[again]] for again in group] for row, group in change.before.items()}
    cloned = frozenset([name for group in position.values() for again in group for name in made_names(bsyms[again])])
    concerned = _backward_readers(segments, cloned, _made_in_backward(graph, backward))
    edited = from_trace(trace)
    edited.names = set(trace.names)
    again: dict[str, Proxy] = {}

    def swaps_of(bsym: BoundSymbol) -> dict[Variable, Proxy]:
        # Swap only values that the statement reads. A fusion may make a value of the same name itself.
        if again.keys().isdisjoint(read_names(bsym)):
            return {}
        return {variableify(a): again[a.name] for a in bsym.flat_proxy_args if a.name in again}

    def clone(bsym: BoundSymbol) -> BoundSymbol:
        swap, names = swaps_of(bsym), dict[Variable, str]()
        for proxy in _produced_names(bsym):
            if (variable := variableify(proxy)) not in swap and variable not in names:
                names[variable] = _free_name(edited, proxy.name)
                edited.names.add(names[variable])

        def make() -> tuple[BoundSymbol, dict[Variable, Proxy]]:
            with tracectx(TraceCtx(None)):
                made = {variable: variable.proxy.replace_name(name) for variable, name in names.items()}
            copy = bsym.from_bsym_swap_proxies(swap | made)
            return copy.from_bsym(tags=bsym.tags | {BoundSymbolTag.BACKWARD}), made

        key = ("clone", identity(bsym), *_names_and_ids(swap), *names.values())
        found, made = memo.get_or_make(key, (bsym, swap), make)
        given, whole = read_names(bsym), swap | made
        again.update({o.name: whole[variableify(o)] for o in bsym.flat_proxy_outs if o.name not in given})
        return found

    def swap_inputs(bsym: BoundSymbol, swap: dict[Variable, Proxy]) -> BoundSymbol:
        # Swap only inputs, so that the outputs of the statement keep their names.
        key = ("inputs", identity(bsym), *_names_and_ids(swap))
        return memo.get_or_make(key, (bsym, swap), lambda: bsym.from_bsym_swap_proxies(swap, skip_output=True))

    marked, begin, left = deque(sorted(concerned.union(position))), 0, []
    for segment in segments:
        end, inside = begin + len(segment.bsyms), list[BoundSymbol]()
        at_first = begin
        while marked and marked[0] < end:
            i = marked.popleft()
            inside += bsyms[begin:i]
            begin = i + 1
            inside += [clone(bsyms[repeated]) for repeated in position.get(i, ())]
            swap = swaps_of(bsyms[i]) if i in concerned else {}
            inside.append(swap_inputs(bsyms[i], swap) if swap else bsyms[i])
        if begin == at_first:
            left.append(segment)
        else:
            left.append(changed(segment, [*inside, *bsyms[begin:end]], memo.get_or_make))
        begin = end
    if known is None:
        edited.bound_symbols = list(left[0].bsyms)
    else:
        attach(edited, left)
    edited.set_provenance(TraceProvenance("Recomputation in the backward"))
    return remove_dead(edited, memo)


class _Index(NamedTuple):
    """Where a segment's statements make and read values: by name, the indices of the statements in the segment.

    `readers` does not have `get_grad`, because it does not read its argument. The argument only identifies the value
    whose gradient `get_grad` returns.
    """

    makers: dict[str, int]
    readers: dict[str, list[int]]


def _index(segment: Segment) -> _Index:
    found = _Index({}, {})
    for i, bsym in enumerate(segment.bsyms):
        if is_statement(bsym):
            for name in made_names(bsym):
                found.makers.setdefault(name, i)
            if bsym.sym.id is not prims.PrimIDs.GET_GRAD:
                for name in read_names(bsym):
                    found.readers.setdefault(name, []).append(i)
    return found


def _segments_with(segments: Sequence[Segment], names: frozenset[str]) -> Iterator[tuple[int, Segment, _Index]]:
    """Yield each segment that contains one of `names`, with the index of its first statement in the trace."""
    begin = 0
    for segment in segments:
        if not names.isdisjoint(segment.names):
            yield begin, segment, segment.get_or_make("makers and readers", partial(_index, segment))
        begin += len(segment.bsyms)


def _makers(segments: Sequence[Segment], names: frozenset[str]) -> dict[str, int]:
    """Return, for each of `names`, the index of the first statement that makes it.

    The statement of a row is found by the name of its output: other levers may have removed statements, or replaced
    them by their parts.
    """
    makers: dict[str, int] = {}
    for begin, _, index in _segments_with(segments, names):
        for name in index.makers.keys() & names:
            makers.setdefault(name, begin + index.makers[name])
    return makers


def _made_in_backward(graph: Graph, backward: NDArray[np.bool_]) -> frozenset[str]:
    """Return the name of the first output of each row in the backward."""
    offsets, made = graph.statements.outputs.offsets, graph.statements.outputs.items
    rows = np.flatnonzero(backward & (graph.statements.parent < 0) & (np.diff(offsets) > 0))
    return frozenset([graph.values.name[value] for value in made[offsets[rows]].tolist()])


def _backward_readers(segments: Sequence[Segment], names: frozenset[str], made_in_backward: frozenset[str]) -> set[int]:
    """Return the indices of the statements of the backward that read one of `names`."""
    made = {
        begin + i: made_in_backward.intersection(made_names(segment.bsyms[i]))
        for begin, segment, index in _segments_with(segments, names)
        for i in {i for name in index.readers.keys() & names for i in index.readers[name]}
    }
    makers = _makers(segments, frozenset().union(*made.values()))
    return {i for i, found in made.items() if any(makers[name] == i for name in found)}


def _names_and_ids(swap: Mapping[Variable, Proxy]) -> tuple[Hashable, ...]:
    return (*[variable.proxy.name for variable in swap], *ids(swap.values()))


def _produced_names(bsym: BoundSymbol) -> Iterator[Any]:
    """Yield the values that a statement or one of its subsymbols makes."""
    given = {arg.name for arg in bsym.flat_proxy_args}
    for out in bsym.flat_proxy_outs:
        if out.name not in given:
            yield out
    for sub in bsym.subsymbols:
        yield from _produced_names(sub)


def _free_name(trace: TraceCtx, name: str) -> str:
    wanted = CLONE_PREFIX + name
    while wanted in trace.names:
        wanted = CLONE_PREFIX + wanted
    return wanted
