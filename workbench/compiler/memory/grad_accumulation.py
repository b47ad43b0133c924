"""Predict which tensors autograd keeps as the gradient of a leaf, and which tensors it copies.

PyTorch's rules are in ``torch/csrc/autograd/functions/accumulate_grad.h`` (the gradient layout contract). If a leaf has
no gradient yet, autograd either keeps the new gradient tensor itself or copies it. Autograd keeps the tensor if the
tensor has the leaf's layout, and if nothing else holds the tensor. In all other cases autograd copies the tensor.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from workbench.analysis.memory.allocator import allocated_bytes
from workbench.compiler.interop.thunder_api import TensorProxy, to_torch_device, to_torch_dtype
from workbench.compiler.memory.kernel_workspace import copy_inside_bytes

if TYPE_CHECKING:
    from workbench.compiler.memory.views_and_writes import TraceFacts


@dataclasses.dataclass(frozen=True)
class Accumulated:
    """A gradient that a leaf receives.

    Attributes
    ----------
    gradient : TensorProxy
    copied_bytes : int
        Bytes of the new tensor that autograd makes by copying or summing; 0 if autograd keeps the gradient.
    copying_bytes : int
        Most bytes allocated during the accumulation, including the copy.
    """

    gradient: Any
    copied_bytes: int
    copying_bytes: int


def accumulated_gradients(
    gradients: Sequence[Any],
    arguments: Sequence[Any],
    facts: TraceFacts,
    tensors: Mapping[str, torch.Tensor],
    past: Collection[str] = (),
) -> list[Accumulated]:
    """Return the gradients that leaves receive, in the order in which autograd accumulates them.

    Parameters
    ----------
    gradients : sequence
        Results of the backward, one for each argument. Results that are not tensors are skipped.
    arguments : sequence of Proxy
        The arguments, in the same order.
    facts : TraceFacts
        Facts of all statements that have run.
    tensors : mapping of str to Tensor
        The actual tensors of arguments, by name. They show which arguments are leaves. An argument that is missing here
        is assumed to be a leaf. An argument that is not a leaf passes its gradient on without a copy.
    past : collection of str
        Names of arguments that already have a gradient. Autograd adds the gradient from the backward to the existing
        gradient in place.
    """
    leaves = [
        (gradient, argument)
        for gradient, argument in zip(gradients, arguments, strict=True)
        if isinstance(gradient, TensorProxy) and (argument.name not in tensors or tensors[argument.name].is_leaf)
    ]
    leaves = [leaves[i] for i in accumulation_order(len(leaves))]
    waiting = _PendingGradients([gradient for gradient, _ in leaves], facts)
    given = []
    for gradient, argument in leaves:
        held = waiting.remove(gradient)
        if argument.name in past:
            given.append(Accumulated(gradient, 0, 0))
            continue
        device_type = to_torch_device(gradient.device).type
        strides, of_leaf = facts.strides[gradient.name], facts.strides[argument.name]
        if tuple(gradient.shape) != tuple(argument.shape) or len(strides) != len(of_leaf):
            # Thunder may return a gradient in the shape to which the leaf was broadcast, even if the trace shows the
            # leaf's shape. Autograd's engine sums such a gradient into a new tensor (`validate_outputs` in
            # ``torch/csrc/autograd/engine.cpp``).
            summed_bytes = allocated_bytes(
                math.prod(argument.shape) * to_torch_dtype(gradient.dtype).itemsize, device_type
            )
            given.append(Accumulated(gradient, summed_bytes, summed_bytes))
            continue
        if not held and obeys_layout_contract(strides, gradient.shape, of_leaf):
            given.append(Accumulated(gradient, 0, 0))
            continue
        shape, dtype = tuple(gradient.shape), to_torch_dtype(gradient.dtype)
        copied_bytes = allocated_bytes(math.prod(shape) * dtype.itemsize, device_type)
        inside_bytes = 0
        if device_type == "cpu":
            into = of_leaf if _is_dense(of_leaf, shape) else tuple(_row_by_row(shape))
            inside_bytes = copy_inside_bytes(shape, strides, into, dtype)
        given.append(Accumulated(gradient, copied_bytes, copied_bytes + inside_bytes))
    return given


class _PendingGradients:
    """Gradients that have not been accumulated yet."""

    def __init__(self, gradients: Sequence[Any], facts: TraceFacts) -> None:
        self._facts = facts
        self._tensors = Counter(facts.tensor_of[gradient.name] for gradient in gradients)
        self._views = Counter(facts.storage_of[g.name] for g in gradients if g.name in facts.views)

    def remove(self, gradient: Any) -> bool:
        """Remove a gradient, and return whether a remaining gradient shares memory with it.

        Gradients share memory if they are the same tensor, or if the remaining gradient is a view of the removed
        gradient.
        """
        found, name = self._facts, gradient.name
        self._tensors[found.tensor_of[name]] -= 1
        if name in found.views:
            self._views[found.storage_of[name]] -= 1
        return self._tensors[found.tensor_of[name]] > 0 or (
            name not in found.views and self._views[found.storage_of[name]] > 0
        )


def obeys_layout_contract(strides: Sequence[int], shape: Sequence[int], of_leaf: Sequence[int]) -> bool:
    """Return whether a gradient has the layout that PyTorch requires of a leaf's gradient.

    The required layout is the layout of the leaf, or row-major if the leaf has gaps or overlaps.

    Parameters
    ----------
    strides, of_leaf : sequence of int
        Strides of the gradient and of the leaf, in elements.
    shape : sequence of int
        Shape of the gradient and of the leaf.
    """
    if not _is_dense(of_leaf, shape):
        return math.prod(shape) == 0 or _matches(strides, _row_by_row(shape), shape)
    # PyTorch treats a tensor with a stride of zero as a view, even if that dimension has only one element.
    return _matches(strides, of_leaf, shape) and all(
        stride != 0 for stride, length in zip(strides, shape, strict=True) if length == 1
    )


def leaf_gradient_strides(of_leaf: Sequence[int], shape: Sequence[int]) -> Sequence[int]:
    """Return the strides of a gradient that autograd copies: those of the leaf, or row-major if the leaf has gaps."""
    return of_leaf if _is_dense(of_leaf, shape) else _row_by_row(shape)


def _matches(strides: Sequence[int], expected: Sequence[int], shape: Sequence[int]) -> bool:
    return all(length == 1 or one == other for one, other, length in zip(strides, expected, shape, strict=True))


def _row_by_row(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


def _is_dense(strides: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether a tensor has neither gaps nor overlaps; its dimensions may have any order."""
    expected = 1
    for stride, length in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != expected:
            return math.prod(shape) == 0
        expected *= length
    return True


def accumulation_order(count: int) -> list[int]:
    """Return the positions of `count` leaves in the order in which the autograd engine takes them from its queue.

    All leaves have equal priority. The engine's queue is a binary heap (``std::priority_queue``). When an element is
    taken from a heap of equal elements, the hole at the root moves down along right children, and the last element
    fills the hole.
    """
    heap, order = list(range(count)), []
    while heap:
        order.append(heap[0])
        last = heap.pop()
        size, hole = len(heap), 0
        if not size:
            break
        while 2 * hole + 2 < size:
            child = 2 * hole + 2
            heap[hole], hole = heap[child], child
        if 2 * hole + 1 < size:
            child = 2 * hole + 1
            heap[hole], hole = heap[child], child
        heap[hole] = last
    return order
