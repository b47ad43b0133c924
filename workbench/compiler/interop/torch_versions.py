"""Differences between the versions of PyTorch that the workbench supports.

`TORCH_VERSIONS` in `workbench/interop/private_api.py` is the supported range. docs/upgrading.md says how to adopt
another version. Code that depends on the version of PyTorch belongs in this module. When the workbench no longer
supports the oldest version, remove the code for this version here.
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from packaging.version import Version
from torch import fx

from workbench.compiler.interop.shared_context import shared_context
from workbench.interop.private_api import installed_torch
from workbench.interop.torch_private import _assert_scalar, dynamo_config

TORCH = Version(installed_torch())
"""The installed version of PyTorch."""

SETTINGS_PER_THREAD = Version("2.12.dev0") <= TORCH
"""Whether each thread has its own settings of PyTorch, for example of Dynamo and Inductor.

Since PyTorch 2.12, a new thread has the default settings, and a change of a setting applies only to the thread that
makes the change. In earlier versions, all threads have the same settings.
"""

RESETS_DETERMINISM = Version("2.11.dev0") > TORCH
"""Whether Dynamo adds calls at the end of a graph that undo `torch.use_deterministic_algorithms`.

This is so on PyTorch 2.10, and not on PyTorch 2.11 and 2.12.
"""

WIDENS_RMS_NORM = Version("2.12.dev0") <= TORCH
"""Whether autocast on CUDA computes `rms_norm` in float32: on PyTorch 2.12, not on 2.10; 2.11 was not looked at."""


def settings_context(changes: Callable[[], Iterator[None]]) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Turn a generator function that changes settings of PyTorch into a function that returns a context manager.

    Use this as a decorator, like `contextlib.contextmanager`. In the context, the changes apply at least to the current
    thread. If all threads have the same settings, the first thread to enter makes the changes, and the last thread to
    leave undoes them. Otherwise each thread makes and undoes its own changes.
    """
    return contextlib.contextmanager(changes) if SETTINGS_PER_THREAD else shared_context(changes)


def plain_function_apply(
    forward: Callable[..., Any], backward: Callable[..., Any], given: tuple[Any, ...], options: dict[str, Any]
) -> tuple[Callable[..., Any], Callable[..., Any], dict[str, Any]]:
    """Return the arguments of `torch.ops.higher_order.autograd_function_apply` as PyTorch 2.10 would record them.

    In PyTorch 2.10, forward and backward have a context as their first argument, which is always None. Later versions
    pass no context. Thunder supports both forms: it passes a context if there is an option `args_tensor_mask`. But
    Thunder does not support the option `saved_for_backward_idx` of later versions. That option only affects errors
    about tensors that are changed between forward and backward.

    Parameters
    ----------
    forward, backward : callable
        Functions on Thunder's proxies.
    given : tuple
        Inputs of the function.
    options : dict
        Keyword arguments of the call.
    """
    if "args_tensor_mask" in options:
        return forward, backward, options
    more = {name: value for name, value in options.items() if name != "saved_for_backward_idx"}
    return (
        lambda _, *args: forward(*args),
        lambda _, *args: backward(*args),
        {**more, "args_tensor_mask": [True] * len(given)},
    )


def graphs_with_code() -> contextlib.AbstractContextManager[None]:
    """In this context, a graph of Dynamo has Python code from the start, and not from its first call.

    Thunder's interpreter traces the first call of a graph, and this call would generate the code. Since PyTorch 2.12,
    the functions that generate the code take the length of ``dict.keys()``, which the interpreter does not support.
    """
    if not SETTINGS_PER_THREAD:
        return contextlib.nullcontext()
    patched: contextlib.AbstractContextManager[None] = dynamo_config.patch(use_lazy_graph_module=False)
    return patched


_BOUNDS = {(operator.ge, 0), (operator.le, 1)}


def erase_bounds_of_bools(graph: fx.Graph) -> None:
    """Erase assertions that a bool is at least 0 and at most 1 from a graph, in place.

    Since PyTorch 2.12, Dynamo adds these assertions for each bool that a program reads from a tensor. To convert the
    bool to a number, Dynamo uses the operator `torch.sym_ite`, which Thunder does not support.
    """
    for number in graph.find_nodes(op="call_function", target=torch.sym_ite):
        for bound in tuple(number.users):
            checks = tuple(bound.users)
            if (bound.target, *bound.args[1:]) in _BOUNDS and all(check.target is _assert_scalar for check in checks):
                for node in (*checks, bound):
                    graph.erase_node(node)
        if not number.users:
            graph.erase_node(number)


_FAILED = re.compile(r"\w+ when making fake tensor call\n\s*Explanation: (Dynamo failed to run FX node .*)")
_RAISED = re.compile(r"(?<=Developer debug context: raised exception )(\w+)\((?!\[)(.*)\)")
_FAKE = re.compile(r"FakeTensor\(\.\.\., size=(\(.*?\))[^()]*\)")
_UNBOUND = "failed to bind arguments when attempting to inline\n"


def dynamo_message(error: BaseException) -> str:
    """Return the message of an error of Dynamo in the words of PyTorch 2.10.

    Later versions report three errors in other words: an operator that refuses its inputs, an exception that the
    program raises, and a call with missing or unknown arguments.
    """
    message = str(error)
    message, _, frames = message.partition("\n\nfrom user code:")
    if failed := _FAILED.match(message):
        message = failed[1]
    elif message.startswith(_UNBOUND) and isinstance(cause := error.__cause__ or error.__context__, TypeError):
        message = f"Observed exception\n  Developer debug context: raised exception TypeError([{str(cause)!r}])"
    elif raised := _RAISED.search(message):
        given = _FAKE.sub(r"a tensor of shape \1", raised[2])
        message = f"{message[: raised.start()]}{raised[1]}([{given}]){message[raised.end() :]}"
    return f"{message}\n\nfrom user code:{frames}" if frames else message
