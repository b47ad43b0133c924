"""Remove in-place writes that make Thunder's gradients wrong, before Thunder differentiates a trace.

Thunder's backward reads the memory that a forward statement has read, even if a later write has changed this memory. If
the program allocates the memory and the write is not visible outside, this module removes the write. Later statements
then read the source of the write. For such a write, eager PyTorch raises an error, or the operator saves a copy for the
gradient, as `silu_` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from workbench.analysis.equivalence.side_effects import stale_reads
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    Proxy,
    ProxyTag,
    TensorProxy,
    TraceCtx,
    dce,
    from_trace,
    get_tracectx,
    grad_transform_on_trace,
    insert_alias_updates,
    prims,
    thunder_functions,
    tree_flatten,
    variableify,
    with_arguments,
)
from workbench.compiler.interop.torch_versions import plain_function_apply
from workbench.compiler.layers.expand_trace import TraceExpander
from workbench.compiler.layers.partition import KEPT, LayerMismatch, LayerPartition, ReducedTrace
from workbench.compiler.lowering.checkpoint_regions import is_marked
from workbench.compiler.memory.graph_builder import read_joint
from workbench.compiler.trace.copy_sets import VIEWS, count_copies_and_fences, is_copy
from workbench.compiler.trace.corrections import STALE, mark
from workbench.compiler.trace.proxy_traits import is_tensor, shape_of
from workbench.compiler.trace.stable_ids import line_of, origin_of, tag_origins
from workbench.core.graph import Origin
from workbench.interop.torch_private import _pytree as pytree

HARMLESS = frozenset(
    {"add_", "clamp_", "dropout", "hardsigmoid", "hardtanh", "leaky_relu", "relu", "relu6", "relu_", "sub_"}
)
"""Operators that may write in place, but whose gradients in Thunder read no overwritten memory.

If only these operators write in place, the trace stays unchanged.
"""

READS_ITS_INPUT = frozenset({"elu", "hardswish", "selu", "silu"})
"""Operators that may write in place, and whose gradients in Thunder read the overwritten memory."""

ASSIGNS = "setitem_"
"""Operator that assigns to a part of a tensor. Its gradient in Thunder reads none of the tensor's values."""

READS_NO_VALUES = frozenset(
    (
        *("clone", "contiguous", "expand", "getitem", "permute", "reshape"),
        *("squeeze", "to", "transpose", "unsqueeze", "view"),
    )
)
"""Operators whose gradients in Thunder read only the shape and data type of their first argument."""

READS_NO_RESULT = frozenset({"add", "clone", "full", "full_like", "matmul", "mul", "neg", "sub", "zeros", "zeros_like"})
"""Operators that allocate memory, and whose gradients in Thunder do not read this memory."""

WRITTEN = "the forward of a torch.autograd.Function writes in place into its input, or a view of it"


@dataclasses.dataclass(frozen=True)
class PrivateCopies:
    """In-place copies into one memory that the program allocates.

    Attributes
    ----------
    copies : dict of str to BoundSymbol
        Maps the name of each copy's result to the statement that contains the copy.
    names : frozenset of str
        The values that may be in this memory.
    """

    copies: dict[str, BoundSymbol]
    names: frozenset[str]

    def only_assigned(self, bsyms: Sequence[BoundSymbol]) -> bool:
        """Return whether no gradient needs values that a copy overwrites, as far as the operators show.

        Each copy must be an assignment to a part. `_private_copies` has checked that no older view is read after it.
        A marked statement of a checkpoint must not use the memory before the last copy, because the backward computes
        this statement again, from the overwritten memory.
        """
        own = {id(bsym) for bsym in self.copies.values()}
        if any(bsym.sym.name != ASSIGNS for bsym in self.copies.values()):
            return False
        last = max(at for at, bsym in enumerate(bsyms) if id(bsym) in own)
        for at, bsym in enumerate(bsyms):
            reads = self._has(bsym.flat_proxy_args)
            if at <= last and (reads or self._has(bsym.flat_proxy_outs)) and is_marked(bsym):
                return False
            if reads and bsym.sym.name in (ASSIGNS, "getitem") and self._has(tree_flatten(bsym.args[1])[0]):
                return False  # a gradient reads the index
            if at > last or id(bsym) in own:
                continue
            if reads and bsym.sym.name not in READS_NO_VALUES:
                return False
            if not reads and self._has(bsym.flat_proxy_outs) and bsym.sym.name not in READS_NO_RESULT:
                return False
        return True

    def _has(self, leaves: Iterable[Any]) -> bool:
        return any(is_tensor(leaf) and leaf.name in self.names for leaf in leaves)


def remove_hazardous_writes(trace: TraceCtx) -> TraceCtx:
    """Return a program's trace without the in-place writes that make gradients wrong.

    A write that is visible outside the program is kept.

    Parameters
    ----------
    trace : TraceCtx
        Trace of the program before differentiation.
    """
    arguments = [proxy for proxy in trace.args or () if is_tensor(proxy)]
    if not any(proxy.requires_grad for proxy in arguments):
        return trace
    if not any(count_copies_and_fences(bsym)[0] for bsym in trace.bound_symbols):
        return trace
    groups = _private_copies(trace.bound_symbols, {proxy.name for proxy in arguments})
    if all(bsym.sym.name in HARMLESS for group in groups for bsym in group.copies.values()):
        return trace
    instead = _known_hazards(trace.bound_symbols, groups, {proxy.name for proxy in arguments if proxy.requires_grad})
    if instead is None:
        wrong = _overwriting_results(trace)
        made = {n: {out.name for out in bsym.flat_proxy_outs} for group in groups for n, bsym in group.copies.items()}
        instead = {n for group in groups if any(made[n] & wrong for n in group.copies) for n in group.copies}
    if not instead:
        return trace
    changed = from_trace(trace)
    changed.names = trace.names
    changed.bound_symbols = list(_remove_copies(trace.bound_symbols, instead))
    changed.scopes = [changed.bound_symbols]
    return changed


def _known_hazards(
    bsyms: Sequence[BoundSymbol], groups: Sequence[PrivateCopies], differentiated: set[str]
) -> set[str] | None:
    """Find the copies that make gradients wrong, without a search in the differentiated trace, which is slow.

    A group of copies is wrong if an operator of `READS_ITS_INPUT` overwrites a value that gets a gradient. It is not
    wrong if only its own operators read the overwritten values, and these operators have no gradient or are `HARMLESS`.
    It is not wrong either if `PrivateCopies.only_assigned` is true.

    Parameters
    ----------
    bsyms : sequence of BoundSymbol
    groups : sequence of PrivateCopies
        Result of `_private_copies`.
    differentiated : set of str
        Names of the arguments that require gradients. The names of all values that get a gradient are added.

    Returns
    -------
    set of str or None
        Names of the results of the copies. None if the operators of any group do not show whether it is wrong.
    """
    readers: dict[str, list[BoundSymbol]] = {}
    unknown = []
    for group in groups:
        if group.only_assigned(bsyms):
            differentiated |= group.names  # as if each assigned value had a gradient
        else:
            unknown.append(group)
    writes = {
        id(bsym): {leaf.args[1].name for leaf in _leaves([bsym]) if is_copy(leaf)}
        for group in unknown
        for bsym in group.copies.values()
    }
    for bsym in bsyms:
        read = [proxy.name for proxy in bsym.flat_proxy_args]
        for name in read:
            readers.setdefault(name, []).append(bsym)
        if not differentiated.isdisjoint(read) and not writes.get(id(bsym), set()) <= differentiated:
            return None  # memory without a gradient gets values with one, and earlier names of it exist
        if bsym.sym.id != "torch.detach" and not differentiated.isdisjoint(read):
            outputs = bsym.flat_proxy_outs
            differentiated.update(o.name for o in outputs if ProxyTag.DETACHED_AUTOGRAD_GRAPH not in o.tags)
    found: set[str] = set()
    for group in unknown:
        own = {id(bsym): bsym for bsym in group.copies.values()}
        made = {out.name for bsym in own.values() if bsym.sym.name in READS_ITS_INPUT for out in bsym.flat_proxy_outs}
        if not differentiated.isdisjoint(made):
            found.update(group.copies)
            continue
        written = {leaf.args[1].name for leaf in _leaves(own.values()) if is_copy(leaf)}
        apart = any(id(reader) not in own for name in written for reader in readers.get(name, ()))
        risky = (bsym for bsym in own.values() if bsym.sym.name not in HARMLESS)
        if apart or any(proxy.name in differentiated for bsym in risky for proxy in bsym.flat_proxy_args):
            return None
    return found


def _forward_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the forward of a `torch.autograd.Function`: remove its in-place writes, and return views of returned inputs.

    The writes must be removed, because Thunder moves a statement to the backward if no result needs the statement.
    Thunder would move a write, too. For a write that is visible outside, the wrapped forward raises
    `NotImplementedError`. If the forward returned an input itself, autograd would use the history of this input instead
    of the function's backward.

    Parameters
    ----------
    function : callable
        Forward on Thunder's proxies. A call records statements, and returns results and saved values.
    """

    def forward(*args: Any) -> Any:
        trace = get_tracectx()
        assert trace is not None
        trace.push_scope([])
        prims.python_return(function(*args))
        inside = trace.pop_scope()
        given = [proxy for proxy in args if is_tensor(proxy)]
        groups = _private_copies(inside, {proxy.name for proxy in given})
        instead = {name for group in groups for name in group.copies}
        if any(is_copy(leaf) and leaf.output.name not in instead for leaf in _leaves(inside)):
            raise NotImplementedError(WRITTEN)
        *made, returned = _remove_copies(inside, instead) if instead else inside
        trace.scopes[-1].extend(made)
        results, saved = returned.args[0]
        handed_on = {proxy.name for proxy in given}
        apart = thunder_functions[torch.Tensor.view_as]
        return pytree.tree_map(lambda r: apart(r, r) if is_tensor(r) and r.name in handed_on else r, results), saved

    return forward


def apply_function(
    graph: fx.Graph, forward: Callable[..., Any], backward: Callable[..., Any], *given: Any, **options: Any
) -> Any:
    """Record the application of a `torch.autograd.Function`, and return its results.

    Thunder records only the results that are tensors. All other results are constants of the graph. This function
    returns these constants unchanged.

    Parameters
    ----------
    graph : Graph
        Graph of the forward.
    forward, backward : callable
        Functions on Thunder's proxies.
    *given
        Inputs of the function.
    **options
        Options of `torch.ops.higher_order.autograd_function_apply`.
    """
    apply = thunder_functions[torch.ops.higher_order.autograd_function_apply]
    forward, backward, options = plain_function_apply(forward, backward, given, options)
    backward = _cast_gradients(backward, given)

    def apply_marked(*args: Any, non_differentiable_idx: Sequence[int] = (), **more: Any) -> Any:
        # Detach results that are marked as not differentiable, because Thunder passes gradients through them.
        made = apply(*args, non_differentiable_idx=non_differentiable_idx, **more)
        if not isinstance(made, tuple):
            return _detach(made) if non_differentiable_idx else made
        return tuple(_detach(each) if at in non_differentiable_idx else each for at, each in enumerate(made))

    results, _ = next(iter(graph.find_nodes(op="output"))).args[0]
    constants = _constants_of(results)
    if not constants:
        return apply_marked(_forward_of(forward), backward, *given, **options)
    places = range(len(results))

    def tensors_alone(*args: Any) -> Any:
        made, saved = forward(*args)
        return tuple(result for at, result in enumerate(made) if at not in constants), saved

    def backward_of_tensors(context: Any, *args: Any) -> Any:
        left = iter(args)
        gradients = [None if at in constants else next(left) for at in places]
        return backward(context, *gradients, *left)

    if without := options.get("non_differentiable_idx"):
        options["non_differentiable_idx"] = [at - sum(other < at for other in constants) for at in without]
    left = iter(apply_marked(_forward_of(tensors_alone), backward_of_tensors, *given, **options))
    return tuple(constants[at] if at in constants else next(left) for at in places)


def _cast_gradients(backward: Callable[..., Any], given: Sequence[Any]) -> Callable[..., Any]:
    """Return a backward whose gradients have the data types of the inputs, to which autograd converts them."""

    def cast(gradient: Any, like: Any) -> Any:
        differs = is_tensor(gradient) and is_tensor(like) and gradient.dtype != like.dtype
        return thunder_functions[torch.Tensor.to](gradient, like.dtype) if differs else gradient

    def backward_in_types(*args: Any) -> Any:
        made = backward(*args)
        if not isinstance(made, tuple | list):
            return cast(made, given[0])
        return (*map(cast, made, given), *made[len(given) :])

    return backward_in_types


def _detach(result: Any) -> Any:
    return thunder_functions[torch.Tensor.detach](result) if is_tensor(result) else result


def _constants_of(results: Any) -> dict[int, Any]:
    """Return the results that are not tensors, by position."""
    listed = isinstance(results, tuple | list)
    return {at: result for at, result in enumerate(results) if not isinstance(result, fx.Node)} if listed else {}


@dataclasses.dataclass
class _MemoryUses:
    """Groups of names that may share memory, and the positions of the statements that make and read each name."""

    root: dict[str, str] = dataclasses.field(default_factory=dict)
    made: dict[str, int] = dataclasses.field(default_factory=dict)
    read: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    views: set[str] = dataclasses.field(default_factory=set)

    def find(self, name: str) -> str:
        while (above := self.root.get(name, name)) != name:
            name = above
        return name

    def groups(self) -> dict[str, set[str]]:
        """Return, for the root of each group, the names that may share the root's memory."""
        found: dict[str, set[str]] = {}
        for name in self.made:
            found.setdefault(self.find(name), set()).add(name)
        return found

    def join(self, first: str, second: str) -> None:
        self.root[self.find(first)] = self.find(second)


def _leaves(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    for bsym in bsyms:
        if bsym.subsymbols and not bsym.sym.is_prim:
            yield from _leaves(bsym.subsymbols)
        else:
            yield bsym


def _private_copies(bsyms: Iterable[BoundSymbol], arguments: set[str]) -> list[PrivateCopies]:
    """Find the in-place copies that can be removed, one group for each memory that they overwrite.

    The program must have allocated the memory, and each copy into the memory must fulfill these conditions:

    - The copy overwrites a whole tensor with a tensor of the same shape, data type and device.
    - No view that exists before the copy is read after the copy.
    - The source of the copy has no views, and is not read after the copy.
    """
    memory = _MemoryUses()
    copies: list[tuple[int, BoundSymbol, BoundSymbol]] = []
    position = 0
    for bsym in bsyms:
        for leaf in _leaves([bsym]):
            position += 1
            given, made = ([p for p in flat if is_tensor(p)] for flat in (leaf.flat_proxy_args, leaf.flat_proxy_outs))
            for proxy in given:
                memory.made.setdefault(proxy.name, position)
                memory.read.setdefault(proxy.name, []).append(position)
            for proxy in made:
                memory.made.setdefault(proxy.name, position)
            if is_copy(leaf):
                copies.append((position, leaf, bsym))
                memory.join(leaf.output.name, leaf.args[1].name)
                if leaf.args[1].name in memory.views:
                    memory.views.add(leaf.output.name)
            elif leaf.sym.id in VIEWS and given:
                memory.join(made[0].name, given[0].name)
                # A shallow copy of a whole value, such as the result of batch normalization, does not count as a view.
                if leaf.sym.id is not prims.PrimIDs.SHALLOW_COPY or given[0].name in memory.views:
                    memory.views.add(made[0].name)
            elif not isinstance(leaf.sym.id, prims.PrimIDs):
                # An operator that is not a primitive may return an input.
                for proxy in made:
                    for other in given:
                        memory.join(proxy.name, other.name)
    same = {name for _, leaf, _ in copies for name in (leaf.output.name, leaf.args[1].name)} - set(memory.views)
    found: dict[str, dict[str, BoundSymbol]] = {}
    shared, together = {memory.find(name) for name in arguments}, memory.groups()
    for at, leaf, bsym in copies:
        source, destination = leaf.args[:2]
        # Do not count the written tensor and the results of writes into it. They are one tensor with several names.
        root = memory.find(destination.name)
        others = together[root] - same
        alike = _kind(source) == _kind(destination)
        alone = together[memory.find(source.name)] == {source.name} and max(memory.read[source.name]) == at
        unseen = not any(memory.made[name] < at < max(memory.read.get(name, [0])) for name in others)
        if alike and alone and unseen and destination.name in same:
            found.setdefault(root, {})[leaf.output.name] = bsym
        else:
            shared.add(root)
    return [PrivateCopies(each, frozenset(together[root])) for root, each in found.items() if root not in shared]


def _kind(proxy: TensorProxy) -> tuple[object, ...]:
    return shape_of(proxy), proxy.dtype, proxy.device


def _overwriting_results(trace: TraceCtx) -> set[str]:
    """Find statements that overwrite memory needed by a gradient. Return the names of their results."""
    copy = from_trace(trace)
    copy.names = set(trace.names)
    copy.bound_symbols = list(trace.bound_symbols)
    tagged, origins = tag_origins(insert_alias_updates(with_arguments(copy), []))
    few = LayerPartition(tagged, origins).reduce()
    writes = None
    if few is not None:
        # A write in one layer occurs in all layers with the same structure.
        with contextlib.suppress(LayerMismatch):
            writes = _extend_to_layers(few, *_stale_writes(few.trace, origins))
    if writes is None:
        writes, _ = _stale_writes(tagged, origins)
    return {out.name for bsym in tagged.bound_symbols if origin_of(bsym) in writes for out in bsym.flat_proxy_outs}


def _stale_writes(tagged: TraceCtx, origins: tuple[Origin, ...]) -> tuple[set[int], TraceCtx]:
    """Return the origins of writes to memory that a gradient reads, and the joint trace of the program."""
    joint = grad_transform_on_trace(dce(tagged))
    graph = read_joint(joint, origins, frozenset())
    return {int(graph.statements.origin[read.write]) for read in stale_reads(graph)}, joint


def _extend_to_layers(few: ReducedTrace, writes: set[int], joint: TraceCtx) -> set[int]:
    """Add the origins of the corresponding writes in the layers that `few` leaves out.

    Raises
    ------
    LayerMismatch
        If the remaining layers differ in their joint traces or in their writes.
    """
    TraceExpander(few).check(joint)
    layers = few.run.layers
    here, there = layers[KEPT - 1], layers[-KEPT]
    places = [at for at, bsym in enumerate(here) if origin_of(bsym) in writes]
    if places != [at for at, bsym in enumerate(there) if origin_of(bsym) in writes]:
        raise LayerMismatch("other statements overwrite memory that a gradient reads")
    return writes | {origin_of(layers[left][at]) for left in few.run.left_out for at in places}


def _remove_copies(bsyms: Iterable[BoundSymbol], copies: set[str]) -> Iterator[BoundSymbol]:
    """Yield statements without the copies whose result names are in `copies`.

    Later statements read the source of a removed copy instead of the copy's result and destination. If a removed copy
    is a subsymbol, the other subsymbols replace the operator that contains the copy.
    """
    instead: dict[object, Proxy] = {}
    same: dict[str, list[Proxy]] = {}
    """For each name, all names that the value has had so far. Each in-place write gives a value a new name."""

    def rewrite(bsym: BoundSymbol) -> Iterator[BoundSymbol]:
        if is_copy(bsym):
            source, destination = bsym.args[:2]
            names = same.setdefault(destination.name, [destination])
            names.append(bsym.output)
            same[bsym.output.name] = names
            if bsym.output.name in copies:
                now = instead.get(variableify(source), source)
                instead.update((variableify(name), now) for name in names)
                return
            yield bsym.from_bsym_swap_proxies(instead)
        elif any(is_copy(leaf) and leaf.output.name in copies for leaf in _leaves(bsym.subsymbols)):
            for part in bsym.subsymbols:
                yield from rewrite(part)
        else:
            yield bsym.from_bsym_swap_proxies(instead) if instead else bsym

    left_out: list[str] = []
    for bsym in bsyms:
        if any(is_copy(leaf) and leaf.output.name in copies for leaf in _leaves([bsym])):
            left_out.append(line_of(bsym))
        for part in rewrite(bsym):
            # A subsymbol has no source position. Give it the position of its operator.
            part.source_filename, part.source_positions = bsym.source_filename, bsym.source_positions
            while left_out:
                mark([part], STALE, left_out.pop())
            yield part
