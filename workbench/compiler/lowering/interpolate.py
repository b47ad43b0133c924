"""Decompose `torch.nn.functional.interpolate` into operators that Thunder supports.

The decomposition selects the input elements of each output position, and sums them with weights.

Thunder's own operator is used if its result equals PyTorch's. Thunder's operator selects wrong elements in three cases:

- With ``nearest``, if neither the input length nor the output length is a multiple of the other.
- With ``nearest-exact``, if the output length is not a multiple of the input length. Thunder selects the first element
  of each group instead of the middle element.
- With a scale factor that gives a fractional length.

Thunder computes the output length from the ratio of output and input length, so that rounding may give a wrong length.

Thunder lacks `align_corners`, `antialias`, `recompute_scale_factor`, and all modes except ``nearest``,
``nearest-exact`` and ``bilinear``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from workbench.compiler.interop.thunder_api import TensorProxy, dtypes, to_torch_dtype
from workbench.compiler.lowering.decompositions import thunder_operator, wide_of

_NAMES = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor", "antialias")
_NEAREST = ("nearest", "nearest-exact")
_LINEAR = ("linear", "bilinear", "trilinear")
_AREA: dict[int, Callable[..., Any]] = {
    1: functional.adaptive_avg_pool1d,
    2: functional.adaptive_avg_pool2d,
    3: functional.adaptive_avg_pool3d,
}


def interpolate(a: TensorProxy, *args: Any, **kwargs: Any) -> Any:
    """Replace `torch.nn.functional.interpolate`."""
    given = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
    mode = given.get("mode", "nearest")
    sizes, scales = _target(a, given)
    if not a.numel:  # Thunder refuses an empty batch
        return a.reshape(*a.shape[:2], *sizes)
    if mode not in _NEAREST and not dtypes.is_inexact_dtype(a.dtype):
        raise NotImplementedError("PyTorch interpolates whole numbers with rounded weights")
    if given.get("antialias"):
        return _smooth(a, mode, sizes, scales, bool(given.get("align_corners")))
    if _is_right(a, sizes, scales, mode, given.get("align_corners")):
        return thunder_operator(functional.interpolate)(a, sizes, None, mode)
    if mode == "area":
        pool = thunder_operator(_AREA[len(sizes)])
        if pool is None:
            raise NotImplementedError(f"interpolate by areas in {len(sizes)} dimensions")
        return pool(a, sizes)
    if mode in _NEAREST:
        for dim in range(a.ndim - 1, 1, -1):
            a = _nearest(a, dim, sizes[dim - 2], scales[dim - 2], exact=mode == "nearest-exact")
        return a
    if mode not in (*_LINEAR, "bicubic"):
        raise NotImplementedError(f"interpolate with mode={mode!r}")
    kind = to_torch_dtype(a.dtype)
    made = a.to(wide_of(kind))
    for dim in range(a.ndim - 1, 1, -1):
        place = _positions(made, dim, sizes[dim - 2], scales[dim - 2], bool(given.get("align_corners")))
        made = _linear(made, dim, place) if mode in _LINEAR else _cubic(made, dim, place)
    return made.to(kind)


def _smooth(
    a: TensorProxy, mode: str, sizes: Sequence[int], scales: Sequence[float | None], align_corners: bool
) -> TensorProxy:
    """Interpolate with `antialias`: each output element is a weighted mean of all input elements around its position.

    The weights reach further if the output is smaller than the input.
    """
    kind = to_torch_dtype(a.dtype)
    made = a.to(wide_of(kind))
    for dim in range(a.ndim - 1, 1, -1):
        length, size = int(a.shape[dim]), sizes[dim - 2]
        if align_corners:
            step = (length - 1) / (size - 1) if size > 1 else 0.0
        else:
            step = _step(length, size, scales[dim - 2])
        weights = _shares(made, length, size, step, cubic=mode == "bicubic")
        turned = made.transpose(dim, -1)
        made = thunder_operator(torch.matmul)(turned, weights.transpose(0, 1)).transpose(dim, -1)
    return made.to(kind)


def _shares(a: TensorProxy, length: int, size: int, step: float, *, cubic: bool) -> TensorProxy:
    """Return a matrix (size, length) with the weight of each input element in each output element."""
    arange, where = thunder_operator(torch.arange), thunder_operator(torch.where)
    wide = to_torch_dtype(a.dtype)
    reach = (2.0 if cubic else 1.0) * max(step, 1.0)
    middle = (arange(size, device=a.device, dtype=wide).unsqueeze(1) + 0.5) * step
    place = arange(length, device=a.device, dtype=wide)
    first, end = (((middle + to) + 0.5).to(torch.int64) for to in (-reach, reach))
    x = ((place - middle + 0.5) * (1.0 / max(step, 1.0))).abs()
    if cubic:
        weight = where(x < 1.0, _near_weight(x, _SMOOTH), where(x < 2.0, _far_weight(x, _SMOOTH), 0.0))
    else:
        weight = where(x < 1.0, 1.0 - x, 0.0)
    weight = where((place >= first) & (place < end), weight, 0.0)
    shares: TensorProxy = weight / weight.sum(1, keepdim=True)
    return shares


def is_thunders(a: TensorProxy, *args: Any, **kwargs: Any) -> bool:
    """Return whether the result of Thunder's own operator equals PyTorch's, for a call that Thunder accepts.

    Parameters
    ----------
    a : TensorProxy
        (batch, channels, one to three dimensions of positions)
    *args, **kwargs
        Arguments of `torch.nn.functional.interpolate`.
    """
    given = {**dict(zip(_NAMES, args, strict=False)), **kwargs}
    sizes, scales = _target(a, given)
    return _is_right(a, sizes, scales, given.get("mode", "nearest"), given.get("align_corners"))


def _target(a: TensorProxy, options: dict[str, Any]) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Return the output length and the scale factor of each dimension. A factor of None means the ratio of lengths."""
    lengths = [int(length) for length in a.shape[2:]]
    size: Any = options.get("size")
    if size is not None:
        sizes = (size,) * len(lengths) if isinstance(size, int) else tuple(size)
        return tuple(map(int, sizes)), (None,) * len(lengths)
    scale: Any = options["scale_factor"]
    each = tuple(map(float, scale)) if isinstance(scale, Sequence) else (float(scale),) * len(lengths)
    sizes = tuple(math.floor(length * factor) for length, factor in zip(lengths, each, strict=True))
    return sizes, (None,) * len(lengths) if options.get("recompute_scale_factor") else each


def _is_right(
    a: TensorProxy, sizes: Sequence[int], scales: Sequence[float | None], mode: str, align_corners: bool | None
) -> bool:
    for length, size, scale in zip(map(int, a.shape[2:]), sizes, scales, strict=True):
        # Thunder computes the output length from the ratio of the lengths. Rounding may give a different length.
        if size < 1 or int(size / length * length) != size or (scale is not None and length * scale != size):
            return False
        if mode in _NEAREST and size % length and (mode == "nearest-exact" or length % size):
            return False
    return mode in _NEAREST or (mode == "bilinear" and a.ndim == 4 and not align_corners)


def _nearest(a: TensorProxy, dim: int, size: int, scale: float | None, *, exact: bool) -> TensorProxy:
    length = int(a.shape[dim])
    if a.ndim == 4 and not exact and size in (length, 2 * length):
        scale = None  # PyTorch ignores the scale factor for images with these lengths
    if size == length and scale is None:
        return a
    # PyTorch computes positions in float32 for all data types. Do the same, so that the selected elements are equal.
    place = thunder_operator(torch.arange)(size, device=a.device, dtype=torch.float32)
    return _take(a, dim, ((place + 0.5 if exact else place) * _step(length, size, scale)).to(torch.int64))


def _step(length: int, size: int, scale: float | None) -> float:
    return length / size if scale is None else 1.0 / scale


def _positions(a: TensorProxy, dim: int, size: int, scale: float | None, align_corners: bool) -> TensorProxy:
    """Return the fractional input position of each output element, with the shape (size,)."""
    length = int(a.shape[dim])
    place = thunder_operator(torch.arange)(size, device=a.device, dtype=to_torch_dtype(a.dtype))
    if align_corners:
        corner: TensorProxy = place * ((length - 1) / (size - 1) if size > 1 else 0.0)
        return corner
    middle: TensorProxy = (place + 0.5) * _step(length, size, scale) - 0.5
    return middle


def _take(a: TensorProxy, dim: int, position: TensorProxy) -> TensorProxy:
    made: TensorProxy = thunder_operator(torch.index_select)(a, dim, position.clamp(0, int(a.shape[dim]) - 1))
    return made


def _reshape_along(weight: TensorProxy, a: TensorProxy, dim: int) -> TensorProxy:
    """Reshape a vector with one weight per position so that it broadcasts along `dim`."""
    return weight.reshape([-1 if axis == dim else 1 for axis in range(a.ndim)])


def _linear(a: TensorProxy, dim: int, position: TensorProxy) -> TensorProxy:
    position = position.clamp(0, int(a.shape[dim]) - 1)
    before = thunder_operator(torch.floor)(position)
    weight, first = _reshape_along(position - before, a, dim), before.to(torch.int64)
    return _take(a, dim, first) * (1 - weight) + _take(a, dim, first + 1) * weight


def _cubic(a: TensorProxy, dim: int, position: TensorProxy) -> TensorProxy:
    before = thunder_operator(torch.floor)(position)
    t, first = position - before, before.to(torch.int64)
    weights = (_far_weight(t + 1), _near_weight(t), _near_weight(1 - t), _far_weight(2 - t))
    made = [_take(a, dim, first + at) * _reshape_along(weight, a, dim) for at, weight in enumerate(weights, -1)]
    return made[0] + made[1] + made[2] + made[3]


_BEND = -0.75
"""Coefficient of PyTorch's cubic convolution."""

_SMOOTH = -0.5
"""Coefficient of PyTorch's cubic convolution with `antialias`."""


def _near_weight(x: TensorProxy, bend: float = _BEND) -> TensorProxy:
    """Return the weight of an element at most one position away."""
    return ((bend + 2) * x - (bend + 3)) * x * x + 1


def _far_weight(x: TensorProxy, bend: float = _BEND) -> TensorProxy:
    """Return the weight of an element between one and two positions away."""
    return ((bend * x - 5 * bend) * x + 8 * bend) * x - 4 * bend
