"""Find in-place writes that change other views of the same memory in PyTorch, but not in Thunder.

A write through a view also changes the base and all other views. Thunder's gradients ignore these changes. If Thunder
makes a copy where PyTorch makes a view, Thunder's values are wrong too, because the write changes only the copy.
`frontend.fx_to_thunder` repeats each missed write for the other names, or refuses the program.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from workbench.compiler.interop.thunder_api import TensorProxy
from workbench.compiler.lowering.call_normalization import is_named_in_place
from workbench.interop.torch_private import tree_iter

UNDER_NO_GRAD = "Thunder loses the gradient of a tensor that is written in place under no_grad"
COPIED = "Thunder makes a copy where PyTorch makes a view, so the write would be lost"
STATISTICS = (
    "if running statistics are views, Thunder updates them in the backward, so the forward would not change them"
)
READ_BEHIND = (
    "a tensor that a torch.autograd.Function writes in place is read later by its old name, and Dynamo's gradient is "
    "the gradient of the old content"
)

WRITTEN_INPUT = (
    "an input that has a gradient, or gets one here, is written in place, and Thunder loses the gradient that flows "
    "through the written input"
)
WRITTEN_LEAF = "a leaf Variable that requires grad is being used in an in-place operation"
WRITTEN_IN_BACKWARD = "the backward of a torch.autograd.Function writes in place into memory that is used elsewhere"

_CHECKPOINT = torch.ops.higher_order.tag_activation_checkpoint
_DROPOUTS = (functional.dropout, functional.alpha_dropout, functional.feature_alpha_dropout)
_MERGED = "merged_memory"
"""Key in a node's data for the memory of its result, if this is not the memory of Dynamo's fake tensor."""

_GIVEN = ("placeholder", "get_attr")
"""Kinds of FX nodes whose results are in memory from outside the graph: inputs and attributes."""
_SETS_GRAD = "_set_grad_enabled"
"""Name of the function that switches gradients on and off in Dynamo's graphs."""

WRITING_OPERATORS = frozenset(
    getattr(operator, name)
    for name in (
        *("setitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"),
        *("iand", "ior", "ixor", "ilshift", "irshift", "imatmul"),
    )
)
_RESHAPED = frozenset({"view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten"})
_SAME = frozenset(
    {
        *("contiguous", "to", "float", "double", "half", "bfloat16", "type", "type_as", "view_as", "cpu"),
        *("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "expand", "expand_as", "sum_to_size"),
        *("alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"),
        *("conj", "positive", "real", "resolve_conj", "resolve_neg"),
    }
)
"""Operators that return their input, or a view of the whole input, if no conversion is needed.

Thunder may return a copy instead.
"""
_SWAPPED = frozenset({"transpose", "swapaxes", "swapdims", "t", "T", "mT"})
_SHARED = _RESHAPED | {"transpose", "swapaxes", "swapdims", "t", "permute", "detach"}
"""Operators that, like indexing, return a view in PyTorch and in Thunder. If the input was written in place before,
Thunder returns a copy instead.
"""
_WHOLE = _SHARED | _SAME | _SWAPPED
_PARTS = frozenset({"getitem", "select", "narrow"})
_SEVERAL = frozenset({"split", "chunk", "unbind", "tensor_split"})
"""Operators that return several views.

Eager PyTorch refuses an in-place write to such a view if the view needs a gradient.
"""
KEEPS_STATISTICS = frozenset({"batch_norm", "instance_norm"})
"""Functions that write running statistics into their second and third argument."""
_DRAWS = ("bernoulli", "cauchy", "dropout", "exponential", "geometric", "log_normal", "normal_", "random", "uniform")
"""Substrings in the names of random operators. A draw advances the random state even if nothing reads its result."""
_HOMES = frozenset({None, "_operator", "torch", "torch.functional", "torch.nn.functional", "torch._C._nn"})
"""Values of ``__module__`` of PyTorch's own functions. A function of another module may have side effects."""


@dataclasses.dataclass(frozen=True)
class AliasWrite:
    """An in-place write to memory that later nodes read by other names.

    Attributes
    ----------
    views : tuple of Node
        The written view and its bases, without the owner. Empty if the owner itself is written.
    owner : Node
        The node that allocates the memory, or the input or attribute with this memory.
    others : tuple of Node
        Names of the memory that must be computed again from the written memory, in the order of the graph. These are
        `views`, and all other names that exist before the write and are read after the write, with their bases. Empty
        if `stored`.
    stored : bool
        Whether the program itself stores the written view into its base before a read, as ``y[0] += 1`` does. If True,
        this write need not be repeated.
    """

    views: tuple[fx.Node, ...]
    owner: fx.Node
    others: tuple[fx.Node, ...]
    stored: bool = False

    @property
    def steps(self) -> Iterator[tuple[fx.Node, fx.Node]]:
        """Pairs of a view and its base, in the order in which the views must be written into their bases.

        There are no pairs if `stored`.
        """
        return iter(()) if self.stored else itertools.pairwise((*self.views, self.owner))


def statistics_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return `running_mean` and `running_var` from a call of a `KEEPS_STATISTICS` function; None if not given."""
    first, second = (*args[1:3], None, None)[:2]
    return kwargs.get("running_mean", first), kwargs.get("running_var", second)


def writes(node: fx.Node) -> fx.Node | None:
    """Return the node whose result `node` overwrites in place, or None if `node` does not write in place."""
    first = node.args[0] if node.args else None
    if not isinstance(first, fx.Node) or node.op not in ("call_method", "call_function"):
        return None
    # An operator named like an in-place operator does not write if its result is in other memory than its input.
    named_so = is_named_in_place(node) and _name(node) not in ("requires_grad_", "detach_")
    in_place = named_so and memory_of(node) in (None, memory_of(first))
    return first if in_place or node.target in WRITING_OPERATORS or _is_asked_in_place(node) else None


def written_nodes(node: fx.Node) -> tuple[fx.Node, ...]:
    """Return all nodes whose results `node` overwrites in place.

    Unlike `writes`, this includes the members of a list, as in ``torch._foreach_add_``, and a keyword argument.
    """
    if (written := writes(node)) is not None:
        return (written,)
    if node.op not in ("call_method", "call_function") or not (is_named_in_place(node) or _is_asked_in_place(node)):
        return ()
    given = node.args[0] if node.args else node.kwargs.get("input", node.kwargs.get("self"))
    members = given if isinstance(given, list | tuple) else () if node.args else (given,)
    return tuple(member for member in members if isinstance(member, fx.Node))


def _is_asked_in_place(node: fx.Node) -> bool:
    if isinstance(node.target, str) or "inplace" not in (names := _parameters(node.target)):
        return False
    given = dict(zip(names, node.args, strict=False)) | node.kwargs
    return given.get("inplace") is True


@functools.lru_cache(maxsize=1 << 8)
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a built-in function without a signature
        return ()


def _name(node: fx.Node) -> str:
    """Return the name of the method, function or attribute that a node calls or reads."""
    if node.target is getattr:
        return str(node.args[1])
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", ""))


def _chain(node: fx.Node) -> tuple[fx.Node, ...]:
    """Return a node, its base, the base of this base, and so on up to the owner of the memory.

    The result of an in-place write counts as a view of the tensor that it overwrites.
    """
    found = [node]
    while (above := writes(found[-1]) or _base_of(found[-1])) is not None:
        found.append(above)
    return tuple(found)


def _base_of(node: fx.Node) -> fx.Node | None:
    if node.target is _CHECKPOINT:
        made = {*map(_storage_of, tree_iter(node.meta.get("example_value")))} - {None}
        return next((each for each in node.all_input_nodes if memory_of(each) in made), None)
    memory = memory_of(node)
    if node.op not in ("call_method", "call_function") or memory is None or not node.all_input_nodes:
        return None
    first = node.all_input_nodes[0]
    if first.target is _CHECKPOINT:
        # A region may return a view of its input. `unnoticed_write` refuses a write into such a view.
        return first if any(memory_of(each) == memory for each in first.all_input_nodes) else None
    # The base need not come first, as in `torch.einsum`. One of several results may be a view of any argument.
    several = first.all_input_nodes if node.target is operator.getitem and first.op.startswith("call") else ()
    return next((each for each in (*node.all_input_nodes, *several) if memory_of(each) == memory), None)


def memory_of(node: fx.Node) -> int | None:
    """Return the identity of the memory of a node's result, or of its first result; None if it is unknown."""
    if (merged := node.meta.get(_MERGED)) is not None:
        return int(merged)
    value = node.meta.get("example_value")
    return _storage_of(value[0] if isinstance(value, tuple | list) and value else value)


def _storage_of(first: Any) -> int | None:
    if not isinstance(first, torch.Tensor) or first.layout is not torch.strided:
        return None
    try:
        return int(first.untyped_storage()._cdata)
    except NotImplementedError:  # the node is inside of `torch.vmap`, which Thunder does not trace
        return None


def _is_known_view(view: fx.Node) -> bool:
    """Return whether a node makes a view of its first argument, in PyTorch and in Thunder."""
    return (
        _name(view) in _PARTS | _SEVERAL | _SHARED
        and view.all_input_nodes[0] is _base_of(view)
        and not (_name(view) == "view" and _has_type(view))
    )


def _has_type(view: fx.Node) -> bool:
    return any(isinstance(given, torch.dtype) for given in (*view.args, *view.kwargs.values()))


def _can_run_again(view: fx.Node) -> bool:
    """Return whether a node only makes a view of a tensor, so that it can be run again after a write."""
    if view.target is getattr:
        return True
    # In PyTorch, `view(dtype)` stops the gradient. Thunder's gradient does not stop there.
    if _has_type(view) and any(map(_wants_gradient, view.all_input_nodes)):
        return False
    return _only_computes(view) and _base_of(view) in view.all_input_nodes and not _writes_elsewhere(view)


def _writes_elsewhere(view: fx.Node) -> bool:
    return bool(written_nodes(view)) or view.kwargs.get("out") is not None


def _has_every_element(view: fx.Node) -> bool:
    """Return whether a view has every element of its base, and each with the same value."""
    base = view.all_input_nodes[0]
    one, other = (node.meta.get("example_value") for node in (view, base))
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or _name(view) not in _WHOLE:
        return False
    if _name(view) == "view" and _has_type(view):  # Thunder makes a copy
        return False
    conjugates = one.is_conj() is not other.is_conj() or one.is_neg() is not other.is_neg()
    return one.dtype == other.dtype and one.numel() == other.numel() and not conjugates


def _draws(node: fx.Node) -> bool:
    return any(part in _name(node) for part in _DRAWS)


def _only_computes(node: fx.Node) -> bool:
    """Return whether a node certainly computes a tensor and has no side effects."""
    if node.op not in ("call_method", "call_function") or memory_of(node) is None or _draws(node):
        return False
    built_in = isinstance(node.target, str) or getattr(node.target, "__module__", None) in _HOMES
    return built_in and "_norm" not in _name(node)  # a norm may write statistics


def _wants_gradient(node: fx.Node) -> bool:
    leaves = tree_iter(node.meta.get("example_value"))
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)


def merge_same(graph: fx.Graph) -> None:
    """Replace each node that returns its input, or a view like the input, by the input if something writes into it.

    Examples are ``x.contiguous()``, and a dropout that drops nothing. For such a dropout, PyTorch returns the input
    itself, but Dynamo's fake tensors say that the result is in new memory.
    """
    written = {memory_of(each) for node in graph.nodes for each in written_nodes(node)}
    for node in list(graph.nodes) if written else ():
        given = node.args[0] if node.args else node.kwargs.get("input")
        if node.op not in ("call_method", "call_function") or not isinstance(given, fx.Node):
            continue
        own, memory = memory_of(node), memory_of(given)
        if own is None or memory is None or written.isdisjoint((own, memory)):
            continue
        dropped_nothing = node.target in _DROPOUTS and _drops_nothing(node)
        same = own == memory and _name(node) in _SAME | {"view"} and _is_alike(node, given) and not written_nodes(node)
        if not dropped_nothing and not same:
            continue
        written.add(memory)
        for each in graph.nodes:
            if memory_of(each) == own:
                each.meta[_MERGED] = memory
        node.replace_all_uses_with(given)
        graph.erase_node(node)


def _is_alike(node: fx.Node, other: fx.Node) -> bool:
    one, two = node.meta["example_value"], other.meta.get("example_value")
    if not isinstance(two, torch.Tensor) or one.is_conj() is not two.is_conj() or one.is_neg() is not two.is_neg():
        return False
    facts = [(x.dtype, x.shape, x.stride(), x.storage_offset(), x.requires_grad) for x in (one, two)]
    return facts[0] == facts[1]


def _drops_nothing(node: fx.Node) -> bool:
    assert callable(node.target)
    call = inspect.signature(node.target).bind(*node.args, **node.kwargs)
    call.apply_defaults()
    return call.arguments["training"] is False or call.arguments["p"] == 0


class Aliases:
    """Alias analysis of a graph: which memory each node names, and which writes Thunder would miss.

    Parameters
    ----------
    graph : Graph
        Graph from Dynamo, with a fake tensor as the value of each node.
    differentiated : bool
        Whether the program needs gradients. The graph shows where the program switches gradients off.
    """

    def __init__(self, graph: fx.Graph, differentiated: bool) -> None:
        self._graph = graph
        self._differentiated = differentiated

    @functools.cached_property
    def _nodes_without_gradient(self) -> frozenset[fx.Node]:
        """Nodes that run while gradients are switched off."""
        found, enabled = set(), self._differentiated
        for node in self._graph.nodes:
            if node.op == "call_function" and _name(node) == _SETS_GRAD:
                enabled = self._differentiated and bool(node.args[0])
            elif not enabled:
                found.add(node)
        return frozenset(found)

    @functools.cached_property
    def _reads(self) -> dict[fx.Node, list[tuple[fx.Node, fx.Node]]]:
        """The reads of memory, by owner of the memory, in order: pairs of a node and the name that the node reads."""
        owners: dict[fx.Node, fx.Node] = {}
        found: dict[fx.Node, list[tuple[fx.Node, fx.Node]]] = {}
        for node in self._graph.nodes:
            above = writes(node) or _base_of(node)
            owners[node] = node if above is None else owners[above]
            for read in node.all_input_nodes:
                found.setdefault(owners[read], []).append((node, read))
        return found

    @functools.cached_property
    def _copied(self) -> frozenset[fx.Node]:
        """Nodes whose results may be copies in Thunder, although PyTorch makes views. All other views are known."""
        found: set[fx.Node] = set()
        for node in self._graph.nodes:
            above, written = _base_of(node), writes(node)
            made = written is None and above is not None and not _is_known_view(node)
            if made or (written or above) in found:
                found.add(node)
        return frozenset(found)

    @functools.cached_property
    def _names_by_memory(self) -> dict[int, list[fx.Node]]:
        """The nodes whose results are in a storage, by the storage's id."""
        found: dict[int, list[fx.Node]] = {}
        for node in self._graph.nodes:
            memory = memory_of(node)
            if memory is not None:
                found.setdefault(memory, []).append(node)
        return found

    @functools.cached_property
    def _last_writes(self) -> dict[fx.Node, fx.Node]:
        """The last node that overwrites each memory in place, by owner of the memory."""
        return {_chain(written)[-1]: node for node in self._graph.nodes for written in written_nodes(node)}

    def needs_own_memory(self, node: fx.Node) -> bool:
        """Return whether PyTorch puts the result of a node in new memory, and a write would show a shared memory.

        Such a write comes after the node, and overwrites the memory of the result or of an input.
        """
        # For `dropout`, Dynamo has new memory, but PyTorch returns the input itself if it drops nothing.
        memory = memory_of(node) if self._last_writes and _only_computes(node) else None
        if memory is None or self._names_by_memory[memory][0] is not node:
            return False
        owners = (_chain(held)[-1] for held in (node, *node.all_input_nodes))
        return any(node < self._last_writes.get(owner, node) for owner in owners)

    def results_with_own_memory(self, region: fx.Node) -> list[bool]:
        """Return, for each result of a checkpointed region, whether PyTorch puts it in new memory, and writes follow.

        The writes may be to any memory.
        """
        given = {memory_of(each) for each in region.all_input_nodes}
        written = any(region < last for last in self._last_writes.values())
        return [written and _storage_of(each) not in given for each in region.meta["example_value"]]

    @functools.cached_property
    def unread_writes(self) -> dict[fx.Node, fx.Node]:
        """The nodes that write without effect, each with the node whose result it overwrites.

        The write goes to memory that the program allocates, and no later node reads this memory. Thunder moves such a
        write into the backward. If the program has no backward, Thunder creates a backward for the write.
        """
        found: dict[fx.Node, fx.Node | None] = {}
        for node in reversed(self._graph.nodes if self._differentiated else ()):
            written = writes(node)
            memory = None if written is None else memory_of(written)
            if memory is None:
                if written is None and _only_computes(node) and found.keys() >= node.users.keys():
                    found[node] = None
            elif not _draws(node) and not any(
                holder.op in _GIVEN or any(node < user and user not in found for user in holder.users)
                for holder in self._names_by_memory[memory]
            ):
                found[node] = written
        return {node: written for node, written in found.items() if written is not None}

    @functools.cached_property
    def unnoticed_writes(self) -> tuple[tuple[fx.Node, fx.Node], ...]:
        """Writes that Thunder would wrongly move to the backward, as pairs of the writing and the overwritten node.

        Each such write is the last write to memory that is visible after the program ends: the memory of an input or a
        result. The write does not use the visible name of the memory, and no later statement reads the written name.
        The program's return reads the memory by its visible name. Thunder does not count this return as a read of the
        written name, and therefore moves the write to the backward.
        """
        found = []
        for owner, reads in self._reads.items() if self._differentiated else ():
            seen = {name for reader, name in reads if reader.op == "output"}
            seen.update((owner,) if owner.op in _GIVEN else ())
            readers = (
                reader for reader, _ in reversed(reads) if reader.op != "output" and reader not in self.unread_writes
            )
            last = next(readers, owner)
            if (written := writes(last)) is None or _chain(last)[-1] is not owner:
                continue
            if seen - {last, written} and self.unnoticed_write(last) is None:
                found.append((last, written))
        return tuple(sorted(found))

    def refuse_statistics(self, node: fx.Node) -> None:
        """Refuse a norm that stores its running statistics in views, such as ``state[0]``.

        Raises
        ------
        NotImplementedError
            If `node` is such a norm and the program needs gradients.
        """
        if not self._differentiated or _name(node) not in KEEPS_STATISTICS:
            return
        kept = statistics_of(node.args, node.kwargs)
        if any(isinstance(each, fx.Node) and _base_of(each) is not None for each in kept):
            raise NotImplementedError(STATISTICS)

    def refuse_leaf(self, node: fx.Node) -> None:
        """Refuse an in-place write into a leaf that requires gradients, as eager PyTorch does.

        Raises
        ------
        NotImplementedError
            If `node` writes into such a leaf. The message is PyTorch's.
        """
        for owner in self._written_inputs(node):
            value = owner.meta.get("example_value")
            if isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf:
                raise NotImplementedError(WRITTEN_LEAF)

    def refuse_input(self, node: fx.Node) -> None:
        """Refuse an in-place write after which an input depends on values that need gradients.

        The caller may read the input after the program. Its gradient then flows through the write.

        Raises
        ------
        NotImplementedError
            If `node` is such a write.
        """
        if not self._differentiated or not any(map(_wants_gradient, node.all_input_nodes)):
            return
        for owner in self._written_inputs(node):
            value = owner.meta.get("example_value")
            if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
                raise NotImplementedError(WRITTEN_INPUT)

    def _written_inputs(self, node: fx.Node) -> Iterator[fx.Node]:
        """Yield the inputs and attributes that a node writes, unless gradients are off or the value is detached."""
        if node in self._nodes_without_gradient:
            return
        for written in written_nodes(node):
            *chain, owner = _chain(written)
            if owner.op in _GIVEN and not any(_name(each).startswith("detach") for each in (*chain, node)):
                yield owner

    def returned_input(self, node: fx.Node) -> fx.Node | None:
        """Return a node's input if the node returns this input itself while gradients are switched off, else None.

        An example is ``loss.float()`` if ``loss`` is float32. Thunder would detach the result. In PyTorch the result is
        the input tensor itself, which requires a gradient.
        """
        if node not in self._nodes_without_gradient or not _wants_gradient(node) or _name(node) not in _SAME:
            return None
        if (first := _base_of(node)) is None:
            return None
        one, other = (each.meta["example_value"] for each in (node, first))
        same = (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        return first if same else None

    def unnoticed_write(self, node: fx.Node) -> AliasWrite | None:
        """Return the in-place write of a node if a later statement or the caller would miss this write, else None.

        Raises
        ------
        NotImplementedError
            If Thunder would lose a gradient because of the write, or if the write cannot be repeated for all names of
            its memory.
        """
        if writes(node) is None:
            return None
        chain = _chain(node)
        *parts, owner = [view for view in chain if writes(view) is None]
        renamed = bool(parts) and any(writes(view) is not None for view in chain[1:])
        copied = renamed or any(not _is_known_view(part) for part in parts)
        unseen = node in self._nodes_without_gradient
        found = list(self._later_reads(node, chain, copied=copied))
        if not found and not (copied and owner.op in _GIVEN):
            return None
        copied = copied or any(name in self._copied for _, name in found)
        lost = unseen and any(
            _wants_gradient(name) and reader not in self._nodes_without_gradient for reader, name in found
        )
        detached = any(_name(part) == "detach" for part in parts)
        if lost or (detached and copied):
            raise NotImplementedError(UNDER_NO_GRAD if lost else COPIED)
        if detached:  # Thunder's gradient ignores a write to a detached view, as PyTorch's gradient does
            return None
        if unseen and not copied:
            return None
        if found and _is_stored_next(node, chain, found[0][0]):
            return AliasWrite((parts[0],), owner, (), stored=True)
        if any(_name(part) not in _PARTS and not _has_every_element(part) for part in parts):
            raise NotImplementedError(COPIED)
        names = {
            *parts,
            *(view for _, name in found for view in _chain(name) if view is not owner and view is not node),
        }
        if not all(writes(name) is not None or _can_run_again(name) for name in names):
            raise NotImplementedError(COPIED)
        return AliasWrite(tuple(parts), owner, tuple(sorted(names)))

    def _later_reads(
        self, node: fx.Node, chain: tuple[fx.Node, ...], *, copied: bool
    ) -> Iterator[tuple[fx.Node, fx.Node]]:
        """Yield pairs: a node that reads the written memory after a write, and the name by which this node reads it.

        `copied` is True if Thunder makes a copy where PyTorch makes a view. Reads by a name that is created after the
        write do not count. If `copied` is False, and the name is a view in Thunder, too, only reads that take part in
        gradients count. Reads by the name of the written tensor count only if `copied` is False and the write runs
        while gradients are switched off.
        """
        known = () if node in self._nodes_without_gradient and not copied else (node, chain[1])
        for behind, read in self._reads.get(chain[-1], ()):
            before = node < behind and (read is node or read < node) and read not in known
            seen = behind not in self._nodes_without_gradient and (behind.op == "output" or _wants_gradient(behind))
            if before and (copied or read in self._copied or (seen and _wants_gradient(read))):
                yield behind, read


def overwrites(node: fx.Node, forward: fx.Graph) -> bool:
    """Return whether a `torch.autograd.Function` writes into an input that needs a gradient and is read later.

    Parameters
    ----------
    node : Node
        Call of the function. Its arguments are the forward, the backward and the inputs.
    forward : Graph
        Graph of the function's forward.
    """
    written = {_chain(each)[-1] for each in forward.nodes if writes(each) is not None}
    inputs, given = list(forward.find_nodes(op="placeholder")), node.args[2:]
    # The autograd context may precede the inputs.
    for inside, outside in zip(inputs[len(inputs) - len(given) :], given, strict=True):
        if inside in written and isinstance(outside, fx.Node) and _wants_gradient(outside):
            held = memory_of(outside)
            names = (each for each in node.graph.nodes if each < node and memory_of(each) == held)
            if any(node < reader for name in names for reader in name.users):
                return True
    return False


def writes_in_backward(forward: fx.Graph, backward: fx.Graph) -> bool:
    """Return whether the backward of a `torch.autograd.Function` writes into memory that is visible outside.

    Inputs, results and attributes of the forward are visible outside. Thunder puts a write into the forward or the
    backward according to the statements that read its result. If only code outside reads the memory, the trace has no
    such statement.

    Parameters
    ----------
    forward, backward : Graph
        The forward returns results and saved values. The backward takes the context, the gradients of the results and
        the saved values.
    """
    results, saved = next(iter(forward.find_nodes(op="output"))).args[0]
    inputs = list(backward.find_nodes(op="placeholder"))
    kept = dict(zip(inputs[len(inputs) - len(saved) :], saved, strict=True))
    listed = results if isinstance(results, tuple | list) else (results,)
    given_back = {_chain(each)[-1] for each in listed if isinstance(each, fx.Node)}
    for node in backward.nodes:
        if writes(node) is None:
            continue
        owner = _chain(node)[-1]
        source = kept.get(owner)
        made_in = _chain(source)[-1] if isinstance(source, fx.Node) else None
        if owner.op == "get_attr" or (made_in is not None and (made_in.op in _GIVEN or made_in in given_back)):
            return True
    return False


def _is_stored_next(node: fx.Node, chain: tuple[fx.Node, ...], reader: fx.Node) -> bool:
    """Return whether the program stores a written part into its base before `reader`; see `AliasWrite.stored`."""
    _, written, *above = chain
    stores = [user for user in node.users if user.target is operator.setitem and user.args[2] is node]
    return any(
        user < reader and above and user.args[0] is above[0] and user.args[1] == written.args[1] for user in stores
    )


def index_of(view: fx.Node, index: Any) -> Any:
    """Return the index for which ``base[index]`` is the part that a node selects.

    Parameters
    ----------
    view : Node
        Node that selects the part.
    index : tuple
        Values of the node's arguments after the base.
    """
    if view.target is operator.getitem:
        return index[0]
    dim, first, *count = index
    place: Any = first if not count else slice(first, first + count[0])
    value = view.args[0].meta["example_value"] if isinstance(view.args[0], fx.Node) else None
    assert value is not None
    return (*(slice(None) for _ in range(dim % value.ndim)), place)


def is_part(view: fx.Node) -> bool:
    """Return whether a view is a part of its base, such as ``x[0]``, and not the whole base in another shape."""
    return _name(view) in _PARTS


def base_value(view: fx.Node, value: TensorProxy, shape: tuple[int, ...]) -> TensorProxy:
    """Compute a base from a view of the whole base, for example from its transpose.

    Parameters
    ----------
    view : Node
        Node that made the view.
    value : TensorProxy
        Value of the view.
    shape : tuple of int
        Shape of the base.
    """
    name, given = _name(view), view.args[1:]
    if name == "permute":
        dims: Any = given[0] if len(given) == 1 else given
        order = [int(dim) % len(shape) for dim in dims]
        turned: TensorProxy = value.permute(*(order.index(at) for at in range(len(order))))
        return turned
    swapped = given if name not in ("t", "T", "mT") else (-2, -1)
    whole: TensorProxy = value.transpose(*swapped) if name in _SWAPPED else value.reshape(shape)
    return whole
