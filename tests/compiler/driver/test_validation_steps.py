"""A config for training also compiles calls without gradients and in eval mode, in which some choices cannot apply."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import torch
from torch import nn

import workbench
from workbench.errors import ChoiceError, ConfigWarning

pytestmark = pytest.mark.slow


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.norm(self.linear(x)))


def made(choice: str, option: str) -> workbench.Config:
    bench = workbench.open(Model(), torch.randn(4, 4), executor="torch", device="cpu")
    bench.choose({choice: option})
    return bench.config


@pytest.mark.parametrize(
    ("choice", "option"),
    [
        ("order.backward", "least peak"),
        ("order.gradients", "at once"),
        ("order.updates", "at once"),
    ],
)
def test_a_choice_for_training_does_not_end_a_validation_step(choice: str, option: str) -> None:
    config = made(choice, option)
    model, x = Model(), torch.randn(4, 4)
    compiled = config.jit(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConfigWarning)
        compiled(x).sum().backward()
        with torch.no_grad():
            compiled(x)
        model.eval()
        with torch.no_grad():
            valid = compiled(x)
    assert torch.equal(valid, model(x))


def test_a_setting_without_effect_in_eval_mode_is_told_once() -> None:
    """Without `no_grad`, the choices are meant for this call, too."""
    config = made("order.updates", "at once")
    model = Model()
    compiled = config.jit(model)
    compiled(torch.randn(4, 4))
    model.eval()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConfigWarning)
        compiled(torch.randn(4, 4)).sum().backward()
    mode, choice = (str(each.message) for each in caught if issubclass(each.category, ConfigWarning))
    assert "made for the module in train() mode, but the module is in eval() mode" in mode
    assert "1 of 1 choices have no effect in this program and are left out: order.updates: " in choice
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConfigWarning)
        compiled(torch.randn(5, 4))


def test_a_misspelt_option_is_an_error_in_a_validation_step_too() -> None:
    config = dataclasses.replace(made("order.backward", "least peak"), choices={"order.backward": "smallest peak"})
    legal = "legal: inherit, stock, least peak, recompute just in time"
    with torch.no_grad(), pytest.raises(ChoiceError, match=legal):
        config.jit(Model())(torch.randn(4, 4))


def test_a_plan_refuses_a_setting_without_effect() -> None:
    bench = workbench.open(Model().eval(), torch.randn(4, 4), executor="torch", device="cpu")
    with pytest.raises(ChoiceError, match="no statement writes in place"):
        bench.choose({"order.updates": "at once"})
