"""PyTorch's modes, such as the default dtype, that are active at `open` belong to the program.

Plans, exports, runs and replays use these modes.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from workbench.errors import ConfigWarning, ProgramError
from workbench.programs import modes
from workbench.runs.measure import accuracy

X = torch.ones(2, 4)


def layer() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh())


def autocast() -> AbstractContextManager[Any]:
    return torch.autocast("cpu", dtype=torch.bfloat16)


@contextlib.contextmanager
def double() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


UNDER: list[tuple[Callable[[], AbstractContextManager[Any]], dict[str, str]]] = [
    (torch.no_grad, {"grad": "off"}),
    (torch.inference_mode, {"grad": "inference"}),
    (autocast, {"autocast_cpu": "bfloat16"}),
    (double, {"default_dtype": "float64"}),
]


@pytest.mark.parametrize(("under", "named"), UNDER)
def test_modes_are_found_and_restored(under: Callable[[], AbstractContextManager[Any]], named: dict[str, str]) -> None:
    assert modes.current_modes() == {}
    with under():
        assert modes.current_modes() == named
    with modes.active_modes(named):
        assert modes.current_modes() == named
    assert modes.current_modes() == {}


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["dynamo", "interpreter"])
@pytest.mark.parametrize(("under", "named"), UNDER[:3:2])
def test_a_program_opened_under_a_mode_runs_and_replays_under_the_mode(
    under: Callable[[], AbstractContextManager[Any]], named: dict[str, str], capture: str, tmp_path: Path
) -> None:
    model = layer()
    with under():
        expected = model(X)
        bench = workbench.open(model, X, capture=capture)
    config = workbench.load(bench.export(tmp_path / "choices.py"))
    assert config.modes == bench.program.modes == named
    again = workbench.open(model, X, config=config)
    assert again.plan.text() == bench.plan.text()
    jitted = config.jit(model)
    returned = jitted(X)
    assert (returned.dtype, returned.requires_grad) == (expected.dtype, expected.requires_grad)
    torch.testing.assert_close(returned, expected)
    stepper = accuracy.Stepper(model, (X,), {}, jitted, modes=config.modes)
    recorded = accuracy.first_step(stepper, 0)
    differentiated = any(each.kind == "grad" and each.value is not None for each in recorded.values())
    assert differentiated is expected.requires_grad
    checked = accuracy.check_first_step(recorded, lambda: (layer(), (X,), {}), capture=capture, modes=config.modes)
    assert checked.ok, checked.worst


def dropped() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.parametrize(("opened", "capture"), [(True, "dynamo"), (False, "interpreter")])
def test_if_a_module_is_in_another_mode_than_the_config_says_a_warning_is_given(
    opened: bool, capture: str, tmp_path: Path
) -> None:
    model = dropped().train(opened)
    bench = workbench.open(model, X, capture=capture)
    config = workbench.load(bench.export(tmp_path / "choices.py"))
    assert config.modes == ({} if opened else {"module": "eval"})
    words = {True: "train", False: "eval"}
    said = rf"made for the module in {words[opened]}\(\) mode, but the module is in {words[not opened]}\(\) mode"
    model.train(not opened)
    with pytest.warns(ConfigWarning, match=said):
        workbench.open(model, X, config=config)
    with pytest.warns(ConfigWarning, match=said):
        config.jit(model)(X)
    model.train(opened)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConfigWarning)
        assert config.jit(model)(X).shape == X.shape


def test_ranks_under_autocast_are_refused() -> None:
    with (
        autocast(),
        pytest.raises(ProgramError, match=r"2 ranks and autocast \(autocast_cpu: bfloat16\): .* outside of"),
    ):
        workbench.open(layer(), X, ranks=2, parallel="ddp")
