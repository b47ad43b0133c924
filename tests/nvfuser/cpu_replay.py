"""Replay a plan for a missing GPU with PyTorch on the CPU: run each statement, and each member of a fusion, in order.

nvFuser's fusions are replayed as nvFuser executes them. All members read the inputs as they are at the start of the
fusion. In-place copies are executed at the end of the fusion, and each value is copied to at most one destination. If
the fusion only rearranges an input to get an output, for example by a transpose, the output can be a view of the input,
even if the fusion also writes into the input; see `workbench.compiler.memory.nvfuser_aliasing`. Random operators
inside a fusion cannot be replayed, because they use the GPU's generator.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from tests.nvfuser.fusion_outputs import make_outputs
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    NumberProxy,
    Proxy,
    TraceCtx,
    devices,
    prims,
    tree_flatten,
    tree_map,
    utils,
)
from workbench.compiler.memory.fake_execution import claim, forwarded_inputs, source
from workbench.compiler.trace import copy_sets


@dataclasses.dataclass(frozen=True)
class ReplayResult:
    """Results of a replayed step.

    Attributes
    ----------
    outputs : tuple
        The flattened outputs of the forward.
    gradients : dict of str to Tensor or None
        The gradient of each argument, by the argument's name in the forward trace; empty without a backward.
    arguments : dict of str to Tensor
        The arguments after the step, including the program's writes.
    """

    outputs: tuple[Any, ...]
    gradients: dict[str, torch.Tensor | None]
    arguments: dict[str, torch.Tensor]


def replay(
    forward: TraceCtx,
    backward: TraceCtx | None,
    arguments: Mapping[str, torch.Tensor],
    *,
    without_set: Collection[str] = (),
) -> ReplayResult:
    """Execute the traces of a planned step on the CPU.

    The gradient of an output is ones for floating point outputs, and zeros for all other outputs.

    Parameters
    ----------
    forward, backward : TraceCtx
        The traces of `Plan.split`.
    arguments : mapping of str to Tensor
        The arguments, by name in the forward trace. The replay copies them, and does not change the originals.
    without_set : collection of str
        In-place copies that have no `set` (an explicit copy of the value) before them in nvFuser's definition. Each
        copy is given by the name of its result.

    Returns
    -------
    ReplayResult
    """
    own = {name: tensor.detach().clone() for name, tensor in arguments.items()}
    with torch.no_grad():
        names: dict[str, Any] = dict(own)
        returned = _run(forward, names, without_set)
        if backward is None:
            return ReplayResult(tuple(tree_flatten(returned)[0]), {}, own)
        outcome, (saved, others) = returned
        outputs = tuple(outcome["flat_output"])
        given = [_cotangent(output) for output in outputs]
        gradients = _run(
            backward, {"saved_for_backward": [list(saved), list(others)], "cotangents": given}, without_set
        )
    by_name = dict(zip((proxy.name for proxy in forward.args), tree_flatten(gradients)[0], strict=True))
    return ReplayResult(outputs, by_name, own)


def _cotangent(output: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(output) if output.is_floating_point() else torch.zeros_like(output)


def _run(trace: TraceCtx, names: dict[str, Any], without_set: Collection[str]) -> Any:
    for bsym in trace.bound_symbols:
        if bsym.sym.id is prims.PrimIDs.RETURN:
            return tree_map(lambda leaf: names[leaf.name] if isinstance(leaf, Proxy) else leaf, bsym.args)
        if bsym.sym.is_fusion:
            _fusion(bsym, names, without_set)
        elif bsym.sym.id is prims.PrimIDs.UNPACK_TRIVIAL:
            names.update({p.name: p.value for p in bsym.flat_proxy_outs if isinstance(p, NumberProxy)})
        elif bsym.sym.id is not prims.PrimIDs.COMMENT:
            _execute(bsym, names)
    raise AssertionError("a trace returns")


def _fusion(bsym: BoundSymbol, names: dict[str, Any], without_set: Collection[str]) -> None:
    inputs = {proxy.name: names[proxy.name] for proxy in bsym.flat_proxy_args}
    inside = dict(inputs)
    # Maps the `id` of a copied value to the value and its destination. A second destination of a value replaces the
    # first, as in nvFuser.
    aliases: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for member in bsym.subsymbols:
        if copy_sets.is_copy(member):
            value, destination = inside[member.args[0].name], inside[member.args[1].name]
            if value.dtype != destination.dtype or member.output.name not in without_set:
                value = value.to(destination.dtype, copy=True)
            aliases[id(value)] = (value, destination)
            inside[member.output.name] = value
        elif member.sym.id is prims.PrimIDs.SHALLOW_COPY:
            inside[member.output.name] = inside[member.args[0].name]
        else:
            _member(member, inside)

    def copy_with_strides(proxy: Any, strides: Sequence[int]) -> torch.Tensor:
        value = inside[proxy.name]
        if id(value) in aliases:
            return aliases[id(value)][1]
        return torch.empty_strided(tuple(value.shape), tuple(strides), dtype=value.dtype).copy_(value)

    given = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    outputs = make_outputs(bsym, given, forwarded_inputs(bsym), copy_with_strides)
    for proxy in bsym.flat_proxy_outs:
        value = inside[proxy.name]
        names[proxy.name] = aliases[id(value)][1] if id(value) in aliases else outputs.get(proxy.name, value)
    written = [(value.clone(), destination) for value, destination in aliases.values()]
    for value, destination in written:
        destination.copy_(value)


def _member(bsym: BoundSymbol, names: dict[str, Any]) -> None:
    claimed = claim(bsym) if bsym.sym.executor is None and bsym.sym.python_impl is None else None
    if claimed is not None:
        for statement in claimed:
            _execute(statement, names)
    elif bsym.sym.executor is None and bsym.subsymbols:
        for member in bsym.subsymbols:
            _member(member, names)
    else:
        _execute(bsym, names)


def _execute(bsym: BoundSymbol, names: dict[str, Any]) -> None:
    if bsym.sym.name in _IN_PLACE_OF:
        given, kwargs = tree_map(lambda x: names[x.name] if isinstance(x, Proxy) else x, (bsym.args, bsym.kwargs))
        results = _IN_PLACE_OF[bsym.sym.name](*given, **kwargs)
        for proxy, result in zip(utils.sequencify(bsym.output), utils.sequencify(results), strict=True):
            if proxy is not None:
                names[proxy.name] = result
        return
    text, context = source(bsym)
    exec(text.replace("cuda:0", "cpu"), {name: _to_cpu(value) for name, value in context.items()}, names)


def _to_cpu(value: Any) -> Any:
    if isinstance(value, devices.Device):
        return devices.cpu
    if isinstance(value, functools.partial):
        # This is the function that reloads an offloaded storage. One of its arguments is the target device.
        return functools.partial(value.func, *value.args, **{name: _to_cpu(v) for name, v in value.keywords.items()})
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """Return the results of the GPU's memory-efficient attention. Results that only its backward reads are zeros."""
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal, scale=scale)
    return out, out.new_zeros(()), out.new_zeros(()), out.new_zeros(())


def _attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor | None, ...]:
    with torch.enable_grad():
        q, k, v = (tensor.detach().requires_grad_() for tensor in (query, key, value))
        again = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, scale=scale)
        return (*torch.autograd.grad(again, (q, k, v), grad_out), None)


def _cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: None = None,
    size_average: None = None,
    ignore_index: int = -100,
    *_: Any,
) -> tuple[torch.Tensor, ...]:
    """Return the results of nvFuser's cross entropy: the unweighted mean, and the values that its backward reads."""
    largest = logits.max(1).values
    log_sum = (logits - largest[:, None]).exp().sum(1).log()
    counted = target != ignore_index
    picked = logits.gather(1, torch.where(counted, target, 0)[:, None])[:, 0]
    losses = torch.where(counted, log_sum + largest - picked, 0.0)
    return losses.sum() / counted.sum(), largest, log_sum, counted.sum().float()


def _cross_entropy_backward(
    gradient: torch.Tensor,
    logits: torch.Tensor,
    *,
    target: torch.Tensor,
    a_max: torch.Tensor,
    max_log_sum_exp: torch.Tensor,
    valid_indices: torch.Tensor,
    ignore_index: int = -100,
    **_: Any,
) -> torch.Tensor:
    counted = target != ignore_index
    softmax = (logits - a_max[:, None] - max_log_sum_exp[:, None]).exp()
    one_hot = torch.nn.functional.one_hot(torch.where(counted, target, 0), logits.shape[1])
    return (softmax - one_hot) * counted[:, None] * (gradient / valid_indices)


_IN_PLACE_OF: dict[str, Callable[..., Any]] = {
    "sdpaex_grad_forward_scaled_dot_product_efficient_attention": _attention,
    "sdpaex_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "nv_cross_entropy_fwd": _cross_entropy,
    "nv_cross_entropy_bwd": _cross_entropy_backward,
    "lerp": torch.lerp,
}
"""Maps the name of an operator to a function that replaces it. Without a replacement, the replay could not run the
operator on a CPU.
"""
