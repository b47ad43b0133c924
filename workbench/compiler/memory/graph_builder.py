"""Convert Thunder traces to a `Graph`: tables of statements, values, storages and origins."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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
from workbench.compiler.memory.views_and_writes import (
    FactsCache,
    SegmentEffects,
    StatementEffects,
    TraceFacts,
    trace_facts,
)
from workbench.compiler.trace.bsym_memo import identity, made_names, read_names, shared_of, structure_of
from workbench.compiler.trace.proxy_traits import Traits, shape_of, storage_bytes_of, traits_of
from workbench.compiler.trace.segments import Segment
from workbench.compiler.trace.stable_ids import CLONE_PREFIX, OriginTag, is_statement
from workbench.compiler.trace.tags import has_tag
from workbench.core.graph import (
    BACKWARD,
    FORWARD,
    BlockKey,
    Blocks,
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
_UNMEASURED = int(StatementFlag.UNMEASURED)


class _Block(NamedTuple):
    """The rows of consecutive statements and of their members. Names have numbers, in order of first appearance."""

    key: BlockKey
    names: tuple[str, ...]
    flags: tuple[int, ...]
    """For each name, the flags of this value."""
    traits: tuple[Traits, ...]
    """For each name, the properties of this value."""
    row_names: tuple[str, ...]
    executors: tuple[str, ...]
    groups: tuple[tuple[int, Any], ...]
    """The rows with a process group, counted from the first row, and the group."""
    computes: tuple[str, ...]
    columns: dict[str, NDArray[Any]]
    """Columns of numbers of `rows`. Parents are counted from the first row; inputs and outputs are numbers of names."""
    last_top: int
    """The last row that is not a member; -1 if there is none."""
    frees: tuple[tuple[int, tuple[tuple[str, bool], ...]], ...]
    """For each deletion, the last row before it that is not a member (-1 before the first row); and the freed names,
    each with whether a row before the deletion has it.
    """


def _block_of(bsyms: Sequence[BoundSymbol], effects: Sequence[StatementEffects], random: frozenset[str]) -> _Block:
    """Return the rows of statements.

    Parameters
    ----------
    bsyms : sequence of BoundSymbol
    effects : sequence of StatementEffects
        Effects of each of `bsyms`.
    random : frozenset of str
        Names of the outputs of random operators.
    """
    rows: list[_StatementRow] = []
    first: dict[str, Any] = {}
    number: dict[str, int] = {}
    computes: list[str] = []
    columns: dict[str, list[int]] = {name: [] for name in _COLUMNS}
    frees: list[tuple[int, tuple[tuple[str, bool], ...]]] = []
    last_top = -1
    for bsym, effect in zip(bsyms, effects, strict=True):
        if bsym.sym.id is prims.PrimIDs.DEL:
            frees.append((last_top, tuple([(name, name in number) for name in read_names(bsym)])))
        if not is_statement(bsym):
            continue
        inside = bsym.subsymbols if bsym.sym.is_fusion else ()
        last_top, members = len(rows), len(inside)
        computes.append(effect.text)
        told = [_origin_and_flags(each) for each in (bsym, *inside)]
        origins = [origin for origin, _ in told]
        if bsym.sym.is_fusion:
            computes += [computation.text for _, computation in effect.parts]
            origins[0] = next((origin for origin in origins[1:] if origin >= 0), -1)
        side = BACKWARD if BoundSymbolTag.BACKWARD in bsym.tags else FORWARD
        columns["side"] += [side] * (members + 1)
        columns["parent"] += [-1, *[last_top] * members]
        columns["origin"] += origins
        columns["transient_bytes"] += [effect.transient_bytes, *[0] * members]
        columns["flops"] += [effect.flops, *[0] * members]
        for each, (_, flags) in zip((bsym, *inside), told, strict=True):
            row = _row_of(each)
            rows.append(row)
            if random and not random.isdisjoint(made_names(each)):
                flags |= _RANDOM
            if each is bsym and effect.unmeasured:
                flags |= _UNMEASURED
            columns["kind"].append(row.kind)
            columns["flags"].append(row.flags | flags)
            names = (*read_names(each), *made_names(each))
            for name, proxy in zip(names, (*each.flat_proxy_args, *each.flat_proxy_outs), strict=True):
                if name not in number:
                    number[name] = len(number)
                    first[name] = proxy
            for way, names in (("inputs", row.read), ("outputs", row.made)):
                columns[way] += map(number.__getitem__, names)
                columns[f"{way} of row"].append(len(names))
    return _Block(
        key=BlockKey(),
        names=tuple(first),
        flags=tuple(map(_flags_of_value, first.values())),
        traits=tuple(map(_traits, first.values())),
        row_names=tuple([row.name for row in rows]),
        executors=tuple([row.executor for row in rows]),
        groups=tuple([(at, row.group) for at, row in enumerate(rows) if row.group is not None]),
        computes=tuple(computes),
        columns={name: np.asarray(columns[name], kind) for name, kind in _COLUMNS.items()},
        last_top=last_top,
        frees=tuple(frees),
    )


_COLUMNS: dict[str, type[np.signedinteger[Any]]] = {
    "kind": np.int8,
    "side": np.int8,
    "parent": np.int32,
    "origin": np.int32,
    "flags": np.int32,
    "transient_bytes": np.int64,
    "flops": np.int64,
    "inputs": np.int32,
    "outputs": np.int32,
    "inputs of row": np.int32,
    "outputs of row": np.int32,
}
"""Columns of a `_Block`, and their types."""


def _flags_of_value(proxy: Any) -> int:
    flags = _TENSOR if isinstance(proxy, (TensorProxy, FutureTensorProxy)) else 0
    return flags | _REQUIRES_GRAD if getattr(proxy, "requires_grad", False) else flags


class _Builder:
    """Collects the rows of the graph's tables, block by block."""

    def __init__(self, random: frozenset[str]) -> None:
        self.random = random
        self.index: dict[str, int] = {}
        self.traits: list[Traits] = []
        self.flags: list[int] = []
        self.row_names: list[str] = []
        self.executors: list[str] = []
        self.groups: list[tuple[int, Any]] = []
        self.computes: list[str] = []
        self.added: list[tuple[_Block, int | None]] = []
        """Blocks, each with the side of its statements if it is the same for all."""
        self.numbers: list[int] = []
        """For each name of each block, the index of its value."""
        self.frees: list[tuple[int, list[int]]] = []
        """Rows, in order, with the values that are freed after them."""
        self.group_ranks: dict[torch.distributed.ProcessGroup, int] = {}
        self.last_top = 0
        self.blocks: list[tuple[BlockKey, int]] = []
        self.new_names: Mapping[str, str] = {}
        """New names of statements, by their names in the trace."""

    def value(self, proxy: Any, flags: int = 0) -> int:
        """Return the index of a value, and add the value if it is new."""
        # `|` on members of an enumeration is slow.
        flags = int(flags)
        found = self.index.get(proxy.name)
        if found is None:
            found = self.index[proxy.name] = len(self.traits)
            self.traits.append(_traits(proxy))
            self.flags.append(flags | _flags_of_value(proxy))
        else:
            self.flags[found] |= flags
        return found

    def add_trace(self, facts: TraceFacts, side: int | None = None) -> None:
        """Add the statements of a trace. By default, the tags of a statement say on which side it is."""
        for segment, found in facts.segments:

            def make(segment: Segment = segment, found: SegmentEffects = found) -> tuple[_Block, SegmentEffects]:
                return _block_of(segment.bsyms, found.effects, self.random), found

            block, _ = segment.get_or_make(("rows", identity(found), self.random), make)
            self._add_block(block, side)

    def _add_block(self, block: _Block, side: int | None) -> None:
        start, index, known = len(self.row_names), self.index, len(self.traits)
        value = [index.setdefault(name, -1) for name in block.names]
        if -1 in value:
            new = [at for at, found in enumerate(value) if found < 0]
            for number, at in enumerate(new, known):
                value[at] = index[block.names[at]] = number
            self.traits += [block.traits[at] for at in new]
            self.flags += [block.flags[at] for at in new]
        self.numbers += value
        self.added.append((block, side))
        self.row_names += block.row_names
        self.executors += block.executors
        self.groups += [(start + row, group) for row, group in block.groups]
        self.computes += block.computes
        self.blocks.append((block.key, len(block.row_names)))
        for row, names in block.frees:
            # Before the first statement, nothing is freed.
            if row >= 0 or start:
                values = [index[name] for name, here in names if here or index.get(name, known) < known]
                self.frees.append((start + row if row >= 0 else self.last_top, values))
        if block.last_top >= 0:
            self.last_top = start + block.last_top

    def has_backward(self) -> bool:
        """Return whether a statement is in the backward."""
        return any((block.columns["side"] == BACKWARD).any() for block, _ in self.added)

    def _columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns of all rows. Parents are rows, and inputs and outputs are indices of values."""
        parts = {name: [block.columns[name] for block, _ in self.added] for name in _COLUMNS}
        columns = {name: np.concatenate([np.empty(0, _COLUMNS[name]), *parts[name]]) for name in _COLUMNS}
        rows = [len(block.row_names) for block, _ in self.added]
        first_row = np.repeat(np.cumsum([0, *rows])[:-1], np.asarray(rows, np.intp))
        columns["parent"] = np.where(columns["parent"] < 0, -1, columns["parent"] + first_row).astype(np.int32)
        for begin, (block, side) in zip(np.cumsum([0, *rows]).tolist(), self.added, strict=False):
            if side is not None:
                columns["side"][begin : begin + len(block.row_names)] = side
        numbers, first_name = np.asarray(self.numbers, np.int32), np.cumsum([0, *(len(b.names) for b, _ in self.added)])
        for way in ("inputs", "outputs"):
            columns[way] = numbers[
                columns[way] + np.repeat(first_name[:-1], np.asarray(list(map(len, parts[way])), np.intp))
            ]
        return columns

    def _group(self, group: torch.distributed.ProcessGroup) -> int:
        """Return the index of a process group, and add the group if it is new."""
        self.group_ranks.setdefault(group, group.size())
        return list(self.group_ranks).index(group)

    def values(self, tree: Any) -> tuple[int, ...]:
        """Return the index of the value of each leaf of `tree`; -1 for a leaf that is not in the table of values."""
        leaves = (leaf.name if isinstance(leaf, Proxy) else "" for leaf in tree_flatten(tree)[0])
        return tuple(self.index.get(name, -1) for name in leaves)

    def _freed_values(self) -> Ragged:
        """Return, for each row, the values that are freed after it."""
        lengths = np.zeros(len(self.row_names), np.int32)
        for row, values in self.frees:
            lengths[row] += len(values)
        return Ragged.joined(lengths, [value for _, values in self.frees for value in values])

    def build(self, stage: str, storages: TraceFacts, origins: tuple[Origin, ...], ends: StepBoundary) -> Graph:
        """Return the graph of all statements and values that were added."""
        storage = [storages.storage_of.get(name, -1) for name in self.index]
        used = sorted(set(storage) - {-1})
        renumbered = {s: i for i, s in enumerate(used)}
        roots = {s: self.index.get(storages.root[s], -1) for s in used}
        for value, s in enumerate(storage):
            if s >= 0 and roots[s] < 0:
                roots[s] = value
        columns = self._columns()
        inputs, outputs = (Ragged.joined(columns[f"{way} of row"], columns[way]) for way in ("inputs", "outputs"))
        flags = columns["flags"]
        flags[_views(flags, inputs, outputs, np.asarray(storage, np.int64))] |= _VIEW
        shape, nbytes, dtype, device = zip(*self.traits, strict=True) if self.traits else ((), (), (), ())
        group = np.full(len(self.row_names), -1, np.int32)
        for row, ranks in self.groups:
            group[row] = self._group(ranks)
        statements = Statements(
            name=tuple(map(self.new_names.get, self.row_names, self.row_names)),
            executor=tuple(self.executors),
            kind=columns["kind"],
            side=columns["side"],
            parent=columns["parent"],
            origin=columns["origin"],
            flags=flags,
            transient_bytes=columns["transient_bytes"],
            flops=columns["flops"],
            inputs=inputs,
            outputs=outputs,
            frees=self._freed_values(),
            group=group,
            computes=tuple(self.computes),
        )
        return Graph(
            stage=stage,
            statements=statements,
            blocks=Blocks(statements, tuple(self.blocks)),
            values=Values(
                name=tuple(self.index),
                shape=shape,
                dtype=dtype,
                device=device,
                storage=np.asarray([renumbered.get(s, -1) for s in storage], np.int32),
                producer=_producers(outputs, columns["parent"], len(self.index)),
                bytes=np.asarray(nbytes, np.int64),
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


def _producers(outputs: Ragged, parent: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """Return the row of the statement that makes each value; -1 if none does.

    Several fusions may compute a value that exists only inside of fusions; the first is its producer. If a statement
    outputs the value, this statement is its producer.
    """
    found = np.full(count, -1, np.int32)
    row = np.repeat(np.arange(len(outputs), dtype=np.int32), np.diff(outputs.offsets))
    inside = parent[row] >= 0
    makers = np.where(inside, parent[row], row)
    for taken in (inside, ~inside):
        # If an index repeats, NumPy keeps what was assigned last.
        found[outputs.items[taken][::-1]] = makers[taken][::-1]
    return found


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
    builder.add_trace(found)
    for bsym in trace.bound_symbols:
        if is_statement(bsym) and _kind(bsym) == Kind.GET_GRAD:
            for out in bsym.flat_proxy_outs:
                builder.value(out, ValueFlag.COTANGENT)
    returned = _return(trace).args[0]
    ends = StepBoundary(outputs=builder.values(returned))
    if isinstance(returned, dict):
        has_backward, past = "fw_flat_out" in returned, frozenset[str]()
        if has_backward and builder.has_backward():
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
    new_names: Mapping[str, str] = MappingProxyType({}),
) -> Graph:
    """Return the graph of the execution traces, forward before backward. The graph shows where each value is freed.

    `new_names` maps the names of statements to the names that they get in the graph.
    """
    return read_execution_and_strides(forward, backward, context, new_names)[0]


def read_execution_and_strides(
    forward: TraceCtx,
    backward: TraceCtx | None,
    context: LeverContext,
    new_names: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Graph, Mapping[str, tuple[int, ...]]]:
    """Return the graph, as `read_execution`, and the strides of each tensor proxy of the traces, by its name."""
    segments = context.cache.segments
    segments.begin()
    first = trace_facts(forward, cache=context.cache, arguments=context.arguments, segments=segments.cut(forward))
    builder = _Builder(context.random)
    builder.new_names = new_names
    for proxy in _arguments(forward):
        builder.value(proxy, ValueFlag.ARGUMENT)
    builder.add_trace(first, FORWARD)
    found = first
    returned = _return(forward).args
    if backward is None:
        output = returned[0]["output"] if isinstance(returned[0], dict) else returned
        _mark(builder, output, ValueFlag.OUTPUT)
        ends = StepBoundary(outputs=builder.values(output))
    else:
        _mark(builder, returned[0]["output"], ValueFlag.OUTPUT)
        _mark(builder, returned[1][0], ValueFlag.SAVED)
        cut = segments.cut(backward)
        found = trace_facts(backward, cache=context.cache, earlier=first, segments=cut)
        for proxy in backward.args[1]:
            if isinstance(proxy, TensorProxy):
                builder.value(proxy, ValueFlag.COTANGENT)
        builder.add_trace(found, BACKWARD)
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
    return dataclasses.replace(graph, layer_differences=context.layer_differences), found.strides


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
