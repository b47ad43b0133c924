"""Record the nodes that Dynamo traces for one module, and copy these nodes for an equal module."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from workbench.compiler.frontend.module_equality import ModuleCall, describe, own_tensors, tensor_traits
from workbench.compiler.layers.partition import LayerMismatch
from workbench.compiler.lowering.call_normalization import is_named_in_place
from workbench.interop.torch_private import (
    GETATTR_METHOD,
    AttributeMutationExisting,
    ConstantVariable,
    FakeTensor,
    LazyVariableTracker,
    TensorVariable,
    TupleVariable,
    UnspecializedNNModuleVariable,
    ValueMutationExisting,
    VariableBuilder,
    VariableTracker,
    _pytree,
    handle_traced_output,
    no_dispatch,
)

EXISTING = (AttributeMutationExisting, ValueMutationExisting)
"""Types with which Dynamo marks a variable whose object existed before the trace."""
_OF_EACH = ("creation_timestamp", "example_value", "grapharg", "tensor_dict")
"""Keys of Dynamo's node metadata that are valid for only one node."""
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
_IN_PLACE = frozenset({"setitem", "__setitem__", *(f"i{name}" for name in _OPERATORS)})


@dataclasses.dataclass(frozen=True)
class TracedModule:
    """A module that was traced.

    Attributes
    ----------
    module : Module
    source : Source
        Dynamo's expression for the module.
    call : ModuleCall
    nodes : tuple of Node
        Nodes that Dynamo recorded for the call.
    names : mapping of Node to list of (Node, str)
        Nodes that Dynamo renamed after variables of the user's code, with their new names. The key is the last node of
        the graph at the time of the renaming.
    outside : mapping of Node to tuple
        Other values that the nodes read: ``("argument", at)`` for an argument, ``("tensor", path)`` for a tensor of the
        module, and ``("fixed", node)`` for a graph input that does not belong to the module.
    inputs : mapping of str to Node
        Maps paths of the module's tensors to the graph inputs that this call created, in order.
    given : tuple
        Description of the result of the call; see `module_equality.describe`.
    calls : mapping of str to int
        Maps the name of a submodule, relative to the module, to the number of its calls.
    read : str
        Dynamo's expressions for all objects in the module that Dynamo guards, one per line. Each expression is relative
        to the module.
    written : tuple
        Summary of the nodes. It leaves out names and objects that may differ between equal modules.
    """

    module: torch.nn.Module
    source: Any
    call: ModuleCall
    nodes: tuple[fx.Node, ...]
    names: Mapping[fx.Node, list[tuple[fx.Node, str]]]
    outside: Mapping[fx.Node, tuple[Any, ...]]
    inputs: Mapping[str, fx.Node]
    given: tuple[Any, ...]
    calls: Mapping[str, int]
    read: str
    written: tuple[Any, ...]


def module_summary(sample: TracedModule) -> tuple[Any, ...]:
    """Return the properties that must agree before a module may reuse a trace.

    `module_reuse` traces two equal modules and compares these properties.
    """
    return (sample.written, sample.given, list(sample.inputs), sample.calls)


class GraphBefore:
    """The state of the graph before a module is traced, and records of events while the module is traced."""

    def __init__(self, tx: Any, module: torch.nn.Module) -> None:
        graph = tx.output.graph
        self._own = {id(each) for each in (*module.modules(), *module.parameters(), *module.buffers())}
        self.last: fx.Node | None = next(iter(reversed(graph.nodes)), None)
        self.inputs = len(tx.output.placeholders)
        self.calls = dict(tx.num_calls)
        self.alone = True
        """False if the module changed state that other code sees, or read state that the trace has changed."""
        self.anonymous = True
        """False if the module used its identity, or the identity of a submodule, parameter or buffer."""
        self.hooks = len(tx.output.side_effects.tensor_hooks)
        self.names: list[tuple[fx.Node, fx.Node, str]] = []
        """For each renamed node since the start of the trace: the last node of the graph when it was renamed, the
        renamed node, and its new name.
        """
        self.set_on_others: dict[int, Any] = {}
        for item, values in tx.output.side_effects.store_attr_mutations.items():
            if isinstance(item.mutation_type, EXISTING):
                # The program has set attributes of objects that exist outside of the trace. Keep a reference to each
                # variable in these attributes. Without the reference, Python could give the id of this variable to
                # another object.
                VariableTracker.visit(lambda inner: self.set_on_others.setdefault(id(inner), inner), values)

    def is_own(self, item: Any) -> bool:
        """Return whether the object of Dynamo's variable `item` is the module, or one of its modules or tensors."""
        if type(item) is LazyVariableTracker:
            item = item.unwrap()
        value = _tensor_of(item.as_proxy().node) if type(item) is TensorVariable else vars(item).get("value")
        return id(value) in self._own


def sample_of(graph_before: GraphBefore, var: Any, tx: Any, call: ModuleCall, result: Any) -> TracedModule:
    """Return the record of a module after Dynamo has traced the module.

    Raises
    ------
    LayerMismatch
        If the nodes of the module cannot be copied for other modules.
    """
    if not graph_before.alone or len(tx.output.side_effects.tensor_hooks) != graph_before.hooks:
        raise LayerMismatch("it changes what Python sees outside of it, or registers a hook")
    if not graph_before.anonymous:
        raise LayerMismatch("it compares or looks up itself, a module in it, or its tensor, by identity")
    nodes: list[fx.Node] = []
    for node in reversed(tx.output.graph.nodes):
        if node is graph_before.last:
            break
        if node.op != "placeholder":
            nodes.append(node)
    nodes.reverse()
    if any(node.op not in ("call_function", "call_method") for node in nodes):
        raise LayerMismatch("it contains more than calls of functions")
    memory = {_storage_of(node) for node in call.tensors}
    if any(_is_in_place(node) and _storage_of(node.args[0]) in memory for node in nodes):
        # A write may have changed Dynamo's data about the argument.
        raise LayerMismatch("it writes an argument in place")
    own: dict[int, str] = {}
    for at, tensor in own_tensors(var.value).items():
        own.setdefault(id(tensor), at)
    paths = {node: own.get(id(_tensor_of(node))) for node in tx.output.placeholders}
    numbers = {node: at for at, node in enumerate(nodes)}
    outside: dict[fx.Node, tuple[Any, ...]] = {}
    for node in nodes:
        for read in node.all_input_nodes:
            if read in numbers or read in outside:
                continue
            own_path = paths.get(read)
            if read in call.tensors:
                if own_path is not None:
                    raise LayerMismatch("an argument is also one of its own parameters")
                outside[read] = ("argument", call.tensors.index(read))
            elif own_path is not None:
                outside[read] = ("tensor", own_path)
            elif read.op == "placeholder":
                outside[read] = ("fixed", read)
            else:
                raise LayerMismatch("it reads a value of another module")
    new = [node for node in tx.output.placeholders[graph_before.inputs :] if node in outside]
    if any(paths[node] is None for node in new):
        raise LayerMismatch("it reads a parameter of another module")
    inputs = {str(paths[node]): node for node in new}
    known = {node: ("argument", at) for at, node in enumerate(call.tensors)}
    known.update((node, ("node", at)) for node, at in numbers.items())
    given = describe(result, {}, known)
    changed = {called: count for called, count in tx.num_calls.items() if count != graph_before.calls.get(called, 0)}
    if any(called in graph_before.calls or not _is_inside(called, call.name) for called in changed):
        raise LayerMismatch("it calls a module outside of itself")
    calls = {called.removeprefix(call.name): count for called, count in changed.items()}
    prefix = var.source.name
    guarded = "\n".join(
        guard.name.removeprefix(prefix) for guard in tx.output.guards.inner if guard.name.startswith(prefix)
    )
    names: dict[fx.Node, list[tuple[fx.Node, str]]] = {}
    for last, named, name in graph_before.names:
        if last not in numbers or named not in numbers:
            raise LayerMismatch("Dynamo renames a node of other code in it")
        names.setdefault(last, []).append((named, name))
    sample = TracedModule(var.value, var.source, call, tuple(nodes), names, outside, inputs, given, calls, guarded, ())
    written = tuple(_node_summary(sample, node, numbers) for node in nodes)
    return dataclasses.replace(sample, written=written)


def _is_inside(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _is_in_place(node: fx.Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name in _IN_PLACE or is_named_in_place(node)


def _storage_of(node: Any) -> int | None:
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _tensor_of(node: fx.Node) -> Any:
    known = node.meta.get("grapharg")
    return known.example if known is not None and known.is_tensor else None


def _node_summary(sample: TracedModule, node: fx.Node, numbers: Mapping[fx.Node, int]) -> tuple[Any, ...]:
    """Return a summary of a node, to compare the nodes of two modules that should be equal."""

    def summary_of(input_node: fx.Node) -> Any:
        return ("node", numbers[input_node]) if input_node in numbers else sample.outside[input_node]

    args = fx.node.map_arg((node.args, node.kwargs), summary_of)
    made = node.meta.get("example_value")
    traits = [tensor_traits(t) if isinstance(t, torch.Tensor) else t for t in _pytree.tree_leaves(made)]
    paths = {str(id(module)): path for path, module in sample.module.named_modules()}
    around = []
    for key, (name, kind) in node.meta.get("nn_module_stack", {}).items():
        number, _, again = key.partition("@")
        around.append((paths.get(number, key), again, name.removeprefix(sample.call.name), kind))
    return (node.op, node.target, args, traits, around, node.stack_trace)


def copy_module(sample: TracedModule, var: Any, tx: Any, call: ModuleCall) -> Any:
    """Copy the nodes of a traced module for an equal module. Return Dynamo's variable for the result of the call."""
    module = var.value
    ones, others = (dict(m.named_modules(remove_duplicate=False)) for m in (sample.module, module))
    ids = {str(id(one)): str(id(others[path])) for path, one in ones.items()}

    def copy_metadata(new: fx.Node, node: fx.Node) -> None:
        """Copy the metadata of `node` to `new`, except for `_OF_EACH`."""
        own = {key: new.meta[key] for key in _OF_EACH if key in new.meta}
        new.meta = {**node.meta, **own}
        if "nn_module_stack" in node.meta:
            new.meta["nn_module_stack"] = dict(
                _translate_module_entry(key, entry, ids, sample.call.name, call.name)
                for key, entry in node.meta["nn_module_stack"].items()
            )

    known = set(tx.output.placeholders)
    inputs: dict[str, fx.Node] = {}
    for path, node in sample.inputs.items():
        own = inputs[path] = _input_like(node, sample, var, tx, path)
        if own not in known:
            copy_metadata(own, node)
    replaced: dict[fx.Node, fx.Node] = {}
    for node, (what, *which) in sample.outside.items():
        if what == "argument":
            replaced[node] = call.tensors[which[0]]
        else:
            replaced[node] = node if what == "fixed" else inputs.get(which[0]) or _own_node(var, tx, which[0])
    for node in sample.nodes:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), replaced.__getitem__)
        new = replaced[node] = tx.output.create_node(node.op, node.target, args, kwargs)
        copy_metadata(new, node)
        if "source_fn_stack" in node.meta:
            *before, (_, last) = node.meta["source_fn_stack"]
            new.meta["source_fn_stack"] = [*before, (new.name, last)]
        for named, name in sample.names.get(node, ()):
            replaced[named]._rename(name)
    for name, count in sample.calls.items():
        tx.num_calls[call.name + name] = count
    return _copy_result(sample, sample.given, tx, call, replaced, {})


def _translate_module_entry(
    key: str, entry: tuple[str, Any], ids: Mapping[str, str], name: str, new_name: str
) -> tuple[str, tuple[str, Any]]:
    """Translate an entry of a node's module stack from the traced module to the module that gets the copied node."""
    number, at, again = key.partition("@")
    inside = _is_inside(entry[0], name)
    return f"{ids.get(number, number)}{at}{again}", (
        new_name + entry[0].removeprefix(name),
        entry[1],
    ) if inside else entry


def _input_like(node: fx.Node, sample: TracedModule, var: Any, tx: Any, path: str) -> fx.Node:
    """Return the graph input for a tensor of a module. `node` is the traced module's graph input for an equal tensor.

    This function gets the tensor without Dynamo's variables for the modules on the path to the tensor. With these
    variables and their guards, the creation of an input would take more than twice as long.
    """
    module, _, name = path.rpartition(".")
    source = _translate_source(node.meta["grapharg"].source, sample.source, var.source)
    tensor = getattr(var.value.get_submodule(module), name)
    fake = _fake_like(node.meta["example_value"], tensor, tx.fake_mode)
    own: fx.Node = VariableBuilder(tx, source)(tensor).as_proxy().node
    del fake  # PyTorch refers to the fake tensor only weakly until here
    return own


def _fake_like(like: Any, tensor: torch.Tensor, mode: Any) -> Any:
    """Make the fake tensor of `tensor` from the fake tensor `like` of an equal tensor.

    This saves half of the time to create an input, because Dynamo would first build a description of the tensor. Return
    None if the fake tensor could differ from Dynamo's, for example for a view. Dynamo then makes the fake tensor.
    """
    converter = mode.fake_tensor_converter
    describer = converter.meta_converter.describer
    if (
        type(tensor) not in (torch.nn.Parameter, FakeTensor)
        or not tensor.dim()
        or tensor.layout is not torch.strided
        or tensor_traits(tensor) != tensor_traits(like)
        or not tensor.is_leaf
        or tensor._is_view()
        or tensor.is_complex()
        or tensor.is_inference()
        or tensor.grad is not None
        or tensor.storage_offset()
        or tensor in describer.lookup_tensor
        or (storage := tensor.untyped_storage()) in describer.lookup_storage
        or not storage.nbytes()
    ):
        return None
    with no_dispatch():
        meta = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="meta")
        made = FakeTensor(mode, meta, like.device)
    made.requires_grad = like.requires_grad
    if isinstance(like, torch.nn.Parameter):
        made._is_param = True
    converter.set_tensor_memo(tensor, made)
    converter.meta_converter.storage_memo[describer.get_storage_id(storage)] = made.untyped_storage()
    return made


def _translate_source(source: Any, old: Any, new: Any) -> Any:
    """Translate Dynamo's expression for an object in the module `old` to the module `new`."""
    if source == old:
        return new
    return dataclasses.replace(source, base=_translate_source(source.base, old, new))


def _own_node(var: Any, tx: Any, path: str) -> fx.Node:
    """Return the graph input for a tensor of a module. Create the input if it does not exist."""
    for name in path.split("."):
        var = getattr(var, GETATTR_METHOD)(tx, name)
        if type(var) is LazyVariableTracker:
            var = var.realize()
        if isinstance(var, UnspecializedNNModuleVariable) and not name.isidentifier():
            # Dynamo also makes this call for a module in a container such as `ModuleList`, whose name is an index.
            var.set_nn_module_stack_source(var.source)
    node: fx.Node = var.as_proxy().node
    return node


def _copy_result(
    sample: TracedModule,
    result: tuple[Any, ...],
    tx: Any,
    call: ModuleCall,
    replaced: Mapping[fx.Node, fx.Node],
    variables: dict[fx.Node, Any],
) -> Any:
    """Return Dynamo's variable for the result of a copied module, given the description of the traced result."""
    kind, *rest = result
    if kind == "constant":
        return ConstantVariable.create(rest[1])
    if kind == "tuple":
        return TupleVariable([_copy_result(sample, item, tx, call, replaced, variables) for item in rest])
    what, at = rest[0]
    if what == "argument":
        return call.variables[at]
    node = replaced[sample.nodes[at]]
    if node not in variables:
        value = node.meta.pop("example_value")
        proxy = fx.Proxy(node, tx.output.current_tracer)
        named = any(sample.nodes[at] is other for names in sample.names.values() for other, _ in names)
        variables[node] = handle_traced_output(value, tx, proxy, {"_is_name_set": named}, None, TensorVariable)
    return variables[node]
