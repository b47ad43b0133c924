"""Find which outputs of an nvFuser fusion share the memory of other values.

Operators such as a transpose only move elements. If such operators make an output from a fusion's input or from a
computed value, nvFuser may return the output as a view instead of copying the elements. The rules are those of
nvFuser's ``csrc/alias_analysis.cpp``, ``csrc/preseg_passes/mark_aliases_prepare.cpp`` and
``csrc/scheduler/mark_aliases.cpp``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from workbench.compiler.interop.thunder_api import TensorProxy, prims
from workbench.compiler.trace.proxy_traits import shape_of
from workbench.interop.torch_private import _disable_current_modes


@dataclasses.dataclass(frozen=True)
class OutputLayout:
    """Memory layout of an output of a fusion.

    Attributes
    ----------
    root : Proxy
        Owner of the output's memory: an input of the fusion, a computed value, or the output itself.
    shape, strides : tuple of int
        Shape of the output, and its strides in elements.
    offset : int
        Distance from the root's first element to the output's first element, in elements.
    is_view : bool
        Whether the output is a view of the root; False if the output is the root itself.
    root_strides : tuple of int
        Strides of the root, in elements.
    """

    root: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    is_view: bool
    root_strides: tuple[int, ...]


def output_layouts(
    fusion: Any,
    inputs: Sequence[Any],
    strides: Mapping[str, Sequence[int]],
    outputs: Sequence[Any],
    same: Mapping[str, str],
) -> dict[str, OutputLayout]:
    """Return the memory layout of each output of a fusion.

    The result may be wrong in two cases. First, this function assumes that computed values are contiguous, but nvFuser
    may choose another layout. Second, if a fusion also computes from a view that it returns, its kernel may materialize
    the view. Examples are normalization kernels.

    Parameters
    ----------
    fusion : BoundSymbol
    inputs, outputs : sequence of Proxy
        The tensors among the inputs and outputs of the fusion.
    strides : mapping of str to sequence of int
        Strides of each input, in elements.
    same : mapping of str to str
        Maps a name inside of the fusion to the input with the same memory; see
        `workbench.compiler.memory.fake_execution.forwarded_inputs`.

    Returns
    -------
    dict of str to OutputLayout
        Maps the name of an output to its layout.
    """
    wanted = [proxy.name for proxy in outputs]
    with _disable_current_modes():
        found = _ViewChains(fusion.subsymbols, inputs, strides, same)
        if written := found.materialized_views(wanted):
            found = _ViewChains(fusion.subsymbols, inputs, strides, same, written)
    return {name: found.layout_of(name) for name in wanted}


class _ViewChains:
    """The values of a fusion, with a link from each view to the value that it views."""

    def __init__(
        self,
        members: Sequence[Any],
        inputs: Sequence[Any],
        strides: Mapping[str, Sequence[int]],
        same: Mapping[str, str],
        materialized: Collection[str] = (),
    ) -> None:
        self._members, self._same = members, same
        self._proxies = {proxy.name: proxy for proxy in inputs}
        self._inputs = frozenset(self._proxies)
        self._tensors = {p.name: _meta(p, strides[p.name]) for p in inputs}
        self._viewed: dict[str, str] = {}
        self._makers: dict[str, int] = {}
        for index, member in enumerate(members):
            view = self._view(member)
            for out in (each for each in member.flat_proxy_outs if isinstance(each, TensorProxy)):
                if out.name in self._tensors:
                    continue
                self._proxies[out.name], self._makers[out.name] = out, index
                if view is not None and out.name not in materialized:
                    self._viewed[out.name] = member.args[0].name
                    self._tensors[out.name] = view
                elif out.name in same:
                    self._tensors[out.name] = self._tensors[same[out.name]]
                else:
                    # A materialized view has the dimension order of the view, but no gaps.
                    self._tensors[out.name] = _meta(out) if view is None else torch.empty_like(view)

    def _view(self, member: Any) -> torch.Tensor | None:
        """Return a member's output as a view of the member's first argument; None if the output is not such a view."""
        moves = _MOVES.get(member.sym.id)
        source = member.args[0] if moves is not None and member.args else None
        if moves is None or not isinstance(source, TensorProxy) or source.name not in self._tensors:
            return None
        given = self._tensors[source.name]
        made = moves(given, member)
        return made if made.untyped_storage()._cdata == given.untyped_storage()._cdata else None

    def materialized_views(self, outputs: Sequence[str]) -> frozenset[str]:
        """Return the names of views that kernels materialize.

        A kernel materializes a view if the fusion computes from the view, and the root of the view is neither an input
        nor an output of the fusion.
        """
        read: set[int] = set()
        waiting = [index for name, index in self._makers.items() if name not in self._viewed]
        while waiting:
            index = waiting.pop()
            if index not in read:
                read.add(index)
                names = (proxy.name for proxy in self._members[index].flat_proxy_args)
                waiting.extend(self._makers[name] for name in names if name in self._makers)
        cut = [self._cut(name, read) for name in outputs]
        handed = {*outputs, *cut}
        return frozenset(name for name in cut if name in self._viewed and self._root(name) not in self._inputs | handed)

    def _cut(self, name: str, computed: Collection[int]) -> str:
        """Follow the views from an output towards its root. Return the first value that a kernel computes or reads.

        nvFuser returns the output as a view of this value.
        """
        while name in self._viewed and self._makers[name] not in computed:
            name = self._viewed[name]
        return name

    def _root(self, name: str) -> str:
        while name in self._viewed:
            name = self._viewed[name]
        return self._same.get(name, name)

    def layout_of(self, name: str) -> OutputLayout:
        root, tensor = self._root(name), self._tensors[name]
        return OutputLayout(
            self._proxies[root],
            tuple(tensor.shape),
            tuple(tensor.stride()),
            int(tensor.storage_offset()),
            root != name,
            tuple(self._tensors[root].stride()),
        )


def _meta(proxy: Any, strides: Sequence[int] | None = None) -> torch.Tensor:
    shape = shape_of(proxy)
    if strides is None:
        return torch.empty(shape, device="meta", dtype=torch.uint8)
    return torch.empty_strided(shape, tuple(strides), device="meta", dtype=torch.uint8)


def _slice(source: torch.Tensor, member: Any) -> torch.Tensor:
    shape = shape_of(member.output)
    starts = [int(start) for start in member.args[1]]
    # nvFuser materializes a slice of an expanded dimension, so return new memory.
    if any(n != m and step == 0 for n, m, step in zip(shape, source.shape, source.stride(), strict=True)):
        return torch.empty(shape, device="meta", dtype=torch.uint8)
    return source[tuple(slice(start, start + length) for start, length in zip(starts, shape, strict=True))]


def _broadcast(source: torch.Tensor, member: Any) -> torch.Tensor:
    shape, dims = shape_of(member.output), [int(dim) for dim in member.args[2]]
    steps = [0] * len(shape)
    for dim, step, length in zip(dims, source.stride(), source.shape, strict=True):
        steps[dim] = step if length == shape[dim] else 0
    return source.as_strided(shape, steps)


_MOVES: Mapping[Any, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    prims.PrimIDs.RESHAPE: lambda given, member: given.reshape(shape_of(member.output)),
    prims.PrimIDs.TRANSPOSE: lambda given, member: given.permute([int(dim) for dim in member.args[1]]),
    prims.PrimIDs.SQUEEZE: lambda given, member: given.squeeze([int(dim) for dim in member.args[1]]),
    prims.PrimIDs.SLICE: _slice,
    prims.PrimIDs.BROADCAST_IN_DIM: _broadcast,
    prims.PrimIDs.CLONE: lambda given, member: given,
    prims.PrimIDs.SHALLOW_COPY: lambda given, member: given,
}
"""Maps each primitive that nvFuser may treat as a view to a function that makes the view. The function returns a tensor
in a new storage if nvFuser must copy.
"""
