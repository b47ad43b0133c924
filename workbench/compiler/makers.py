"""Tensors that PyTorch makes of numbers alone, by functions that Thunder does not know: each is one statement.

Masks of pairs (`torch.tril_indices`, which recommenders take their interactions by), orders that are drawn
(`torch.randperm`), windows of sound. None has a gradient; what is drawn is drawn from PyTorch's own generator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from workbench.compiler.operators import proxy_of
from workbench.compiler.thunder_api import OperatorExecutor, Symbol, TensorProxy, prims, register_executor
from workbench.torch_api import FakeTensorMode

NAME = "workbench_makers"
_DRAWN = (torch.randperm,)
_OF_NUMBERS = (
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
    *_DRAWN,
)


def _meta(function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> TensorProxy:
    with FakeTensorMode():
        return proxy_of(function(*args, **kwargs))


@functools.cache
def symbols() -> dict[Callable[..., torch.Tensor], Symbol]:
    """By the function that each runs."""
    executor = OperatorExecutor(NAME, version="1")
    register_executor(executor)
    return {
        function: executor.register_operator(
            function.__name__,
            meta=functools.partial(_meta, function),
            fn=function,
            tags=[prims.OpTags.RANDOM_OP] if function in _DRAWN else None,
        )
        for function in _OF_NUMBERS
    }


def found(name: str) -> Symbol:
    """One of `symbols` by its name, in another process."""
    return next(symbol for symbol in symbols().values() if symbol.name == name)


def _made(function: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    if any(isinstance(arg, TensorProxy) for arg in (*args, *kwargs.values())):
        raise NotImplementedError(f"torch.{function.__name__} of a number in a tensor")
    if kwargs.pop("generator", None) is not None:
        raise NotImplementedError(f"torch.{function.__name__} with a generator")
    if kwargs.pop("requires_grad", False) or kwargs.pop("pin_memory", False):
        raise NotImplementedError(f"torch.{function.__name__} with requires_grad or pin_memory")
    kwargs.pop("layout", None)
    return symbols()[function](*args, **kwargs)


MAKERS: dict[Any, Callable[..., Any]] = {function: functools.partial(_made, function) for function in _OF_NUMBERS}
"""By the function of PyTorch that a graph calls."""
