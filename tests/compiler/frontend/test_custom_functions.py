"""A `torch.autograd.Function` that writes in place or returns an input equals eager PyTorch, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import thunder
import torch
from packaging.version import Version

import workbench
from workbench.compiler.interop.torch_versions import TORCH
from workbench.errors import ProgramError

LOSES_MARKS = Version("2.11.dev0") <= TORCH
"""Whether Dynamo misreads `ctx.mark_non_differentiable` if the function also returns values that are not tensors.

Dynamo counts marked results among all results, but its graph has only the tensors. A mark is then lost, or applies to
another tensor. A tensor that is marked by mistake gets no gradient. Plain `torch.compile` has the same defect.
"""

pytestmark = pytest.mark.slow


class Doubled(torch.autograd.Function):
    """A function whose forward overwrites a tensor that it creates."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.mul_(2)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 3


class Kept(torch.autograd.Function):
    """A function whose forward overwrites a tensor that it creates, and then saves the tensor for the backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.add_(1)
        ctx.save_for_backward(y)
        return y * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        return grad * y


class Viewed(torch.autograd.Function):
    """A function whose forward overwrites a tensor through a view."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.view(-1).mul_(2)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 4


class Over(torch.autograd.Function):
    """A function that overwrites its input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


class Reversed(torch.autograd.Function):
    """A function that returns its input. Its backward negates the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return -grad


class Widened(torch.autograd.Function):
    """A function that computes in float64, as `torch.amp.custom_fwd` lets it. So does its backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x = x.double()
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


def applied(function: Any) -> Callable[[torch.Tensor], Any]:
    def program(x: torch.Tensor) -> Any:
        return function.apply(x.sin()) * 2

    return program


def reverses_its_input(x: torch.Tensor) -> Any:
    return Reversed.apply(x)


def reverses_what_is_given_too(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
    y = x.sin()
    return y, Reversed.apply(y)


def reads_what_was_written(x: torch.Tensor) -> Any:
    y = x.sin()
    return Over.apply(y) * y


def parts(program: Callable[[torch.Tensor], Any], x: torch.Tensor) -> list[torch.Tensor]:
    outs = program(x)
    outs = outs if isinstance(outs, tuple) else (outs,)
    loss = sum(((at + 1) * out.exp()).sum() for at, out in enumerate(outs))
    return [*(out.detach() for out in outs), *torch.autograd.grad(loss, x)]


@pytest.mark.parametrize(
    ("program", "capture"),
    [
        (applied(Doubled), "dynamo"),
        (applied(Kept), "dynamo"),
        (applied(Viewed), "parts"),
        (applied(Over), "parts"),
        (reverses_its_input, "dynamo"),
        (reverses_what_is_given_too, "dynamo"),
        (applied(Widened), "dynamo"),
    ],
    ids=["own tensor", "saved tensor", "view", "input", "returned input", "value and returned input", "wider gradient"],
)
def test_outputs_and_gradients_equal_those_of_eager(program: Callable[[torch.Tensor], Any], capture: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5, requires_grad=True)
    bench = workbench.open(program, x, device="cpu", executor="torch")
    assert bench.capture == capture
    sites = [site for site in bench.sites("saved") if "recompute" in site.options]
    again = {site.id: "recompute" for site in sites if "recompute" not in site.illegal}
    for choices in ({}, again):
        bench.choose(choices)
        for ours, eager in zip(parts(bench.config.jit(program), x), parts(program, x), strict=True):
            torch.testing.assert_close(ours, eager)


def test_reading_a_written_value_by_its_old_name_is_refused_as_one_graph() -> None:
    line = r"test_custom_functions.py:\d+ \(return Over.apply\(y\) \* y\): .*return a new tensor from its forward"
    x = torch.randn(4, 5, requires_grad=True)
    with pytest.raises(ProgramError, match=line):
        workbench.open(reads_what_was_written, x, device="cpu", capture="dynamo")
    bench = workbench.open(reads_what_was_written, x, device="cpu")
    for ours, eager in zip(
        parts(bench.config.jit(reads_what_was_written), x), parts(reads_what_was_written, x), strict=True
    ):
        torch.testing.assert_close(ours, eager)


class Attribute(torch.autograd.Function):
    """A function that saves a tensor as an attribute of its context. Autograd does not know of the tensor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.kept = x
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.kept


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (applied(Doubled), "writes in place: open the program with capture='auto'"),
        (applied(Viewed), "writes in place: open the program with capture='auto'"),
        (reverses_its_input, "Function Reversed, which returns its input: open the program with capture='auto'"),
        (
            reverses_what_is_given_too,
            "Function Reversed, which returns its input: open the program with capture='auto'",
        ),
        (applied(Attribute), "Function Attribute: open the program with capture='auto', or save .* by ctx.save"),
    ],
    ids=["own tensor", "view", "returned input", "value and returned input", "attribute"],
)
def test_thunders_interpreter_refuses_functions_that_it_gets_wrong(
    program: Callable[[torch.Tensor], Any], told: str
) -> None:
    with pytest.raises(ProgramError, match=told):
        workbench.open(program, torch.randn(4, 5, requires_grad=True), device="cpu", capture="interpreter")


class Given(torch.autograd.Function):
    """A loss whose backward returns the gradient of the loss and ignores the incoming gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x.cos())
        return x.sin().sum()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (gradient,) = ctx.saved_tensors
        return gradient


def knows_its_gradient(x: torch.Tensor) -> torch.Tensor:
    return Given.apply(x * 2)


def knows_one_of_two(x: torch.Tensor) -> torch.Tensor:
    return Given.apply(x * 2) + x.sum()


@pytest.mark.parametrize("capture", ["dynamo", "interpreter"])
def test_a_backward_that_ignores_the_incoming_gradient_is_refused_if_thunder_fails(capture: str) -> None:
    x = torch.randn(4, 5, requires_grad=True)
    with pytest.raises(AssertionError):
        thunder.jit(knows_its_gradient)(x).backward()
    told = r"test_custom_functions.py:\d+ \(.*\): multiply the result of its backward by the incoming gradient"
    with pytest.raises(ProgramError, match=told):
        workbench.open(knows_its_gradient, x, capture=capture)


@pytest.mark.parametrize(
    ("program", "capture"), [(knows_its_gradient, "parts"), (knows_one_of_two, "dynamo")], ids=["alone", "with a sum"]
)
def test_a_backward_that_ignores_the_incoming_gradient_gives_the_gradient_of_eager(
    program: Callable[[torch.Tensor], torch.Tensor], capture: str
) -> None:
    x = torch.randn(4, 5, requires_grad=True)
    bench = workbench.open(program, x)
    assert bench.capture == capture
    for ours, eager in zip(parts(bench.config.jit(program), x), parts(program, x), strict=True):
        torch.testing.assert_close(ours, eager)


class Counted(torch.autograd.Function):
    """A function that returns a number, None, a tensor without a gradient, and two tensors with gradients."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, by: int) -> tuple[int, torch.Tensor, None, torch.Tensor, torch.Tensor]:
        signs = x.sign()
        ctx.mark_non_differentiable(signs)
        ctx.save_for_backward(x)
        return by + 1, x * by, None, signs, x.exp()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        return grads[1] * 5 + grads[4] * x.exp(), None


def test_results_that_are_not_tensors_are_returned() -> None:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        return Counted.apply(x.sin(), 3)

    x = torch.randn(4, 5, requires_grad=True)
    bench = workbench.open(program, x, device="cpu", executor="torch", capture="dynamo")
    found = []
    for run in (program, bench.config.jit(program)):
        number, made, nothing, signs, other = run(x)
        assert (number, nothing, signs.requires_grad) == (4, None, run is not program and LOSES_MARKS)
        found.append((made, signs, other, *torch.autograd.grad((made.cos() + other).sum(), x)))
    torch.testing.assert_close(found[1], found[0])


def sine_of_its_own() -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a program with a new class. Each call makes new objects for the same program, as a new process does."""

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return gradient * x.cos()

    def program(x: torch.Tensor) -> torch.Tensor:
        return Sine.apply(Sine.apply(x)) * 2  # type: ignore[no-any-return, no-untyped-call]

    return program


def test_ids_of_a_function_contain_no_address() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    one, other = (
        workbench.open(sine_of_its_own(), x, device="cpu", executor="torch", capture="interpreter") for _ in range(2)
    )
    ids = [site.id for site in one.sites("saved")]
    assert ids == [site.id for site in other.sites("saved")]
    assert any("/Sine" in id for id in ids)
    assert [origin.symbol for origin in one.plan.graph.origins] == ["Sine", "Sine", "mul"]
    assert one.config.fingerprint == other.config.fingerprint
