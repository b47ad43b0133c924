"""Record PyTorch functions that Thunder lacks and that create tensors from numbers. Each call becomes one statement.

Examples are `torch.tril_indices` in recommender models, `torch.randperm`, and windows for audio. This module also draws
random values from the distributions of PyTorch's in-place methods, such as `exponential_`. None of these tensors has a
gradient. Random numbers come from PyTorch's default generator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.compiler.fastpath.own_executors import new_executor
from workbench.compiler.interop.thunder_api import (
    Symbol,
    TensorProxy,
    prims,
    to_torch_device,
    to_torch_dtype,
)
from workbench.compiler.lowering.custom_ops import proxy_of
from workbench.interop.torch_private import FakeTensorMode

NAME = "workbench_makers"
_DRAWN_INTO = ("bernoulli", "exponential", "log_normal", "cauchy", "geometric", "random")
_OF_NUMBERS = {
    function.__name__: function
    for function in (
        torch.tril_indices,
        torch.triu_indices,
        torch.logspace,
        torch.hann_window,
        torch.hamming_window,
        torch.blackman_window,
        torch.bartlett_window,
        torch.kaiser_window,
        torch.fft.fftfreq,
        torch.fft.rfftfreq,
        torch.randperm,
    )
}
_DRAWN = {"randperm", *_DRAWN_INTO}


def _fill(kind: str, shape: Sequence[int], dtype: torch.dtype, device: str, *given: float) -> torch.Tensor:
    made: torch.Tensor = getattr(torch.empty(tuple(shape), dtype=dtype, device=device), f"{kind}_")(*given)
    return made


def _meta(function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> TensorProxy:
    with FakeTensorMode():
        return proxy_of(function(*args, **kwargs))


@functools.cache
def _symbols() -> dict[str, Symbol]:
    executor = new_executor(NAME)
    functions: dict[str, Callable[..., torch.Tensor]] = {
        **_OF_NUMBERS,
        **{kind: functools.partial(_fill, kind) for kind in _DRAWN_INTO},
    }
    return {
        name: executor.register_operator(
            f"drawn_{name}" if name in _DRAWN_INTO else name,
            meta=functools.partial(_meta, function),
            fn=function,
            tags=[prims.OpTags.RANDOM_OP] if name in _DRAWN else None,
        )
        for name, function in functions.items()
    }


def find_factory_symbol(name: str) -> Symbol:
    """Return the symbol with the name `name`. A pickled trace uses this name to find the symbol in another process."""
    return _symbols()[name.removeprefix("drawn_")]


def draw_values(kind: str, like: TensorProxy, shape: Sequence[int], *given: float) -> Any:
    """Return random values as an in-place method of PyTorch would write them into a tensor.

    Parameters
    ----------
    kind : str
        Name of the method without its underscore: ``bernoulli``, ``exponential``, ``log_normal``, ``cauchy``,
        ``geometric``, ``random``.
    like : TensorProxy
        Tensor with the data type and device of the values.
    shape : sequence of int
        Shape of the values.
    *given : float
        Arguments of the method.
    """
    lengths = tuple(int(length) for length in shape)
    return _symbols()[kind](lengths, to_torch_dtype(like.dtype), str(to_torch_device(like.device)), *given)


def _make(name: str, *args: Any, **kwargs: Any) -> Any:
    if any(isinstance(arg, TensorProxy) for arg in (*args, *kwargs.values())):
        raise NotImplementedError(f"torch.{name} with a tensor as an argument")
    if kwargs.pop("generator", None) is not None:
        raise NotImplementedError(f"torch.{name} with a generator")
    if kwargs.pop("requires_grad", False) or kwargs.pop("pin_memory", False):
        raise NotImplementedError(f"torch.{name} with requires_grad or pin_memory")
    kwargs.pop("layout", None)
    return _symbols()[name](*args, **kwargs)


MAKERS: dict[Any, Callable[..., Any]] = {
    function: functools.partial(_make, name) for name, function in _OF_NUMBERS.items()
}
"""Maps PyTorch functions in graphs to their replacements."""
