"""Bucketing: replace several collectives of parameters or gradients by one collective with a larger buffer.

The replaced collectives are a bucket. The tensors that these collectives send are copied into one buffer. After an
all-gather, the buffer contains all shards of the first rank, then all shards of the next rank. Each full tensor is
copied out of this buffer. After a reduction, the buffer contains complete results one after the other. Each result is a
view of this buffer. Collectives share a bucket only if all of them may be issued and waited for at one position between
two compute statements. A reduction in place, and any collective that must come before or after it because both access
the same memory, stays alone. Under these rules, every set of buckets keeps all dependencies between statements.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import torch

from workbench.analysis.cost.collective_overlap import PACK, UNPACK, layer_of_parameter
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    FutureTensorProxy,
    OperatorExecutor,
    TensorProxy,
    TraceCtx,
    TraceProvenance,
    from_trace,
    tracectx,
)
from workbench.compiler.memory.views_and_writes import reduces_in_place
from workbench.compiler.pipeline.collective_schedule import (
    COMPUTE_TIE,
    Collective,
    CollectiveRole,
    CollectiveSchedule,
    Key,
)
from workbench.errors import PlanError
from workbench.levers.waits import constraints

MIB = 1 << 20

_executor = OperatorExecutor("workbench_buckets")


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return a 1-D buffer with all elements of `tensors`, tensor by tensor, to gather or to all-reduce."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def pack_scatter(tensors: Sequence[torch.Tensor], ranks: int) -> torch.Tensor:
    """Return a 1-D buffer to reduce-scatter: the parts of all `tensors` for the first rank, then for the next rank."""
    return torch.cat([tensor.reshape(ranks, -1) for tensor in tensors], dim=1).view(-1)


def unpack(buffer: torch.Tensor, shapes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Return views of a reduced buffer, one tensor for each shape in `shapes`."""
    sizes = [math.prod(shape) for shape in shapes]
    return [part.view(tuple(shape)) for part, shape in zip(buffer.split(sizes), shapes, strict=True)]


def unpack_gather(buffer: torch.Tensor, shapes: Sequence[Sequence[int]], ranks: int) -> list[torch.Tensor]:
    """Return copies of the full tensors in a gathered buffer; `shapes` are the shapes of the full tensors."""
    sizes = [math.prod(shape) // ranks for shape in shapes]
    parts = buffer.view(ranks, -1).split(sizes, dim=1)
    # Use `clone`, because `reshape` would return a view of the buffer if there is only one rank.
    return [
        part.clone(memory_format=torch.contiguous_format).view(tuple(s)) for part, s in zip(parts, shapes, strict=True)
    ]


def _proxy_like(first: TensorProxy, shape: Sequence[int], name: str | None = None) -> TensorProxy:
    return TensorProxy(name=name, shape=tuple(shape), device=first.device, dtype=first.dtype, requires_grad=False)


def _pack_meta(tensors: Sequence[TensorProxy]) -> TensorProxy:
    return _proxy_like(tensors[0], (sum(_numel(t) for t in tensors),))


def _pack_scatter_meta(tensors: Sequence[TensorProxy], ranks: int) -> TensorProxy:
    return _pack_meta(tensors)


def _unpack_meta(buffer: TensorProxy, shapes: Sequence[Sequence[int]]) -> list[TensorProxy]:
    return [_proxy_like(buffer, shape) for shape in shapes]


def _unpack_gather_meta(buffer: TensorProxy, shapes: Sequence[Sequence[int]], ranks: int) -> list[TensorProxy]:
    return _unpack_meta(buffer, shapes)


_pack = _executor.register_operator(PACK, meta=_pack_meta, fn=pack)
_pack_scatter = _executor.register_operator(f"{PACK}_scatter", meta=_pack_scatter_meta, fn=pack_scatter)
_unpack = _executor.register_operator(UNPACK, meta=_unpack_meta, fn=unpack)
_unpack_gather = _executor.register_operator(f"{UNPACK}_gather", meta=_unpack_gather_meta, fn=unpack_gather)


@dataclasses.dataclass(frozen=True)
class BucketRule:
    """Rule that decides which collectives share a bucket.

    Attributes
    ----------
    limit_bytes : int
        Largest number of bytes of the full tensors in a bucket; 0 means no limit.
    by_layer : bool
        Whether a bucket may only contain collectives for parameters of one layer; see
        `workbench.analysis.cost.collective_overlap.layer_of_parameter`.
    """

    limit_bytes: int = 0
    by_layer: bool = False


def group_collectives(
    schedule: CollectiveSchedule, rule: BucketRule, alone: Collection[str] = ()
) -> list[list[Collective]]:
    """Return the buckets of a schedule that contain two or more collectives.

    Parameters
    ----------
    schedule : CollectiveSchedule
    rule : BucketRule
    alone : collection of str
        The `Collective.place` of each collective that no bucket may contain.

    Returns
    -------
    list of list of Collective
        Gathers in a bucket are in the order in which their results are first read. Reductions in a bucket are in the
        order in which their gradients are computed.
    """
    open_: defaultdict[Hashable, list[Collective]] = defaultdict(list)
    found: list[list[Collective]] = []

    def when(collective: Collective) -> tuple[int, int]:
        first = schedule.high[collective.wait] if collective.parameter else schedule.low[collective.issue]
        return first, collective.issue

    for collective in sorted(schedule.collectives, key=when):
        kind = _kind(schedule, collective)
        if kind is None or collective.place in alone:
            continue
        key = (kind, layer_of_parameter(collective.place) if rule.by_layer else "")
        bucket = open_[key]
        if bucket and not _fits(schedule, [*bucket, collective], rule):
            found.append(bucket)
            open_[key] = bucket = []
        bucket.append(collective)
    return [bucket for bucket in (*found, *open_.values()) if len(bucket) > 1]


def _fits(schedule: CollectiveSchedule, bucket: Sequence[Collective], rule: BucketRule) -> bool:
    size = sum(_full_bytes(schedule, collective) for collective in bucket)
    earliest = max(schedule.low[c.issue] for c in bucket)
    latest = min(schedule.high[c.wait] for c in bucket)
    return earliest <= latest and not 0 < rule.limit_bytes < size


def _kind(schedule: CollectiveSchedule, collective: Collective) -> Hashable | None:
    """Return a key that is equal for collectives that can share a bucket; None for a collective that must stay alone.

    A bucket has only gathers of parameters, or only reductions whose results the trace does not read. A reduction in
    place, and each collective that accesses its memory, stays alone. Therefore no collective of a bucket depends on
    another collective of the bucket.
    """
    if any(
        reduces_in_place(schedule.statements[other.issue])
        and (
            other is collective
            or other.wait in schedule.before[collective.issue]
            or collective.wait in schedule.before[other.issue]
        )
        for other in schedule.collectives
    ):
        return None
    bsym = schedule.statements[collective.issue]
    name, (sent, *rest) = bsym.sym.name, bsym.args
    gathers, reduces = "all_gather" in name, "reduce_scatter" in name or "all_reduce" in name
    if not ((gathers and collective.parameter) or (reduces and not collective.read)):
        return None
    if "all_reduce" not in name and rest[-1] not in (None, 0):
        # A tensor that is split along a dimension other than 0 cannot be in a bucket, because the part of each rank is
        # not contiguous in the full tensor.
        return None
    constants = tuple(id(a) if isinstance(a, torch.distributed.ProcessGroup) else str(a) for a in rest)
    return name, constants, str(sent.dtype), sent.device.device_str()


def _full_bytes(schedule: CollectiveSchedule, collective: Collective) -> int:
    sent = schedule.statements[collective.issue].args[0]
    return max(collective.nbytes, _numel(sent) * int(sent.dtype.bytes))


def _numel(proxy: Any) -> int:
    # Thunder does not update the `numel` of a parameter that it shards, so compute it from the shape.
    return math.prod(int(length) for length in proxy.shape)


def insert_buckets(trace: TraceCtx, schedule: CollectiveSchedule, buckets: Sequence[Sequence[Collective]]) -> TraceCtx:
    """Return the trace with four statements for each bucket: fill the buffer, collective, wait, take the results out.

    The first two statements are at the position of the last replaced collective. The other two statements are at the
    position of the first replaced wait.

    Raises
    ------
    PlanError
        If no order of the statements respects all dependencies. Buckets of `group_collectives` always have an order.
    """
    if not buckets:
        return trace
    named = from_trace(trace)
    named.names = set(trace.names)
    named.bound_symbols = list(trace.bound_symbols)
    count = len(schedule.statements)
    made: list[BoundSymbol] = []
    keys: list[Key] = [
        (i, COMPUTE_TIE if role is CollectiveRole.COMPUTE else 0, i, 0.0, i) for i, role in enumerate(schedule.roles)
    ]
    instead: dict[int, int] = {}
    """Maps the index of each removed statement to the index of its replacement."""
    members: list[tuple[list[int], list[int]]] = []
    for number, bucket in enumerate(buckets):
        at = count + 4 * number
        issues, waits = [c.issue for c in bucket], [c.wait for c in bucket]
        instead.update(dict.fromkeys(issues, at + 1))
        instead.update(dict.fromkeys(waits, at + 3))
        members.append((issues, waits))
        with tracectx(named):
            made += _statements([schedule.statements[i] for i in issues], [schedule.statements[w] for w in waits])
        keys += [(max(issues), 0, part, 0.0, at + part) for part in range(2)]
        keys += [(min(waits), 0, part, 0.0, at + part) for part in range(2, 4)]
    before: list[set[int]] = [{instead.get(e, e) for e in earlier} for earlier in schedule.before]
    for number, (issues, waits) in enumerate(members):
        at = count + 4 * number
        needed = set().union(*(before[i] for i in issues))
        held = set().union(*(before[w] for w in waits)) - {at + 1}
        before += [needed, {at}, held | {at + 1}, {at + 2}]
    whole = dataclasses.replace(
        schedule, statements=(*schedule.statements, *made), before=tuple(tuple(sorted(b)) for b in before)
    )
    gone = set(instead)
    order = [i for i in _drop_dependencies(whole, gone).arrange(keys) if i not in gone]
    if len(order) != len(whole.statements) - len(gone):
        raise PlanError(f"{len(buckets)} buckets of collectives: one of them would have to wait for itself")
    edited = constraints.reorder(named, whole, order)
    edited.set_provenance(TraceProvenance("Collectives in buckets"))
    return edited


def _drop_dependencies(schedule: CollectiveSchedule, removed: Collection[int]) -> CollectiveSchedule:
    """Return the schedule in which the removed statements wait for no other statement."""
    return dataclasses.replace(
        schedule, before=tuple(() if i in removed else before for i, before in enumerate(schedule.before))
    )


def _statements(issues: Sequence[BoundSymbol], waits: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    """Return the four statements of a bucket. The names of their new values are added to the current trace."""
    sent = [bsym.args[0] for bsym in issues]
    results = [bsym.flat_proxy_outs[0] for bsym in waits]
    shapes = [tuple(int(length) for length in result.shape) for result in results]
    collective, (_, *rest) = issues[0], issues[0].args
    name, total = collective.sym.name, sum(_numel(t) for t in sent)
    ranks = next(a for a in rest if isinstance(a, torch.distributed.ProcessGroup)).size()
    # Name the new values after the first result. The graph identifies values by name, so the names must be unique in
    # forward and backward together.
    one = results[0].name
    buffer = _proxy_like(sent[0], (total,), f"packed_{one}")
    into = (
        _pack_scatter.bind(sent, ranks, output=buffer) if "reduce_scatter" in name else _pack.bind(sent, output=buffer)
    )
    if "all_reduce" in name and len(rest) > 3:
        # Reduce in place, because no other statement reads the buffer.
        rest[3] = True
    full = total * ranks if "all_gather" in name else total // ranks if "reduce_scatter" in name else total
    future = FutureTensorProxy(f"sending_{one}", shape=(full,), device=buffer.device, dtype=buffer.dtype)
    arrived = _proxy_like(buffer, (full,), f"arrived_{one}")
    if "all_gather" in name:
        out_of = _unpack_gather.bind(arrived, shapes, ranks, output=results)
    else:
        out_of = _unpack.bind(arrived, shapes, output=results)
    return [
        into,
        collective.from_bsym(args=(buffer, *rest), output=future, subsymbols=()),
        waits[0].from_bsym(args=(future,), output=arrived, subsymbols=()),
        out_of,
    ]
