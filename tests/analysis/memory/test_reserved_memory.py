"""The prediction for a whole plan gives the bytes that the CUDA caching allocator would allocate and reserve."""

from __future__ import annotations

import pytest

import workbench
from tests.needs import needs_nvfuser
from workbench.analysis.memory.reserved_memory import predict_reserved
from workbench.bench import Workbench

pytestmark = needs_nvfuser

MIB = 1 << 20


def opened(name: str, **settings: int) -> Workbench:
    return workbench.open(name, device="planned", executor="nvfuser", **settings)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layers"), [("mlp", 4), ("llama", 2)])
def test_if_all_blocks_are_small_the_allocator_has_allocated_the_predicted_peak(name: str, layers: int) -> None:
    plan = opened(name, layers=layers).plan
    reserved = plan.reserved
    assert reserved is not None
    # The allocator splits small blocks to the exact size, so its allocated bytes equal the plan's peak memory.
    assert reserved.allocated_bytes == plan.peak_bytes
    assert reserved.reserved_bytes % (2 * MIB) == 0
    assert reserved.fragmented_bytes == reserved.reserved_bytes - reserved.allocated_bytes
    assert predict_reserved(plan.graph) == reserved


def test_large_blocks_are_reserved_in_whole_segments() -> None:
    plan = opened("mlp", layers=2, width=1024, batch=4096).plan
    reserved, expandable = plan.reserved, predict_reserved(plan.graph, expandable_segments=True)
    assert reserved is not None
    assert plan.peak_bytes <= reserved.allocated_bytes <= reserved.reserved_bytes
    assert expandable.allocated_bytes == plan.peak_bytes, (
        "with expandable segments, a block must be split wherever 512 bytes remain"
    )
    pages = expandable.reserved_bytes // (2 * MIB)
    assert expandable.reserved_bytes == pages * 2 * MIB >= plan.peak_bytes


def test_if_a_device_has_too_little_memory_the_prediction_names_the_statement() -> None:
    plan = opened("mlp", layers=2, width=1024, batch=4096).plan
    graph, whole = plan.graph, predict_reserved(plan.graph)
    enough = predict_reserved(graph, whole.reserved_bytes)
    assert enough.fits
    assert enough == whole
    # A limit 2 MiB below the reserved bytes is enough, because the allocator releases cached memory without tensors
    # before an allocation fails.
    assert predict_reserved(graph, whole.reserved_bytes - 2 * MIB).fits
    small = predict_reserved(graph, plan.peak_bytes - 2 * MIB)
    assert not small.fits
    assert 0 <= small.statement <= len(graph.statements)
    assert small.reserved_bytes < whole.reserved_bytes
    assert small.refused_bytes > 2 * MIB


def test_with_offloaded_storages_the_allocator_allocates_at_least_the_peak() -> None:
    bench = opened("mlp", layers=2, width=1024, batch=4096)
    site = next(site for site in bench.sites("saved") if "offload" in site.options and "offload" not in site.illegal)
    bench.choose({site.id: "offload"})
    reserved = bench.plan.reserved
    assert reserved is not None
    assert reserved.allocated_bytes >= bench.plan.peak_bytes


def test_reserved_memory_is_shown_for_a_gpu_only() -> None:
    bench = opened("mlp", layers=2)
    document = bench.plan.to_json()
    assert document["reserved"]["reserved_bytes"] == bench.plan.reserved.reserved_bytes  # type: ignore[union-attr]
    assert "reserved     2.00 MiB by the allocator, " in repr(bench)
    cpu = workbench.open("mlp", layers=2, device="cpu", executor="torch")
    assert cpu.plan.reserved is None
    assert "reserved" not in cpu.plan.to_json()
    assert "by the allocator" not in repr(cpu)
