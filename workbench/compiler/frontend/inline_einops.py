"""Replace calls of the library einops by the operators that they call.

Dynamo records a call of einops as one operator, because the functions of einops are registered with `allow_in_graph`.
Thunder does not know this operator.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from workbench.interop.torch_private import _pytree


def inline_einops(graph: fx.GraphModule) -> None:
    """Replace each call of einops in a graph from Dynamo by the operators that the call runs for its inputs.

    Parameters
    ----------
    graph : GraphModule
        Graph that is changed in place. Its nodes have example values.
    """
    for region in graph.modules():
        if not isinstance(region, fx.GraphModule):
            continue
        found = [node for node in region.graph.nodes if _is_of_einops(node)]
        for node in found:
            _inline_call(region.graph, node)
        if found:
            region.recompile()


def _is_of_einops(node: fx.Node) -> bool:
    module = str(getattr(node.target, "__module__", ""))
    return node.op == "call_function" and module.partition(".")[0] == "einops"


class _Recorder(TorchFunctionMode):
    """Records the operators that run on known tensors as nodes of a graph, in front of the node `before`."""

    def __init__(self, graph: fx.Graph, before: fx.Node, known: dict[int, fx.Node]) -> None:
        super().__init__()
        self.graph, self.before, self.known = graph, before, known
        self._alive: list[Any] = []  # an `id` belongs to one tensor only while this tensor exists

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if any(isinstance(leaf, torch.Tensor) for leaf in _pytree.tree_leaves(made)):
            given = _pytree.tree_map(lambda leaf: self.known.get(id(leaf), leaf), (args, kwargs or {}))
            is_method = getattr(torch.Tensor, func.__name__, None) is func
            with self.graph.inserting_before(self.before):
                create = self.graph.call_method if is_method else self.graph.call_function
                self._note(create(func.__name__ if is_method else func, *given), made)
        return made

    def _note(self, node: fx.Node, made: Any) -> None:
        node.meta = {**self.before.meta, "example_value": made}
        if isinstance(made, torch.Tensor):
            self.known.setdefault(id(made), node)
            self._alive.append(made)
        elif isinstance(made, list | tuple):
            for index, item in enumerate(made):
                self._note(self.graph.call_function(operator.getitem, (node, index)), item)


def _inline_call(graph: fx.Graph, node: fx.Node) -> None:
    """Replace a call. Keep the call if its result is a list or tuple, and a node uses it as a whole."""
    expected = node.meta["example_value"]
    items = [user for user in node.users if user.target is operator.getitem]
    if not isinstance(expected, torch.Tensor) and len(items) < len(node.users):
        return
    inputs = list(node.all_input_nodes)
    given = fx.map_arg((node.args, node.kwargs), lambda each: each.meta["example_value"])
    recorder = _Recorder(graph, node, {id(each.meta["example_value"]): each for each in inputs})
    function: Any = node.target
    differentiated = any(isinstance(x, torch.Tensor) and x.requires_grad for x in _pytree.tree_leaves(expected))
    with torch.set_grad_enabled(differentiated), recorder:
        made = function(*given[0], **given[1])
    if isinstance(expected, torch.Tensor):
        node.replace_all_uses_with(recorder.known[id(made)])
    else:
        for user in items:
            item: Any = made[user.args[1]]
            if not isinstance(item, torch.Tensor):
                continue
            user.replace_all_uses_with(recorder.known[id(item)])
            graph.erase_node(user)
    if not node.users:
        graph.erase_node(node)
