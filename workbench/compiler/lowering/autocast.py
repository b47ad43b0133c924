"""CPU autocast for operators that are in PyTorch's autocast lists, but have no autocast rule in Thunder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from workbench.compiler.interop.thunder_api import TensorProxy, compile_data, to_torch_dtype
from workbench.interop.torch_private import _pytree as pytree

_WIDE = frozenset(
    (
        *(getattr(functional, name) for name in ("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss")),
        *(getattr(functional, name) for name in ("huber_loss", "kl_div", "binary_cross_entropy_with_logits")),
        *(getattr(functional, name) for name in ("binary_cross_entropy", "soft_margin_loss")),
        torch.prod,
        torch.Tensor.prod,
        torch.cdist,
    )
)
"""Operators that autocast computes in float32."""
_NARROW = frozenset((torch.addmm, torch.baddbmm, torch.addbmm))
"""Operators that autocast computes in the data type that the program chose, such as bfloat16."""
_HALVES = (torch.bfloat16, torch.float16)


def cast(target: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the positional and keyword arguments of a call, with tensors cast as PyTorch's CPU autocast casts them.

    Parameters
    ----------
    target : callable
        PyTorch's function.
    args, kwargs
        Arguments of the call. Tensors are Thunder's proxies.
    """
    if target not in _WIDE and target not in _NARROW:
        return args, kwargs
    # Thunder has compile data only while it traces or compiles a program.
    data, _ = compile_data._compile_data.get()
    kind = None if data is None else data.autocast_stack.get_dtype_for_device_if_enabled("cpu")
    if kind is None:
        return args, kwargs
    known, wanted = (_HALVES, torch.float32) if target in _WIDE else ((*_HALVES, torch.float32), to_torch_dtype(kind))

    def cast_value(value: Any) -> Any:
        on_cpu = isinstance(value, TensorProxy) and value.device.type == "cpu"
        return value.to(wanted) if on_cpu and to_torch_dtype(value.dtype) in known else value

    return pytree.tree_map(cast_value, (args, kwargs))
