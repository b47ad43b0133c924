"""What Thunder fails at for some inputs, registered with it again by its own means: as it is but for those.

Each says what unmodified Thunder fails at; it can go once that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.compiler.interop.thunder_api import (
    TensorProxy,
    _grad_fn_map,
    _pad_prim_impl,
    _zeros_transform,
    dtypes,
    prims,
    register_grad,
    thunder_functions,
    torch_executor,
)


def _pad(a: torch.Tensor, /, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> torch.Tensor:
    """The gradient of a slice of complex numbers pads with ``complex(0, 0)``; PyTorch takes a real number there."""
    if isinstance(padding_value, complex) and not padding_value.imag:
        padding_value = padding_value.real
    made: torch.Tensor = _pad_prim_impl(a, padding_value, padding_config)
    return made


def _zeros(*shape: Any, device: Any = None, dtype: Any = None) -> Any:
    """Without dimensions, as for the gradient of nothing, Thunder calls ``torch.zeros`` without any shape."""
    return _zeros_transform(*(shape or ((),)), device=device, dtype=dtype)


def _as_complex(a: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(a.contiguous())


def _view_as_real_grad(a: TensorProxy) -> TensorProxy:
    """A gradient lies in memory as it may; PyTorch views as complex numbers what lies in pairs."""
    made: TensorProxy = thunder_functions[torch.view_as_real](a)
    prims.put_grad(a, as_complex(prims.get_grad(made)))
    return made


def _mul_grad(a: Any, b: Any, /) -> Any:
    """Thunder's gradient of complex numbers is that of real ones; PyTorch's has the conjugates of the factors."""
    made = thunder_functions[torch.mul](a, b)
    grad = prims.get_grad(made)
    for factor, other in ((a, b), (b, a)):
        if isinstance(factor, TensorProxy):
            prims.put_grad(factor, thunder_functions[torch.mul](_conjugate(other), grad))
    return made


def _conjugate(factor: Any) -> Any:
    if not isinstance(factor, TensorProxy):
        return factor.conjugate()
    return thunder_functions[torch.conj_physical](factor) if dtypes.is_complex_dtype(factor.dtype) else factor


def _mul_grad_of(stock: Callable[..., Any]) -> Callable[..., Any]:
    def rule(a: Any, b: Any, /) -> Any:
        tensors = [factor for factor in (a, b) if isinstance(factor, TensorProxy)]
        mended = any(dtypes.is_complex_dtype(factor.dtype) for factor in tensors)
        return _mul_grad(a, b) if mended else stock(a, b)

    return rule


pad = torch_executor.register_operator("torch_pad_prim_impl", meta=prims.pad.meta, fn=_pad)
as_complex = torch_executor.register_operator(
    "as_complex", meta=thunder_functions[torch.view_as_complex].meta, fn=_as_complex
)


def mend() -> None:
    """Register all of it, for everything that Thunder compiles in this process."""
    torch_executor.register_implementation(prims.pad, pad)
    zeros = thunder_functions[torch.zeros]
    torch_executor.register_implementation(zeros, checker=lambda *args, **kwargs: True, execution_transform=_zeros)
    register_grad("torch.view_as_real", _view_as_real_grad)
    register_grad(prims.PrimIDs.MUL, _mul_grad_of(_grad_fn_map[prims.PrimIDs.MUL]))
    # No gradient goes through it, as Thunder knows of `argmax`: without a rule it refuses what is read of it.
    register_grad(prims.PrimIDs.ARGMIN, prims.argmin)
