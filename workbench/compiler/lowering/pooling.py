"""Decompose pooling operators into pooling operators that Thunder supports; see `lowering.overrides`.

Thunder refuses `ceil_mode` and `count_include_pad=False`, even if these have no effect. Thunder's `max_pool1d`
multiplies the elements outside a window by zero, so infinities, also those of the padding, give NaN. It also splits the
gradient among equal elements, while PyTorch gives the whole gradient to the first of these elements. Thunder's gradient
of `max_pool3d` needs an explicit stride.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from workbench.compiler.interop.thunder_api import TensorProxy
from workbench.compiler.lowering.decompositions import thunder_operator

_AVERAGED = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_LARGEST = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")


def _per_dimension(value: Any, dims: int) -> tuple[int, ...]:
    return (value,) * dims if isinstance(value, int) else tuple(value) * (dims // len(value))


def _beyond(length: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Return by how many elements the last window of `ceil_mode` extends past the padding.

    A window that would start in the padding at the end does not count.
    """
    reach = dilation * (kernel - 1) + 1
    last = -(-(length + 2 * padding - reach) // stride)
    if last * stride >= length + padding:
        last -= 1
    return max(0, last * stride + reach - 2 * padding - length)


def _max_pool(function: Callable[..., Any], dims: int, a: TensorProxy, *args: Any, **kwargs: Any) -> Any:
    given = {**dict(zip(_LARGEST, args, strict=False)), **kwargs}
    kernel = _per_dimension(given["kernel_size"], dims)
    stride = _per_dimension(given.get("stride") or kernel, dims)
    padding, dilation = (
        _per_dimension(given.get(name, start), dims) for name, start in (("padding", 0), ("dilation", 1))
    )
    if given.pop("return_indices", False):
        given["stride"] = stride
        return thunder_operator(getattr(functional, f"max_pool{dims}d_with_indices"))(a, **given)
    if given.get("ceil_mode"):
        lengths = map(int, a.shape[-dims:])
        beyond = tuple(map(_beyond, lengths, kernel, stride, padding, dilation))
        given["ceil_mode"] = False
        if any(beyond):
            behind = [size for more in reversed(beyond) for size in (0, more)]
            a = thunder_operator(functional.pad)(a, tuple(behind), "constant", -float("inf"))
    if dims == 1:
        rows = thunder_operator(functional.max_pool2d)
        return rows(a.unsqueeze(-2), (1, *kernel), (1, *stride), (0, *padding), (1, *dilation)).squeeze(-2)
    if dims == 3:
        given["stride"] = stride
    return thunder_operator(function)(a, **given)


def _average_pool(function: Callable[..., Any], dims: int, a: TensorProxy, *args: Any, **kwargs: Any) -> Any:
    given = {**dict(zip(_AVERAGED, args, strict=False)), **kwargs}
    kernel = _per_dimension(given["kernel_size"], dims)
    stride = _per_dimension(given.get("stride") or kernel, dims)
    padding = _per_dimension(given.get("padding", 0), dims)
    lengths = tuple(map(int, a.shape[-dims:]))
    ceil_mode, override = given.pop("ceil_mode", False), given.get("divisor_override")
    beyond = tuple(map(_beyond, lengths, kernel, stride, padding, (1,) * dims)) if ceil_mode else (0,) * dims
    inside = not given.pop("count_include_pad", True) and any(padding)
    if not any(beyond) and (override or not inside):
        return thunder_operator(function)(a, **given)
    around = [size for p, more in zip(reversed(padding), reversed(beyond), strict=True) for size in (p, p + more)]
    made = thunder_operator(function)(
        thunder_operator(functional.pad)(a, tuple(around), "constant", 0.0), kernel, stride
    )
    for axis, (length, k, s, p) in enumerate(zip(lengths, kernel, stride, padding, strict=True)):
        at = a.ndim - dims + axis
        if override:
            made = made * k
            continue
        # Count the elements of each window. If `inside`, do not count the padding.
        first, end = (0, length) if inside else (-p, length + p)
        start = thunder_operator(torch.arange)(int(made.shape[at]), device=a.device) * s - p
        count = (start + k).clamp(max=end) - start.clamp(min=first)
        made = made * (k / count.reshape([-1 if dim == at else 1 for dim in range(a.ndim)]))
    return (made / override if override else made).to(a.dtype)


POOLS: dict[Any, Callable[..., Any]] = {
    function: functools.partial(pool, known, dims)
    for pool, names in ((_max_pool, "max_pool"), (_average_pool, "avg_pool"))
    for dims in (1, 2, 3)
    for known in (getattr(functional, f"{names}{dims}d"),)
    for function in (known, getattr(torch, f"{names}{dims}d", known))
}
"""Maps PyTorch functions in graphs to their replacements."""
