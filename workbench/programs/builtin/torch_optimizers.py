"""`torch_adam`, `torch_sgd`: one step of PyTorch's own optimizers, as Dynamo captures it for ThunderFX.

Dynamo makes each parameter and each state tensor an attribute of its graph. Here they become arguments, so that the
step is a function that writes into its arguments. No program has `foreach=True`, because Inductor would then compile
the whole step.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from workbench.interop.torch_private import _disable_current_modes, _len_torch_function_stack, _pop_mode_temporarily
from workbench.programs.registry import at_least, program

CAPTURES = 10_000
"""Raised limit on Dynamo's captures of one function. Beyond its limit, Dynamo silently runs the function uncompiled."""


def _capture(cls: Any, parameters: int, hyper: dict[str, float]) -> tuple[fx.Graph, list[str]]:
    """Return the graph of one step, and the names of its placeholders.

    The placeholders are, for each parameter in turn: the parameter, its gradient, and its state.
    """
    # Import Dynamo here, because its import takes seconds, and importing this file must be fast.
    from workbench.interop.torch_private import dynamo_config as config

    graphs: list[fx.GraphModule] = []

    def keep(module: fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    tensors = [torch.zeros(2, 2, requires_grad=True) for _ in range(parameters)]
    for tensor in tensors:
        tensor.grad = torch.zeros(2, 2)
    optimizer = cls(tensors, foreach=False, **hyper)
    # The first step creates the optimizer's state, because the state is an argument of the captured function. Then
    # capture only the function `step` itself, without the wrappers that add a profiler hook and disable gradients.
    optimizer.step()
    step = _copy_function(inspect.unwrap(type(optimizer).step))
    # With `specialize_float`, Dynamo records each learning rate as a number. Without it, Dynamo would make the second
    # learning rate an input.
    limits = config.patch(recompile_limit=CAPTURES, accumulated_recompile_limit=CAPTURES, specialize_float=True)
    with limits, torch.no_grad():
        compiled: Callable[..., Any] = torch.compile(step, backend=keep, dynamic=False, fullgraph=True)
        compiled(optimizer)
    (module,) = graphs

    names: dict[int, str] = {}
    for i, tensor in enumerate(tensors):
        names[id(tensor)] = f"param_{i}"
        names[id(tensor.grad)] = f"grad_{i}"
        names.update({id(value): f"{state}_{i}" for state, value in optimizer.state[tensor].items()})
    graph = fx.Graph()
    placeholders: dict[str, fx.Node] = {name: graph.placeholder(name) for name in names.values()}
    copied: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            copied[node] = placeholders[names[id(getattr(module, node.target))]]
        elif node.op == "placeholder":
            copied[node] = placeholders[f"grad_{_index(node.name)}"]
        else:
            copied[node] = graph.node_copy(node, lambda n: copied[n])
    return graph, list(placeholders)


def _copy_function(function: Any) -> Any:
    """Return a copy of a function with its own code object, because Dynamo never retries code that it gave up on."""
    return types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def _index(name: str) -> int:
    """Return the number of the parameter in a Dynamo placeholder: 3 for ``l_self_param_groups_0_params_3_grad_``."""
    return int(name.partition("params_")[2].partition("_")[0])


@contextlib.contextmanager
def _disable_modes() -> Iterator[None]:
    """Context that disables the default device and fake tensors, which are active while a factory is called."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        for _ in range(_len_torch_function_stack()):
            stack.enter_context(_pop_mode_temporarily())
        yield


@functools.cache
def _step(cls: Any, parameters: int, hyper: tuple[tuple[str, float], ...]) -> Any:
    # Dynamo needs real tensors. Under a default device it records `1 - x` as `rsub`, which nvFuser does not fuse.
    with _disable_modes():
        graph, names = _capture(cls, parameters, dict(hyper))
    return type(fx.GraphModule(torch.nn.Module(), graph, cls.__name__)).forward, names


def _program(
    cls: Callable[..., torch.optim.Optimizer], parameters: int, size: int, **hyper: float
) -> tuple[Callable[..., None], tuple[Tensor, ...]]:
    at_least(1, parameters=parameters, size=size)
    forward, names = _step(cls, parameters, tuple(hyper.items()))

    def step(*tensors: Tensor) -> None:
        with torch.no_grad():
            forward(None, *tensors)

    made = []
    for name in names:
        if name.startswith("step_"):
            made.append(torch.zeros(()))
        elif name.startswith(("param_", "grad_")):
            made.append(torch.randn(size, size))
        else:
            made.append(torch.zeros(size, size))
    return step, tuple(made)


@program
def torch_adam(
    *, parameters: int = 2, size: int = 64, lr: float = 1e-3
) -> tuple[Callable[..., None], tuple[Tensor, ...]]:
    """One step of torch.optim.Adam with foreach=False, as Dynamo captures it."""
    return _program(torch.optim.Adam, parameters, size, lr=lr)


@program
def torch_sgd(
    *, parameters: int = 2, size: int = 64, lr: float = 1e-2, momentum: float = 0.9
) -> tuple[Callable[..., None], tuple[Tensor, ...]]:
    """One step of torch.optim.SGD with momentum and foreach=False, as Dynamo captures it."""
    return _program(torch.optim.SGD, parameters, size, lr=lr, momentum=momentum)
