"""Replacements for random operators. A replacement draws only once, as PyTorch does; see `lowering.overrides`.

Thunder calls PyTorch's channel dropout, alpha dropout and `gumbel_softmax` unchanged, and runs them again for their
gradient. The second run draws different numbers, so the gradients do not match the outputs. Thunder lacks most in-place
draws, such as `bernoulli_`, with which torchvision and timm drop whole layers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from workbench.compiler.interop.thunder_api import TensorProxy
from workbench.compiler.lowering.decompositions import thunder_operator
from workbench.compiler.lowering.factories import draw_values

_SELU = 1.7580993408473766
"""Scale times alpha of SELU. Alpha dropout sets dropped elements to minus this, then scales and shifts all elements."""


def _draw_in_place(kind: str, a: TensorProxy, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
    if generator is not None or kwargs or not all(isinstance(arg, int | float) for arg in args):
        raise NotImplementedError(f"{kind}_ with a generator, with keyword arguments, or with a tensor as an argument")
    return thunder_operator(torch.Tensor.copy_)(a, draw_values(kind, a, a.shape, *args))


def _bernoulli_in_place(a: TensorProxy, p: Any = 0.5, *, generator: Any = None) -> Any:
    if not isinstance(p, TensorProxy):
        return _draw_in_place("bernoulli", a, p, generator=generator)
    if generator is not None:
        raise NotImplementedError("bernoulli_ with a generator")
    return thunder_operator(torch.Tensor.copy_)(a, thunder_operator(torch.bernoulli)(p.expand(*a.shape)).to(a.dtype))


def _bernoulli(a: TensorProxy, p: float | None = None, *, generator: Any = None) -> Any:
    """Replace `bernoulli`. Thunder supports only a tensor of probabilities, and not a number `p`."""
    if generator is not None:
        raise NotImplementedError("bernoulli with a generator")
    return thunder_operator(torch.bernoulli)(a) if p is None else draw_values("bernoulli", a, a.shape, p)


def _randint_like(a: TensorProxy, *bounds: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
    """Replace `randint_like`. Thunder runs it again to compute its gradient, but no program needs this gradient.

    `bounds` are one or two numbers. They may also be given by the keywords ``low`` and ``high``.
    """
    low, high = kwargs.pop("low", None), kwargs.pop("high", None)
    bounds = (*(() if low is None else (low,)), *bounds, *(() if high is None else (high,)))
    if kwargs.pop("requires_grad", False) or any(value is not None for value in kwargs.values()):
        raise NotImplementedError(f"randint_like with {', '.join(kwargs) or 'requires_grad'}")
    low, high = bounds if len(bounds) == 2 else (0, *bounds)
    like = a if dtype is None and device is None else thunder_operator(torch.empty_like)(a, dtype=dtype, device=device)
    return draw_values("random", like, a.shape, low, high)


def _drop(
    dims: int | None,
    alpha: bool,
    a: TensorProxy,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Any:
    """Apply dropout as PyTorch does. If `dims` is None, drop elements. Else, drop channels of `dims` dimensions."""
    if not training or p == 0:
        return a
    # `dropout2d` treats an input of three dimensions as a batch (N, C, L).
    single = dims is not None and a.ndim == dims + 1 and dims != 2
    x = a.unsqueeze(0) if single else a
    shape = x.shape if dims is None else [*x.shape[:2], *[1] * (x.ndim - 2)]
    if p == 1:
        made = x * 0.0
    else:
        noise = draw_values("bernoulli", x, shape, 1 - p)
        if alpha:
            by = 1.0 / math.sqrt((_SELU * _SELU * p + 1) * (1 - p))
            made = x * (noise * by) + ((noise - 1) * (_SELU * by) + _SELU * by * p)
        else:
            made = x * (noise / (1 - p))
    made = made.squeeze(0) if single else made
    return thunder_operator(torch.Tensor.copy_)(a, made) if inplace else made


def _alpha_dropout(a: TensorProxy, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    return _drop(None, True, a, p, training, inplace)


def _feature_alpha_dropout(a: TensorProxy, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    return _drop(max(a.ndim - 2, 0), True, a, p, training, inplace)


def _drop_channels(alpha: bool, a: TensorProxy, p: float, train: bool) -> Any:
    """Replace `torch.feature_dropout` and `torch.feature_alpha_dropout`. Channels may have any number of dimensions."""
    return _drop(max(a.ndim - 2, 0), alpha, a, p, train)


def _gumbel_softmax(logits: TensorProxy, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    del eps
    gumbels = -thunder_operator(torch.log)(draw_values("exponential", logits, logits.shape))
    soft = thunder_operator(functional.softmax)((logits + gumbels) / tau, dim)
    if not hard:
        return soft
    index = thunder_operator(torch.argmax)(soft, dim, keepdim=True)
    zeros = thunder_operator(torch.zeros_like)(logits)
    ones = thunder_operator(torch.ones_like)(index).to(logits.dtype)
    return thunder_operator(torch.scatter)(zeros, dim, index, ones) - soft.detach() + soft


def _native_dropout(a: TensorProxy, p: float, train: bool | None) -> tuple[Any, Any]:
    """Replace `native_dropout`. Return the result, and a mask that is False for the dropped elements."""
    if not train and train is not None:
        return a * 1, thunder_operator(torch.ones_like)(a, dtype=torch.bool)
    if p == 1:
        return a * 0.0, thunder_operator(torch.zeros_like)(a, dtype=torch.bool)
    noise = draw_values("bernoulli", a, a.shape, 1 - p)
    return a * noise * (1 / (1 - p)), noise.to(torch.bool)


DRAWN: dict[Any, Callable[..., Any]] = {
    torch.Tensor.bernoulli_: _bernoulli_in_place,
    torch.bernoulli: _bernoulli,
    torch.randint_like: _randint_like,
    torch.Tensor.bernoulli: _bernoulli,
    **{
        getattr(torch.Tensor, f"{kind}_"): functools.partial(_draw_in_place, kind)
        for kind in ("log_normal", "cauchy", "geometric", "random")
    },
    **{getattr(functional, f"dropout{dims}d"): functools.partial(_drop, dims, False) for dims in (1, 2, 3)},
    functional.alpha_dropout: _alpha_dropout,
    functional.feature_alpha_dropout: _feature_alpha_dropout,
    torch.alpha_dropout: functools.partial(_drop, None, True),
    torch.feature_dropout: functools.partial(_drop_channels, False),
    torch.feature_alpha_dropout: functools.partial(_drop_channels, True),
    torch.native_dropout: _native_dropout,
    functional.gumbel_softmax: _gumbel_softmax,
}
"""Maps PyTorch functions in graphs to their replacements."""
