"""Fixes for Thunder operators that fail, or compute wrong gradients, for some inputs. Other inputs are unaffected.

The fixes are active only while the workbench traces, plans or compiles. The docstring or comment of each fix says how
unmodified Thunder fails. A fix can be deleted once Thunder no longer fails in this way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from workbench.compiler.fastpath.own_executors import register_grad
from workbench.compiler.interop.thread_patches import PatchTarget, ThreadPatches
from workbench.compiler.interop.thunder_api import (
    ImplInfo,
    OperatorExecutor,
    Symbol,
    TensorProxy,
    _grad_fn_map,
    _pad_prim_impl,
    _zeros_transform,
    dtypes,
    prims,
    thunder_functions,
    torch_executor,
)


def _pad(a: torch.Tensor, /, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> torch.Tensor:
    """Replace a complex padding value by its real part if its imaginary part is zero.

    Thunder's gradient of a complex slice pads with ``0j``, which PyTorch refuses.
    """
    if isinstance(padding_value, complex) and not padding_value.imag:
        padding_value = padding_value.real
    made: torch.Tensor = _pad_prim_impl(a, padding_value, padding_config)
    return made


def _zeros(*shape: Any, device: Any = None, dtype: Any = None) -> Any:
    """Call ``torch.zeros`` with the shape () for a zero-dimensional tensor. Thunder calls it without a shape.

    Thunder makes such a tensor, for example, as the gradient of a value that nothing reads.
    """
    return _zeros_transform(*(shape or ((),)), device=device, dtype=dtype)


def _as_complex(a: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(a.contiguous())


def _view_as_real_grad(a: TensorProxy) -> TensorProxy:
    """Make the gradient contiguous before it is viewed as complex numbers.

    Thunder views the gradient as it is. PyTorch refuses this view if the two parts of a complex number are not adjacent
    in memory.
    """
    made: TensorProxy = thunder_functions[torch.view_as_real](a)
    prims.put_grad(a, as_complex(prims.get_grad(made)))
    return made


def _mul_grad(a: Any, b: Any, /) -> Any:
    """Multiply the gradient by the conjugate of the other factor, as PyTorch does.

    Thunder uses the gradient rule of real products.
    """
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


def _operator(name: str, meta: Callable[..., Any], fn: Callable[..., Any]) -> Any:
    """Return a new symbol of Thunder's PyTorch executor, without a registration in this executor."""
    made = OperatorExecutor(torch_executor.name).register_operator(name, meta=meta, fn=fn)
    return dataclasses.replace(made, executor=torch_executor)


pad = _operator("torch_pad_prim_impl", prims.pad.meta, _pad)
as_complex = _operator("as_complex", thunder_functions[torch.view_as_complex].meta, _as_complex)


def find_fixed_symbol(name: str) -> Any:
    """Return the symbol with the name `name`. A pickled trace uses this name to find the symbol in another process."""
    return {"torch_pad_prim_impl": pad, "as_complex": as_complex}[name]


SYMBOLS = (pad, as_complex)


class _Implementation(ImplInfo):
    """Thunder's PyTorch implementation of an operator. Some attributes differ in threads with active patches.

    Parameters
    ----------
    stock : ImplInfo
        Thunder's implementation. It has all attributes that `ours` does not replace.
    ours : mapping
        The attributes that differ, by name.
    patches : ThreadPatches
    """

    def __init__(self, stock: Any, ours: Mapping[str, Any], patches: ThreadPatches) -> None:
        self._stock, self._ours, self._here = stock, ours, patches.here

    def _current(self, name: str) -> Any:
        if self._here.value is not None and name in self._ours:
            return self._ours[name]
        return getattr(self._stock, name)

    symbol = property(lambda self: self._current("symbol"))
    checker = property(lambda self: self._current("checker"))
    execution_transform = property(lambda self: self._current("execution_transform"))
    grad_transform = property(lambda self: self._current("grad_transform"))


def _implementation(operation: Any, **ours: Any) -> PatchTarget:
    key = operation.id if isinstance(operation, Symbol) else operation
    return PatchTarget(torch_executor.implmap, key, lambda stock, patches: _Implementation(stock, ours, patches))


def _mul(a: Any, b: Any, /) -> Any:
    complex_numbers = any(isinstance(f, TensorProxy) and dtypes.is_complex_dtype(f.dtype) for f in (a, b))
    return _mul_grad(a, b) if complex_numbers else _stock_mul(a, b)


_stock_mul = _grad_fn_map[prims.PrimIDs.MUL]

register_grad("torch.view_as_real", _view_as_real_grad)
register_grad(prims.PrimIDs.MUL, _mul)
# Give `argmin` no gradient, as Thunder does for `argmax`. Without this rule, Thunder refuses to differentiate a program
# that reads the result of `argmin`.
register_grad(prims.PrimIDs.ARGMIN, prims.argmin)

PATCHES: tuple[PatchTarget, ...] = (
    _implementation(prims.PrimIDs.PAD, symbol=pad),
    _implementation(thunder_functions[torch.zeros], execution_transform=_zeros),
)
