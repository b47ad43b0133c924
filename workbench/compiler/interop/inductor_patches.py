"""Pass the workbench's options to Inductor, and read the code that it generates. Thunder itself passes no options."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from workbench.compiler.interop.thread_patches import PatchTarget, ThreadPatches, wrap_function
from workbench.interop.torch_private import GraphLowering

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


def _observe_code(stock: Any, patches: ThreadPatches) -> Any:
    def observe(text: str) -> None:
        if stock is not None:
            stock(text)
        if patches.value is not None:
            patches.value(text)

    return observe


generated_code = ThreadPatches(
    "code that Inductor generates", lambda: [PatchTarget(GraphLowering, "save_output_code", _observe_code)]
)
"""In the context ``generated_code(observe)``, Inductor calls `observe` with the code that it generates."""
