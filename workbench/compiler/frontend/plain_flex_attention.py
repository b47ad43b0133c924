"""Decompose `flex_attention` into operators whose gradients Thunder knows.

If a call has no block mask, PyTorch makes a mask of one block with `torch.vmap`. Dynamo's graph then contains the nodes
of `torch.vmap`, and Thunder cannot trace them. These nodes make only two tensors of the mask, and these two tensors
equal two other tensors that the attention receives. The attention can read the other two tensors instead, so the nodes
can be erased.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from workbench.compiler.interop.thunder_api import TensorProxy, to_torch_dtype
from workbench.compiler.lowering.decompositions import thunder_operator, wide_of

_FILE = "nn/attention/flex_attention.py"
_ONE_BLOCK = 1 << 30
_BEGINS, _ENDS = "_vmap_increment_nesting", "_vmap_decrement_nesting"

BY_ELEMENT = frozenset((
    "abs", "add", "and_", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "bool", "ceil", "clamp", "clip",
    "cos", "div", "eq", "exp", "exp2", "expm1", "float", "floor", "floor_divide", "floordiv", "ge", "gt", "int",
    "invert", "le", "log", "log1p", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "long", "lt",
    "maximum", "minimum", "mod", "mul", "ne", "neg", "or_", "pow", "reciprocal", "relu", "remainder", "rsqrt",
    "sigmoid", "sin", "sqrt", "square", "sub", "tanh", "to", "truediv", "where", "xor",
))  # fmt: skip
"""Elementwise operators, which compute the same for all elements together as for each of them alone."""


def erase_vmap(graph: fx.GraphModule) -> None:
    """Erase each `torch.vmap` that makes a mask of one block.

    PyTorch computes ``q_num_blocks`` and ``q_indices`` of a block mask with `torch.vmap`. For one block, these tensors
    equal ``kv_num_blocks`` and ``kv_indices``. The attention therefore receives ``kv_num_blocks`` and ``kv_indices``
    in place of ``q_num_blocks`` and ``q_indices``.

    Parameters
    ----------
    graph : GraphModule
        Graph that is changed in place.
    """
    for region in graph.modules():
        if not isinstance(region, fx.GraphModule):
            continue
        found = [n for n in region.graph.find_nodes(op="call_function", target=_attention()) if _is_own(n)]
        for node in found:
            blocks: Any = node.args[4]
            made = _mask_of(node)
            node.update_arg(4, (*blocks[:6], *blocks[2:4], *blocks[8:]))
            for each in made:
                if not each.users and each not in (blocks[2], blocks[3]):
                    region.graph.erase_node(each)
        if found:
            region.recompile()


def record_attention(
    call: Callable[..., Any],
    node: fx.Node,
    query: TensorProxy,
    key: TensorProxy,
    value: TensorProxy,
    score: Any,
    blocks: Sequence[Any],
    scale: float,
    _: Any,
    scored: Sequence[TensorProxy] = (),
    masked: Sequence[TensorProxy] = (),
) -> tuple[TensorProxy, None, None]:
    """Record the operators that a call of `flex_attention` computes.

    Parameters
    ----------
    call : callable
        Takes a PyTorch function, its arguments and its keyword arguments. Records a call of the function.
    node : Node
        The call of `flex_attention`.
    query, key, value, score, blocks, scale, _, scored, masked
        Arguments of the call. `score` is the score function, and the last element of `blocks` is the mask function.
        `scored` and `masked` are the tensors that these functions read besides the score and its indices.

    Returns
    -------
    tuple
        The output of `flex_attention`, and None for each of its other results.

    Raises
    ------
    NotImplementedError
        If the program reads a result other than the output. Also if an operator of the score or mask function is not
        elementwise, or if the call has a score or mask function under autocast.
    """
    # A checkpointed region unpacks the other results, even if no code reads them.
    if any(user.users and not (_name(user) == "getitem" and user.args[1] == 0) for user in node.users):
        raise NotImplementedError("the program reads a result of flex_attention other than its output")
    if torch.is_autocast_enabled(query.device.type) and not _is_plain(score, blocks):
        raise NotImplementedError(
            "under autocast, a flex_attention with a score or mask function cannot be traced: PyTorch computes it in "
            "other data types than Thunder would"
        )
    if _is_plain(score, blocks):
        grouped = query.shape[1] != key.shape[1]
        operands = {"scale": scale, "enable_gqa": grouped}
        return call(functional.scaled_dot_product_attention, (query, key, value), operands), None, None
    masks = not _masks_nothing(blocks)
    for function in (score, blocks[-1]) if masks else (score,):
        _refuse_others(function.args[0].graph)
    kind = to_torch_dtype(query.dtype)
    wide, where = wide_of(kind), thunder_operator(torch.where)
    key, value = (_spread(each, query) for each in (key, value))
    scores = thunder_operator(torch.matmul)(query.to(wide), key.to(wide).transpose(-2, -1)) * scale
    at = [_index(scores, dim) for dim in range(4)]
    made = score(scores, *at, *map(_add_dimensions, scored))
    if masks:
        made = where(blocks[-1](*at, *map(_add_dimensions, masked)), made, -math.inf)
    if tuple(made.shape) != tuple(scores.shape):
        made = made.expand(*scores.shape)
    # Return zero for a query without a visible key, because its softmax and gradients would be NaN.
    alone = thunder_operator(torch.all)(made == -math.inf, -1, keepdim=True)
    shares = thunder_operator(torch.softmax)(where(alone, 0.0, made), -1).to(kind)
    return where(alone, 0.0, thunder_operator(torch.matmul)(shares, value)), None, None


def _attention() -> Any:
    return torch.ops.higher_order.flex_attention


def _is_own(node: fx.Node) -> bool:
    """Return whether PyTorch made the mask. If the user made the mask, its blocks are inputs of the graph."""
    blocks: Any = node.args[4]
    counted = blocks[2]
    return isinstance(counted, fx.Node) and counted.target is torch.ones and blocks[-3:-1] == (_ONE_BLOCK, _ONE_BLOCK)


def _mask_of(attention: fx.Node) -> list[fx.Node]:
    """Return the nodes that make the mask of one block, last first.

    Nodes that end a `torch.vmap` have no source line, so they are recognized by their function.
    """
    found, node = [], attention.prev
    while _FILE in str(node.meta.get("stack_trace", "")) or _name(node) == _ENDS:
        found.append(node)
        node = node.prev
    begun = sum(_name(node) == _BEGINS for node in found)
    ends = [node for node in found if _name(node) == _ENDS]
    # If more nodes end a `torch.vmap` than begin one, the earliest of these ends belong to a `torch.vmap` of the user.
    return [node for node in found if node not in ends[begun:]]


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _is_plain(score: Any, blocks: Sequence[Any]) -> bool:
    given, placeholders = _output(score)
    return given is placeholders[0] and _masks_nothing(blocks)


def _masks_nothing(blocks: Sequence[Any]) -> bool:
    given, _ = _output(blocks[-1])
    return given.target == "new_ones" and given.kwargs.get("dtype") is torch.bool


def _output(function: Any) -> tuple[fx.Node, list[fx.Node]]:
    graph: fx.Graph = function.args[0].graph
    (output,) = graph.find_nodes(op="output")
    given: Any = output.args[0]
    return given[0] if isinstance(given, tuple | list) else given, graph.find_nodes(op="placeholder")


def _refuse_others(graph: fx.Graph) -> None:
    """Refuse a score or mask function if one of its operators is not elementwise.

    The function is written for one element. Thunder's trace applies its operators to all elements together.

    Raises
    ------
    NotImplementedError
        The message names the operator.
    """
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        numbers = all(_dimensions(each) == 0 for each in node.all_input_nodes)
        plain = numbers and _name(node).removeprefix("__").removesuffix("__") in BY_ELEMENT
        if not (plain or _reads_element(node)) or _dimensions(node):
            raise NotImplementedError(
                f"the score or mask function of flex_attention calls {_name(node)}, which Thunder cannot apply to all "
                "elements at once"
            )


def _reads_element(node: fx.Node) -> bool:
    """Return whether a node reads one element of a tensor with one index for each dimension of the tensor."""
    if _name(node) != "getitem":
        return False
    read, index = node.args
    indices = index if isinstance(index, tuple) else (index,)
    whole = isinstance(read, fx.Node) and read.op == "placeholder" and len(indices) == _dimensions(read)
    return whole and all(isinstance(each, fx.Node) and _dimensions(each) == 0 for each in indices)


def _dimensions(node: fx.Node) -> int:
    value = node.meta.get("example_value")
    return value.ndim if isinstance(value, torch.Tensor) else -1


def _index(scores: TensorProxy, dim: int) -> Any:
    shape = [1] * 4
    shape[dim] = int(scores.shape[dim])
    return thunder_operator(torch.arange)(0, scores.shape[dim], device=scores.device).reshape(*shape)


def _add_dimensions(tensor: TensorProxy) -> Any:
    """Add dimensions to a zero-dimensional tensor, so that type promotion treats it like the tensor of scores."""
    return tensor if tensor.ndim else tensor.reshape(1, 1, 1, 1)


def _spread(tensor: TensorProxy, query: TensorProxy) -> Any:
    """Repeat keys or values for each batch element and each head of the queries."""
    batches, heads, *shape = tensor.shape
    groups = query.shape[1] // heads
    if batches != query.shape[0]:
        tensor = tensor.expand(query.shape[0], heads, *shape)
    if groups == 1:
        return tensor
    return tensor.unsqueeze(2).expand(query.shape[0], heads, groups, *shape).reshape(query.shape[0], -1, *shape)
