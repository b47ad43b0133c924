"""Find how far the collectives of a split or joint trace may move, and reorder the trace.

A split trace is a forward or a backward trace. Compute statements keep their order. A collective, its producers, its
wait and the views of the result may move between compute statements. Every order respects all dependencies: a statement
depends on the statements that make its inputs and, if memory is written in place, on earlier accesses to this memory.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from workbench.analysis.cost.collective_overlap import PACK, UNPACK
from workbench.compiler.interop.thunder_api import (
    WAITS,
    BoundSymbol,
    BoundSymbolTag,
    FutureTensorProxy,
    TensorProxy,
    TraceCtx,
    TraceProvenance,
    TraceTag,
    from_trace,
    prims,
)
from workbench.compiler.memory.views_and_writes import reduces_in_place, trace_facts
from workbench.compiler.pipeline.collective_schedule import Collective, CollectiveRole, CollectiveSchedule
from workbench.compiler.pipeline.lever_context import LeverContext
from workbench.compiler.trace import copy_sets
from workbench.compiler.trace.bsym_memo import made_names, read_names
from workbench.compiler.trace.proxy_traits import bytes_of, is_tensor
from workbench.compiler.trace.stable_ids import CLONE_PREFIX, is_statement
from workbench.compiler.trace.statement_order import apply_order
from workbench.compiler.trace.tags import has_tag

_SHAPES = frozenset(
    (
        "broadcast_in_dim",
        "expand",
        "getitem",
        "permute",
        "reshape",
        "slice",
        "slice_prim",
        "squeeze",
        "torch_prims_reshape_impl",
        "torch_slice_prim_impl",
        "transpose",
        "unsqueeze",
        "view",
    )
)


def has_collectives(trace: TraceCtx) -> bool:
    """Return whether a trace waits for a collective."""
    return any(bsym.sym.name in WAITS for bsym in trace.bound_symbols)


def schedule(trace: TraceCtx, context: LeverContext) -> CollectiveSchedule:
    """Return the ordering constraints on the statements of a trace. For a joint trace, use `joint_schedule`."""
    statements = tuple(b for b in trace.bound_symbols if is_statement(b))
    returned = trace.bound_symbols[-1]
    roles = _roles(statements, {a.name for a in returned.flat_proxy_args})
    before = _predecessors(trace, statements, roles, context)
    slot, low, high = _ranges(roles, before)
    compute = [bsym for bsym, role in zip(statements, roles, strict=True) if role is CollectiveRole.COMPUTE]
    outputs = tuple(next((out.name for out in bsym.flat_proxy_outs), "") for bsym in compute)
    return CollectiveSchedule(
        statements=statements,
        roles=tuple(roles),
        before=before,
        slot=slot,
        low=low,
        high=high,
        # Names must not differ between plans, so name a statement after its symbol if its output has no stable id.
        names=_unique(
            context.value_ids.get(out, str(b.sym.name)) if not out.startswith(CLONE_PREFIX) else context.value_id(out)
            for b, out in zip(compute, outputs, strict=True)
        ),
        outputs=outputs,
        collectives=_collectives(trace, statements, roles, context),
    )


def joint_schedule(trace: TraceCtx, context: LeverContext) -> CollectiveSchedule:
    """Return the ordering constraints on the statements of a joint trace.

    A collective of the backward is never issued in the forward. If only the backward reads the result of a forward
    collective, the wait may be as late as the first read. If no statement reads the result, the wait stays in the
    forward.
    """
    found = schedule(trace, context)
    turns = [slot for slot, b in zip(found.slot, found.statements, strict=True) if _is_backward(b)]
    if not turns:
        return found
    low, high = list(found.low), list(found.high)
    for collective in found.collectives:
        if _is_backward(found.statements[collective.issue]):
            low[collective.issue] = max(low[collective.issue], turns[0])
        elif not collective.read:
            high[collective.wait] = min(high[collective.wait], turns[0])
    return dataclasses.replace(found, low=tuple(low), high=tuple(high))


def _is_backward(bsym: BoundSymbol) -> bool:
    return BoundSymbolTag.BACKWARD in bsym.tags or bsym.sym.id is prims.PrimIDs.GET_GRAD


def reorder_joint(trace: TraceCtx, schedule: CollectiveSchedule, order: Sequence[int]) -> TraceCtx:
    """Return a joint trace with its statements in the order `order`. A joint trace contains no deletions."""
    edited = from_trace(trace)
    edited.names = set(trace.names)
    edited.bound_symbols = [b for b in trace.bound_symbols[:-1] if not is_statement(b)]
    edited.bound_symbols += [schedule.statements[i] for i in order]
    edited.bound_symbols.append(trace.bound_symbols[-1])
    edited.set_provenance(TraceProvenance("Collectives in another order, before fusion"))
    return edited


def reorder(trace: TraceCtx, schedule: CollectiveSchedule, order: Sequence[int]) -> TraceCtx:
    """Return a split trace with its statements in the order `order`, and deletions that fit this order."""
    return apply_order(trace, [schedule.statements[i] for i in order], "Collectives in another order")


def _tensors(proxies: Sequence[Any]) -> list[Any]:
    return [p for p in proxies if is_tensor(p)]


def _roles(statements: Sequence[BoundSymbol], returned: set[str]) -> list[CollectiveRole]:
    roles = [CollectiveRole.COMPUTE] * len(statements)
    made: dict[str, int] = {}
    readers: defaultdict[str, list[int]] = defaultdict(list)
    for i, bsym in enumerate(statements):
        for name in read_names(bsym):
            readers[name].append(i)
        for name in made_names(bsym):
            made.setdefault(name, i)
        if bsym.sym.name in WAITS:
            roles[i] = CollectiveRole.WAIT
        elif any(isinstance(out, FutureTensorProxy) for out in bsym.flat_proxy_outs):
            roles[i] = CollectiveRole.ISSUE
        elif (bsym.sym.name in _SHAPES or bsym.sym.name.startswith(UNPACK)) and (
            tensors := _tensors(bsym.flat_proxy_args)
        ):
            sources = [roles[made[t.name]] if t.name in made else CollectiveRole.COMPUTE for t in tensors]
            if all(role in (CollectiveRole.WAIT, CollectiveRole.VIEW) for role in sources):
                roles[i] = CollectiveRole.VIEW
    for i in reversed(range(len(statements))):
        bsym = statements[i]
        if roles[i] is not CollectiveRole.COMPUTE:
            continue
        read = [r for name in made_names(bsym) for r in readers.get(name, ())]
        if (
            read
            and all(roles[r] in (CollectiveRole.ISSUE, CollectiveRole.PRODUCER) for r in read)
            and returned.isdisjoint(made_names(bsym))
            and (len(_tensors(bsym.flat_proxy_args)) == 1 or bsym.sym.name.startswith(PACK))
            and len(bsym.flat_proxy_outs) == 1
            and not _writes(bsym)
            and not has_tag(bsym, prims.OpTags.RANDOM_OP)
        ):
            roles[i] = CollectiveRole.PRODUCER
    return roles


def _writes(bsym: BoundSymbol) -> bool:
    return copy_sets.count_copies_and_fences(bsym)[0] > 0 or reduces_in_place(bsym)


def _written_names(bsym: BoundSymbol) -> list[str]:
    """Return the names of the inputs that a statement writes.

    If the statement writes to a value that it made itself, such as a view of an input, return the names of all inputs.
    """
    if reduces_in_place(bsym):
        return [bsym.args[0].name]
    given = [a.name for a in _tensors(bsym.flat_proxy_args)]
    destinations = [leaf.args[1].name for leaf in copy_sets.leaves([bsym]) if copy_sets.is_copy(leaf)]
    return destinations if all(name in given for name in destinations) else given


def _predecessors(
    trace: TraceCtx, statements: Sequence[BoundSymbol], roles: Sequence[CollectiveRole], context: LeverContext
) -> tuple[tuple[int, ...], ...]:
    before: list[set[int]] = [set() for _ in statements]
    made: dict[str, int] = {}
    last = -1
    for i, bsym in enumerate(statements):
        before[i].update(made[name] for name in read_names(bsym) if name in made)
        for name in made_names(bsym):
            made.setdefault(name, i)
        if roles[i] is CollectiveRole.COMPUTE:
            if last >= 0:
                before[i].add(last)
            last = i
    if any(_writes(bsym) for bsym in statements):
        _add_writes(before, trace, statements, made, context)
    return tuple(tuple(sorted(b - {i})) for i, b in enumerate(before))


def _add_writes(
    predecessors: list[set[int]],
    trace: TraceCtx,
    statements: Sequence[BoundSymbol],
    makers: dict[str, int],
    context: LeverContext,
) -> None:
    """Keep the order of statements that access the same memory, if at least one of them writes it.

    A collective reads its input until its wait. If it reduces in place, it also writes its input until its wait.
    Therefore the wait counts as another access to the input.
    """
    memory = trace_facts(trace, cache=context.cache, arguments=context.arguments).storage_of
    writers: dict[Any, int] = {}
    readers: defaultdict[Any, list[int]] = defaultdict(list)
    for i, bsym in enumerate(statements):
        reads = {memory.get(a.name, a.name) for a in _tensors(bsym.flat_proxy_args)}
        writes = {memory.get(name, name) for name in _written_names(bsym)} if _writes(bsym) else set()
        if bsym.sym.name in WAITS and bsym.flat_proxy_args[0].name in makers:
            sent = statements[makers[bsym.flat_proxy_args[0].name]]
            reads |= {memory.get(a.name, a.name) for a in _tensors(sent.flat_proxy_args)}
            if reduces_in_place(sent):
                writes |= {memory.get(name, name) for name in _written_names(sent)}
        for storage in reads | writes:
            if storage in writers:
                predecessors[i].add(writers[storage])
        for storage in writes:
            predecessors[i].update(readers.pop(storage, ()))
            writers[storage] = i
        for storage in reads:
            readers[storage].append(i)


def _ranges(
    roles: Sequence[CollectiveRole], predecessors: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    slots, count = [], 0
    for role in roles:
        slots.append(count)
        count += role is CollectiveRole.COMPUTE
    low, high = [0] * len(roles), [count] * len(roles)
    for i, earlier in enumerate(predecessors):
        low[i] = max((slots[e] + 1 if roles[e] is CollectiveRole.COMPUTE else low[e] for e in earlier), default=0)
    for i in reversed(range(len(roles))):
        for e in predecessors[i]:
            high[e] = min(high[e], slots[i] if roles[i] is CollectiveRole.COMPUTE else high[i])
    return tuple(slots), tuple(low), tuple(high)


def _collectives(
    trace: TraceCtx, statements: Sequence[BoundSymbol], roles: Sequence[CollectiveRole], context: LeverContext
) -> tuple[Collective, ...]:
    made = {name: i for i, b in reversed(list(enumerate(statements))) for name in made_names(b)}
    arguments = [
        out.name
        for b in context.claimed.bound_symbols
        if b.sym.id is prims.PrimIDs.UNPACK_TRIVIAL
        for out in b.flat_proxy_outs
    ]
    gradients = trace.bound_symbols[-1].flat_args if TraceTag.BACKWARD in trace.tags else ()
    given = frozenset(arguments)
    gradient_of = {
        gradient.name: argument
        for argument, gradient in zip(arguments, gradients, strict=False)
        if isinstance(gradient, TensorProxy)
    }
    readers: defaultdict[str, list[int]] = defaultdict(list)
    for i, bsym in enumerate(statements):
        for name in read_names(bsym):
            readers[name].append(i)
    found = []
    for issue, bsym in enumerate(statements):
        if roles[issue] is not CollectiveRole.ISSUE:
            continue
        future = next(out for out in bsym.flat_proxy_outs if isinstance(out, FutureTensorProxy))
        wait = next(r for r in readers[future.name] if roles[r] is CollectiveRole.WAIT)
        producers: list[int] = []
        sent = list(_sent_values(bsym.flat_proxy_args[0].name, statements, roles, made, producers))
        result = statements[wait].flat_proxy_outs[0]
        names = _results(result.name, statements, roles, readers)
        found.append(
            Collective(
                place=_collective_id(bsym, sent, names, given, gradient_of, context, trace),
                issue=issue,
                wait=wait,
                producers=tuple(producers),
                result=result.name,
                nbytes=bytes_of(result),
                read=any(roles[r] is not CollectiveRole.VIEW for name in names for r in readers[name]),
                parameter=given.issuperset(sent),
            )
        )
    places = _unique(c.place for c in found)
    return tuple(dataclasses.replace(c, place=place) for c, place in zip(found, places, strict=True))


def _sent_values(
    name: str,
    statements: Sequence[BoundSymbol],
    roles: Sequence[CollectiveRole],
    makers: Mapping[str, int],
    producers: list[int],
) -> Iterator[str]:
    """Yield the names of the values from which producers compute the value `name`; `name` itself without producers.

    Append the indices of these producers to the list `producers`.
    """
    if name not in makers or roles[makers[name]] is not CollectiveRole.PRODUCER:
        yield name
        return
    producers.append(makers[name])
    for arg in _tensors(statements[makers[name]].flat_proxy_args):
        yield from _sent_values(arg.name, statements, roles, makers, producers)


def _results(
    name: str, statements: Sequence[BoundSymbol], roles: Sequence[CollectiveRole], readers: defaultdict[str, list[int]]
) -> list[str]:
    """Return the name of a wait's result and the names of its views."""
    names = [name]
    for reader in readers[name]:
        if roles[reader] is CollectiveRole.VIEW:
            for out in statements[reader].flat_proxy_outs:
                names += _results(out.name, statements, roles, readers)
    return names


def _collective_id(
    bsym: BoundSymbol,
    sent: Sequence[str],
    results: Sequence[str],
    arguments: Collection[str],
    gradient_of: Mapping[str, str],
    context: LeverContext,
    trace: TraceCtx,
) -> str:
    """Return the stable id of a collective.

    The id of a bucket contains the name of its first tensor and the number of its other tensors.
    """
    kind = bsym.sym.name.removeprefix("torch_").removesuffix("_prim_impl")
    others = f"+{len(sent) - 1}" if len(sent) > 1 else ""
    if sent[0] in arguments:
        # Mark a gather of the backward with `~`, because the forward may gather the same parameter.
        again = "~" if TraceTag.BACKWARD in trace.tags else ""
        return f"{sent[0].removeprefix('t_')}{others}>{kind}{again}"
    gradient = next((gradient_of[name] for name in results if name in gradient_of), None)
    return (
        f"{gradient.removeprefix('t_')}{others}<{kind}" if gradient else f"{context.value_id(sent[0])}{others}>{kind}"
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    counts: Counter[str] = Counter()
    found = []
    for name in names:
        found.append(name + (f"#{counts[name]}" if counts[name] else ""))
        counts[name] += 1
    return tuple(found)
