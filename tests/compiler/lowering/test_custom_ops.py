"""A custom or compiled operator becomes one statement, with the gradient that the operator's library registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

import workbench
from tests.needs import needs_nvfuser
from tests.trial_counts import beyond
from workbench.bench import Workbench
from workbench.errors import ProgramError
from workbench.runs.measure import accuracy, memory_meter

pytestmark = pytest.mark.slow


@torch.library.custom_op("tests_operators::scaled", mutates_args=())
def scaled(x: torch.Tensor, weight: torch.Tensor, power: int = 2, *, offset: float = 0.5) -> torch.Tensor:
    return x * weight**power + offset


@scaled.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, power: int = 2, *, offset: float = 0.5) -> torch.Tensor:
    del weight, power, offset
    return torch.empty_like(x)


def _keep_both(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    del keyword_only_inputs, output
    x, weight, power = inputs
    ctx.save_for_backward(x)
    # Some libraries set attributes of `ctx` instead of calling `save_for_backward`.
    ctx.weight, ctx.power = weight, power


def _of_scaled(ctx: Any, grad: torch.Tensor) -> Any:
    (x,) = ctx.saved_tensors
    of_x = grad * ctx.weight**ctx.power if ctx.needs_input_grad[0] else None
    of_weight = (grad * x).sum(0) * ctx.power * ctx.weight ** (ctx.power - 1) if ctx.needs_input_grad[1] else None
    return of_x, of_weight, None


scaled.register_autograd(_of_scaled, setup_context=_keep_both)


@torch.library.custom_op("tests_operators::squashed", mutates_args=())
def squashed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tanh(x), x.argmax(-1)


@squashed.register_fake
def _(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty(x.shape[:-1], dtype=torch.int64, device=x.device)


def _keep_result(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.shape = inputs[0].shape
    ctx.save_for_backward(output[0])


def _of_squashed(ctx: Any, grad: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    (made,) = ctx.saved_tensors
    return (grad * (1 - made * made)).reshape(ctx.shape)


squashed.register_autograd(_of_squashed, setup_context=_keep_result)


@torch.library.custom_op("tests_operators::summed", mutates_args=())
def summed(xs: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(xs).sum(0)


summed.register_fake(lambda xs: torch.empty_like(xs[0]))
summed.register_autograd(
    lambda ctx, grad: [grad * 1.0] * ctx.count,
    setup_context=lambda ctx, inputs, output: setattr(ctx, "count", len(inputs[0])),
)


@torch.library.custom_op("tests_operators::no_gradient", mutates_args=())
def no_gradient(x: torch.Tensor) -> torch.Tensor:
    return x * 2


no_gradient.register_fake(torch.empty_like)


@torch.library.custom_op("tests_operators::written", mutates_args=("x",))
def written(x: torch.Tensor) -> None:
    x.mul_(2)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.weight = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = scaled(self.linear(x), self.weight, offset=0.25)
        made, index = torch.ops.tests_operators.squashed(x)
        return torch.sin(made) + summed([made, x, x]) * (index[..., None] + 1)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.nn.functional.layer_norm(layer(x), (6,))
        return x.sum()


def build() -> accuracy.Parts:
    torch.manual_seed(5)
    return Model(), (torch.randn(4, 6),), {}


@pytest.fixture(scope="module")
def bench() -> Workbench:
    model, args, _ = build()
    opened = workbench.open(model, *args, device="cpu", executor="torch")
    assert isinstance(opened, Workbench)
    return opened


def statements(bench: Workbench, name: str) -> int:
    return bench.plan.graph.statements.name.count(name)


def test_each_operator_is_one_statement_in_each_direction(bench: Workbench) -> None:
    assert bench.capture == "dynamo", bench.capture_reason
    for name in ("scaled", "squashed", "summed"):
        assert statements(bench, f"tests_operators_{name}") == 4
        assert statements(bench, f"tests_operators_{name}_backward") == 4


def test_values_that_a_gradient_does_not_use_are_not_saved(bench: Workbench) -> None:
    trace = bench.plan.split.backward
    assert trace is not None
    backward = {bsym.sym.name: bsym for bsym in trace.bound_symbols}
    # A tensor that a backward does not read is not saved; the backward gets a stand-in for the tensor. The backward of
    # `squashed` reads only the first result.
    (given,), _, (made, index), grads, _ = backward["tests_operators_squashed_backward"].args
    assert (given, index, grads[1]) == ("like cpu float32[4, 6]", "like cpu int64[4]", "like cpu int64[4]")
    assert tuple(made.shape) == (4, 6)
    (given,), *_ = backward["tests_operators_summed_backward"].args
    assert list(given) == ["like cpu float32[4, 6]"] * 3


@pytest.mark.parametrize("recomputed", beyond(1, [True, False]))
def test_steps_are_right_and_take_the_predicted_memory(bench: Workbench, recomputed: bool) -> None:
    able = [s.id for s in bench.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal]
    bench.choose(dict.fromkeys(able, "recompute" if recomputed else "save"))
    if recomputed:
        assert statements(bench, "tests_operators_scaled") > 4
    model, args, kwargs = build()
    stepper = accuracy.Stepper(model, args, kwargs, bench.config.jit(model))
    checked = accuracy.check_first_step(accuracy.first_step(stepper, 0), build, capture="dynamo")
    assert checked.ok, checked.worst
    stepper.step()
    assert memory_meter.measure_peak(stepper).measured_peak_bytes == pytest.approx(bench.plan.peak_bytes, rel=0.01)


@needs_nvfuser
def test_fusions_do_not_include_custom_operators(bench: Workbench) -> None:
    model, args, _ = build()
    planned = workbench.open(model, *args, device="planned", executor="nvfuser")
    assert planned.plan.census.count
    assert planned.plan.graph.statements.name.count("tests_operators_scaled") == 4


def doubled(name: str, factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Register and return an operator that multiplies by a factor. Its gradient multiplies by the same factor."""
    operator = torch.library.custom_op(name, lambda x: x * factor, mutates_args=(), schema="(Tensor x) -> Tensor")
    operator.register_fake(torch.empty_like)
    operator.register_autograd(lambda _, grad: grad * factor)
    return operator


def test_operators_whose_names_look_alike_stay_distinct() -> None:
    alike = ("tests_spelled::as_one", 2.0), ("tests_spelled_as::one", 3.0), ("tests_spelled::as_one_backward", 5.0)
    first, second, third = [doubled(*each) for each in alike]

    def program(x: torch.Tensor) -> torch.Tensor:
        return (first(x.sin()) + second(x.cos()) + third(x)).sum()

    x = torch.randn(3, 3, requires_grad=True)
    opened = workbench.open(program, x, device="cpu", executor="torch", capture="dynamo")
    made = [torch.autograd.grad(run(x), x)[0] for run in (opened.config.jit(program), program)]
    torch.testing.assert_close(*made)


def test_an_operator_without_a_gradient_is_refused_if_a_gradient_is_needed() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return no_gradient(torch.sin(x)).sum()

    x = torch.randn(3, 3)
    with pytest.raises(workbench.ProgramError, match=r"no_gradient has no gradient: .*register_autograd"):
        workbench.open(program, x.clone().requires_grad_(), device="cpu", capture="dynamo")
    opened = workbench.open(program, x, device="cpu", executor="torch")
    torch.testing.assert_close(opened.config.jit(program)(x), program(x))


def test_an_operator_that_writes_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.sin(x)
        written(y)
        return y.sum()

    with pytest.raises(workbench.ProgramError, match=r"tests_operators.written"):
        workbench.open(program, torch.randn(3, 3), device="cpu", capture="dynamo")


class Regions(nn.Module):
    """A module that calls two compiled operators of torchvision: `roi_align` on a deformable convolution's result."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets, self.first = nn.Conv2d(3, 18, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3) / 5)

    def forward(self, image: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        bent = torchvision.ops.deform_conv2d(self.first(image), self.offsets(image), self.weight, padding=1)
        return torchvision.ops.roi_align(bent.tanh(), boxes, output_size=3).square().sum()


def build_regions() -> accuracy.Parts:
    torch.manual_seed(5)
    return Regions(), (torch.randn(2, 3, 16, 16), torch.tensor([[0.0, 1, 1, 9, 9], [1.0, 2, 0, 15, 12]])), {}


@pytest.mark.parametrize("recomputed", [False, True])
def test_compiled_operators_run_again_for_their_gradient(recomputed: bool) -> None:
    model, args, kwargs = build_regions()
    bench = workbench.open(model, *args, device="cpu", executor="torch", capture="dynamo")
    able = [s.id for s in bench.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal]
    bench.choose(dict.fromkeys(able, "recompute" if recomputed else "save"))
    for name in ("deform_conv2d", "roi_align"):
        assert statements(bench, f"torchvision_{name}") == 1 + recomputed
        assert statements(bench, f"torchvision_{name}_backward") == 1
    stepper = accuracy.Stepper(model, args, kwargs, bench.config.jit(model))
    checked = accuracy.check_first_step(accuracy.first_step(stepper, 0), build_regions, capture="dynamo")
    assert checked.ok, checked.worst
    eager, (image, boxes), _ = build_regions()
    model.zero_grad()
    bench.config.jit(model)(image, boxes).backward()
    ours = [p.grad for p in model.parameters()]
    eager(image, boxes).backward()
    torch.testing.assert_close(ours, [p.grad for p in eager.parameters()])
    stepper.step()
    assert memory_meter.measure_peak(stepper).measured_peak_bytes == pytest.approx(bench.plan.peak_bytes, rel=0.01)


def test_the_gradient_of_a_compiled_operator_counts_the_results_that_it_computes_again() -> None:
    def program(image: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        return torchvision.ops.ps_roi_pool(image, boxes, output_size=2).sum()

    corners = torch.rand(500, 2) * 4
    boxes = torch.cat([torch.zeros(500, 1), corners, corners + 3], dim=1)
    image = torch.randn(1, 16, 8, 8, requires_grad=True)
    bench = workbench.open(program, image, boxes, device="cpu", executor="torch")
    stepper = accuracy.Stepper(program, (image, boxes), {}, bench.config.jit(program))
    stepper.step()
    assert memory_meter.measure_peak(stepper).measured_peak_bytes == pytest.approx(bench.plan.peak_bytes, rel=0.01)


@needs_nvfuser
def test_compiled_operators_are_planned_for_an_absent_gpu() -> None:
    model, args, _ = build_regions()
    here = workbench.open(model, *args, device="cpu", executor="torch", capture="dynamo")
    planned = workbench.open(model, *args, device="planned", executor="nvfuser", capture="dynamo")
    for name in ("torchvision_deform_conv2d_backward", "torchvision_roi_align"):
        assert statements(planned, name) == statements(here, name) == 1


def test_compiled_operators_are_not_cached_on_disk(folder: Any) -> None:
    del folder
    model, args, _ = build_regions()
    bench = workbench.open(model, *args, device="cpu", executor="torch")
    assert bench.on_disk == "not written to disk: it calls torchvision::deform_conv2d, which is compiled"


@pytest.mark.filterwarnings("ignore:.*create_unbacked_symint.*:FutureWarning")  # raised by torchvision
def test_compiled_operators_with_value_dependent_sizes_are_refused_with_a_remedy() -> None:
    def program(boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return boxes[torchvision.ops.nms(boxes, scores, 0.5)].sin()

    with pytest.raises(workbench.ProgramError, match=r"torchvision\.nms: the shape of the result depends on values"):
        workbench.open(program, torch.rand(5, 4), torch.rand(5), device="cpu", capture="dynamo")


@pytest.fixture
def folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("THUNDER_WORKBENCH_CACHE", str(tmp_path))
    return tmp_path


def test_custom_operators_are_read_from_disk(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened() -> Workbench:
        model, args, _ = build()
        found = workbench.open(model, *args, device="cpu", executor="torch")
        assert isinstance(found, Workbench)
        return found

    first = opened()
    assert first.on_disk == "written to disk"
    again = opened()
    assert again.on_disk.startswith("from disk")
    assert again.plan.text() == first.plan.text()
    site = next(s.id for s in again.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal)
    for bench in (first, again):
        bench.choose({site: "recompute"})
    assert again.plan.text() == first.plan.text()
    # If an operator's gradient changes, the program in the cache is not used.
    changed: Callable[..., Any] = lambda ctx, grad: [grad * 2.0] * ctx.count  # noqa: E731  # the form in which it was registered
    monkeypatch.setattr(summed, "_backward_fn", changed)
    assert not opened().on_disk.startswith("from disk")


def _noisy(x: torch.Tensor) -> torch.Tensor:
    return x * (torch.rand_like(x) > 0.5)


untagged = torch.library.custom_op("tests_operators::noisy_untagged", _noisy, mutates_args=())
tagged = torch.library.custom_op(
    "tests_operators::noisy_tagged", _noisy, mutates_args=(), tags=[torch.Tag.nondeterministic_seeded]
)
for noisy in (untagged, tagged):
    noisy.register_fake(torch.empty_like)
    noisy.register_autograd(lambda ctx, grad: grad)

_LIBRARY = torch.library.Library("tests_noisy", "DEF")
_LIBRARY.define("composite(Tensor x) -> Tensor")
_LIBRARY.impl("composite", _noisy, "CompositeImplicitAutograd")


def test_an_operator_that_draws_without_the_tag_is_not_run_again() -> None:
    """PyTorch does not know that such an operator draws, so only its second run can show it."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sin(untagged(x @ w))

    def gradient(run: Callable[..., torch.Tensor]) -> torch.Tensor:
        torch.manual_seed(0)
        x, w = torch.randn(4, 8), torch.randn(8, 8, requires_grad=True)
        run(x, w).sum().backward()
        assert w.grad is not None
        return w.grad

    bench = workbench.open(program, torch.randn(4, 8), torch.randn(8, 8, requires_grad=True), device="cpu")
    torch.testing.assert_close(gradient(bench.config.jit(program)), gradient(program))
    (site,) = (site for site in bench.sites() if "noisy" in site.id)
    bench.choose({site.id: "recompute"})
    with pytest.raises(ProgramError, match=r"noisy_untagged draws .* tags=\[torch\.Tag\.nondeterministic_seeded\]"):
        gradient(bench.config.jit(program))


def test_an_operator_whose_gradient_would_draw_again_is_not_run() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tests_noisy.composite(x).sum()

    x = torch.randn(4, requires_grad=True)
    compiled = workbench.open(program, x, device="cpu", capture="dynamo").config.jit(program)
    with pytest.raises(ProgramError, match="tests_noisy::composite draws random numbers"):
        compiled(x).backward()


def test_an_operator_that_draws_with_the_tag_is_not_recomputed() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sin(tagged(x @ w))

    bench = workbench.open(program, torch.randn(4, 8), torch.randn(8, 8, requires_grad=True), device="cpu")
    (site,) = (site for site in bench.sites() if "noisy" in site.id)
    assert "random" in site.illegal["recompute"]
