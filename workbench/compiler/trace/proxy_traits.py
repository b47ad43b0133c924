"""What is read off a tensor proxy: its shape, bytes, data type and device."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, NamedTuple

from workbench.analysis.memory.allocator import allocated_bytes
from workbench.compiler.interop.thunder_api import FutureTensorProxy, TensorProxy


class Traits(NamedTuple):
    """What a tensor proxy says of its tensor; names are Thunder's."""

    shape: tuple[int, ...]
    bytes: int
    dtype: str
    device: str


TRAITS = "_workbench_traits"
"""Where a proxy has them, beside what they were found from: plan after plan asks the same proxies."""
_found_from = operator.itemgetter("_shape", "_dtype", "_device")
"""What Thunder's passes may put another in the place of."""

TOLD_APART_BY = ("_shape", "_true_dtype", "_dtype", "_device", "_requires_grad", "_distparallel_type", "_tags")
"""All of a tensor proxy by which Thunder treats it as another, but its name."""


def is_tensor(proxy: Any) -> bool:
    """Whether it stands for a tensor, one that is there or one that is waited for."""
    return isinstance(proxy, (TensorProxy, FutureTensorProxy))


def traits_of(proxy: Any) -> Traits:
    """Of what stands for a tensor."""
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
    # By the shape: a sharded parameter's `numel` is stale in Thunder.
    return Traits(shape, math.prod(shape) * int(dtype.bytes), str(dtype).rsplit(".", 1)[-1], device)


def shape_of(proxy: Any) -> tuple[int, ...]:
    """The shape; empty for what has none."""
    if is_tensor(proxy):
        return traits_of(proxy).shape
    return tuple(int(length) for length in proxy.shape) if hasattr(proxy, "shape") else ()


def bytes_of(proxy: Any) -> int:
    """Bytes of a tensor of its shape; 0 for what is no tensor."""
    return traits_of(proxy).bytes if is_tensor(proxy) else 0


def storage_bytes_of(proxy: Any) -> int:
    """Bytes in use for a storage with room for a tensor of its shape; 0 for what is no tensor."""
    return allocated_bytes(bytes_of(proxy), traits_of(proxy).device.partition(":")[0]) if is_tensor(proxy) else 0
