"""Saved storages moved out of device memory for the time between forward and backward, and brought back ahead of use.

Works on the split traces, forward first: the storage is copied out right after it is made, its values leave the saved
list, and the backward gets them back some statements before it needs them. On CUDA the copies run on a side stream, to
and from pinned memory (not run yet: no GPU was at hand). On a CPU memory outside PyTorch's allocator stands in for the
host's, so that the device's figures behave as they would on a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from workbench.compiler.names import is_statement
from workbench.compiler.thunder_api import (
    BoundSymbol,
    Proxy,
    Symbol,
    TensorProxy,
    TraceCtx,
    TraceProvenance,
    Variable,
    del_last_used,
    devices,
    dtypes,
    from_trace,
    prims,
    tracectx,
    tree_flatten,
    variableify,
)

STORE_PREFIX = "off_"
"""Prefix of the names of storages in the store."""
RELOAD_PREFIX = "ld_"
"""Prefix of the names of values brought back."""
OFFLOAD, RELOAD, ARRIVE = "offload_", "reload_", "reloaded_"
"""Prefixes of the names of the three statements: out, back, and waiting for it."""


@dataclasses.dataclass
class _View:
    dtype: torch.dtype
    shape: torch.Size
    stride: tuple[int, ...]
    offset: int


class Store:
    """One storage's way out and back. Called by the forward, then by the backward, of one jitted function."""

    def __init__(self) -> None:
        self._views: list[_View] = []
        self._device = torch.device("cpu")
        self._stream: Any = None
        self._done: Any = None

    def offload(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Copy the storage that the tensors share out of device memory.

        Returns
        -------
        Tensor
            Its bytes, (n,) uint8, on the host.
        """
        storage = tensors[0].untyped_storage()
        self._views = [_View(t.dtype, t.shape, t.stride(), int(t.storage_offset())) for t in tensors]
        self._device = tensors[0].device
        # Views, not `set_`: under a fake mode that would keep the storage alive for good.
        whole = tensors[0].as_strided((storage.nbytes() // tensors[0].itemsize,), (1,), 0)
        raw = whole.view(torch.uint8)
        if self._device.type != "cuda":
            kept = torch.from_numpy(np.empty(raw.numel(), np.uint8))
            kept.copy_(raw)
            return kept
        stream = self._side_stream()
        kept = torch.empty(raw.numel(), dtype=torch.uint8, pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            kept.copy_(raw, non_blocking=True)
            raw.record_stream(stream)
        return kept

    def reload(self, kept: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors again, on one new storage; on CUDA still on their way, see `wait`."""
        if self._device.type != "cuda":
            raw = torch.empty_like(kept, pin_memory=False)
            raw.copy_(kept)
            return self._tensors(raw)
        stream = self._side_stream()
        with torch.cuda.stream(stream):
            raw = torch.empty(kept.numel(), dtype=torch.uint8, device=self._device)
            raw.copy_(kept, non_blocking=True)
            self._done = stream.record_event()
        raw.record_stream(torch.cuda.current_stream())
        return self._tensors(raw)

    def wait(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The same tensors, once they have arrived."""
        if self._done is not None:
            torch.cuda.current_stream().wait_event(self._done)
        return tensors

    def _tensors(self, raw: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(
            raw[: raw.numel() // view.dtype.itemsize * view.dtype.itemsize]
            .view(view.dtype)
            .as_strided(view.shape, view.stride, view.offset)
            for view in self._views
        )

    def _side_stream(self) -> Any:
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        return self._stream


def _statement(name: str, run: Callable[..., Any], args: Sequence[Any], output: Any) -> BoundSymbol:
    symbol = Symbol(name, meta=None, is_prim=True, tags=(prims.OpTags.DONT_DCE,))
    return BoundSymbol(symbol, tuple(args), {}, output, (), _call_ctx={name: run})


@dataclasses.dataclass(frozen=True)
class Group:
    """A storage to offload.

    Attributes
    ----------
    values : frozenset of str
        Names of the saved values that live in it.
    nbytes : int
    """

    values: frozenset[str]
    nbytes: int


class Offloader:
    """Edits a forward trace, then its backward trace.

    Parameters
    ----------
    groups : sequence of Group
        The storages to offload.
    ahead : int
        Statements between bringing a storage back and its first use in the backward.
    """

    def __init__(self, groups: Sequence[Group], ahead: int) -> None:
        self._groups = groups
        self._ahead = ahead
        self._stores: list[tuple[Store, TensorProxy, list[TensorProxy]]] = []

    def forward(self, trace: TraceCtx) -> TraceCtx:
        """The forward trace with storages copied out, and their values off the saved list."""
        edited = _without_dels(trace)
        returned = edited.bound_symbols[-1]
        saved = [p for p in returned.args[1][0] if isinstance(p, TensorProxy)]
        replaced: dict[str, TensorProxy | None] = {}
        for i, group in enumerate(self._groups):
            values = [p for p in saved if p.name in group.values]
            if not values:
                continue
            store = Store()
            with tracectx(edited):
                kept = TensorProxy(
                    name=STORE_PREFIX + values[0].name,
                    shape=(group.nbytes,),
                    dtype=dtypes.uint8,
                    device=devices.cpu,
                    requires_grad=False,
                )
            at = 1 + max(_made_at(edited, value) for value in values)
            edited.bound_symbols.insert(at, _statement(f"{OFFLOAD}{i}", store.offload, values, kept))
            self._stores.append((store, kept, values))
            replaced.update({value.name: None for value in values})
            replaced[values[0].name] = kept
        returned = edited.bound_symbols[-1]
        tensors, other = returned.args[1]
        kept_tensors = tuple(n for p in tensors if (n := replaced.get(p.name, p)) is not None)
        edited.bound_symbols[-1] = returned.from_bsym(args=(returned.args[0], (kept_tensors, other)))
        edited.set_provenance(TraceProvenance("Storages offloaded"))
        return del_last_used(edited)

    def backward(self, trace: TraceCtx) -> TraceCtx:
        """The backward trace that unpacks what is in the store and brings it back ahead of its use."""
        edited = _without_dels(trace)
        gone = {v.name: kept if i == 0 else None for _, kept, values in self._stores for i, v in enumerate(values)}
        saved = edited.args[0][0]
        wanted = [n for p in saved if (n := gone.get(p.name, p)) is not None]
        for i, bsym in enumerate(edited.bound_symbols):
            if bsym.sym.id is prims.PrimIDs.UNPACK_SEQUENCE and any(
                isinstance(p, Proxy) and p.name in gone for p in tree_flatten(bsym.output)[0]
            ):
                bsym.args[0].coll[:] = wanted
                edited.bound_symbols[i] = bsym.from_bsym(args=(bsym.args[0], len(wanted)), output=list(wanted))
        saved[:] = wanted
        for i, (store, kept, values) in enumerate(self._stores):
            self._bring_back(edited, i, store, kept, values)
        edited.set_provenance(TraceProvenance("Storages brought back"))
        return del_last_used(edited, clear_mutable_collections=True)

    def _bring_back(
        self, trace: TraceCtx, number: int, store: Store, kept: TensorProxy, values: Sequence[TensorProxy]
    ) -> None:
        names = {value.name for value in values}
        used = [i for i, b in enumerate(trace.bound_symbols) if any(a.name in names for a in b.flat_proxy_args)]
        if not used:
            return
        first_statement = next(i for i, bsym in enumerate(trace.bound_symbols) if is_statement(bsym))
        with tracectx(trace):
            moved = [value.replace_name(RELOAD_PREFIX + value.name) for value in values]
            arrived = [value.replace_name(RELOAD_PREFIX + "done_" + value.name) for value in values]
        swap: dict[Variable, Proxy] = {variableify(v): a for v, a in zip(values, arrived, strict=True)}
        for i in used:
            trace.bound_symbols[i] = trace.bound_symbols[i].from_bsym_swap_proxies(swap, skip_output=True)
        trace.bound_symbols.insert(used[0], _statement(f"{ARRIVE}{number}", store.wait, moved, arrived))
        at = max(first_statement, used[0] - self._ahead)
        trace.bound_symbols.insert(at, _statement(f"{RELOAD}{number}", store.reload, [kept], moved))


def _without_dels(trace: TraceCtx) -> TraceCtx:
    edited = from_trace(trace)
    edited.names = set(trace.names)
    edited.bound_symbols = [
        bsym
        for bsym in trace.bound_symbols
        if bsym.sym.id is not prims.PrimIDs.DEL and bsym.sym.name != "clear_mutable_collection"
    ]
    return edited


def _made_at(trace: TraceCtx, value: TensorProxy) -> int:
    return next(
        i for i, bsym in enumerate(trace.bound_symbols) if any(o.name == value.name for o in bsym.flat_proxy_outs)
    )
