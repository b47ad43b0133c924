"""Unusual programs give the results of eager PyTorch, or are refused with a reason.

Examples are programs with empty tensors, with numbers that are read from tensors, or with Python code around a single
graph.
"""

from __future__ import annotations

import copy
import logging
import random
import re
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import workbench
from tests.trial_counts import combined
from workbench.compiler.driver.capture_parts import WITHOUT_GRAPH
from workbench.compiler.frontend import dynamo
from workbench.compiler.frontend.dynamo import DynamoCompiled
from workbench.compiler.interop import thunder_patches
from workbench.errors import ProgramError, ProgramWarning, RunError
from workbench.programs import pickling
from workbench.runs.measure import accuracy

pytestmark = pytest.mark.slow

CLASSES = torch.zeros(0, dtype=torch.long)

EMPTY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cross_entropy": lambda x: functional.cross_entropy(x.flatten(1), CLASSES),
    "sum of losses": lambda x: functional.cross_entropy(x.flatten(1), CLASSES, reduction="sum"),
    "losses": lambda x: functional.nll_loss(x.flatten(1), CLASSES, reduction="none"),
    "smoothed losses": lambda x: functional.cross_entropy(x.flatten(1), CLASSES, label_smoothing=0.1),
    "losses of class probabilities": lambda x: functional.cross_entropy(x.flatten(1), x.flatten(1).softmax(-1)),
    "group_norm": lambda x: functional.group_norm(x, 2),
    "avg_pool1d": lambda x: functional.avg_pool1d(x, 2),
    "padded": lambda x: functional.pad(x, (1, 1)),
    "interpolate": lambda x: functional.interpolate(x, scale_factor=2),
    "interpolate by areas": lambda x: functional.interpolate(x, 3, mode="area"),
    "interpolate smoothly": lambda x: functional.interpolate(x.unsqueeze(1), (8, 3), mode="bicubic", antialias=True),
    "padded to a batch of one": lambda x: functional.pad(x, (0, 0, 0, 0, 1, 0)),
}


def stepped(program: Callable[..., Any], x: torch.Tensor, *parameters: torch.Tensor) -> list[torch.Tensor | None]:
    x = x.detach().requires_grad_()
    for parameter in parameters:
        parameter.grad = None
    made = program(x)
    assert made.requires_grad
    made.sum().backward()
    return [made.detach(), x.grad, *(parameter.grad for parameter in parameters)]


def same(one: list[torch.Tensor | None], other: list[torch.Tensor | None]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(a is not None and b is not None and torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in pairs)


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_batch_has_pytorchs_gradients(name: str) -> None:
    x = torch.randn(0, 4, 6, requires_grad=True)
    replayed = workbench.open(EMPTY[name], x, device="cpu", capture="dynamo").config.jit(EMPTY[name])
    assert same(stepped(replayed, x), stepped(EMPTY[name], x))


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_a_convolution_of_an_empty_batch_has_weight_gradients(kind: type[nn.Conv1d]) -> None:
    module = kind(4, 2, 3)
    x = torch.randn(0, 4, *[6] * (module.weight.ndim - 2))
    replayed = workbench.open(module, x, device="cpu").config.jit(module)
    assert same(stepped(replayed, x, *module.parameters()), stepped(module, x, *module.parameters()))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    ("widths", "shape"), combined([(4, 0, True), (0, 4, True), (4, 0, False), (0, 0, True)], [(3,), (2, 3), ()])
)
def test_a_layer_without_width_gives_pytorchs_results(widths: tuple[int, int, bool], shape: tuple[int, ...]) -> None:
    given, made, bias = widths
    module, x = nn.Linear(given, made, bias=bias), torch.randn(*shape, given)
    replayed = workbench.open(module, x, device="cpu", executor="torch").config.jit(module)
    assert same(stepped(replayed, x, *module.parameters()), stepped(module, x, *module.parameters()))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_the_interpreter_refuses_empty_tensors_that_thunder_cannot_take() -> None:
    x = torch.randn(0, 4, 6, requires_grad=True)
    for program, given in ((EMPTY["interpolate"], x), (nn.Linear(4, 0), torch.randn(3, 4))):
        with pytest.raises(ProgramError, match="open the program with capture='auto', or avoid layers of width 0"):
            workbench.open(program, given, device="cpu", capture="interpreter")


def test_a_function_that_dynamo_may_not_compile_has_choices() -> None:
    @torch.compiler.disable
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.sin(x @ w).square().sum()

    bench = workbench.open(program, torch.randn(3, 4), torch.randn(4, 4, requires_grad=True), device="cpu")
    assert bench.capture == "interpreter"
    assert any(site.bytes for site in bench.sites("saved"))


def one() -> int:
    return 1


def test_the_interpreter_ends_at_a_number_of_calls_without_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of `torch.manual_seed` makes so many that it took a minute."""

    @torch.compiler.disable
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        for _ in range(300):
            one()
        return y.cos()

    x = torch.randn(3, requires_grad=True)
    monkeypatch.setattr(thunder_patches, "MOST_CALLS", 5000)
    assert workbench.open(program, x, device="cpu").capture == "interpreter"
    monkeypatch.setattr(thunder_patches, "MOST_CALLS", 250)
    bench = workbench.open(program, x, device="cpu")
    assert [part.refusal for part in bench.parts] == [WITHOUT_GRAPH]
    assert torch.equal(bench.config.jit(program)(x), program(x))
    assert workbench.open(program, x, device="cpu", capture="interpreter").capture == "interpreter"


MASKS = [True, False, (True, slice(None, -5)), [True, False] * 4, (slice(None), [True, False, True])]


@pytest.mark.slow
@pytest.mark.parametrize("index", MASKS)
def test_true_and_false_in_an_index_are_masks(index: Any) -> None:
    """Thunder takes them for the numbers 1 and 0, so PyTorch runs this operator, also if nothing else is left."""
    x = torch.arange(24.0).reshape(8, 3).requires_grad_()
    for program in (lambda x: x[index].sin(), lambda x: x[index]):
        compiled = workbench.open(program, x, device="cpu").config.jit(program)
        assert torch.equal(compiled(x), program(x))
        with pytest.raises(ProgramError, match=r"True and False in an index|not a valid index"):
            workbench.open(program, x, device="cpu", capture="interpreter")


@pytest.mark.slow
def test_a_slice_may_begin_or_end_before_the_first_element() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        into = torch.zeros_like(x)
        into[-9:, ..., :1] = x[..., :1] * 3
        return (x[-9:] * 2 + into).sum() + x[None, ..., -9:2].square().sum() + x[:-9].sum()

    x = torch.randn(3, 4, requires_grad=True)
    compiled = workbench.open(program, x, device="cpu", capture="dynamo").config.jit(program)
    torch.testing.assert_close(*(torch.autograd.grad(run(x), x) for run in (compiled, program)))


def test_linear_takes_its_arguments_by_keyword() -> None:
    weight, x = torch.randn(2, 4, requires_grad=True), torch.randn(3, 4)

    def program(x: torch.Tensor) -> torch.Tensor:
        return functional.linear(input=x, weight=weight)

    replayed = workbench.open(program, x, device="cpu", executor="torch", capture="dynamo").config.jit(program)
    assert same(stepped(replayed, x, weight), stepped(program, x, weight))


def test_empty_tensors_do_not_alias_each_other() -> None:
    norm, words = nn.BatchNorm1d(4, affine=False), nn.Embedding(5, 4)

    def program(x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        norm.num_batches_tracked.add_(1)
        return norm(x.flatten(0, 1)).sum() + words(tokens).sum()

    x, tokens = torch.randn(0, 3, 4, requires_grad=True), torch.zeros(0, 3, dtype=torch.long)
    norm.eval()
    bench = workbench.open(program, x, tokens, device="cpu")
    assert bench.capture == "dynamo", bench.capture_reason
    assert bench.config.jit(program)(x, tokens) == 0


@pytest.mark.parametrize("differentiated", [False, True])
def test_numbers_that_a_program_reads_from_tensors_are_read_in_each_call(differentiated: bool) -> None:
    told: list[float] = []

    def program(x: torch.Tensor) -> tuple[torch.Tensor, float, int, bool]:
        made = x * 2
        told.append(made.sum().item())
        return made, x.sum().item() + 1, x.argmax().item(), (x > 2).any().item()

    ones = torch.ones(3, requires_grad=differentiated)
    bench = workbench.open(program, ones, device="cpu")
    assert bench.capture == "dynamo", bench.capture_reason
    replayed = bench.config.jit(program)
    told.clear()
    made, *numbers = replayed(ones)
    assert numbers == [4.0, 0, False]
    if differentiated:
        made.sum().backward()
        assert torch.equal(ones.grad, torch.full((3,), 2.0))
    assert replayed(torch.tensor([0.0, 3.0, 1.0]))[1:] == (5.0, 1, True)
    assert told == [6.0, 8.0]


def draws(x: torch.Tensor) -> torch.Tensor:
    return x * random.random()


class Drawn(nn.Module):
    """A loss that is scaled, or whose layer is left out, by numbers from a generator of the module."""

    def __init__(self, generator: Any, *, skips: bool) -> None:
        super().__init__()
        self.layer, self.generator, self.skips = nn.Linear(4, 4), generator, skips

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        drawn = self.generator.random()
        if not self.skips:
            return self.layer(x).square().mean() * drawn
        return self.layer(x).square().mean() if drawn < 0.5 else x.mean()


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("generator", [random.Random, np.random.default_rng])
def test_a_program_draws_from_its_own_generator_in_each_call(generator: Callable[[int], Any], skips: bool) -> None:
    x = torch.randn(3, 4)
    model = Drawn(generator(3), skips=skips)
    compiled = workbench.open(model, x, device="cpu").config.jit(model)
    model.generator = generator(3)
    found = [compiled(x) for _ in range(5)]
    model.generator = generator(3)
    torch.testing.assert_close(found, [model(x) for _ in range(5)])


@pytest.mark.parametrize("generator", [random.Random, np.random.default_rng, np.random.RandomState])
def test_the_interpreter_refuses_draws_from_a_generator_of_the_program(generator: Callable[[int], Any]) -> None:
    model = Drawn(generator(3), skips=True)
    expected = generator(3).random()
    with pytest.raises(ProgramError, match="each call of the program changes generator"):
        workbench.open(model, torch.randn(3, 4), device="cpu", capture="interpreter")
    assert model.generator.random() == expected


def clocks(x: torch.Tensor) -> torch.Tensor:
    return x * time.perf_counter()


def seeds(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    return x + torch.rand(3)


def test_python_code_around_a_graph_runs_in_each_call() -> None:
    ones = torch.ones(3)
    replayed = {
        f: workbench.open(f, ones, device="cpu", executor="torch").config.jit(f) for f in (draws, clocks, seeds)
    }
    random.seed(0)
    drawn = [replayed[draws](ones)[0].item() for _ in range(3)]
    random.seed(0)
    assert drawn == [draws(ones)[0].item() for _ in range(3)]
    assert not torch.equal(replayed[clocks](ones.double()), replayed[clocks](ones.double()))
    assert torch.equal(replayed[seeds](ones), replayed[seeds](ones))


def seeds_numpy(x: torch.Tensor) -> torch.Tensor:
    np.random.seed(3)  # noqa: NPY002
    return x.sin()[torch.as_tensor(np.random.permutation(len(x)))]  # noqa: NPY002


def weights_by_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * torch.as_tensor(np.random.rand(len(x)))  # noqa: NPY002


@pytest.mark.parametrize("program", [seeds_numpy, weights_by_numpy])
def test_numpy_draws_its_own_numbers_in_each_call(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    numbers = torch.arange(8.0)
    replayed = workbench.open(program, numbers, device="cpu", executor="torch").config.jit(program)
    np.random.seed(5)  # noqa: NPY002
    drawn = [replayed(numbers) for _ in range(2)]
    np.random.seed(5)  # noqa: NPY002
    assert all(map(torch.equal, drawn, [program(numbers) for _ in range(2)]))


def draws_by_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * float(np.random.rand())  # noqa: NPY002


@pytest.mark.parametrize("program", [draws, draws_by_numpy])
def test_the_interpreter_refuses_random_numbers_from_outside_pytorch(program: Callable[..., Any]) -> None:
    with pytest.raises(ProgramError, match=r"draw with torch\.rand, or pass the number to the program"):
        workbench.open(program, torch.ones(3), device="cpu", capture="interpreter")


@pytest.mark.parametrize("kind", ["Adam", "SGD"])
def test_a_step_with_a_fused_optimizer_opens_with_the_loss_as_its_only_part(kind: str) -> None:
    def build() -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, fused=True)

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return model, step

    x = torch.randn(3, 4)
    model, step = build()
    bench = workbench.open(step, x, device="cpu", executor="torch")
    assert [part.opaque for part in bench.parts] == [False]
    replayed = bench.config.jit(step)
    other, eager = build()
    for _ in range(3):
        assert torch.allclose(replayed(x), eager(x))
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(one, two)


class Around(torch.optim.Optimizer):
    """A user's optimizer that wraps another optimizer, and scales gradients before each step."""

    def __init__(self, parameters: Iterable[torch.Tensor], short: float) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.short = short
        self.inner = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)
        self.param_groups = self.inner.param_groups

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.grad.mul_(self.short)
        self.inner.step()


def around() -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = Around(model.parameters(), 0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        return loss

    return model, step


def test_an_optimizer_of_a_users_class_steps_as_in_eager_also_after_pickling() -> None:
    x = torch.randn(3, 4)
    model, step = around()
    replayed = workbench.open(step, x, device="cpu", executor="torch").config.jit(step)
    other, eager = around()
    sent, sent_step = cloudpickle.loads(pickling.dumps(around()))
    for _ in range(3):
        expected = eager(x)
        torch.testing.assert_close(replayed(x), expected)
        with warnings.catch_warnings():
            # The schedule has wrapped the optimizer's `step` to count steps. Pickling drops the wrapper, which causes a
            # warning.
            warnings.simplefilter("ignore")
            torch.testing.assert_close(sent_step(x), expected)
    for parameter, *same_ones in zip(other.parameters(), model.parameters(), sent.parameters(), strict=True):
        for one in same_ones:
            torch.testing.assert_close(one, parameter)


def test_a_meta_tensor_is_refused_on_a_cpu_with_its_shape() -> None:
    with pytest.raises(ProgramError, match=r"shape \(3, 2\) is on the device 'meta'.*device='planned'"):
        workbench.open(torch.sin, torch.ones(3, 2, device="meta"), device="cpu")


@pytest.mark.slow
def test_a_template_on_meta_has_no_values_to_compare() -> None:
    class Templated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 3))
            self.template = [nn.Linear(3, 2, bias=False, device="meta")]  # a list, so that it is not a submodule

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = torch.func.functional_call(self.template[0], {"weight": self.weight}, (x,))
            return made.sin().sum()

    def build() -> accuracy.Parts:
        return Templated(), (torch.linspace(0.0, 1.0, 6).reshape(2, 3),), {}

    module, args, _ = build()
    config = workbench.open(module, *args, device="cpu").config
    stepper = accuracy.Stepper(module, args, {}, config.jit(module))
    recorded = accuracy.first_step(stepper, 0)
    assert "grad(weight)" in recorded
    assert accuracy.check_first_step(recorded, build, capture=config.capture).ok


def test_a_module_on_meta_is_planned_and_nothing_runs() -> None:
    def build(device: str) -> nn.Module:
        with torch.device(device):
            return nn.Sequential(nn.Embedding(100, 8), nn.Linear(8, 100))

    tokens = torch.zeros(2, 8, dtype=torch.int64)
    known = workbench.open(build("cpu"), tokens, device="planned", executor="torch")
    for given in (tokens, tokens.to("meta")):
        bench = workbench.open(build("meta"), given, executor="torch")
        assert bench.program.device == "planned"
        assert bench.plan.peak_bytes == known.plan.peak_bytes
    with pytest.raises(RunError, match="nothing runs on the device planned"):
        bench.run()


class Counted(nn.Module):
    """A module with a counter, which is a constant of each graph of Dynamo because a size depends on it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return x[: self.steps] * 2


def test_a_program_that_is_captured_again_in_each_call_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamo, "MANY_CAPTURES", 3)
    module = Counted()
    replayed = workbench.open(Counted(), torch.ones(3), device="cpu").config.jit(module)
    replayed(torch.ones(3))
    replayed(torch.ones(3))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ProgramWarning)
        assert torch.equal(replayed(torch.ones(3)), torch.full((3,), 2.0))
    (text,) = (str(each.message) for each in told if isinstance(each.message, ProgramWarning))
    assert text.startswith("the program was captured again in 3 calls, because each call differed")
    assert re.search(r"the last at test_edge_cases.py:\d+ \(self.steps \+= 1\), where .*steps == \d no longer", text)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ProgramWarning)
        replayed(torch.ones(3))


def test_a_program_that_raises_only_while_it_is_traced_runs_once_with_a_warning() -> None:
    class Traced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.compiler.is_compiling() and x.shape[0] == 5:
                raise RuntimeError("not while compiling")
            return x * 2

    module = Traced()
    replayed = workbench.open(Traced(), torch.ones(3), device="cpu").config.jit(module)
    with pytest.warns(ProgramWarning, match="PyTorch ran this call without compilation: .*not while compiling"):
        assert torch.equal(replayed(torch.ones(5)), torch.full((5,), 2.0))


def test_a_program_that_is_captured_again_in_each_call_runs_without_compilation_at_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(DynamoCompiled, "_limit", 3)
    frames = logging.getLogger("torch._dynamo.convert_frame")
    monkeypatch.setattr(frames, "handlers", [*frames.handlers, caplog.handler])
    told: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        told.append(len(told))
        return x * len(told)

    replayed = workbench.open(program, torch.ones(3), device="cpu").config.jit(program)
    told.clear()
    for call in range(1, 4):
        assert torch.equal(replayed(torch.ones(3)), torch.full((3,), float(call)))
    for call in range(4, 6):
        with pytest.warns(ProgramWarning) as warned:
            result = replayed(torch.ones(3))
        assert torch.equal(result, torch.full((3,), float(call)))
    text = str(warned[0].message)
    assert text.startswith("PyTorch ran this call without compilation: the program was captured again in 3 calls")
    told_line = (
        r"the last at test_edge_cases.py:\d+ \(told.append\(len\(told\)\)\), where len\(.*\) == 2 no longer holds\."
    )
    assert re.search(told_line, text)
    assert "must be tensors, or outside of the program" in text
    assert not caplog.messages  # PyTorch would log five lines for each of the last two calls


class Normalized(nn.Module):
    """A module with a checkpointed region and a batch norm, which is inside or outside of the region."""

    def __init__(self, *, inside: bool) -> None:
        super().__init__()
        self.inside, self.linear, self.norm = inside, nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.inside:
            return checkpoint(lambda x: self.norm(self.linear(x)).relu(), x, use_reentrant=False)  # type: ignore[no-any-return]
        return self.norm(checkpoint(lambda x: self.linear(x).relu(), x, use_reentrant=False))  # type: ignore[no-any-return]


@pytest.mark.parametrize("capture", ["dynamo", "interpreter"])
def test_a_plan_warns_that_a_write_in_a_checkpointed_region_is_made_only_once(capture: str) -> None:
    x = torch.randn(8, 4)
    for inside in (True, False):
        module = Normalized(inside=inside)
        eager = copy.deepcopy(module)
        bench = workbench.open(module, x, device="cpu", executor="torch", capture=capture)
        for run in (bench.config.jit(module), eager):
            run(x).sum().backward()
        warned = [each for each in bench.plan.warnings if "torch.utils.checkpoint recomputes" in each]
        differs = not torch.equal(module.norm.num_batches_tracked, eager.norm.num_batches_tracked)
        assert differs == inside == any("/batch_norm (test_edge_cases.py:" in each for each in warned)
        assert inside or not warned


def test_a_step_whose_optimizer_reads_values_is_refused_for_a_planned_gpu_only() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(4, 4)
    optimizer = torch.optim.Adafactor(linear.parameters())

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = linear(x).square().mean()
        loss.backward()
        return loss

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = optimizer.step(lambda: loss_of(x))
        assert loss is not None
        return loss.detach()

    x = torch.randn(2, 4)
    with pytest.raises(ProgramError, match="Adafactor reads values in its step: open the part that returns the loss"):
        workbench.open(step, x, device="planned")
    bench = workbench.open(step, x, device="cpu")
    eager, before = copy.deepcopy(linear), linear.weight.clone()
    torch.testing.assert_close(bench.config.jit(step)(x), eager(x).square().mean().detach())
    assert not torch.equal(linear.weight, before)
