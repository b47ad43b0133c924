"""What a compiled forward gave, connected to autograd: as Thunder connects it, with less Python.

Thunder passes all inputs through two functions of autograd's, joined by a tensor that it draws in Python, once each
way. Here only the first of the two takes the inputs, unless one of them is given back as it is, and the tensor that
joins them is never drawn. There are two for what Thunder has two for: the cotangents of a step belong to the second,
and so are gone from memory as soon as the compiled backward has used them. Where all cotangents are single numbers,
as that of a loss, one function does both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.compiler.once import refused_twice

type Backward = Callable[[list[Any], list[Any]], Sequence[Any]]
"""Takes what the forward saved with its other values, and the cotangents, both of which it empties; gives gradients."""


class _Handed:
    """What one call's two functions hand each other."""

    __slots__ = ("backward", "cotangents", "others", "outputs", "saved")

    def __init__(self, backward: Backward, outputs: Any, saved: Any, others: Any) -> None:
        self.backward, self.outputs, self.saved, self.others = backward, outputs, saved, others
        self.cotangents: list[Any] = []


class Inputs(torch.autograd.Function):
    """Gives the inputs of a program their gradients."""

    @staticmethod
    def forward(ctx: Any, handed: _Handed, *inputs: Any) -> torch.Tensor:
        """Note what the other hands on."""
        ctx.handed = handed
        return torch.empty(1, device="meta")

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple[Any, ...]:
        """Run the compiled backward."""
        handed = ctx.handed
        saved, cotangents = handed.saved, handed.cotangents
        handed.saved, handed.cotangents = None, []
        gradients = handed.backward([saved, handed.others], cotangents)
        assert not saved, "a compiled backward empties what it is given"
        assert not cotangents, "a compiled backward empties what it is given"
        return (None, *refused_twice(gradients))


class Outputs(torch.autograd.Function):
    """Takes the cotangents of what a program gave, and keeps what its backward needs."""

    @staticmethod
    def forward(ctx: Any, _: torch.Tensor, handed: _Handed, *returned: Any) -> Any:
        """Give the outputs."""
        ctx.handed, ctx.returned = handed, len(returned)
        outputs, saved = handed.outputs, handed.saved
        handed.outputs = handed.saved = None
        ctx.save_for_backward(*saved)
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """Hand the cotangents on."""
        handed = ctx.handed
        handed.cotangents = list(cotangents)
        handed.saved = list(ctx.saved_tensors)
        # Or else they would be in memory until the graph is gone.
        ctx.maybe_clear_saved_tensors()
        return (torch.empty(1, device="meta"), None, *(None for _ in range(ctx.returned)))


class Both(torch.autograd.Function):
    """The two as one."""

    @staticmethod
    def forward(ctx: Any, handed: _Handed, *inputs: Any) -> Any:
        """Give the outputs."""
        ctx.backward_of, ctx.others = handed.backward, handed.others
        ctx.save_for_backward(*handed.saved)
        return handed.outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """Run the compiled backward."""
        saved = list(ctx.saved_tensors)
        ctx.maybe_clear_saved_tensors()
        return (None, *refused_twice(ctx.backward_of([saved, ctx.others], list(cotangents))))


def connect(
    backward: Backward, inputs: Sequence[Any], outputs: Sequence[Any], saved: Sequence[Any], others: Any
) -> None:
    """Let autograd go on from outputs to the inputs, by a compiled backward.

    Parameters
    ----------
    backward : callable
    inputs : sequence
        One for each gradient.
    outputs : sequence
        Their tensors are given their history in place.
    saved : sequence of Tensor
        Checked for writes in between, as all that autograd saves is.
    others
        What is no tensor.
    """
    # A view of an output would keep the graph that it is part of alive, for ever: PyTorch's issue 94990.
    plain = [each.detach() if isinstance(each, torch.Tensor) and each._base is not None else each for each in saved]
    handed = _Handed(backward, outputs, plain, others)
    numbers = all(isinstance(each, torch.Tensor) and not each.ndim for each in outputs)
    # An input that is given back as it is has to go through both, or autograd would find its leaf inside of the graph.
    returned = any(each is given for each in outputs for given in inputs)
    with torch.enable_grad():
        if numbers and not returned:
            Both.apply(handed, *inputs)  # type: ignore[no-untyped-call]
            return
        joined = Inputs.apply(handed, *inputs)  # type: ignore[no-untyped-call]
        Outputs.apply(joined, handed, *(inputs if returned else ()))  # type: ignore[no-untyped-call]
