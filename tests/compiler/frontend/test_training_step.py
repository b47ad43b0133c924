"""A whole training step, with its optimizer, is opened as a program in parts, and trains as in eager PyTorch."""

from __future__ import annotations

import copy
import gc
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler

import workbench
from tests.trial_counts import beyond
from workbench.analysis.memory.allocator import allocated_bytes
from workbench.bench import Part, PartsBench
from workbench.core.graph import ValueFlag
from workbench.errors import ConfigWarning
from workbench.programs import pickling, placement
from workbench.programs.tensors import find_tensors
from workbench.runs.measure import accuracy
from workbench.runs.measure.saved_reference import SavedReferences

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:.*:UserWarning"),
]

STEPS = 5

type Makes = Callable[[Any], torch.optim.Optimizer]


class Trained(NamedTuple):
    """A training step, with its model and its optimizer."""

    step: Callable[..., torch.Tensor]
    model: nn.Module
    optimizer: torch.optim.Optimizer


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def adamw_foreach(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, foreach=True)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, foreach=False)


def momentum_foreach(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=0.1, foreach=True)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2)


def clipped(*, foreach: bool) -> Trained:
    """Return a step that clips gradients to a small norm, so that clipping always changes them."""
    own = trained(adam)
    parameters = list(own.model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(own.model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.05, foreach=foreach)
        own.optimizer.step()
        own.optimizer.zero_grad()
        return loss

    return own._replace(step=step)


def accumulated() -> Trained:
    """Return a step that runs a backward for each of three micro-batches, and then clips the summed gradients."""
    own = trained(adam)
    parameters = list(own.model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for at in range(3):
            loss = functional.mse_loss(own.model(x[at : at + 2]), y[at : at + 2]) / 3
            loss.backward()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(parameters, 0.05)
        own.optimizer.step()
        own.optimizer.zero_grad()
        return total

    return own._replace(step=step)


def trained(makes: Makes) -> Trained:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    optimizer = makes(model.parameters())

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Trained(step, model, optimizer)


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(5, 8, generator=generator), torch.randn(5, 4, generator=generator)


@pytest.fixture(scope="module")
def bench() -> PartsBench:
    opened = workbench.open(trained(adamw).step, *batch(0))
    assert isinstance(opened, PartsBench)
    return opened


def recomputed(bench: PartsBench) -> dict[str, str]:
    """Return choices that recompute each saved value for which `recompute` is legal."""
    free = [site for site in bench.sites("saved") if "recompute" in site.options and "recompute" not in site.illegal]
    return {site.id: "recompute" for site in free if site.choice == "save"}


def assert_trains_as_eager(config: workbench.Config, build: Callable[[], Trained]) -> None:
    ours, theirs = build(), build()
    compiled = config.jit(ours.step)
    for at in range(STEPS):
        torch.testing.assert_close(compiled(*batch(at)), theirs.step(*batch(at)))
    torch.testing.assert_close(ours.model.state_dict(), theirs.model.state_dict())
    states = [[each.optimizer.state[p] for p in each.model.parameters()] for each in (ours, theirs)]
    torch.testing.assert_close(*states)


def test_a_step_consists_of_its_loss_and_its_optimizer(bench: PartsBench) -> None:
    loss, optimizer = bench.parts
    assert isinstance(loss, Part)
    assert isinstance(optimizer, Part)
    assert "loss.backward()" in loss.cut
    assert loss.plan.saved_bytes > 0
    assert (optimizer.plan.saved_bytes, optimizer.plan.graph.saved_storages().size) == (0, 0)
    # `baseline_bytes` counts, for each element of the four parameters, four floats: the parameter, its gradient, and
    # the optimizer's two averages. It also counts one float for each parameter: the number of steps.
    parameters = sum(tensor.numel() for tensor in trained(adamw).model.parameters())
    assert optimizer.plan.baseline_bytes == 4 * (4 * parameters + 4)
    assert bench.capture_reason == "a training step is split at its backward"


def test_opening_a_step_does_not_run_the_step() -> None:
    own = trained(momentum)
    before = copy.deepcopy(own.model.state_dict())
    workbench.open(own.step, *batch(0))
    torch.testing.assert_close(own.model.state_dict(), before, rtol=0, atol=0)
    assert not own.optimizer.state
    assert all(parameter.grad is None for parameter in own.model.parameters())


def test_an_optimizers_method_has_compiled_code_only_while_a_training_step_uses_the_method() -> None:
    """Dynamo compiles a method only a limited number of times, so compiled code must not stay on this method."""
    code = inspect.unwrap(torch.optim.SGD.step).__code__
    torch._dynamo.eval_frame.reset_code(code)
    opened = workbench.open(trained(momentum).step, *batch(0))
    assert not torch._dynamo.eval_frame._debug_get_cache_entry_list(code)
    step = opened.config.jit(trained(momentum).step)
    step(*batch(0))
    assert torch._dynamo.eval_frame._debug_get_cache_entry_list(code)
    del step
    gc.collect()
    assert not torch._dynamo.eval_frame._debug_get_cache_entry_list(code)


@pytest.mark.parametrize(
    "makes", beyond(2, [adamw_foreach, momentum, adamw, momentum_foreach]), ids=lambda makes: makes.__name__
)
def test_steps_under_a_config_equal_the_steps_of_eager(makes: Makes, tmp_path: Path) -> None:
    bench = workbench.open(trained(makes).step, *batch(0))
    assert isinstance(bench, PartsBench)
    assert all(isinstance(part, Part) for part in bench.parts), "PyTorch runs a part"
    bench.choose(recomputed(bench))
    assert any(choice.startswith("part1:saved:") for choice in bench.choices)
    config = workbench.load(bench.export(tmp_path / "choices.py"))
    with warnings.catch_warnings():
        # With momentum, the first step differs from later steps. The bench has plans for the first step and for later
        # steps, so no warning is given.
        warnings.simplefilter("error", ConfigWarning)
        assert_trains_as_eager(config, lambda: trained(makes))


@pytest.mark.parametrize("foreach", beyond(1, [True, False]), ids=["foreach", "one by one"])
def test_steps_with_clipped_gradients_equal_the_steps_of_eager(foreach: bool) -> None:
    bench = workbench.open(clipped(foreach=foreach).step, *batch(0))
    assert isinstance(bench, PartsBench)
    assert all(isinstance(part, Part) for part in bench.parts), "PyTorch runs a part"
    bench.choose(recomputed(bench))
    assert_trains_as_eager(bench.config, lambda: clipped(foreach=foreach))


def test_a_step_with_accumulated_gradients_equals_the_step_of_eager() -> None:
    """Dynamo does not compile a function with a graph break in a loop. The workbench still compiles the loss."""
    bench = workbench.open(accumulated().step, *batch(0))
    assert isinstance(bench, PartsBench)
    assert all(isinstance(part, Part) for part in bench.parts), "PyTorch runs a part"
    assert [part.calls for part in bench.parts][:2] == [1, 2], (
        "the code from one backward to the next must be one part, called twice"
    )
    bench.choose(recomputed(bench))
    assert {id.partition(":")[0] for id in bench.choices} >= {"part1", "part2"}
    assert_trains_as_eager(bench.config, accumulated)


def test_a_step_is_planned_for_an_absent_gpu(bench: PartsBench) -> None:
    planned = workbench.open(trained(adamw).step, *batch(0), device="planned", executor="torch")
    assert isinstance(planned, PartsBench)
    assert [part.source for part in planned.parts] == [part.source for part in bench.parts]
    own, here = planned.benches[1].plan, bench.benches[1].plan
    assert own.graph.statements.name.count("copy_") >= 4 * 4, (
        "the step must write each parameter, its averages and its count"
    )
    values, storages = here.graph.values, here.graph.storages
    given = np.unique(values.storage[(values.flags & ValueFlag.ARGUMENT) != 0])
    assert here.baseline_bytes == int(storages.bytes[given].sum())
    assert own.baseline_bytes == sum(allocated_bytes(int(nbytes), "cuda") for nbytes in storages.bytes[given])


def test_a_step_is_compared_with_unmodified_thunder_and_eager(bench: PartsBench, tmp_path: Path) -> None:
    def build() -> accuracy.Parts:
        return trained(adamw).step, batch(0), {}

    step, args, kwargs = build()
    stepper = accuracy.Stepper(step, args, kwargs, bench.config.jit(step))
    recorded = accuracy.first_step(stepper, 0)
    references = SavedReferences(tmp_path, {})
    checked = accuracy.check_first_step(recorded, build, capture="parts", references=references)
    assert checked.ok
    assert checked.against == "thunderfx and eager"
    assert checked.why == ""
    names = {tensor.name for tensor in checked.tensors}
    assert {"output", "parameter(model.0.weight)", "optimizer.state[model.0.weight].exp_avg"} <= names
    recorded["parameter(model.0.weight)"].value.mul_(1.01)
    assert not accuracy.check_first_step(recorded, build, capture="parts", references=references).ok


def updated_by_hand() -> accuracy.Parts:
    """Return a step without an optimizer, as in PyTorch's tutorials: its update is written out."""
    model = trained(adamw).model

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
        return loss

    return step, batch(0), {}


def given_its_model() -> accuracy.Parts:
    """Return a step that gets its model and its optimizer as arguments."""
    own = trained(momentum)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, (own.model, own.optimizer, *batch(0)), {}


@pytest.mark.parametrize("build", [updated_by_hand, given_its_model])
def test_a_step_needs_no_optimizer_of_its_own(build: Callable[[], accuracy.Parts]) -> None:
    given, args, kwargs = build()
    before = copy.deepcopy(find_tensors((given, args)).tensors)
    opened = workbench.open(given, *args, **kwargs)
    assert isinstance(opened, PartsBench)
    torch.testing.assert_close(find_tensors((given, args)).tensors, before, rtol=0, atol=0)
    recorded = []
    for compiled in (True, False):
        given, args, kwargs = build()
        stepper = accuracy.Stepper(given, args, kwargs, opened.config.jit(given) if compiled else None)
        for _ in range(STEPS):
            outputs = stepper.step()
        assert stepper.takes_steps
        recorded.append({name: entry.value for name, entry in stepper.record(outputs, whole=True).items()})
    assert any("0.weight" in name for name in recorded[0])
    torch.testing.assert_close(*recorded)
    given, args, kwargs = build()
    checked = accuracy.check_first_step(
        accuracy.first_step(accuracy.Stepper(given, args, kwargs, opened.config.jit(given)), 0), build, capture="parts"
    )
    assert checked.ok


class Greedy(nn.Module):
    """Differentiates a local loss itself, and leaves the main loss to its caller."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.third = nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.first(x).sin()
        apart = self.third(x)
        local = hidden.sum()
        local.backward()
        return self.outputs(self.second(hidden.detach()).cos().sum(), local, apart)

    def outputs(self, main: torch.Tensor, local: torch.Tensor, apart: torch.Tensor) -> Any:
        return main


class GreedyOfSeveral(Greedy):
    def outputs(self, main: torch.Tensor, local: torch.Tensor, apart: torch.Tensor) -> Any:
        return local, main, apart


@pytest.mark.parametrize("make", [Greedy, GreedyOfSeveral])
def test_a_backward_of_a_local_loss_leaves_the_other_outputs_to_the_caller(make: Callable[[], Greedy]) -> None:
    opened = workbench.open(make(), batch(0)[0])
    assert isinstance(opened, PartsBench)
    recorded = []
    for is_compiled in (True, False):
        model = make()
        stepper = accuracy.Stepper(model, batch(0)[:1], {}, opened.config.jit(model) if is_compiled else None)
        for _ in range(2):
            stepper.clear_grads()
            outputs = stepper.step()
        assert not stepper.takes_steps
        recorded.append({name: entry.value for name, entry in stepper.record(outputs).items()})
    torch.testing.assert_close(*recorded)
    for name, is_differentiated in (("first", True), ("second", True), ("third", make is GreedyOfSeveral)):
        assert (recorded[1][f"grad({name}.weight)"] is not None) is is_differentiated
    assert opened.memory is not None


def scheduled(makes: Makes, schedule: Callable[[torch.optim.Optimizer], Any]) -> Trained:
    own = trained(makes)
    scheduler = schedule(own.optimizer)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = own.step(x, y)
        scheduler.step()
        return loss

    return own._replace(step=step)


def cosine(optimizer: torch.optim.Optimizer) -> Any:
    return lr_scheduler.CosineAnnealingLR(optimizer, 10)


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    """Return a schedule that changes the learning rate and the first beta, or the momentum."""
    return lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20)


def warmup(optimizer: torch.optim.Optimizer) -> Any:
    return lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 8))


class Lion(torch.optim.Optimizer):
    """An optimizer whose learning rate is the factor `alpha` of an addition."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-2, "betas": (0.9, 0.99), "weight_decay": 0.1})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                average = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_((average * first + p.grad * (1 - first)).sign_(), alpha=-group["lr"])
                average.mul_(second).add_(p.grad, alpha=1 - second)


SCHEDULES: list[tuple[Makes, Callable[[torch.optim.Optimizer], Any]]] = [
    (adamw, one_cycle),
    (momentum, cosine),
    (Lion, warmup),
    (momentum_foreach, one_cycle),
    (adamw_foreach, cosine),
    (adam, warmup),
]


@pytest.mark.parametrize("case", beyond(4, SCHEDULES), ids=lambda case: "-".join(each.__name__ for each in case))
def test_a_learning_rate_schedule_compiles_the_optimizer_at_most_twice(
    case: tuple[Makes, Callable[[torch.optim.Optimizer], Any]],
) -> None:
    makes, schedule = case
    bench = workbench.open(trained(makes).step, *batch(0))
    assert isinstance(bench, PartsBench)
    ours, theirs = scheduled(makes, schedule), scheduled(makes, schedule)
    compiled = bench.config.jit(ours.step)
    counts = []
    for at in range(10):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConfigWarning)
            torch.testing.assert_close(compiled(*batch(at)), theirs.step(*batch(at)))
        counts.append(len(compiled._workbench_jitted))
    assert counts[2:] == [counts[2]] * 8
    torch.testing.assert_close(ours.model.state_dict(), theirs.model.state_dict(), rtol=1e-4, atol=1e-5)
    assert ours.optimizer.param_groups[0]["lr"] == theirs.optimizer.param_groups[0]["lr"]
    assert type(ours.optimizer.param_groups[0]["lr"]) is float


def test_a_rate_of_a_bfloat16_model_is_not_rounded_to_bfloat16() -> None:
    """A rate of 1 - 2**-9 and one of 1 are the same number in bfloat16."""

    def build() -> Trained:
        weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
        optimizer = torch.optim.SGD([weight], lr=256.0, foreach=False)

        def step() -> torch.Tensor:
            loss = weight.sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            optimizer.param_groups[0]["lr"] = 257.0
            return loss.detach()

        return Trained(step, nn.ParameterList([weight]), optimizer)

    ours, theirs = build(), build()
    compiled = workbench.open(build().step).config.jit(ours.step)
    for _ in range(3):
        torch.testing.assert_close(compiled(), theirs.step(), rtol=0, atol=0)
    torch.testing.assert_close(ours.model.state_dict(), theirs.model.state_dict(), rtol=0, atol=0)


class Compared(torch.optim.Optimizer):
    """An optimizer that compares with its rate, and writes through `out` and by an operator of Python."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.137})
        self.buffer = torch.zeros(64, dtype=torch.bfloat16)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        del closure
        for group in self.param_groups:
            (weight,), rate = group["params"], group["lr"]
            weight.masked_fill_(weight.grad >= rate, 0.5)
            torch.mul(weight.grad, rate, out=self.buffer)
            weight.sub_(self.buffer)
            self.buffer //= rate
            weight.add_(self.buffer, alpha=-rate)


def test_operators_on_bfloat16_keep_their_writes_and_types_under_a_schedule() -> None:
    def build() -> Trained:
        weight = nn.Parameter(torch.randn(64, generator=torch.Generator().manual_seed(0)).bfloat16())
        optimizer = Compared([weight])
        scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 7))

        def step() -> torch.Tensor:
            loss = weight.sin().sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            return loss.detach()

        return Trained(step, nn.ParameterList([weight]), optimizer)

    ours, theirs = build(), build()
    compiled = workbench.open(build().step, executor="torch").config.jit(ours.step)
    for _ in range(4):
        torch.testing.assert_close(compiled(), theirs.step(), rtol=0, atol=0.02)
    # PyTorch's kernel for alpha rounds once. A lost write would be off by more than 0.1.
    torch.testing.assert_close(ours.model.state_dict(), theirs.model.state_dict(), rtol=0, atol=0.02)
    torch.testing.assert_close(ours.optimizer.buffer, theirs.optimizer.buffer, rtol=0, atol=0.02)


class TallAndWide(nn.Module):
    """A network of matrices, because `Muon` accepts no other parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(torch.tanh(self.first(x)))
        return result


@pytest.mark.parametrize("changes", [False, True])
def test_muon_orthogonalizes_in_bfloat16_as_eager_does(changes: bool) -> None:
    """A further rounding to bfloat16 in the update changes the weights by 1e-3."""

    def build() -> Trained:
        torch.manual_seed(0)
        model = TallAndWide()
        optimizer = torch.optim.Muon(model.parameters(), lr=1e-2)
        scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step / 7 * changes))

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
            return loss

        return Trained(step, model, optimizer)

    assert_trains_as_eager(workbench.open(build().step, *batch(0), executor="torch").config, build)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_adam_in_bfloat16_computes_as_the_capturable_adam_of_eager(
    kind: type[torch.optim.Adam], foreach: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamo traces the capturable form, which eager PyTorch allows on a GPU. The other form rounds otherwise."""

    def trained(capturable: bool) -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor]]:
        torch.manual_seed(0)
        model = nn.Linear(8, 8).bfloat16()
        optimizer = kind(model.parameters(), lr=0.01, foreach=foreach, capturable=capturable)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return model, step

    batches = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    ours, step = trained(False)
    compiled = workbench.open(step, batches[0], executor="torch").config.jit(step)
    for x in batches:
        compiled(x)
    adam = inspect.getmodule(torch.optim.Adam)
    monkeypatch.setattr(adam, "_get_capturable_supported_devices", lambda *_, **__: ["cpu"])
    theirs, step = trained(True)
    for x in batches:
        step(x)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)


def test_a_number_times_a_bfloat16_tensor_is_not_rounded_first() -> None:
    x = torch.randn(64, generator=torch.Generator().manual_seed(0)).bfloat16()

    def program(x: torch.Tensor) -> torch.Tensor:
        return -4.775 * x + 2.0315 * (x * x)

    compiled = workbench.open(program, x, executor="torch").config.jit(program)
    torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)


def stepped_in_hooks() -> Trained:
    """Return a step whose optimizers run in hooks, which frees each gradient before the next one is computed."""
    own = trained(adamw)
    optimizers = {parameter: torch.optim.AdamW([parameter], lr=1e-2) for parameter in own.model.parameters()}

    def update(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in own.model.parameters():
        parameter.register_post_accumulate_grad_hook(update)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = functional.mse_loss(own.model(x), y)
        loss.backward()
        return loss

    return own._replace(step=step)


def place_copied(given: Trained) -> Trained:
    made: Trained = placement.place_objects(given, "cpu", copied=True)
    return made


def send(given: Trained) -> Trained:
    made: Trained = cloudpickle.loads(pickling.dumps(given))
    return made


def test_a_step_whose_optimizers_run_in_hooks_trains_as_eager() -> None:
    own = stepped_in_hooks()
    bench = workbench.open(own.step, *batch(0))
    assert all(not optimizer.state for optimizer in find_tensors(own.step).optimizers)
    ours, theirs = stepped_in_hooks(), stepped_in_hooks()
    compiled = bench.config.jit(ours.step)
    for at in range(STEPS):
        torch.testing.assert_close(compiled(*batch(at)), theirs.step(*batch(at)))
    torch.testing.assert_close(ours.model.state_dict(), theirs.model.state_dict())


SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1, momentum=0.9) for parameter in model.parameters()}

class Updates:
    def __init__(self):
        self.optimizers = optimizers

    def update(self, parameter):
        self.optimizers[parameter].step()
        self.optimizers[parameter].zero_grad()

    __call__ = update

def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()

for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(HOOK)

def step(x):
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()
"""
"""A training script, whose hooks read their optimizers from globals. In each script, ``HOOK`` is an expression."""


def run_script(hook: str) -> dict[str, Any]:
    made: dict[str, Any] = {"__name__": "script"}
    exec(SCRIPT.replace("HOOK", hook), made)
    return made


@pytest.mark.parametrize("hook", ["update", "Updates().update", "Updates()", "lambda own: update(own)"])
def test_hooks_that_read_globals_train_every_parameter(hook: str) -> None:
    ours, theirs = run_script(hook), run_script(hook)
    batches = torch.randn(STEPS, 3, 8, generator=torch.Generator().manual_seed(0))
    bench = workbench.open(ours["step"], batches[0], executor="torch")
    assert all(not optimizer.state for optimizer in ours["optimizers"].values())
    compiled = bench.config.jit(ours["step"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConfigWarning)
        for x in batches:
            torch.testing.assert_close(compiled(x), theirs["step"](x))
            assert all(parameter.grad is None for parameter in ours["model"].parameters())
    assert [len(optimizer.state) for optimizer in ours["optimizers"].values()] == [1] * 4
    torch.testing.assert_close(ours["model"].state_dict(), theirs["model"].state_dict())


@pytest.mark.parametrize("copied", [place_copied, send], ids=["copied", "sent"])
def test_a_copy_of_a_step_keeps_the_optimizers_in_its_hooks(copied: Callable[[Trained], Trained]) -> None:
    ours, theirs = copied(stepped_in_hooks()), stepped_in_hooks()
    for at in range(2):
        torch.testing.assert_close(ours.step(*batch(at)), theirs.step(*batch(at)), rtol=0, atol=0)
    torch.testing.assert_close(ours.model.state_dict(), theirs.model.state_dict(), rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in ours.model.parameters())


class LearnsFromACopy(nn.Module):
    """A step that trains a copy of its model with a new optimizer, as in federated or meta-learning."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        model = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(x).square().mean().backward()
        optimizer.step()
        self.model.load_state_dict(model.state_dict())
        return model.weight.detach().sum()


@pytest.mark.slow
def test_a_step_that_makes_and_frees_its_optimizer_trains_as_eager() -> None:
    step, x = LearnsFromACopy(), torch.randn(3, 4)
    eager = copy.deepcopy(step)
    compiled = workbench.open(step, x, device="cpu").config.jit(step)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), eager(x))
    torch.testing.assert_close(step.state_dict(), eager.state_dict())


class Alternating(nn.Module):
    """Trains two layers, one after the other. The layer that does not train requires no gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.optimizers = [torch.optim.SGD(layer.parameters(), 0.1, foreach=False) for layer in self.layers]

    def set_requires_grad(self, layer: nn.Module, value: bool) -> None:
        for parameter in layer.parameters():
            parameter.requires_grad_(value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.layers
        self.set_requires_grad(second, True)
        self.set_requires_grad(first, False)
        self.train_with(self.optimizers[1], x)
        self.set_requires_grad(second, False)
        self.set_requires_grad(first, True)
        return self.train_with(self.optimizers[0], x)

    def train_with(self, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.layers[1](self.layers[0](x).tanh()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()


def test_a_step_that_changes_which_parameters_require_gradients_trains_as_in_eager() -> None:
    torch.manual_seed(0)
    x, model = torch.randn(3, 4), Alternating()
    in_eager = copy.deepcopy(model)
    run = workbench.open(model, x, device="cpu").config.jit(model)
    for _ in range(3):
        torch.testing.assert_close(run(x), in_eager(x))
    torch.testing.assert_close(model.state_dict(), in_eager.state_dict())
