"""Decompose PyTorch's ``torch._foreach_*`` operators on lists of tensors into operators on single tensors.

Optimizers use these operators, and Thunder lacks them. An in-place operator becomes in-place writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.compiler.interop.thunder_api import TensorProxy, to_torch_dtype
from workbench.compiler.lowering.decompositions import lerp, minimum, rounded_once, thunder_operator, wide_of

_AS_THEY_ARE = (
    *("abs", "ceil", "cos", "erf", "exp", "floor", "log", "neg", "reciprocal", "rsqrt", "sigmoid", "sign", "sin"),
    *("sqrt", "tan", "tanh", "trunc"),
)
"""Names of operators on single tensors that have the same name in Thunder."""


def _at_least(a: Any, b: Any) -> Any:
    return (
        thunder_operator(torch.maximum)(a, b)
        if isinstance(b, TensorProxy)
        else thunder_operator(torch.clamp)(a, b, None)
    )


def _at_most(a: Any, b: Any) -> Any:
    return minimum(a, b) if isinstance(b, TensorProxy) else thunder_operator(torch.clamp)(a, None, b)


_SINGLE: dict[str, Callable[..., Any]] = {
    **{name: thunder_operator(getattr(torch, name)) for name in _AS_THEY_ARE},
    "add": lambda a, b, alpha=1: a + (b if alpha == 1 else b * alpha),
    "sub": lambda a, b, alpha=1: a - (b if alpha == 1 else b * alpha),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b,
    "addcmul": rounded_once(lambda a, b, c, value=1: a + b * value * c),
    "addcdiv": rounded_once(lambda a, b, c, value=1: a + b * value / c),
    "lerp": lerp,
    "maximum": _at_least,
    "clamp_min": _at_least,
    "minimum": _at_most,
    "clamp_max": _at_most,
    "copy": lambda a, b, non_blocking=False: b,
    "zero": lambda a: thunder_operator(torch.zeros_like)(a),
}


def _map_over_lists(single: Callable[..., Any], in_place: bool) -> Callable[..., Any]:
    def on_lists(*args: Any, **kwargs: Any) -> list[Any] | None:
        count = next(len(given) for given in args if isinstance(given, list | tuple))

        def for_each(value: Any) -> Sequence[Any]:
            # A list has one value for each tensor; any other value applies to all tensors.
            return value if isinstance(value, list | tuple) else [value] * count

        rows = list(zip(*map(for_each, args), strict=True))
        named = {key: for_each(given) for key, given in kwargs.items()}
        made = [single(*row, **{key: each[at] for key, each in named.items()}) for at, row in enumerate(rows)]
        if not in_place:
            return made
        for (written, *_), value in zip(rows, made, strict=True):
            written.copy_(value)
        return None

    return on_lists


def _norm(tensors: Sequence[Any], order: float = 2, dtype: Any = None) -> list[Any]:
    return [_norm_of(each, order, dtype) for each in tensors]


def _norm_of(a: TensorProxy, order: float, dtype: Any) -> Any:
    """Return the norm of a tensor: a real number, also for a complex tensor.

    Sum in at least float32, because squares of float16 numbers may overflow.
    """
    kind = to_torch_dtype(a.dtype)
    size = thunder_operator(torch.abs)(a.to(wide_of(kind)))
    made = thunder_operator(torch.linalg.vector_norm)(size, order)
    return made.to((dtype or kind).to_real())


FOREACH: dict[Any, Callable[..., Any]] = {
    function: _map_over_lists(single, bool(ending))
    for name, single in _SINGLE.items()
    for ending in ("", "_")
    if (function := getattr(torch, f"_foreach_{name}{ending}", None)) is not None
} | {getattr(torch, "_foreach_norm"): _norm}  # noqa: B009  # private, like all of these
"""Maps PyTorch functions in graphs to their replacements."""
