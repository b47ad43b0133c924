"""A step that writes a parameter may go on with the result of the write: the result is the parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import workbench

STEPS = 3


def power(w: Any) -> Any:
    w **= 1.1
    return w


def remainder(w: Any) -> Any:
    w %= 1.0
    return w


def quotient(w: Any) -> Any:
    w //= 0.25
    return w


def product(w: Any) -> Any:
    w @= torch.full((4, 4), 0.25)  # a new tensor: tensors have no such operator in place
    return w


WRITES: dict[str, Callable[[Any], Any]] = {
    "**=": power,
    "%=": remainder,
    "//=": quotient,
    "@=": product,
    "method": lambda w: w.sub_(0.1 * w.grad),
    "scaled": lambda w: w.add_(w.grad, alpha=-0.1),
    "chained": lambda w: w.mul_(0.9).sub_(w.grad, alpha=0.1),
    "__isub__": lambda w: w.__isub__(0.1 * w.grad),
    "turned": lambda w: w.mul_(0.9).t_(),
    "out": lambda w: torch.add(w, w.grad, alpha=-0.1, out=w),
    "function": lambda w: torch.sigmoid_(w),
    "inplace": lambda w: functional.relu(w, inplace=True),
    "not in place": lambda w: torch.add(w, w.grad, alpha=-0.1),
}


class Written(nn.Module):
    def __init__(self, write: Callable[[Any], Any]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.arange(16.0).reshape(4, 4) / 16 + 0.3)
        self.write = write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        loss = (x @ self.w).sin().sum()
        loss.backward()
        with torch.no_grad():
            self.write(self.w).grad = None
        return loss.detach()


def losses(write: Callable[[Any], Any], compiled: bool) -> tuple[list[float], bool]:
    model, x = Written(write), torch.arange(12.0).reshape(3, 4) / 12
    call: Any = workbench.open(model, x, executor="torch", device="cpu").config.jit(model) if compiled else model
    return [float(call(x)) for _ in range(STEPS)], model.w.grad is None


@pytest.mark.parametrize("name", WRITES)
def test_the_result_of_a_write_is_the_written_parameter(name: str) -> None:
    wanted, cleared = losses(WRITES[name], compiled=False)
    made, ours = losses(WRITES[name], compiled=True)
    assert made == pytest.approx(wanted)
    assert ours == cleared
