"""A program that changes a setting of PyTorch computes as in eager PyTorch, and opening it restores the settings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import workbench
from workbench.programs.placement import _SETTINGS

pytestmark = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore:Dynamo does not know:UserWarning")

FIRST, SECOND = nn.Linear(8, 8), nn.Linear(8, 8)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def scales(x: torch.Tensor) -> torch.Tensor:
    torch.set_default_dtype(torch.float64)
    scale = torch.ones(8)
    torch.set_default_dtype(torch.float32)
    return (SECOND(FIRST(x).sin()) * scale).sum()


def scales_between(x: torch.Tensor) -> torch.Tensor:
    hidden = FIRST(x).sin()
    with default_dtype(torch.float64):
        scale = torch.linspace(0, 1, 8)
    return SECOND(hidden) * scale


def scales_in_bfloat16(x: torch.Tensor) -> torch.Tensor:
    torch.set_default_dtype(torch.bfloat16)
    made = FIRST(x) + torch.full((8,), 0.1)
    torch.set_default_dtype(torch.float32)
    return made


def lowers_precision(x: torch.Tensor) -> torch.Tensor:
    torch.set_float32_matmul_precision("medium")
    made = FIRST(x).sin()
    torch.set_float32_matmul_precision("highest")
    return SECOND(made)


def is_deterministic(x: torch.Tensor) -> torch.Tensor:
    torch.use_deterministic_algorithms(True)
    made = FIRST(x).sin()
    torch.use_deterministic_algorithms(False)
    return SECOND(made)


def leaves_a_default(x: torch.Tensor) -> torch.Tensor:
    hidden = FIRST(x).sin()
    torch.set_default_dtype(torch.float64)
    return SECOND(hidden) * torch.ones(8)


def changes_between_graphs(x: torch.Tensor) -> torch.Tensor:
    hidden = FIRST(x).sin()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(torch.get_num_threads())
    return SECOND(hidden) * torch.ones(8)


class ChangesAll(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.use_deterministic_algorithms(True)
        return self.inner(x) * torch.ones(8)


def lowers_all(x: torch.Tensor) -> torch.Tensor:
    torch.set_float32_matmul_precision("medium")
    return FIRST(x).sin()


def makes_float64(x: torch.Tensor) -> torch.Tensor:
    torch.set_default_dtype(torch.float64)
    return FIRST(x) * torch.ones(8)


def is_deterministic_throughout(x: torch.Tensor) -> torch.Tensor:
    torch.use_deterministic_algorithms(True)
    made = FIRST(x).cumsum(0)
    torch.use_deterministic_algorithms(False)
    return made


def leaves_settings(x: torch.Tensor) -> torch.Tensor:
    hidden = FIRST(x).sin()
    torch.set_num_threads(1 + torch.get_num_threads())
    torch.autograd.set_detect_anomaly(True)
    torch.set_warn_always(True)
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_float32_matmul_precision("medium")
    torch.backends.cuda.enable_flash_sdp(False)
    return SECOND(hidden)


def settings() -> list[Any]:
    return [get() for get, _ in _SETTINGS]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = settings()
    yield
    for value, (get, set_again) in zip(before, _SETTINGS, strict=True):
        if get() != value:
            set_again(value)


@pytest.mark.parametrize(
    "program",
    [
        scales,
        scales_between,
        scales_in_bfloat16,
        lowers_precision,
        is_deterministic,
        leaves_a_default,
        leaves_settings,
        changes_between_graphs,
        ChangesAll(),
        lowers_all,
        makes_float64,
        is_deterministic_throughout,
    ],
)
def test_a_changed_setting_applies_in_each_call_and_not_after_opening(
    program: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x, before = torch.randn(4, 8), settings()
    bench = workbench.open(program, x)
    assert settings() == before
    compiled = bench.config.jit(program)
    for _ in range(3):
        results = []
        for call in (program, compiled):
            for value, (get, set_again) in zip(before, _SETTINGS, strict=True):
                if get() != value:
                    set_again(value)
            results.append((call(x), settings()))
        (eager, left), (ours, ours_left) = results
        torch.testing.assert_close(ours, eager)
        assert ours_left == left


def seeds(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    return FIRST(x) + torch.rand(8)


def test_opening_a_program_that_seeds_leaves_the_random_state() -> None:
    x, before = torch.randn(4, 8), torch.get_rng_state()
    workbench.open(seeds, x)
    assert torch.equal(torch.get_rng_state(), before)


def test_opening_by_the_interpreter_restores_the_settings() -> None:
    before = settings()
    workbench.open(ChangesAll(), torch.randn(4, 8), capture="interpreter")
    assert settings() == before
