"""A region that writes into memory shared by two of its inputs is not compiled, because torch.compile fails on it."""

from __future__ import annotations

import pytest
import torch

import workbench

pytestmark = pytest.mark.slow


def drawn(x: torch.Tensor) -> torch.Tensor:
    """Write in place into `x`, and return a view of `x` that the last write reads. `fuzz.py` found this program."""
    rows = x.unsqueeze(0).expand(8, -1)
    x.mul_(x)
    x.mul_(0.9).add_(rows.detach().mean(0) * 0.1)
    return rows


def test_a_region_that_writes_into_memory_of_two_inputs_is_right() -> None:
    bench = workbench.open(drawn, torch.ones(16), device="cpu", executor="torchcompile", capture="interpreter")
    bench.choose({"copies:drawn/add_": "out", "copies:drawn/mul_": "out"})
    expected, found = torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16)
    rows = drawn(expected)
    torch.testing.assert_close(bench.config.jit(drawn)(found), rows)
    torch.testing.assert_close(found, expected)


def test_torch_compile_fails_on_a_region_that_writes_into_memory_of_two_inputs() -> None:
    def region(rows: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scaled = x.mul_(0.9)
        return rows.detach(), rows, x, scaled + rows.mean(0) * 0.1

    x = torch.linspace(-1, 1, 16)
    with pytest.raises(AssertionError, match="incorrect out shape after application of ViewMeta sequence"):
        torch.compile(region, fullgraph=True)(x.unsqueeze(0).expand(8, -1), x)
