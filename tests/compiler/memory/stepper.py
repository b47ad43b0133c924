"""The reference computation of memory: run every statement of the execution traces once with fake tensors.

Fake tensors compute and allocate nothing, but PyTorch itself determines their views, strides and reference counts.
Tests compare the arithmetic in `workbench.analysis.memory.liveness` with this reference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from tests.nvfuser.fusion_outputs import make_outputs
from workbench.compiler.interop.thunder_api import (
    NumberProxy,
    Proxy,
    TensorProxy,
    prims,
    to_torch_device,
    to_torch_dtype,
    tree_map,
)
from workbench.compiler.memory.fake_execution import (
    Allocations,
    claim,
    fake_execution,
    forwarded_inputs,
    runs_as_pytorch,
    source,
)
from workbench.compiler.memory.kernel_workspace import WRITES, allocates_inside, copy_inside_bytes, peak_inside_bytes
from workbench.compiler.memory.offload import OFFLOAD, RELOAD, StorageLayout, layouts, restore_tensors
from workbench.interop.torch_private import (
    FakeTensorMode,
    TorchDispatchMode,
)

_aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class ExecutedMemory:
    """Memory during a step that is executed with fake tensors.

    Attributes
    ----------
    live_bytes : tuple of int
        Bytes alive right after each bound symbol. The bound symbols of the forward trace come first, then those of the
        backward trace.
    statement_peak_bytes : tuple of int
        For each of these bound symbols, the most bytes alive at once while it runs.
    after_bytes : int
        Largest number of bytes alive at once after the last bound symbol, while autograd accumulates gradients.
    peak_bytes : int
        Largest number of bytes alive at once in the whole step.
    baseline_bytes : int
        Bytes of the arguments: parameters, buffers and inputs.
    misdeclared : tuple of str
        Names of values whose actual shape or data type differs from Thunder's trace. Figures that are computed from the
        trace are wrong for these values.
    """

    live_bytes: tuple[int, ...]
    statement_peak_bytes: tuple[int, ...]
    after_bytes: int
    peak_bytes: int
    baseline_bytes: int
    misdeclared: tuple[str, ...] = ()


def step(
    forward: Any,
    backward: Any = None,
    *,
    arguments: Mapping[str, torch.Tensor] | None = None,
    beside: Collection[str] = (),
) -> ExecutedMemory:
    """Execute the traces of a step with fake tensors, statement by statement.

    Arguments, outputs and gradients stay alive, because autograd and a training loop hold them. The backward trace gets
    the saved values and the cotangents (the gradients of the outputs) in lists, and empties these lists. Cotangents are
    assumed to be contiguous.

    Parameters
    ----------
    forward, backward : TraceCtx
        Execution traces with deletions, as Thunder compiles them.
    arguments : mapping of str to Tensor, optional
        See `workbench.compiler.memory.views_and_writes.trace_facts`.
    beside : collection of str
        Names of arguments that the program returns unchanged, although the forward trace does not return them.

    Returns
    -------
    ExecutedMemory
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_execution(mode), Allocations() as allocations:
        walk = _StatementExecutor(allocations, mode)
        walk.enter(forward, arguments or {})
        baseline_bytes = allocations.live_bytes
        returned = walk.run(forward)
        allocations.peak_bytes = allocations.live_bytes
        if backward is not None:
            outcome, (saved, others) = returned
            del returned
            # Hold the outputs. Saved values are only in the lists below, from which the backward removes them.
            walk.held.append(outcome)
            lists: dict[str, list[Any]] = {"saved_for_backward": [list(saved), list(others)]}
            del saved, others
            # Each output gets a cotangent: autograd makes zeros for an output without a gradient, even if the
            # backward does not read the zeros.
            lists["cotangents"] = [
                torch.empty(output.shape, dtype=output.dtype, device=output.device)
                if isinstance(output, torch.Tensor)
                else None
                for output in outcome["flat_output"]
            ]
            walk.names.update(lists)
            del lists
            past = _passed_gradients(forward, outcome, beside)
            (gradients,) = walk.run(backward)
            accumulation = _Accumulation(forward, gradients, outcome["flat_args"], arguments or {}, past)
            del gradients
            allocations.peak_bytes = allocations.live_bytes
            accumulation.run(allocations)
    return ExecutedMemory(
        live_bytes=tuple(walk.live_bytes),
        statement_peak_bytes=tuple(walk.peak_bytes),
        after_bytes=allocations.peak_bytes,
        peak_bytes=max((baseline_bytes, *walk.peak_bytes, allocations.peak_bytes)),
        baseline_bytes=baseline_bytes,
        misdeclared=tuple(walk.misdeclared),
    )


class _StatementExecutor:
    """Executes statements one by one.

    `names` maps the local variables of Thunder's generated function to their values.
    """

    def __init__(self, allocations: Allocations, mode: FakeTensorMode) -> None:
        self.allocations = allocations
        self.mode = mode
        self.names: dict[str, Any] = {}
        self.held: list[Any] = []
        self.live_bytes: list[int] = []
        self.peak_bytes: list[int] = []
        self.misdeclared: list[str] = []
        self.stored: dict[str, list[StorageLayout]] = {}

    def enter(self, trace: Any, arguments: Mapping[str, torch.Tensor]) -> None:
        """Make fake tensors for the arguments of the trace. The fake tensors share storages as `arguments` do."""
        storages: dict[int, torch.Tensor] = {}
        for bsym in trace.bound_symbols:
            if bsym.sym.id is not prims.PrimIDs.UNPACK_TRIVIAL:
                continue
            for proxy in bsym.flat_proxy_outs:
                if proxy.name in arguments:
                    self.names[proxy.name] = _fake_like(arguments[proxy.name], storages)
                elif isinstance(proxy, TensorProxy):
                    self.names[proxy.name] = empty(proxy)
                elif isinstance(proxy, NumberProxy):
                    self.names[proxy.name] = proxy.value
        self.held.extend(self.names.values())

    def run(self, trace: Any) -> Any:
        """Execute a trace and return its result."""
        returned = None
        for bsym in trace.bound_symbols:
            self.allocations.peak_bytes = self.allocations.live_bytes
            if bsym.sym.id is prims.PrimIDs.RETURN:
                returned = tree_map(self._value, bsym.args)
                self.names.clear()
            elif bsym.sym.is_fusion:
                self._fusion(bsym)
            elif bsym.sym.id not in (prims.PrimIDs.UNPACK_TRIVIAL, prims.PrimIDs.COMMENT):
                self._execute(bsym)
            self.misdeclared.extend(proxy.name for proxy in bsym.flat_proxy_outs if self._otherwise(proxy))
            self.live_bytes.append(self.allocations.live_bytes)
            self.peak_bytes.append(self.allocations.peak_bytes)
        return returned

    def _otherwise(self, proxy: Any) -> bool:
        made = self.names.get(proxy.name) if isinstance(proxy, TensorProxy) else None
        return isinstance(made, torch.Tensor) and (tuple(made.shape), made.dtype) != (
            tuple(proxy.shape),
            to_torch_dtype(proxy.dtype),
        )

    def _value(self, leaf: Any) -> Any:
        return self.names[leaf.name] if isinstance(leaf, Proxy) else leaf

    def _execute(self, bsym: Any) -> None:
        text, context = source(bsym)
        name = str(bsym.sym.name)
        if name.startswith(OFFLOAD):
            # The offloaded copy is in host memory, so it must not count, even if the device is a CPU. A reload cannot
            # read the header of a fake copy, so store the layouts here.
            self.stored[bsym.output.name] = layouts([self.names[p.name] for p in bsym.flat_proxy_args])
            with fake_execution(self.mode):
                self.names[bsym.output.name] = empty(bsym.output)
        elif name.startswith(RELOAD):
            device = to_torch_device(bsym.flat_proxy_outs[0].device)
            back = restore_tensors(
                self.stored[bsym.flat_proxy_args[0].name],
                lambda layout: torch.empty(layout.nbytes, dtype=torch.uint8, device=device),
            )
            self.names.update(zip((p.name for p in bsym.flat_proxy_outs), back, strict=True))
        else:
            self._call(bsym, text, context)

    def _call(self, bsym: Any, text: str, context: dict[str, Any]) -> None:
        """Execute a statement. Measure its kernel if the kernel may allocate more than fake tensors show."""
        allocations = self.allocations
        given = {proxy.name: self.names[proxy.name] for proxy in bsym.flat_proxy_args}
        before_bytes, before_flops = allocations.live_bytes, allocations.flops
        exec(text, context, self.names)
        if allocations.peak_bytes <= before_bytes and not str(bsym.sym.name).startswith(WRITES):
            return
        tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
        if allocates_inside(str(bsym.sym.name), list(tensors.values()), allocations.flops - before_flops):
            numbers = {name: value for name, value in given.items() if name not in tensors}
            inside_bytes = peak_inside_bytes(text, {**context, **numbers}, tensors)
            allocations.peak_bytes = max(allocations.peak_bytes, before_bytes + (inside_bytes or 0))

    def _fusion(self, bsym: Any) -> None:
        # The workspace of a fused kernel is unknown, so only the outputs count.
        if runs_as_pytorch(bsym):
            inner = _StatementExecutor(self.allocations, self.mode)
            inner.names.update((proxy.name, self.names[proxy.name]) for proxy in bsym.flat_proxy_args)
            for member in bsym.subsymbols:
                inner._member(member)
            self.names.update((proxy.name, inner.names[proxy.name]) for proxy in bsym.flat_proxy_outs)
            del inner
        else:
            self._run_like_nvfuser(bsym)
        self.allocations.peak_bytes = self.allocations.live_bytes

    def _run_like_nvfuser(self, bsym: Any) -> None:
        """Make the outputs of a fusion as nvFuser does: in new memory, or as views of inputs or of computed values."""
        inputs = {
            proxy.name: self.names[proxy.name] for proxy in bsym.flat_proxy_args if isinstance(proxy, TensorProxy)
        }
        self.names.update(make_outputs(bsym, inputs, forwarded_inputs(bsym), empty))

    def _member(self, bsym: Any) -> None:
        claimed = claim(bsym) if bsym.sym.executor is None and bsym.sym.python_impl is None else None
        if claimed is not None:
            for statement in claimed:
                self._execute(statement)
        elif bsym.sym.executor is None and bsym.subsymbols:
            for member in bsym.subsymbols:
                self._member(member)
        else:
            self._execute(bsym)


def _passed_gradients(forward: Any, outcome: Mapping[str, Any], beside: Collection[str]) -> dict[int, torch.Tensor]:
    """Map the `id` of an argument to the gradient that the argument gets directly, not through the backward.

    An argument that is returned unchanged gets such a gradient. Autograd adds the gradient from the backward later.
    """
    given = {id(output) for output in outcome["flat_output"] if isinstance(output, torch.Tensor)}
    if given <= set(map(id, outcome["flat_args"])):
        return {}
    arguments = zip(forward.bound_symbols[-1].args[0]["flat_args"], outcome["flat_args"], strict=True)
    return {
        id(made): torch.empty_like(made)
        for proxy, made in arguments
        if isinstance(proxy, TensorProxy) and proxy.requires_grad and (id(made) in given or proxy.name in beside)
    }


class _HandOver(torch.autograd.Function):
    """Autograd function that holds a list of gradients. Its backward returns these gradients, and empties the list."""

    @staticmethod
    def forward(ctx: Any, gradients: list[torch.Tensor], *leaves: torch.Tensor) -> torch.Tensor:
        ctx.gradients = gradients
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        gradients = tuple(ctx.gradients)
        ctx.gradients.clear()
        return None, *gradients


class _CopyCounter(TorchDispatchMode):
    """Dispatch mode that includes the workspace of CPU copies in `allocations.peak_bytes`."""

    def __init__(self, allocations: Allocations, on_cpu: bool) -> None:
        super().__init__()
        self.allocations = allocations
        self.on_cpu = on_cpu

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if self.on_cpu and func._overloadpacket in (_aten.copy_, _aten.clone):
            given = args[0 if func._overloadpacket is _aten.clone else 1]
            inside_bytes = copy_inside_bytes(tuple(given.shape), given.stride(), out.stride(), given.dtype)
            self.allocations.peak_bytes = max(self.allocations.peak_bytes, self.allocations.live_bytes + inside_bytes)
        return out


class _Accumulation:
    """Gradient accumulation at the end of a step. PyTorch's autograd accumulates the fake gradients."""

    def __init__(
        self,
        forward: Any,
        gradients: Sequence[Any],
        arguments: Sequence[Any],
        tensors: Mapping[str, torch.Tensor],
        past: Mapping[int, torch.Tensor],
    ) -> None:
        names = [getattr(leaf, "name", "") for leaf in forward.bound_symbols[-1].args[0]["flat_args"]]
        self.gradients: list[torch.Tensor] = []
        self.leaves: list[torch.Tensor] = []
        self.held: list[torch.Tensor] = []
        self.device_type = next((t.device.type for t in gradients if isinstance(t, torch.Tensor)), "cpu")
        for name, gradient, argument in zip(names, gradients, arguments, strict=True):
            if not isinstance(gradient, torch.Tensor):
                continue
            if name in tensors and not tensors[name].is_leaf:
                self.held.append(gradient)
                continue
            if id(argument) in past:
                self.held += [gradient, past[id(argument)]]
                continue
            self.gradients.append(_mark_on_cpu(gradient))
            self.leaves.append(_mark_on_cpu(argument.detach()).requires_grad_())

    def run(self, allocations: Allocations) -> None:
        """Accumulate the gradients in the leaves."""
        if self.leaves:
            hand_over: Any = _HandOver.apply  # PyTorch declares no types for it
            allocations.stands_for = self.device_type
            with torch.enable_grad(), _CopyCounter(allocations, self.device_type == "cpu"):
                torch.autograd.backward(hand_over(self.gradients, *self.leaves), torch.empty(0))
            allocations.stands_for = ""


def _mark_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Set the device of a fake tensor to the CPU and return the tensor. Autograd cannot run on a missing GPU."""
    tensor.fake_device = torch.device("cpu")  # type: ignore[attr-defined]
    return tensor


def _fake_like(tensor: torch.Tensor, storages: dict[int, torch.Tensor]) -> torch.Tensor:
    """Return a fake tensor like `tensor`. `storages` maps real storages to fake storages; this function extends it."""
    storage = tensor.untyped_storage()
    if storage._cdata not in storages:
        storages[storage._cdata] = torch.empty(storage.nbytes(), dtype=torch.uint8, device=tensor.device)
    whole = storages[storage._cdata]
    whole = whole[: whole.numel() // tensor.itemsize * tensor.itemsize].view(tensor.dtype)
    return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def empty(proxy: Any, strides: Sequence[int] | None = None) -> torch.Tensor:
    """Return an uninitialized tensor for a proxy, with `strides` in elements, or contiguous if `strides` is None."""
    shape, dtype, device = tuple(proxy.shape), to_torch_dtype(proxy.dtype), to_torch_device(proxy.device)
    if strides is None:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.empty_strided(shape, tuple(strides), dtype=dtype, device=device)
