"""With equal seeds, a random operator draws PyTorch's numbers. It draws once, so its gradient uses the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional

import workbench
from tests.trial_counts import combined
from workbench.errors import ProgramError

pytestmark = pytest.mark.slow

Program = Callable[[torch.Tensor], torch.Tensor]


def soft_or_hard(x: torch.Tensor) -> torch.Tensor:
    return functional.gumbel_softmax(x, tau=0.7) + functional.gumbel_softmax(x, hard=True, dim=0)


DRAWING: dict[str, tuple[Program, tuple[int, ...]]] = {
    "sequences": (lambda x: functional.dropout1d(x, 0.4), (3, 4, 5)),
    "one sequence": (lambda x: functional.dropout1d(x, 0.4), (4, 5)),
    "images": (lambda x: functional.dropout2d(x, 0.4), (2, 6, 3, 3)),
    "volumes": (lambda x: functional.dropout3d(x, 0.4), (2, 6, 2, 3, 2)),
    "one volume": (lambda x: functional.dropout3d(x, 0.4), (6, 2, 3, 2)),
    "in place": (lambda x: functional.dropout2d(x, 0.4, inplace=True), (2, 6, 3, 3)),
    "in place, alpha": (lambda x: functional.alpha_dropout(x, 0.4, training=True, inplace=True), (4, 6)),
    "all": (lambda x: functional.dropout2d(x, 1.0), (2, 6, 3, 3)),
    "alpha": (lambda x: functional.alpha_dropout(x, 0.4, training=True), (4, 6)),
    "alpha, channels": (lambda x: functional.feature_alpha_dropout(x, 0.4, training=True), (2, 6, 3)),
    "alpha, not trained": (lambda x: functional.alpha_dropout(x, 0.4), (4, 6)),
    "torch.feature_dropout": (lambda x: torch.feature_dropout(x, 0.4, True), (2, 6, 3)),
    "torch.native_dropout": (lambda x: torch.native_dropout(x, 0.4, True)[0], (4, 6)),
    "the mask of torch.native_dropout": (lambda x: x * torch.native_dropout(x, 0.4, True)[1], (4, 6)),
    "torch.native_dropout, not trained": (lambda x: torch.native_dropout(x, 0.4, False)[0], (4, 6)),
    "gumbel_softmax": (soft_or_hard, (4, 6)),
    "bernoulli_": (lambda x: torch.empty_like(x).bernoulli_(0.3) * x, (4, 6)),
    "bernoulli_ of a tensor": (lambda x: torch.empty_like(x).bernoulli_(x.detach().sigmoid()) * x, (4, 6)),
    "log_normal_": (lambda x: torch.empty_like(x).log_normal_(0.5, 2.0) * x, (4, 6)),
    "others": (lambda x: torch.empty_like(x).cauchy_() * x + torch.empty_like(x).geometric_(0.3), (4, 6)),
    "torchvision's layers": (lambda x: torchvision.ops.stochastic_depth(x, 0.5, "row"), (8, 6)),
    "torchvision's batch": (lambda x: torchvision.ops.stochastic_depth(x, 0.5, "batch"), (8, 6)),
}


@pytest.mark.parametrize(("name", "recomputed"), combined(DRAWING, [False, True]))
def test_numbers_and_gradients_equal_pytorchs_at_the_same_seed(name: str, recomputed: bool) -> None:
    drawing, shape = DRAWING[name]

    def program(x: torch.Tensor) -> torch.Tensor:
        return drawing(x.sin()).cos()

    torch.manual_seed(0)
    x = torch.randn(shape, requires_grad=True)
    bench = workbench.open(program, x, device="cpu", capture="dynamo")
    if recomputed:
        able = [s for s in bench.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal]
        bench.choose({site.id: "recompute" for site in able})
    jitted = bench.config.jit(program)
    along = torch.randn(shape)
    for seed in range(3):
        made = []
        for callable_ in (program, jitted):
            torch.manual_seed(seed)
            out = callable_(x)
            made.append((out, *torch.autograd.grad(out, x, along)))
        torch.testing.assert_close(made[1], made[0])


@pytest.mark.parametrize("kind", [nn.Dropout1d, nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_the_interpreter_refuses_operators_for_which_thunder_draws_twice(kind: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(6, 6), kind(0.4))
    x = torch.randn(2, 3, 6)
    with pytest.raises(ProgramError, match=r"draws other numbers in the backward of .*dropout.*capture='auto'"):
        workbench.open(model, x, device="cpu", capture="interpreter")
    model.eval()
    assert workbench.open(model, x, device="cpu", capture="interpreter").plan.peak_bytes


@pytest.mark.parametrize("program", [functional.gumbel_softmax, torch.native_dropout])
def test_the_interpreter_refuses_operators_of_pytorch_whose_gradient_draws_again(
    program: Callable[..., torch.Tensor],
) -> None:
    given = (torch.randn(4, 6, requires_grad=True), *((0.4, True) if program is torch.native_dropout else ()))
    with pytest.raises(ProgramError, match=r"draws other numbers in the backward of \w+ than in its forward"):
        workbench.open(lambda x: program(x.sin(), *given[1:])[0].sum(), given[0], device="cpu", capture="interpreter")


def test_a_compiled_operator_that_draws_is_refused_under_differentiation() -> None:
    library = torch.library.Library("tests_drawn", "DEF")
    library.define("noisy(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    library.impl("noisy", lambda x: x * torch.rand_like(x), "CompositeImplicitAutograd")

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tests_drawn.noisy(x.sin()).cos()

    with pytest.raises(ProgramError, match=r"test_random_ops\.py.*tests_drawn::noisy draws random numbers"):
        workbench.open(program, torch.randn(4, 6, requires_grad=True), device="cpu", capture="dynamo")


@pytest.mark.long
def test_a_model_that_skips_random_layers_trains_as_eager() -> None:
    torch.manual_seed(0)
    model = torchvision.models.SwinTransformer(
        [4, 4], 8, [1, 2], [1, 2], [4, 4], stochastic_depth_prob=0.6, num_classes=3
    ).train()
    images = torch.randn(6, 3, 32, 32)
    bench = workbench.open(model, images, device="cpu", executor="torch")
    assert bench.capture == "dynamo", bench.capture_reason
    gradients = []
    for callable_ in (model, bench.config.jit(model)):
        model.zero_grad()
        torch.manual_seed(1)
        callable_(images).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(list(model.parameters()))
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-4)
