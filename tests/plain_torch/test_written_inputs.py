"""A backward of plain PyTorch never recomputes from an input that the step has written in place."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.analysis.cost.machines import H100
from workbench.compiler.driver.torch_prediction import predict_and_read
from workbench.plain_torch import compiled, eager

BACKENDS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]


class Scaled(torch.nn.Module):
    """Reads a buffer, and then writes it."""

    def __init__(self, *, by_view: bool = False) -> None:
        super().__init__()
        self.linear, self.by_view = torch.nn.Linear(8, 8), by_view
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.scale.view(2, 4).view(8) if self.by_view else self.scale
        hidden = self.linear(torch.sin(x * scale))
        with torch.no_grad():
            self.scale.mul_(3.0).add_(1.0)
        return hidden.cos().sum()


class WrittenInput(torch.nn.Module):
    """Writes its input, which requires gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(torch.sin(x.detach() * 2).cos())
        x.mul_(3.0)
        return hidden.cos().sum()


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "buffer": Scaled,
    "view": lambda: Scaled(by_view=True),
    "input with gradients": WrittenInput,
}


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return MODELS[name]()


def inputs(module: torch.nn.Module) -> torch.Tensor:
    torch.manual_seed(1)
    # Not a leaf, so that a program may write into it.
    return torch.randn(4, 8, requires_grad=isinstance(module, WrittenInput)) * 1


def gradient(call: Any, module: Any) -> torch.Tensor:
    call(inputs(module)).backward()
    found: torch.Tensor = module.linear.weight.grad
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("budget", [None, 0.5, 0.0])
@pytest.mark.parametrize("choices", [{}, {("", "sin", 0): "recompute"}, {("", "mul", 0): "recompute"}])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_right_if_an_input_is_written(
    name: str, choices: Any, budget: float | None, backend: str
) -> None:
    right = gradient(eager_model := model(name), eager_model)
    module = model(name)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        made = gradient(compiled.compile(module, choices=choices, budget=budget, backend=backend), module)
    torch.testing.assert_close(made, right)
    reasons = [str(w.message) for w in told if "is not applied" in str(w.message)]
    assert all("it reads an input that the step writes in place" in reason for reason in reasons)
    # PyTorch copies an input with gradients before the step writes it, so its readers could run again. In a graph for
    # Inductor, the copy back looks like any other write.
    copied = name == "input with gradients" and backend == "aot_eager"
    assert bool(reasons) == (("", "mul", 0) in choices and not copied)


@pytest.mark.slow
def test_a_prediction_names_the_choice_and_a_fit_does_not_make_it() -> None:
    captured = wb.open(model("buffer"), torch.randn(4, 8))._captured
    found = predict_and_read(captured, {("", "mul", 0): "recompute"}, machine=H100)
    assert ["it reads an input that the step writes in place" in told for told in found.prediction.unapplied] == [True]
    assert found.step is not None
    made_by = found.step.made_by
    can_recompute = {made_by.get(one.name): one.can_recompute for one in found.step.values}
    assert can_recompute[("", "mul", 0)] is False
    assert can_recompute[("", "sin", 0)] is True


def test_a_module_without_compiler_refuses_to_recompute_from_a_written_input() -> None:
    choices = {("", "mul", 0): "recompute", ("", "sin", 0): "recompute"}
    module = eager.checkpoint(model("buffer"), choices=choices)
    with pytest.raises(RuntimeError, match="a later write changed the operator's input: choose 'save'"):
        module(inputs(module)).backward()
