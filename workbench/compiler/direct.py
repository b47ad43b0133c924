"""Compiled regions called without Dynamo's guards and AOTAutograd's wrappers, where each call is like one seen before.

A region is called through `torch.compile` once, and what Inductor's code was given and gave in that call is noted. A
later call goes straight to that code where all that Dynamo guards of such a call is the same, by PyTorch's own checks:
each input's type, data type, device, sizes, strides and dispatch keys, that no two are one object, and the global state
(grad mode, autocast, number of threads, determinism). Anything else goes through `torch.compile` as before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.compiler import patches, stance
from workbench.torch_api import GlobalStateGuard, TensorGuards, _len_torch_function_stack

WAYS = 4
"""Kinds of calls, such as of inputs with other strides, that are noted of one region; further ones keep the guards."""

type Fits = Callable[..., bool]
type Runs = Callable[[tuple[Any, ...]], list[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """How a kind of call goes straight to Inductor's code.

    Attributes
    ----------
    fits : callable
        Whether a call is of the kind.
    runs : callable
        Does what such a call does.
    """

    fits: Fits
    runs: Runs


class Direct:
    """A compiled region whose later calls take the shortest way that is right.

    Parameters
    ----------
    guarded : callable
        The region through `torch.compile`; takes tensors, gives a sequence of tensors.
    """

    def __init__(self, guarded: Callable[..., Any]) -> None:
        self._guarded = guarded
        self._ways: tuple[Way, ...] = ()
        self._tries = WAYS

    @property
    def ways(self) -> int:
        """Kinds of calls that go straight to Inductor's code."""
        return len(self._ways)

    def __call__(self, *args: Any) -> Any:
        """Run the region."""
        for way in self._ways:
            if way.fits(*args):
                return way.runs(args)
        return self._noted(*args) if self._tries else self._compiled(*args)

    def _compiled(self, *args: Any) -> Any:
        """Through `torch.compile`, whatever a person has said to that of their own programs."""
        if stance.is_usual():
            return self._guarded(*args)
        with stance.usual():
            return self._guarded(*args)

    def _noted(self, *args: Any) -> Any:
        self._tries -= 1
        versions = [arg._version if isinstance(arg, torch.Tensor) and not arg.is_inference() else 0 for arg in args]
        with patches.inductor_noted() as calls:
            outputs = self._compiled(*args)
        if len(calls) == 1 and without_modes(args):
            written = any(arg._version != before for arg, before in zip(args, versions, strict=True))
            way = None if written else _straight(calls[0], args, outputs)
            if way is not None:
                self._ways = (*self._ways, way)
        return outputs


def without_modes(args: Sequence[Any]) -> bool:
    """Whether a call is of nothing but tensors, outside of any mode that sees what is done to them."""
    plain = all(isinstance(arg, torch.Tensor) and not arg.is_inference() for arg in args)
    return plain and bool(args) and not _len_torch_function_stack() and len({id(arg) for arg in args}) == len(args)


def same_kind(args: Sequence[torch.Tensor]) -> Fits:
    """Whether a call is like this one, by the checks that Dynamo's guards are made of."""
    same_tensors: Fits = TensorGuards(*args, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    same_state, modes = GlobalStateGuard().check, _len_torch_function_stack

    def fits(*args: Any) -> bool:
        return same_tensors(*args) and same_state() and not modes()

    return fits


def _straight(call: patches.Call, args: Sequence[torch.Tensor], outputs: Sequence[Any]) -> Way | None:
    """How a call of a region is repeated by Inductor's code alone; None where more than that was done."""
    graph = call.graph
    # Inputs that are written are told to autograd by the wrappers, and CUDA graphs keep their outputs' memory.
    if graph.mutated_input_idxs or graph.cudagraph_info is not None:
        return None
    place = {id(arg): index for index, arg in enumerate(args)}
    order = [place.get(id(given), -1) for given in call.given]
    picks = [_pick(output, call.gave, args) for output in outputs]
    if -1 in order or None in picks:
        return None
    known = tuple(pick for pick in picks if pick is not None)
    return Way(same_kind(args), _runs(graph.current_callable, tuple(order), len(args), len(call.gave), known))


def _runs(
    code: Callable[[list[Any]], Any], order: tuple[int, ...], inputs: int, gives: int, picks: tuple[Pick, ...]
) -> Runs:
    if not any(pick.computed for pick in picks):
        # Views of inputs alone, which the code would only make once more.
        return lambda args: [pick.take((), args) for pick in picks]
    in_order = order == tuple(range(inputs))

    def gave(args: tuple[Any, ...]) -> list[Any]:
        made: list[Any] = code(list(args) if in_order else [args[index] for index in order])
        return made

    if [pick.computed for pick in picks] == list(range(1, 1 + gives)):
        return gave

    def runs(args: tuple[Any, ...]) -> list[Any]:
        made = gave(args)
        return [pick.take(made, args) for pick in picks]

    return runs


@dataclasses.dataclass(frozen=True, slots=True)
class Pick:
    """How an output of a region comes from what Inductor's code gave and the region was given.

    Attributes
    ----------
    computed : int
        Which of what the code gave it is, from 1 on; 0 where it is an input, or a view of one.
    base : int
        Which input, then.
    size, stride : tuple of int or None
        Of the view; None for the input itself.
    further : int
        How many elements the view begins after the input does.
    """

    computed: int = 0
    base: int = 0
    size: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    further: int = 0

    def take(self, gave: Sequence[Any], args: tuple[Any, ...]) -> Any:
        """The output of a call."""
        if self.computed:
            return gave[self.computed - 1]
        of = args[self.base]
        return of if self.size is None else of.as_strided(self.size, self.stride, of.storage_offset() + self.further)


def _pick(output: Any, gave: Sequence[Any], args: Sequence[torch.Tensor]) -> Pick | None:
    computed = next((index for index, given in enumerate(gave) if given is output), None)
    if computed is not None:
        return Pick(computed + 1)
    given = next((index for index, arg in enumerate(args) if arg is output), None)
    if given is not None:
        return Pick(base=given)
    if not isinstance(output, torch.Tensor):
        return None
    storage = output.untyped_storage().data_ptr()
    bases = [index for index, arg in enumerate(args) if arg.untyped_storage().data_ptr() == storage]
    # AOTAutograd makes a view of an input anew. Of two inputs that share a storage, which one it is of cannot be seen.
    if len(bases) != 1 or not output._is_view() or output.dtype != args[bases[0]].dtype or output.is_complex():
        return None
    base = bases[0]
    further = int(output.storage_offset() - args[base].storage_offset())
    return Pick(base=base, size=tuple(output.size()), stride=tuple(output.stride()), further=further)
