"""Under all choices, each random draw runs only once, in the forward.

Gradients are compared with finite differences of the compiled program, with the same seed and in double precision.
Gradients cannot be compared with eager PyTorch, which draws other numbers for some of these operators.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import workbench
from tests.trial_counts import beyond, combined
from workbench.analysis.equivalence.prove import fault
from workbench.bench import Workbench
from workbench.compiler.interop.thunder_api import prims
from workbench.compiler.lowering.call_normalization import draws, draws_inside
from workbench.core.executor import why_no_nvfuser

DRAWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "randn_like": torch.randn_like,
    "randn": lambda h: torch.randn(h.shape, dtype=h.dtype, device=h.device),
    "normal": lambda h: torch.normal(0.0, 1.0, tuple(h.shape), dtype=h.dtype, device=h.device),
    "normal of means": lambda h: torch.normal(torch.zeros_like(h), 1.0),
    "normal_": lambda h: torch.empty_like(h).normal_(),
    "rand": lambda h: torch.rand(h.shape, dtype=h.dtype, device=h.device),
    "rand_like": torch.rand_like,
    "randint": lambda h: torch.randint(0, 5, tuple(h.shape), device=h.device).to(h.dtype),
    "randint_like": lambda h: torch.randint_like(h, 0, 5),
    "bernoulli": lambda h: torch.bernoulli(torch.sigmoid(h.detach())),
    "bernoulli of a number": lambda h: torch.bernoulli(h.detach(), 0.5),
    "exponential_": lambda h: torch.empty_like(h).exponential_(),
    "multinomial": lambda h: torch.multinomial(h.detach().softmax(-1), 6, replacement=True).to(h.dtype),
    "poisson": lambda h: torch.poisson(h.abs()),
    "rrelu": lambda h: functional.rrelu(h, training=True),
    "dropout": lambda h: functional.dropout(h, 0.3),
    "dropout1d": lambda h: functional.dropout1d(h, 0.3),
    "gumbel_softmax": functional.gumbel_softmax,
    "attention": lambda h: functional.scaled_dot_product_attention(*[h[None, None]] * 3, dropout_p=0.3)[0, 0],
    "rsample": lambda h: torch.distributions.Normal(h, 1.0).rsample(),
    "fractional_max_pool2d": lambda h: functional.fractional_max_pool2d(
        h.repeat(3, 3)[None, None], 2, output_size=tuple(h.shape)
    )[0, 0],
}
"""Functions that draw random numbers, by name. The result of each has the shape of its argument."""

AGAIN = ("binomial", "fractional_max_pool2d", "poisson", "randint_like")
"""Operators that draw random numbers. To compute their gradient, unmodified Thunder would draw a second time."""

EXECUTORS = ("torch", "torchcompile")

needs_nvfuser = pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser())


def noisy(name: str) -> Callable[..., torch.Tensor]:
    """Return a program that adds noise. Its backward needs the noise for the gradient of `scale`."""
    draw = DRAWS[name]

    def program(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        h = x @ w
        h = h + scale * draw(h)
        return (h.tanh() @ w).sum()

    return program


def checkpointed(name: str) -> Callable[..., torch.Tensor]:
    """Return the program of `noisy` inside a region that `torch.utils.checkpoint` recomputes."""
    inside = noisy(name)

    def program(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(inside, x.sin(), w, scale, use_reentrant=False)
        return result

    return program


def arguments(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    x, w = torch.randn(4, 6, dtype=dtype), torch.randn(6, 6, dtype=dtype)
    scale = torch.tensor(0.3, dtype=dtype)
    return tuple(tensor.requires_grad_() for tensor in (x, w, scale))


def leaves(bsyms: Any) -> Iterator[Any]:
    for bsym in bsyms:
        if bsym.subsymbols:
            yield from leaves(bsym.subsymbols)
        else:
            yield bsym


def drawn_in_backward(bench: Workbench) -> list[str]:
    """Return the names of statements that draw random numbers in the backward."""
    backward = bench.plan.split.backward
    return [
        bsym.sym.name
        for bsym in leaves(backward.bound_symbols if backward is not None else ())
        if draws(bsym) or prims.OpTags.RANDOM_OP in (bsym.sym.tags or ()) or bsym.sym.name.removesuffix("_vjp") in AGAIN
    ]


def check_gradients(compiled: Callable[..., torch.Tensor], given: tuple[torch.Tensor, ...]) -> None:
    """Assert that the gradients of a compiled program equal its finite differences."""

    def value(at: tuple[torch.Tensor, ...]) -> torch.Tensor:
        torch.manual_seed(7)
        return compiled(*at)

    found = torch.autograd.grad(value(given), given)
    torch.manual_seed(3)
    for place, gradient in enumerate(found):
        along = torch.randn_like(given[place])
        step = 1e-6
        shifted = [
            tuple((t + sign * step * along if i == place else t).detach().requires_grad_() for i, t in enumerate(given))
            for sign in (1, -1)
        ]
        # Do not compute values under no_grad: the program would be compiled again, and could draw in another order.
        difference = ((value(shifted[0]) - value(shifted[1])) / (2 * step)).detach()
        torch.testing.assert_close((gradient * along).sum(), difference, rtol=1e-4, atol=1e-5)


def parts_of(bench: Any) -> list[Workbench]:
    """Return the benches of all parts that are not opaque. If the program is one graph, return only its bench."""
    return [part for part in (getattr(bench, "parts", ()) or (bench,)) if hasattr(part, "plan")]


def legal_choices(bench: Workbench) -> list[tuple[str, str]]:
    """Return each site of the levers `saved` and `remat` with each of its legal options except the current one."""
    return [
        (site.id, option)
        for site in bench.plan.sites
        if site.lever in ("saved", "remat")
        for option in site.options
        if option not in site.illegal and option != site.choice
    ]


@pytest.mark.parametrize(("name", "made", "executor"), combined(DRAWS, [noisy, checkpointed], EXECUTORS, quick=2))
def test_the_backward_of_a_plan_does_not_draw(name: str, made: Callable[[str], Any], executor: str) -> None:
    for part in parts_of(workbench.open(made(name), *arguments(), device="cpu", executor=executor)):
        assert part.plan.proof.proven
        assert drawn_in_backward(part) == []


@needs_nvfuser
@pytest.mark.parametrize(("name", "made"), combined(DRAWS, [noisy, checkpointed], few=8, quick=2))
def test_the_backward_of_a_plan_for_nvfuser_does_not_draw(name: str, made: Callable[[str], Any]) -> None:
    for part in parts_of(workbench.open(made(name), *arguments(torch.float32), device="planned", executor="nvfuser")):
        assert part.plan.proof.proven
        assert drawn_in_backward(part) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "made", "executor"), combined(DRAWS, [noisy, checkpointed], EXECUTORS, few=2))
def test_gradients_equal_finite_differences_with_the_same_random_numbers(
    name: str, made: Callable[[str], Any], executor: str
) -> None:
    program = made(name)
    bench = workbench.open(program, *arguments(), device="cpu", executor=executor)
    check_gradients(bench.config.jit(program), arguments())


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", beyond(1, ["randn_like", "randint", "rrelu", "dropout"], pytest.mark.slow))
def test_under_every_legal_choice_the_plan_is_proven_and_its_backward_does_not_draw(name: str, executor: str) -> None:
    bench = workbench.open(noisy(name), *arguments(), device="cpu", executor=executor)
    choices = legal_choices(bench)
    assert choices
    for id, option in choices:
        bench.choose({id: option})
        assert bench.plan.proof.proven, (id, option)
        assert drawn_in_backward(bench) == [], (id, option)
        bench.undo()


def test_an_option_that_would_repeat_a_draw_is_illegal_with_the_reason() -> None:
    bench = workbench.open(noisy("randn_like"), *arguments(), device="cpu", executor="torchcompile")
    drawn = [site for site in bench.plan.sites if "randn" in site.id]
    assert {site.lever for site in drawn} == {"saved", "remat"}
    for site in drawn:
        with pytest.raises(workbench.ChoiceError, match="random"):
            bench.choose({site.id: "recompute"})


@pytest.mark.slow
@pytest.mark.parametrize("seed", beyond(1, range(6)))
def test_under_random_choices_gradients_equal_finite_differences(seed: int) -> None:
    chance = random.Random(seed)
    name, made = chance.choice(list(DRAWS)), chance.choice([noisy, checkpointed])
    program = made(name)
    bench = workbench.open(program, *arguments(), device="cpu", executor="torchcompile")
    if getattr(bench, "parts", ()):
        return
    legal = legal_choices(bench)
    chosen = dict(chance.sample(legal, min(len(legal), 3)))
    bench.choose(chosen)
    assert bench.plan.proof.proven
    check_gradients(bench.config.jit(program), arguments())


@needs_nvfuser
def test_two_equal_draws_are_not_merged_under_nvfuser() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        one, other = (torch.randn(4, 6, device=x.device) for _ in range(2))
        return (x * (one - other) + functional.dropout1d(x, 0.5) - functional.dropout1d(x, 0.5)).sin() * w

    given = arguments(torch.float32)[0], torch.rand(4, 6, requires_grad=True)
    bench = workbench.open(program, *given, device="planned", executor="nvfuser")
    drawn = [bsym.sym.name for bsym in bench.plan.split.forward.bound_symbols if draws_inside(bsym)]
    assert drawn == ["randn", "randn", "drawn_bernoulli", "drawn_bernoulli"]
    assert [each.name for each in bench.plan.corrections] == ["random operators", "equal draws"]
    assert len(bench.plan.corrections[1].lines) == 2


@pytest.mark.slow
def test_a_plan_names_the_lines_at_which_unmodified_thunder_would_draw_again() -> None:
    (cut,) = workbench.open(noisy("randn"), *arguments(), device="cpu", executor="torchcompile").plan.corrections
    assert "in a fusion" in cut.reason
    assert "test_repeated_draws.py" in cut.lines[0]
    (region,) = workbench.open(checkpointed("dropout"), *arguments(), device="cpu", executor="torch").plan.corrections
    assert "preserve_rng_state" in region.reason
    for name in ("dropout", "rand"):
        plan = workbench.open(noisy(name), *arguments(), device="cpu", executor="torchcompile").plan
        assert plan.corrections == plan.warnings == ()


@pytest.mark.parametrize("capture", beyond(1, ["dynamo", "interpreter"], pytest.mark.slow))
def test_with_either_capture_a_checkpoint_saves_its_draw(capture: str) -> None:
    bench = workbench.open("checkpoint_dropout", device="cpu", executor="torch", capture=capture)
    assert drawn_in_backward(bench) == []
    assert "tanh" in [bsym.sym.name for bsym in bench.plan.split.backward.bound_symbols]


def test_the_backward_of_a_users_autograd_function_may_draw() -> None:
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * torch.rand_like(x)

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * torch.rand_like(grad)

    bench = workbench.open(lambda x: Rounded.apply(x).sin(), arguments()[0], device="cpu", executor="torch")
    assert bench.plan.proof.proven
    assert bench.plan.warnings == ()
    assert drawn_in_backward(bench) == ["uniform"]


def test_a_checkpoint_inside_another_checkpoint_does_not_draw_again() -> None:
    inside = checkpointed("dropout")

    def program(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = checkpoint(lambda y: inside(y, w, scale) * 2, x.cos(), use_reentrant=False)
        return result

    bench = workbench.open(program, *arguments(), device="cpu", executor="torch")
    assert drawn_in_backward(bench) == []
    check_gradients(bench.config.jit(program), arguments())


@needs_nvfuser
def test_a_stock_plan_with_more_or_fewer_draws_in_fusions_than_the_program_is_a_fault() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return (functional.dropout(x.sin(), 0.5) * functional.dropout(x, 0.3)).sum()

    def once(x: torch.Tensor) -> torch.Tensor:
        return (functional.dropout(x.sin(), 0.5) * x).sum()

    two, one = (
        workbench.open(program, arguments(torch.float32)[1], device="planned", executor="nvfuser")
        for program in (twice, once)
    )
    assert fault(two.context.graph, two.stock_plan.graph) == ""
    assert "2 times, but 1 times" in fault(two.context.graph, one.stock_plan.graph)
    assert "1 times, but 2 times in the stock plan" in fault(one.context.graph, two.stock_plan.graph)
    # Two draws from the same generator state give the same numbers, so they count as one draw.
    graph = two.stock_plan.graph
    names, inputs = list(graph.values.name), graph.statements.inputs
    rows = [row for row, name in enumerate(graph.statements.name) if "philox" in name]
    first, second = dict.fromkeys(tuple(names[value] for value in inputs[row].tolist()) for row in rows)
    merged = dict(zip(second, first, strict=True))
    values = dataclasses.replace(graph.values, name=tuple(merged.get(name, name) for name in names))
    assert "2 times, but 1 times" in fault(two.context.graph, dataclasses.replace(graph, values=values))
