"""Offloading: move saved storages out of device memory between forward and backward, and reload them before use.

The `Offloader` edits the forward trace, then the backward trace. The forward copies a storage to host memory as soon as
the saved values in it exist, and saves the copy in place of these values. The backward reloads the storage some
statements before it reads the values. On CUDA, the copies use pinned memory and run on a side stream. The recorded GPU
checks contain no measurement of an offload yet. On a CPU, memory outside of PyTorch's allocator stands for host memory,
so that offloading lowers the figures of device memory as on a GPU.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from workbench.compiler.interop.thunder_api import (
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
    to_torch_device,
    tracectx,
    tree_flatten,
    variableify,
)
from workbench.compiler.trace.bsym_memo import PlanMemo, identity, ids, read_names
from workbench.compiler.trace.stable_ids import is_statement

STORE_PREFIX = "off_"
"""Prefix of the name of an offloaded storage."""
RELOAD_PREFIX = "ld_"
"""Prefix of the name of a reloaded value."""
OFFLOAD, RELOAD, ARRIVE = "offload_", "reload_", "reloaded_"
"""Name prefixes of the three statements: copy to the host, copy back to the device, and wait for the copy back."""


_ALIGNMENT = 16
"""Alignment of each storage in the offloaded copy, in bytes. PyTorch's allocator guarantees at least as much."""
_DTYPES = tuple(sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str))


@dataclasses.dataclass(frozen=True)
class StorageLayout:
    """Layout of an offloaded tensor: the position of its storage in the copy, and the tensor's view of this storage."""

    start: int
    nbytes: int
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def layouts(tensors: Sequence[torch.Tensor]) -> list[StorageLayout]:
    """Return the layouts of tensors in an offloaded copy. The copy contains a header, then each storage once."""
    end = _header_bytes(tensors)
    starts: dict[int, int] = {}
    found = []
    for t in tensors:
        storage = t.untyped_storage()
        if storage._cdata not in starts:
            starts[storage._cdata] = -(-end // _ALIGNMENT) * _ALIGNMENT
            end = starts[storage._cdata] + _storage_bytes(t).numel()
        offset = int(t.storage_offset())
        start, shape = starts[storage._cdata], tuple(t.shape)
        found.append(StorageLayout(start, _storage_bytes(t).numel(), t.dtype, offset, shape, t.stride()))
    return found


def offload(*tensors: torch.Tensor) -> torch.Tensor:
    """Copy the storages of tensors out of device memory.

    The copy begins with a header that contains the layouts of the tensors in this call. The layouts cannot be compiled
    into the trace, because Thunder does not guard strides. In the next call of the same compiled function, strides and
    shared storages may differ.

    Parameters
    ----------
    *tensors : Tensor
        Tensors on one device.

    Returns
    -------
    Tensor
        (n,) uint8, on the host: a header, then each storage once.
    """
    found = layouts(tensors)
    header, nbytes = _header(found), max(each.start + each.nbytes for each in found)
    wholes = {each.start: (each.nbytes, _storage_bytes(t)) for each, t in zip(found, tensors, strict=True)}
    if tensors[0].device.type != "cuda":
        memory = np.empty(nbytes, np.uint8)
        memory[: header.nbytes] = header.view(np.uint8)
        kept = torch.from_numpy(memory)
        for start, (size, whole) in wholes.items():
            kept[start : start + size].copy_(whole)
        return kept
    stream = _side_stream(tensors[0].device)
    kept = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    kept.numpy()[: header.nbytes] = header.view(np.uint8)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for start, (size, whole) in wholes.items():
            kept[start : start + size].copy_(whole, non_blocking=True)
            whole.record_stream(stream)
    return kept


def reload(packed: torch.Tensor, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return the tensors that were passed to `offload`, in new storages.

    On CUDA, the copy may still be running when this function returns; see `arrive`.

    Parameters
    ----------
    packed : Tensor
        Result of `offload`. It can be reloaded any number of times.
    device : torch.device
    """
    stored = _read_header(packed)

    def part(layout: StorageLayout) -> torch.Tensor:
        return packed[layout.start : layout.start + layout.nbytes]

    if device.type != "cuda":
        return restore_tensors(
            stored, lambda layout: torch.empty_like(part(layout), pin_memory=False).copy_(part(layout))
        )
    stream, current = _side_stream(device), torch.cuda.current_stream()

    def copy_back(layout: StorageLayout) -> torch.Tensor:
        raw = torch.empty(layout.nbytes, dtype=torch.uint8, device=device)
        raw.copy_(part(layout), non_blocking=True)
        raw.record_stream(current)
        return raw

    with torch.cuda.stream(stream):
        moved = restore_tensors(stored, copy_back)
        # Store the event in a tensor of this call, so that `arrive` waits for this call only.
        moved[0]._arrival = stream.record_event()  # type: ignore[attr-defined]
    return moved


def restore_tensors(
    layouts: Sequence[StorageLayout], make_storage: Callable[[StorageLayout], torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Return tensors with the given layouts. `make_storage` makes one storage, as (n,) uint8."""
    raws: dict[tuple[int, int], torch.Tensor] = {}
    for each in layouts:
        if (each.start, each.nbytes) not in raws:
            raws[each.start, each.nbytes] = make_storage(each)
    return tuple(
        raws[each.start, each.nbytes][: each.nbytes // each.dtype.itemsize * each.dtype.itemsize]
        .view(each.dtype)
        .as_strided(each.shape, each.stride, each.offset)
        for each in layouts
    )


def arrive(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Wait until `reload` has copied the tensors back, and return the same tensors."""
    arrival = getattr(tensors[0], "_arrival", None)
    if arrival is not None:
        torch.cuda.current_stream().wait_event(arrival)
    return tensors


def _header_bytes(tensors: Sequence[torch.Tensor]) -> int:
    # The header contains the number of tensors and, for each tensor, five numbers, its shape and its strides.
    return 8 * (1 + sum(5 + 2 * t.dim() for t in tensors))


def _header(layouts: Sequence[StorageLayout]) -> NDArray[np.int64]:
    numbers: list[int] = [len(layouts)]
    for each in layouts:
        numbers += [each.start, each.nbytes, _DTYPES.index(each.dtype), each.offset, len(each.shape)]
        numbers += [*each.shape, *each.stride]
    return np.array(numbers, np.int64)


def _read_header(packed: torch.Tensor) -> list[StorageLayout]:
    memory = packed.numpy()
    numbers = iter(memory[: memory.nbytes // 8 * 8].view(np.int64))

    def read_numbers(count: int) -> list[int]:
        return [int(next(numbers)) for _ in range(count)]

    found = []
    for _ in range(read_numbers(1)[0]):
        start, nbytes, dtype, offset, dims = read_numbers(5)
        found.append(
            StorageLayout(start, nbytes, _DTYPES[dtype], offset, tuple(read_numbers(dims)), tuple(read_numbers(dims)))
        )
    return found


def _storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of the whole storage of a tensor, as uint8."""
    # Do not use `set_`: under a fake tensor mode, it would keep the storage alive forever.
    return tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0).view(torch.uint8)


@functools.cache
def _side_stream(device: torch.device) -> Any:
    """Return the stream for the copies between a device and the host.

    All copies of a device run on one stream, so a storage is copied back only after its copy to the host has ended.
    """
    return torch.cuda.Stream(device)


def _statement(name: str, run: Callable[..., Any], args: Sequence[Any], output: Any) -> BoundSymbol:
    symbol = Symbol(name, meta=None, is_prim=True, tags=(prims.OpTags.DONT_DCE,))
    return BoundSymbol(symbol, tuple(args), {}, output, (), _call_ctx={name: run})


@dataclasses.dataclass(frozen=True)
class OffloadedStorage:
    """A storage that is offloaded.

    Attributes
    ----------
    number : int
        Number in the names of the statements. It is the same in all plans of a program.
    values : frozenset of str
        Names of all values in this storage, including values that the backward does not read.
    nbytes : int
        Size of the storage in bytes. The offloaded copy also contains a header.
    """

    number: int
    values: frozenset[str]
    nbytes: int


class _Move:
    """The three statements that offload and reload one storage, and the values that they read and make.

    Attributes
    ----------
    values, moved, arrived : list of TensorProxy
        The saved values in the storage; the reloaded values before and after the wait.
    kept : TensorProxy
        The copy on the host.
    store, reload, arrive : BoundSymbol
    """

    def __init__(self, group: OffloadedStorage, values: list[TensorProxy]) -> None:
        self.values = values
        with tracectx(TraceCtx(None)):
            self.kept = TensorProxy(
                name=STORE_PREFIX + values[0].name,
                shape=(group.nbytes,),
                dtype=dtypes.uint8,
                device=devices.cpu,
                requires_grad=False,
            )
            self.moved = [value.replace_name(RELOAD_PREFIX + value.name) for value in values]
            self.arrived = [value.replace_name(RELOAD_PREFIX + "done_" + value.name) for value in values]
        back = functools.partial(reload, device=to_torch_device(values[0].device))
        self.store = _statement(f"{OFFLOAD}{group.number}", offload, values, self.kept)
        self.reload = _statement(f"{RELOAD}{group.number}", back, [self.kept], self.moved)
        self.arrive = _statement(f"{ARRIVE}{group.number}", arrive, self.moved, self.arrived)


class Offloader:
    """Edits a forward trace, then its backward trace, to offload storages. Call `forward` before `backward`.

    Parameters
    ----------
    groups : sequence of OffloadedStorage
        The storages to offload.
    ahead : int
        Number of statements between the reload of a storage and the storage's first use in the backward. If fewer
        statements precede this use, the reload is at the start of the backward.
    memo : PlanMemo
        Has the statements of earlier plans of the program, so that passes find unchanged statements by identity.
    """

    def __init__(self, groups: Sequence[OffloadedStorage], ahead: int, memo: PlanMemo) -> None:
        self._groups = groups
        self._ahead = ahead
        self._memo = memo
        self._moves: list[_Move] = []

    def forward(self, trace: TraceCtx) -> TraceCtx:
        """Insert the statements that offload. The returned forward trace saves the copies instead of the values."""
        self._memo.begin()
        edited = _remove_dels(trace)
        returned = edited.bound_symbols[-1]
        saved = [p for p in returned.args[1][0] if isinstance(p, TensorProxy)]
        of_name: dict[str, list[tuple[int, TensorProxy]]] = {}
        for place, p in enumerate(saved):
            of_name.setdefault(p.name, []).append((place, p))
        made_at: dict[str, int] = {}
        for place, bsym in enumerate(edited.bound_symbols):
            for made in bsym.flat_proxy_outs:
                made_at.setdefault(made.name, place)
        put: dict[int, list[BoundSymbol]] = {}
        replaced: dict[str, TensorProxy | None] = {}
        for group in self._groups:
            of_group = sorted((one for name in group.values for one in of_name.get(name, ())), key=itemgetter(0))
            if not of_group:
                continue
            values = [p for _, p in of_group]
            key = ("move", group.number, *ids(values))
            move = self._memo.get_or_make(key, values, functools.partial(_Move, group, values))
            put.setdefault(max(made_at[value.name] for value in values), []).append(move.store)
            edited.names.add(move.kept.name)
            self._moves.append(move)
            replaced.update({value.name: None for value in values})
            replaced[values[0].name] = move.kept
        # If several storages are copied after the same statement, insert the copies in reverse order.
        edited.bound_symbols = [
            one for place, bsym in enumerate(edited.bound_symbols) for one in (bsym, *reversed(put.get(place, ())))
        ]
        returned = edited.bound_symbols[-1]
        tensors, other = returned.args[1]
        kept_tensors = tuple(n for p in tensors if (n := replaced.get(p.name, p)) is not None)
        edited.bound_symbols[-1] = returned.from_bsym(args=(returned.args[0], (kept_tensors, other)))
        edited.set_provenance(TraceProvenance("Storages offloaded"))
        return del_last_used(edited)

    def backward(self, trace: TraceCtx) -> TraceCtx:
        """Insert the statements that reload. The returned backward trace takes the copies instead of the values."""
        edited = _remove_dels(trace)
        gone = {v.name: move.kept if i == 0 else None for move in self._moves for i, v in enumerate(move.values)}
        saved = edited.args[0][0]
        wanted = [n for p in saved if (n := gone.get(p.name, p)) is not None]
        for i, bsym in enumerate(edited.bound_symbols):
            if bsym.sym.id is prims.PrimIDs.UNPACK_SEQUENCE and any(
                isinstance(p, Proxy) and p.name in gone for p in tree_flatten(bsym.output)[0]
            ):
                bsym.args[0].coll[:] = wanted
                edited.bound_symbols[i] = bsym.from_bsym(args=(bsym.args[0], len(wanted)), output=list(wanted))
        saved[:] = wanted
        users: dict[str, list[int]] = {}
        for row, bsym in enumerate(edited.bound_symbols):
            for name in gone.keys() & read_names(bsym):
                users.setdefault(name, []).append(row)
        # Index of each statement before the reloads are inserted. A list of numbers is fast to search.
        was = list(range(len(edited.bound_symbols)))
        for move in self._moves:
            used = sorted({row for value in move.values for row in users.get(value.name, ())})
            if used:
                self._insert_reload(edited, move, used, was)
        edited.set_provenance(TraceProvenance("Storages brought back"))
        return del_last_used(edited, clear_mutable_collections=True)

    def _insert_reload(self, trace: TraceCtx, move: _Move, used: Sequence[int], was: list[int]) -> None:
        """Insert the statements that reload a storage, and make its readers read the reloaded values.

        Parameters
        ----------
        used : sequence of int
            Original indices of the statements that read the storage.
        was : list of int
            For each statement of the edited trace, its original index; -1 for an inserted statement.
        """
        first_statement = next(i for i, bsym in enumerate(trace.bound_symbols) if is_statement(bsym))
        trace.names.update(value.name for value in (*move.moved, *move.arrived))
        by_name = {
            value.name: (variableify(value), arrived) for value, arrived in zip(move.values, move.arrived, strict=True)
        }
        rows = [was.index(row) for row in used]
        for i in rows:
            bsym = trace.bound_symbols[i]
            # Swap only the values that this statement reads. A fusion may also recompute an offloaded value that it
            # does not read.
            swap: dict[Variable, Proxy] = dict(by_name[name] for name in read_names(bsym) if name in by_name)
            swapped = functools.partial(bsym.from_bsym_swap_proxies, swap, skip_output=True)
            key = ("reader", identity(bsym), *ids(swap.values()))
            trace.bound_symbols[i] = self._memo.get_or_make(key, (bsym, swap), swapped)
        at = max(first_statement, rows[0] - self._ahead)
        for place, bsym in ((rows[0], move.arrive), (at, move.reload)):
            trace.bound_symbols.insert(place, bsym)
            was.insert(place, -1)


def _remove_dels(trace: TraceCtx) -> TraceCtx:
    edited = from_trace(trace)
    edited.names = set(trace.names)
    edited.bound_symbols = [
        bsym
        for bsym in trace.bound_symbols
        if bsym.sym.id is not prims.PrimIDs.DEL and bsym.sym.name != "clear_mutable_collection"
    ]
    return edited
