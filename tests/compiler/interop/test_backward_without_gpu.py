"""A backward without a GPU gives autograd's gradients, and allocates and frees the same tensors in the same order."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import workbench
from workbench.analysis.memory.multi_graph_memory import KernelRuns, RecordedStep, StorageAllocated, StorageFreed
from workbench.bench import PartsBench
from workbench.compiler.interop import backward_without_gpu


class Scaled(torch.autograd.Function):
    """A function with an argument that is not a tensor, two results, and a gradient that may be None."""

    @staticmethod
    def forward(ctx: Any, scale: float, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.scale = scale
        ctx.save_for_backward(y)
        return x * scale, y * y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return None, gradients[0] * ctx.scale, gradients[1] * 2 * y if ctx.needs_input_grad[2] else None


def random_graph(seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return leaves, and results of random operators with shared inputs, broadcasts, views and in-place writes."""
    random = Random(seed)
    torch.manual_seed(seed)
    leaves = [torch.randn(3, 4, requires_grad=random.random() < 0.8) for _ in range(3)]
    leaves += [torch.randn(4, requires_grad=True), torch.randn(4, dtype=torch.bfloat16, requires_grad=True)]
    values = list(leaves)
    for _ in range(random.randint(3, 14)):
        x, y = (random.choice(values) for _ in range(2))
        scaled: Any = Scaled.apply
        values += random.choice(
            (
                lambda x=x, y=y: [x + y],
                lambda x=x, y=y: [x * y.sin()],
                lambda x=x: [x.clone().mul_(2)],
                lambda x=x: list((x + 0).chunk(2, -1)[0].exp().repeat(*[1] * (x.dim() - 1), 2).split(4, -1)),
                lambda x=x: [x.detach() * x],
                lambda x=x: [(x + x.detach().double()).float()],
                lambda x=x, y=y: [x + y.sum()],
                lambda x=x, y=y, scaled=scaled: [*scaled(0.5, x, y)][: random.randint(1, 2)],
                lambda x=x, y=y: [torch.where(x.sum() > 0, x + y, x)],
            )
        )()
    return leaves, [value for value in values[-3:] if value.requires_grad]


def gradients(seed: int, run: Callable[..., Any], *, wanted: bool, again: bool) -> list[torch.Tensor | None]:
    leaves, outputs = random_graph(seed)
    wants = [leaf for leaf in leaves if leaf.requires_grad]
    cotangents = tuple(torch.randn_like(output) for output in outputs)
    if not outputs:
        return []
    if wanted:
        found: list[torch.Tensor | None] = list(run(tuple(outputs), cotangents, again, again, tuple(wants), True))
        if again:
            total = sum((one.square().sum() for one in found if one is not None), start=torch.zeros(()))
            if total.requires_grad:
                found += run((total,), (torch.ones(()),), False, False, tuple(wants), True)
        return found
    for _ in range(2):  # the second backward adds to the gradients of the first
        run(tuple(outputs), cotangents, True, False, (), allow_unreachable=True, accumulate_grad=True)
    return [leaf.grad for leaf in wants]


@pytest.mark.parametrize(("wanted", "again"), [(False, False), (True, False), (True, True)])
def test_gradients_of_random_graphs_are_bitwise_those_of_autograd(
    wanted: bool, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backward_without_gpu._without_gpu.here, "value", torch.enable_grad())
    compared = 0
    for seed in range(60):
        expected = gradients(seed, torch.autograd._engine_run_backward, wanted=wanted, again=again)
        found = gradients(seed, backward_without_gpu._run, wanted=wanted, again=again)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert (one is None) == (other is None), seed
            if one is not None and other is not None:
                assert torch.equal(one, other), seed
                assert (one.dtype, one.stride()) == (other.dtype, other.stride()), seed
                compared += 1
    assert compared > 100


class Remembers(torch.autograd.Function):
    """A function whose context has an attribute with the name of an attribute of a leaf's node."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.variable = x.shape
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0] * 2


def test_users_attributes_and_hooks_of_leaves_have_their_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_without_gpu._without_gpu.here, "value", torch.enable_grad())
    found = []
    for run in (torch.autograd._engine_run_backward, backward_without_gpu._run):
        leaf = torch.ones(3, requires_grad=True)
        called: list[str] = []
        leaf.register_hook(lambda gradient, called=called: called.append("leaf") or gradient * 3)
        leaf.register_post_accumulate_grad_hook(lambda _, called=called: called.append("accumulated"))
        remembers: Any = Remembers.apply
        inner = remembers(leaf)
        outputs = (inner.sin().sum(),)
        run(outputs, (torch.ones(()),), False, False, (), allow_unreachable=True, accumulate_grad=True)
        found.append((called, leaf.grad))
    assert found[0][0] == found[1][0] == ["leaf", "accumulated"]
    assert torch.equal(found[0][1], found[1][1])


class Broken(nn.Module):
    """A module in three parts. The embedding's parameter is also read by the last part."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.up, self.down = nn.Embedding(16, 8), nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(x)
        torch._dynamo.graph_break()
        other = self.down(functional.gelu(self.up(hidden))) + hidden
        torch._dynamo.graph_break()
        return functional.cross_entropy((other @ self.embed.weight.t()).flatten(0, 1), x.flatten())


def loss_of() -> Callable[..., Any]:
    return Broken()


def several_results() -> Callable[..., Any]:
    model = Broken()
    return lambda x: (model(x), model.up(model.embed(x)))


# Pass `foreach=False`: by default, optimizers group parameters on a GPU only, and so read parameters in another order.
def step() -> Callable[..., Any]:
    model = Broken()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def accumulating_step() -> Callable[..., Any]:
    model = Broken()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)

    def step(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros((), device=x.device)
        for part in x.chunk(2):
            loss: torch.Tensor = model(part) / 2
            loss.backward()
            total = total + loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return total

    return step


class Wide(nn.Module):
    """A module that reads a large parameter and a bfloat16 parameter between its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.large = nn.Embedding(16, 8), nn.Parameter(torch.randn(64, 64))
        self.bias = nn.Parameter(torch.randn(8, dtype=torch.bfloat16))

    @torch.compiler.disable
    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.large.sum() + self.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.between(self.embed(x).sin()).cos().sum()


def record(program: Callable[..., Any], device: str) -> RecordedStep:
    bench = workbench.open(program, torch.arange(24).view(4, 6) % 16, device=device, executor="torch")
    assert isinstance(bench, PartsBench)
    found = bench._parts_captured.recorded
    assert isinstance(found, RecordedStep), found
    return found


def comparable(events: tuple[Any, ...]) -> list[Any]:
    """Return events with sizes as a GPU's allocator rounds them, without CPU kernels.

    Consecutive frees are sorted by storage.
    """
    found: list[Any] = []
    outside = (event for event in events if not isinstance(event, KernelRuns))
    for is_freed, several in itertools.groupby(outside, lambda event: isinstance(event, StorageFreed)):
        run = list(several)
        found += sorted(run, key=lambda event: event.storage) if is_freed else run
    return [
        dataclasses.replace(event, bytes=-(-event.bytes // 512) * 512) if isinstance(event, StorageAllocated) else event
        for event in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("make", [loss_of, several_results, step, accumulating_step, Wide])
def test_a_rehearsal_for_an_absent_gpu_records_the_same_events_as_on_the_cpu(
    make: Callable[[], Callable[..., Any]],
) -> None:
    expected, found = record(make(), "cpu"), record(make(), "planned")
    assert comparable(found.events) == comparable(expected.events)
    assert len(expected.events) > 10
    assert found.opaque == expected.opaque


def test_watching_backwards_passes_over_transforms_of_torch_func() -> None:
    layer, x = nn.Linear(3, 2), torch.ones(3, requires_grad=True)
    seen: list[tuple[int, bool]] = []
    with backward_without_gpu.watch_backwards(lambda edges, stores: seen.append((len(edges), stores))):
        jacobian = torch.func.jacrev(layer)(x.detach())
        torch.autograd.grad(layer(x).sum(), x)
    torch.testing.assert_close(jacobian, layer.weight)
    assert seen == [(1, False)]
