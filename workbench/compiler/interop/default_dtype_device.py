"""Default type and device of PyTorch's functions that make tensors, in the form that Thunder records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from workbench.compiler.interop import thunder_api


@contextlib.contextmanager
def default_settings() -> Iterator[None]:
    """Set the default data type and device where Thunder's functions read them; otherwise these functions fail."""
    token = thunder_api._cache_info_ctx.set(
        {"default_dtype": torch.get_default_dtype(), "default_device": torch.get_default_device()}
    )
    try:
        yield
    finally:
        thunder_api._cache_info_ctx.reset(token)
