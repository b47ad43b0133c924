"""Convert Thunder traces to a `Graph`: tables of statements, values, storages and origins."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

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
from workbench.compiler.memory.views_and_writes import FactsCache, TraceFacts, trace_facts
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


class _Block(NamedTuple):
    """The rows of a statement and of its members. Names have numbers, in the order in which they first appear."""

    subsymbols: Any
    """The list of members from which the block was made."""
    rows: tuple[_StatementRow, ...]
    names: tuple[str, ...]
    proxies: tuple[Any, ...]
    """For each name, the first value with this name."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    """For all rows in order, the numbers of the names in `_StatementRow.read` and in `_StatementRow.made`."""


def _block_of(bsym: BoundSymbol) -> _Block:
    known = shared_of(bsym)
    found: _Block | None = known.get(_Block)
    if found is None or found.subsymbols is not bsym.subsymbols:
        bsyms = (bsym, *bsym.subsymbols) if bsym.sym.is_fusion else (bsym,)
        rows = tuple(map(_row_of, bsyms))
        first: dict[str, Any] = {}
        for each in bsyms:
            for proxy in (*each.flat_proxy_args, *each.flat_proxy_outs):
                first.setdefault(proxy.name, proxy)
        number = {name: at for at, name in enumerate(first)}
        found = known[_Block] = _Block(
            subsymbols=bsym.subsymbols,
            rows=rows,
            names=tuple(first),
            proxies=tuple(first.values()),
            inputs=tuple([number[name] for row in rows for name in row.read]),
            outputs=tuple([number[name] for row in rows for name in row.made]),
        )
    return found


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
        self.rows: list[_StatementRow] = []
        self.sides: list[int] = []
        self.parents: list[int] = []
        self.row_flags: list[int] = []
        self.transients: list[int] = []
        self.flops: list[int] = []
        self.computes: list[str] = []
        """The columns from `rows` to `computes` have one item for each row."""
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        """For all rows in order, the values that each row reads, and the values that each row makes."""
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
        row, block = len(self.rows), _block_of(bsym)
        value = [self.index.get(name, -1) for name in block.names]
        if -1 in value:
            value = [at if at >= 0 else self.value(proxy) for at, proxy in zip(value, block.proxies, strict=True)]
        members = len(block.rows) - 1
        self.last_top = row
        self.rows += block.rows
        self.sides += [side] * (members + 1)
        self.parents += [-1, *[row] * members]
        self.transients += [facts.transient_bytes[index], *[0] * members]
        self.flops += [facts.flops[index], *[0] * members]
        self.computes.append(facts.computes[index])
        self.inputs += [value[number] for number in block.inputs]
        outputs = [value[number] for number in block.outputs]
        self.outputs += outputs
        of_top = len(block.rows[0].made)
        for out in outputs[:of_top]:
            if out not in self.handed:
                self.handed.add(out)
                self.producer[out] = row
        for out in outputs[of_top:]:
            if self.producer[out] < 0:
                self.producer[out] = row
        tagged = [_origin_and_flags(bsym)]
        if bsym.sym.is_fusion:
            self.computes += facts.members[index]
            tagged += map(_origin_and_flags, bsym.subsymbols)
            tagged[0] = next((origin for origin, _ in tagged[1:] if origin >= 0), -1), tagged[0][1]
        self.origins += [origin for origin, _ in tagged]
        self.row_flags += [told.flags | flags for told, (_, flags) in zip(block.rows, tagged, strict=True)]
        if self.random:
            for at, each in enumerate((bsym, *bsym.subsymbols)[: members + 1], row):
                if not self.random.isdisjoint(made_names(each)):
                    self.row_flags[at] |= _RANDOM
        return block.rows[0].kind

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
        storage = [storages.storage_of.get(name, -1) for name in self.index]
        used = sorted({s for s in storage if s >= 0})
        renumbered = {s: i for i, s in enumerate(used)}
        roots = {s: self.index.get(storages.root[s], -1) for s in used}
        for value, s in enumerate(storage):
            if s >= 0 and roots[s] < 0:
                roots[s] = value
        inputs = Ragged.joined([len(row.read) for row in self.rows], self.inputs)
        outputs = Ragged.joined([len(row.made) for row in self.rows], self.outputs)
        flags = np.asarray(self.row_flags, np.int32)
        flags[_views(flags, inputs, outputs, np.asarray(storage, np.int64))] |= _VIEW
        traits = list(map(_traits, self.proxies))
        return Graph(
            stage=stage,
            statements=Statements(
                name=tuple([row.name for row in self.rows]),
                executor=tuple([row.executor for row in self.rows]),
                kind=np.asarray([row.kind for row in self.rows], np.int8),
                side=np.asarray(self.sides, np.int8),
                parent=np.asarray(self.parents, np.int32),
                origin=np.asarray(self.origins, np.int32),
                flags=flags,
                transient_bytes=np.asarray(self.transients, np.int64),
                flops=np.asarray(self.flops, np.int64),
                inputs=inputs,
                outputs=outputs,
                frees=Ragged.of([self.frees.get(row, ()) for row in range(len(self.rows))]),
                group=np.asarray([-1 if row.group is None else self._group(row.group) for row in self.rows], np.int32),
                computes=tuple(self.computes),
            ),
            values=Values(
                name=tuple(self.index),
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


def _views(flags: NDArray[np.int32], inputs: Ragged, outputs: Ragged, storage: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return, for each statement, whether it only makes views.

    Such a statement writes nothing, and each of its outputs is in the storage of an input.
    """
    rows = np.arange(len(flags))
    taken, given = ((np.repeat(rows, np.diff(each.offsets)), storage[each.items]) for each in (inputs, outputs))
    # Encode each pair of a row and a storage as one number.
    read, made = (row * (len(storage) + 1) + where for row, where in (taken, given))
    has_memory = given[1] >= 0
    shares = np.isin(made, read[taken[1] >= 0])
    several = np.bincount(given[0][has_memory], minlength=len(flags)) > 0
    new = np.bincount(given[0][has_memory & ~shares], minlength=len(flags)) > 0
    found: NDArray[np.bool_] = several & ~new & ((flags & _INPLACE) == 0)
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
        See `workbench.compiler.memory.views_and_writes.trace_facts`.
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
        if has_backward and BACKWARD in builder.sides:
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
    """Return the fields of `StepBoundary` that describe accumulated gradients."""
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
