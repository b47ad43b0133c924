"""`interpolate` gives PyTorch's values and gradients, also in modes that unmodified Thunder gets wrong or refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

import workbench
from tests.trial_counts import combined
from workbench.errors import ProgramError

pytestmark = pytest.mark.slow

NEAREST: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((8, 7), {"size": (3, 3)}),
    ((4, 6), {"size": (2, 2)}),
    ((5, 3), {"size": (4, 7)}),
    ((3, 5), {"size": 6}),
    ((49, 49), {"size": (1, 1)}),
    ((7, 7), {"scale_factor": 0.4}),
    ((3, 2), {"scale_factor": (1.1, 2.1)}),
    ((5,), {"scale_factor": 1.3}),
    ((5, 5, 4), {"scale_factor": 2}),
    ((7, 7), {"scale_factor": 0.4, "recompute_scale_factor": True}),
)
LINEAR: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((8, 9), {"size": (3, 4)}),
    ((4, 5), {"size": (8, 1)}),
    ((1, 4), {"size": (4, 4)}),
    ((7, 5), {"scale_factor": (2.3, 0.7)}),
    ((7, 7), {"scale_factor": 2.3, "recompute_scale_factor": True}),
)
BETWEEN = {
    (size, mode): given
    for mode, cases in (
        ("bilinear", LINEAR),
        ("bicubic", LINEAR),
        ("linear", (((6,), {"size": 9}), ((6,), {"scale_factor": 1.4}))),
        ("trilinear", (((4, 5, 3), {"size": (6, 3, 4)}),)),
    )
    for size, given in cases
}


def check(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, **given: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x.sin(), **given)

    torch.manual_seed(0)
    x = torch.randn(1, 2, *shape, dtype=dtype, requires_grad=True)
    bench = workbench.open(program, x, device="cpu", capture="dynamo")
    eager, ours = program(x), bench.config.jit(program)(x)
    # In bfloat16, PyTorch rounds after each dimension, so results differ by roundings.
    near: dict[str, Any] = {"rtol": 1.6e-2, "atol": 1e-2} if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(ours, eager, **near)
    along = torch.randn_like(eager)
    torch.testing.assert_close(torch.autograd.grad(ours, x, along), torch.autograd.grad(eager, x, along), **near)


@pytest.mark.parametrize(("case", "mode"), combined(NEAREST, ["nearest", "nearest-exact"]))
def test_nearest_elements_equal_pytorchs(case: tuple[tuple[int, ...], dict[str, Any]], mode: str) -> None:
    shape, given = case
    check(shape, mode=mode, **given)


@pytest.mark.parametrize(("case", "align_corners"), combined(BETWEEN, [False, True]))
def test_interpolated_elements_equal_pytorchs(case: tuple[tuple[int, ...], str], align_corners: bool) -> None:
    shape, mode = case
    check(shape, mode=mode, align_corners=align_corners, **BETWEEN[case])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_elements_are_computed_in_the_type_that_pytorch_uses(dtype: torch.dtype) -> None:
    check((5, 7), dtype, mode="bicubic", size=(8, 4))


@pytest.mark.parametrize(
    ("mode", "given", "align_corners"),
    combined(
        ["bilinear", "bicubic"],
        [case for _, case in LINEAR if "recompute_scale_factor" not in case],
        [False, True],
        few=2,
    ),
)
def test_antialiased_elements_equal_pytorchs(mode: str, given: dict[str, Any], align_corners: bool) -> None:
    check((8, 9), mode=mode, antialias=True, align_corners=align_corners, **given)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_pixels_that_are_bytes_equal_pytorchs(mode: str) -> None:
    x = torch.randint(0, 256, (1, 3, 16, 16), dtype=torch.uint8)

    def program(x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x, size=(11, 11), mode=mode)

    compiled = workbench.open(program, x, device="cpu").config.jit(program)
    assert torch.equal(compiled(x), program(x))


def test_elements_of_area_mode_equal_pytorchs() -> None:
    check((7, 6), mode="area", size=(3, 4))


@pytest.mark.parametrize(
    "given", [{"size": (3, 3)}, {"size": (4, 4), "mode": "nearest-exact"}, {"scale_factor": 1.3, "mode": "bilinear"}]
)
def test_the_interpreter_refuses_modes_that_thunder_gets_wrong(given: dict[str, Any]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return functional.interpolate(x.sin(), **given)

    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    with pytest.raises(ProgramError, match=r"test_interpolate\.py.*Thunder's interpolate.*capture='auto'"):
        workbench.open(program, x, device="cpu", capture="interpreter")


def test_modes_that_thunder_gets_right_are_left_to_thunder() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        halved = functional.interpolate(x.sin(), size=(4, 4))
        return functional.interpolate(halved, scale_factor=2.0, mode="bilinear")

    x = torch.randn(1, 2, 8, 8, requires_grad=True)
    through = [workbench.open(program, x, device="cpu", capture=way) for way in ("dynamo", "interpreter")]
    found, interpreted = (list(bench.plan.graph.statements.name) for bench in through)
    assert found == interpreted
