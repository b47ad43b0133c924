"""A second derivative through what Thunder compiled is refused where it is asked for: it would lack terms, silently.

Thunder's backward is one compiled function without a graph of its own. Autograd takes the gradients that it gives for
constants, so that what is differentiated again comes out without all that depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from workbench.compiler.interop.thunder_api import ThunderFunction
from workbench.errors import GradientError

REFUSAL = (
    "a gradient is differentiated a second time (as by create_graph=True), and it comes out of a function that Thunder "
    "compiled: the compiled backward has no graph of its own, so that terms would be missing; call the function "
    "itself, uncompiled, where second derivatives are needed (torch.func.hessian and torch.autograd.grad work on "
    "it), and what is compiled everywhere else"
)

_backward = ThunderFunction.backward


class _Once(torch.autograd.Function):
    """Gradients as they are, which cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(gradient.view_as(gradient) for gradient in gradients)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise GradientError(REFUSAL)


def backward_once(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
    """The compiled backward, whose gradients raise a `GradientError` when they are differentiated."""
    return refused_twice(_backward(ctx, *cotangents))


def refused_twice(found: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients that a compiled backward gave, which raise a `GradientError` when they are differentiated."""
    gradients = tuple(found)
    if not torch.is_grad_enabled():
        return gradients
    places = [i for i, g in enumerate(gradients) if isinstance(g, torch.Tensor) and g.is_floating_point()]
    copies = [gradients[i].detach().requires_grad_() for i in places]
    guarded = dict(zip(places, _Once.apply(*copies), strict=True))  # type: ignore[no-untyped-call]
    return tuple(guarded.get(i, gradient) for i, gradient in enumerate(gradients))
