"""Options for Inductor that Thunder does not pass on."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from workbench.compiler.interop.thread_patches import ThreadPatches, wrapped

_INDUCTOR_OPTIONS = {"joint_graph_constant_folding": False}
"""Inductor (PyTorch 2.10) takes ``x + zeros`` for ``x`` itself, and hands its caller that very tensor for a new one."""


def _compile_with_options(stock: Any, *args: Any, **kwargs: Any) -> Any:
    if _inductor.value == _AS_IT_IS:
        return args[0]
    return stock(*args, **kwargs, options=_INDUCTOR_OPTIONS)


_AS_IT_IS = "not compiled"
_inductor = ThreadPatches("options of Inductor", lambda: [wrapped(torch, "compile", _compile_with_options)])


def inductor_options(*, compiles: bool = True) -> contextlib.AbstractContextManager[None]:
    """Inside, this thread's `torch.compile` takes our options: Thunder's `make_compiled` passes none on.

    Without `compiles` it gives the function back as it is.

    They hold for compiling again too, as for other strides. It can go when `make_compiled` takes options, or the output
    of ``torch.compile(lambda x: x + torch.zeros_like(x))`` has memory of its own.
    """
    return _inductor("compiled" if compiles else _AS_IT_IS)
