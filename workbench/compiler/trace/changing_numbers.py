"""Compute the changing numbers of a graph in Python, and pass them to the graph as zero-dimensional tensors.

A number changes if it has different values in two calls, such as a learning rate, a counter on a module, or an argument
of the program. Dynamo passes it to a graph as an integer, or as a float64 tensor that the graph reads with ``item()``.
Thunder does not compute correctly with a number that is unknown while it traces: ``a.add(b, alpha=-number)`` loses its
`alpha`.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from workbench.interop.torch_private import tree_iter

_OPERATORS = ("call_function", "call_method")

UNKNOWN_NUMBER = "it computes with a number that changes from call to call, and Thunder needs the value"

_SCALED = frozenset(("add", "sub", "addcmul", "addcdiv"))
"""Operators that multiply their second argument by the keyword argument `alpha` or `value`."""

_WIDENED = frozenset(("add", "sub", "mul", "div", "truediv", "pow", "neg", "abs", "lerp", "clamp", *_SCALED))
"""Operators on float16 or bfloat16 that are replaced by operators on float32. PyTorch runs the others."""

_FOREACH = "_foreach_"
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _is_changing_number(node: fx.Node) -> bool:
    """Return whether the result of a node is a number that is unknown until the graph runs."""
    return isinstance(node.meta.get("example_value"), torch.SymFloat)


def find_unknown_numbers(graph: fx.GraphModule) -> list[fx.Node]:
    """Return the operators that make or read a changing number."""
    nodes = [node for node in graph.graph.nodes if node.op in _OPERATORS]
    return [node for node in nodes if any(map(_is_changing_number, (node, *node.all_input_nodes)))]


class ChangingNumbers:
    """The changing numbers of a graph, and a graph without them.

    Numbers that operators read become further inputs of the new graph: as tensors, or as numbers if an operator does
    not accept a tensor. The new graph does not return numbers.

    Parameters
    ----------
    graph : GraphModule
        Graph in a call of Dynamo's backend.
    inputs : sequence
        Inputs of the graph.
    names : container of str
        Dynamo's names of the numbers that change, such as ``L['self'].steps``.

    Attributes
    ----------
    graph : GraphModule
        The new graph. It is `graph` itself if that has no changing numbers.
    inputs : tuple
        Inputs of the new graph.
    needed : dict of str to bool
        Names of the numbers that an operator reads as a number. The value is False for a number that Dynamo passes as a
        tensor, so that an operator which PyTorch runs can read it.
    as_tensors : tuple of str
        Names of the numbers that an operator reads as a tensor.
    """

    def __init__(self, graph: fx.GraphModule, inputs: Sequence[Any], names: Container[str]) -> None:
        self.graph, self.inputs, self.needed = graph, tuple(inputs), dict[str, bool]()
        self.as_tensors: tuple[str, ...] = ()
        self._any = any(_input_number(node, names) for node in graph.graph.nodes)
        if not self._any:
            return
        # Dynamo reads the inputs of its own graph after the backend's call.
        self.graph = graph = _copied(graph)
        read = _numbers_of(graph, names)
        given = graph.graph.find_nodes(op="placeholder")
        (output,) = graph.graph.find_nodes(op="output")
        outputs = list(output.args[0])
        writer = _Writer(graph.graph, read, given[-1])
        for node in list(graph.graph.nodes):
            if node.op in _OPERATORS and node not in read and any(each in read for each in node.all_input_nodes):
                writer.rewrite(node)
        for number in writer.plain:
            self.needed |= read[number]
        self._passed = writer.take_used()
        self.as_tensors = tuple({name for number, kind in self._passed if kind is not None for name in read[number]})
        asked = list(dict.fromkeys([*(node for node, _ in self._passed), *(each for each in outputs if each in read)]))
        inner = {at for at, node in enumerate(given) if node in read or any(user in read for user in node.users)}
        self._sources = sorted(inner)
        self._compute = _function_of(graph, [given[at] for at in self._sources], list(read), asked)
        self._places = {number: place for place, number in enumerate(asked)}
        self._returned = [self._places.get(each) for each in outputs]
        output.args = (tuple(each for each in outputs if each not in read),)
        for number in reversed(read):
            if number.op != "placeholder":
                graph.graph.erase_node(number)
        self._kept = [at for at, node in enumerate(given) if node.users or at not in inner]
        for at in inner.difference(self._kept):
            graph.graph.erase_node(given[at])
        graph.recompile()
        # The backend gets a symbol for an integer. A computation with the symbol would make its value a condition.
        self.inputs = self._split([each.node.hint if isinstance(each, torch.SymInt) else each for each in inputs])[0]

    def around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs the original graph, from a function that runs the changed graph."""
        if not self._any:
            return run

        def call(*given: Any) -> Any:
            inputs, values = self._split(given)
            outputs = iter(run(*inputs))
            return tuple(next(outputs) if place is None else values[place] for place in self._returned)

        return call

    def _split(self, given: Sequence[Any]) -> tuple[tuple[Any, ...], Sequence[Any]]:
        """Return the inputs of the changed graph, and the values of the numbers."""
        values = self._compute(*(given[at] for at in self._sources))
        passed = [
            values[self._places[number]] if kind is None else torch.tensor(values[self._places[number]], dtype=kind)
            for number, kind in self._passed
        ]
        return (*(given[at] for at in self._kept), *passed), values


def _copied(graph: fx.GraphModule) -> fx.GraphModule:
    made, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    made.output(made.graph_copy(graph.graph, copies))
    copied = fx.GraphModule(graph, made)
    copied.__dict__.update({name: value for name, value in vars(graph).items() if name not in vars(copied)})
    return copied


def _input_number(node: fx.Node, names: Container[str]) -> dict[str, bool]:
    """Return the name of a number that Dynamo passes to a graph, as in `ChangingNumbers.needed`. Empty for all others.

    Such a number is an integer, or what ``item()`` reads from a tensor that Dynamo makes for the graph.
    """
    is_integer = isinstance(node.meta.get("example_value"), torch.SymInt)
    if not (node.op == "placeholder" and is_integer) and node.target != "item":
        return {}
    argument = (node if is_integer else node.all_input_nodes[0]).meta.get("grapharg")
    if argument is None or not (is_integer or argument.pass_arg_as_tensor) or argument.source.name not in names:
        return {}
    return {argument.source.name: is_integer}


def _numbers_of(graph: fx.GraphModule, names: Container[str]) -> dict[fx.Node, dict[str, bool]]:
    """Return the numbers that Python can compute before the graph runs.

    The values are the names of the changing numbers that Python reads for it, as in `ChangingNumbers.needed`.
    """
    found: dict[fx.Node, dict[str, bool]] = {}
    for node in graph.graph.nodes:
        read = node.all_input_nodes
        if own := _input_number(node, names):
            found[node] = own
        # Dynamo returns a number as a tensor, by `scalar_tensor`.
        elif (
            read
            and all(each in found for each in read)
            and (isinstance(node.meta.get("example_value"), _NUMBERS) or node.target is torch.scalar_tensor)
        ):
            found[node] = {name: is_integer for each in read for name, is_integer in found[each].items()}
    return found


def _function_of(
    graph: fx.GraphModule, given: Sequence[fx.Node], nodes: Sequence[fx.Node], asked: Sequence[fx.Node]
) -> Callable[..., Sequence[Any]]:
    """Return a function from the inputs `given` of a graph to the values of the nodes `asked`."""
    made, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in dict.fromkeys((*given, *nodes)):
        copies[node] = made.node_copy(node, copies.__getitem__)
    made.output(tuple(copies[node] for node in asked))
    run: Callable[..., Sequence[Any]] = fx.GraphModule(graph, made).forward
    return run


class _Writer:
    """Writes the nodes that replace numbers by tensors.

    Parameters
    ----------
    nodes : Graph
    numbers : collection of Node
    last : Node
        The last input of the graph. Further inputs follow it.

    Attributes
    ----------
    plain : list of Node
        The numbers that an operator reads as a number.
    """

    def __init__(self, nodes: fx.Graph, numbers: Collection[fx.Node], last: fx.Node) -> None:
        self.plain: list[fx.Node] = []
        self._inputs: dict[tuple[fx.Node, torch.dtype | None], fx.Node] = {}
        self._nodes, self._numbers, self._last = nodes, numbers, last

    def rewrite(self, node: fx.Node) -> None:
        """Pass inputs of the graph to an operator, instead of numbers."""
        if not self._pass_tensors(node):
            numbers = [read for read in node.all_input_nodes if read in self._numbers]
            self.plain += numbers
            for number in numbers:
                node.replace_input_with(number, self._input(node, number, None))

    def _input(self, node: fx.Node, number: fx.Node, kind: torch.dtype | None) -> fx.Node:
        """Return the input for a number that `node` reads, as a tensor of the data type `kind` or as a number."""
        known = self._inputs.get((number, kind))
        if known is None:
            with self._nodes.inserting_after(self._last):
                known = self._last = self._inputs[number, kind] = self._nodes.placeholder(f"number_{len(self._inputs)}")
            value = number.meta["example_value"]
            if kind is not None:
                value = _zero_dimensional(node, kind)
            known.meta["example_value"] = value
        return known

    def take_used(self) -> list[tuple[fx.Node, torch.dtype | None]]:
        """Erase unread inputs. Return the number and the data type of each other input that `rewrite` has made.

        For an input that is a number, the data type is None.
        """
        for key, node in list(self._inputs.items()):
            if not node.users:
                self._nodes.erase_node(self._inputs.pop(key))
        return list(self._inputs)

    def _pass_tensors(self, node: fx.Node) -> bool:
        """Pass tensors instead of numbers to an operator, if it accepts them. Return whether it does.

        PyTorch's kernels read a number in the data type in which they compute, which is at least float32. Some
        operators on float16 or bfloat16 are therefore replaced by operators on float32. The others keep their numbers.
        """
        kind = _floating_type([node, *node.all_input_nodes])
        if kind is None:
            return False
        wide = torch.float32 if kind.itemsize < 4 else kind
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        several, base = name.startswith(_FOREACH), name.removeprefix(_FOREACH).removesuffix("_")
        writes = name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))
        factors = [factor for factor in ("alpha", "value") if base in _SCALED and factor in node.kwargs]
        if not self._accepts(node, wide, factors, same_types=wide is kind):
            return False
        if wide is not kind and (
            "out" in node.kwargs
            or _IN_PLACE.get(base, base) not in _WIDENED
            or (writes and not _without_write(node.target))
        ):
            return False

        def widen(read: fx.Node) -> fx.Node:
            if read in self._numbers:
                return self._input(node, read, wide)
            value = read.meta.get("example_value")
            return self._cast(node, read, wide) if isinstance(value, torch.Tensor) and value.dtype == kind else read

        args, kwargs = list(fx.node.map_arg(node.args, widen)), dict(fx.node.map_arg(node.kwargs, widen))
        for factor in factors:
            if isinstance(kwargs[factor], fx.Node):
                # The kernel computes the product in the common type, and does not round it.
                args[1:] = fx.node.map_arg(args[1:], lambda read: self._cast(node, read, wide))
                scale = getattr(torch, "_foreach_mul") if several else torch.mul  # noqa: B009  # private
                args[1] = self._insert(node, scale, args[1], kwargs.pop(factor))
        if wide is kind:
            node.args, node.kwargs = tuple(args), kwargs
            return True
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
        return True

    def _accepts(self, node: fx.Node, kind: torch.dtype, factors: Sequence[str], *, same_types: bool) -> bool:
        """Return whether an operator gives results of the same shapes if it reads tensors instead of numbers.

        With `same_types`, the results must also have the same data types.
        """

        def example(read: fx.Node) -> Any:
            return _zero_dimensional(node, kind) if read in self._numbers else _example(read)

        args, kwargs = fx.node.map_arg((node.args, node.kwargs), example)
        kwargs = {name: value for name, value in kwargs.items() if name not in factors}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = _call(node.target, args, kwargs)
        except Exception:  # noqa: BLE001  # operators raise errors of many types for a tensor that they do not accept
            return False
        old, new = tree_iter(node.meta["example_value"]), tree_iter(made)
        return [_kind_of(value, same_types) for value in old] == [_kind_of(value, same_types) for value in new]

    def _cast(self, place: fx.Node, given: fx.Node, kind: torch.dtype) -> fx.Node:
        return given if given.meta["example_value"].dtype == kind else self._insert(place, "to", given, kind)

    def _insert(self, place: fx.Node, function: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Insert the call of a function, or of a method by name, before a node. Return the new node."""
        with self._nodes.inserting_before(place):
            make = self._nodes.call_method if isinstance(function, str) else self._nodes.call_function
            made: fx.Node = make(function, args, kwargs)
        made.meta = {**place.meta, "example_value": _call(function, *fx.node.map_arg((args, kwargs), _example))}
        return made


def _call(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    with torch.no_grad():
        return (
            getattr(args[0], function)(*args[1:], **kwargs) if isinstance(function, str) else function(*args, **kwargs)
        )


def _kind_of(value: Any, typed: bool) -> tuple[Any, ...]:
    """Return what must be equal in two results of an operator."""
    if not isinstance(value, torch.Tensor):
        return (value,)
    return (value.shape, value.device, value.dtype if typed else None)


def _zero_dimensional(node: fx.Node, kind: torch.dtype) -> torch.Tensor:
    """Return a fake CPU tensor without dimensions."""
    values = tree_iter([each.meta.get("example_value") for each in (node, *node.all_input_nodes)])
    known: torch.Tensor = next(value for value in values if isinstance(value, torch.Tensor))
    return known.detach().new_empty((), dtype=kind, device="cpu")


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
