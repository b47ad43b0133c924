"""Operators that Thunder does not know or cannot differentiate: each is right, forward and backward, in one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import workbench

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore:.*:UserWarning"),
]

ROWS = torch.tensor([1, 3, 0, 1])


class Network(nn.Module):
    """A recurrent network and its last state."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.network = kind(4, 3, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made, last = self.network(x)
        last = last if isinstance(last, tuple) else (last,)
        return made.square().sum() + sum(state.sin().sum() for state in last)


def normed(x: torch.Tensor) -> torch.Tensor:
    unit = torch.empty(4)
    return functional.normalize(x.detach()[0], dim=0, out=unit) * x


def weighed(x: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(x, x.detach().sigmoid(), pos_weight=torch.tensor([1.0, 2, 3, 4]))


def padded(mode: str) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: functional.pad(x[None], (2, 1, 0, 3), mode=mode)


def several() -> nn.Module:
    parametrized = nn.utils.parametrizations
    return nn.Sequential(
        nn.RMSNorm(4),
        parametrized.spectral_norm(nn.Linear(4, 4)).eval(),
        nn.Softmin(dim=1),
        parametrized.orthogonal(nn.Linear(4, 4)),
        nn.LogSoftmax(dim=1),
        nn.Unflatten(1, (1, 2, 2)),
        nn.Upsample(scale_factor=2),
    )


SQUARE: Callable[[], torch.Tensor] = lambda: torch.randn(4, 4)  # noqa: E731
STEPS: Callable[[], torch.Tensor] = lambda: torch.randn(2, 2, 4)  # noqa: E731

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rms norm without a weight": lambda x: functional.rms_norm(x, (4,), eps=0.1),
    "pad, reflected": padded("reflect"),
    "pad, replicated": padded("replicate"),
    "pad, circular": padded("circular"),
    "flip": lambda x: x.flip(0, -1),
    "index_add": lambda x: x.index_add(0, ROWS, x.cos(), alpha=2),
    "lerp": lambda x: torch.lerp(x, x.cos(), 0.7),
    "lerp by a tensor": lambda x: x.lerp(x.cos(), x.abs()),
    "minimum": lambda x: torch.minimum(x, x.cos() - 0.5),
    "remainder": lambda x: torch.remainder(x, x.cos()) + x % 0.3,
    "round": lambda x: (x * 3).round() + x,
    "unfold": lambda x: x.unfold(1, 2, 1),
    "tile": lambda x: x.tile(2, 1),
    "linspace": lambda x: x * torch.linspace(-1, 2, 4),
    "where": lambda x: x.where(x > 0, torch.zeros(())),
    "a result written where out says": normed,
    "weighed cross entropy": weighed,
    "clone": lambda x: x.T.clone(memory_format=torch.contiguous_format),
    "vdot": lambda x: torch.vdot(x[0], x[1]),
    "divided by a sum": lambda x: x / x.sum(),
    "by a sum of a wider type": lambda x: x * x.double().sum(),
    "the larger of it and a mean": lambda x: torch.where(x > 0, x.mean(), x) + x.clamp(min=x.mean()),
    "by a norm": lambda x: x.sin() * x.norm(),
}

MODULES: dict[str, tuple[Callable[[], Any], Callable[[], torch.Tensor]]] = {
    "lstm": (lambda: Network(nn.LSTM, num_layers=2, bidirectional=True, proj_size=2, batch_first=True), STEPS),
    "gru": (lambda: Network(nn.GRU, bidirectional=True), STEPS),
    "rnn": (lambda: Network(nn.RNN, nonlinearity="relu", bias=False), lambda: torch.randn(2, 4)),
    "several": (several, SQUARE),
}


def test_each_function_is_right() -> None:
    def program(*xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(function(x.sin()) for function, x in zip(FUNCTIONS.values(), xs, strict=True))

    torch.manual_seed(3)
    xs = tuple(torch.randn(4, 4, requires_grad=True) for _ in FUNCTIONS)
    bench = workbench.open(program, *xs, device="cpu", capture="dynamo")
    found = []
    for run in (bench.config.jit(program), program):
        made = run(*xs)
        weighed = [(y * torch.arange(1.0, y.numel() + 1).reshape(y.shape)).sum() for y in made]
        found.append(list(zip(made, torch.autograd.grad(sum(weighed), xs), strict=True)))
    for name, ours, eager in zip(FUNCTIONS, *found, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", MODULES)
def test_each_module_is_right(name: str) -> None:
    build, draw = MODULES[name]
    torch.manual_seed(3)
    program, x = build(), draw().requires_grad_()
    wanted = [x, *program.parameters()]
    bench = workbench.open(program, x, device="cpu", capture="dynamo")
    ours, eager = (
        [made.detach(), *torch.autograd.grad(made.sin().sum(), wanted)]
        for made in (bench.config.jit(program)(x), program(x))
    )
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


def test_half_a_width_is_normed_in_full_width() -> None:
    norm, x = nn.RMSNorm(4).bfloat16(), torch.randn(4, 4, dtype=torch.bfloat16)
    bench = workbench.open(norm, x, device="cpu", capture="dynamo")
    assert torch.equal(bench.config.jit(norm)(x), norm(x))


def test_what_has_no_gradient_is_cut_out_by_line() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        low = torch.kthvalue(x.sin(), 2, 1)[0]
        spread = torch.heaviside(x.detach(), low)  # no gradient of this in PyTorch either
        return (x * spread.detach()).sum()

    x = torch.randn(4, 4, requires_grad=True)
    bench = workbench.open(program, x, device="cpu")
    (opaque,) = [part for part in bench.parts if part.opaque]
    assert "heaviside" in opaque.refusal
    assert "test_written_out.py" in opaque.refusal


def test_an_operator_that_raises_is_cut_out() -> None:
    """Thunder leaves a scope open where an operator's rule raises, and the trace was lost with it."""

    def program(x: torch.Tensor) -> torch.Tensor:
        larger = functional.interpolate(x.sin(), size=(5, 5), mode="bicubic")
        return larger.cos().sum()

    x = torch.randn(1, 1, 4, 4, requires_grad=True)
    bench = workbench.open(program, x, device="cpu")
    assert [part.opaque for part in bench.parts] == [False, True, False]
    ours = torch.autograd.grad(bench.config.jit(program)(x), x)
    torch.testing.assert_close(ours, torch.autograd.grad(program(x), x))
