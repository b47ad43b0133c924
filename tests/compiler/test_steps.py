"""Later calls of a graph skip what Thunder looks at each time, and give what they give through Thunder, bit for bit."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from workbench.compiler import inlined as inlining
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


class Turned(torch.nn.Module):
    """Products, and views of products of which one alone is given back."""

    def __init__(self, gives: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = torch.nn.Linear(6, 8), torch.nn.Linear(6, 8)
        self.gives = gives

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one, two = (each(x).view(4, 2, 4).transpose(0, 1) for each in (self.one, self.two))
        made = torch.nn.functional.scaled_dot_product_attention(one[None], two[None], two[None]).sum()
        return (made, one) if self.gives else (made,)


@pytest.mark.slow
@pytest.mark.parametrize("gives", [False, True])
def test_a_saved_view_is_autograd_s_only_where_a_person_has_its_memory(
    gives: bool, made: list[Steps], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[torch.Tensor] = []
    stock = steps.connect

    def noting(backward: Any, inputs: Any, outputs: Any, kept: Any, others: Any) -> None:
        saved[:] = kept
        stock(backward, inputs, outputs, kept, others)

    monkeypatch.setattr(steps, "connect", noting)
    model = Turned(gives)
    run = workbench.open(model, drawn(4, 6), device="cpu", executor="torchcompile_aten").config.jit(model)
    for _ in range(4):
        first, *others = run(drawn(4, 6))
    assert made[0].straight
    first.backward(retain_graph=True)
    torch.testing.assert_close(model.one.weight.grad, eager_gradient(gives))
    heads = [each for each in saved if each.shape[-3:] == (2, 4, 4) and each.stride(-2) == 8]
    memory = {each.untyped_storage().data_ptr() for each in others}
    assert len(heads) >= 2
    assert {each._base is not None for each in heads if each.untyped_storage().data_ptr() not in memory} == {False}
    if gives:
        with torch.no_grad():
            others[0].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            first.backward()


def eager_gradient(gives: bool) -> torch.Tensor:
    model = Turned(gives)
    model(drawn(4, 6))[0].backward()
    assert model.one.weight.grad is not None
    return model.one.weight.grad


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


@pytest.mark.slow
def test_the_code_of_regions_stands_in_the_trace_and_checks_what_it_is_given(
    made: list[Steps], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"layers": 1, "dim": 16, "vocab": 32, "sequence": 8}
    bench = workbench.open("llama", device="cpu", executor="torchcompile_aten", settings=settings)
    texts: list[str] = []

    def keeping(tree: ast.AST, *rest: Any) -> Any:
        texts.append(ast.unparse(tree))
        return compile(tree, *rest)  # type: ignore[call-overload]

    ran: list[Any] = []
    stock = Steps._run

    def noting(self: Steps, way: Any, args: tuple[Any, ...]) -> Any:
        ran[:] = way.forward, *args
        return stock(self, way, args)

    monkeypatch.setattr(Steps, "_run", noting)
    monkeypatch.setattr(inlining, "compile", keeping, raising=False)
    results = []
    for ways in (steps.WAYS, 0):
        monkeypatch.setattr(steps, "WAYS", ways)
        model, args, _ = bench.program.build()
        run = bench.config.jit(model)
        for _ in range(4):
            model.zero_grad()
            out = run(*args)
            out.backward()
        results.append([out.detach(), *(p.grad for p in model.parameters())])
    assert made[0].straight == 2
    regions = {b.sym.name for b in run._lc_cs.last_traces[-1].bound_symbols if b.sym.is_fusion}
    regions |= {b.sym.name for b in run._lc_cs.last_backward_traces[-1].bound_symbols if b.sym.is_fusion}
    # That all are given what they were is checked once; where that is not so, each is for itself, and called if not.
    assert not [name for name in regions if any(f" {name}(" in text for text in texts)]
    assert not any("_fits(" in text for text in texts)
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    texts.clear()
    forward, weight, *given = inlining.inlined(made[0]._ways[0].entry.computation_fn), *ran[1:]
    inlining.inlined(made[0]._ways[0].backward._function)
    assert {name for name in regions if any(f"if wb_{name}_fits(" in text for text in texts)} == regions
    spread = weight.detach().t().contiguous().t()
    assert spread.stride() != weight.stride()
    torch.testing.assert_close(forward(spread, *given)[0]["output"][0], results[0][0])
