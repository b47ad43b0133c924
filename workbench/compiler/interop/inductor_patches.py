"""Pass the workbench's options to Inductor, read its code, and divide one joint graph several times.

Thunder itself passes no options.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import torch

from workbench.compiler.interop.thread_patches import PatchTarget, ThreadPatches, wrap_function
from workbench.interop.torch_private import GraphLowering, cpu_vec_isa, graph_compile

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
    "code that Inductor generates",
    lambda: [
        PatchTarget(GraphLowering, "save_output_code", _observe_code),
        wrap_function(cpu_vec_isa, "valid_vec_isa_list", lambda _: []),
    ],
)
"""In the context ``generated_code(observe)``, Inductor calls `observe` with the code that it generates.

The code uses no vectors. To learn which vectors a CPU has, Inductor would compile and load several C++ files.
"""


def _compile_again(stock: Any, state: Any, captured: Any) -> Any:
    again = _joint_graphs.value

    def compile_joint(graph: torch.fx.GraphModule, partition: Callable[..., Any]) -> Any:
        vars(state.fw_metadata).update({name: copy.copy(value) for name, value in before.items()})
        captured.graph_module, state.aot_config.partition_fn = graph, partition
        return stock(state, captured)

    # The compilation writes into this object, and Inductor reads the same object.
    before = {name: copy.copy(value) for name, value in vars(state.fw_metadata).items()}
    made = stock(state, captured)
    again(compile_joint)
    return made


_joint_graphs = ThreadPatches(
    "several divisions of a joint graph", lambda: [wrap_function(graph_compile, "aot_stage2_autograd", _compile_again)]
)


def compiled_again(
    again: Callable[[Callable[[torch.fx.GraphModule, Callable[..., Any]], Any]], None],
) -> contextlib.AbstractContextManager[None]:
    """In this context, PyTorch calls `again` after it has divided and compiled a joint graph.

    Parameters
    ----------
    again : callable
        Called with a function that divides and compiles a joint graph once more. The arguments of this function are a
        copy of the joint graph, and the partitioner.
    """
    return _joint_graphs(again)
