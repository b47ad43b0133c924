"""A program that computes numbers with NumPy is captured, and computes as in eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import workbench

NET = nn.Linear(8, 8)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return NET(x) * float(np.sqrt(2.0))


def divided(x: torch.Tensor) -> torch.Tensor:
    return NET(x) / np.sqrt(x.shape[-1])


def rounded(x: torch.Tensor) -> torch.Tensor:
    return NET(x) * int(np.ceil(2.5))


def converted(x: torch.Tensor) -> torch.Tensor:
    return NET(x) * np.sqrt(2.0).astype(np.float32)


def computed(x: torch.Tensor) -> torch.Tensor:
    return NET(x) * (np.sqrt(2.0) * 3 + np.pi).item()


def masked(x: torch.Tensor) -> torch.Tensor:
    return NET(x).masked_fill(x > 0, float(np.finfo(np.float32).min))


def averaged(x: torch.Tensor) -> torch.Tensor:
    return NET(x) * np.mean([1.0, 2.0, 3.0]).item()


def spaced(x: torch.Tensor) -> torch.Tensor:
    return NET(x) * torch.tensor(np.linspace(0.0, 1.0, 8), dtype=torch.float32) * float(np.sqrt(2.0))


def passed_on(x: torch.Tensor) -> torch.Tensor:
    factor = np.sqrt(2.0)
    return (NET(x) * factor).sin() * torch.as_tensor(factor)


def drawn(x: torch.Tensor) -> torch.Tensor:
    return NET(x) * np.random.rand()  # noqa: NPY002


def encodes_positions(x: torch.Tensor) -> torch.Tensor:
    table, position = np.zeros((8, 2), dtype=np.float32), np.arange(8, dtype=np.float32)
    table[:, 0] = np.sin(position)
    table[:, 1] = np.cos(position)
    return (NET(x)[..., None] * torch.from_numpy(table)).sum()


def fills(x: torch.Tensor) -> torch.Tensor:
    scale = np.zeros(8, dtype=np.float32)
    scale.fill(3.0)
    scale += 2.0
    np.add(scale, 1.0, out=scale)
    return NET(x) * torch.from_numpy(scale) + torch.from_numpy(scale)


def writes_a_cell(x: torch.Tensor) -> torch.Tensor:
    cell = np.array(2.0, dtype=np.float32)
    before = NET(x) * torch.from_numpy(cell)
    cell.fill(5.0)
    return before.sin() * torch.from_numpy(cell)


def adds_to_a_number(x: torch.Tensor) -> torch.Tensor:
    factor = np.sqrt(2.0)
    factor *= 3.0
    return NET(x) * factor + factor


def sorts(x: torch.Tensor) -> torch.Tensor:
    scale = np.array([3.0, 1.0, 2.0, 0.0] * 2, dtype=np.float32)
    scale.sort()
    return NET(x) * torch.from_numpy(scale)


def cancels_a_draw(x: torch.Tensor) -> torch.Tensor:
    drawn_once = np.random.uniform()  # noqa: NPY002
    hidden = NET(x)
    return hidden * drawn_once - hidden.sin() * drawn_once


@pytest.mark.filterwarnings("ignore:To copy construct:UserWarning")
@pytest.mark.parametrize(
    ("program", "capture"),
    [
        (scaled, "dynamo"),
        (divided, "dynamo"),
        (rounded, "dynamo"),
        (converted, "parts"),
        (computed, "dynamo"),
        (masked, "dynamo"),
        (averaged, "dynamo"),
        (spaced, "parts"),
        (passed_on, "parts"),
        (drawn, "parts"),
        (encodes_positions, "parts"),
        (fills, "parts"),
        (writes_a_cell, "parts"),
        (adds_to_a_number, "parts"),
        pytest.param(sorts, "parts", marks=pytest.mark.slow),
        (cancels_a_draw, "parts"),
    ],
)
def test_a_program_with_numbers_of_numpy_computes_as_eager(
    program: Callable[[torch.Tensor], torch.Tensor], capture: str
) -> None:
    x = torch.randn(4, 8)
    config = workbench.open(program, x).config
    assert config.capture == capture
    compiled = config.jit(program)
    for _ in range(2):
        results = []
        for call in (program, compiled):
            np.random.seed(1)  # noqa: NPY002
            results.append(call(x))
        torch.testing.assert_close(*results)
