"""Pass the workbench's options to Inductor. Thunder itself passes no options."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from workbench.compiler.interop.thread_patches import ThreadPatches, wrap_function

_INDUCTOR_OPTIONS = {"joint_graph_constant_folding": False}
"""Options that disable constant folding. In PyTorch 2.10, constant folding replaces ``x + zeros`` by ``x``, so that the
compiled function returns ``x`` itself where the caller expects a new tensor.
"""


def _compile_with_options(stock: Any, *args: Any, **kwargs: Any) -> Any:
    if _inductor.value == _AS_IT_IS:
        return args[0]
    return stock(*args, **kwargs, options=_INDUCTOR_OPTIONS)


_AS_IT_IS = "not compiled"
_inductor = ThreadPatches("options of Inductor", lambda: [wrap_function(torch, "compile", _compile_with_options)])


def inductor_options(*, compiles: bool = True) -> contextlib.AbstractContextManager[None]:
    """In this context, calls of `torch.compile` in this thread use the workbench's options for Inductor.

    The options also apply to later recompilations, for example for different strides. Thunder's `make_compiled` takes
    no options. Remove this when `make_compiled` takes options, or when the output of ``torch.compile(lambda x: x +
    torch.zeros_like(x))`` has memory of its own.

    Parameters
    ----------
    compiles : bool, optional
        If false, `torch.compile` returns the function uncompiled.
    """
    return _inductor("compiled" if compiles else _AS_IT_IS)
