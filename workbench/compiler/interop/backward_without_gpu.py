"""Run a backward of fake GPU tensors on a machine without the GPU, and watch what a step differentiates by.

PyTorch's autograd engine queries the GPU's streams before it calls the first node, even for fake tensors. This module
calls the nodes itself, in the engine's order. The module runs only the hooks of leaves, and sets the ``grad`` of leaves
only. A node keeps its saved tensors until its graph is freed. Remove this module when the engine runs a backward of
fake CUDA tensors without a GPU.
"""

from __future__ import annotations

import contextlib
import contextvars
import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge, get_gradient_edge

from workbench.compiler.interop.thread_patches import PatchTarget, ThreadPatches, dispatch_by_thread
from workbench.interop.torch_private import FakeTensorMode, _functorch_depth

type Edge = tuple[Any, int]
"""A node of autograd's graph, and the number of one of its inputs."""

_adds_gradients = contextvars.ContextVar("adds_gradients", default=False)


def is_adding_gradients() -> bool:
    """Return whether a backward of this module is adding two gradients of one tensor now."""
    return _adds_gradients.get()


def _edge(of: Any) -> Edge:
    edge = of if isinstance(of, GradientEdge) else get_gradient_edge(of)
    return edge.node, edge.output_nr


class _Backward:
    """One backward from `roots`.

    If `wanted` is empty, all leaves receive gradients. If not, the gradients of the edges in `wanted` are stored in
    `found`. With `accumulates`, the leaves among these edges receive the gradients instead.
    """

    def __init__(self, roots: Sequence[Edge], wanted: Sequence[Edge], accumulates: bool) -> None:
        self._wanted, self._accumulates = set(wanted), accumulates
        self.found: dict[Edge, torch.Tensor] = {}
        self._given: dict[Any, dict[int, torch.Tensor]] = {}
        self._waits_for: Counter[Any] = Counter()
        order: list[Any] = []  # each node after all nodes that it leads to
        seen: set[Any] = set()
        ahead: list[tuple[Any, bool]] = [(node, False) for node, _ in roots]
        while ahead:
            node, is_done = ahead.pop()
            if is_done:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                ahead.append((node, True))
                ahead += [(after, False) for after, _ in node.next_functions if after is not None]
        targets = {node for node, _ in wanted}
        self._runs: set[Any] = set()
        for node in order:
            self._waits_for.update(after for after, _ in node.next_functions if after is not None)
            if not wanted or node in targets or any(after in self._runs for after, _ in node.next_functions):
                self._runs.add(node)

    def run(self, roots: Sequence[Edge], gradients: Sequence[torch.Tensor | None]) -> None:
        for (node, at), gradient in zip(roots, gradients, strict=True):
            self._give(node, at, gradient)
        # As in the engine, the node that was created last runs first, and leaves run as soon as they are ready.
        ready: list[tuple[int, int, Any]] = []
        added = 0
        for node in {node for node, _ in roots}:
            if not self._waits_for[node]:
                added += 1
                heapq.heappush(ready, (-node._sequence_nr(), added, node))
        while ready:
            node = heapq.heappop(ready)[2]
            given = self._given.pop(node, {})
            made = self._run_node(node, given) if node in self._runs else [None] * len(node.next_functions)
            del given
            for (after, at), which in zip(node.next_functions, range(len(made)), strict=True):
                if after is not None:
                    self._give(after, at, made[which])
                    self._waits_for[after] -= 1
                    if not self._waits_for[after]:
                        added += 1
                        heapq.heappush(ready, (-after._sequence_nr(), added, after))
            del made  # free each gradient before the next node runs, as the engine does

    def _give(self, node: Any, at: int, gradient: torch.Tensor | None) -> None:
        if gradient is None:
            return
        expected = node._input_metadata[at]
        if gradient.shape != torch.Size(expected.shape):
            gradient = gradient.sum_to_size(expected.shape)
        if gradient.dtype != expected.dtype:
            gradient = gradient.to(expected.dtype)
        inputs = self._given.setdefault(node, {})
        if at not in inputs:
            inputs[at] = gradient
            return
        token = _adds_gradients.set(True)
        try:
            inputs[at] = inputs[at] + gradient
        finally:
            _adds_gradients.reset(token)

    def _run_node(self, node: Any, given: dict[int, torch.Tensor]) -> list[torch.Tensor | None]:
        """Call a node. Return the gradients for its next nodes."""
        if not given:
            return [None] * len(node.next_functions)
        is_python = isinstance(node, BackwardCFunction)  # not in a condition: mypy would narrow the type
        leaf = None if is_python else getattr(node, "variable", None)
        for hook in () if leaf is None else (leaf._backward_hooks or {}).values():
            changed = hook(given[0])
            given[0] = given[0] if changed is None else changed
        for at, gradient in given.items():
            if (node, at) in self._wanted and not self._accumulates:
                self.found[node, at] = gradient
        if leaf is not None:
            if not self._wanted or ((node, 0) in self._wanted and self._accumulates):
                self._accumulate(leaf, given[0])
            return []
        inputs = [given.get(at) for at in range(len(node._input_metadata))]
        if not is_python:
            made = node(*inputs)
            return list(made) if isinstance(made, tuple) else [made]
        # PyTorch does not show whether a user's function called `set_materialize_grads(False)`. Pass zeros, except to
        # functions of the workbench with `materializes_gradients = False`.
        if getattr(node._forward_cls, "materializes_gradients", True):
            inputs = [_zeros(meta) if x is None else x for x, meta in zip(inputs, node._input_metadata, strict=True)]
        made = node.apply(*inputs)
        each = iter(made if isinstance(made, tuple | list) else (made,))
        # A node written in Python returns a gradient for each argument, and has an edge for each tensor among the
        # arguments.
        needed = iter([gradient for gradient, is_needed in zip(each, node.needs_input_grad, strict=True) if is_needed])
        return [None if following is None else next(needed, None) for following, _ in node.next_functions]

    def _accumulate(self, leaf: torch.Tensor, gradient: torch.Tensor) -> None:
        if leaf.grad is not None and not torch.is_grad_enabled():
            leaf.grad += gradient
        elif leaf.grad is not None:
            leaf.grad = leaf.grad + gradient
        else:
            # Copy the gradient in the same cases as the engine: if the backward is recorded, if another node also
            # receives the gradient, or if its layout differs from the leaf's.
            shared = any(gradient is other for inputs in self._given.values() for other in inputs.values())
            if torch.is_grad_enabled() or shared or not _has_layout_of(gradient, leaf):
                leaf.grad = torch.empty_like(leaf, requires_grad=False).copy_(gradient)
            else:
                leaf.grad = gradient.detach()
        for hook in (getattr(leaf, "_post_accumulate_grad_hooks", None) or {}).values():
            hook(leaf)


def _has_layout_of(gradient: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Return whether the strides of both tensors are equal in all dimensions whose size is not 1."""
    each = zip(leaf.shape, gradient.stride(), leaf.stride(), strict=True)
    return all(size == 1 or ours == theirs for size, ours, theirs in each)


def _zeros(metadata: Any) -> torch.Tensor:
    return torch.zeros(tuple(metadata.shape), dtype=metadata.dtype, device=metadata.device)


def _run(
    outputs: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    keep_graph: bool,
    create_graph: bool,
    inputs: Sequence[torch.Tensor] = (),
    allow_unreachable: bool = False,
    accumulate_grad: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """Run a backward, with the arguments and the result of the engine's `run_backward`."""
    roots, wanted = [_edge(output) for output in outputs], [_edge(given) for given in inputs]
    backward = _Backward(roots, wanted, accumulate_grad)
    with _without_gpu.value, torch.set_grad_enabled(create_graph):
        backward.run(roots, gradients)
    found = tuple(backward.found.get(edge) for edge in wanted)
    if not accumulate_grad and not allow_unreachable and None in found:
        raise RuntimeError("One of the differentiated Tensors appears to not have been used in the graph.")
    return () if accumulate_grad else found


def _make(stock: Any, patches: ThreadPatches) -> Any:
    def backward(outputs: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        on_gpu = any(getattr(output, "is_cuda", False) for output in outputs)
        return (_run if on_gpu else stock)(outputs, *args, **kwargs)

    # Exclude the function from Dynamo, because Dynamo cannot guard the fake tensor mode that the function uses.
    return torch.compiler.disable(dispatch_by_thread(stock, backward, patches))


_without_gpu = ThreadPatches(
    "backward without a GPU", lambda: [PatchTarget(torch.autograd, "_engine_run_backward", _make)]
)


def backward_without_gpu(mode: FakeTensorMode) -> contextlib.AbstractContextManager[None]:
    """In this context, autograd differentiates fake GPU tensors of `mode` without a GPU."""
    return contextlib.nullcontext() if torch.cuda.is_available() else _without_gpu(mode)


def _make_watched(stock: Any, patches: ThreadPatches) -> Any:
    def backward(
        outputs: Any,
        gradients: Any,
        keep_graph: bool,
        create_graph: bool,
        inputs: Sequence[Any] = (),
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        # The tensors of a transform of `torch.func` are not those of the program, and some of them have no edge.
        if patches.value is not None and not _functorch_depth():
            edges = [given if isinstance(given, GradientEdge) else get_gradient_edge(given) for given in inputs]
            stores = bool(kwargs.get("accumulate_grad"))
            patches.value(edges, stores)
            if stores:
                _mark([_edge(output) for output in outputs], keep_graph)
        return stock(outputs, gradients, keep_graph, create_graph, inputs, *args, **kwargs)

    # Do not copy the attributes of `stock`: it may be excluded from Dynamo, which would then call what `stock` wraps.
    return torch.compiler.disable(backward)


_FREED, _ROOTS = "workbench.freed", "workbench.roots"
"""Keys in the metadata of a node of autograd's graph. Unlike a set of nodes, they keep no node alive."""


def _mark(roots: Sequence[Edge], keep_graph: bool) -> None:
    """Mark the nodes from which a backward begins, and the nodes that it frees."""
    for node, at in roots:
        node.metadata.setdefault(_ROOTS, set()).add(at)
    ahead = [] if keep_graph else [node for node, _ in roots]
    while ahead:
        node = ahead.pop()
        if node.next_functions and _FREED not in node.metadata:  # the node of a leaf stays
            node.metadata[_FREED] = True
            ahead += [after for after, _ in node.next_functions if after is not None]


def is_spent(output: torch.Tensor, is_apart: Callable[[Any, int], bool] = lambda node, at: False) -> bool:
    """Return whether a watched backward has differentiated an output, or has freed a part of its graph.

    An output without a graph is spent, too. `is_apart` gets a freed node and the number of one of its inputs, and
    returns whether the backward may have freed nothing behind this input.
    """
    root: Any = output.grad_fn  # PyTorch declares `metadata` as a method
    if root is None or output.output_nr in root.metadata.get(_ROOTS, ()):
        return True
    ahead, seen = [_edge(output)], set[Edge]()
    while ahead:
        node, at = ahead.pop()
        if (node, at) in seen:
            continue
        seen.add((node, at))
        if _FREED not in node.metadata:
            ahead += [(after, where) for after, where in node.next_functions if after is not None]
        elif not is_apart(node, at):
            return True
    return False


_watched = ThreadPatches(
    "watched backwards", lambda: [PatchTarget(torch.autograd, "_engine_run_backward", _make_watched)]
)


def watch_backwards(seen: Callable[[list[GradientEdge], bool], None]) -> contextlib.AbstractContextManager[None]:
    """In this context, call `seen` in front of each backward.

    Its arguments are the edges of the tensors with respect to which autograd is called, and whether the backward stores
    gradients in tensors, as ``loss.backward()`` does and ``torch.autograd.grad`` does not. `is_spent` knows the
    backwards that store gradients.
    """
    return _watched(seen)
