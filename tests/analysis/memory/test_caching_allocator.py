"""The simulated CUDA caching allocator follows PyTorch's rules, and counts the same bytes as a simple simulation."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.analysis.memory.caching_allocator import CachingAllocator, OutOfMemory

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize(
    ("nbytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        # The rest of the segment is too small to be split off, so it counts as allocated.
        (11 * MIB, 12 * MIB, 12 * MIB),
        (21 * MIB + 1, 22 * MIB, 22 * MIB),
    ],
)
def test_the_first_allocation_rounds_sizes_of_blocks_and_segments(nbytes: int, allocated: int, reserved: int) -> None:
    allocator = CachingAllocator()
    allocator.allocate(nbytes)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (allocated, reserved)


def test_a_freed_block_is_reused_and_joined_with_its_neighbours() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(5 * MIB) for _ in range(4)]
    assert allocator.reserved_bytes == 20 * MIB
    for index in (1, 3, 2):
        allocator.free(blocks[index])
    assert allocator.largest_free_bytes == 15 * MIB
    assert allocator.allocate(9 * MIB).address == blocks[1].address
    assert allocator.reserved_bytes == 20 * MIB


def test_the_smallest_block_that_suffices_is_taken() -> None:
    allocator = CachingAllocator()
    large, small = allocator.allocate(40 * MIB), allocator.allocate(30 * MIB)
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(24 * MIB).address == small.address


def test_streams_and_size_classes_do_not_share_blocks() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(MIB))
    allocator.allocate(MIB, stream=1)
    assert allocator.reserved_bytes == 4 * MIB
    allocator.allocate(MIB + 1)
    assert allocator.reserved_bytes == 24 * MIB


def test_an_expandable_segment_grows_by_pages_where_a_free_block_ends() -> None:
    allocator = CachingAllocator(expandable_segments=True)
    allocator.free(allocator.allocate(30 * MIB))
    assert allocator.reserved_bytes == 40 * MIB
    # An expandable segment grows by 20 MiB. Without expandable segments, the allocator would reserve 50 MiB more.
    allocator.allocate(50 * MIB)
    assert allocator.reserved_bytes == 60 * MIB


@pytest.mark.parametrize("expandable", [False, True])
def test_cached_memory_is_released_before_an_allocation_fails(expandable: bool) -> None:
    allocator = CachingAllocator(100 * MIB, expandable_segments=expandable)
    held = allocator.allocate(20 * MIB)
    cached = [allocator.allocate(20 * MIB, stream=1) for _ in range(4)]
    for block in cached:
        allocator.free(block)
    allocator.allocate(80 * MIB)
    assert allocator.reserved_bytes == 100 * MIB
    allocator.free(held)
    with pytest.raises(OutOfMemory) as failure:
        allocator.allocate(40 * MIB)
    error = failure.value
    assert (error.requested_bytes, error.allocated_bytes, error.largest_free_bytes) == (40 * MIB, 80 * MIB, 0)


@dataclasses.dataclass(eq=False)
class Plain:
    """A simple version of the default allocator: a segment is a list of ``[size, owner]``, in order of addresses."""

    segments: list[tuple[bool, list[list[int]]]] = dataclasses.field(default_factory=list)

    def allocate(self, nbytes: int, owner: int) -> None:
        size = max(1, -(-nbytes // 512)) * 512
        small = size <= MIB
        fitting = [
            (block[0], place, at)
            for place, (kind, blocks) in enumerate(self.segments)
            for at, block in enumerate(blocks)
            if kind == small and block[1] < 0 and block[0] >= size
        ]
        if not fitting:
            length = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            self.segments.append((small, [[length, -1]]))
            fitting = [(length, len(self.segments) - 1, 0)]
        _, place, at = min(fitting)
        blocks = self.segments[place][1]
        rest = blocks[at][0] - size
        if rest >= 512 if small else rest > MIB:
            blocks[at : at + 1] = [[size, owner], [rest, -1]]
        else:
            blocks[at][1] = owner

    def free(self, owner: int) -> None:
        for _, blocks in self.segments:
            for block in blocks:
                block[1] = -1 if block[1] == owner else block[1]
            for at in range(len(blocks) - 1, 0, -1):
                if blocks[at][1] < 0 and blocks[at - 1][1] < 0:
                    blocks[at - 1][0] += blocks.pop(at)[0]

    def bytes(self) -> tuple[int, int]:
        """Return the allocated bytes and the reserved bytes."""
        blocks = [block for _, each in self.segments for block in each]
        return sum(size for size, owner in blocks if owner >= 0), sum(size for size, _ in blocks)


SIZES = st.one_of(st.integers(1, 4 * KIB), st.integers(1, 3 * MIB), st.integers(MIB, 40 * MIB))
STEPS = st.lists(st.tuples(SIZES, st.integers(0, 9), st.booleans()), max_size=60)
"""Steps. A step allocates a block of the given size. If the flag is true, the step then frees an old block."""


@pytest.mark.slow
@given(STEPS)
def test_reserved_and_allocated_bytes_equal_those_of_the_plain_implementation(
    steps: list[tuple[int, int, bool]],
) -> None:
    allocator, plain, live = CachingAllocator(), Plain(), {}
    for owner, (nbytes, old, frees) in enumerate(steps):
        live[owner] = allocator.allocate(nbytes)
        plain.allocate(nbytes, owner)
        if frees:
            gone = list(live)[old % len(live)]
            allocator.free(live.pop(gone))
            plain.free(gone)
        assert (allocator.allocated_bytes, allocator.reserved_bytes) == plain.bytes()


@given(STEPS, st.sampled_from([None, 64 * MIB]))
def test_blocks_in_expandable_segments_do_not_overlap_and_all_memory_is_released(
    steps: list[tuple[int, int, bool]], capacity: int | None
) -> None:
    allocator, live = CachingAllocator(capacity, expandable_segments=True), {}
    for owner, (nbytes, old, frees) in enumerate(steps):
        try:
            live[owner] = allocator.allocate(nbytes, stream=owner % 2)
        except OutOfMemory:
            assert capacity is not None
        if frees and live:
            allocator.free(live.pop(list(live)[old % len(live)]))
        spans = sorted((block.address, block.address + block.size) for block in live.values())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert sum(end - start for start, end in spans) == allocator.allocated_bytes <= allocator.reserved_bytes
        assert capacity is None or allocator.reserved_bytes <= capacity
    for block in live.values():
        allocator.free(block)
    allocator.release_cached()
    assert (allocator.allocated_bytes, allocator.reserved_bytes, allocator.largest_free_bytes) == (0, 0, 0)
