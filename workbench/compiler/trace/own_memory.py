"""Find results that share memory in Thunder, although PyTorch gives them memory of their own.

An example is ``x.repeat(1, 2)``. If ``x`` has one column, Thunder's result is an expanded view of ``x``. A write into
this view fails, because several elements of the view have the same memory. Thunder's result of ``x.repeat(1, 1)`` has
the memory of ``x``, and a write into it would also change ``x``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from workbench.compiler.interop.thunder_api import BoundSymbol, TensorProxy, prims
from workbench.compiler.trace.copy_sets import VIEWS, leaves
from workbench.compiler.trace.proxy_traits import shape_of


def shares_memory(made: Any, statements: Sequence[BoundSymbol]) -> bool:
    """Return whether the result of an operator shares memory with an older value, or its elements share memory.

    Parameters
    ----------
    made : Any
        Result of the operator. If it is not a tensor, the answer is False.
    statements : sequence of BoundSymbol
        Statements that Thunder recorded for the operator.
    """
    if not isinstance(made, TensorProxy):
        return False
    makers = {out.name: leaf for leaf in leaves(statements) for out in leaf.flat_proxy_outs}
    steps: list[BoundSymbol] = []
    name = made.name
    while (maker := makers.get(name)) is not None and maker.sym.id in VIEWS and maker.flat_proxy_args:
        steps.append(maker)
        name = maker.flat_proxy_args[0].name
    given = steps[-1].flat_proxy_args[0] if steps else made
    has_own = maker is not None
    held = torch.empty(shape_of(given), device="meta")
    for step in reversed(steps):
        view = _view(held, step)
        has_own = has_own or view.untyped_storage()._cdata != held.untyped_storage()._cdata
        held = view
    overlaps = any(size > 1 and stride == 0 for size, stride in zip(held.shape, held.stride(), strict=True))
    return not has_own or overlaps


def _view(held: torch.Tensor, step: BoundSymbol) -> torch.Tensor:
    """Return what PyTorch makes of a tensor at a statement of `VIEWS`."""
    shape = shape_of(step.output)
    if step.sym.id is prims.PrimIDs.BROADCAST_IN_DIM:
        places = [int(at) for at in step.args[2]]
        strides = [0] * len(shape)
        for at, size, stride in zip(places, held.shape, held.stride(), strict=True):
            strides[at] = stride if size == shape[at] else 0
        return held.as_strided(shape, strides)
    if step.sym.id is prims.PrimIDs.TRANSPOSE:
        return held.permute(*map(int, step.args[1]))
    if step.sym.id is prims.PrimIDs.SLICE:
        _, first, end, *steps = step.args
        by = steps[0] if steps and steps[0] is not None else [1] * len(shape)
        return held[tuple(slice(int(a), int(b), int(c)) for a, b, c in zip(first, end, by, strict=True))]
    if step.sym.id in (prims.PrimIDs.RESHAPE, prims.PrimIDs.SQUEEZE):
        return held.reshape(shape)
    return held
