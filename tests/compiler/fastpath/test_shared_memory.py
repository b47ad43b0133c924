"""Inputs that share memory are read and written as in eager PyTorch, also where unmodified Thunder is wrong."""

from collections.abc import Callable

import pytest
import torch

import workbench

Inputs = tuple[torch.Tensor, torch.Tensor]


def add_first(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    first.add_(1)
    return first * 2 + second * 3


def add_other(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    other = torch.zeros(first.shape)
    other.add_(1)
    return first * 2 + second * 3 + other


LAYOUTS: dict[str, Callable[[torch.Tensor], Inputs]] = {
    "two rows": lambda memory: (memory[0], memory[1]),
    "one tensor and its view": lambda memory: (memory[0], memory[0].view(4)),
    "overlapping slices": lambda memory: (memory.view(-1)[:4], memory.view(-1)[1:5]),
    "a square and its transpose": lambda memory: (memory[:, :2][:2], memory[:, :2][:2].t()),
    "columns": lambda memory: (memory.t()[0], memory.t()[1]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("program", [add_first, add_other])
def test_inputs_that_share_memory_give_the_results_of_eager(program: Callable[..., torch.Tensor], layout: str) -> None:
    def inputs() -> tuple[torch.Tensor, Inputs]:
        memory = torch.arange(8.0).reshape(2, 4)
        return memory, LAYOUTS[layout](memory)

    memory, given = inputs()
    expected = program(*given)
    bench = workbench.open(program, *inputs()[1], device="cpu", executor="torch")
    written, given = inputs()
    assert torch.equal(bench.config.jit(program)(*given), expected)
    assert torch.equal(written, memory)
