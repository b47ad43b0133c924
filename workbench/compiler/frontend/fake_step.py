"""Replay of a step in several parts on fake tensors.

The replay finds the tensors that are alive between parts, and their lifetimes.

Each part that Thunder compiles is one autograd function here. This function saves nothing for the backward, because the
part's plan counts the saved tensors. All code between the parts is the program's own. Python, autograd and optimizers
therefore hold tensors exactly as long as in a run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.analysis.memory.allocator import storage_bytes
from workbench.analysis.memory.multi_graph_memory import (
    Backward,
    Event,
    Forward,
    RecordedStep,
    StorageAllocated,
    StorageFreed,
)
from workbench.interop.torch_private import FakeTensorMode, TorchDispatchMode, tree_iter


class StepRecorder:
    """Records what a step allocates, runs and frees.

    Parameters
    ----------
    mode : FakeTensorMode
        Mode of the program's tensors.
    tensors : sequence of Tensor
        Parameters, buffers, inputs and the state of optimizers.
    """

    def __init__(self, mode: FakeTensorMode, tensors: Sequence[torch.Tensor]) -> None:
        self.mode = mode
        self.events: list[Event] = []
        self.opaque: dict[str, None] = {}
        self._number: dict[Any, int] = {}
        self._calls = 0
        self._ids = 0
        self._noting = True
        for tensor in tensors:
            self.note(tensor)
        self._baseline = tuple(event for event in self.events if isinstance(event, StorageAllocated))
        self.events.clear()

    def recorded_step(self) -> RecordedStep:
        """Return the recorded step so far."""
        return RecordedStep(self._baseline, tuple(self.events), tuple(self.opaque))

    def stop(self) -> None:
        """Stop recording."""
        self._noting = False

    def note(self, tensor: Any) -> int:
        """Record the storage of a tensor if it is new, and return its number. Return -1 for any other value."""
        if not isinstance(tensor, torch.Tensor):
            return -1
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._number:
            self._ids += 1
            self._number[key] = self._ids
            self._add(StorageAllocated(self._ids, storage_bytes(tensor)))
            weakref.finalize(storage, self._record_free, key, self._ids).atexit = False
        return self._number[key]

    def _record_free(self, key: Any, number: int) -> None:
        if self._number.get(key) == number:
            del self._number[key]
        self._add(StorageFreed(number))

    def _add(self, event: Event) -> None:
        if self._noting:
            self.events.append(event)

    def run(self, part: str, function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Record a part that Thunder compiles, and return its outputs.

        Parameters
        ----------
        part : str
        function : callable
            Computes the outputs on fake tensors.
        inputs : sequence
            The part's arguments, followed by the tensors that the part's graph contains.
        """
        with self.mode, torch.no_grad():
            made = function()
        several = isinstance(made, tuple | list)
        outputs = list(made) if several else [made]
        self._calls += 1
        at = len(self.events)
        arguments = tuple(map(self.note, inputs))
        numbers = tuple(map(self.note, outputs))
        handed_out = self.events[at:]
        del self.events[at:]
        self.events += [Forward(part, self._calls, arguments, numbers), *handed_out]
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
            tensors = [at for at, output in enumerate(outputs) if isinstance(output, torch.Tensor)]
            stand: Any = _PartNode.apply  # without types in torch
            joined = stand(self, self._calls, [outputs[at] for at in tensors], *inputs)
            for at, output in zip(tensors, joined, strict=True):
                outputs[at] = output
        return tuple(outputs) if several else outputs[0]

    def run_opaque(self, part: str, function: Callable[..., Any]) -> Any:
        """Record each operator of a part that PyTorch runs, and return the outputs of the part."""
        self.opaque[part] = None
        with self.mode, _Noting(self):
            return function()

    def step(self, call: Callable[[], Any], takes_steps: bool) -> None:
        """Run a step: the forward, and the backward if an output requires grad.

        Parameters
        ----------
        call : callable
            Calls the program with its inputs.
        takes_steps : bool
            Whether the program calls backward itself.
        """
        # Do not use a mode that intercepts operators, because Dynamo would then never again compile the user's
        # functions. A tensor that is made between parts is therefore recorded when a part receives the tensor.
        outputs = call()
        for tensor in _tensors(outputs):
            self.note(tensor)
        if not takes_steps:
            self._differentiate(outputs)
        self.stop()

    def _differentiate(self, outputs: Any) -> None:
        """Differentiate as a run does. A single scalar output is the loss; otherwise, outputs get new cotangents."""
        floating = [output for output in _tensors(outputs) if output.is_floating_point() or output.is_complex()]
        wanted = [output for output in floating if output.requires_grad]
        if not wanted:
            return
        if len(floating) == 1 and floating[0].dim() == 0:
            floating[0].backward()
            return
        loss: Any = _GivenGradientLoss.apply  # without types in torch
        loss(self, *wanted).backward()


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, torch.Tensor)]


class _Noting(TorchDispatchMode):
    """Records the allocations of operators."""

    def __init__(self, rehearsal: StepRecorder) -> None:
        super().__init__()
        self._rehearsal = rehearsal

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in _tensors(made):
            self._rehearsal.note(tensor)
        return made


class _PartNode(torch.autograd.Function):
    """Node of a part in autograd's graph."""

    @staticmethod
    def forward(ctx: Any, rehearsal: StepRecorder, call: int, outputs: list[torch.Tensor], *given: Any) -> Any:
        ctx.rehearsal, ctx.call = rehearsal, call
        ctx.like = [
            (x.shape, x.dtype, x.device) if isinstance(x, torch.Tensor) and x.requires_grad else None for x in given
        ]
        ctx.set_materialize_grads(False)
        return tuple(output.view_as(output) for output in outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        rehearsal: StepRecorder = ctx.rehearsal
        numbers = tuple(map(rehearsal.note, cotangents))
        with rehearsal.mode:
            made = [None if like is None else torch.empty(like[0], dtype=like[1], device=like[2]) for like in ctx.like]
        at = len(rehearsal.events)
        backward = Backward(ctx.call, numbers, tuple(map(rehearsal.note, made)))
        if rehearsal._noting:
            rehearsal.events.insert(at, backward)
        return None, None, None, *made


class _GivenGradientLoss(torch.autograd.Function):
    """A loss whose backward makes a new gradient for each output."""

    @staticmethod
    def forward(ctx: Any, rehearsal: StepRecorder, *outputs: torch.Tensor) -> torch.Tensor:
        ctx.like = [(output.shape, output.dtype, output.device) for output in outputs]
        ctx.rehearsal = rehearsal
        with rehearsal.mode:
            return torch.zeros((), device=outputs[0].device)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        with ctx.rehearsal.mode:
            made = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in ctx.like]
        for gradient in made:
            ctx.rehearsal.note(gradient)
        return None, *made
