"""Inductor options that Thunder does not pass to it."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from workbench.compiler.interop.thread_patches import ThreadPatches, wrap_function

_INDUCTOR_OPTIONS = {"joint_graph_constant_folding": False}
"""Inductor (PyTorch 2.10) replaces ``x + zeros`` by ``x``, and returns ``x`` itself where the caller expects a new
tensor.
"""


def _compile_with_options(stock: Any, *args: Any, **kwargs: Any) -> Any:
    if _inductor.value == _AS_IT_IS:
        return args[0]
    return stock(*args, **kwargs, options=_INDUCTOR_OPTIONS)


_AS_IT_IS = "not compiled"
_inductor = ThreadPatches("options of Inductor", lambda: [wrap_function(torch, "compile", _compile_with_options)])


def inductor_options(*, compiles: bool = True) -> contextlib.AbstractContextManager[None]:
    """Apply our options to this thread's `torch.compile`, because Thunder's `make_compiled` passes no options.

    Without `compiles`, return the function unchanged.

    The options also apply to recompilations, such as for other strides. Remove this when `make_compiled` takes options,
    or when the output of ``torch.compile(lambda x: x + torch.zeros_like(x))`` has memory of its own.
    """
    return _inductor("compiled" if compiles else _AS_IT_IS)
