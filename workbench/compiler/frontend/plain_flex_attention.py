"""Replace `flex_attention` without a mask or score function by scaled dot product attention in Dynamo's graph.

There PyTorch builds a mask of one block with `torch.vmap`. Thunder cannot trace that, and only the attention reads it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.nn import functional

_FILE = "nn/attention/flex_attention.py"
_ONE_BLOCK = 1 << 30
_BEGINS, _ENDS = "_vmap_increment_nesting", "_vmap_decrement_nesting"


def written_plainly(graph: fx.GraphModule) -> None:
    """Replace each `flex_attention` that only computes scaled dot product attention.

    Parameters
    ----------
    graph : GraphModule
        Changed in place.
    """
    found = [node for node in graph.graph.nodes if _is_plain(graph, node)]
    for node in found:
        query, key, value = node.args[:3]
        results, before = list(node.users), _mask_of(node)
        heads = [each.meta["example_value"].shape[1] for each in (query, key)]
        with graph.graph.inserting_before(node):
            plain = graph.graph.call_function(
                functional.scaled_dot_product_attention,
                (query, key, value),
                {"scale": node.args[5], "enable_gqa": heads[0] != heads[1]},
            )
        for result in results:
            plain.meta = dict(result.meta)
            result.replace_all_uses_with(plain)
        for each in (*results, node, *before):
            if not each.users:
                graph.graph.erase_node(each)
    if found:
        graph.recompile()


def _mask_of(attention: fx.Node) -> list[fx.Node]:
    """Return the nodes for the mask of one block, last first. Nodes that end a `torch.vmap` have no source line."""
    found, node = [], attention.prev
    while _FILE in str(node.meta.get("stack_trace", "")) or _name(node) == _ENDS:
        found.append(node)
        node = node.prev
    begun = sum(_name(node) == _BEGINS for node in found)
    ends = [node for node in found if _name(node) == _ENDS]
    # An end without a beginning in these nodes ends a `torch.vmap` of the user.
    return [node for node in found if node not in ends[begun:]]


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", ""))


def _is_plain(graph: fx.GraphModule, node: fx.Node) -> bool:
    if node.target is not torch.ops.higher_order.flex_attention:
        return False
    args: Any = node.args
    _, _, _, score, blocks, _, _, *beside = args
    counted, mask = blocks[2], blocks[-1]
    # The blocks of a mask from the user's `create_block_mask` are inputs of the graph.
    own = isinstance(counted, fx.Node) and counted.target is torch.ones and blocks[-3:-1] == (_ONE_BLOCK, _ONE_BLOCK)
    first = all(_name(user) == "getitem" and user.args[1] == 0 for user in node.users)
    return own and first and not any(beside) and _gives_score(graph, score) and _masks_nothing(graph, mask)


def _output(graph: fx.GraphModule, node: Any) -> tuple[fx.Node, list[fx.Node]]:
    inside = getattr(graph, str(node.target)).graph
    (output,) = inside.find_nodes(op="output")
    given = output.args[0]
    return given[0] if isinstance(given, tuple | list) else given, inside.find_nodes(op="placeholder")


def _gives_score(graph: fx.GraphModule, node: Any) -> bool:
    given, placeholders = _output(graph, node)
    return given is placeholders[0]


def _masks_nothing(graph: fx.GraphModule, node: Any) -> bool:
    given, _ = _output(graph, node)
    return given.target == "new_ones" and given.kwargs.get("dtype") is torch.bool
