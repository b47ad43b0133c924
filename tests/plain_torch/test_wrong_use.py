"""Choices for plain PyTorch keep PyTorch's own checks and results in unusual programs."""

import copy
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

from workbench import cli
from workbench.compiler.driver import torch_choices
from workbench.core.config import Config
from workbench.errors import ConfigWarning, PlanError
from workbench.plain_torch import compiled, eager
from workbench.plain_torch.operators import Key


class Function(torch.nn.Module):
    """A module whose forward is a function of a tensor and of the module's parameter."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function, self.weight = function, torch.nn.Parameter(torch.full((6,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight).sum()


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def trained(function: Callable[..., torch.Tensor], choices: dict[Key, str] | None) -> tuple[torch.Tensor, list[str]]:
    """Return the gradient of a step, and the texts of warnings. If `choices` is None, the module runs unchanged."""
    torch.manual_seed(0)
    module = Function(function)
    if choices is not None:
        eager.checkpoint(module, choices=choices)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        module(torch.rand(4, 6)).backward()
    assert module.weight.grad is not None
    return module.weight.grad, [str(warning.message) for warning in told]


def write_after_saving(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = (x * w).exp()
    made = y.sin()
    y.add_(1.0)
    return made


def test_a_tensor_that_is_written_after_it_was_saved_is_an_error_as_in_pytorch() -> None:
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        trained(write_after_saving, None)
    with pytest.raises(RuntimeError, match="was written in place after it was saved"):
        trained(write_after_saving, {})


def draws(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.bernoulli(torch.sigmoid(x), generator=generator) * w


def normalizes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    mean, variance = torch.zeros(6), torch.ones(6)
    made = functional.batch_norm(x * w, mean, variance, training=True)
    return made.sin() * mean.sum()


def sparse(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sparse.mm(x.to_sparse(), w[:, None])


def conjugates(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    made = torch.complex(x * w, x + w).sin()
    return (made.conj() * made * 1j).real + (made.conj() * x).imag


@pytest.mark.parametrize(
    ("function", "key", "reason"),
    [
        (draws, ("", "bernoulli", 0), "draws random numbers"),
        (normalizes, ("", "batch_norm", 0), "writes running statistics"),
        (sparse, ("", "to_sparse", 0), "something else than one dense tensor"),
        (conjugates, ("", "sin", 0), ""),
    ],
)
def test_gradients_are_those_of_pytorch(function: Callable[..., torch.Tensor], key: Key, reason: str) -> None:
    expected, _ = trained(function, None)
    found, told = trained(function, {key: "recompute"})
    assert torch.equal(found, expected)
    assert [reason in text for text in told] == [True] * bool(reason)


def test_a_second_backward_recomputes_no_more_than_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = 0

    def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x = x * w
        for _ in range(12):
            x = x * x
        return x

    again = eager.tree_unflatten

    def counted(*given: Any) -> Any:
        nonlocal runs
        runs += 1
        return again(*given)

    monkeypatch.setattr(eager, "tree_unflatten", counted)
    module = eager.checkpoint(Function(chain), choices={("", "mul", at): "recompute" for at in range(13)})
    loss = module(torch.rand(4, 6))
    counts = []
    for _ in range(2):
        runs = 0
        loss.backward(retain_graph=True)
        counts.append(runs)
    assert 0 < counts[1] <= counts[0] < 14


def test_a_deep_copy_runs_with_its_own_parameters() -> None:
    module = eager.checkpoint(Function(lambda x, w: (x * w).exp()), choices={("", "mul", 0): "recompute"})
    copied = copy.deepcopy(module)
    with torch.no_grad():
        copied.weight.zero_()
    x = torch.rand(4, 6)
    assert copied(x).item() == 24
    assert module(x).item() != 24
    copied(x).backward()
    assert copied.weight.grad is not None
    assert module.weight.grad is None


def test_only_a_module_can_be_checkpointed() -> None:
    with pytest.raises(TypeError, match=r"checkpoint changes a torch\.nn\.Module, given function"):
        eager.checkpoint(lambda x: x, choices={})


def test_other_threads_may_call_modules_during_a_call() -> None:
    ready, go = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    class Waiting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ready.set()
            go.wait(10)
            return x

    def other() -> None:
        try:
            Waiting()(torch.ones(1))
        except Exception as error:  # noqa: BLE001  # any error of the thread is a failure
            failed.append(error)

    thread = threading.Thread(target=other)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        thread.start()
        ready.wait(10)
        made = torch.nn.Identity()(x * w).exp()
        go.set()
        thread.join()
        return made

    _, told = trained(function, {("", "mul", 0): "recompute"})
    assert (failed, told) == ([], [])


def test_arithmetic_on_sizes_does_not_shift_the_ordinals_of_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    tagged: list[list[str]] = []
    divide = compiled.min_cut_rematerialization_partition

    def spy(graph: Any, *given: Any, **more: Any) -> Any:
        nodes = [node for node in graph.graph.nodes if "recompute" in node.meta]
        tagged.append([str(node.all_input_nodes[0].target) for node in nodes])
        return divide(graph, *given, **more)

    monkeypatch.setattr(compiled, "min_cut_rematerialization_partition", spy)

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        first = (x.view(x.shape[0] * 2, 3) * w.view(-1, 3)).exp()
        return (first * w.view(-1, 3)).exp().sum()

    made = compiled.compile(function, choices={("", "mul", 1): "recompute"}, backend="aot_eager")
    for rows in (4, 6):  # the second call makes the sizes dynamic
        made(torch.rand(rows, 6), torch.rand(rows, 6, requires_grad=True)).backward()
    assert len(tagged) == 2
    assert all(names[0] == "aten.exp.default" for names in tagged)


def test_a_config_for_ranks_is_refused() -> None:
    config = Config(program="mlp", executor="torch", device="cpu", ranks=4)
    for use in (config.compile, config.checkpoint):
        with pytest.raises(PlanError, match="for one process, but this config is for 4 ranks"):
            use(Function(torch.mul))


@pytest.mark.parametrize("command", [["plan", "mlp"], ["fit", "mlp", "--peak", "90%"]])
def test_a_target_needs_a_file(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main([*command, "--target", "torch"])
    assert "--target torch needs --export FILE" in capsys.readouterr().err


def test_a_translation_that_fails_is_tried_again_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    module, translated = Function(torch.mul), []

    def fails_once(captured: Any, choices: Any) -> torch_choices.TorchChoices:
        translated.append(captured)
        if len(translated) == 1:
            raise ValueError("the first call fails")
        return torch_choices.TorchChoices({}, {}, {})

    monkeypatch.setattr(torch_choices, "torch_choices", fails_once)
    made = Config(program="mlp", executor="torch", device="cpu").checkpoint(module)
    with pytest.raises(ValueError, match="the first call fails"):
        made(torch.rand(4, 6))
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfigWarning)
            made(torch.rand(4, 6)).backward()
    assert len(translated) == 2


def test_mode_and_options_are_not_given_together() -> None:
    with pytest.raises(RuntimeError, match="Either mode or options can be specified"):
        compiled.compile(lambda x: x, mode="reduce-overhead", options={"shape_padding": True})
