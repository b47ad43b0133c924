"""What PyTorch's functions that make tensors ask for where no type or device is given, as Thunder notes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from workbench.compiler.interop import thunder_api


@contextlib.contextmanager
def default_settings() -> Iterator[None]:
    """Inside, Thunder's functions find the defaults as they do while it compiles; outside of that they would fail."""
    token = thunder_api._cache_info_ctx.set(
        {"default_dtype": torch.get_default_dtype(), "default_device": torch.get_default_device()}
    )
    try:
        yield
    finally:
        thunder_api._cache_info_ctx.reset(token)
