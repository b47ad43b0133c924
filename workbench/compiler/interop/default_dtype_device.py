"""Give Thunder PyTorch's default data type and default device while Thunder traces outside of ``thunder.jit``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from workbench.compiler.interop import thunder_api


@contextlib.contextmanager
def default_settings() -> Iterator[None]:
    """In this context, Thunder's functions that create tensors can read PyTorch's default data type and device.

    Thunder sets these defaults only in calls of functions from ``thunder.jit``. Without them, a traced `torch.zeros`
    raises an error.
    """
    token = thunder_api._cache_info_ctx.set(
        {"default_dtype": torch.get_default_dtype(), "default_device": torch.get_default_device()}
    )
    try:
        yield
    finally:
        thunder_api._cache_info_ctx.reset(token)
