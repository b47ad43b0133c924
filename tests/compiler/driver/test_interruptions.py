"""Ctrl-C ends a capture and a compilation with `KeyboardInterrupt`, also if it arrives inside Thunder's interpreter."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import thunder.core.interpreter
import torch
from torch import nn

import workbench
from workbench.errors import ProgramError

NET = nn.Linear(8, 8)


def presses(x: torch.Tensor) -> torch.Tensor:
    os.kill(os.getpid(), signal.SIGINT)
    return NET(x).sin()


def fails(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("a mistake")


def exits(x: torch.Tensor) -> torch.Tensor:
    raise SystemExit(3)


@pytest.mark.parametrize("capture", ["auto", "interpreter", "parts"])
def test_ctrl_c_ends_a_capture(capture: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        workbench.open(presses, torch.randn(4, 8), capture=capture)


@pytest.mark.parametrize("capture", ["dynamo", "interpreter"])
def test_ctrl_c_ends_the_first_call_of_a_compiled_function(capture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(4, 8)
    compiled = workbench.open(NET, x, capture=capture).config.jit(NET)
    interpret, presses = thunder.core.interpreter._interpret_call, [signal.SIGINT]

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if presses:
            os.kill(os.getpid(), presses.pop())
        return interpret(*args, **kwargs)

    monkeypatch.setattr(thunder.core.interpreter, "_interpret_call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled(x)
    torch.testing.assert_close(compiled(x), NET(x))


def test_an_exit_of_a_program_is_reported() -> None:
    with pytest.raises(ProgramError, match="SystemExit"):
        workbench.open(exits, torch.randn(4, 8))


def test_an_error_while_ctrl_c_is_handled_is_the_error() -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(ProgramError, match="a mistake"):
            workbench.open(fails, torch.randn(4, 8))
