"""Find how far the collectives of a split or joint trace may move, and reorder the trace.

A split trace is a forward or a backward trace. Compute statements keep their order. A collective, its producers, its
wait and the views of the result may move between compute statements. Every order respects all dependencies: a statement
depends on the statements that make its inputs and, if memory is written in place, on earlier accesses to this memory.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.cost.collective_overlap import PACK
from workbench.compiler.interop.thunder_api import (
    WAITS,
    BoundSymbol,
    BoundSymbolTag,
    CollectionProxy,
    FutureTensorProxy,
    Proxy,
    TensorProxy,
    TraceCtx,
    TraceProvenance,
    TraceTag,
    clear_mutable_collection,
    comment_symbols,
    from_trace,
    prims,
    tree_flatten,
)
from workbench.compiler.memory.op_effects import reduces_in_place, trace_facts
from workbench.compiler.pipeline.lever_context import LeverContext
from workbench.compiler.trace import copy_sets
from workbench.compiler.trace.proxy_traits import bytes_of, is_tensor
from workbench.compiler.trace.stable_ids import CLONE_PREFIX, is_statement
from workbench.compiler.trace.tags import has_tag

type Key = tuple[int, int, int, float, int]
"""Requested position of a statement: its slot (the number of compute statements before it), and four tie breakers."""

COMPUTE_TIE = 9
"""Second part of the key of a compute statement. This part is larger than in the keys of other statements. Therefore,
all other statements of a slot precede the compute statement of the slot.
"""

UNPACK = "bucket_unpack"
"""Name prefix of statements that take tensors out of a bucket's buffer. Names of statements that fill the buffer begin
with `PACK`.
"""

_SHAPES = (
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


class CollectiveRole(Enum):
    """Role of a statement. The role determines how the statement may move."""

    COMPUTE = "compute"
    ISSUE = "issue"
    WAIT = "wait"
    VIEW = "view"
    """A statement that only reshapes the result of a wait, or takes the results out of a bucket."""
    PRODUCER = "producer"
    """A statement that only prepares the data of a collective. It has one input tensor, such as a gradient to divide,
    or it fills a bucket.
    """


@dataclasses.dataclass(frozen=True)
class Collective:
    """A collective of a trace.

    Attributes
    ----------
    place : str
        Stable id. It contains the name of the parameter that is gathered or whose gradient is reduced, or else the id
        of the sent value.
    issue, wait : int
        Indices in `CollectiveSchedule.statements` of the statements that start the collective and wait for it.
    producers : tuple of int
        Indices of the statements that only prepare the collective's data.
    result : str
        Name of the value that the wait returns.
    nbytes : int
        Bytes of the result.
    read : bool
        Whether a statement of this trace reads the result; False if the result is only returned.
    parameter : bool
        Whether the sent value is an argument of the program, or producers compute it only from arguments.
    """

    place: str
    issue: int
    wait: int
    producers: tuple[int, ...]
    result: str
    nbytes: int
    read: bool
    parameter: bool = False


@dataclasses.dataclass(frozen=True)
class CollectiveSchedule:
    """The statements of a split or joint trace, and their ordering constraints.

    Attributes
    ----------
    statements : tuple of BoundSymbol
        The statements in the order of the trace, without unpacking, deletions and the `return`.
    roles : tuple of CollectiveRole
    before : tuple of tuple of int
        For each statement, the indices of the statements that must precede it.
    slot : tuple of int
        For each statement, the number of compute statements before it in the trace.
    low, high : tuple of int
        Smallest and largest slot that each statement may have.
    names, outputs : tuple of str
        For each compute statement, its unique name in options ``at(NAME)``, and the name of its first output.
    collectives : tuple of Collective
        In the order of their issues.
    """

    statements: tuple[BoundSymbol, ...]
    roles: tuple[CollectiveRole, ...]
    before: tuple[tuple[int, ...], ...]
    slot: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    collectives: tuple[Collective, ...]

    def arrange(self, keys: Sequence[Key]) -> list[int]:
        """Return the indices of the statements, in an order that follows `keys` as far as dependencies allow.

        The next statement in the order always has the smallest key among the statements whose predecessors are placed.
        """
        order = sorted(range(len(keys)), key=keys.__getitem__)
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        earlier, later = self._pairs
        if (place[earlier] < place[later]).all():
            return order
        missing = [len(before) for before in self.before]
        ready = [(keys[i], i) for i, count in enumerate(missing) if not count]
        heapq.heapify(ready)
        order.clear()
        while ready:
            _, statement = heapq.heappop(ready)
            order.append(statement)
            for freed in self._followers[statement]:
                missing[freed] -= 1
                if not missing[freed]:
                    heapq.heappush(ready, (keys[freed], freed))
        return order

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """For each dependency, the earlier statement (first array) and the later statement (second array)."""
        later = np.repeat(np.arange(len(self.before)), [len(before) for before in self.before])
        return np.asarray([e for before in self.before for e in before], np.intp), later

    @cached_property
    def _followers(self) -> tuple[tuple[int, ...], ...]:
        """For each statement, the statements that must follow it."""
        after: list[list[int]] = [[] for _ in self.statements]
        for earlier, later in zip(*(ends.tolist() for ends in self._pairs), strict=True):
            after[earlier].append(later)
        return tuple(map(tuple, after))


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


def _tensors(proxies: Sequence[Any]) -> list[Any]:
    return [p for p in proxies if is_tensor(p)]


def _roles(statements: Sequence[BoundSymbol], returned: set[str]) -> list[CollectiveRole]:
    roles = [CollectiveRole.COMPUTE] * len(statements)
    made: dict[str, int] = {}
    readers: defaultdict[str, list[int]] = defaultdict(list)
    for i, bsym in enumerate(statements):
        for arg in bsym.flat_proxy_args:
            readers[arg.name].append(i)
        made.update((out.name, i) for out in bsym.flat_proxy_outs if out.name not in made)
        tensors = _tensors(bsym.flat_proxy_args)
        if bsym.sym.name in WAITS:
            roles[i] = CollectiveRole.WAIT
        elif any(isinstance(out, FutureTensorProxy) for out in bsym.flat_proxy_outs):
            roles[i] = CollectiveRole.ISSUE
        elif (bsym.sym.name in _SHAPES or bsym.sym.name.startswith(UNPACK)) and tensors:
            sources = [roles[made[t.name]] if t.name in made else CollectiveRole.COMPUTE for t in tensors]
            if all(role in (CollectiveRole.WAIT, CollectiveRole.VIEW) for role in sources):
                roles[i] = CollectiveRole.VIEW
    for i in reversed(range(len(statements))):
        bsym = statements[i]
        read = [r for out in bsym.flat_proxy_outs for r in readers[out.name]]
        if (
            roles[i] is CollectiveRole.COMPUTE
            and read
            and all(roles[r] in (CollectiveRole.ISSUE, CollectiveRole.PRODUCER) for r in read)
            and not any(out.name in returned for out in bsym.flat_proxy_outs)
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
        before[i].update(made[a.name] for a in bsym.flat_proxy_args if a.name in made)
        made.update((out.name, i) for out in bsym.flat_proxy_outs if out.name not in made)
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
    made = {out.name: i for i, b in reversed(list(enumerate(statements))) for out in b.flat_proxy_outs}
    arguments = [
        out.name
        for b in context.claimed.bound_symbols
        if b.sym.id is prims.PrimIDs.UNPACK_TRIVIAL
        for out in b.flat_proxy_outs
    ]
    gradients = trace.bound_symbols[-1].flat_args if TraceTag.BACKWARD in trace.tags else ()
    gradient_of = {
        gradient.name: argument
        for argument, gradient in zip(arguments, gradients, strict=False)
        if isinstance(gradient, TensorProxy)
    }
    readers: defaultdict[str, list[int]] = defaultdict(list)
    for i, bsym in enumerate(statements):
        for arg in bsym.flat_proxy_args:
            readers[arg.name].append(i)
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
                place=_collective_id(bsym, sent, names, set(arguments), gradient_of, context, trace),
                issue=issue,
                wait=wait,
                producers=tuple(producers),
                result=result.name,
                nbytes=bytes_of(result),
                read=any(roles[r] is not CollectiveRole.VIEW for name in names for r in readers[name]),
                parameter=all(name in arguments for name in sent),
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
    arguments: set[str],
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
