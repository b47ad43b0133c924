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

from workbench.compiler import patches
from workbench.torch_api import GlobalStateGuard, TensorGuards, _len_torch_function_stack

WAYS = 4
"""Kinds of calls, such as of inputs with other strides, that are noted of one region; further ones keep the guards."""

type Fits = Callable[..., bool]
type Runs = Callable[[tuple[Any, ...]], list[Any]]


class Direct:
    """A compiled region whose later calls take the shortest way that is right.

    Parameters
    ----------
    guarded : callable
        The region through `torch.compile`; takes tensors, gives a sequence of tensors.
    """

    def __init__(self, guarded: Callable[..., Any]) -> None:
        self._guarded = guarded
        self._ways: tuple[tuple[Fits, Runs], ...] = ()
        self._tries = WAYS

    @property
    def ways(self) -> int:
        """Kinds of calls that go straight to Inductor's code."""
        return len(self._ways)

    def __call__(self, *args: Any) -> Any:
        """Run the region."""
        for fits, runs in self._ways:
            if fits(*args):
                return runs(args)
        return self._noted(*args) if self._tries else self._guarded(*args)

    def _noted(self, *args: Any) -> Any:
        self._tries -= 1
        versions = [arg._version if isinstance(arg, torch.Tensor) and not arg.is_inference() else 0 for arg in args]
        with patches.inductor_noted() as calls:
            outputs = self._guarded(*args)
        if len(calls) == 1 and without_modes(args):
            written = any(arg._version != before for arg, before in zip(args, versions, strict=True))
            runs = None if written else _straight(calls[0], args, outputs)
            if runs is not None:
                self._ways = (*self._ways, (same_kind(args), runs))
        return outputs


def without_modes(args: Sequence[Any]) -> bool:
    """Whether a call is of nothing but tensors, outside of any mode that sees what is done to them."""
    plain = all(isinstance(arg, torch.Tensor) and not arg.is_inference() for arg in args)
    return plain and bool(args) and not _len_torch_function_stack() and len({id(arg) for arg in args}) == len(args)


def same_kind(args: Sequence[torch.Tensor]) -> Fits:
    """Whether a call is like this one, by the checks that Dynamo's guards are made of."""
    same_tensors = TensorGuards(*args, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
    same_state, modes = GlobalStateGuard().check, _len_torch_function_stack

    def fits(*args: Any) -> bool:
        return same_tensors(*args) and same_state() and not modes()

    return fits


def _straight(call: patches.Call, args: Sequence[torch.Tensor], outputs: Sequence[Any]) -> Runs | None:
    """What does what a call of a region did, by Inductor's code alone; None where more than that was done."""
    graph = call.graph
    # Inputs that are written are told to autograd by the wrappers, and CUDA graphs keep their outputs' memory.
    if graph.mutated_input_idxs or graph.cudagraph_info is not None:
        return None
    place = {id(arg): index for index, arg in enumerate(args)}
    order = [place.get(id(given), -1) for given in call.given]
    picks = [_pick(output, call.gave, args) for output in outputs]
    if -1 in order or None in picks:
        return None
    known = [pick for pick in picks if pick is not None]
    if not any(pick.computed for pick in known):
        # Views of inputs alone, which the code would only make once more.
        return lambda args: [pick.take((), args) for pick in known]
    ordered = order != list(range(len(args)))

    def gave(args: tuple[Any, ...]) -> list[Any]:
        given = [args[index] for index in order] if ordered else list(args)
        made: list[Any] = graph.current_callable(given)
        return made

    if [pick.computed for pick in known] == list(range(1, 1 + len(call.gave))):
        return gave

    def runs(args: tuple[Any, ...]) -> list[Any]:
        made = gave(args)
        return [pick.take(made, args) for pick in known]

    return runs


@dataclasses.dataclass(frozen=True, slots=True)
class _Pick:
    """How an output of a region comes from what Inductor's code gave and the region was given.

    Attributes
    ----------
    take : callable
    computed : int
        Which of what the code gave it is, from 1 on; 0 where it is an input, or a view of one.
    """

    take: Callable[[Sequence[Any], tuple[Any, ...]], Any]
    computed: int = 0


def _pick(output: Any, gave: Sequence[Any], args: Sequence[torch.Tensor]) -> _Pick | None:
    computed = next((index for index, given in enumerate(gave) if given is output), None)
    if computed is not None:
        return _Pick(lambda gave, args: gave[computed], computed + 1)
    given = next((index for index, arg in enumerate(args) if arg is output), None)
    if given is not None:
        return _Pick(lambda gave, args: args[given])
    if not isinstance(output, torch.Tensor):
        return None
    storage = output.untyped_storage().data_ptr()
    bases = [index for index, arg in enumerate(args) if arg.untyped_storage().data_ptr() == storage]
    # AOTAutograd makes a view of an input anew. Of two inputs that share a storage, which one it is of cannot be seen.
    if len(bases) != 1 or not output._is_view() or output.dtype != args[bases[0]].dtype or output.is_complex():
        return None
    base, size, stride = bases[0], output.size(), output.stride()
    further = output.storage_offset() - args[base].storage_offset()

    def view(gave: Sequence[Any], args: tuple[Any, ...]) -> Any:
        of = args[base]
        return of.as_strided(size, stride, of.storage_offset() + further)

    return _Pick(view)
