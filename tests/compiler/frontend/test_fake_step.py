"""A recorded step with values frees the tensors between the parts at the same time as a run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch

from workbench.analysis.memory.multi_graph_memory import Event, Forward, StorageAllocated, StorageFreed
from workbench.compiler.frontend.fake_step import StepRecorder
from workbench.interop.torch_private import FakeTensorMode

SIZE = 256
BYTES = SIZE * 4


def recorded(call: Callable[[StepRecorder, torch.Tensor], torch.Tensor], given: torch.Tensor) -> tuple[Event, ...]:
    recorder = StepRecorder(None, [given])
    recorder.step(lambda: call(recorder, given), takes_steps=False)
    return recorder.recorded_step().events


@pytest.mark.parametrize("differentiable", [True, False], ids=["with a gradient", "without a gradient"])
def test_an_argument_of_a_part_lives_as_long_as_the_program_holds_it(differentiable: bool) -> None:
    def call(recorder: StepRecorder, weight: torch.Tensor) -> torch.Tensor:
        # For the backward of the sine, autograd keeps `weight`, but not the sine's result.
        between = (weight if differentiable else weight.detach()).sin()
        first = recorder.run("first", lambda given, by: (given * by).sum(), [between, weight])
        del between
        return recorder.run("second", lambda given: given * 2, [first])

    events = recorded(call, torch.rand(SIZE, requires_grad=True))
    between = next(event.storage for event in events if isinstance(event, StorageAllocated) and event.bytes == BYTES)
    second = next(at for at, event in enumerate(events) if isinstance(event, Forward) and event.part == "second")
    assert StorageFreed(between) in events[:second]


def test_gradients_of_a_recorded_step_are_those_of_pytorch() -> None:
    """A part may write into an argument, and an argument may be unused."""

    def part(given: torch.Tensor, weight: torch.Tensor, unused: torch.Tensor) -> torch.Tensor:
        before = given.sum()
        return before + given.mul_(3).exp() * weight

    def step(run: Callable[..., torch.Tensor], weight: torch.Tensor) -> torch.Tensor:
        return run(weight.sin(), weight, weight.cos()).square().sum()

    mine, theirs = torch.linspace(0, 1, SIZE, requires_grad=True), torch.linspace(0, 1, SIZE, requires_grad=True)
    recorded(lambda recorder, weight: step(lambda *given: recorder.run("part", part, given), weight), mine)
    step(lambda given, *others: part(given.clone(), *others), theirs).backward()
    assert mine.grad is not None
    assert torch.equal(mine.grad, theirs.grad)


def most_in_backward(call: Callable[[torch.Tensor], torch.Tensor]) -> int:
    """Return the largest number of tensors of `SIZE` that the backward has alive, without those of the forward."""
    alive = most = 0
    held: dict[int, int] = {}
    for event in recorded(lambda _, weight: call(weight), torch.rand(SIZE, requires_grad=True)):
        if isinstance(event, StorageAllocated):
            held[event.storage] = event.bytes
            alive += event.bytes
        elif isinstance(event, StorageFreed):
            alive -= held.pop(event.storage, 0)
        most = max(most, alive) if alive >= BYTES else 0  # only the backward counts: the forward saves nothing
    return most // BYTES


def test_gradients_of_one_tensor_are_added_in_place_as_in_a_run() -> None:
    def call(weight: torch.Tensor) -> torch.Tensor:
        shared = weight * 2
        return (shared * 3 + shared * 4).sum()

    assert most_in_backward(call) == 2


@pytest.mark.parametrize(
    "take",
    [
        lambda given: given[torch.tensor([0, 3])],
        lambda given: given.index_select(0, torch.tensor([0, 3])),
        lambda given: given.gather(0, torch.tensor([0, 3])),
        lambda given: given.take(torch.tensor([0, 3])),
        lambda given: given.max(0).values,
        lambda given: given.masked_select(torch.arange(SIZE) < 2),
    ],
    ids=["index", "index_select", "gather", "take", "max", "masked_select"],
)
def test_a_gradient_is_written_into_zeros_in_place_as_in_a_run(take: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert most_in_backward(lambda weight: take(weight).sum()) == 1


@pytest.mark.parametrize("fake", [False, True], ids=["values", "fake"])
def test_symbolic_zeros_of_autograd_take_no_memory(fake: bool) -> None:
    """The forward-mode derivative of a constant is such a zero."""
    with FakeTensorMode() if fake else contextlib.nullcontext():
        recorder = StepRecorder(None, [])
        recorder.note(torch._efficientzerotensor((SIZE,)))
        recorder.note(torch.zeros(SIZE))
    made = [event.bytes for event in recorder.events if isinstance(event, StorageAllocated)]
    assert made == [0, BYTES]
