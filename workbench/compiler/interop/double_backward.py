"""Raise an error when a derivative is requested that a compiled program lacks: a second or a forward-mode derivative.

Unmodified Thunder would lose terms of a second derivative silently. Autograd does not record the operators inside
Thunder's compiled backward. Autograd therefore treats the gradients from this backward as constants, and a second
derivative would lack all terms that depend on these gradients.
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
    "a gradient is differentiated a second time (for example with create_graph=True), but it comes from a function "
    "that Thunder compiled. The compiled backward has no graph of its own, so terms would be missing. Where you need "
    "second derivatives, call the original function (torch.func.hessian and torch.autograd.grad accept it), and the "
    "compiled function everywhere else"
)

FORWARD_REFUSAL = (
    "a forward-mode derivative (torch.autograd.forward_ad) is requested of a function that Thunder compiled. The "
    "compiled function has only a backward. Where you need forward-mode derivatives, call the original function "
    "(torch.func.jvp accepts it), and the compiled function everywhere else"
)


class _Once(torch.autograd.Function):
    """Identity function for gradients. Its backward raises `GradientError`."""

    @staticmethod
    def forward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(gradient.view_as(gradient) for gradient in gradients)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise GradientError(REFUSAL)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise GradientError(REFUSAL)


class ThunderFunction(StockFunction):
    """Thunder's autograd function of the same name, but derivatives that it lacks raise `GradientError`."""

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        """Refuse a forward-mode derivative. PyTorch would only say that this method is missing."""
        raise GradientError(FORWARD_REFUSAL)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """Return the gradients of the compiled backward."""
        compiled = ctx.compiled_backward

        def run(saved: Any, given: list[Any]) -> Any:
            made = compiled(saved, given)
            given.clear()  # Thunder asserts that the list is empty, but a backward that reads none of it leaves it
            return made

        ctx.compiled_backward = run
        return refuse_second_backward(StockFunction.backward(ctx, *cotangents))


class ThunderOutputFunction(StockOutputFunction):
    """Thunder's autograd function of the same name. Patches of this subclass leave Thunder's class unchanged."""


CONNECTIONS: tuple[Any, ...] = (ThunderFunction, ThunderOutputFunction)
"""Autograd functions that a compiled program uses after `refuse_second_derivatives`."""

_connect = FunctionType(
    connect_to_autograd.__wrapped__.__code__,
    {
        **connect_to_autograd.__wrapped__.__globals__,
        "ThunderFunction": ThunderFunction,
        "ThunderOutputFunction": ThunderOutputFunction,
    },
)


def refuse_second_derivatives(jitted: Any) -> None:
    """Make a function from `thunder.jit` raise `GradientError` when its gradients are differentiated.

    Unmodified Thunder returns wrong second derivatives. An example is the derivative of ``torch.autograd.grad(out, x,
    create_graph=True)`` through ``thunder.jit(lambda x: x.sin().sum())``. Remove this when unmodified Thunder refuses
    second derivatives or computes them correctly.
    """
    cell = cell_of(getattr(jitted, "_forward_fn", jitted), "maybe_connect_to_autograd")
    stock = cell.cell_contents
    names = {"connect_to_autograd": torch.enable_grad()(_connect)}
    cell.cell_contents = FunctionType(stock.__code__, names, stock.__name__, stock.__defaults__, stock.__closure__)


def refuse_second_backward(computed: Sequence[Any]) -> tuple[Any, ...]:
    """Wrap the gradients of a compiled backward, so that differentiating the gradients raises `GradientError`."""
    gradients = tuple(computed)
    if not torch.is_grad_enabled():
        return gradients
    places = [i for i, g in enumerate(gradients) if isinstance(g, torch.Tensor) and g.is_floating_point()]
    copies = [gradients[i].detach().requires_grad_() for i in places]
    guarded = dict(zip(places, _Once.apply(*copies), strict=True))  # type: ignore[no-untyped-call]
    return tuple(guarded.get(i, gradient) for i, gradient in enumerate(gradients))
