"""Later calls of a graph skip what Thunder looks at each time, and give what they give through Thunder, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from workbench.compiler import steps
from workbench.compiler.clocks import StatementClocks
from workbench.compiler.steps import Steps
from workbench.errors import GradientError

type Tensors = list[torch.Tensor]


class Small(nn.Module):
    """A block with a buffer that it writes, and something random."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 6)
        self.norm, self.dropout = nn.BatchNorm1d(8), dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = nn.functional.dropout(self.norm(torch.tanh(self.first(x))), self.dropout)
        out: torch.Tensor = self.last(inner)
        return out


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Steps]:
    """What is made of graphs that are compiled meanwhile."""
    found: list[Steps] = []
    stock = Steps.__init__

    def noting(self: Steps, jitted: Any) -> None:
        stock(self, jitted)
        found.append(self)

    monkeypatch.setattr(Steps, "__init__", noting)
    return found


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def small(dropout: float = 0.0) -> Small:
    torch.manual_seed(0)
    return Small(dropout)


def compiled(program: Any, *args: Any, executor: str = "torch") -> Any:
    return workbench.open(program, *args, device="cpu", executor=executor).config.jit(program)


def trained(run: Any, model: nn.Module, batches: Tensors) -> Tensors:
    """Outputs, gradients and buffers of some steps."""
    found = []
    for batch in batches:
        model.zero_grad()
        out = run(batch)
        out.square().sum().backward()
        found += [out.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        found += [buffer.clone() for buffer in model.buffers()]
    return [*found, torch.get_rng_state()]


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_steps_are_the_same_bits_as_through_thunder(
    dropout: float, made: list[Steps], monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for ways in (steps.WAYS, 0):
        monkeypatch.setattr(steps, "WAYS", ways)
        made.clear()
        model = small(dropout)
        run = compiled(model, drawn(4, 6))
        torch.manual_seed(5)
        results.append(trained(run, model, [drawn(4, 6, seed=seed) for seed in range(5)]))
        assert [each.straight for each in made] == ([3] if ways else [0])
    for straight, looked_through in zip(*results, strict=True):
        assert torch.equal(straight, looked_through)


def other_shape(model: Small) -> tuple[torch.Tensor, ...]:
    return (drawn(7, 6),)


def other_strides(model: Small) -> tuple[torch.Tensor, ...]:
    return (drawn(6, 4).t(),)


def frozen(model: Small) -> tuple[torch.Tensor, ...]:
    model.first.weight.requires_grad_(False)
    return (drawn(4, 6),)


def needing_a_gradient(model: Small) -> tuple[torch.Tensor, ...]:
    return (drawn(4, 6).requires_grad_(),)


def other_weights(model: Small) -> tuple[torch.Tensor, ...]:
    model.first.weight.data = drawn(6, 8, seed=3).t()
    return (drawn(4, 6),)


def quietly_in_evaluation(model: Small) -> tuple[torch.Tensor, ...]:
    model.eval()
    return (drawn(4, 6),)


@pytest.mark.parametrize(
    "change",
    [
        other_shape,
        *(
            pytest.param(change, marks=pytest.mark.slow)
            for change in (other_strides, frozen, needing_a_gradient, other_weights, quietly_in_evaluation)
        ),
    ],
)
def test_what_changes_between_steps_is_noticed(
    change: Callable[[Small], tuple[torch.Tensor, ...]], made: list[Steps]
) -> None:
    model, eager = small(), small()
    run = compiled(model, drawn(4, 6))
    for seed in range(4):
        for each in (run, eager):
            each(drawn(4, 6, seed=seed)).sum().backward()
    before = made[0].straight
    assert before == 2
    (given,), (known,) = change(model), change(eager)
    for one in (model, eager):
        one.zero_grad()
    found, wanted = run(given), eager(known)
    found.square().sum().backward()
    wanted.square().sum().backward()
    assert made[0].straight == before
    torch.testing.assert_close(found, wanted)
    pairs = zip(model.named_parameters(), eager.parameters(), strict=True)
    for (name, parameter), other in pairs:
        assert (parameter.grad is None) is (other.grad is None), name
        if other.grad is not None:
            torch.testing.assert_close(parameter.grad, other.grad)
    if given.requires_grad:
        torch.testing.assert_close(given.grad, known.grad)
    with torch.no_grad():
        assert not run(drawn(4, 6)).requires_grad


def writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return (x + y).sum()


def test_inputs_that_share_memory_are_noticed(made: list[Steps]) -> None:
    run = compiled(writes, drawn(4), drawn(4, seed=1))
    for seed in range(4):
        run(drawn(4, seed=seed), drawn(4, seed=9))
    before = made[0].straight
    assert before == 2
    memory = drawn(4)
    assert torch.equal(run(memory, memory.view(4)), writes(memory.clone() / 2, memory.clone()))
    assert sum(each.straight for each in made) == before


def test_of_a_program_that_writes_nothing_inputs_that_share_memory_are_as_any(made: list[Steps]) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y.exp()).sum()

    run = compiled(program, drawn(4), drawn(4, seed=1))
    for seed in range(4):
        run(drawn(4, seed=seed), drawn(4, seed=9))
    assert all(not way.plain for way in made[0]._ways)
    before, memory = made[0].straight, drawn(4)
    assert torch.equal(run(memory, memory.view(4)), program(memory, memory))
    assert sum(each.straight for each in made) == before + 1


def test_what_was_saved_and_written_is_noticed_and_a_graph_is_used_as_often_as_it_is_kept(made: list[Steps]) -> None:
    model = small()
    run = compiled(model, drawn(4, 6))
    for _ in range(4):
        out = run(drawn(4, 6))
    assert made[0].straight
    with torch.no_grad():
        model.last.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    out = run(drawn(4, 6)).sum()
    model.zero_grad()
    out.backward(retain_graph=True)
    once = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    out.backward()
    for parameter, gradient in zip(model.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)
    with pytest.raises(RuntimeError, match="a second time"):
        out.backward()


@pytest.mark.parametrize("number", [False, True])
def test_second_derivatives_are_refused(number: bool, made: list[Steps]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin().sum() if number else x.sin()

    run, x = compiled(program, drawn(4).requires_grad_()), drawn(4).requires_grad_()
    for _ in range(4):
        out = run(x).sum()
    assert made[0].straight
    (gradient,) = torch.autograd.grad(out, x, create_graph=True)
    torch.testing.assert_close(gradient, x.cos())
    with pytest.raises(GradientError):
        gradient.sum().backward()


def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x, x.sin() * y, y.t(), (x * y).sum()


def test_inputs_that_are_given_back_keep_their_history(made: list[Steps]) -> None:
    run = compiled(several, drawn(3, 3).requires_grad_(), drawn(3, 3).requires_grad_())
    for seed in range(4):
        results = []
        for call in (run, several):
            x, y = (drawn(3, 3, seed=seed + at).requires_grad_() for at in (0, 7))
            outs = call(x * 1, y)
            sum(out.cos().sum() for out in outs).backward()  # type: ignore[union-attr]
            results.append([*outs, x.grad, y.grad])
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)
    assert made[0].straight


def test_clocks_run_what_they_put_in(made: list[Steps]) -> None:
    model = small()
    run = compiled(model, drawn(4, 6))
    for _ in range(3):
        run(drawn(4, 6)).sum().backward()
    clocks = StatementClocks(run)
    for _ in range(2):
        clocks.start()
        for _ in range(4):
            clocks.clear()
            run(drawn(4, 6)).sum().backward()
            assert len(clocks.times_ns) == len(clocks.ticks)
        clocks.stop()
        clocks.clear()
        run(drawn(4, 6)).sum().backward()
        assert not clocks.times_ns
