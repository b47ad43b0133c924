"""Record each operator of a library other than PyTorch as one statement, with the gradient that the library registered.

An operator from `torch.library.custom_op` can have a function `setup_context`, which stores values for the gradient.
Thunder's `_register_custom_op` reads the source code of this function, and misses each value that `save_for_backward`
does not save. This module calls `setup_context` in the backward, just before the gradient. PyTorch calls this function
after the forward. While the trace is recorded, a call with fake tensors shows which inputs and results the function
stores. The backward takes only the stored tensors. Zeros of the same shape replace all other inputs and results, so
that the replaced tensors need not stay alive until the backward.

For an operator that is registered in another way, such as torchvision's compiled operators, only PyTorch knows the
gradient. The backward calls the operator again, and PyTorch differentiates this call.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from workbench.compiler.fastpath.own_executors import new_executor, register_grad
from workbench.compiler.interop.thunder_api import (
    Proxy,
    ProxyTag,
    Symbol,
    TensorProxy,
    devices,
    dtypes,
    get_tracectx,
    prims,
    to_torch_device,
    to_torch_dtype,
)
from workbench.errors import ProgramError
from workbench.interop.torch_private import (
    OPDEFS,
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    OpOverloadPacket,
    _current_graph_task_id,
)
from workbench.interop.torch_private import _pytree as pytree
from workbench.programs.placement import random_states

NAME = "workbench_operators"
_PYTORCHS = frozenset({
    "aten", "prim", "prims", "higher_order", "quantized", "quantization", "_quantized", "sparse", "mkl", "mkldnn",
    "mkldnn_prepacked", "onednn", "xnnpack", "prepacked", "inductor", "_inductor_test", "c10d", "c10d_functional",
    "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "fsdp", "symm_mem", "streams", "rngprims",
    "debugprims", "debug_mode_ops", "export", "profiler", "static_runtime", "onnx", "onnx_symbolic", "flex_lib",
    "_test",
})  # fmt: skip
"""Libraries that come with PyTorch. Their operators do not become statements here, even if Thunder lacks them."""

_DESCRIBED = re.compile(r"like (\S+) (\w+)\[([\d, ]*)\]")


@dataclasses.dataclass(frozen=True)
class _OperatorDefinition:
    """An operator and the functions of its gradient.

    Attributes
    ----------
    overload : OpOverload
    set_up : callable or None
        The function `setup_context`, which stores values for the gradient in an autograd context.
    gradient : callable or None
        Function of the context and the gradients of the results. It returns the gradients of the inputs.
    """

    overload: OpOverload
    set_up: Callable[..., Any] | None
    gradient: Callable[..., Any] | None


def _definition(name: str) -> _OperatorDefinition:
    defined = OPDEFS.get(name)
    if defined is not None:
        return _OperatorDefinition(defined._opoverload, defined._setup_context_fn, defined._backward_fn)
    library, _, own = name.partition("::")
    overload = getattr(getattr(torch.ops, library), own).default
    return _OperatorDefinition(overload, _keep_inputs, functools.partial(_rerun_for_gradients, overload))


def _keep_inputs(ctx: Any, inputs: Any, output: Any, keyword_only_inputs: Any = None) -> None:
    del output
    ctx.inputs, ctx.named = inputs, keyword_only_inputs or {}


def _rerun_for_gradients(overload: OpOverload, ctx: Any, *grads: Any) -> tuple[Any, ...]:
    """Call an operator again under autograd, and return the gradient of each input (None if it has no gradient)."""

    def fresh(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().requires_grad_(_is_inexact(leaf))

    given = pytree.tree_map(fresh, tuple(ctx.inputs))
    with torch.enable_grad():
        made = _run_again(overload, given, ctx.named)
    outputs = made if isinstance(made, tuple) else (made,)
    pairs = [(out, grad) for out, grad in zip(outputs, grads, strict=True) if out.requires_grad]
    wanted = [leaf for leaf in _tensors(given) if leaf.requires_grad]
    if not pairs or not wanted:
        return tuple(pytree.tree_map(lambda _: None, given))
    found = torch.autograd.grad(
        [out for out, _ in pairs], wanted, [grad for _, grad in pairs], allow_unused=True, materialize_grads=True
    )
    left = iter(found)

    def gradient_of(leaf: Any) -> Any:
        return (next(left) if leaf.requires_grad else None) if isinstance(leaf, torch.Tensor) else None

    return tuple(pytree.tree_map(gradient_of, given))


def qualified_name(target: Any) -> str:
    """Return the name ``library::name`` of an operator of a library other than PyTorch, and "" for other targets."""
    if isinstance(target, OpOverloadPacket):
        target = getattr(target, "default", None)
    if not isinstance(target, OpOverload):
        return ""
    name = str(target._schema.name)
    defined = OPDEFS.get(name)
    if defined is None:
        its_own = name.partition("::")[0] in _PYTORCHS
        return "" if its_own or target._schema.overload_name else name
    if defined._opoverload is not target:
        return ""
    # Leave out the operators that PyTorch itself defines. Thunder knows the functions that call them.
    return "" if defined._init_fn.__module__.partition(".")[0] == "torch" else name


def operator_names(graph: fx.GraphModule) -> set[str]:
    """Return the qualified names of a graph's operators, except for operators that belong to PyTorch."""
    return {qualified_name(node.target) for node in graph.graph.nodes if node.op == "call_function"} - {""}


def call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, differentiated: bool) -> Any:
    """Record a statement that calls an operator, and return the proxies of its results.

    Parameters
    ----------
    name : str
        Qualified name, from `qualified_name`.
    args, kwargs : sequence, mapping
        Proxies and constants that match the operator's schema.
    differentiated : bool
        Whether the program needs gradients through the operator.

    Raises
    ------
    NotImplementedError
        If the operator writes into its inputs, returns anything but tensors, takes keyword-only tensors, or lacks a
        gradient that the program needs. Also if the gradient would run an operator again that draws random numbers.
    """
    schema = _definition(name).overload._schema
    if schema.is_mutable:
        raise NotImplementedError(f"{name} writes into its arguments: {schema}")
    if not schema.returns or not all(isinstance(each.type, torch.TensorType) for each in schema.returns):
        raise NotImplementedError(f"{name} returns values that are not tensors: {schema}")
    by_place, by_name = _all_arguments(schema, args, kwargs)
    if any(isinstance(leaf, Proxy) for leaf in pytree.tree_leaves(by_name)):
        raise NotImplementedError(f"{name} takes a tensor only by keyword: {schema}")
    if differentiated and not _has_gradient(name, by_place, by_name):
        raise NotImplementedError(f"{name} has no gradient: register one with torch.library.register_autograd")
    return operator_symbols(name)[0](*by_place, **by_name)


def _all_arguments(
    schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return all positional arguments and all keyword-only arguments, with defaults filled in."""
    by_place, by_name = [], {}
    for at, argument in enumerate(schema.arguments):
        given = args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)
        if argument.kwarg_only:
            by_name[argument.name] = given
        else:
            by_place.append(given)
    return tuple(by_place), by_name


def _has_gradient(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    definition = _definition(name)
    if name in OPDEFS:
        return definition.gradient is not None
    if torch.Tag.nondeterministic_seeded in definition.overload.tags:
        raise NotImplementedError(
            f"{name} draws random numbers, and would draw different numbers when it runs again for its gradient"
        )

    def fresh(leaf: Any) -> Any:
        return leaf.requires_grad_() if isinstance(leaf, torch.Tensor) and _is_inexact(leaf) else leaf

    with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad():
        made = definition.overload(*pytree.tree_map(fresh, [fakes(arg) for arg in args]), **kwargs)
    return any(out.requires_grad for out in _tensors(made))


def _wants_gradient(proxy: Any, requirements: Mapping[str, bool]) -> bool:
    """Return whether a value may need a gradient.

    `requirements` maps the name of each input of the trace to whether the input needs a gradient. For intermediate
    values, Thunder does not know whether they need a gradient. This function then returns True.
    """
    if not dtypes.is_inexact_dtype(proxy.dtype) or ProxyTag.DETACHED_AUTOGRAD_GRAPH in proxy.tags:
        return False
    return requirements.get(proxy.name, True)


@functools.cache
def _executor() -> Any:
    return new_executor(NAME)


@functools.cache
def operator_symbols(name: str) -> tuple[Symbol, Symbol]:
    """Return the symbols of an operator and of its gradient. They call the latest definition of the operator `name`."""
    plain = _free(re.sub(r"\W+", "_", name))
    _names[plain] = name, 0
    tags = list(_definition(name).overload.tags)
    forward = _executor().register_operator(
        plain,
        meta=functools.partial(_meta, name),
        fn=functools.partial(_run, name),
        tags=[prims.OpTags.RANDOM_OP] if torch.Tag.nondeterministic_seeded in tags else None,
    )
    of_gradient = _free(f"{plain}_backward")
    _names[of_gradient] = name, 1
    backward = _executor().register_operator(
        of_gradient, meta=functools.partial(_meta_backward, name), fn=functools.partial(_run_backward, name)
    )
    register_grad(forward, functools.partial(_gradient_rule, name))
    return forward, backward


_names: dict[str, tuple[str, int]] = {}


def _free(plain: str) -> str:
    """Return an unused name that begins with `plain`.

    Two operators may have the same plain name, such as ``a::b_c`` and ``a_b::c``. The name of an operator may also
    equal the name of another operator's gradient, which ends in ``_backward``.
    """
    return next(name for count in itertools.count() if (name := plain + "_" * count) not in _names)


def lookup_arguments(symbol: Symbol) -> tuple[str, int]:
    """Return the arguments with which `find_custom_symbol` finds the same symbol in another process."""
    return _names[symbol.name]


def find_custom_symbol(name: str, index: int) -> Symbol:
    """Return the symbol of an operator (`index` 0) or of its gradient (`index` 1)."""
    return operator_symbols(name)[index]


def _run(name: str, *args: Any, **kwargs: Any) -> Any:
    overload = _definition(name).overload
    if _current_graph_task_id() < 0 or torch.Tag.nondeterministic_seeded in overload.tags:
        return overload(*args, **kwargs)
    # In a backward, the operator runs again, because the plan recomputes its results.
    return _run_again(overload, args, kwargs)


def _run_again(overload: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Run an operator again. If this is the first time, raise an error if the operator draws random numbers."""
    # A fake call draws nothing, and the states of the generators cannot be compared while it runs.
    if overload in _no_draws or any(isinstance(tensor, FakeTensor) for tensor in _tensors(args)):
        return overload(*args, **kwargs)
    before = random_states()
    made = overload(*args, **kwargs)
    if not all(map(torch.equal, before, random_states())):
        name = overload._schema.name
        raise ProgramError(
            f"{name} draws random numbers and runs again in the backward, where it draws other numbers: define the "
            "operator with tags=[torch.Tag.nondeterministic_seeded], and open the program again"
        )
    _no_draws.add(overload)
    return made


_no_draws: weakref.WeakSet[OpOverload] = weakref.WeakSet()
"""Operators that drew no random numbers when they ran again. The comparison takes 10 KB, and is made once."""


def _meta(name: str, *args: Any, **kwargs: Any) -> Any:
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        made = _definition(name).overload(*map(fakes, args), **kwargs)
    return tuple(map(proxy_of, made)) if isinstance(made, tuple) else proxy_of(made)


def proxy_of(tensor: torch.Tensor) -> TensorProxy:
    """Return a new proxy with the shape, device and data type of a tensor."""
    device, dtype = devices.to_device(tensor.device), dtypes.to_dtype(tensor.dtype)
    return TensorProxy(shape=tuple(tensor.shape), device=device, dtype=dtype)


def fakes(tree: Any) -> Any:
    """Replace proxies by contiguous fake tensors. Call this function inside a `FakeTensorMode`."""
    if isinstance(tree, list | tuple):
        return type(tree)(map(fakes, tree))
    if not isinstance(tree, TensorProxy):
        return tree
    shape, device = tuple(tree.shape), to_torch_device(tree.device)
    return torch.empty(shape, device=device, dtype=to_torch_dtype(tree.dtype))


class _Context(torch.autograd.function.FunctionCtx):
    """Autograd context in which `setup_context` stores values for the gradient function."""

    def __init__(self, needs_input_grad: tuple[Any, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.to_save: tuple[Any, ...] = ()

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        return self.to_save


def _set_up_context(name: str, args: Any, kwargs: Any, output: Any, needs: Sequence[bool]) -> _Context:
    left = iter(needs)

    def need(arg: Any) -> Any:
        if isinstance(arg, list | tuple) and _tensors(arg):
            return [need(each) for each in arg]
        return next(left) if isinstance(arg, torch.Tensor) else False

    context = _Context(tuple(map(need, args)))
    set_up = _definition(name).set_up
    if set_up is not None:
        by_name = {"keyword_only_inputs": kwargs} if kwargs else {}
        set_up(ctx=context, inputs=args, output=output, **by_name)
    return context


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _gradients(name: str, context: _Context, args: Any, grads: Sequence[Any]) -> list[Any]:
    """Return the registered gradient of each tensor among the arguments, in order."""
    gradient = _definition(name).gradient
    assert gradient is not None
    given = gradient(context, *grads)
    given = given if isinstance(given, tuple) else (given,)  # a list is the gradient of one list argument
    of_tensors: list[Any] = []
    for arg, grad in zip(args, given, strict=False):
        count = len(_tensors(arg))
        if isinstance(arg, torch.Tensor):
            of_tensors.append(grad)
        elif count:
            of_tensors.extend([None] * count if grad is None else grad)
    return of_tensors


_CONSTANTS = (bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.Size, torch.memory_format)


def _held_tensors(context: _Context, tensors: Sequence[torch.Tensor]) -> set[int]:
    """Return the indices of the tensors that a context stores.

    If the context also stores another value that is not a constant, return all indices, because this value may depend
    on any tensor.
    """
    places = {id(tensor): at for at, tensor in enumerate(tensors)}
    leaves = pytree.tree_leaves({key: value for key, value in vars(context).items() if key != "needs_input_grad"})
    held = [leaf for leaf in leaves if not isinstance(leaf, _CONSTANTS)]
    if all(id(leaf) in places for leaf in held):
        return {places[id(leaf)] for leaf in held}
    return set(range(len(tensors)))


def _gradient_rule(name: str, *args: Any, **kwargs: Any) -> Any:
    forward, backward = operator_symbols(name)
    made = forward(*args, **kwargs)
    outputs = made if isinstance(made, tuple) else (made,)
    inputs = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, TensorProxy)]
    trace = get_tracectx()
    assert trace is not None
    given_to_all = {leaf.name: leaf.requires_grad for leaf in trace.args or () if isinstance(leaf, TensorProxy)}
    needs = [_wants_gradient(leaf, given_to_all) for leaf in inputs]
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        given_to_it, results = tuple(map(fakes, args)), tuple(map(fakes, outputs))
        context = _set_up_context(name, given_to_it, kwargs, _like_output(made, results), needs)
        kept = _held_tensors(context, [*_tensors(given_to_it), *results])
        if name in OPDEFS:
            given = _gradients(name, context, given_to_it, [torch.empty_like(result) for result in results])
        else:  # autograd would need the tensors' device, and this machine may lack the device
            given = [tensor if _is_inexact(tensor) else None for tensor in _tensors(given_to_it)]
    for proxy, grad in zip(inputs, given, strict=True):
        if grad is not None and tuple(grad.shape) != tuple(proxy.shape):
            raise NotImplementedError(f"{name}: its gradient is of shape {tuple(grad.shape)}, not {proxy.shape}")
    wanted = tuple(need and grad is not None for need, grad in zip(needs, given, strict=True))
    if not any(wanted):
        return made
    grads = tuple(prims.get_grad(out) if dtypes.is_inexact_dtype(out.dtype) else _describe(out) for out in outputs)
    counted = iter(range(len(inputs) + len(outputs)))

    def describe_unkept(leaf: Any) -> Any:
        return _describe(leaf) if isinstance(leaf, TensorProxy) and next(counted) not in kept else leaf

    found = backward(
        pytree.tree_map(describe_unkept, tuple(args)), dict(kwargs), tuple(map(describe_unkept, outputs)), grads, wanted
    )
    of_inputs = [proxy for proxy, want in zip(inputs, wanted, strict=True) if want]
    for proxy, grad in zip(of_inputs, found if isinstance(found, tuple) else (found,), strict=True):
        prims.put_grad(proxy, grad)
    return made


def _like_output(output: Any, results: tuple[Any, ...]) -> Any:
    return results if isinstance(output, tuple) else results[0]


def _describe(proxy: Any) -> str:
    """Return a description of a tensor that the backward does not get.

    `_stand_in` makes a tensor of the same shape, data type and device from the description.
    """
    dtype = str(to_torch_dtype(proxy.dtype)).removeprefix("torch.")
    return f"like {to_torch_device(proxy.device)} {dtype}[{', '.join(map(str, proxy.shape))}]"


def _stand_in(leaf: Any) -> Any:
    """Return zeros for a description from `_describe`, and any other value unchanged."""
    match = _DESCRIBED.fullmatch(leaf) if isinstance(leaf, str) else None
    if match is None:
        return leaf
    device, dtype, shape = match.groups()
    lengths = [int(length) for length in shape.split(", ") if length]
    return torch.zeros((), dtype=getattr(torch, dtype), device=device).expand(lengths)


def _meta_backward(name: str, args: Any, kwargs: Any, outputs: Any, grads: Any, needs: Sequence[bool]) -> Any:
    del name, kwargs, outputs, grads
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = _tensors(pytree.tree_map(_stand_in, fakes(args)))
    found = [proxy_of(tensor) for tensor, want in zip(tensors, needs, strict=True) if want]
    return tuple(found) if len(found) > 1 else found[0]


def _run_backward(name: str, args: Any, kwargs: Any, outputs: Any, grads: Any, needs: Sequence[bool]) -> Any:
    args, outputs, grads = (pytree.tree_map(_stand_in, each) for each in (args, outputs, grads))
    context = _set_up_context(name, args, kwargs, outputs if len(outputs) > 1 else outputs[0], needs)
    given = _gradients(name, context, args, grads)
    found = [
        torch.zeros_like(tensor) if grad is None else grad.to(tensor.dtype)
        for tensor, grad, want in zip(_tensors(args), given, needs, strict=True)
        if want
    ]
    return tuple(found) if len(found) > 1 else found[0]
