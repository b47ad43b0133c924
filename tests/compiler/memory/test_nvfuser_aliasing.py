"""If an output of an nvFuser fusion is a view of another value, both share one storage in the plan.

On a planned GPU, the sizes of storages are multiples of the allocator's block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import workbench
from workbench.analysis.memory.allocator import CUDA_BLOCK_BYTES, allocated_bytes
from workbench.core.executor import why_no_nvfuser
from workbench.core.graph import Graph, ValueFlag

needs_nvfuser = pytest.mark.skipif(bool(why_no_nvfuser()), reason="nvFuser does not load")

SIDE = 64


def planned(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Graph:
    inputs = [torch.ones(shape) for shape in shapes]
    return workbench.open(function, *inputs, device="planned", executor="nvfuser").plan.graph


def where_outputs_lie(graph: Graph) -> list[int]:
    """Return the storages of a program's outputs, in order."""
    return [int(graph.values.storage[value]) for value in graph.ends.outputs]


def arguments_lie(graph: Graph) -> set[int]:
    return set(graph.values.storage[(graph.values.flags & ValueFlag.ARGUMENT) != 0].tolist())


@needs_nvfuser
def test_an_output_that_permutes_another_is_a_view_of_it() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.exp(x)
        return y, y.transpose(0, 1)

    graph = planned(program, (SIDE, 2 * SIDE))
    one, other = where_outputs_lie(graph)
    assert one == other
    assert one not in arguments_lie(graph)


@needs_nvfuser
def test_an_output_that_slices_an_input_of_its_fusion_keeps_the_whole_input() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x)
        z = y @ y
        return torch.exp(z[:, :SIDE]), z[:, SIDE:].transpose(0, 1)

    graph = planned(program, (2 * SIDE, 2 * SIDE))
    computed, view = where_outputs_lie(graph)
    assert computed != view
    # The view is only half of the product, but its storage has the whole product.
    assert int(graph.storages.bytes[view]) == (2 * SIDE) ** 2 * 4
    assert int(graph.storages.bytes[computed]) == 2 * SIDE * SIDE * 4


@needs_nvfuser
def test_two_views_of_a_value_inside_a_fusion_share_its_storage() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.exp(x)
        return y[:, :SIDE], y[:, SIDE:]

    graph = planned(program, (SIDE, 2 * SIDE))
    one, other = where_outputs_lie(graph)
    assert one == other
    assert int(graph.storages.bytes[one]) == 2 * SIDE * SIDE * 4


@needs_nvfuser
def test_a_view_that_its_own_fusion_also_reads_is_copied() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.exp(x).transpose(0, 1)
        return y, torch.sin(y)

    one, other = where_outputs_lie(planned(program, (SIDE, 2 * SIDE)))
    assert one != other


@needs_nvfuser
def test_a_reshape_that_strides_do_not_allow_is_copied() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.exp(x)
        return y, y.transpose(0, 1).reshape(-1)

    one, other = where_outputs_lie(planned(program, (SIDE, 2 * SIDE)))
    assert one != other


@pytest.mark.parametrize(
    ("nbytes", "on_cuda"), [(0, 0), (1, CUDA_BLOCK_BYTES), (CUDA_BLOCK_BYTES, CUDA_BLOCK_BYTES), (513, 1024)]
)
def test_sizes_are_multiples_of_blocks_on_cuda_and_exact_on_a_cpu(nbytes: int, on_cuda: int) -> None:
    assert allocated_bytes(nbytes, "cuda") == on_cuda
    assert allocated_bytes(nbytes, "cpu") == nbytes


@pytest.mark.parametrize("executor", ["torch", "nvfuser"])
def test_all_byte_sums_of_a_cuda_plan_are_multiples_of_blocks(executor: str) -> None:
    """Saved bytes, peaks and copies of gradients count whole blocks. Each tensor has 400 bytes, less than a block."""
    if executor == "nvfuser" and why_no_nvfuser():
        pytest.skip("nvFuser does not load")
    bench = workbench.open("residual_chain", device="planned", executor=executor, layers=2, grad=True)
    plan, context = bench.plan, bench._captured.context
    assert plan.saved_bytes
    assert plan.saved_bytes % CUDA_BLOCK_BYTES == 0
    for graph in (plan.graph, context.graph):
        assert (graph.storages.bytes % CUDA_BLOCK_BYTES == 0).all()
        assert not np.any(graph.statements.transient_bytes % CUDA_BLOCK_BYTES)
        assert not any(n % CUDA_BLOCK_BYTES for n in (*graph.ends.copied_bytes, *graph.ends.copying_bytes))
    assert plan.peak_bytes % CUDA_BLOCK_BYTES == 0
    cpu = workbench.open("residual_chain", device="cpu", executor="torch", layers=2, grad=True).plan
    assert cpu.baseline_bytes < CUDA_BLOCK_BYTES * 2 == plan.baseline_bytes
