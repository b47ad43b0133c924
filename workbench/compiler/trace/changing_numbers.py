"""Compute with the changing numbers of an optimizer, such as its learning rate, as zero-dimensional tensors.

Dynamo passes a changed number to a graph as a float64 tensor, and reads it with ``item()`` in the graph. Thunder does
not compute correctly with a number that is unknown while it traces: ``a.add(b, alpha=-number)`` loses its `alpha`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from workbench.interop.torch_private import tree_iter

_OPERATORS = ("call_function", "call_method")

UNKNOWN_NUMBER = "it computes with a number that changes from call to call, and Thunder needs the value"

_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    **{each: each for each in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)},
    **{each: each for each in (operator.neg, operator.pos, operator.abs)},
    torch.sym_float: lambda number: number,
    getattr(torch, "_sym_sqrt"): torch.sqrt,  # noqa: B009  # private
}
"""Maps functions of numbers to the functions of tensors that compute the same."""

_BOUNDS = {torch.sym_max: (torch.maximum, "min"), torch.sym_min: (torch.minimum, "max")}
"""Maps functions of two numbers to the function of tensors, and to the argument of `torch.clamp` for a constant."""

_SCALED = frozenset(("add", "sub", "addcmul", "addcdiv"))
"""Operators that multiply their second argument by the keyword argument `alpha` or `value`."""

_WIDENED = frozenset(("add", "sub", "mul", "div", "truediv", "pow", "neg", "abs", "lerp", "clamp", *_SCALED))
"""Operators on float16 or bfloat16 that are replaced by operators on float32. PyTorch runs the others."""

_FOREACH = "_foreach_"


def is_changing_number(node: fx.Node) -> bool:
    """Return whether the result of a node is a number that is unknown until the graph runs."""
    return isinstance(node.meta.get("example_value"), torch.SymFloat)


def find_unknown_numbers(graph: fx.GraphModule) -> list[fx.Node]:
    """Return the nodes that make or read a changing number."""
    nodes = [node for node in graph.graph.nodes if node.op in _OPERATORS]
    return [node for node in nodes if any(map(is_changing_number, (node, *node.all_input_nodes)))]


def compute_with_tensors(graph: fx.GraphModule) -> None:
    """Replace the changing numbers of a graph by zero-dimensional tensors.

    Numbers that the graph returns stay as they are, and so do numbers from functions that tensors do not have.

    Parameters
    ----------
    graph : GraphModule
        Graph that is changed in place.
    """
    if not any(map(is_changing_number, graph.graph.nodes)):
        return
    writer = _Writer(graph.graph)
    for node in list(graph.graph.nodes):
        if node.op not in _OPERATORS:
            continue
        if is_changing_number(node):
            writer.add_number(node)
        elif any(read in writer.tensors for read in node.all_input_nodes):
            writer.rewrite(node)
    for number in reversed(writer.tensors):
        if not number.users:
            graph.graph.erase_node(number)
    graph.recompile()


class _Writer:
    """Writes the nodes that replace numbers by tensors.

    Attributes
    ----------
    tensors : dict
        Maps each number to the float64 tensor that replaces it.
    """

    def __init__(self, nodes: fx.Graph) -> None:
        self.tensors: dict[fx.Node, fx.Node] = {}
        self._nodes = nodes

    def add_number(self, node: fx.Node) -> None:
        """Replace a number, if it is an input of the graph, or a function of replaced numbers."""
        read = node.all_input_nodes
        if node.target == "item":
            if read[0].op == "placeholder":
                self.tensors[node] = read[0]
        elif node.target in _FUNCTIONS and all(each in self.tensors for each in read):
            args = fx.node.map_arg(node.args, self.tensors.__getitem__)
            self.tensors[node] = self._insert(node, _FUNCTIONS[node.target], *args)
        elif node.target in _BOUNDS and all(each in self.tensors for each in read):
            of_tensors, bound = _BOUNDS[node.target]
            first, *others = (self.tensors[each] for each in read)
            numbers = [each for each in node.args if not isinstance(each, fx.Node)]
            function, kwargs = (torch.clamp, {bound: numbers[0]}) if numbers else (of_tensors, {})
            self.tensors[node] = self._insert(node, function, first, *others, **kwargs)

    def rewrite(self, node: fx.Node) -> None:
        """Pass tensors instead of numbers to an operator.

        PyTorch's kernels read a number in the data type in which they compute, which is at least float32. Some
        operators on float16 or bfloat16 are therefore replaced by operators on float32. The others stay as they are.
        """
        kind = _floating_type([node, *node.all_input_nodes])
        if kind is None:
            return
        if node.target is torch.scalar_tensor:  # Dynamo returns a number as a tensor
            node.replace_all_uses_with(self._cast(node, self.tensors[node.all_input_nodes[0]], kind))
            self._nodes.erase_node(node)
            return
        wide = torch.float32 if kind.itemsize < 4 else kind

        def widen(read: fx.Node) -> fx.Node:
            if read in self.tensors:
                return self._cast(node, self.tensors[read], wide)
            value = read.meta.get("example_value")
            return self._cast(node, read, wide) if isinstance(value, torch.Tensor) and value.dtype == kind else read

        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        several, base = name.startswith(_FOREACH), name.removeprefix(_FOREACH).removesuffix("_")
        writes = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
        if wide is not kind and (
            "out" in node.kwargs
            or _IN_PLACE.get(base, base) not in _WIDENED
            or (writes and not _without_write(node.target))
        ):
            return
        args, kwargs = list(fx.node.map_arg(node.args, widen)), dict(fx.node.map_arg(node.kwargs, widen))
        for factor in ("alpha", "value") if base in _SCALED else ():
            if isinstance(kwargs.get(factor), fx.Node):
                # The kernel computes the product in the common type, and does not round it.
                args[1:] = fx.node.map_arg(args[1:], lambda read: self._cast(node, read, wide))
                scale = getattr(torch, "_foreach_mul") if several else torch.mul  # noqa: B009  # private
                args[1] = self._insert(node, scale, args[1], kwargs.pop(factor))
        if wide is kind:
            node.args, node.kwargs = tuple(args), kwargs
            return
        made = self._insert(node, _without_write(node.target) or node.target, *args, **kwargs)
        if writes:
            copy = getattr(torch, "_foreach_copy_") if several else "copy_"  # noqa: B009  # private
            node.replace_all_uses_with(self._insert(node, copy, node.args[0], made))
        elif isinstance(node.meta["example_value"], torch.Tensor):
            node.replace_all_uses_with(self._insert(node, "to", made, kind))
        else:
            for item in list(node.users):  # each unpacks one tensor of the list
                wide_item = self._insert(item, operator.getitem, made, item.args[1])
                own = item.meta["example_value"].dtype
                item.replace_all_uses_with(self._insert(item, "to", wide_item, own))
                self._nodes.erase_node(item)
        self._nodes.erase_node(node)

    def _cast(self, place: fx.Node, given: fx.Node, kind: torch.dtype) -> fx.Node:
        return given if given.meta["example_value"].dtype == kind else self._insert(place, "to", given, kind)

    def _insert(self, place: fx.Node, function: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Insert the call of a function, or of a method by name, before a node. Return the new node."""
        with self._nodes.inserting_before(place):
            make = self._nodes.call_method if isinstance(function, str) else self._nodes.call_function
            made: fx.Node = make(function, args, kwargs)
        given, named = fx.node.map_arg((args, kwargs), _example)
        with torch.no_grad():
            value = (
                getattr(given[0], function)(*given[1:], **named)
                if isinstance(function, str)
                else function(*given, **named)
            )
        made.meta = {**place.meta, "example_value": value}
        return made


def _example(node: fx.Node) -> Any:
    """Return the fake result of a node, detached, so that a write into it changes no other node's result."""
    value = node.meta["example_value"]
    return value.detach() if isinstance(value, torch.Tensor) else value


def _floating_type(nodes: Sequence[fx.Node]) -> torch.dtype | None:
    """Return the data type of the first floating-point tensor among the results of nodes; None if there is none."""
    for node in nodes:
        for value in tree_iter(node.meta.get("example_value")):
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
                return value.dtype
    return None


def _without_write(target: Any) -> Any:
    """Return the operator that computes the same as an in-place operator, without the write; None if there is none."""
    if isinstance(target, str):
        return target.removesuffix("_")
    name = target.__name__
    if name in _IN_PLACE:
        return getattr(operator, _IN_PLACE[name])
    return getattr(torch, name.removesuffix("_"), None) if name.endswith("_") else None


_IN_PLACE = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "truediv", "ipow": "pow"}
