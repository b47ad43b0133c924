"""Inputs that share memory are read and written as in eager PyTorch, also where unmodified Thunder is wrong."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import workbench
from tests.trial_counts import amount

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


def add_both(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    before = second * 2
    second.mul_(3)
    first.sub_(before)
    return first * 2 + second * 3


def add_row(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    first[0].add_(second.sum())
    second.t()[1].mul_(2)
    return first - second


def store(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    first.copy_(second + 1)
    return second * first


STRIDES = [(2, 1), (1, 2), (3, 1), (1, 3), (4, 2)]


type Place = tuple[tuple[int, int], int]
"""Strides and offset of a view."""

PLACES = st.tuples(st.sampled_from(STRIDES), st.integers(0, 8))
ONE = ((2, 1), 0)
OTHER = ((2, 1), 4)


def at(places: tuple[Place, Place], memory: torch.Tensor) -> Inputs:
    first, second = (memory.as_strided((2, 2), strides, offset) for strides, offset in places)
    return first, second


@pytest.mark.slow
@pytest.mark.parametrize("program", [add_first, add_both, add_row, store])
@settings(max_examples=amount(4, 20, 200))
@given(
    first=st.one_of(PLACES.map(lambda place: (place, place)), st.tuples(PLACES, PLACES)), then=st.tuples(PLACES, PLACES)
)
@example(first=(ONE, ONE), then=(ONE, OTHER))
@example(first=(ONE, OTHER), then=(ONE, ONE))
def test_one_compiled_function_reads_and_writes_any_views_of_one_memory_as_eager_does(
    program: Callable[..., torch.Tensor], first: tuple[Place, Place], then: tuple[Place, Place]
) -> None:
    """The two views are equal, overlapping, transposed or apart, and differ between the calls."""

    def memory() -> torch.Tensor:
        return torch.arange(1.0, 16)

    compiled = workbench.open(program, *at(first, memory()), device="cpu", executor="torch").config.jit(program)
    for places in (first, then):
        written, expected = memory(), memory()
        assert torch.equal(compiled(*at(places, written)), program(*at(places, expected)))
        assert torch.equal(written, expected)
