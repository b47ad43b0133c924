"""Programs with operators that Thunder lacks or cannot differentiate have PyTorch's values and gradients.

Most of these operators stay in one graph. PyTorch runs others as opaque parts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import rnn

import workbench
from workbench.compiler.interop.thunder_api import Symbol
from workbench.compiler.lowering.overrides import LOWERED
from workbench.errors import ProgramError, ProgramWarning

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:FutureWarning", "ignore:.*:UserWarning"),
]

ROWS = torch.tensor([1, 3, 0, 1])


class Network(nn.Module):
    """A recurrent network. The loss includes the network's last state."""

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


def spread(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(4, 4).copy_(x[0]) * x + torch.zeros(2, 4, 4).copy_(x).sum(0) + torch.empty(4, 4).copy_(x.sum())


def into(name: str, *given: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a program that calls an in-place method. Thunder has at most the method's out-of-place version."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.cos()
        getattr(y, name)(*given)
        return y * x

    return program


def by_operators(x: torch.Tensor) -> torch.Tensor:
    y, among = x.cos(), x.detach() > 0
    y %= 0.3
    low = among
    low &= x.detach() < 0.5
    low ^= x.detach() < 0.2
    return torch.where(among, y, x)


def by_keywords(x: torch.Tensor) -> torch.Tensor:
    made = torch.flip(x, dims=[0]) + x.flip(dims=(1,)) + torch.minimum(x, other=x.cos())
    made = made + torch.lerp(input=x, end=x.cos(), weight=0.7) + torch.remainder(x, other=0.3)
    made = made + torch.where(x > 0, input=x, other=x.sin()) + torch.vdot(x[0], other=x[1])
    made = made + x.cos().reshape(shape=x.shape) * torch.ones(4, requires_grad=False, layout=torch.strided)
    return made + x.unfold(dimension=1, size=1, step=1).sum(-1) + functional.dropout(input=x, p=0.0)


def by_keywords_of_numpy(x: torch.Tensor) -> torch.Tensor:
    made = torch.cat([x, x.sin()], axis=1).sum(axis=1, keepdims=True) + torch.stack((x, x.cos()), axis=0).mean(axis=0)
    return made + torch.add(x1=x, x2=x.cos()) + x.softmax(axis=-1) + torch.sum(a=x, axis=0)


def by_numbers_of_numpy(x: torch.Tensor) -> torch.Tensor:
    y = x.cos()
    y *= np.sqrt(x.shape[0])
    return y * -(np.log(float(x.shape[1])) / 3) + torch.as_tensor(x, dtype=torch.float64) + torch.as_tensor(x)


def stacked(x: torch.Tensor) -> torch.Tensor:
    """Use operators on lists of tensors. Unmodified Thunder loses the gradients of the tensors in the lists."""
    wide = torch.hstack((x, x.cos())).sum(1) + torch.hstack((x[0], x[1])).sum()
    high = torch.vstack((x[0], x.cos())).sum(0) + torch.dstack((x, x.sin()))[..., 1].sum(0)
    return wide * high * torch.column_stack((x[0], x.exp()))[:, 0]


def sequences(x: torch.Tensor) -> torch.Tensor:
    parts = [x[:2], x.sin(), x[:1]]
    high = rnn.pad_sequence(parts, padding_value=0.5)
    return (rnn.pad_sequence(parts, batch_first=True) * high.transpose(0, 1).cos()).sum(0)


def put(x: torch.Tensor) -> torch.Tensor:
    rows, columns, ones = torch.tensor([0, -2]), torch.tensor([1, 2]), torch.ones(4, 4)
    made = x.index_put((rows, columns), x[0, :2].exp()) + ones.index_put((rows,), x[1])
    return made + torch.index_put(ones, (rows * 0, columns * 0), x[2, :2], accumulate=True)


def spreads(x: torch.Tensor) -> torch.Tensor:
    made = x.var(1, unbiased=False) + x.std(1, False) + x.var(False) + torch.std(x, unbiased=False)
    deviation, mean = torch.std_mean(x, 1, correction=0)
    variance, _ = torch.var_mean(x, dim=0, unbiased=False)
    return made + deviation * mean + variance + x.std(dim=1, keepdim=True).sum()


def attended(x: torch.Tensor) -> torch.Tensor:
    """Compute attention with a mask that hides all keys from one query."""
    seen = torch.ones(4, 4, dtype=torch.bool).tril()
    seen[2] = False
    added, given = torch.zeros(4, 4).masked_fill(~seen, float("-inf")), x[None, None]
    masked = functional.scaled_dot_product_attention(given, given * 2, given, seen)
    return masked + functional.scaled_dot_product_attention(given, given * 2, given, added, dropout_p=1e-12)


def on_lists(x: torch.Tensor) -> torch.Tensor:
    lerped = torch._foreach_lerp([x, x.cos()], [x.sin(), x * 2], [x.abs(), x.abs()])
    least = torch._foreach_minimum([x], [x.cos()])
    norms = [torch._foreach_norm([x, x * 2], order)[1] for order in (1, 2, float("inf"))]
    half = torch._foreach_norm([(x * 1000).half()])[0].float() / 1000
    return lerped[0] * lerped[1] + least[0] + sum(norms) + half


def differences(x: torch.Tensor) -> torch.Tensor:
    """Estimate derivatives with all forms of spacing that the decomposition of `gradient` accepts."""
    rows, columns = torch.gradient(x)
    first, second = torch.gradient(input=x.exp(), spacing=(0.5, -2.0), edge_order=2)
    (last,) = torch.gradient(x[:3, :2], dim=-1)
    columns_first = torch.gradient(x, spacing=3, dim=(1, 0), edge_order=2)
    (whole,) = torch.gradient((x.detach() * 9).long(), spacing=[0.5], dim=[1])
    made = rows * columns.exp() + first * second + columns_first[0] * columns_first[1].cos()
    return made * whole + last.square().sum()


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

IN_PLACE: dict[str, tuple[Any, ...]] = {
    "lerp_": (torch.ones(4, 4), 0.3),
    "remainder_": (0.3,),
    "round_": (),
    "index_add_": (0, ROWS, torch.ones(4, 4)),
    "fill_": (2.0,),
    "fill_diagonal_": (2.0,),
    "sigmoid_": (),
    "clamp_min_": (0.1,),
}

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rms norm without a weight": lambda x: functional.rms_norm(x, (4,), eps=0.1),
    "layer norm of torch": lambda x: torch.layer_norm(x, (4,), x.mean(0), x.sum(0), 0.1, False),
    "pad, reflected": padded("reflect"),
    "pad, replicated": padded("replicate"),
    "pad, circular": padded("circular"),
    "flip": lambda x: x.flip(0, -1),
    "gradient": differences,
    "index_add": lambda x: x.index_add(0, ROWS, x.cos(), alpha=2),
    "lerp": lambda x: torch.lerp(x, x.cos(), 0.7),
    "lerp by a tensor": lambda x: x.lerp(x.cos(), x.abs()),
    "logaddexp": lambda x: torch.logaddexp(x, x.cos()) + x.logaddexp(x),
    "logaddexp of an infinity": lambda x: x.logaddexp(torch.tensor(-math.inf)),
    "minimum": lambda x: torch.minimum(x, x.cos() - 0.5),
    "remainder": lambda x: torch.remainder(x, x.cos()) + x % 0.3,
    "round": lambda x: (x * 3).round() + x,
    "round to decimals": lambda x: x.round(decimals=1) * x,
    "minimum of whole numbers and others": lambda x: torch.minimum(torch.ones(4, 4, dtype=torch.int64), x),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "tile": lambda x: x.tile(2, 1),
    "linspace": lambda x: x * torch.linspace(-1, 2, 4),
    "linspace of whole numbers": lambda x: x * torch.linspace(0, 10, 4, dtype=torch.int64),
    "keywords": by_keywords,
    "numbers of NumPy": by_numbers_of_numpy,
    "keywords of NumPy": by_keywords_of_numpy,
    "copy_ that broadcasts": spread,
    "in-place operators": by_operators,
    **{f"{name} in place": into(name, *given) for name, given in IN_PLACE.items()},
    "on lists": on_lists,
    "stacked": stacked,
    "sequences": sequences,
    "index_put": put,
    "variances and deviations": spreads,
    "eye": lambda x: x @ torch.eye(4) + torch.eye(3, 4).sum(),
    "attention without a key": attended,
    "in-place dropout of no element": lambda x: functional.dropout(
        functional.hardswish(x * 2, inplace=True), 0.0, inplace=True
    ),
    "where": lambda x: x.where(x > 0, torch.zeros(())),
    "a result written to out": normed,
    "weighted cross entropy": weighed,
    "clone": lambda x: x.T.clone(memory_format=torch.contiguous_format),
    "vdot": lambda x: torch.vdot(x[0], x[1]),
    "divided by a sum": lambda x: x / x.sum(),
    "multiplied by a sum of a wider type": lambda x: x * x.double().sum(),
    "the larger of a value and a mean": lambda x: torch.where(x > 0, x.mean(), x) + x.clamp(min=x.mean()),
    "multiplied by a norm": lambda x: x.sin() * x.norm(),
}

MODULES: dict[str, tuple[Callable[[], Any], Callable[[], torch.Tensor]]] = {
    "lstm": (lambda: Network(nn.LSTM, num_layers=2, bidirectional=True, proj_size=2, batch_first=True), STEPS),
    "gru": (lambda: Network(nn.GRU, bidirectional=True), STEPS),
    "rnn": (lambda: Network(nn.RNN, nonlinearity="relu", bias=False), lambda: torch.randn(2, 4)),
    "several": (several, SQUARE),
}


def test_each_function_equals_eager() -> None:
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


FUSED = {"logaddexp": lambda x: torch.logaddexp(x, x.cos()), "minimum": lambda x: torch.minimum(x, x.cos())}
"""Programs with operators that, without a decomposition, are statements outside of the fusions."""


@pytest.mark.parametrize("name", FUSED)
def test_no_statement_of_a_decomposed_operator_is_outside_of_the_fusions(name: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return FUSED[name](x.sin()).exp().sum()

    bench = workbench.open(program, torch.randn(4, 4, requires_grad=True), device="cpu", executor="torchcompile")
    statements = bench.plan.graph.statements
    outside = [each for each, parent in zip(statements.name, statements.parent.tolist(), strict=True) if parent < 0]
    assert not [each for each in outside if name in each]
    assert any("TorchCompile" in each for each in outside)


@pytest.mark.parametrize("name", MODULES)
def test_each_module_equals_eager(name: str) -> None:
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


@pytest.mark.parametrize("order", [1, 2, float("inf")])
@pytest.mark.parametrize("kind", [torch.complex64, torch.complex128])
def test_foreach_norms_of_complex_tensors_are_real(order: float, kind: torch.dtype) -> None:
    def program(x: torch.Tensor) -> list[torch.Tensor]:
        return torch._foreach_norm([x, x * 2], order)

    x = torch.randn(4, 4, dtype=kind)
    torch.testing.assert_close(workbench.open(program, x, device="cpu").config.jit(program)(x), program(x))


def test_foreach_zero_sets_a_nan_to_zero() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        lost = [x.detach() * float("nan")]
        torch._foreach_zero_(lost)
        return lost[0] + x

    x = torch.randn(4, 4)
    assert torch.equal(workbench.open(program, x, device="cpu").config.jit(program)(x), x)


def test_in_place_draws_follow_their_distribution() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.clone().normal_(2.0, 0.5), x.clone().uniform_(3.0, 4.0)

    x = torch.zeros(10_000)
    normal, uniform = workbench.open(program, x, device="cpu").config.jit(program)(x)
    assert abs(normal.mean() - 2) < 0.05
    assert abs(normal.std() - 0.5) < 0.05
    assert uniform.min() >= 3
    assert uniform.max() < 4
    assert abs(uniform.mean() - 3.5) < 0.05


def test_rms_norm_of_half_precision_equals_eager_bitwise() -> None:
    norm, x = nn.RMSNorm(4).bfloat16(), torch.randn(4, 4, dtype=torch.bfloat16)
    bench = workbench.open(norm, x, device="cpu", capture="dynamo")
    assert torch.equal(bench.config.jit(norm)(x), norm(x))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_atleast_adds_dimensions_to_the_tensors_of_a_list(dims: int) -> None:
    """Unmodified Thunder returns the list unchanged."""
    function = getattr(torch, f"atleast_{dims}d")

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*function([x.sin(), x[0]]), *function(x.cos(), x[0]), function(x))

    x = torch.randn(4, requires_grad=True)
    ours, eager = workbench.open(program, x, device="cpu").config.jit(program)(x), program(x)
    assert [made.shape for made in ours] == [made.shape for made in eager]
    torch.testing.assert_close(ours, eager)


def written(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor that requires a gradient, although Thunder's proxy says that it does not."""
    return torch.zeros(len(x)).add_(x)


def test_gradients_of_a_list_are_not_lost() -> None:
    """Unmodified Thunder calls PyTorch's `meshgrid`. If its arguments are in a list, the results have no gradient."""

    def program(x: torch.Tensor) -> torch.Tensor:
        first, second = torch.meshgrid([written(x), x.cos()], indexing="ij")
        return (first * second.sin()).sum()

    x = torch.randn(4, requires_grad=True)
    bench = workbench.open(program, x, device="cpu", capture="dynamo")
    ours = torch.autograd.grad(bench.config.jit(program)(x), x)
    torch.testing.assert_close(ours, torch.autograd.grad(program(x), x))


@pytest.mark.parametrize("made", [written, torch.sin], ids=["written in place", "computed"])
def test_a_list_whose_gradients_thunder_loses_is_refused(
    made: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(LOWERED, torch.lstm_cell)
    weights = torch.ones(8, 2)

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.lstm_cell(made(x).reshape(2, 2), [x.reshape(2, 2)] * 2, weights, weights)[0].sum()

    x = torch.randn(4, requires_grad=True)
    with pytest.raises(ProgramError, match=r"test_decompositions.py:\d+.*lstm_cell.*loses the gradients of a list"):
        workbench.open(program, x, device="cpu", capture="dynamo")
    workbench.open(program, x.detach(), device="cpu", capture="dynamo")


def test_thunders_interpreter_refuses_a_list_whose_gradients_thunder_loses() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.meshgrid([x.sin(), x], indexing="ij")[0].sum()

    x = torch.randn(4, requires_grad=True)
    with pytest.raises(ProgramError, match=r"test_decompositions.py:\d+.*meshgrid.*loses the gradients of a list"):
        workbench.open(program, x, device="cpu", capture="interpreter")
    workbench.open(program, x.detach(), device="cpu", capture="interpreter")


def test_thunders_interpreter_warns_of_zero_dimensional_values() -> None:
    """With the interpreter, Thunder's gradient of `x / x.sum()` is wrong. With Dynamo, the workbench corrects it."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x / x.sum()).cos().sum()

    def kept(x: torch.Tensor) -> torch.Tensor:
        return (x / x.sum(0, keepdim=True)).cos().sum() * 2

    x = torch.randn(4, requires_grad=True)
    with pytest.warns(ProgramWarning, match=r"test_decompositions.py:\d+ .*x / x.sum\(\).*capture='auto'") as told:
        workbench.open(program, x, device="cpu", capture="interpreter")
    assert len([each for each in told if issubclass(each.category, ProgramWarning)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", ProgramWarning)
        workbench.open(program, x.detach(), device="cpu", capture="interpreter")
        workbench.open(kept, x, device="cpu", capture="interpreter")
        bench = workbench.open(program, x, device="cpu", capture="dynamo")
    ours = torch.autograd.grad(bench.config.jit(program)(x), x)
    torch.testing.assert_close(ours, torch.autograd.grad(program(x), x))


def detached(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    seen.mul_(0.5).add_(x.detach().sum())
    return (x * seen).sum()


def of_steps(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x.sum().sign() + x * x.sum().floor() + seen * torch.zeros_like(x.sum())).sum()


def without_gradients(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        total = x.sum()
    return (x * total).cos().sum()


def not_returned(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    total = seen + x.sum()
    return ((total + x.sum()).detach() * x).sum()


def written_and_read(x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    total = seen.clone()
    total.mul_(0.5).add_(x.sum())
    return (total * x).sum()


@pytest.mark.parametrize("program", [detached, of_steps, without_gradients, not_returned])
def test_thunders_interpreter_does_not_warn_if_gradients_are_right(program: Callable[..., torch.Tensor]) -> None:
    """In these programs, gradients are right, because no gradient passes through a zero-dimensional value."""
    x, seen = torch.randn(4, requires_grad=True), torch.randn(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ProgramWarning)
        bench = workbench.open(program, x, seen, device="cpu", capture="interpreter")
    ours = torch.autograd.grad(bench.config.jit(program)(x, seen.clone()), x)
    torch.testing.assert_close(ours, torch.autograd.grad(program(x, seen.clone()), x))


def test_thunders_interpreter_warns_of_a_value_written_in_place_and_read() -> None:
    with pytest.warns(ProgramWarning, match=r"test_decompositions.py:\d+ .*total.mul_\(0.5\).add_\(x.sum\(\)\)"):
        workbench.open(
            written_and_read, torch.randn(4, requires_grad=True), torch.randn(4), device="cpu", capture="interpreter"
        )


def divided(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (torch.complex(x, y) / torch.complex(y, x).abs()).abs().sum()


def with_exponential(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.exp(torch.complex(x, y))).cos().sum()


def multiplied(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.complex(x, y)
    return torch.view_as_real(z @ z).cos().sum()


def normalized(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(functional.rms_norm(torch.complex(x, y), (3,))).cos().sum()


@pytest.mark.parametrize("program", [divided, with_exponential, multiplied, normalized])
def test_complex_operators_whose_gradients_thunder_gets_wrong_are_run_by_pytorch(
    program: Callable[..., torch.Tensor],
) -> None:
    """Thunder's gradients of these operators lack a conjugate, so PyTorch runs the operators as an opaque part."""
    x, y = torch.rand(3, 3, requires_grad=True), torch.rand(3, 3, requires_grad=True)
    bench = workbench.open(program, x, y, device="cpu")
    assert bench.config.capture == "parts"
    ours = torch.autograd.grad(bench.config.jit(program)(x, y), (x, y))
    torch.testing.assert_close(ours, torch.autograd.grad(program(x, y), (x, y)))
    with pytest.raises(ProgramError, match=r"test_decompositions.py:\d+.*lacks a conjugate.*"):
        workbench.open(program, x, y, device="cpu", capture="interpreter")
    x, y = x.detach(), y.detach()
    alone = workbench.open(program, x, y, device="cpu", capture="dynamo")
    torch.testing.assert_close(alone.config.jit(program)(x, y), program(x, y))


@pytest.mark.parametrize(
    "program",
    [lambda x, p: x.relu() ** p, lambda x, p: torch.pow(x.relu(), p), lambda x, p: x.relu().pow(p), lambda x, p: 2**p],
)
def test_gradients_of_powers_equal_those_of_eager_at_base_zero(
    program: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    """Thunder's gradient is NaN, because Thunder multiplies zero by the logarithm of zero."""
    x, p = torch.linspace(-1, 1, 5, requires_grad=True), torch.full((5,), 2.0, requires_grad=True)
    bench = workbench.open(program, x, p, device="cpu", capture="dynamo")
    alone = p.mean().detach().requires_grad_()
    for given in ((x, p), (x, alone), (x[2].detach().requires_grad_(), alone)):
        ours = torch.autograd.grad(
            bench.config.jit(program)(*given).sum(), given, materialize_grads=True, allow_unused=True
        )
        wanted = torch.autograd.grad(program(*given).sum(), given, materialize_grads=True, allow_unused=True)
        torch.testing.assert_close(ours, wanted)


def turned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(torch.complex(x.sin(), y) * torch.polar(torch.ones_like(y), y)).cos().sum()


def rotated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Apply rotary embeddings as in Llama. One complex factor has no gradient, and another one is a Python number."""
    pairs = torch.view_as_complex(x.reshape(3, 2, 2)) * torch.polar(torch.ones(2), torch.arange(2.0))
    return torch.view_as_real(pairs * (0.5 + 2j) * y[:, :2]).flatten(1).sin().sum()


def transformed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.fft.fft(torch.complex(x, y)) * 0.5 + 1
    return (z.abs() + z.real * z.imag + torch.real(z) / 2).sin().sum()


@pytest.mark.parametrize(
    ("program", "capture"),
    [
        *((turned, "dynamo"), (turned, "interpreter"), (rotated, "dynamo"), (rotated, "interpreter")),
        # Not with the interpreter, because Thunder then has no gradient of `Tensor.real`.
        (transformed, "dynamo"),
    ],
)
def test_complex_operators_whose_gradients_are_right_are_one_graph(
    program: Callable[..., torch.Tensor], capture: str
) -> None:
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(3, 4, requires_grad=True)
    bench = workbench.open(program, x, y, device="cpu", capture=capture)
    ours = torch.autograd.grad(bench.config.jit(program)(x, y), (x, y))
    torch.testing.assert_close(ours, torch.autograd.grad(program(x, y), (x, y)))


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_recurrent_cell_equals_eager(cell: type[nn.Module]) -> None:
    """Unmodified Thunder loses the gradients of an LSTM cell's state, because the state is a list."""
    torch.manual_seed(0)
    module = cell(3, 4)

    def program(x: torch.Tensor) -> torch.Tensor:
        made = module(x[0])
        for step in x[1:]:
            made = module(step, made)
        return made[0].sin().sum() if isinstance(made, tuple) else made.sin().sum()

    x, wanted = torch.randn(3, 2, 3), tuple(module.parameters())
    bench = workbench.open(program, x, device="cpu", capture="dynamo")
    ours = torch.autograd.grad(bench.config.jit(program)(x), wanted)
    torch.testing.assert_close(ours, torch.autograd.grad(program(x), wanted))


def test_an_operator_without_a_gradient_becomes_a_part_with_its_line() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        low = torch.kthvalue(x.sin(), 2, 1)[0]
        spread = torch.heaviside(x.detach(), low)  # has no gradient in PyTorch either
        return (x * spread.detach()).sum()

    x = torch.randn(4, 4, requires_grad=True)
    bench = workbench.open(program, x, device="cpu")
    (opaque,) = [part for part in bench.parts if part.opaque]
    assert "heaviside" in opaque.refusal
    assert "test_decompositions.py" in opaque.refusal


@pytest.mark.parametrize("order", [1, 2])
def test_a_gradient_of_half_precision_equals_eager_bitwise(order: int) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.gradient(x, spacing=0.3, dim=1, edge_order=order)[0]

    x = torch.randn(9, 9, dtype=torch.float16)
    bench = workbench.open(program, x, device="cpu", capture="dynamo")
    assert torch.equal(bench.config.jit(program)(x), program(x))


def test_a_gradient_with_coordinates_as_spacing_becomes_a_part() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.gradient(x.sin(), spacing=(x[0].detach().cumsum(0),), dim=1)[0].cos().sum()

    x = torch.rand(4, 4, requires_grad=True)
    bench = workbench.open(program, x, device="cpu")
    (opaque,) = [part for part in bench.parts if part.opaque]
    assert "gradient with a spacing of tensors" in opaque.refusal
    ours = torch.autograd.grad(bench.config.jit(program)(x), x)
    torch.testing.assert_close(ours, torch.autograd.grad(program(x), x))


def test_an_operator_whose_rule_raises_an_error_becomes_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a rule raises an error, Thunder leaves a scope open. Later statements must not get lost in this scope."""

    def rule(a: Any) -> Any:
        raise NotImplementedError(f"nothing is made of {(a + 1).name}")

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.sinh(x.sin()).cos().sum()

    monkeypatch.setitem(LOWERED, torch.sinh, Symbol("odd", rule))
    x = torch.randn(1, 1, 4, 4, requires_grad=True)
    bench = workbench.open(program, x, device="cpu")
    assert [part.opaque for part in bench.parts] == [False, True, False]
    ours = torch.autograd.grad(bench.config.jit(program)(x), x)
    torch.testing.assert_close(ours, torch.autograd.grad(program(x), x))


@pytest.mark.parametrize("order", [1, 2, 3, math.inf])
@pytest.mark.parametrize("name", ["_foreach_norm", "norm", "vector_norm"])
def test_the_gradient_of_a_norm_equals_eagers_also_at_zero(name: str, order: float) -> None:
    def program(zeros: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if name == "_foreach_norm":
            made: torch.Tensor = torch.stack(torch._foreach_norm([zeros, x], order)).sum()
            return made
        norm: Callable[..., torch.Tensor] = torch.norm if name == "norm" else torch.linalg.vector_norm
        return norm(zeros, order) + norm(x, order)

    given = torch.zeros(3, requires_grad=True), torch.tensor([1.0, -2.0, 0.0, 2.0], requires_grad=True)
    expected = torch.autograd.grad(program(*given), given)
    bench = workbench.open(program, *given, device="cpu", executor="torch")
    assert bench.capture == "dynamo"
    found = torch.autograd.grad(bench.config.jit(program)(*given), given)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("weight", [0.3, 0.7, "tensor"])
def test_lerp_of_bfloat16_rounds_once_as_in_eager(weight: Any) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.lerp(x, y, y.abs() if weight == "tensor" else weight)

    x, y = torch.randn(2, 64, 64, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0))
    compiled = workbench.open(program, x, y, executor="torch", device="cpu", capture="dynamo").config.jit(program)
    # PyTorch's kernel rounds the product and the sum in float32 together, which may turn the last bit.
    assert (compiled(x, y) != program(x, y)).float().mean() < 0.002
