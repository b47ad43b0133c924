"""Run a program that asks for single precision in double precision instead."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from workbench.interop.torch_private import _pytree

_MIXED = (torch.float32, torch.float64)


def _writes_first(name: str) -> bool:
    """Return whether a function of this name writes into its first argument, as ``add_`` and ``__setitem__`` do."""
    return name in ("__set__", "__setitem__") or name.startswith("__i") or (name.endswith("_") and name[-2:] != "__")


class _Widen(TorchFunctionMode):
    """A mode in which a program computes with float64 where it asks for float32.

    Without it, ``labels.float()`` or a constant in float32 meets float64, and many operators refuse that.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name.startswith("_fused_"):  # its counts of steps stay in float32
            return func(*args, **(kwargs or {}))
        leaves, spec = _pytree.tree_flatten((args, kwargs or {}))
        leaves = [torch.float64 if leaf is torch.float32 else leaf for leaf in leaves]
        floating = [leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dtype in _MIXED]
        if len(set(floating)) == 2:
            wanted = floating[0] if _writes_first(name) else torch.float64
            leaves = [
                leaf.to(wanted) if isinstance(leaf, torch.Tensor) and leaf.dtype in _MIXED else leaf for leaf in leaves
            ]
        args, kwargs = _pytree.tree_unflatten(leaves, spec)
        return torch.Tensor.double(*args) if func is torch.Tensor.float else func(*args, **(kwargs or {}))


@contextlib.contextmanager
def widened() -> Iterator[None]:
    """Let PyTorch make and compute float64 tensors where the program asks for float32, inside the context."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widen():
            yield
    finally:
        torch.set_default_dtype(default)
