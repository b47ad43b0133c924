"""Associative scans are planned as one graph, with the outputs and gradients of eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import workbench as wb


def _decay(left: Any, right: Any) -> Any:
    return left[0] * right[0], right[0] * left[1] + right[1]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "dim"), [((2, 7, 3), 1), ((2, 8), -1), ((5,), 0)])
def test_an_elementwise_scan_is_one_graph_with_the_results_of_eager(shape: tuple[int, ...], dim: int) -> None:
    def step(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        found: Any = associative_scan(_decay, (a, b), dim=dim, combine_mode="generic")
        return found[1].sin()

    given = [torch.rand(shape, requires_grad=True) for _ in range(2)]
    bench = wb.open(step, *given, device="cpu", executor="torch")
    assert bench.capture == "dynamo", bench.capture_reason
    assert "vmap" not in bench.plan.text()
    found, expected = bench.config.jit(step)(*given), step(*given)
    torch.testing.assert_close(found, expected)
    cotangent = torch.rand_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad(found, given, cotangent), torch.autograd.grad(expected, given, cotangent), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.slow
def test_a_scan_with_another_function_is_refused_with_its_line() -> None:
    def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return right @ left

    def step(a: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = associative_scan(multiply, a, dim=0, combine_mode="generic")
        return found.sum()

    bench = wb.open(step, torch.rand(4, 2, 2, requires_grad=True), device="cpu", executor="torch")
    assert bench.capture == "parts"
    assert "torch.vmap" in bench.capture_reason
