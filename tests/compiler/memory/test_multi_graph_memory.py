"""The predicted peak of a program of several graphs equals the measured peak, or is a lower bound with opaque parts."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import workbench
from tests.compiler.frontend.test_graph_breaks import Mysterious
from tests.trial_counts import beyond
from workbench.analysis.memory.multi_graph_memory import (
    Backward,
    Forward,
    PartMemory,
    RecordedStep,
    StorageAllocated,
    StorageFreed,
    join_step_memory,
)
from workbench.bench import PartsBench
from workbench.runs.measure import accuracy, memory_meter

PREDICTED_PEAK_ERROR = 0.01

WIDTH = 64


class Broken(nn.Module):
    """A module in three parts, which returns a loss or two values. Parts two and three read a value of part one."""

    def __init__(self, loss: bool) -> None:
        super().__init__()
        self.up, self.middle = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, 4 * WIDTH)
        self.down, self.loss = nn.Linear(4 * WIDTH, WIDTH), loss

    def forward(self, x: torch.Tensor) -> Any:
        hidden = torch.tanh(self.up(x))
        torch._dynamo.graph_break()
        other = self.middle(torch.sin(hidden))
        torch._dynamo.graph_break()
        made = self.down(nn.functional.gelu(other + hidden))
        return made.square().sum() if self.loss else (made, hidden)


class HalfDetached(nn.Module):
    """A module in two parts. The first part returns two values; only the smaller one has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.side = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8 * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, other = self.up(x).tanh(), self.side(x).tanh()
        torch._dynamo.graph_break()
        return hidden.square().sum() + other.detach().sum()


class CompiledTwice(nn.Module):
    """A module that Dynamo compiles again in the second call. Dynamo's error at the loop holds the module's frames."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.called = nn.Linear(4 * WIDTH, 16 * WIDTH), False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        freed = x.cos()
        torch._dynamo.graph_break()
        hidden = freed * (2 if self.called else 1)
        self.called = True
        for value in hidden[:2, 0].tolist():
            if value > 1e30:
                hidden = -hidden
        return self.up(hidden).tanh().sin().sum()


class Levels(nn.Module):
    """One layer for inputs of several sizes, as in heads of detectors. Its value breaks the graph."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__()
        self.layer, self.rows = nn.Linear(WIDTH, WIDTH), (first, second)

    def score(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return self.layer(x).tanh().sin().square().mean()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.score(x[:rows]) for rows in self.rows]).sum()


class Alternating(nn.Module):
    """A step that updates a large module only in every second call, as in TD3."""

    def __init__(self) -> None:
        super().__init__()
        self.critic, self.actor = nn.Linear(WIDTH, 1), nn.Linear(WIDTH, WIDTH)
        self.optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (self.critic, self.actor)]
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.critic(x).square().mean()
        self.optimizers[0].zero_grad()
        loss.backward()
        self.optimizers[0].step()
        if self.calls % 2 == 0:
            self.optimizers[1].zero_grad()
            (-self.critic(self.actor(x).sin()).mean()).backward()
            self.optimizers[1].step()
        self.calls += 1
        return loss.detach()


def step() -> Callable[[torch.Tensor], torch.Tensor]:
    model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def measured(bench: PartsBench, build: Callable[[], Any], x: torch.Tensor) -> int:
    """Return the measured peak bytes of a step under the current choices."""
    program = build()
    stepper = accuracy.Stepper(program, (x,), {}, bench.config.jit(program))
    for _ in range(2):
        stepper.step()
    return memory_meter.measure_peak(stepper).measured_peak_bytes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:UserWarning")
@pytest.mark.parametrize(
    ("build", "rows", "part"),
    beyond(
        2,
        [
            (lambda: Broken(loss=True), 128, "part3 backward"),
            (step, 256, "part1 backward"),
            (lambda: Broken(loss=False), 128, "part3 backward"),
            (step, 2, "part2"),
        ],
        rows=True,
    ),
    ids=["a loss", "a training step", "several outputs", "a training step of few rows"],
)
def test_the_predicted_peak_over_all_parts_equals_the_measured_peak(
    build: Callable[[], Any], rows: int, part: str
) -> None:
    x = torch.randn(rows, WIDTH)
    bench = workbench.open(build(), x)
    assert isinstance(bench, PartsBench)
    assert bench.memory is not None
    assert (bench.memory.at_least, bench.memory.peak_part) == (False, part)
    stock = bench.memory.peak_bytes
    assert stock == pytest.approx(measured(bench, build, x), rel=PREDICTED_PEAK_ERROR)
    free = [site for site in bench.sites("saved") if "recompute" in site.options and site.choice == "save"]
    bench.choose({site.id: "recompute" for site in free if "recompute" not in site.illegal})
    assert bench.choices
    assert bench.memory.peak_bytes <= stock
    assert bench.memory.peak_bytes == pytest.approx(measured(bench, build, x), rel=PREDICTED_PEAK_ERROR)
    assert f"{part}, predicted for all parts" in repr(bench)
    assert bench.to_json()["peak_bytes"] == bench.memory.peak_bytes


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_the_peak_includes_the_zeros_for_a_result_without_a_gradient() -> None:
    x = torch.randn(128, WIDTH)
    bench = workbench.open(HalfDetached(), x)
    assert isinstance(bench, PartsBench)
    assert bench.memory is not None
    assert bench.memory.peak_part == "part1 backward"
    assert bench.memory.peak_bytes == pytest.approx(measured(bench, HalfDetached, x), rel=PREDICTED_PEAK_ERROR)


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("no_collections")
def test_the_peak_excludes_tensors_that_an_error_of_dynamo_holds() -> None:
    x = torch.randn(4 * WIDTH, 4 * WIDTH)
    bench = workbench.open(CompiledTwice(), x)
    assert isinstance(bench, PartsBench)
    assert bench.memory is not None
    assert bench.memory.peak_bytes == pytest.approx(measured(bench, CompiledTwice, x), rel=PREDICTED_PEAK_ERROR)


class PerSample(nn.Module):
    """Gradients of each sample, by transforms of `torch.func`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def loss(weight: torch.Tensor, sample: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy((weight @ sample).tanh(), torch.zeros((), dtype=torch.long))

        made: torch.Tensor = torch.vmap(torch.func.grad(loss), (None, 0))(self.weight.detach(), x)
        return (self.weight * made.mean(0)).sum()


@pytest.mark.slow
@pytest.mark.parametrize("build", [Mysterious, PerSample])
def test_the_peak_of_a_bench_with_an_opaque_part_is_at_most_the_measured_peak(build: Callable[[], Any]) -> None:
    x = torch.randn(16, 6)
    bench = workbench.open(build(), x)
    assert isinstance(bench, PartsBench)
    assert bench.memory is not None
    assert bench.memory.at_least
    assert bench.memory.peak_bytes > bench.largest_peak_bytes
    assert bench.memory.peak_bytes <= measured(bench, build, x)
    assert "at least" in repr(bench)


class InBackward(nn.Module):
    """A step whose optimizers run in hooks during the backward, so that gradients are freed early."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        optimizers = {each: torch.optim.Adam([each], foreach=False) for each in self.layer.parameters()}

        def update(parameter: torch.Tensor) -> None:
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for each in self.layer.parameters():
            each.register_post_accumulate_grad_hook(update)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.layer(x).sin().square().mean()
        loss.backward()
        return loss.detach()


class Watched(nn.Module):
    """A convolution with a hook in the backward. PyTorch runs the convolution between the parts."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
        self.layers[2].register_full_backward_hook(lambda _, given, out: (given[0] * 0.5,))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.layers(x.view(1, 3, 16, -1)).sin().square().mean()
        return loss


@pytest.mark.slow
@pytest.mark.parametrize(("build", "rows"), [(InBackward, 128), (Watched, 48)])
def test_the_peak_of_a_backward_with_hooks_is_exact(build: Callable[[], Any], rows: int) -> None:
    x = torch.randn(rows, WIDTH)
    bench = workbench.open(build(), x, device="cpu")
    assert isinstance(bench, PartsBench)
    assert bench.memory is not None
    assert not bench.memory.at_least
    assert bench.memory.peak_bytes == pytest.approx(measured(bench, build, x), rel=PREDICTED_PEAK_ERROR)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: Levels(8, 128), "part1 runs with several shapes, and has a plan for the first"),
        (lambda: Levels(128, 8), "part1 runs with several shapes, and has a plan for the first"),
        (Alternating, "other parts run in some calls"),
    ],
    ids=["larger", "smaller", "alternating"],
)
def test_a_part_with_other_shapes_or_calls_makes_the_peak_a_lower_bound(build: Callable[[], Any], reason: str) -> None:
    x = torch.randn(128, WIDTH)
    bench = workbench.open(build(), x, device="cpu")
    assert isinstance(bench, PartsBench)
    assert bench.memory is not None
    assert reason in bench.memory.bound_reason
    assert f"a lower bound, because {bench.memory.bound_reason}" in repr(bench)
    assert bench.memory.peak_bytes <= measured(bench, build, x)


def inside(*, first_backward: int, live: list[int], peak: list[int], saved: int, **places: Any) -> PartMemory:
    known = {
        "argument": (0,),
        "output": (1,),
        "cotangent": (2,),
        "gradient": (),
        "made": {1: 0},
        "dropped": {},
        **places,
    }
    sizes = np.asarray([100, 10, 10])
    return PartMemory(first_backward, np.asarray(live), np.asarray(peak), saved, 0, bytes=sizes, **known)


def test_values_that_a_part_saves_are_alive_until_its_backward_has_read_them() -> None:
    # The part saves 7 bytes that it computes. It also saves its argument, until the first statement of its backward.
    part = inside(first_backward=1, live=[7, 3, 0], peak=[9, 8, 5], saved=7, dropped={0: 1, 2: 1})
    recorded = RecordedStep(
        (StorageAllocated(1, 1000),),
        (
            StorageAllocated(2, 100),
            Forward("part1", 1, (2,), (3,)),
            StorageAllocated(3, 10),
            StorageFreed(2),
            StorageAllocated(4, 10),
            Backward(1, (4,)),
            StorageFreed(4),
            StorageAllocated(5, 100),
        ),
        (),
    )
    joined = join_step_memory(recorded, {"part1": part})
    # 1000 bytes are always alive. The caller drops the argument of 100 bytes, but the part keeps it alive. The output
    # has 10 bytes.
    expected = [1100, 1100 + 10 + 9, 1100 + 7 + 10, 1117, 1127, 1000 + 10 + 10 + 100 + 8, 1010, 1110]
    assert joined.live_bytes.tolist() == expected
    assert (joined.peak_bytes, joined.baseline_bytes, joined.peak_part) == (1128, 1000, "part1 backward")


def test_an_argument_that_a_part_does_not_read_keeps_its_own_size() -> None:
    part = inside(first_backward=1, live=[0], peak=[0], saved=0, argument=(-1,), cotangent=(), made={})
    events = (Forward("part1", 1, (2,), (3,)), StorageAllocated(2, 4), StorageAllocated(3, 10))
    joined = join_step_memory(RecordedStep((StorageAllocated(1, 1000),), events, ()), {"part1": part})
    assert joined.peak_bytes == 1014
    empty = dataclasses.replace(part, output=(-1,), bytes=np.zeros(0, np.int64))
    assert join_step_memory(RecordedStep((), events, ()), {"part1": empty}).peak_bytes == 14


def test_a_result_of_a_part_has_the_size_in_the_plan_not_in_the_recording() -> None:
    """PyTorch's loss on the CPU is a scalar in a larger storage; Thunder's is not."""
    part = inside(first_backward=1, live=[0], peak=[0], saved=0, cotangent=(), made={})
    events = (Forward("part1", 1, (1,), (2,)), StorageAllocated(2, 500), StorageFreed(2))
    joined = join_step_memory(RecordedStep((StorageAllocated(1, 1000),), events, ()), {"part1": part})
    assert joined.live_bytes.tolist() == [1000, 1010, 1000]


def test_a_recorded_step_with_an_opaque_part_has_a_lower_bound_as_peak() -> None:
    assert join_step_memory(RecordedStep((StorageAllocated(1, 8),), (), ("part2",)), {}).at_least
    nothing = join_step_memory(RecordedStep((StorageAllocated(1, 8),), (), ()), {})
    assert (nothing.peak_bytes, nothing.at_least, nothing.peak_part) == (8, False, "")


class Doubled(torch.autograd.Function):
    """Twice the input. The backward allocates a tensor that no part makes."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0].expand(50, *gradients[0].shape).clone()[0] * 2


@torch.compiler.disable
def doubled(x: torch.Tensor) -> torch.Tensor:
    result: Any = Doubled.apply  # PyTorch has no types for `apply`
    made: torch.Tensor = result(x)
    return made


class Between(torch.nn.Module):
    """Two layers, and between them operators that PyTorch runs: a function with a backward that the user wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        between = doubled(self.first(x).sin())
        return self.second(between).sum()


def users_step() -> Callable[[torch.Tensor], torch.Tensor]:
    model = Between()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.slow
@pytest.mark.parametrize("build", [Between, users_step])
def test_the_peak_counts_operators_between_parts_and_the_users_backward(build: Callable[[], Any]) -> None:
    x = torch.randn(64, WIDTH)
    bench = workbench.open(build(), x, device="cpu")
    assert isinstance(bench, PartsBench)
    assert bench.memory is not None
    assert not bench.memory.at_least
    assert bench.memory.peak_bytes > 50 * x.nbytes
    assert bench.memory.peak_bytes == pytest.approx(measured(bench, build, x), rel=PREDICTED_PEAK_ERROR)
    planned = workbench.open(build(), x, device="planned", executor="torch")
    assert isinstance(planned, PartsBench)
    assert planned.memory is not None
    assert planned.memory.peak_bytes == pytest.approx(bench.memory.peak_bytes, rel=PREDICTED_PEAK_ERROR)
