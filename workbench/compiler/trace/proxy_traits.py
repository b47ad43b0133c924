"""Shape, bytes, data type and device of a tensor proxy, cached on the proxy."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, NamedTuple

from workbench.analysis.memory.allocator import allocated_bytes
from workbench.compiler.interop.thunder_api import FutureTensorProxy, TensorProxy


class Traits(NamedTuple):
    """Shape, bytes, data type and device of a proxy's tensor. Data type and device are the names that Thunder uses."""

    shape: tuple[int, ...]
    bytes: int
    dtype: str
    device: str


TRAITS = "_workbench_traits"
"""Attribute in which a proxy stores a pair: the fields from which its `Traits` were computed, and the `Traits`. The
cache saves time, because successive plans read the same proxies.
"""
_found_from = operator.itemgetter("_shape", "_dtype", "_device")
"""Function that returns the fields of a proxy from which its `Traits` are computed. Thunder's passes may replace these
fields.
"""

TOLD_APART_BY = ("_shape", "_true_dtype", "_dtype", "_device", "_requires_grad", "_distparallel_type", "_tags")
"""Attributes, other than the name, by which Thunder distinguishes tensor proxies."""


def is_tensor(proxy: Any) -> bool:
    """Return whether a proxy stands for a tensor or for a future of a tensor."""
    return isinstance(proxy, (TensorProxy, FutureTensorProxy))


def traits_of(proxy: Any) -> Traits:
    """Return the `Traits` of a proxy that stands for a tensor."""
    own = proxy.__dict__
    known: tuple[tuple[Any, ...], Traits] | None = own.get(TRAITS)
    if known is not None:
        (shape, dtype, device), found = known
        if own["_shape"] is shape and own["_dtype"] is dtype and own["_device"] is device:
            return found
    shape = tuple(map(int, proxy.shape))
    found = _traits(shape, proxy.dtype, str(proxy.device.device_str()))
    own[TRAITS] = (_found_from(own), found)
    return found


@functools.lru_cache(maxsize=1 << 14)
def _traits(shape: tuple[int, ...], dtype: Any, device: str) -> Traits:
    # Compute the bytes from the shape, because Thunder does not update the `numel` of a sharded parameter.
    return Traits(shape, math.prod(shape) * int(dtype.bytes), str(dtype).rsplit(".", 1)[-1], device)


def shape_of(proxy: Any) -> tuple[int, ...]:
    """Return the shape of a proxy, or () for a proxy without a shape."""
    if is_tensor(proxy):
        return traits_of(proxy).shape
    return tuple(int(length) for length in proxy.shape) if hasattr(proxy, "shape") else ()


def bytes_of(proxy: Any) -> int:
    """Return the bytes of the proxy's tensor, or 0 if the proxy is not a tensor."""
    return traits_of(proxy).bytes if is_tensor(proxy) else 0


def storage_bytes_of(proxy: Any) -> int:
    """Return the bytes that PyTorch's allocator takes for the proxy's tensor, or 0 if the proxy is not a tensor."""
    return allocated_bytes(bytes_of(proxy), traits_of(proxy).device.partition(":")[0]) if is_tensor(proxy) else 0
