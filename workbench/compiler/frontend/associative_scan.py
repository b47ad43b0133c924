"""Rewrite the nodes of an associative scan as operators that Thunder can trace.

Dynamo records ``associative_scan(..., combine_mode="generic")`` as slices (`torch.ops.aten.slice`) and as calls of
`torch.vmap`. Thunder knows neither. If the function under `torch.vmap` is elementwise, it computes the same for all
batch elements together as for each of them alone. Since PyTorch 2.12, Transformers uses such a scan in Mamba models.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from workbench.compiler.frontend.plain_flex_attention import BY_ELEMENT

_BEGINS, _ENDS = "_vmap_increment_nesting", "_vmap_decrement_nesting"
_ENTERS, _LEAVES = "_add_batch_dim", "_remove_batch_dim"


def rewrite_scans(graph: fx.GraphModule) -> None:
    """Replace slices and each elementwise `torch.vmap` over the first dimension, in place.

    All other calls of `torch.vmap` stay as they are, and the conversion to a trace refuses them.
    """
    for region in graph.modules():
        if isinstance(region, fx.GraphModule):
            slices = region.graph.find_nodes(op="call_function", target=torch.ops.aten.slice)
            regions = _vmapped(region.graph)
            for node in slices:
                _index(node)
            for nodes in regions:
                _erase_vmap(nodes)
            if slices or regions:
                region.recompile()


def _index(node: fx.Node) -> None:
    """Turn a call of `torch.ops.aten.slice` into an index."""

    def index(read: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> tuple[Any, ...]:
        before = dim if dim >= 0 else dim + read.meta["example_value"].ndim
        return read, (*[slice(None)] * before, slice(start, end, step))

    given: Any = node.args
    named: Any = node.kwargs
    node.args = index(*given, **named)
    node.target, node.kwargs = operator.getitem, {}


def _vmapped(graph: fx.Graph) -> list[list[fx.Node]]:
    """Return the nodes of each `torch.vmap` that can be erased. The first node begins it, and the last node ends it."""
    found: list[list[fx.Node]] = []
    inside: list[fx.Node] | None = None
    for node in graph.nodes:
        if _name(node) == _BEGINS:
            inside = []  # of nested calls, only the innermost is looked at
        if inside is not None:
            inside.append(node)
            if _name(node) == _ENDS:
                if _is_elementwise(inside):
                    found.append(inside)
                inside = None
    return found


def _is_elementwise(nodes: list[fx.Node]) -> bool:
    """Return whether a `torch.vmap` maps the first dimension of its inputs with an elementwise function.

    All tensors in it must have the same number of dimensions. Otherwise broadcasting would align the dimension of the
    batch with another one.
    """
    _, *body, _ = nodes
    batched, dims = set[fx.Node](), set[int]()
    for node in body:
        if _name(node) == _ENTERS:
            if node.args[1] != 0:
                return False
        elif _name(node) == _LEAVES:
            if node.args[0] not in batched or node.args[3] != 0:
                return False
            continue
        elif not (
            node.op in ("call_function", "call_method")
            and _name(node).removeprefix("__").removesuffix("__") in BY_ELEMENT
            and batched.issuperset(node.all_input_nodes)
        ):
            return False
        batched.add(node)
        value = node.meta.get("example_value")
        dims.add(value.ndim if isinstance(value, torch.Tensor) else -1)
    return len(dims) == 1 and -1 not in dims


def _erase_vmap(nodes: list[fx.Node]) -> None:
    """Erase a `torch.vmap`, so that its function computes all batch elements together."""
    first, *body, last = nodes
    prepares = first.prev
    for node in body:
        if _name(node) in (_ENTERS, _LEAVES):
            node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
            node.graph.erase_node(node)
        else:
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: each.meta["example_value"])
            of: Any = node.target if node.op == "call_function" else getattr(args[0], str(node.target))
            node.meta["example_value"] = of(*(args if node.op == "call_function" else args[1:]), **kwargs)
    for node in (last, first, prepares):
        if not node.users and _name(node) in (_BEGINS, _ENDS, "lazy_load_decompositions"):
            node.graph.erase_node(node)


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))
