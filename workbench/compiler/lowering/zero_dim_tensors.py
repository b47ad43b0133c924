"""Give zero-dimensional CPU tensors one dimension, because Thunder computes wrong gradients for them.

Thunder treats such a tensor like a number and does not broadcast it. Therefore its gradient gets the shape of the other
operand: `x / x.sum()` has a wrong gradient, and `w / x.sum()` fails. Thunder broadcasts one-dimensional tensors. On a
GPU, Thunder also broadcasts zero-dimensional tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from workbench.compiler.interop.thunder_api import TensorProxy, dtypes

BROADCAST = frozenset(
    (
        *("add", "sub", "mul", "div", "truediv", "true_divide", "divide", "multiply", "subtract", "rsub", "pow"),
        *("add_", "sub_", "mul_", "div_", "iadd", "isub", "imul", "itruediv", "addcmul", "addcdiv", "lerp"),
        *(
            "where",
            "masked_fill",
            "maximum",
            "minimum",
            "max",
            "min",
            "fmax",
            "fmin",
            "clamp",
            "clamp_min",
            "clamp_max",
        ),
        *("atan2", "arctan2", "hypot", "fmod", "remainder", "mod", "copysign", "logaddexp", "logaddexp2", "xlogy"),
        *("float_power", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "copy_", "fill_"),
    )
)
"""Names of functions, methods and operators that broadcast."""


def spread(node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a node, with one dimension added to zero-dimensional CPU tensors that need a gradient.

    The arguments are unchanged if the node does not broadcast, or if no tensor among them has a dimension.

    Parameters
    ----------
    node : Node
        Node with fake tensors as the values of its arguments.
    args, kwargs
        Arguments with Thunder's proxies instead of tensors.
    """
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name not in BROADCAST:
        return args, kwargs
    wide = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, TensorProxy) and arg.ndim]
    if not wide:
        return args, kwargs
    return (
        tuple(_spread(given, arg, wide) for given, arg in zip(node.args, args, strict=True)),
        {name: _spread(node.kwargs[name], arg, wide) for name, arg in kwargs.items()},
    )


def _wants_gradient(node: Any) -> bool:
    value = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return isinstance(value, torch.Tensor) and value.requires_grad and value.device.type == "cpu"


def _spread(node: Any, arg: Any, wide: list[TensorProxy]) -> Any:
    if not isinstance(arg, TensorProxy) or arg.ndim or not _wants_gradient(node):
        return arg
    # Cast first: a zero-dimensional tensor does not promote the floating-point type of the result, but a
    # one-dimensional tensor does.
    kinds = {x.dtype for x in wide if dtypes.is_inexact_dtype(x.dtype)}
    if len(kinds) == 1 and arg.dtype not in kinds:
        arg = arg.to(next(iter(kinds)))
    return arg.reshape(1)
