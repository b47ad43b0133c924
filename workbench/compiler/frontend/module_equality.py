"""Compare two modules of a program, and calls of modules, by all properties that Dynamo reads when it traces them."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from workbench.compiler.layers.partition import LayerMismatch
from workbench.interop.torch_private import (
    ConstantVariable,
    FakeTensor,
    LazyVariableTracker,
    TensorVariable,
    TupleVariable,
    _len_torch_function_stack,
)

_OWN = frozenset({"_parameters", "_buffers", "_modules"})
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_REGISTERED = re.compile(r"\._(?:modules|parameters|buffers)\[(['\"])([^'\"\]]+)\1\]")


@dataclasses.dataclass(frozen=True)
class ModuleCall:
    """Properties of a module's call. For modules of one kind, `state` and `given` are equal.

    Attributes
    ----------
    state : tuple
        PyTorch's modes (gradients, inference, autocast), the modules that contain the called module, and the lines that
        call it.
    given : tuple
        Description of the arguments: values of constants, properties of tensors, and which arguments are one tensor.
    tensors : tuple of Node
        Nodes of the tensors among the arguments, each once.
    variables : tuple
        Dynamo's variables of these tensors.
    name : str
        Dynamo's name for the module.
    """

    state: tuple[Any, ...]
    given: tuple[Any, ...]
    tensors: tuple[fx.Node, ...]
    variables: tuple[Any, ...]
    name: str


def mentions_attribute(expressions: str, name: str) -> bool:
    """Return whether the expressions that Dynamo guards contain the attribute `name`."""
    return re.search(rf"\b{re.escape(name)}\b", expressions) is not None


def differing_attributes(first: torch.nn.Module, second: torch.nn.Module) -> frozenset[str]:
    """Return the names of attributes that differ between two modules or between their submodules.

    Raises
    ------
    LayerMismatch
        If the modules differ in anything else, such as classes, parameters or the names of attributes. Also if a module
        has hooks or a `forward` of its own.
    """
    ones, others = (dict(m.named_modules(remove_duplicate=False)) for m in (first, second))
    if list(ones) != list(others):
        inside = sorted(ones.keys() ^ others.keys())
        raise LayerMismatch(f"{inside[0]} is in only one of the two" if inside else "its modules have another order")
    if _pattern(ones.values()) != _pattern(others.values()):
        raise LayerMismatch("it shares modules in another way")
    found: set[str] = set()
    for path, module in ones.items():
        beside = others[path]
        where = path or "it"
        if type(module) is not type(beside):
            raise LayerMismatch(f"{where} is a {type(beside).__name__}, not a {type(module).__name__}")
        if _has_hooks(module) or _has_hooks(beside):
            raise LayerMismatch(f"{where} has hooks")
        for table in ("_parameters", "_buffers"):
            mine, its = getattr(module, table), getattr(beside, table)
            if mine.keys() != its.keys():
                raise LayerMismatch(f"{where} has other parameters or buffers")
            for name, tensor in mine.items():
                if tensor_traits(tensor) != tensor_traits(its[name]):
                    own = f"{path}.{name}".lstrip(".")
                    raise LayerMismatch(f"{own} is {_tensor_text(its[name])}, not {_tensor_text(tensor)}")
        mine, its = vars(module), vars(beside)
        if mine.keys() != its.keys():
            raise LayerMismatch(f"{where} has other attributes: {', '.join(sorted(mine.keys() ^ its.keys()))}")
        if "forward" in mine:
            raise LayerMismatch(f"{where} has a forward of its own")
        found.update(name for name in mine.keys() - _OWN if not _is_same(mine[name], its[name]))
    if _pattern(own_tensors(first).values()) != _pattern(own_tensors(second).values()):
        raise LayerMismatch("it shares other parameters or buffers")
    return frozenset(found)


def _tensor_text(tensor: torch.Tensor | None) -> str:
    """Describe a tensor by the properties that differ most often."""
    if tensor is None:
        return "None"
    strides = f" with strides {tensor.stride()}" if tensor.layout is torch.strided else ""
    grad = ", with a gradient" if tensor.requires_grad else ", without a gradient"
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}{strides} on {tensor.device}{grad}"


def _has_hooks(module: torch.nn.Module) -> bool:
    return any(len(value) > 0 for name, value in vars(module).items() if name.endswith("_hooks") and value is not None)


def _is_same(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, _PLAIN):
        return bool(first == second)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(_is_same, first, second))
    if isinstance(first, dict):
        return list(first) == list(second) and all(_is_same(first[key], second[key]) for key in first)
    if type(first) is functools.partial:
        return (
            first.func is second.func
            and _is_same(first.args, second.args)
            and _is_same(first.keywords, second.keywords)
        )
    return isinstance(first, set) and all(isinstance(item, _PLAIN) for item in first) and list(first) == list(second)


def _pattern(objects: Iterable[Any]) -> list[int]:
    """Return a number for each object: the position at which the same object first occurs."""
    first: dict[int, int] = {}
    return [first.setdefault(id(item), at) for at, item in enumerate(objects)]


def own_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a module, by path. A tensor with several paths appears under each path."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def tensor_traits(tensor: torch.Tensor | None) -> tuple[Any, ...] | None:
    """Return the properties of a tensor that Dynamo reads. For a subclass or a symbolic size, return a unique value."""
    if tensor is None:
        return None
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and not isinstance(tensor, FakeTensor):
        return (id(tensor),)
    if any(isinstance(size, torch.SymInt) for size in tensor.shape):
        # The value of a symbolic size is unknown, and a comparison with a different size would add a guard.
        return (id(tensor),)
    strides = tensor.stride() if tensor.layout is torch.strided else None
    return (
        tuple(tensor.shape), strides, tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad, tensor.is_leaf,
        isinstance(tensor, torch.nn.Parameter), tensor._is_view(),
    )  # fmt: skip


def call_of(var: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ModuleCall:
    """Return the properties of a module's call that are known before Dynamo traces the call.

    Raises
    ------
    LayerMismatch
        If an argument is not a tensor, constant or tuple of these. Also if the call is inside an operator that takes
        functions, such as a checkpoint.
    """
    if var.source is None or len(tx.output.tracers) > 1 or _len_torch_function_stack():
        raise LayerMismatch("it is called inside of an operator that takes functions")
    tensors: dict[fx.Node, Any] = {}
    given = [describe(item, tensors) for item in args]
    given += [(name, describe(item, tensors)) for name, item in kwargs.items()]
    places = []
    at = tx
    while at is not None:
        places.append((at.f_code, at.current_instruction.offset))
        at = getattr(at, "parent", None)
    devices = ("cpu", "cuda")
    state = (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
        *((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices),
        tuple(tx.nn_module_stack), tuple(places),
    )  # fmt: skip
    return ModuleCall(state, tuple(given), tuple(tensors), tuple(tensors.values()), dynamo_name_of(var))


def dynamo_name_of(var: Any) -> str:
    """Return Dynamo's name of a module."""
    return _REGISTERED.sub(r".\2", var.get_nn_module_stack_source().name)


def describe(item: Any, tensors: dict[fx.Node, Any], own_nodes: Mapping[fx.Node, Any] | None = None) -> tuple[Any, ...]:
    """Return a description of an argument or a result of a module's call. Equal values have equal descriptions.

    Parameters
    ----------
    item : VariableTracker
        Dynamo's variable of the value.
    tensors : dict of Node to VariableTracker
        Without `own_nodes`, this function adds the tensors of the value to `tensors`, and describes each tensor by its
        position in `tensors`.
    own_nodes : mapping of Node to tuple, optional
        Descriptions of nodes. If given, the tensors of the value must be results of these nodes.

    Raises
    ------
    LayerMismatch
        If the value is not a tensor, constant or tuple, or if a node is not in `own_nodes`.
    """
    if type(item) is LazyVariableTracker:
        if not item.is_realized():
            raise LayerMismatch("Dynamo has not read one of its arguments yet")
        item = item.unwrap()
    if type(item) is ConstantVariable:
        value = item.as_python_constant()
        return ("constant", type(value), value)
    if type(item) is TupleVariable:
        return ("tuple", *(describe(inner, tensors, own_nodes) for inner in item.items))
    if type(item) is not TensorVariable:
        raise LayerMismatch(f"{type(item).__name__.removesuffix('Variable')} is not a tensor, constant or tuple")
    node = item.as_proxy().node
    if own_nodes is not None:
        if node not in own_nodes:
            raise LayerMismatch("it returns a tensor that it did not compute")
        return ("tensor", own_nodes[node])
    tensors.setdefault(node, item)
    return ("tensor", list(tensors).index(node), tensor_traits(node.meta["example_value"]))
