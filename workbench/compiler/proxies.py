"""What is read off a tensor proxy: its shape and its bytes."""

from __future__ import annotations

import math
from typing import Any

from workbench.compiler.thunder_api import FutureTensorProxy, TensorProxy


def is_tensor(proxy: Any) -> bool:
    """Whether it stands for a tensor, one that is there or one that is waited for."""
    return isinstance(proxy, (TensorProxy, FutureTensorProxy))


def shape_of(proxy: Any) -> tuple[int, ...]:
    """The shape; empty for what has none."""
    return tuple(int(length) for length in proxy.shape) if hasattr(proxy, "shape") else ()


def bytes_of(proxy: Any) -> int:
    """Bytes of a tensor of its shape; 0 for what is no tensor."""
    # By the shape: a sharded parameter's `numel` is stale in Thunder.
    return math.prod(shape_of(proxy)) * int(proxy.dtype.bytes) if is_tensor(proxy) else 0
