"""What Thunder fails at for some inputs, registered with it again by its own means: as it is but for those.

Each says what unmodified Thunder fails at; it can go once that runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from workbench.compiler.thunder_api import (
    TensorProxy,
    _pad_prim_impl,
    _zeros_transform,
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
    # No gradient goes through it, as Thunder knows of `argmax`: without a rule it refuses what is read of it.
    register_grad(prims.PrimIDs.ARGMIN, prims.argmin)
