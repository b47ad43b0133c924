"""A second derivative through what Thunder compiled is refused where it is asked for: it would lack terms, silently.

Thunder's backward is one compiled function without a graph of its own. Autograd takes the gradients that it gives for
constants, so that what is differentiated again comes out without all that depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any

import torch

from workbench.compiler.interop.thunder_api import ThunderFunction as StockFunction
from workbench.compiler.interop.thunder_api import ThunderOutputFunction as StockOutputFunction
from workbench.compiler.interop.thunder_api import cell_of, connect_to_autograd
from workbench.errors import GradientError

REFUSAL = (
    "a gradient is differentiated a second time (as by create_graph=True), and it comes out of a function that Thunder "
    "compiled: the compiled backward has no graph of its own, so that terms would be missing; call the function "
    "itself, uncompiled, where second derivatives are needed (torch.func.hessian and torch.autograd.grad work on "
    "it), and what is compiled everywhere else"
)


class _Once(torch.autograd.Function):
    """Gradients as they are, which cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(gradient.view_as(gradient) for gradient in gradients)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise GradientError(REFUSAL)


class ThunderFunction(StockFunction):
    """Thunder's own, by a name that ``grad_fn`` shows; its gradients raise a `GradientError` when differentiated."""

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """Return the gradients of the compiled backward."""
        return refused_twice(StockFunction.backward(ctx, *cotangents))


class ThunderOutputFunction(StockOutputFunction):
    """Thunder's own."""


CONNECTIONS: tuple[Any, ...] = (ThunderFunction, ThunderOutputFunction)
"""What autograd goes through in what `refuse_second_derivatives` was given."""

_connect = FunctionType(
    connect_to_autograd.__wrapped__.__code__,
    {
        **connect_to_autograd.__wrapped__.__globals__,
        "ThunderFunction": ThunderFunction,
        "ThunderOutputFunction": ThunderOutputFunction,
    },
)


def refuse_second_derivatives(jitted: Any) -> None:
    """Let a function that `thunder.jit` made refuse to differentiate a gradient, and no other function.

    What unmodified Thunder gives there is wrong. It can go once
    ``torch.autograd.grad(out, x, create_graph=True)`` through ``thunder.jit(lambda x: x.sin().sum())`` is refused or
    differentiable.
    """
    cell = cell_of(getattr(jitted, "_forward_fn", jitted), "maybe_connect_to_autograd")
    stock = cell.cell_contents
    names = {"connect_to_autograd": torch.enable_grad()(_connect)}
    cell.cell_contents = FunctionType(stock.__code__, names, stock.__name__, stock.__defaults__, stock.__closure__)


def refused_twice(found: Sequence[Any]) -> tuple[Any, ...]:
    """Gradients that a compiled backward gave, which raise a `GradientError` when they are differentiated."""
    gradients = tuple(found)
    if not torch.is_grad_enabled():
        return gradients
    places = [i for i, g in enumerate(gradients) if isinstance(g, torch.Tensor) and g.is_floating_point()]
    copies = [gradients[i].detach().requires_grad_() for i in places]
    guarded = dict(zip(places, _Once.apply(*copies), strict=True))  # type: ignore[no-untyped-call]
    return tuple(guarded.get(i, gradient) for i, gradient in enumerate(gradients))
