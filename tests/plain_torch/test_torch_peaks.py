"""The predicted peak memory of plain `torch.compile` equals the measured peak to the byte."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

import workbench as wb
from tests.trial_counts import beyond
from workbench.analysis.cost.machines import H100
from workbench.compiler.driver import inductor_memory
from workbench.compiler.driver.torch_prediction import Candidate, JointPrediction, predict_and_read, predict_each
from workbench.compiler.memory import kernel_workspace
from workbench.errors import PlanError
from workbench.runs.measure import accuracy, memory_meter


class Product(nn.Module):
    """A loss computed from the product of an input and a weight."""

    def __init__(self, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight, self.loss = nn.Parameter(torch.rand(64, 64)), loss

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.loss(x, self.weight)


class Convolutions(nn.Module):
    """Convolutions, whose saved inputs Inductor keeps in another memory layout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(*sizes, 3, padding=1) for sizes in ((4, 32), (32, 32), (32, 2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, last = self.layers
        loss: torch.Tensor = last(second(first(x) * 2).sin()).square().mean()
        return loss


class SummedWeights(nn.Module):
    """Two parameters that receive the same gradient tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Parameter(torch.rand(64, 64)), nn.Parameter(torch.rand(64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ (self.one + self.other)).sin().sum()


class Normalized(nn.Module):
    """A batch norm, which writes buffers, and a dropout, which draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.body(x).square().mean()
        return loss


def leaf_with_gaps() -> torch.Tensor:
    return torch.rand(64, 128)[:, ::2].detach().requires_grad_()


Case = tuple[nn.Module, torch.Tensor]
CASES: dict[str, Callable[[], Case]] = {
    "convolutions": lambda: (Convolutions(), torch.rand(2, 4, 32, 32)),
    "one gradient for two leaves": lambda: (SummedWeights(), torch.rand(16, 64)),
    "a leaf with gaps": lambda: (Product(lambda x, weight: (weight @ x.t()).sin().sum()), leaf_with_gaps()),
    "a batch norm and a dropout": lambda: (Normalized(), torch.rand(16, 64)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", beyond(1, list(CASES)))
def test_the_predicted_peak_is_the_measured_peak(name: str) -> None:
    module, x = CASES[name]()
    predicted = wb.open(module, x, device="cpu").torch_prediction(stock=True)
    stepper = accuracy.Stepper(module, (x,), {}, torch.compile(module))
    stepper.step()
    stepper.step()
    assert memory_meter.measure_peak(stepper).measured_peak_bytes == predicted.peak_bytes


@pytest.mark.slow
def test_a_backward_without_operators_has_a_peak() -> None:
    module, x = Product(lambda x, weight: weight + x), torch.rand(64, 64)
    predicted = wb.open(module, x, device="cpu").torch_prediction()
    given = sum(tensor.nbytes for tensor in (x, module.weight))
    assert (predicted.peak_bytes, predicted.saved_bytes) == (given + 2 * x.nbytes, 0)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["cpp_wrapper", "nan_asserts"])
def test_settings_of_inductor_do_not_run_kernels_on_fake_tensors(setting: str) -> None:
    module, x = Product(lambda x, weight: ((x @ weight).sin() @ weight).cos().sum()), torch.rand(64, 64)
    bench = wb.open(module, x, device="cpu")
    plain = bench.torch_prediction()
    assert re.fullmatch(r"torch.compile, predicted: peak [\d,]+ bytes, saved [\d,]+ bytes in \d+ tensors", str(plain))
    with torch._inductor.config.patch({setting: True}):
        assert bench.torch_prediction() == plain


@pytest.mark.slow
def test_a_prediction_without_gradients_of_the_caller_has_a_backward() -> None:
    module, x = Product(lambda x, weight: (x @ weight).sin().sum()), torch.rand(64, 64)
    bench = wb.open(module, x, device="cpu")
    with torch.no_grad():
        assert bench.torch_prediction() == bench.torch_prediction()
        assert bench.torch_prediction().saved_bytes == 64 * 64 * 4


@pytest.mark.slow
def test_a_failure_of_pytorch_gives_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("seen by the test")

    module, x = Product(lambda x, weight: (x @ weight).sin().sum()), torch.rand(64, 64)
    bench = wb.open(module, x, device="cpu")
    monkeypatch.setattr(inductor_memory, "compile_fx_inner", fail)
    with pytest.raises(PlanError, match=r"torch.compile cannot compile .*: ZeroDivisionError: seen by the test"):
        bench.torch_prediction()


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: Convolutions(), lambda: Normalized()])
def test_predictions_from_one_trace_equal_those_from_a_trace_each(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    module = make()
    x = torch.rand(2, 4, 16, 16) if isinstance(module, Convolutions) else torch.rand(64, 64)
    captured = wb.open(module, x, device="cpu")._captured
    keys = [("", "sin", 0), ("", "mul", 0)] if isinstance(module, Convolutions) else [("body.2", "relu", 0)]
    nothing: Candidate = {}, None
    asked: list[Candidate] = [nothing, (dict.fromkeys(keys, "recompute"), None), ({}, 0.3), nothing]
    found = list[JointPrediction]()

    def following(made: JointPrediction) -> Candidate | None:
        found.append(made)
        return asked[len(found)] if len(found) < len(asked) else None

    predict_each(captured, nothing, H100, following)
    alone = [predict_and_read(captured, choices, budget=budget) for choices, budget in asked[:-1]]
    assert [one.prediction for one in found] == [one.prediction for one in (*alone, alone[0])]
    assert [one.memory.kernels for one in found] == [one.memory.kernels for one in (*alone, alone[0])]
    assert len({one.prediction.saved_bytes for one in alone}) > 1


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["MOST_BYTES", "MOST_FLOPS"])
def test_if_a_kernel_cannot_be_measured_the_peak_is_a_lower_bound(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = wb.open(Convolutions(), torch.rand(2, 4, 16, 16), device="cpu")
    whole = bench.torch_prediction()
    assert not whole.peak_at_least
    with monkeypatch.context() as inside:
        inside.setattr(kernel_workspace, limit, 0)
        bound = predict_and_read(bench._captured, {}).prediction
    assert bound.peak_at_least
    assert bound.peak_bytes < whole.peak_bytes
    assert str(bound).startswith(f"torch.compile, predicted: peak at least {bound.peak_bytes:,} bytes")
