"""Find what each statement of a trace views, writes, allocates and computes, by running it with fake or meta tensors.

Two statements are equal if their symbols, shapes, strides and constants are equal, if the same inputs share memory, and
if PyTorch's settings are the same. A process runs only the first of several equal statements. Therefore all layers of a
model together take about as much time as one layer, and opening a program again in the same process takes almost no
time.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch

from workbench.analysis.memory.allocator import dense_parts, storage_bytes
from workbench.compiler.interop.thunder_api import (
    CollectionProxy,
    FutureTensorProxy,
    NumberProxy,
    TensorProxy,
    prims,
    to_torch_dtype,
    torch_executor,
    tree_flatten,
)
from workbench.compiler.memory.fake_execution import (
    ActualType,
    Allocations,
    SparseTensor,
    claim,
    fake_execution,
    fake_tensors,
    forwarded_inputs,
    meta_tensors,
    plain_execution,
    runs_as_pytorch,
    source,
)
from workbench.compiler.memory.kernel_workspace import MOST_FLOPS, WRITES, allocates_inside, peak_inside_bytes
from workbench.compiler.memory.nvfuser_aliasing import OutputLayout, output_layouts
from workbench.compiler.memory.offload import ARRIVE, OFFLOAD, RELOAD, RELOAD_PREFIX
from workbench.compiler.trace import canonical_text as computes
from workbench.compiler.trace.bsym_memo import identity, shared_of, structure_of
from workbench.compiler.trace.fingerprints import statement_memory_key
from workbench.compiler.trace.proxy_traits import bytes_of, is_tensor, storage_bytes_of, traits_of
from workbench.compiler.trace.segments import Segment, SegmentTable
from workbench.interop.torch_private import FakeTensorMode

_IDLE = frozenset(
    (
        prims.PrimIDs.DEL,
        prims.PrimIDs.COMMENT,
        prims.PrimIDs.RETURN,
        prims.PrimIDs.UNPACK_SEQUENCE,
        prims.PrimIDs.UNPACK_TRIVIAL,
        prims.PrimIDs.SINK,
    )
)
"""Statements that neither allocate nor compute. An unpacking statement only gives names to existing values."""

_ELEMENTWISE = frozenset(
    (
        *("abs", "add", "cos", "erf", "exp", "log", "maximum", "minimum", "mul", "neg", "reciprocal", "rsqrt"),
        *("sigmoid", "sin", "sqrt", "sub", "tanh", "true_divide"),
    )
)
"""Symbols of Thunder's PyTorch executor that are one elementwise kernel of PyTorch."""


@dataclasses.dataclass(frozen=True)
class TraceFacts:
    """Storages and costs of a trace, statement by statement.

    Attributes
    ----------
    storage_of : dict of str to int
        Maps the name of each tensor proxy to the index of its storage. A view has the storage of its base, and the
        result of an in-place operator has the storage that the operator writes.
    strides : dict of str to tuple of int
        Strides of each tensor proxy, in elements.
    tensor_of : dict of str to int
        Number of the tensor object of each tensor proxy. Several proxies may have the same number, because some
        statements, such as ``contiguous``, return their input itself.
    views : set of str
        Names of the tensor proxies that autograd treats as views. A view keeps its base alive.
    storage_bytes : list of int
        Bytes of each storage.
    root : list of str
        For each storage, the name of the first proxy in it.
    dtypes : dict of str to ActualType
        Data types of the tensors that Thunder declares with another data type. For example, Thunder declares the
        indices of a max pooling as floating point, and the sum of a bool and 1 as int8; PyTorch makes int64. A sparse
        gradient of an embedding has a `SparseTensor`, because Thunder declares it as dense.
    segments : list of (Segment, SegmentEffects)
        The statements, and their effects.
    """

    storage_of: dict[str, int]
    strides: dict[str, tuple[int, ...]]
    tensor_of: dict[str, int]
    views: set[str]
    storage_bytes: list[int]
    root: list[str]
    dtypes: dict[str, ActualType] = dataclasses.field(default_factory=dict)
    segments: list[tuple[Segment, SegmentEffects]] = dataclasses.field(default_factory=list)

    @property
    def effects(self) -> list[StatementEffects]:
        """Effects of each statement."""
        return [effects for _, found in self.segments for effects in found.effects]

    @property
    def transient_bytes(self) -> list[int]:
        """For each statement, the most bytes that it holds at once besides its inputs and outputs."""
        return [found.transient_bytes for found in self.effects]

    @property
    def flops(self) -> list[int]:
        """For each statement, its floating point operations."""
        return [found.flops for found in self.effects]

    @property
    def assumed(self) -> list[int]:
        """Indices of statements that cannot run with fake tensors. Their outputs are assumed new and contiguous."""
        return [at for at, found in enumerate(self.effects) if found.assumed]

    @property
    def computes(self) -> list[str]:
        """For each statement, the text of its computation; see `workbench.compiler.trace.canonical_text`."""
        return [found.text for found in self.effects]


@dataclasses.dataclass(frozen=True)
class StatementEffects:
    """Effects of a statement. They contain positions instead of names, so they are valid for all equal statements."""

    sources: tuple[int, ...]
    """For each output tensor, the position of the input with the same storage; ``-1 - n`` for the n-th new storage."""
    strides: tuple[tuple[int, ...], ...]
    new_bytes: tuple[int, ...]
    tensors: tuple[int, ...] = ()
    """For each output tensor, the position of the input that is the same tensor object; ``-1 - n`` for the n-th new
    tensor. If empty, all outputs are new.
    """
    views: tuple[bool, ...] = ()
    """For each output tensor, whether it is a view that keeps its base alive. If empty, no output is a view."""
    transient_bytes: int = 0
    flops: int = 0
    assumed: bool = False
    unmeasured: bool = False
    """Whether `transient_bytes` is a lower bound, because the CPU kernel could not be measured."""
    moves: tuple[str, ...] = ()
    """For each output tensor, a text that says where its elements are in the first input. Empty if the statement does
    more than move elements.
    """
    dtypes: tuple[ActualType | None, ...] = ()
    """For each output tensor, its data type if Thunder declares another one, else None. Empty if all are None."""
    parts: tuple[tuple[Any, computes.Computation], ...] = ()
    """The statements into which this statement was decomposed, in order, each with its computation."""
    computation: computes.Computation | None = None

    @property
    def text(self) -> str:
        """Text of the computation; empty for a statement that computes nothing."""
        return "" if self.computation is None else self.computation.text


@dataclasses.dataclass(frozen=True, eq=False)
class SegmentEffects:
    """Effects of a segment. They are valid in each plan in which the segment's inputs have the same memory.

    A reference to a storage or a tensor is its number among those that the segment finds, or ``-1 - n`` for the n-th
    that the segment adds.

    Attributes
    ----------
    effects : list of StatementEffects
        Effects of each statement.
    names : tuple of str
        Values that the segment adds, in order.
    storages, tensors : tuple of int
        For each of `names`, references to its storage and to its tensor object.
    strides : dict of str to (tuple of int)
        Strides of each of `names`.
    views : frozenset of str
        Those of `names` that are views.
    dtypes : dict of str to ActualType
        Data types of those of `names` that Thunder declares with another data type.
    new_bytes : list of int
    roots : list of str
        Bytes and first value of each added storage.
    tensor_count : int
        Number of added tensor objects.
    """

    effects: list[StatementEffects]
    names: tuple[str, ...] = ()
    storages: tuple[int, ...] = ()
    tensors: tuple[int, ...] = ()
    strides: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    views: frozenset[str] = frozenset()
    dtypes: dict[str, ActualType] = dataclasses.field(default_factory=dict)
    new_bytes: list[int] = dataclasses.field(default_factory=list)
    roots: list[str] = dataclasses.field(default_factory=list)
    tensor_count: int = 0


_found: dict[Hashable, StatementEffects] = {}
"""Effects of statements that have run in this process. All programs share them. Assumed effects are not included."""

_MOST_FACTS = 50_000
"""Number of entries at which `_found` is cleared. Without this limit, `_found` would grow in a process that opens
programs for weeks.
"""


class FactsCache:
    """State that speeds up `trace_facts`. Use one instance for all traces of a program."""

    def __init__(self) -> None:
        self.segments = SegmentTable()
        self.arguments: tuple[Mapping[str, torch.Tensor], _StorageWalk] | None = None
        """The arguments of the last trace, and a `_StorageWalk` in its state before the first statement."""
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        # Disable PyTorch's cache of fake results. Filling it takes time, and it would never be read, because equal
        # statements run only once.
        self.mode.cache_enabled = False


_SETTINGS = itertools.count()
"""Counter for the numbers that `_number_of` returns. The counter never repeats a number. Therefore settings that
`_number_of` has dropped from its cache get a new number.
"""


def kernel_settings() -> tuple[Any, ...]:
    """Return the PyTorch settings on which the choice of a kernel depends."""
    return (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.mkldnn.enabled,
        torch.backends.cuda.flash_sdp_enabled(),
        torch.backends.cuda.mem_efficient_sdp_enabled(),
        torch.backends.cuda.math_sdp_enabled(),
        torch.backends.cuda.cudnn_sdp_enabled(),
    )


@functools.lru_cache
def _number_of(settings: tuple[Any, ...]) -> int:
    """Return a number for the settings. Cache keys contain the number, because hashing a number is fast."""
    return next(_SETTINGS)


def trace_facts(
    trace: Any,
    *,
    cache: FactsCache | None = None,
    earlier: TraceFacts | None = None,
    arguments: Mapping[str, torch.Tensor] | None = None,
    segments: Sequence[Segment] | None = None,
) -> TraceFacts:
    """Find storages, transient bytes and floating point operations of every statement of a trace.

    Parameters
    ----------
    trace : TraceCtx
        A joint, forward or backward trace. Its statements may be fusions, statements that an operator executor claimed,
        and unclaimed statements. Unclaimed statements run as in PyTorch.
    cache : FactsCache, optional
        The cache of this program. Pass the same instance in each call.
    earlier : TraceFacts, optional
        Facts of the forward, if `trace` is the backward. Values of the forward keep their storages.
    arguments : mapping of str to Tensor, optional
        Real or fake tensors for the trace's arguments, by name. Strides, sizes and shared storages are read from them.
        An argument that is missing here is assumed to be contiguous, in a storage of its own.
    segments : sequence of Segment, optional
        The segments of the trace. Effects that an earlier plan has stored in them are reused.

    Returns
    -------
    TraceFacts
    """
    walk = _StorageWalk(cache or FactsCache())
    if earlier is not None:
        walk.continue_from(earlier)
        walk.arguments(arguments or {})
    elif arguments:
        walk.begin(arguments)
    whole = [Segment(trace.bound_symbols)] if segments is None else segments
    return TraceFacts(
        storage_of=walk.storage_of,
        strides=walk.strides,
        tensor_of=walk.tensor_of,
        views=walk.views,
        storage_bytes=walk.storage_bytes,
        root=walk.root,
        dtypes=walk.dtypes,
        segments=[(each, walk.segment(each) if segments else walk.visit(each)) for each in whole],
    )


_NOTHING = StatementEffects((), (), ())


@functools.lru_cache
def _unshared_groups(count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the result of `_StorageWalk.shared_inputs` for `count` inputs that share no memory."""
    return tuple(range(count)), tuple(range(count))


_NUMBERS = itertools.count()
"""Counter of tensor numbers."""


class _StorageWalk:
    """Goes over the statements of a trace in order, and assigns a storage to every value."""

    def __init__(self, cache: FactsCache) -> None:
        self.cache = cache
        self.settings = _number_of(kernel_settings())
        self.storage_of: dict[str, int] = {}
        self.strides: dict[str, tuple[int, ...]] = {}
        self.tensor_of: dict[str, int] = {}
        self.views: set[str] = set()
        self.storage_bytes: list[int] = []
        self.root: list[str] = []
        self.dtypes: dict[str, ActualType] = {}
        self.collections: set[int] = set()
        """The `identity` of each collection whose items were added by `enter_all`."""

    def continue_from(self, earlier: TraceFacts | _StorageWalk) -> None:
        """Copy the values and storages of an earlier walk into this walk."""
        self.storage_of.update(earlier.storage_of)
        self.strides.update(earlier.strides)
        self.tensor_of.update(earlier.tensor_of)
        self.views.update(earlier.views)
        self.storage_bytes.extend(earlier.storage_bytes)
        self.root.extend(earlier.root)
        self.dtypes.update(earlier.dtypes)

    def begin(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Add the arguments to an empty walk. The result is cached for the program's other traces."""
        if self.cache.arguments is None or self.cache.arguments[0] is not tensors:
            first = _StorageWalk(self.cache)
            first.arguments(tensors)
            self.cache.arguments = tensors, first
        self.continue_from(self.cache.arguments[1])

    def arguments(self, tensors: Mapping[str, torch.Tensor]) -> None:
        seen: dict[int, int] = {}
        for name, tensor in tensors.items():
            if name in self.storage_of:
                continue
            storage = tensor.untyped_storage()
            index = seen.get(storage._cdata)
            if index is None:
                index = seen[storage._cdata] = self.new_storage(name, storage_bytes(tensor))
            self.storage_of[name] = index
            self.strides[name] = tuple(tensor.stride())
            self.tensor_of[name] = next(_NUMBERS)

    def new_storage(self, name: str, nbytes: int) -> int:
        self.storage_bytes.append(nbytes)
        self.root.append(name)
        return len(self.root) - 1

    def enter(self, proxy: Any) -> None:
        """Add a value as a contiguous tensor in a new storage, unless the walk has this value already."""
        if proxy.name not in self.storage_of:
            strides = _contiguous(proxy.shape)
            self.storage_of[proxy.name] = self.new_storage(proxy.name, storage_bytes_of(proxy))
            self.strides[proxy.name] = strides
            self.tensor_of[proxy.name] = next(_NUMBERS)

    def enter_all(self, proxies: Sequence[Any]) -> None:
        """Add each of `proxies` that is a tensor, and the tensors in each collection, as `enter` does."""
        for proxy in proxies:
            if isinstance(proxy, CollectionProxy):
                if identity(proxy) not in self.collections:
                    self.collections.add(identity(proxy))
                    self.enter_all(tree_flatten(proxy.collection())[0])
            elif is_tensor(proxy):
                self.enter(proxy)

    def statement(self, bsym: Any) -> StatementEffects:
        """Add the outputs of a statement, and return the effects of the statement."""
        id = bsym.sym.id
        if id is prims.PrimIDs.DEL:
            return _NOTHING
        if type(id) is not str and id in _IDLE:
            # The same collection of saved values may be in several of these statements.
            self.enter_all(bsym.flat_proxy_args)
            self.enter_all(bsym.flat_proxy_outs)
            return _NOTHING
        self.enter_all(bsym.flat_proxy_args)
        outputs = _outputs(bsym)
        if id == prims.PrimIDs.GET_GRAD or not outputs:
            for proxy in outputs:
                self.enter(proxy)
            return dataclasses.replace(_NOTHING, computation=computes.statement_computation(bsym, {}))
        inputs = _inputs(bsym)
        moved = _offload_effects(bsym, inputs, outputs, self.strides, self.dtypes)
        if moved is not None:
            fact = _add_computation(moved, bsym, inputs, outputs)
        else:
            fact = (self.fusion if bsym.sym.is_fusion else self.operation)(bsym, inputs, outputs)
        self.record(fact, inputs, outputs)
        return fact

    def visit(self, segment: Segment) -> SegmentEffects:
        """Add the outputs of the statements of a segment one by one, and return only the statements' effects."""
        return SegmentEffects([self.statement(bsym) for bsym in segment.bsyms])

    def segment(self, segment: Segment) -> SegmentEffects:
        """Add the outputs of the statements of a segment, and return their effects.

        The effects depend on the segment, and on what the walk knows about the segment's values before it: which
        values it has, their strides, which of them are views, which share a storage, and which are one tensor object.
        """
        if not segment.is_plain or segment.bsyms[-1].sym.id is prims.PrimIDs.RETURN:
            # Each plan makes the statements that unpack and return saved values anew.
            return self.visit(segment)
        mentioned: tuple[str, ...] = segment.get_or_make("tensors", lambda: _tensor_names(segment.bsyms))
        outside = tuple([name for name in mentioned if name in self.storage_of])
        storages, tensors = ([of[name] for name in outside] for of in (self.storage_of, self.tensor_of))
        groups = dict.fromkeys(storages), dict.fromkeys(tensors)
        shared = tuple(
            None if len(group) == len(all) else _equal_groups(all)
            for group, all in zip(groups, (storages, tensors), strict=True)
        )
        key = (
            "effects",
            self.settings,
            outside,
            tuple([self.strides[name] for name in outside]),
            tuple([name for name in outside if name in self.views]),
            self.misdeclared(outside),
            shared,
        )
        found: SegmentEffects | None = segment.get(key)
        if found is None:
            made: SegmentEffects = segment.get_or_make(key, lambda: self._visit_first(segment, *map(list, groups)))
            return made
        base = len(self.storage_bytes)
        places = [*groups[0], *range(base + len(found.new_bytes) - 1, base - 1, -1)]
        objects = [*groups[1], *itertools.islice(_NUMBERS, found.tensor_count)]
        self.storage_of.update(zip(found.names, map(places.__getitem__, found.storages), strict=True))
        self.tensor_of.update(zip(found.names, map(objects.__getitem__, found.tensors), strict=True))
        self.strides |= found.strides
        self.views |= found.views
        self.dtypes |= found.dtypes
        self.storage_bytes += found.new_bytes
        self.root += found.roots
        return found

    def _visit_first(self, segment: Segment, storages: list[int], tensors: list[int]) -> SegmentEffects:
        """Visit a segment whose values are in `storages` and `tensors`, and return effects that can be reused."""
        known, base = len(self.storage_of), len(self.storage_bytes)
        effects = self.visit(segment).effects
        names = tuple(itertools.islice(self.storage_of, known, None))
        return SegmentEffects(
            effects=effects,
            names=names,
            storages=tuple(
                [base - 1 - at if at >= base else storages.index(at) for at in map(self.storage_of.__getitem__, names)]
            ),
            tensors=(made := _sources_of([self.tensor_of[name] for name in names], tensors)),
            strides={name: self.strides[name] for name in names},
            views=frozenset(names) & self.views,
            dtypes={name: self.dtypes[name] for name in names if name in self.dtypes} if self.dtypes else {},
            new_bytes=self.storage_bytes[base:],
            roots=self.root[base:],
            tensor_count=len({number for number in made if number < 0}),
        )

    def operation(self, bsym: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> StatementEffects:
        """Return the effects of a statement that is not a fusion.

        Only the first of several equal statements in this process runs; its effects are cached for the rest. All
        programs share one cache, `_found`. Each `Structure` has a second cache, whose key is faster to compute.
        """

        def find() -> StatementEffects:
            key = (self.settings, statement_memory_key(bsym, self.strides), shared, others)
            known = _found.get(key)
            if known is None:
                known = _add_computation(self.run(bsym, inputs, outputs), bsym, inputs, outputs)
                # If the statement could not run, cache its effects only in its `Structure`. If the program is opened
                # again, its statements have other structures, so the statement is tried again.
                if not known.assumed:
                    if len(_found) >= _MOST_FACTS:
                        _found.clear()
                    _found[key] = known
            return known

        # The effects depend on which inputs share memory, because a write to an input changes every input that shares
        # its memory.
        shared = self.shared_inputs(inputs)
        lie = tuple([self.strides.get(proxy.name) for proxy in (*inputs, *outputs)])
        others = self.misdeclared([proxy.name for proxy in inputs])
        key = ("facts", self.settings, lie, shared, others)
        found: StatementEffects = structure_of(bsym).get_or_make(key, find)
        return found

    def misdeclared(self, names: Sequence[str]) -> tuple[tuple[int, ActualType], ...]:
        """Return the positions and the data types of the values that Thunder declares with another data type."""
        if not self.dtypes:
            return ()
        return tuple([(at, self.dtypes[name]) for at, name in enumerate(names) if name in self.dtypes])

    def shared_inputs(self, inputs: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
        """Return the number of each input's storage, and the number of its tensor object.

        The numbers start at 0 and are valid only among these inputs. If no inputs share a storage, all numbers differ.
        """
        if len(inputs) < 2:
            return _unshared_groups(len(inputs))
        names = [proxy.name for proxy in inputs]
        storages = [self.storage_of.get(name, name) for name in names]
        if len(set(storages)) == len(storages):
            return _unshared_groups(len(storages))
        return _equal_groups(storages), _equal_groups([self.tensor_of.get(name, name) for name in names])

    def record(self, fact: StatementEffects, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        new: dict[int, int] = {}
        made: dict[int, int] = {}
        tensors = fact.tensors or tuple(-1 - i for i in range(len(outputs)))
        views = fact.views or (False,) * len(outputs)
        dtypes = fact.dtypes or (None,) * len(outputs)
        for proxy, origin, strides, tensor, view, dtype in zip(
            outputs, fact.sources, fact.strides, tensors, views, dtypes, strict=True
        ):
            if proxy.name in self.storage_of:
                continue
            if dtype is not None:
                self.dtypes[proxy.name] = dtype
            if tensor >= 0:
                self.tensor_of[proxy.name] = self.tensor_of[inputs[tensor].name]
            else:
                self.tensor_of[proxy.name] = made.setdefault(tensor, next(_NUMBERS))
            if view:
                self.views.add(proxy.name)
            if origin >= 0:
                storage = self.storage_of[inputs[origin].name]
            else:
                if origin not in new:
                    new[origin] = self.new_storage(proxy.name, fact.new_bytes[-1 - origin])
                storage = new[origin]
            self.storage_of[proxy.name] = storage
            self.strides[proxy.name] = strides

    def fusion(self, bsym: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> StatementEffects:
        """Return the effects of a fusion.

        The key in the cache contains the fusion's structure, the layouts of the inputs, which inputs share memory, and
        PyTorch's settings.
        """

        def find() -> StatementEffects:
            same = None if runs_as_pytorch(bsym) else forwarded_inputs(bsym)
            lies = None if same is None else output_layouts(bsym, inputs, self.strides, outputs, same)
            return _add_computation(self.members(bsym.subsymbols, inputs, outputs, same, lies), bsym, inputs, outputs)

        names = [proxy.name for proxy in inputs]
        lie = tuple([self.strides[name] for name in names])
        views = tuple([name in self.views for name in names])
        key = ("facts", self.settings, lie, views, self.misdeclared(names), *self.shared_inputs(inputs))
        found: StatementEffects = structure_of(bsym).get_or_make(key, find)
        return found

    def members(
        self,
        bsyms: Sequence[Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        same: Mapping[str, str] | None = None,
        lies: Mapping[str, OutputLayout] | None = None,
    ) -> StatementEffects:
        """Return the combined effects of the parts of a statement, or of the members of a fusion.

        The outputs share memory as in PyTorch or, if `same` and `lies` are given, as in nvFuser.
        """
        inner = _StorageWalk(self.cache)
        position: dict[int, int] = {}
        for i, proxy in enumerate(inputs):
            storage = self.storage_of[proxy.name]
            if storage not in position:
                position[storage] = i
            inner.strides[proxy.name] = self.strides[proxy.name]
            inner.tensor_of[proxy.name] = self.tensor_of[proxy.name]
        inner.views.update(proxy.name for proxy in inputs if proxy.name in self.views)
        inner.dtypes.update((proxy.name, self.dtypes[proxy.name]) for proxy in inputs if proxy.name in self.dtypes)
        # Use the same storage numbers in the inner walk. Inputs that share a storage in this walk then also share a
        # storage in the inner walk.
        inner.storage_bytes.extend(self.storage_bytes)
        inner.root.extend(self.root)
        inner.storage_of.update((proxy.name, self.storage_of[proxy.name]) for proxy in inputs)
        found = [inner.statement(member) for member in bsyms]
        sources: list[int] = []
        strides: list[tuple[int, ...]] = []
        new_bytes: list[int] = []
        new: dict[int | str, int] = {}
        for proxy in outputs:
            inner.enter(proxy)
            if same is not None and lies is not None and proxy.name not in same:
                lie = lies[proxy.name]
                strides.append(lie.strides)
                root = lie.root.name
                if root in self.storage_of:
                    sources.append(position[self.storage_of[root]])
                    continue
                if root not in new:
                    new[root] = -1 - len(new_bytes)
                    new_bytes.append(storage_bytes_of(lie.root))
                sources.append(new[root])
                continue
            storage = inner.storage_of[proxy.name]
            strides.append(inner.strides[proxy.name])
            if storage in position:
                sources.append(position[storage])
                continue
            if storage not in new:
                new[storage] = -1 - len(new_bytes)
                new_bytes.append(inner.storage_bytes[storage])
            sources.append(new[storage])
        names = [proxy.name for proxy in outputs]
        pytorchs = {proxy.name for proxy in outputs if same is None or proxy.name in same}
        return StatementEffects(
            sources=tuple(sources),
            strides=tuple(strides),
            new_bytes=tuple(new_bytes),
            tensors=_sources_of(
                [inner.tensor_of[proxy.name] if proxy.name in pytorchs else -1 - i for i, proxy in enumerate(outputs)],
                [self.tensor_of[proxy.name] for proxy in inputs],
            ),
            views=tuple(
                proxy.name in inner.views if proxy.name in pytorchs else lies is not None and lies[proxy.name].is_view
                for proxy in outputs
            ),
            flops=sum(fact.flops for fact in found),
            assumed=any(fact.assumed for fact in found),
            dtypes=_unless_all_none([inner.dtypes.get(name) if name in pytorchs else None for name in names]),
            parts=tuple(
                (member, fact.computation)
                for member, fact in zip(bsyms, found, strict=True)
                if fact.computation is not None
            ),
        )

    def run(self, bsym: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> StatementEffects:
        """Execute a statement with fake tensors, as its executor would, and return the effects.

        An unclaimed statement runs as in PyTorch.
        """
        if bsym.sym.executor is None and bsym.sym.python_impl is None:
            claimed = claim(bsym)
            if claimed is not None:
                return self.members(claimed, inputs, outputs)
            if bsym.subsymbols:
                return self.members(bsym.subsymbols, inputs, outputs)
            return _assume(outputs)
        if any(isinstance(proxy, FutureTensorProxy) for proxy in (*inputs, *outputs)):
            # A wait returns the tensor of its future, and an all-reduce in place returns its input. Neither allocates
            # memory.
            same = bsym.sym.name.startswith("torch_wait") or reduces_in_place(bsym)
            return _wait(outputs) if same else _assume(outputs)
        sparse = [known for proxy in inputs if isinstance(known := self.dtypes.get(proxy.name), SparseTensor)]
        if bsym.sym.name == "add" and len(sparse) == len(inputs) == 2:
            # A fake sum of sparse tensors is empty. The real sum has as many indices and elements as both tensors.
            total = SparseTensor(sum(one.nbytes for one in sparse))
            return dataclasses.replace(_assume(outputs), assumed=False, new_bytes=(total.nbytes,), dtypes=(total,))
        try:
            return self._execute(bsym, inputs, outputs)
        except Exception:  # noqa: BLE001 - any kernel may refuse fake tensors in its own way; `assumed` says that it did
            on_cpu = all(proxy.device.type == "cpu" for proxy in (*inputs, *outputs))
            return dataclasses.replace(_assume(outputs), unmeasured=on_cpu)

    def _execute(self, bsym: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> StatementEffects:
        is_elementwise = self._is_elementwise(bsym, inputs, outputs)
        if is_elementwise:
            elementwise = dataclasses.replace(_assume(outputs), assumed=False, flops=math.prod(outputs[0].shape))
            if all(self.strides[proxy.name] == _contiguous(proxy.shape) for proxy in inputs):
                return elementwise
        text, outside = source(bsym)
        outside.update((p.name, p.value) for p in bsym.flat_args if isinstance(p, NumberProxy))
        if is_elementwise:
            results = self._on_meta(text, outside, inputs, outputs, [self.strides[proxy.name] for proxy in inputs])[1]
            return dataclasses.replace(elementwise, strides=(tuple(results[0].stride()),))
        if bsym.sym.name in computes.MOVING and len(inputs) == 1:
            view = self._view(bsym, text, outside, inputs, outputs)
            if view is not None:
                return view
        namespace = dict(outside)
        made_up = fake_tensors(self.cache.mode, inputs, [self.strides[proxy.name] for proxy in inputs], self.dtypes)
        with fake_execution(self.cache.mode):
            tensors = []
            for proxy, tensor in zip(inputs, made_up, strict=True):
                tensors.append(namespace.setdefault(proxy.name, tensor))
            position = {tensor.untyped_storage()._cdata: i for i, tensor in reversed(list(enumerate(tensors)))}
            with Allocations() as allocations:
                for tensor in tensors:
                    allocations.see(tensor)
                before = allocations.peak_bytes = allocations.live_bytes
                exec(text, namespace)
                peak = allocations.peak_bytes
            given = {proxy.name: namespace[proxy.name] for proxy in inputs}
            works = peak > before or str(bsym.sym.name).startswith(WRITES)
            unmeasured = False
            # Pass no operations: a kernel that takes too long to be measured may allocate as much as a small one.
            if works and allocates_inside(bsym.sym.name, list(given.values()), 0):
                measured = allocations.flops <= MOST_FLOPS
                inside = peak_inside_bytes(text, outside, given, bsym.sym.name) if measured else None
                unmeasured = inside is None and all(tensor.device.type == "cpu" for tensor in given.values())
                peak = max(peak, before + (inside or 0))
            sources: list[int] = []
            strides: list[tuple[int, ...]] = []
            new_bytes: list[int] = []
            new: dict[int, int] = {}
            for proxy in outputs:
                tensor = namespace[proxy.name]
                if tensor.layout is not torch.strided:  # a gradient of an embedding with `sparse=True`
                    parts = {part.untyped_storage()._cdata: part for part in dense_parts(tensor)}
                    strides.append(_contiguous(tensor.shape))
                    # The elements, which are last, may share the memory of the statement's input.
                    sources.append(position.get(list(parts)[-1], -1 - len(new_bytes)))
                    if sources[-1] < 0:
                        new_bytes.append(sum(storage_bytes(part) for at, part in parts.items() if at not in position))
                    continue
                storage = tensor.untyped_storage()
                strides.append(tuple(tensor.stride()))
                if storage._cdata in position:
                    sources.append(position[storage._cdata])
                    continue
                if storage._cdata not in new:
                    new[storage._cdata] = -1 - len(new_bytes)
                    new_bytes.append(storage_bytes(tensor))
                sources.append(new[storage._cdata])
            made = [namespace[proxy.name] for proxy in outputs]
        return StatementEffects(
            sources=tuple(sources),
            strides=tuple(strides),
            new_bytes=tuple(new_bytes),
            tensors=_sources_of([id(tensor) for tensor in made], [id(tensor) for tensor in tensors]),
            views=tuple(tensor._base is not None for tensor in made),
            transient_bytes=max(0, peak - before - sum(new_bytes)),
            flops=allocations.flops,
            unmeasured=unmeasured,
            dtypes=_unless_all_none(
                [_type_unless(to_torch_dtype(proxy.dtype), tensor) for proxy, tensor in zip(outputs, made, strict=True)]
            ),
            moves=self._moves(bsym, text, outside, inputs, outputs, tensors, made),
        )

    def _is_elementwise(self, bsym: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Return whether a statement makes one tensor from tensors of its shape, device and floating-point type.

        The kernel of such a statement allocates the result and nothing else.
        """
        if bsym.sym.name not in _ELEMENTWISE or bsym.sym.executor is not torch_executor or self.dtypes:
            return False
        traits = {traits_of(proxy)._replace(bytes=0) for proxy in (*inputs, *outputs)}
        return bool(inputs) and len(traits) == len(outputs) == 1 and to_torch_dtype(inputs[0].dtype).is_floating_point

    def _on_meta(
        self,
        text: str,
        outside: Mapping[str, Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        strides: Sequence[Sequence[int]],
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Run a statement with tensors on the device ``meta``, which takes less time than with fake tensors.

        Return the inputs and the results.
        """
        with plain_execution():
            tensors = meta_tensors(inputs, strides, self.dtypes)
            namespace = {**outside, **{proxy.name: tensor for proxy, tensor in zip(inputs, tensors, strict=True)}}
            exec(text, namespace)
            return tensors, [namespace[proxy.name] for proxy in outputs]

    def _view(
        self, bsym: Any, text: str, outside: Mapping[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> StatementEffects | None:
        """Return the effects of a statement of `MOVING` whose results are views of its one input, else None."""
        (whole,), results = self._on_meta(text, outside, inputs, outputs, [self.strides[inputs[0].name]])
        if any(result.untyped_storage()._cdata != whole.untyped_storage()._cdata for result in results):
            return None
        return StatementEffects(
            sources=(0,) * len(outputs),
            strides=tuple(tuple(result.stride()) for result in results),
            new_bytes=(),
            tensors=_sources_of([id(result) for result in results], [id(whole)]),
            views=tuple(result._base is not None for result in results),
            dtypes=_unless_all_none(
                [_type_unless(to_torch_dtype(proxy.dtype), one) for proxy, one in zip(outputs, results, strict=True)]
            ),
            moves=self._moves(bsym, text, outside, inputs, outputs, [whole], results),
        )

    def _moves(
        self,
        bsym: Any,
        text: str,
        outside: Mapping[str, Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        tensors: Sequence[torch.Tensor],
        results: Sequence[torch.Tensor],
    ) -> tuple[str, ...]:
        """Return `StatementEffects.moves`: the positions of the outputs' elements in the first input.

        The positions are those for a contiguous first input. The result is empty if the statement does more than move
        elements, or if one of its outputs is not a view of the first input. Symbols in `KEEPING` are an exception:
        their output may be a copy.
        """
        if bsym.sym.name in computes.KEEPING and len(outputs) == 1:
            shape = tuple(outputs[0].shape)
            return (computes.position_text(shape, shape, _contiguous(shape), 0),)
        if bsym.sym.name not in computes.MOVING or not inputs:
            return ()
        if not all(self.strides[proxy.name] == _contiguous(proxy.shape) for proxy in inputs):
            strides = [_contiguous(proxy.shape) for proxy in inputs]
            tensors, results = self._on_meta(text, outside, inputs, outputs, strides)
        whole = tensors[0]
        if any(t.untyped_storage()._cdata != whole.untyped_storage()._cdata for t in results):
            return ()
        if any(t.dtype != whole.dtype or t.is_conj() or t.is_neg() for t in results):
            return ()
        return tuple(computes.position_text(whole.shape, t.shape, t.stride(), int(t.storage_offset())) for t in results)


def _tensor_names(bsyms: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of the tensors that statements read and make, each once.

    A reload also depends on the values that were offloaded, so their names are included.
    """
    names = [proxy.name for bsym in bsyms for proxy in (*_inputs(bsym), *_outputs(bsym))]
    reloads = [bsym for bsym in bsyms if bsym.sym.name.startswith(RELOAD)]
    offloaded = [_offloaded_name(proxy) for bsym in reloads for proxy in _outputs(bsym)]
    return tuple(dict.fromkeys([*names, *offloaded]))


def _offloaded_name(reloaded: Any) -> str:
    """Return the name of the value that was offloaded, by the value that a reload returns."""
    return str(reloaded.name).removeprefix(RELOAD_PREFIX)


def _equal_groups(items: Iterable[Hashable]) -> tuple[int, ...]:
    """Return a number for each item: equal numbers for equal items, different numbers for different items."""
    first: dict[Hashable, int] = {}
    return tuple(first.setdefault(one, len(first)) for one in items)


def _sources_of(outputs: Sequence[int], inputs: Sequence[int]) -> tuple[int, ...]:
    """Return the position in `inputs` of each number in `outputs`; ``-1 - n`` for the n-th number not in `inputs`."""
    known = {number: i for i, number in reversed(list(enumerate(inputs)))}
    new: dict[int, int] = {}
    return tuple(known[one] if one in known else new.setdefault(one, -1 - len(new)) for one in outputs)


def _type_unless(declared: torch.dtype, tensor: torch.Tensor) -> ActualType | None:
    """Return the type of a tensor; None if it is the declared type."""
    if tensor.layout is not torch.strided:
        return SparseTensor(sum(map(storage_bytes, dense_parts(tensor))))
    return None if tensor.dtype == declared else tensor.dtype


def _unless_all_none(dtypes: Sequence[ActualType | None]) -> tuple[ActualType | None, ...]:
    return () if all(dtype is None for dtype in dtypes) else tuple(dtypes)


def _add_computation(
    fact: StatementEffects, bsym: Any, inputs: Sequence[Any], outputs: Sequence[Any]
) -> StatementEffects:
    """Return the effects with the statement's computation.

    The computation is composed from the computations of the statement's parts. If this is not possible, the statement
    is treated as a single operation.
    """
    whole = None
    if fact.parts and not bsym.sym.is_fusion:
        whole = computes.composite_computation(bsym, fact.parts)
    if whole is None:
        sources = {
            out.name: inputs[origin].name if origin >= 0 else origin
            for out, origin in zip(outputs, fact.sources, strict=True)
        }
        whole = computes.statement_computation(bsym, sources, fact.moves)
    return dataclasses.replace(fact, computation=whole, parts=fact.parts if bsym.sym.is_fusion else ())


def _offload_effects(
    bsym: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    known_strides: Mapping[str, tuple[int, ...]],
    known_dtypes: Mapping[str, ActualType],
) -> StatementEffects | None:
    """Return the effects of a statement that offloads, reloads or waits for a reload; None for any other statement.

    An offloaded copy takes no device memory. A reload makes one storage. Reloaded values have the strides and data
    types that they had before the offload.
    """
    name = bsym.sym.name
    if name.startswith(OFFLOAD):
        return StatementEffects(sources=(-1,), strides=(_contiguous(outputs[0].shape),), new_bytes=(0,))
    if name.startswith(RELOAD):
        names = list(map(_offloaded_name, outputs))
        return StatementEffects(
            sources=(-1,) * len(outputs),
            strides=tuple(known_strides.get(n, _contiguous(p.shape)) for n, p in zip(names, outputs, strict=True)),
            new_bytes=(bytes_of(inputs[0]),),
            dtypes=_unless_all_none([known_dtypes.get(name) for name in names]),
        )
    if name.startswith(ARRIVE):
        strides = tuple(known_strides[proxy.name] for proxy in inputs)
        return StatementEffects(
            sources=tuple(range(len(outputs))),
            strides=strides,
            new_bytes=(),
            dtypes=_unless_all_none([known_dtypes.get(proxy.name) for proxy in inputs]),
        )
    return None


def reduces_in_place(bsym: Any) -> bool:
    """Return whether a statement is an all-reduce that writes its result into its input.

    The fifth argument of such a statement is true.
    """
    return "all_reduce" in bsym.sym.name and len(bsym.args) > 4 and bool(bsym.args[4])


def _assume(outputs: Sequence[Any]) -> StatementEffects:
    return StatementEffects(
        sources=tuple(-1 - i for i in range(len(outputs))),
        strides=tuple(_contiguous(proxy.shape) for proxy in outputs),
        new_bytes=tuple(storage_bytes_of(proxy) for proxy in outputs),
        assumed=True,
    )


def _wait(outputs: Sequence[Any]) -> StatementEffects:
    return StatementEffects(
        sources=(0,) * len(outputs), strides=tuple(_contiguous(p.shape) for p in outputs), new_bytes=()
    )


def _inputs(bsym: Any) -> Sequence[Any]:
    """Return the input tensors of a statement, without repetitions."""
    return _cached_tensors(bsym, "inputs", bsym.flat_proxy_args)


def _outputs(bsym: Any) -> Sequence[Any]:
    """Return the output tensors of a statement, without repetitions."""
    return _cached_tensors(bsym, "outputs", bsym.flat_proxy_outs)


def _cached_tensors(bsym: Any, name: str, proxies: Sequence[Any]) -> Sequence[Any]:
    known = shared_of(bsym)
    found: Sequence[Any] | None = known.get(name)
    if found is None:
        plain = all(type(proxy) is TensorProxy for proxy in proxies)
        once = plain and (len(proxies) < 2 or len({proxy.name for proxy in proxies}) == len(proxies))
        found = proxies if once else _tensors(proxies)
        # Do not cache a result that contains the items of a collection, because the collection may change.
        if plain or not any(isinstance(proxy, CollectionProxy) for proxy in proxies):
            known[name] = found
    return found


def _tensors(leaves: Sequence[Any]) -> list[Any]:
    found: dict[str, Any] = {}
    for leaf in leaves:
        if isinstance(leaf, CollectionProxy):
            for proxy in _tensors(tree_flatten(leaf.collection())[0]):
                found.setdefault(proxy.name, proxy)
        elif is_tensor(leaf):
            found.setdefault(leaf.name, leaf)
    return list(found.values())


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, size = [], 1
    for length in reversed(shape):
        strides.append(size)
        size *= max(int(length), 1)
    return tuple(reversed(strides))
