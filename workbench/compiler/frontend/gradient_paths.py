"""Find which results of a graph depend on which inputs by gradients, and drop gradients that eager PyTorch lacks.

Thunder's autograd function links all inputs of a graph to all results. Without the functions of this module, an input
would receive zeros where eager PyTorch gives no gradient, and a backward would run through the history of such inputs.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional

from workbench.compiler.interop.double_backward import CONNECTIONS
from workbench.compiler.lowering.alias_writes import WRITING_OPERATORS, memory_of, written_nodes
from workbench.compiler.lowering.call_normalization import is_named_in_place
from workbench.interop.torch_private import _get_data_attr

OPERATORS = ("call_function", "call_method", "call_module")

type Run = Callable[..., Any]


def writes_in_place(node: fx.Node) -> bool:
    """Return whether an operator writes into one of its arguments."""
    named = is_named_in_place(node) or node.target in WRITING_OPERATORS
    return bool(named or node.kwargs.get("inplace") or node.kwargs.get("out") is not None)


def has_no_gradient(node: Any) -> bool:
    """Return whether the result of a node is a tensor without a gradient."""
    made = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return isinstance(made, torch.Tensor) and not made.requires_grad


def _storage_of(node: fx.Node) -> int:
    """Return the identity of the storage of a node's example value; 0 if it is unknown."""
    return memory_of(node) or 0


def detach_data(graph: fx.GraphModule) -> None:
    """Replace each ``x.data`` of a graph by ``x.detach()``, if the graph does not write into the memory of `x`.

    Without writes, both are the same. Autograd does not notice a write into ``x.data``, so a graph with one is cut.
    Also replace a `view` of the data type that `x` has, which has no gradient in PyTorch.
    """
    nodes = [node for node in graph.graph.nodes if node.op in OPERATORS]
    found = [node for node in nodes if node.target is _get_data_attr or _has_lost_gradient(node)]
    if not found:
        return
    written = {_storage_of(each) for node in nodes if writes_in_place(node) for each in node.all_input_nodes}
    for node in found:
        if _storage_of(node) not in written:
            node.op, node.target, node.args, node.kwargs = "call_method", "detach", node.args[:1], {}
    graph.recompile()


def make_mixed_gradients_dense(graph: fx.Graph) -> None:
    """Give an embedding a dense gradient if other operators read its table, too.

    PyTorch does not add a dense gradient to a sparse one. Autograd adds them in the other order; the sum is dense.
    """
    sparse: dict[fx.Node, list[fx.Node]] = defaultdict(list)
    for node in graph.find_nodes(op="call_function", target=functional.embedding):
        given = _EMBEDDING.bind(*node.args, **node.kwargs).arguments
        if given.get("sparse") and isinstance(given["weight"], fx.Node):
            sparse[given["weight"]].append(node)
    for node in (node for table, nodes in sparse.items() if table.users.keys() - nodes for node in nodes):
        bound = _EMBEDDING.bind(*node.args, **node.kwargs)
        bound.arguments["sparse"] = False
        node.args, node.kwargs = bound.args, bound.kwargs


_EMBEDDING = inspect.signature(functional.embedding)


def _has_lost_gradient(node: fx.Node) -> bool:
    """Return whether a node is a `view` of a data type through which PyTorch lets no gradient flow."""
    given = node.args[0].meta.get("example_value") if node.args and isinstance(node.args[0], fx.Node) else None
    if node.target != "view" or not isinstance(given, torch.Tensor) or not given.requires_grad:
        return False
    typed = any(isinstance(each, torch.dtype) for each in (*node.args, *node.kwargs.values()))
    return typed and given.dtype.is_floating_point and not node.meta["example_value"].requires_grad


def _results(graph: fx.GraphModule) -> Sequence[Any]:
    (output,) = graph.graph.find_nodes(op="output")
    given = output.args[0]
    return given if isinstance(given, tuple | list) else (given,)


def reached_results(graph: fx.GraphModule) -> list[int]:
    """Return, for each input of a graph, the results to which a gradient path leads from the input.

    The results are bits of an integer: bit 0 is the first result. The integer is 0 if no gradient reaches the input.
    """
    reached = _reached(graph)
    return [0 if has_no_gradient(node) else reached[node] for node in graph.graph.find_nodes(op="placeholder")]


def inner_results(graph: fx.GraphModule) -> set[int]:
    """Return the places of the results from which a gradient path leads to another result of the graph."""
    reached, results = _reached(graph), _results(graph)
    bits = {
        at: sum(1 << other for other, each in enumerate(results) if each is not result)
        for at, result in enumerate(results)
    }
    return {
        at
        for at, node in enumerate(results)
        if isinstance(node, fx.Node) and not has_no_gradient(node) and reached[node] & bits[at]
    }


def _reached(graph: fx.GraphModule) -> Mapping[fx.Node, int]:
    """Return, for each node of a graph, the results that depend on it, as bits."""
    reached = defaultdict[fx.Node, int](int)
    for at, result in enumerate(_results(graph)):
        if isinstance(result, fx.Node):
            reached[result] |= 1 << at
    nodes = [node for node in graph.graph.nodes if node.op != "output"]
    order = {node: at for at, node in enumerate(nodes)}
    # A value also depends on what is written into its memory. Often nothing reads the results of such writes.
    writers = defaultdict[int, list[Sequence[fx.Node]]](list)
    for node in nodes:
        if node.op in OPERATORS and node.all_input_nodes and writes_in_place(node):
            out = node.kwargs.get("out")
            written = (out,) if isinstance(out, fx.Node) else written_nodes(node) or node.all_input_nodes[:1]
            members = len(written) > 1 and isinstance(node.args[0], list | tuple)
            for at, each in enumerate(written):
                writers[_storage_of(each)].append(_sources_of_member(node, at) if members else (node,))
    unsettled = True
    while unsettled:
        unsettled = False
        for node in reversed(nodes):
            if not (bits := reached[node]):
                continue
            above = [] if has_no_gradient(node) else node.all_input_nodes
            written_from = itertools.chain.from_iterable(writers[_storage_of(node)])
            for other in (*above, *written_from):
                if bits & ~reached[other]:
                    reached[other] |= bits
                    unsettled |= order[other] > order[node]
    return reached


def _sources_of_member(node: fx.Node, at: int) -> list[fx.Node]:
    """Return the nodes from which an operator on lists, such as ``torch._foreach_add_``, computes one member."""
    given = [item[at] if isinstance(item, list | tuple) else item for item in (*node.args, *node.kwargs.values())]
    return [item for item in given if isinstance(item, fx.Node)]


def detach_inputs(graph: fx.GraphModule, run: Run) -> Run:
    """Return a function that runs a graph, and detaches its inputs and results that have no gradient in eager PyTorch.

    An input that receives no gradient may belong to an autograd graph whose backward has already run. An example is the
    loss of the previous micro-batch. Without the detach, the next backward would run through the old autograd graph
    again. The same happens through a result without a gradient, such as a sum of detached losses.
    """
    (output,) = graph.graph.find_nodes(op="output")
    without = list(map(has_no_gradient, _results(graph))) if isinstance(output.args[0], tuple | list) else []
    own = [not bits for bits in reached_results(graph)]

    def cut(*given: Any) -> Any:
        made = run(*(_detach(value) if off else value for value, off in zip(given, own, strict=True)))
        if not any(without):
            return made
        return tuple(_detach(value) if off else value for value, off in zip(made, without, strict=True))

    return cut


def _detach(value: Any) -> Any:
    history = isinstance(value, torch.Tensor) and value.grad_fn is not None
    return value.detach() if history else value


def drop_unused_gradients(graph: fx.GraphModule, run: Run) -> Run:
    """Return a function that runs a compiled graph. Unused inputs receive no gradient, instead of zeros.

    An input is unused if no gradient path leads from it to a result that receives a gradient. With zeros, an optimizer
    with weight decay would change a parameter that eager PyTorch leaves as it is.
    """
    reached, results = reached_results(graph), _results(graph)
    every = sum(1 << at for at, result in enumerate(results) if not has_no_gradient(result))
    if all(bits in (0, every) for bits in reached):
        return run
    links: list[int] = []

    def call(*given: Any) -> Any:
        made = run(*given)
        above = next((value.grad_fn for value in made if _has_history(value)), None)
        below = above.next_functions[0][0] if above is not None and above.next_functions else None
        if above is None or below is None or (below.name(), above.name()) != _NAMES:
            return made  # Thunder has linked the results to the inputs in another way
        if not links:
            # Dynamo compiles a graph again if other inputs require gradients, so these links never change.
            links.extend(_links_of(below, given, reached))
        places = defaultdict[int, int](int)
        for at, value in enumerate(made):
            if _has_history(value):
                if value.grad_fn is not above:
                    return made
                places[value.output_nr] |= 1 << at
        _register_drop(above, below, places, links)
        return made

    return call


_NAMES = tuple(f"{kind.__name__}Backward" for kind in CONNECTIONS)


def _has_history(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.grad_fn is not None


def _links_of(node: Any, given: Sequence[Any], reached: Sequence[int]) -> list[int]:
    """Return the reached results for each gradient that a node returns; 0 if they are unknown."""
    known = defaultdict[Any, int](int)
    held = [value.grad_fn if isinstance(value, torch.Tensor) else None for value in given]  # keeps each `id` unique
    for value, history, bits in zip(given, held, reached, strict=False):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            known[id(value) if history is None else (id(history), value.output_nr)] |= bits
    following = node.next_functions
    leaves = [getattr(after, "variable", None) for after, _ in following]
    return [
        known[(id(after), number) if leaf is None else id(leaf)]
        for (after, number), leaf in zip(following, leaves, strict=True)
    ]


def _register_drop(above: Any, below: Any, places: Mapping[int, int], links: Sequence[int]) -> None:
    """Drop unused gradients in the backward of `below`, which runs right after the backward of `above`.

    `places` maps the number of an output of `above` to results, as bits.
    """
    received: list[int] = []

    def note(cotangents: Sequence[Any]) -> None:
        pairs = enumerate(cotangents)
        received.append(functools.reduce(operator.or_, (places[at] for at, given in pairs if given is not None), 0))

    def drop(gradients: Sequence[Any], _: Any) -> tuple[Any, ...]:
        bits = received.pop()
        return tuple(None if link and not link & bits else made for link, made in zip(links, gradients, strict=True))

    above.register_prehook(note)
    below.register_hook(drop)
