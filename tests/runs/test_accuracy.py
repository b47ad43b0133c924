"""The accuracy check of a compiled program accepts right results, and names each wrong tensor."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import thunder
import torch
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

import workbench
from workbench.compiler.driver import stock_thunder
from workbench.compiler.planner import kernel_identity
from workbench.core.config import Config
from workbench.errors import ProgramError
from workbench.runs.measure import accuracy, in_double, own_errors, tensor_diff
from workbench.runs.measure.accuracy import Accuracy, Parts, Stepper


def outcome(build: Callable[[], Parts], change: Callable[[Any], Any] = lambda callable_: callable_) -> Accuracy:
    """Build a program, change it with `change`, and check the changed program as if it were the compiled one."""
    original, args, kwargs = build()
    recorded = accuracy.first_step(Stepper(original, args, kwargs, change(original)), 0)
    return accuracy.check_first_step(recorded, build)


def module(make: Callable[[], nn.Module]) -> Callable[[], Parts]:
    def build() -> Parts:
        torch.manual_seed(1)
        return make(), (torch.randn(8, 4, requires_grad=True),), {}

    return build


def product() -> Parts:
    generator = torch.Generator().manual_seed(1)
    return (
        (lambda x, *, y: torch.tanh(x) * y),
        (torch.randn(8, 4, generator=generator, requires_grad=True),),
        {"y": torch.randn(8, 4, generator=generator, requires_grad=True)},
    )


class Doubled(torch.autograd.Function):
    """A function with a right forward and a wrong backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return 2 * grad


def rows(*given: dict[int, float]) -> torch.Tensor:
    """Return a sparse matrix with the given rows. If a row is given twice, the matrix has the sum of both."""
    at = torch.tensor([[row for each in given for row in each]], dtype=torch.int64)
    held = torch.tensor([[value] * 2 for each in given for value in each.values()]).reshape(-1, 2)
    return torch.sparse_coo_tensor(at, held, (5, 2))


class Rows(nn.Module):
    """A module with an embedding whose gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(6, 4, sparse=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.rows(torch.tensor([1, 2, 1])).tanh() + x[:3]).sum()


def test_a_right_program_agrees_with_thunder_and_eager() -> None:
    checked = outcome(product)
    assert checked.ok
    assert checked.against == "thunder.jit and eager"
    assert {tensor.name for tensor in checked.tensors} == {"output", "grad(args[0])", "grad(kwargs['y'])"}
    # A notebook prints the accuracy in one line, without its list of tensors.
    assert "max_error=" in repr(checked)
    assert "TensorError" not in repr(checked)


def test_a_wrong_output_is_caught() -> None:
    checked = outcome(product, lambda f: lambda x, y: f(x, y=y) + 1e-2)
    assert not checked.ok
    assert checked.max_error == pytest.approx(1e-2, rel=1e-3)
    assert checked.worst is not None
    assert checked.worst.name == "output"


def test_a_wrong_gradient_is_caught_though_the_output_is_right() -> None:
    checked = outcome(product, lambda f: lambda x, y: f(Doubled.apply(x), y=y))
    assert not checked.ok
    assert [tensor.name for tensor in checked.tensors if not tensor.ok] == ["grad(args[0])"] * 3


@pytest.mark.slow
def test_double_precision_measures_the_error_of_single_precision() -> None:
    checked = outcome(module(lambda: nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))))
    assert checked.ok
    worst = checked.worst_float64
    assert worst is not None
    assert worst.dtype == "float32"
    assert 1e-9 < worst.max_rel_error < 1e-5
    assert checked.worst is not None
    assert checked.worst.against != "float64"


@dataclasses.dataclass
class Losses:
    loss: torch.Tensor
    parts: dict[str, torch.Tensor]


@pytest.mark.slow
def test_all_fields_of_a_dataclass_are_compared_and_differentiated() -> None:
    def losses(x: torch.Tensor) -> Losses:
        return Losses(x.sin().sum(), {"cosine": x.cos()})

    def build() -> Parts:
        return losses, (torch.ones(4, requires_grad=True),), {}

    def off(f: Callable[..., Losses]) -> Callable[..., Losses]:
        return lambda x: dataclasses.replace(f(x), parts={"cosine": Doubled.apply(x.cos())})

    def recorded(change: Callable[[Any], Any]) -> Accuracy:
        program, args, kwargs = build()
        first = accuracy.first_step(Stepper(program, args, kwargs, change(program)), 0)
        return accuracy.check_first_step(first, build, capture="dynamo")

    right = recorded(lambda f: f)
    assert right.ok
    assert {tensor.name for tensor in right.tensors} == {"output.loss", "output.parts['cosine']", "grad(args[0])"}
    wrong = recorded(off)
    assert {tensor.name for tensor in wrong.tensors if not tensor.ok} == {"grad(args[0])"}


@pytest.mark.parametrize("random", [False, True])
def test_the_interpreter_is_not_a_reference_for_a_program_in_parts(
    random: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thunder's interpreter refuses programs with graph breaks. For one program, the refusal took 8 minutes."""
    tried: list[str] = []
    compile_it = accuracy.compile_unmodified

    def recorded(program: Callable[..., Any], variant: str) -> Callable[..., Any]:
        tried.append(variant)
        return compile_it(program, variant)

    def cut(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return (torch.nn.functional.dropout(x) if random else x.sin()).sum()

    def build() -> Parts:
        return cut, (torch.ones(4, requires_grad=True),), {}

    monkeypatch.setattr(accuracy, "compile_unmodified", recorded)
    config = workbench.open(cut, *build()[1], device="cpu", executor="torch").config
    assert config.capture == "parts"
    stepper = Stepper(cut, *build()[1:], config.jit(cut))
    assert accuracy.check_first_step(accuracy.first_step(stepper, 0), build, capture="parts").ok
    assert tried == ([] if random else ["thunderfx"])


def test_a_program_with_only_integer_outputs_has_no_backward_and_passes() -> None:
    def counts(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x[0] * 4).long(), x > 0

    def build() -> Parts:
        return counts, (torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_(),), {}

    for capture in ("dynamo", "interpreter"):
        bench = workbench.open(counts, *build()[1], device="cpu", executor="torch", capture=capture)
        assert "backward_fn" not in bench.plan.text()
        assert outcome(build, bench.config.jit).ok


def test_a_step_without_the_backward_of_its_plan_fails() -> None:
    class Hidden:
        __slots__ = ("value",)

        def __init__(self, value: torch.Tensor) -> None:
            self.value = value

    jitted = thunder.jit(lambda x: x.sin())
    x = torch.ones(3, requires_grad=True)

    def hides(x: torch.Tensor) -> Hidden:
        return Hidden(jitted(x))

    hides._lc_cs = jitted._lc_cs  # type: ignore[attr-defined]
    with pytest.raises(ProgramError, match="the plan has a backward, but the step ran none"):
        accuracy.first_step(Stepper(hides, (x,), {}), 0)


@pytest.mark.parametrize(("shift", "ok"), [(0.0, True), (8.0, False)])
def test_a_result_as_near_to_float64_as_the_result_of_eager_is_right(shift: float, ok: bool) -> None:
    def build() -> Parts:
        x = torch.randn(64, generator=torch.Generator().manual_seed(1))
        return (lambda x: ((x + 1e4) - 1e4) * 1e3), (x,), {}

    checked = outcome(build, lambda _: lambda x: (x * 1e3 + 1e7) - 1e7 + shift)
    share = max(tensor.max_rel_error for tensor in checked.tensors if tensor.against == "eager")
    assert share > tensor_diff.RELATIVE_TOLERANCE[torch.float32]
    assert checked.ok is ok


@pytest.mark.parametrize("same", [True, False])
def test_if_single_precision_is_unstable_only_the_bits_of_the_reference_are_right(
    monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """Simulate a program for which all float32 results, even right ones, are far from the float64 result."""
    w, x = torch.randn(8, 8), torch.randn(8, 8)
    function = lambda x, w: torch.tanh(x @ w)  # noqa: E731
    build = lambda: (function, (x, w), {})  # noqa: E731
    for module_ in (accuracy, own_errors, tensor_diff):
        monkeypatch.setattr(module_, "SPREAD", 0.0)
    monkeypatch.setitem(accuracy.RELATIVE_TOLERANCE, torch.float32, 1e-12)
    recorded = accuracy.first_step(accuracy.Stepper(*build()), 0)
    if not same:
        entry = recorded["output"]
        recorded["output"] = dataclasses.replace(entry, value=entry.value + 1e-6)
    found = accuracy.check_first_step(recorded, build, seed=0, kernels={})
    assert found.bitwise is same
    assert found.unstable is same
    assert found.ok is same
    assert ("float32 itself is unstable here" in found.words) is same


def test_a_result_of_rounding_errors_alone_is_called_unstable() -> None:
    """The checked step is bitwise equal to unmodified Thunder, but not to eager PyTorch. All are far from float64."""

    def build() -> Parts:
        x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
        return (lambda x: torch.nn.functional.batch_norm(x.mean((2, 3)) * 1e3, None, None, training=True)), (x,), {}

    module, args, kwargs = build()
    stepper = Stepper(module, args, kwargs, thunder.jit(module))
    checked = accuracy.check_first_step(accuracy.first_step(stepper, 0), build, kernels={})
    assert checked.ok
    assert checked.worst_float64 is not None
    assert checked.worst_float64.max_rel_error > 0.01
    assert checked.unstable
    assert checked.words.endswith("float32 itself is unstable here: eager PyTorch is as far from double precision")


def logistic(x: torch.Tensor, steps: int, factored: bool = True) -> torch.Tensor:
    """Iterate the logistic map. Each step doubles the error."""
    for _ in range(steps):
        x = 4 * x * (1 - x) if factored else 4 * x - 4 * x * x
    return x


@pytest.mark.parametrize(("scale", "ok"), [(1.0, True), (1.5, False)])
def test_rounding_in_an_unstable_program_is_no_error_of_a_plan(scale: float, ok: bool) -> None:
    """The error of the second output in eager PyTorch is by chance small, and that of another order of terms is not."""
    single = torch.tensor([0.416])

    def build() -> Parts:
        many = torch.linspace(0.1, 0.9, 64)
        return (lambda x, y: (logistic(x, 24), logistic(y, 17))), (many, single.clone()), {}

    exact = logistic(single.double(), 17)
    by_eager, other = (float((logistic(single, 17, factored) - exact).abs()) for factored in (True, False))
    assert other > 10 * by_eager
    assert other > 10 * tensor_diff.RELATIVE_TOLERANCE[torch.float32]
    checked = outcome(build, lambda _: lambda x, y: (logistic(x, 24, False), scale * logistic(y, 17, False)))
    assert checked.unstable
    assert {error.name for error in checked.tensors if not error.ok} == (set() if ok else {"output[1]"})


@pytest.mark.parametrize(("shift", "ok"), [(0.0, True), (1e-3, False)])
def test_a_sum_that_rounds_to_zero_by_chance_is_not_demanded_to_be_zero(shift: float, ok: bool) -> None:
    def centered(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (8,))

    def inputs(seed: int) -> torch.Tensor:
        return torch.randn(8, generator=torch.Generator().manual_seed(seed))

    def in_another_order(x: torch.Tensor) -> torch.Tensor:
        return centered(x).cumsum(0)[-1]

    def is_zero_by_chance(x: torch.Tensor) -> bool:
        return bool(centered(x).sum() == centered(x.double()).sum() == 0 != in_another_order(x))

    x = next(filter(is_zero_by_chance, map(inputs, range(1000))))

    def build() -> Parts:
        return (lambda x: centered(x).sum().square()), (x.clone(),), {}

    checked = outcome(build, lambda _: lambda x: in_another_order(x).square() + shift)
    assert checked.ok is ok


def rounded(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ x.t()).float()


def cast(x: torch.Tensor) -> torch.Tensor:
    return (x.bfloat16() @ x.bfloat16().t()).float()


def widened(x: torch.Tensor) -> torch.Tensor:
    return (x.bfloat16().float() @ x.t()).float()


@pytest.mark.parametrize("program", [rounded, cast, widened])
def test_a_program_that_rounds_to_bfloat16_gets_the_tolerance_of_bfloat16(
    program: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    def build() -> Parts:
        return program, (torch.randn(8, 8, generator=torch.Generator().manual_seed(0), requires_grad=True),), {}

    def checked(share: float) -> Accuracy:
        recorded = accuracy.first_step(Stepper(*build()), 0)
        entry = recorded["output"]
        off = entry.value + share * tensor_diff.size_of(entry.value)
        return accuracy.check_first_step({**recorded, "output": dataclasses.replace(entry, value=off)}, build)

    assert checked(0.02).ok
    assert not checked(0.3).ok


def test_a_program_in_float32_gets_the_tolerance_of_float32() -> None:
    def build() -> Parts:
        return (lambda x: x @ x.t()), (torch.randn(8, 8, generator=torch.Generator().manual_seed(0)),), {}

    recorded = accuracy.first_step(Stepper(*build()), 0)
    entry = recorded["output"]
    off = entry.value * 1.02
    assert not accuracy.check_first_step({**recorded, "output": dataclasses.replace(entry, value=off)}, build).ok


def test_a_stable_program_is_not_called_unstable() -> None:
    checked = outcome(lambda: (lambda x: torch.tanh(x @ x.t()), (torch.randn(8, 8, requires_grad=True),), {}))
    assert checked.ok
    assert not checked.unstable


@pytest.mark.parametrize(
    ("result", "ok"),
    [
        ([1.5, math.inf, math.nan], True),
        # This run kept an intermediate result in higher precision, and did not overflow where eager PyTorch did.
        ([1.5, 4e4, math.nan], True),
        ([1.5, math.inf, 0.0], True),
        ([4e3, math.inf, math.nan], False),
        ([1.5, -math.inf, math.nan], False),
        ([1.5, 1e3, math.nan], False),
        ([1.5, math.nan, math.nan], False),
        ([1.5, math.inf, 5e3], False),
        ([math.inf, math.inf, math.nan], False),
    ],
)
def test_an_overflow_in_eager_pytorch_allows_no_error_elsewhere(result: list[float], ok: bool) -> None:
    def build() -> Parts:
        x, up, down = (torch.tensor(values).half() for values in ((1.5, 4e4, 6e4), (4, 4, 4), (0.25, 0.25, 0)))
        return (lambda x, up, down: x * up * down), (x, up, down), {}

    recorded = accuracy.first_step(Stepper(*build()), 0)
    entry = recorded["output"]
    assert entry.value is not None
    assert not entry.value[1:].isfinite().any()
    value = torch.tensor(result).half()
    found = accuracy.check_first_step({**recorded, "output": dataclasses.replace(entry, value=value)}, build)
    assert found.ok is ok


def test_a_program_that_cannot_run_in_double_precision_is_compared_with_single_precision_only() -> None:
    def product(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.detach().numpy().astype("complex64").real.copy()).mm(x)

    def single_only(x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not torch.float32:
            raise TypeError("float32 only")
        return x.exp()

    for program, doubled in ((single_only, False), (product, True)):
        checked = outcome(lambda program=program: (program, (torch.ones(2, 2),), {}))
        assert checked.ok
        assert (checked.worst_float64 is not None) is doubled


def _of_labels(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.binary_cross_entropy(x.sigmoid(), labels.float())


def _of_constants(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (x @ torch.ones(4, 2) @ torch.eye(2, dtype=torch.float32)).sum() + labels.sum()


def _of_selected_rows(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    found = torch.zeros(2, 4, dtype=torch.float32)
    found[labels > 0] = x[labels > 0]
    return found.sum()


@pytest.mark.parametrize("program", [_of_labels, _of_constants, _of_selected_rows])
def test_a_program_that_asks_for_float32_is_compared_with_double_precision(program: Callable[..., Any]) -> None:
    def build() -> Parts:
        x = torch.linspace(-1, 1, 8).view(2, 4).requires_grad_()
        return program, (x, torch.tensor([[0, 1, 0, 1], [1, 0, 1, 1]])), {}

    checked = outcome(build)
    assert checked.ok
    assert checked.worst_float64 is not None
    assert torch.get_default_dtype() is torch.float32


def test_writes_into_float32_are_kept_while_float64_is_asked_for() -> None:
    """The memory is the program's own, as of a layer that uses a buffer again, so that it stays in float32."""
    first, empty, listed = torch.zeros(2, 2), torch.zeros(0), torch.zeros(2, 2)
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    with in_double.widened() as mode:
        assert not mode.has_acted
        assert torch.add(x, first, out=first) is first
        torch.add(x, x, out=first.t())
        torch.matmul(x, x, out=empty)
        torch._foreach_add_([x.clone(), listed], [x, x])
        assert torch.equal(listed, x.float())
        with torch.inference_mode():
            torch.mul(x, 2, out=listed)
        assert mode.has_acted
    assert {each.dtype for each in (first, empty, listed)} == {torch.float32}
    torch.testing.assert_close(first, (x + x).t().float())
    torch.testing.assert_close(empty, (x @ x).float())
    torch.testing.assert_close(listed, (2 * x).float())


class Branch(nn.Module):
    """Computes something else if a result in float32 is not in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 64).view(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x @ self.weight).float()
        return (y if y.dtype is torch.float32 else 100 * y).sum()


def test_a_program_that_means_something_else_in_float64_allows_no_error() -> None:
    def build() -> Parts:
        return Branch(), (torch.linspace(-1, 2, 64).view(8, 8),), {}

    checked = outcome(build)
    assert checked.ok
    assert not checked.unstable
    assert checked.worst_float64 is None
    words = dataclasses.replace(checked, bitwise=True, changed_kernels=()).words
    assert words.endswith("no reference for output and 1 more: the program may compute something else in it")
    recorded = accuracy.first_step(Stepper(*build()), 0)
    for name in ("output", "grad(weight)"):
        entry = recorded[name]
        assert entry.value is not None
        recorded[name] = dataclasses.replace(entry, value=1.01 * entry.value)
    wrong = accuracy.check_first_step(recorded, build)
    assert {error.name for error in wrong.tensors if not error.ok} == {"output", "grad(weight)"}


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_asks_for_float32_takes_its_optimizer_to_double_precision(fused: bool) -> None:
    def build() -> Parts:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1), nn.Sigmoid())
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)

        def step(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy(model(x)[:, 0], labels.float())
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, (torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 1, 0])), {}

    checked = outcome(build)
    assert checked.ok
    assert checked.worst_float64 is not None
    # The gradient of a bias before a normalization consists of rounding errors, and Adam scales it to its rate.
    assert checked.unstable


def test_attention_counts_as_random_only_with_dropout() -> None:
    def build(dropout: float) -> Parts:
        torch.manual_seed(1)
        query = torch.randn(1, 2, 8, 4, requires_grad=True)
        return (lambda x: nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=dropout)), (query,), {}

    for dropout, draws in ((0.0, False), (0.5, True)):
        callable_, args, _ = build(dropout)
        with accuracy.ForwardWatch() as watch:
            callable_(*args)
        assert watch.random is draws


@pytest.mark.slow
def test_a_program_with_flex_attention_is_compared_with_eager() -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        return flex_attention(x, x, x, score_mod=lambda score, b, h, q, k: score + (q - k)).square().mean()

    checked = outcome(lambda: (attend, (torch.linspace(0, 1, 64).view(1, 2, 4, 8),), {}))
    assert checked.ok
    assert checked.against == "PyTorch eager"


def test_a_watched_flex_attention_keeps_the_gradient_of_a_captured_tensor() -> None:
    # PyTorch 2.11 and later refuse gradients of the queries on a CPU.
    x = torch.linspace(0, 1, 64).view(1, 2, 4, 8)
    slope = torch.tensor([0.1, 0.2], requires_grad=True)

    def loss() -> torch.Tensor:
        return flex_attention(x, x, x, score_mod=lambda score, b, h, q, k: score + slope[h] * (q - k)).square().mean()

    (expected,) = torch.autograd.grad(loss(), slope)
    with accuracy.ForwardWatch():
        watched = loss()
    for made in (watched, loss()):
        (found,) = torch.autograd.grad(made, slope)
        torch.testing.assert_close(found, expected)


def test_a_missing_gradient_is_infinitely_wrong() -> None:
    checked = outcome(product, lambda f: lambda x, y: f(x.detach(), y=y))
    assert checked.max_error == math.inf
    assert checked.worst is not None
    assert checked.worst.name == "grad(args[0])"


@pytest.mark.slow
def test_numbers_from_python_and_numpy_are_equal_in_all_steps() -> None:
    """A model of speech, for example, draws its masks from NumPy's generator."""

    def draw(x: torch.Tensor) -> torch.Tensor:
        return x * random.random() + torch.from_numpy(np.random.rand(4).astype("float32"))  # noqa: NPY002

    assert outcome(lambda: (draw, (torch.ones(4, requires_grad=True),), {})).ok


@pytest.mark.slow
def test_a_random_program_is_compared_with_thunder_only() -> None:
    checked = outcome(module(lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))), accuracy.compile_unmodified)
    assert checked.ok
    assert checked.against == "thunder.jit"


def planned(build: Callable[[], Parts], draws_differ: tuple[str, ...] = ()) -> Accuracy:
    """Run one step of the stock plan; return its accuracy."""
    original, args, kwargs = build()
    bench = workbench.open(original, *args, **kwargs, device="cpu", executor="torch")
    original, args, kwargs = build()
    jitted = bench.config.jit(original)
    recorded = accuracy.first_step(Stepper(original, args, kwargs, jitted), 0)
    kernels = kernel_identity.kernels_of(jitted)
    return accuracy.check_first_step(recorded, build, kernels=kernels, capture=bench.capture, draws_differ=draws_differ)


def cubed() -> Parts:
    chance = torch.Generator().manual_seed(1)
    z = torch.randn(4, dtype=torch.complex64, generator=chance).requires_grad_()
    return (lambda z: (z * z * z).abs().sum()), (z,), {}


@pytest.mark.slow
def test_if_unmodified_thunder_is_wrong_eager_is_the_reference_and_the_reason_is_given() -> None:
    checked = planned(cubed)
    assert (checked.ok, checked.against, checked.bitwise) == (True, "PyTorch eager", None)
    assert "thunderfx is wrong here: grad(args[0]) is off by" in checked.why
    assert checked.words == f"compared with PyTorch eager, because {checked.why}"
    # If the checked step has the same error as unmodified Thunder, Thunder remains a reference, and the step fails the
    # comparison with eager PyTorch.
    wrong = outcome(cubed, thunder.jit)
    assert (wrong.ok, wrong.against, wrong.bitwise) == (False, "thunder.jit and eager", True)


@pytest.mark.slow
def test_if_thunder_draws_new_numbers_for_a_gradient_eager_is_the_reference() -> None:
    checked = planned(module(lambda: nn.Sequential(nn.Linear(4, 4), nn.AlphaDropout(0.5))))
    assert (checked.ok, checked.against) == (True, "PyTorch eager")
    assert "thunder.jit is wrong here" in checked.why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "bitwise"),
    [(lambda: nn.LSTM(4, 4), False), (lambda: nn.ReflectionPad1d(1), True), (lambda: nn.Linear(4, 4), True)],
    ids=["lstm", "pad", "linear"],
)
def test_a_program_that_dynamo_traces_is_compared_with_thunderfx(make: Callable[[], nn.Module], bitwise: bool) -> None:
    checked = planned(module(make))
    assert (checked.ok, checked.against, checked.bitwise) == (True, "thunderfx and eager", bitwise)
    assert checked.why == ""


def raise_in_thunder(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def compiled(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr(
        stock_thunder, "thunder_api", SimpleNamespace(jit=lambda _: compiled, thunderfx=lambda _: compiled)
    )


def test_a_program_that_thunder_refuses_is_compared_with_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in_thunder(monkeypatch, NotImplementedError("no function"))
    checked = outcome(product)
    assert (checked.ok, checked.against, checked.bitwise) == (True, "PyTorch eager", None)
    words = "refuses it (NotImplementedError: no function)"
    assert checked.why == f"thunder.jit {words}; thunderfx {words}"


def test_memory_that_runs_out_inside_thunder_is_not_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("compilation failed")
    error.__cause__ = MemoryError()
    raise_in_thunder(monkeypatch, error)
    with pytest.raises(RuntimeError, match="compilation failed"):
        outcome(product)


@pytest.mark.slow
def test_if_unmodified_thunder_draws_again_in_the_backward_the_stock_plan_is_the_reference() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> Any:
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)

    assert not planned(module(Checkpointed)).ok
    checked = planned(module(Checkpointed), ("it draws again",))
    assert (checked.ok, checked.against, checked.why, checked.bitwise) == (
        True,
        "stock plan",
        f"it draws again; {accuracy.STOCK_IS}",
        None,
    )


@pytest.mark.slow
def test_dropout_drawn_again_in_the_backward_is_caught() -> None:
    class DrawsAgain(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> Any:
            return torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False, preserve_rng_state=False)

    build = module(lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)))
    original, args, kwargs = build()
    compiled = thunder.jit(DrawsAgain(original))  # Thunder does not restore the random state in a checkpoint
    wrong = accuracy.first_step(Stepper(original, args, kwargs, lambda x: compiled(x)), 0)
    checked = accuracy.check_first_step(wrong, build)
    assert not checked.ok
    assert all(tensor.ok for tensor in checked.tensors if tensor.name == "output")


@pytest.mark.slow
def test_sparse_gradients_are_compared() -> None:
    found = outcome(module(Rows))
    assert found.ok
    names = [error.name for error in found.tensors]
    assert names.count("grad(rows.weight)") == 3

    def off(network: nn.Module) -> Callable[..., Any]:
        network.rows.weight.register_hook(lambda grad: grad * 1.01)
        return network

    wrong = outcome(module(Rows), off)
    assert {error.name for error in wrong.tensors if not error.ok} == {"grad(rows.weight)"}


@pytest.mark.slow
def test_changed_buffers_are_compared() -> None:
    build = module(lambda: nn.BatchNorm1d(4))
    assert "buffer(running_mean)" in {tensor.name for tensor in outcome(build, accuracy.compile_unmodified).tensors}

    def without_update(norm: nn.BatchNorm1d) -> Any:
        return lambda x: nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True)

    checked = outcome(build, without_update)
    failed = {tensor.name for tensor in checked.tensors if not tensor.ok}
    assert failed == {"buffer(running_mean)", "buffer(running_var)", "buffer(num_batches_tracked)"}


def test_changed_inputs_are_compared() -> None:
    def build() -> Parts:
        return (lambda x: x.add_(1)), (torch.arange(4.0),), {}

    assert "args[0]" in {tensor.name for tensor in outcome(build).tensors}
    checked = outcome(build, lambda f: lambda x: x + 1)
    assert {tensor.name for tensor in checked.tensors if not tensor.ok} == {"args[0]"}


def test_parameters_that_a_function_closes_over_are_compared() -> None:
    def build() -> Parts:
        torch.manual_seed(1)
        layer = nn.Linear(4, 4)
        return (lambda x: torch.tanh(layer(x))), (torch.randn(8, 4),), {}

    original, args, kwargs = build()
    assert set(Stepper(original, args, kwargs).parameters) == {"layer.weight", "layer.bias"}


def test_a_program_with_other_inputs_in_each_build_cannot_be_compared() -> None:
    count = iter(range(100))

    def build() -> Parts:
        return torch.tanh, (torch.full((4,), float(next(count))),), {}

    with pytest.raises(ProgramError, match="starts from different values"):
        outcome(build)


def test_one_check_does_not_affect_the_next() -> None:
    def build() -> Parts:
        return (lambda x: x.mul_(2)), (torch.ones(4),), {}

    assert outcome(build, accuracy.compile_unmodified).ok


@pytest.mark.parametrize(
    ("ours", "theirs", "ok"),
    [
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan]), True),
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0]), False),
        (torch.tensor([math.inf, -math.inf]), torch.tensor([math.inf, -math.inf]), True),
        (torch.tensor([math.inf]), torch.tensor([-math.inf]), False),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), False),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64), False),
        (torch.zeros(2, 3), torch.zeros(3, 2), False),
        (torch.zeros(0), torch.zeros(0), True),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 1j]), True),
        (torch.tensor([1 + 1j]), torch.tensor([1 + 2j]), False),
        (rows({1: 2.0, 3: 4.0}), rows({1: 2.0, 3: 4.0}), True),
        (rows({1: 2.0}, {1: 1.0}), rows({1: 3.0}), True),
        (rows({1: 2.0}), rows({1: 2.1}), False),
        (rows({1: 2.0}), rows({3: 2.0}), False),
        (rows({1: 2.0}), rows({1: 2.0}).to_dense(), False),
        (rows({}), rows({}), True),
    ],
)
def test_special_values_are_compared(ours: torch.Tensor, theirs: torch.Tensor, ok: bool) -> None:
    recorded = [{"output": tensor_diff.RecordedTensor("output", tensor)} for tensor in (ours, theirs)]
    (error,) = tensor_diff.compare_tensors(*recorded, "reference")
    assert error.ok is ok
    assert not math.isnan(error.max_abs_error)


@pytest.mark.parametrize("name", ["grad(weight)", "parameter(weight)"])
def test_if_one_side_lacks_a_tensor_the_message_names_the_side(name: str) -> None:
    held = {name: tensor_diff.RecordedTensor(name.partition("(")[0], torch.ones(2))}
    (ours,) = tensor_diff.compare_tensors({}, held, "eager")
    (theirs,) = tensor_diff.compare_tensors(held, {}, "eager")
    assert (ours.ok, ours.lacks, theirs.ok, theirs.lacks) == (False, "this run", False, "eager")
    verbs = ("lacks", "has") if name.startswith("grad") else ("does not write", "writes")
    assert ours.difference == f"this run {verbs[0]} {name}, which eager {verbs[1]}"
    assert theirs.difference == f"eager {verbs[0]} {name}, which this run {verbs[1]}"


def test_a_parameter_that_only_one_side_writes_is_compared_in_training() -> None:
    def recorded(*, whole: bool, zeros: bool) -> dict[str, tensor_diff.RecordedTensor]:
        linear = nn.Linear(2, 2)
        nn.init.ones_(linear.weight)
        stepper = Stepper(linear, (torch.ones(1, 2),), {})
        outputs = stepper.forward()
        if zeros:
            linear.weight.grad = torch.zeros(2, 2)
        torch.optim.SGD([linear.weight], lr=1.0).step()
        kept = stepper.record(outputs, whole=whole)
        return {name: tensor for name, tensor in kept.items() if name == "parameter(weight)"}

    for whole in (True, False):
        (error,) = tensor_diff.compare_tensors(
            recorded(whole=whole, zeros=True), recorded(whole=whole, zeros=False), "eager"
        )
        assert error.ok is whole
        assert (error.lacks == "") is whole


def test_a_step_differentiates_a_scalar_as_a_loss() -> None:
    x = torch.arange(4.0, requires_grad=True)
    accuracy.step(lambda x: (x * x).sum(), (x,), {})
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]


def test_a_step_draws_equal_cotangents_each_time_and_keeps_the_random_state() -> None:
    x = torch.ones(4, requires_grad=True)
    stepper = Stepper(lambda x: (2 * x, 3 * x), (x,), {}, seed=3)
    state = torch.get_rng_state()
    grads = []
    for _ in range(2):
        stepper.clear_grads()
        stepper.step()
        assert x.grad is not None
        grads.append(x.grad)
    assert torch.equal(grads[0], grads[1])
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        (torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]), True),
        (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.tensor([math.nan]), torch.tensor([math.nan]), True),
        (torch.tensor([math.nan]), -torch.tensor([math.nan]), False),
        (torch.ones(2, 3).t(), torch.ones(3, 2), True),
        (torch.ones(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.float16), False),
        (torch.tensor(True), torch.tensor(True), True),
        (torch.tensor([1 + 1j]), torch.tensor([1 - 1j]), False),
        (torch.zeros(0), torch.zeros(0), True),
        (torch.zeros(0, 2), torch.zeros(2, 0), False),
        (None, None, True),
        (torch.zeros(1), None, False),
        (rows({1: 2.0}, {1: 1.0}), rows({1: 3.0}), True),
        (rows({1: 0.0}), rows({1: -0.0}), False),
        (rows({1: 0.0}), rows({}), False),
        (rows({1: 0.0}), rows({1: 0.0}).to_dense(), False),
    ],
)
def test_tensors_have_the_same_bits_only_if_form_and_bits_are_equal_also_of_signed_zeros(
    ours: torch.Tensor | None, theirs: torch.Tensor | None, same: bool
) -> None:
    assert tensor_diff.have_same_bits(ours, theirs) is same


def test_a_signed_zero_is_an_error_if_every_bit_counts() -> None:
    recorded = [{"output": tensor_diff.RecordedTensor("output", torch.tensor([sign * 0.0]))} for sign in (1, -1)]
    (error,) = tensor_diff.compare_tensors(*recorded, "reference", exact=True)
    assert (error.ok, error.bitwise, error.tolerance, error.max_abs_error) == (False, False, 0.0, 0.0)
    assert error.severity == math.inf
    (allowed,) = tensor_diff.compare_tensors(*recorded, "reference", exact=True, unsteady={"output"})
    assert (allowed.ok, allowed.bitwise) == (True, False)


def stepped(run: Callable[..., Any], build: Callable[[], Parts]) -> tuple[dict[str, Any], dict[str, str]]:
    """Compile a program with `run` and run one step. Return the results, and the kernels that ran."""
    original, args, kwargs = build()
    compiled = run(original)
    return accuracy.first_step(Stepper(original, args, kwargs, compiled), 0), kernel_identity.kernels_of(compiled)


@pytest.mark.slow
def test_offload_and_recompute_under_the_torch_executor_keep_the_bits_of_unmodified_thunder() -> None:
    build = module(lambda: nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3)))
    original, args, _ = build()
    bench = workbench.open(original, *args, executor="torch", capture="interpreter")
    sites = [site for site in bench.sites("saved") if site.bytes]
    options = {site.id: ("offload", "recompute")[i % 2] for i, site in enumerate(sites)}
    bench.choose({id: option for id, option in options.items() if option not in bench.site(id).illegal})
    assert {"offload", "recompute"} <= set(bench.choices.values())
    recorded, kernels = stepped(bench.config.jit, build)
    checked = accuracy.check_first_step(recorded, build, kernels=kernels)
    assert (checked.ok, checked.bitwise, checked.changed_kernels) == (True, True, ())
    assert set(checked.relative_tolerance.values()) == {0.0}
    assert checked.words == "every bit equals unmodified Thunder's result"


def test_a_fusion_counts_as_a_changed_kernel_and_its_tolerance_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: lambda *args: [a * (1 + 1e-6) for a in function(*args)])
    config = Config(program="product", executor="torchcompile", device="cpu")
    recorded, kernels = stepped(config.jit, product)
    checked = accuracy.check_first_step(recorded, product, kernels=kernels)
    assert (checked.ok, checked.bitwise) == (True, False)
    assert checked.changed_kernels == ("TorchCompile0", "TorchCompile1")
    assert checked.relative_tolerance == {"float32": tensor_diff.RELATIVE_TOLERANCE[torch.float32]}
    assert checked.words == (
        "2 kernels differ from those of unmodified Thunder (TorchCompile0, TorchCompile1), so "
        "errors up to 0.0001 (float32) of the largest element are allowed"
    )


def one_bit_off(step: dict[str, Any]) -> dict[str, Any]:
    entry = step["output"]
    value = torch.nextafter(entry.value, torch.full((), math.inf))
    return {**step, "output": dataclasses.replace(entry, value=value)}


def test_if_kernels_are_unchanged_a_different_bit_is_an_error() -> None:
    recorded, kernels = stepped(accuracy.compile_unmodified, product)
    assert accuracy.check_first_step(recorded, product, kernels=kernels).bitwise
    checked = accuracy.check_first_step(one_bit_off(recorded), product, kernels=kernels)
    assert (checked.ok, checked.bitwise, checked.changed_kernels) == (False, False, ())
    assert checked.words == "the kernels are those of unmodified Thunder, but some bits differ"
    assert [tensor.name for tensor in checked.tensors if not tensor.ok] == ["output"]


def test_bits_that_differ_between_steps_of_unmodified_thunder_are_not_required(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, kernels = stepped(accuracy.compile_unmodified, product)
    steps = itertools.cycle((lambda step: step, one_bit_off))
    first_step = accuracy.first_step
    monkeypatch.setattr(accuracy, "first_step", lambda *args: next(steps)(first_step(*args)))
    checked = accuracy.check_first_step(one_bit_off(recorded), product, kernels=kernels)
    assert (checked.ok, checked.bitwise, checked.changed_kernels) == (True, False, ())


def test_a_wrappers_parameters_are_counted_once() -> None:
    class Wrapper(torch.nn.Module):
        def __init__(self, module: torch.nn.Module) -> None:
            super().__init__()
            self.module = module

    model = torch.nn.Linear(2, 2)
    stepper = Stepper(model, (), {}, Wrapper(model))
    assert stepper.parameters == {"module.weight": model.weight, "module.bias": model.bias}


class Moving(nn.Module):
    """Moves a parameter toward its gradient with operators on lists, without an optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 4))
        self.mean = nn.Parameter(torch.zeros(4), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss = (x * self.weight).square().sum()
        gradients = torch.autograd.grad(loss, [self.weight])
        with torch.no_grad():
            torch._foreach_lerp_([self.mean], gradients, 0.1)
            torch._foreach_add_([self.weight], [self.mean], alpha=-0.5)
        return loss.detach()


@pytest.mark.slow
def test_parameters_that_operators_on_lists_write_are_compared() -> None:
    def build() -> Parts:
        return Moving(), (torch.linspace(0.0, 1.0, 4),), {}

    checked = outcome(build)
    assert checked.ok
    assert {"parameter(weight)", "parameter(mean)"} <= {error.name for error in checked.tensors}
