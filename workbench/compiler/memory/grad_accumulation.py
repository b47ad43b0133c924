"""What autograd does with the gradients that a backward returns: which it takes as they are, and which it copies.

PyTorch's rules, from ``torch/csrc/autograd/functions/accumulate_grad.h`` (the gradient layout contract): a leaf without
a gradient takes a tensor that nobody else holds and that lies in memory as the leaf does, and a copy of any other.
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
    from workbench.compiler.memory.op_effects import TraceFacts


@dataclasses.dataclass(frozen=True)
class Accumulated:
    """A gradient that a leaf is given.

    Attributes
    ----------
    gradient : TensorProxy
    copied_bytes : int
        Bytes of the copy, or of the sum, that autograd makes of it; 0 where it takes the tensor itself.
    copying_bytes : int
        The most that it allocates meanwhile, the copy included.
    """

    gradient: Any
    copied_bytes: int
    copying_bytes: int


def accumulated(
    gradients: Sequence[Any],
    arguments: Sequence[Any],
    found: TraceFacts,
    tensors: Mapping[str, torch.Tensor],
    past: Collection[str] = (),
) -> list[Accumulated]:
    """Gradients that go into leaves, in the order in which autograd gives them.

    Parameters
    ----------
    gradients : sequence
        What the backward returns, one per argument; what is no tensor is no gradient.
    arguments : sequence of Proxy
        What the gradients are for.
    found : TraceFacts
        Facts of all that has run.
    tensors : mapping of str to Tensor
        Tensors behind the arguments, as far as they are known. Those not known are taken for leaves. What goes on into
        another backward is not autograd's to copy.
    past : collection of str
        Arguments that a gradient waits at, to which the backward's is added in place.
    """
    leaves = [
        (gradient, argument)
        for gradient, argument in zip(gradients, arguments, strict=True)
        if isinstance(gradient, TensorProxy) and (argument.name not in tensors or tensors[argument.name].is_leaf)
    ]
    leaves = [leaves[i] for i in accumulation_order(len(leaves))]
    waiting = _PendingGradients([gradient for gradient, _ in leaves], found)
    given = []
    for gradient, argument in leaves:
        held = waiting.without(gradient)
        if argument.name in past:
            given.append(Accumulated(gradient, 0, 0))
            continue
        device_type = to_torch_device(gradient.device).type
        strides, of_leaf = found.strides[gradient.name], found.strides[argument.name]
        if tuple(gradient.shape) != tuple(argument.shape) or len(strides) != len(of_leaf):
            # Thunder leaves a gradient as wide as what its leaf was broadcast to, and may not say so; the engine
            # adds it up into a tensor of its own (`validate_outputs` in ``torch/csrc/autograd/engine.cpp``).
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

    def __init__(self, gradients: Sequence[Any], found: TraceFacts) -> None:
        self._found = found
        self._tensors = Counter(found.tensor_of[gradient.name] for gradient in gradients)
        self._views = Counter(found.storage_of[g.name] for g in gradients if g.name in found.views)

    def without(self, gradient: Any) -> bool:
        """Take out the next; whether one of the others is the same tensor, or a view that refers to it."""
        found, name = self._found, gradient.name
        self._tensors[found.tensor_of[name]] -= 1
        if name in found.views:
            self._views[found.storage_of[name]] -= 1
        return self._tensors[found.tensor_of[name]] > 0 or (
            name not in found.views and self._views[found.storage_of[name]] > 0
        )


def obeys_layout_contract(strides: Sequence[int], shape: Sequence[int], of_leaf: Sequence[int]) -> bool:
    """Whether a gradient lies in memory as its leaf does or, where the leaf has gaps or overlaps, row by row.

    Parameters
    ----------
    strides, of_leaf : sequence of int
        Of the gradient and of the leaf, in elements.
    shape : sequence of int
        Of both.
    """
    if not _is_dense(of_leaf, shape):
        return math.prod(shape) == 0 or _matches(strides, _row_by_row(shape), shape)
    # PyTorch takes a stride of zero for a sign of a view, also along a dimension of one element.
    return _matches(strides, of_leaf, shape) and all(
        stride != 0 for stride, length in zip(strides, shape, strict=True) if length == 1
    )


def _matches(strides: Sequence[int], wanted: Sequence[int], shape: Sequence[int]) -> bool:
    return all(length == 1 or one == other for one, other, length in zip(strides, wanted, shape, strict=True))


def _row_by_row(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


def _is_dense(strides: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether elements lie one after another in some order of dimensions, with no gap and no overlap."""
    expected = 1
    for stride, length in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != expected:
            return math.prod(shape) == 0
        expected *= length
    return True


def accumulation_order(count: int) -> list[int]:
    """The order in which the autograd engine takes so many leaves off its queue, by their positions.

    They are of one rank, and the engine's queue is a binary heap (``std::priority_queue``), which hands out equals in
    an order of its own: the hole at the root moves down by right children, then what was last fills it.
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
