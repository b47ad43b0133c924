"""Convert Thunder traces to a `Graph`: tables of statements, values, storages and origins."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from workbench.analysis.memory.allocator import storage_bytes
from workbench.compiler.interop.thunder_api import (
    COLLECTIVES,
    WAITS,
    BoundSymbol,
    BoundSymbolTag,
    FutureTensorProxy,
    Proxy,
    TensorProxy,
    TraceCtx,
    prims,
    tracectx,
    tree_flatten,
)
from workbench.compiler.memory.grad_accumulation import Accumulated, accumulated_gradients
from workbench.compiler.memory.offload import ARRIVE, OFFLOAD, RELOAD
from workbench.compiler.memory.op_effects import FactsCache, TraceFacts, trace_facts
from workbench.compiler.trace.bsym_memo import made_names, read_names, shared_of, structure_of
from workbench.compiler.trace.proxy_traits import Traits, shape_of, storage_bytes_of, traits_of
from workbench.compiler.trace.stable_ids import CLONE_PREFIX, OriginTag, is_statement
from workbench.compiler.trace.tags import has_tag
from workbench.core.graph import (
    BACKWARD,
    FORWARD,
    Graph,
    Kind,
    Origin,
    Ragged,
    StatementFlag,
    Statements,
    StepBoundary,
    Storages,
    ValueFlag,
    Values,
)

if TYPE_CHECKING:
    from workbench.compiler.pipeline.lever_context import LeverContext

IGNORED = "_ignored"
"""Name suffix of zeros that autograd makes as the gradient of an output, if the backward does not read this gradient.
"""

_KINDS = {
    "copy_": Kind.COPY,
    "update_aliases": Kind.FENCE,
    "get_grad": Kind.GET_GRAD,
    **dict.fromkeys(WAITS, Kind.WAIT),
}


def _kind(bsym: BoundSymbol) -> Kind:
    name = bsym.sym.name
    if bsym.sym.is_fusion:
        return Kind.FUSION
    if name in _KINDS:
        return _KINDS[name]
    if name in COLLECTIVES:
        return Kind.COLLECTIVE
    if name.startswith(OFFLOAD):
        return Kind.OFFLOAD
    return Kind.RELOAD if name.startswith((RELOAD, ARRIVE)) else Kind.OP


def _writes(bsym: BoundSymbol) -> bool:
    return bsym.sym.name == "copy_" or any(_writes(sub) for sub in bsym.subsymbols)


def display_name(bsym: BoundSymbol) -> str:
    """Return the name of a statement's symbol as Thunder prints it, such as ``torch.sum``."""
    module = bsym.sym._module.__name__ if bsym.sym._module is not None else ""
    return f"{module.rsplit('.', 1)[-1]}.{bsym.sym.name}" if module.startswith("torch") else str(bsym.sym.name)


_CLONE = int(StatementFlag.CLONE)


class _StatementSummary(NamedTuple):
    """Properties of a statement that stay the same if its values are renamed or its tags change."""

    name: str
    executor: str
    kind: int
    flags: int
    group: Any


class _StatementRow(NamedTuple):
    """Properties of a statement that stay the same if other statements or its tags change."""

    name: str
    executor: str
    kind: int
    flags: int
    group: Any
    read: tuple[str, ...]
    """Names of the statement's inputs, without repetitions."""
    made: tuple[str, ...]
    """Names of the statement's outputs that are not also inputs, without repetitions."""


def _row_of(bsym: BoundSymbol) -> _StatementRow:
    known = shared_of(bsym)
    found: _StatementRow | None = known.get(_StatementRow)
    if found is None:
        told: _StatementSummary = structure_of(bsym).get_or_make("told", lambda: _summarize(bsym))
        # The summary is shared by equal fusions, but the name of each fusion contains a different number.
        name = display_name(bsym) if bsym.sym.is_fusion else told.name
        read, made, flags = _unique(read_names(bsym)), _unique(made_names(bsym)), told.flags
        for each in made:
            if each.startswith(CLONE_PREFIX):
                flags |= _CLONE
        if not set(read).isdisjoint(made):
            made = tuple([each for each in made if each not in read])
        found = known[_StatementRow] = _StatementRow(name, told.executor, told.kind, flags, told.group, read, made)
    return found


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    return names if len(names) < 2 else tuple(dict.fromkeys(names))


def _summarize(bsym: BoundSymbol) -> _StatementSummary:
    executor = bsym.sym.executor
    return _StatementSummary(
        display_name(bsym),
        str(executor.name) if executor is not None else "",
        int(_kind(bsym)),
        _flags(bsym),
        next((a for a in bsym.flat_args if isinstance(a, torch.distributed.ProcessGroup)), None),
    )


_FLAG_OF_TAG = {
    prims.OpTags.RANDOM_OP: int(StatementFlag.RANDOM),
    prims.OpTags.REDUCTION_OP: int(StatementFlag.REDUCTION),
    prims.OpTags.MATMUL_OP: int(StatementFlag.MATMUL),
}


def _flags(bsym: BoundSymbol) -> int:
    """Return the flags of a statement that follow from its symbol and its subsymbols."""
    flags = int(StatementFlag.INPLACE) if _writes(bsym) else 0
    for tag, flag in _FLAG_OF_TAG.items():
        if tag in (bsym.sym.tags or ()) or any(has_tag(sub, tag) for sub in bsym.subsymbols):
            flags |= flag
    return flags


def _origin_and_flags(bsym: BoundSymbol) -> tuple[int, int]:
    """Return the index of a statement's origin (-1 if it has none), and the flags that follow from its own tags."""
    origin, flags = -1, 0
    for tag in bsym.tags:
        if type(tag) is OriginTag:
            origin = tag.index
        elif type(tag) is prims.OpTags:
            flags |= _FLAG_OF_TAG.get(tag, 0)
    return origin, flags


_TENSOR, _REQUIRES_GRAD = int(ValueFlag.TENSOR), int(ValueFlag.REQUIRES_GRAD)
_INPLACE = int(StatementFlag.INPLACE)
_RANDOM, _VIEW = int(StatementFlag.RANDOM), int(StatementFlag.VIEW)


_COLUMNS = (
    *("name", "executor", "kind", "side", "parent", "flags", "transient", "flops"),
    *("inputs", "outputs", "group", "computes"),
)
_SIDE, _KIND = _COLUMNS.index("side"), _COLUMNS.index("kind")
_NO_ROWS: dict[str, tuple[Any, ...]] = dict.fromkeys(_COLUMNS, ())


class _Builder:
    """Collects the rows of the graph's tables, statement by statement."""

    def __init__(self, random: frozenset[str]) -> None:
        self.random = random
        self.index: dict[str, int] = {}
        self.proxies: list[Any] = []
        self.flags: list[int] = []
        self.producer: list[int] = []
        self.handed: set[int] = set()
        """Indices of the outputs of statements. A value that exists only inside of fusions is not included, because
        several fusions may compute it.
        """
        self.rows: list[tuple[Any, ...]] = []
        """One tuple for each statement, in the order of `_COLUMNS`. Appending one tuple is faster than appending to one
        list for each column.
        """
        self.origins: list[int] = []
        self.frees: dict[int, list[int]] = {}
        self.group_ranks: dict[torch.distributed.ProcessGroup, int] = {}
        self.last_top = -1

    def value(self, proxy: Any, flags: int = 0) -> int:
        """Return the index of a value, and add the value if it is new."""
        found = self.index.get(proxy.name)
        if found is None:
            found = self.index[proxy.name] = len(self.proxies)
            self.proxies.append(proxy)
            if isinstance(proxy, (TensorProxy, FutureTensorProxy)):
                flags |= _TENSOR
            if getattr(proxy, "requires_grad", False):
                flags |= _REQUIRES_GRAD
            self.flags.append(flags)
            self.producer.append(-1)
        else:
            self.flags[found] |= flags
        return found

    def add_statement(self, bsym: BoundSymbol, side: int, facts: TraceFacts, index: int) -> int:
        """Add a statement and its members, and return the statement's kind.

        Parameters
        ----------
        index : int
            Position of the statement in the lists of `facts`.
        """
        row = self._row(bsym, side, -1, facts.transient_bytes[index], facts.flops[index], facts.computes[index])
        self.last_top = row
        if bsym.sym.is_fusion:
            for member, computed in zip(bsym.subsymbols, facts.members[index], strict=True):
                self._row(member, side, row, 0, 0, computed)
            self.origins[row] = next((o for o, _ in map(_origin_and_flags, bsym.subsymbols) if o >= 0), -1)
        return int(self.rows[row][_KIND])

    def _row(self, bsym: BoundSymbol, side: int, parent: int, transient: int, flops: int, computed: str) -> int:
        row, index, told = len(self.rows), self.index, _row_of(bsym)
        try:
            inputs = [index[name] for name in told.read]
        except KeyError:
            inputs = list(dict.fromkeys([self.value(arg) for arg in bsym.flat_proxy_args]))
        try:
            outputs = [index[name] for name in told.made]
        except KeyError:
            made = {out.name: out for out in reversed(bsym.flat_proxy_outs)}
            outputs = [self.value(made[name]) for name in told.made]
        for out in outputs:
            if parent < 0 and out not in self.handed:
                self.handed.add(out)
                self.producer[out] = row
            elif self.producer[out] < 0:
                self.producer[out] = parent
        origin, flags = _origin_and_flags(bsym)
        flags |= told.flags
        if not self.random.isdisjoint(made_names(bsym)):
            flags |= _RANDOM
        group = -1 if told.group is None else self._group(told.group)
        self.rows.append(
            (
                *(told.name, told.executor, told.kind, side, parent, flags, transient, flops),
                *(inputs, outputs, group, computed),
            )
        )
        self.origins.append(origin)
        return row

    def _group(self, group: torch.distributed.ProcessGroup) -> int:
        """Return the index of a process group, and add the group if it is new."""
        self.group_ranks.setdefault(group, group.size())
        return list(self.group_ranks).index(group)

    def free(self, names: Iterable[str]) -> None:
        """Record that values are freed after the last added statement; do nothing before the first statement."""
        row = max(self.last_top, 0)
        if self.rows:
            self.frees.setdefault(row, []).extend(self.index[name] for name in names if name in self.index)

    def values(self, tree: Any) -> tuple[int, ...]:
        """Return the index of the value of each leaf of `tree`; -1 for a leaf that is not in the table of values."""
        leaves = (leaf.name if isinstance(leaf, Proxy) else "" for leaf in tree_flatten(tree)[0])
        return tuple(self.index.get(name, -1) for name in leaves)

    def build(self, stage: str, storages: TraceFacts, origins: tuple[Origin, ...], ends: StepBoundary) -> Graph:
        """Return the graph of all statements and values that were added."""
        storage = [storages.storage_of.get(proxy.name, -1) for proxy in self.proxies]
        used = sorted({s for s in storage if s >= 0})
        renumbered = {s: i for i, s in enumerate(used)}
        roots = {s: self.index.get(storages.root[s], -1) for s in used}
        for value, s in enumerate(storage):
            if s >= 0 and roots[s] < 0:
                roots[s] = value
        column = dict(zip(_COLUMNS, zip(*self.rows, strict=True), strict=True)) if self.rows else _NO_ROWS
        view = _views(column["flags"], column["inputs"], column["outputs"], storage)
        flags = [f | (_VIEW if is_view else 0) for f, is_view in zip(column["flags"], view, strict=True)]
        traits = list(map(_traits, self.proxies))
        return Graph(
            stage=stage,
            statements=Statements(
                name=column["name"],
                executor=column["executor"],
                kind=np.asarray(column["kind"], np.int8),
                side=np.asarray(column["side"], np.int8),
                parent=np.asarray(column["parent"], np.int32),
                origin=np.asarray(self.origins, np.int32),
                flags=np.asarray(flags, np.int32),
                transient_bytes=np.asarray(column["transient"], np.int64),
                flops=np.asarray(column["flops"], np.int64),
                inputs=Ragged.of(column["inputs"]),
                outputs=Ragged.of(column["outputs"]),
                frees=Ragged.of([self.frees.get(row, ()) for row in range(len(self.rows))]),
                group=np.asarray(column["group"], np.int32),
                computes=column["computes"],
            ),
            values=Values(
                name=tuple([proxy.name for proxy in self.proxies]),
                shape=tuple([each.shape for each in traits]),
                dtype=tuple([each.dtype for each in traits]),
                device=tuple([each.device for each in traits]),
                storage=np.asarray([renumbered.get(s, -1) for s in storage], np.int32),
                producer=np.asarray(self.producer, np.int32),
                bytes=np.asarray([each.bytes for each in traits], np.int64),
                flags=np.asarray(self.flags, np.int32),
            ),
            storages=Storages(
                bytes=np.asarray([storages.storage_bytes[s] for s in used], np.int64),
                root=np.asarray([roots[s] for s in used], np.int32),
            ),
            origins=origins,
            groups=tuple(self.group_ranks.values()),
            ends=ends,
        )


def _views(
    flags: Sequence[int], inputs: Sequence[list[int]], outputs: Sequence[list[int]], storage: Sequence[int]
) -> list[bool]:
    """Return, for each statement, whether it only makes views.

    Such a statement writes nothing, and each of its outputs is in the storage of an input.
    """
    found = []
    for flag, taken, made in zip(flags, inputs, outputs, strict=True):
        kept = [storage[v] for v in made if storage[v] >= 0]
        given = [storage[v] for v in taken] if kept and not flag & _INPLACE else ()
        found.append(bool(given) and all(s in given for s in kept))
    return found


def _traits(proxy: Any) -> Traits:
    """Return the properties of a value for the graph. For a value that is not a tensor, only the shape is set."""
    if isinstance(proxy, TensorProxy):
        return traits_of(proxy)
    return Traits(shape_of(proxy), 0, "", "")


def _arguments(trace: TraceCtx) -> list[Any]:
    return [
        out
        for bsym in trace.bound_symbols
        if bsym.sym.id is prims.PrimIDs.UNPACK_TRIVIAL
        for out in bsym.flat_proxy_outs
        if isinstance(out, TensorProxy)
    ]


def _return(trace: TraceCtx) -> BoundSymbol:
    return trace.bound_symbols[-1]


def read_joint(
    trace: TraceCtx,
    origins: tuple[Origin, ...],
    random: frozenset[str],
    *,
    cache: FactsCache | None = None,
    arguments: Mapping[str, torch.Tensor] | None = None,
    unread: Mapping[str, torch.Tensor] = MappingProxyType({}),
    beside: frozenset[str] = frozenset(),
) -> Graph:
    """Return the graph of a claimed joint trace.

    Thunder tags the statements of the backward; all others are statements of the forward. The graph does not show where
    values are freed, because the joint trace has no deletions.

    Parameters
    ----------
    trace : TraceCtx
    origins : tuple of Origin
    random : frozenset of str
        Names of the outputs of random operators.
    cache, arguments
        See `workbench.compiler.memory.op_effects.trace_facts`.
    unread, beside
        See `LeverContext`.
    """
    found = trace_facts(trace, cache=cache, arguments=arguments)
    builder = _Builder(random)
    for proxy in _arguments(trace):
        builder.value(proxy, ValueFlag.ARGUMENT)
    for i, bsym in enumerate(trace.bound_symbols):
        if is_statement(bsym):
            side = BACKWARD if BoundSymbolTag.BACKWARD in bsym.tags else FORWARD
            if builder.add_statement(bsym, side, found, i) == Kind.GET_GRAD:
                for out in bsym.flat_proxy_outs:
                    builder.value(out, ValueFlag.COTANGENT)
    returned = _return(trace).args[0]
    ends = StepBoundary(outputs=builder.values(returned))
    if isinstance(returned, dict):
        has_backward, past = "fw_flat_out" in returned, frozenset[str]()
        if has_backward and any(row[_SIDE] == BACKWARD for row in builder.rows):
            asked_for = Counter(b.args[0].name for b in trace.bound_symbols if b.sym.id is prims.PrimIDs.GET_GRAD)
            given: Counter[str] = Counter()
            ignored = []
            for output in (o for o in returned["fw_flat_out"] if isinstance(o, TensorProxy)):
                given[output.name] += 1
                # If the program returns a value twice, Thunder's backward reads only the gradient of the first
                # occurrence.
                if given[output.name] > asked_for[output.name]:
                    ignored.append(output)
            _enter_ignored(builder, found, ignored)
            past = _enter_passed_gradients(builder, found, returned["fw_flat_out"], returned["flat_args"], beside)
        _mark(builder, returned["fw_flat_out"] if has_backward else returned["output"], ValueFlag.OUTPUT)
        if has_backward:
            _mark(builder, returned["output"], ValueFlag.GRADIENT)
        # If the program changes an argument in place, the returned `flat_args` contain the argument's new value.
        _mark(builder, returned.get("flat_args", ()), ValueFlag.ARGUMENT)
        ends = StepBoundary(outputs=builder.values(returned["fw_flat_out" if has_backward else "output"]))
        if has_backward:
            gradients = returned["output"]
            known = accumulated_gradients(gradients, returned["flat_args"], found, arguments or {}, past)
            ends = dataclasses.replace(
                ends, gradients=builder.values(gradients), **_accumulation_columns(builder, known)
            )
    return _add_unread(builder.build("joint", found, origins, ends), unread)


def _enter_ignored(builder: _Builder, facts: TraceFacts, outputs: Sequence[Any]) -> None:
    """Add the zeros that autograd makes as the gradient of the last output in `outputs`.

    The backward does not read the gradients of `outputs`, but autograd passes zeros for each gradient. The backward
    assigns all of these zeros to one name. Therefore only the zeros of the last output stay alive until the backward
    ends. The other zeros are freed before the first statement of the backward, and are not added.
    """
    for output in outputs[-1:]:
        with tracectx(TraceCtx(None)):
            zeros = output.replace_name(output.name + IGNORED)
        facts.storage_of[zeros.name] = len(facts.storage_bytes)
        facts.storage_bytes.append(storage_bytes_of(zeros))
        facts.root.append(zeros.name)
        builder.value(zeros, ValueFlag.COTANGENT)


def _enter_passed_gradients(
    builder: _Builder,
    facts: TraceFacts,
    outputs: Sequence[Any],
    arguments: Sequence[Any],
    beside: Collection[str],
) -> frozenset[str]:
    """Add the gradients that bypass the backward, and return the names of the arguments that get such gradients.

    If an output is an unchanged argument, autograd passes the output's gradient directly to the argument, and passes
    zeros to the backward. Autograd adds the gradient from the backward later. The arguments in `beside` get such
    gradients too: the program returns them unchanged, but the trace does not return them. If all outputs are unchanged
    arguments, the backward does not run, and this function adds nothing.
    """
    given = {facts.tensor_of[each.name] for each in outputs if isinstance(each, TensorProxy)}
    tensors = [each for each in arguments if isinstance(each, TensorProxy)]
    if given <= {facts.tensor_of[each.name] for each in tensors}:
        return frozenset()
    given |= {facts.tensor_of[each.name] for each in tensors if each.name in beside}
    past = {}
    for argument in arguments:
        if isinstance(argument, TensorProxy) and argument.requires_grad and facts.tensor_of[argument.name] in given:
            past[facts.tensor_of[argument.name]] = argument
    for argument in past.values():
        with tracectx(TraceCtx(None)):
            waiting = argument.replace_name(f"{argument.name}_past")
        facts.storage_of[waiting.name] = len(facts.storage_bytes)
        facts.storage_bytes.append(storage_bytes_of(waiting))
        facts.root.append(waiting.name)
        builder.value(waiting, ValueFlag.COTANGENT | ValueFlag.GRADIENT)
    return frozenset(argument.name for argument in past.values())


def _mark(builder: _Builder, tree: Any, flag: ValueFlag) -> None:
    for proxy in tree_flatten(tree)[0]:
        if isinstance(proxy, TensorProxy) and proxy.name in builder.index:
            builder.value(proxy, flag)


def read_execution(
    forward: TraceCtx,
    backward: TraceCtx | None,
    context: LeverContext,
) -> Graph:
    """Return the graph of the execution traces, forward before backward. The graph shows where each value is freed."""
    first = trace_facts(forward, cache=context.cache, arguments=context.arguments)
    builder = _Builder(context.random)
    for proxy in _arguments(forward):
        builder.value(proxy, ValueFlag.ARGUMENT)
    _read_side(builder, forward, FORWARD, first, 0)
    found = first
    returned = _return(forward).args
    if backward is None:
        output = returned[0]["output"] if isinstance(returned[0], dict) else returned
        _mark(builder, output, ValueFlag.OUTPUT)
        ends = StepBoundary(outputs=builder.values(output))
    else:
        _mark(builder, returned[0]["output"], ValueFlag.OUTPUT)
        _mark(builder, returned[1][0], ValueFlag.SAVED)
        found = trace_facts(backward, cache=context.cache, earlier=first)
        for proxy in backward.args[1]:
            if isinstance(proxy, TensorProxy):
                builder.value(proxy, ValueFlag.COTANGENT)
        _read_side(builder, backward, BACKWARD, found, 0)
        given = zip(returned[0]["flat_output"], backward.args[1], strict=True)
        _enter_ignored(
            builder, found, [o for o, c in given if isinstance(o, TensorProxy) and not isinstance(c, TensorProxy)]
        )
        _mark(builder, _return(backward).args, ValueFlag.GRADIENT)
        handed = [
            pair
            for given, taken in zip(returned[1], _received_values(backward), strict=False)
            for pair in zip(given, taken, strict=False)
        ]
        for proxy in (leaf for pair in handed for leaf in pair if isinstance(leaf, Proxy)):
            builder.value(proxy)
        gradients = _return(backward).args[0]
        past = _enter_passed_gradients(
            builder, found, returned[0]["flat_output"], returned[0]["flat_args"], context.beside
        )
        known = accumulated_gradients(gradients, returned[0]["flat_args"], found, context.arguments, past)
        ends = StepBoundary(
            outputs=builder.values(returned[0]["flat_output"]),
            cotangents=builder.values(backward.args[1]),
            given=builder.values([given for given, _ in handed]),
            received=builder.values([taken for _, taken in handed]),
            gradients=builder.values(gradients),
            **_accumulation_columns(builder, known),
        )
    graph = _add_unread(builder.build("execution", found, context.origins, ends), context.unread)
    return dataclasses.replace(graph, layer_differences=context.layer_differences)


def _add_unread(graph: Graph, unread: Mapping[str, torch.Tensor]) -> Graph:
    """Return the graph with one more argument for each tensor in `unread`, each in its own storage."""
    if not unread:
        return graph
    values, storages, tensors = graph.values, graph.storages, list(unread.values())
    count = len(tensors)
    return dataclasses.replace(
        graph,
        values=Values(
            name=(*values.name, *unread),
            shape=(*values.shape, *(tuple(map(int, tensor.shape)) for tensor in tensors)),
            dtype=(*values.dtype, *(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)),
            device=(*values.device, *(str(tensor.device) for tensor in tensors)),
            storage=np.append(values.storage, np.arange(count, dtype=np.int32) + np.int32(len(storages))),
            producer=np.append(values.producer, np.full(count, -1, np.int32)),
            bytes=np.append(values.bytes, np.asarray([tensor.nbytes for tensor in tensors], np.int64)),
            flags=np.append(values.flags, np.full(count, ValueFlag.ARGUMENT | ValueFlag.TENSOR, np.int32)),
        ),
        storages=Storages(
            bytes=np.append(storages.bytes, np.asarray(list(map(storage_bytes, tensors)), np.int64)),
            root=np.append(storages.root, np.arange(count, dtype=np.int32) + np.int32(len(values))),
        ),
    )


def _accumulation_columns(builder: _Builder, gradients: Sequence[Accumulated]) -> dict[str, tuple[int, ...]]:
    """Return the fields of `StepBoundary` that describe gradients that autograd accumulates."""
    return {
        "accumulated": builder.values([one.gradient for one in gradients]),
        "copied_bytes": tuple(one.copied_bytes for one in gradients),
        "copying_bytes": tuple(one.copying_bytes for one in gradients),
    }


def _received_values(backward: TraceCtx) -> list[list[Any]]:
    """Return, for each list that the forward saves, the values that the backward unpacks from this list."""
    unpacked = {
        bsym.args[0].name: bsym.output
        for bsym in backward.bound_symbols
        if bsym.sym.id is prims.PrimIDs.UNPACK_SEQUENCE and isinstance(bsym.args[0], Proxy)
    }
    return [list(unpacked.get(each.name, ())) for each in unpacked.get("saved_for_backward", ())]


def _read_side(builder: _Builder, trace: TraceCtx, side: int, facts: TraceFacts, start: int) -> None:
    for i, bsym in enumerate(trace.bound_symbols, start):
        if bsym.sym.id is prims.PrimIDs.DEL:
            builder.free(arg.name for arg in bsym.flat_proxy_args)
        elif is_statement(bsym):
            builder.add_statement(bsym, side, facts, i)
