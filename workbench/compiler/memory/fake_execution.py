"""Execute statements with fake tensors, and count the bytes and floating point operations.

Fake tensors compute and allocate nothing, but PyTorch itself determines their views, strides and reference counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from workbench.analysis.memory.allocator import allocated_bytes, dense_parts
from workbench.compiler.interop import default_dtype_device
from workbench.compiler.interop.thunder_api import (
    Proxy,
    TraceCtx,
    prims,
    to_torch_device,
    to_torch_dtype,
    torch_executor,
    tracectx,
    tree_flatten,
    variableify,
)
from workbench.compiler.trace.bsym_memo import structure_of
from workbench.compiler.trace.copy_sets import count_copies_and_fences, is_copy
from workbench.interop.torch_private import (
    FakeTensor,
    FakeTensorMode,
    TorchDispatchMode,
    _disable_current_modes,
    tree_iter,
)

_aten = torch.ops.aten

_MOVES_DATA = frozenset(
    (
        _aten.empty,
        _aten.empty_like,
        _aten.empty_strided,
        _aten.new_empty,
        _aten.full,
        _aten.full_like,
        _aten.zeros,
        _aten.zeros_like,
        _aten.ones,
        _aten.ones_like,
        _aten.arange,
        _aten.clone,
        _aten.copy,
        _aten.copy_,
        _aten._to_copy,
        _aten.cat,
        _aten.stack,
        _aten.embedding,
        _aten.index,
        _aten.index_select,
        _aten.gather,
        _aten.constant_pad_nd,
    )
)
"""Operators that only fill or move data. They count as zero floating point operations."""

_REDUCED_WHERE_THEY_LIE = frozenset(
    (_aten.binary_cross_entropy, _aten.smooth_l1_loss, _aten.mse_loss, _aten.soft_margin_loss)
)
"""Losses whose CPU kernel stores one loss for each element. The kernel returns the mean or sum in the same storage."""


def _attention_flops(func: Any, args: Sequence[Any]) -> int | None:
    # PyTorch's `flop_registry` has only the attention kernels for CUDA, so count the CPU's kernels here.
    if func is _aten._scaled_dot_product_flash_attention_for_cpu:
        return int(sdpa_flop_count(*(t.shape for t in args[:3])))
    if func is _aten._scaled_dot_product_flash_attention_for_cpu_backward:
        return int(sdpa_backward_flop_count(*(t.shape for t in args[:4])))
    return None


class Allocations(TorchDispatchMode):
    """Dispatch mode that counts the bytes of all storages as they are created and freed.

    Attributes
    ----------
    live_bytes : int
        Bytes of the storages that exist now.
    peak_bytes : int
        Largest `live_bytes` since `peak_bytes` was last set.
    flops : int
        Floating point operations so far. For matmuls, convolutions and attention, PyTorch's formulas give the number.
        An operator that only moves data or makes views counts as zero operations. Any other operator counts as one
        operation for each element of its largest tensor.
    stands_for : str
        Device type. The allocator of this device type determines how storage sizes are rounded. If empty, the device
        type of each tensor determines the rounding.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes = 0
        self.peak_bytes = 0
        self.flops = 0
        self.stands_for = ""
        self._sizes: dict[int, int] = {}

    def see(self, tensor: torch.Tensor) -> bool:
        """Count the tensor's storage if it is new, and return whether it was new. A sparse tensor has several."""
        if tensor.layout is not torch.strided:
            return any(list(map(self.see, dense_parts(tensor))))
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes:
            return False
        self._sizes[key] = allocated_bytes(storage.nbytes(), self.stands_for or tensor.device.type)
        weakref.finalize(storage, self._forget, key).atexit = False
        self.live_bytes += self._sizes[key]
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return True

    def _forget(self, key: int) -> None:
        self.live_bytes -= self._sizes.pop(key)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, and count its floating point operations and the storages of its results."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = func._overloadpacket
        # The CPU kernels of these losses return the mean or sum in the storage that holds one loss per element. Give
        # the fake result a storage of that size. This is not needed if gradients are enabled: the statement then runs
        # PyTorch's autograd, and the caller measures its kernels with that storage.
        is_own = packet in _REDUCED_WHERE_THEY_LIE and not torch.is_grad_enabled()
        if is_own and out.dim() == 0 and out.device.type == "cpu":
            single = torch.broadcast_shapes(args[0].shape, args[1].shape)
            out.untyped_storage().resize_(math.prod(single) * out.itemsize)
        outputs = [t for t in tree_iter(out) if isinstance(t, torch.Tensor)]
        made = [self.see(tensor) for tensor in outputs]
        if (attention := _attention_flops(packet, args)) is not None:
            self.flops += attention
        elif packet in flop_registry:
            self.flops += int(flop_registry[packet](*args, **kwargs, out_val=out))
        elif packet not in _MOVES_DATA and (any(made) or func._schema.is_mutable):
            tensors = [*outputs, *(t for t in tree_iter((args, kwargs)) if isinstance(t, torch.Tensor))]
            self.flops += max((t.numel() for t in tensors), default=0)
        return out


@contextlib.contextmanager
def plain_execution() -> Iterator[None]:
    """Disable gradients, and deactivate the caller's dispatch modes inside this context."""
    with _disable_current_modes(), torch.no_grad():
        yield


@contextlib.contextmanager
def fake_execution(mode: FakeTensorMode) -> Iterator[None]:
    """Make new tensors fake in a `plain_execution`."""
    with plain_execution(), mode:
        yield


def source(bsym: Any) -> tuple[str, dict[str, Any]]:
    """Return the Python source that Thunder would execute for a statement, and a dict of the objects in this source."""
    # Print a copy, because printing stores objects in the statement under names that are unique only within a trace.
    copy = bsym.from_bsym(_import_ctx={}, _object_ctx={})
    with tracectx(TraceCtx(None)):
        lines = copy.python(indent=0, print_depth=1)
        imports, calls, objects = copy.gather_ctxs()
    return "\n".join(lines), {"torch": torch, "Tensor": torch.Tensor, **imports, **calls, **objects}


def claim(bsym: Any) -> list[Any] | None:
    """Return the torch executor's statements for an unclaimed statement; None if this executor refuses it."""
    try:
        claimed = torch_executor.can_execute(bsym)
    except AssertionError:
        # The checker of `uniform_philox` fails, because it checks the offset, which is not known yet.
        claimed = False
    if not claimed:
        return None
    trace = TraceCtx(None)
    trace.names = {leaf.name for leaf in (*bsym.flat_args, *bsym.flat_outs) if isinstance(leaf, Proxy)}
    # Give intermediate values unusual names, because the program's trace may already have a value `t1`.
    trace._gen_name = lambda number: f"_claimed_{number}"
    with default_dtype_device.default_settings(), tracectx(trace):
        symbol = torch_executor.get_execution_transform(bsym) or torch_executor.implmap[bsym.sym.id].symbol
        result = symbol(*bsym.args, **bsym.kwargs)
    swap = {
        variableify(made): wanted
        for made, wanted in zip(tree_flatten(result)[0], bsym.flat_outs, strict=True)
        if isinstance(made, Proxy) and isinstance(wanted, Proxy)
    }
    return [claimed.from_bsym_swap_proxies(swap, skip_subsymbols=True) for claimed in trace.bound_symbols]


def runs_whole(bsym: Any) -> bool:
    """Return whether a statement contains in-place copies, but the torch executor runs it without separate copies.

    An example is a batch norm, because PyTorch's function for batch norm also updates the running statistics.
    """

    def find() -> bool:
        claimed = None if is_copy(bsym) or not count_copies_and_fences(bsym)[0] else claim(bsym)
        return claimed is not None and not any(map(is_copy, claimed))

    return bool(structure_of(bsym).get_or_make("runs whole", find))


def runs_as_pytorch(fusion: Any) -> bool:
    """Return whether torch.compile runs a fusion. If so, the fusion's outputs share storages as in eager PyTorch.

    AOTAutograd keeps the sharing of eager PyTorch. For example, if a fusion returns one of its inputs, the result is
    the same tensor. If it returns a view of an input, the result is a view. nvFuser has other rules; see
    `workbench.compiler.memory.nvfuser_aliasing`.
    """
    executor = fusion.sym.executor
    return executor is not None and "torchcompile" in str(executor.name).lower()


def forwarded_inputs(fusion: Any) -> dict[str, str]:
    """Return a map from names inside of a fusion to the input with the same memory.

    The names are the inputs themselves, shallow copies of an input, and results of in-place copies into an input.
    """
    inputs = {proxy.name: proxy.name for proxy in fusion.flat_proxy_args}
    for bsym in fusion.subsymbols:
        if bsym.sym.id == prims.PrimIDs.SHALLOW_COPY:
            taken = bsym.args[0].name
        elif bsym.sym.id == prims.PrimIDs.COPY_:
            taken = bsym.args[1].name
        else:
            continue
        if taken in inputs:
            inputs[bsym.output.name] = inputs[taken]
    return inputs


@dataclasses.dataclass(frozen=True)
class SparseTensor:
    """A sparse tensor that Thunder declares as dense. Indices and elements together take `nbytes` bytes."""

    nbytes: int


type ActualType = torch.dtype | SparseTensor


def fake_tensors(
    mode: FakeTensorMode,
    proxies: Sequence[Any],
    strides: Sequence[Sequence[int]],
    dtypes: Mapping[str, ActualType],
) -> list[torch.Tensor]:
    """Return a dense fake tensor in `mode` for each proxy; see `meta_tensors`.

    The fake tensors are constructed directly. This is faster than `torch.empty` in `mode`, which is dispatched in
    Python.
    """
    with _disable_current_modes():
        return [
            FakeTensor(mode, tensor, to_torch_device(proxy.device))
            for proxy, tensor in zip(proxies, meta_tensors(proxies, strides, dtypes), strict=True)
        ]


def meta_tensors(
    proxies: Sequence[Any], strides: Sequence[Sequence[int]], dtypes: Mapping[str, ActualType]
) -> list[torch.Tensor]:
    """Return a dense tensor on the device ``meta`` for each proxy.

    `dtypes` has, by name, the data types of the proxies that Thunder declares with another data type.
    """
    return [
        torch.empty_strided(
            tuple(proxy.shape),
            tuple(one),
            dtype=dtype if isinstance(dtype, torch.dtype) else to_torch_dtype(proxy.dtype),
            device="meta",
        )
        for proxy, one, dtype in zip(proxies, strides, (dtypes.get(each.name) for each in proxies), strict=True)
    ]
