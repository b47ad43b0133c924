"""Simulate PyTorch's CUDA caching allocator, to predict the memory that it reserves for a sequence of allocations.

`reserved_memory.py` in this package makes this sequence from a plan.

A segment is memory that the allocator has reserved from the device. It is divided into blocks; each block is one
allocation, or free. Each stream has two pools, one for its small blocks and one for its large blocks. With
``expandable_segments``, a segment is a range of addresses that is mapped to memory page by page, and a block may also
be unmapped.

The simulation follows ``c10/cuda/CUDACachingAllocator.cpp`` of PyTorch 2.10, with default settings or with
``expandable_segments``. It includes rounding, pools, best fit, splitting and merging of blocks, and the release of free
segments if the device is full. It does not include private pools of CUDA graphs, ``max_split_size_mb``,
``roundup_power2_divisions``, garbage collection, or events of ``record_stream``. It assumes that later segments have
higher addresses.
"""

from __future__ import annotations

import bisect
import dataclasses

from workbench.analysis.memory.allocator import CUDA_BLOCK_BYTES, allocated_bytes

SMALL_BYTES = 1 << 20
"""Largest size of an allocation from the pool of small blocks: ``kSmallSize``."""
SMALL_SEGMENT_BYTES = 2 << 20
"""Size of a segment of small blocks, and page size of an expandable segment of small blocks: ``kSmallBuffer``."""
LARGE_SEGMENT_BYTES = 20 << 20
"""Size of a segment for allocations above `SMALL_BYTES` and below `OWN_SEGMENT_BYTES`: ``kLargeBuffer``.

It is also the page size of an expandable segment of large blocks.
"""
OWN_SEGMENT_BYTES = 10 << 20
"""Smallest allocation that gets a segment for itself: ``kMinLargeAlloc``."""
SEGMENT_ROUNDING_BYTES = 2 << 20
"""The size of a segment for `OWN_SEGMENT_BYTES` or more is a multiple of this: ``kRoundLarge``."""
_ADDRESS_SPACE_BYTES = LARGE_SEGMENT_BYTES << 36
"""Address space of an expandable segment. It is larger than the memory of every device."""


class OutOfMemory(Exception):
    """The device has too little memory for an allocation, even after free segments are released.

    Attributes
    ----------
    requested_bytes, reserved_bytes, allocated_bytes, largest_free_bytes : int
        Size of the allocation, and the state of the allocator at that time.
    """

    def __init__(self, requested_bytes: int, allocator: CachingAllocator) -> None:
        self.requested_bytes = requested_bytes
        self.reserved_bytes, self.allocated_bytes = allocator.reserved_bytes, allocator.allocated_bytes
        self.largest_free_bytes = allocator.largest_free_bytes
        super().__init__(f"{requested_bytes} bytes requested, {self.reserved_bytes} reserved")


@dataclasses.dataclass(eq=False, slots=True)
class MemoryBlock:
    """A range of addresses in a segment. It is allocated, free, or not mapped to memory."""

    pool: _Pool
    address: int
    size: int
    allocated: bool = False
    mapped: bool = True
    before: MemoryBlock | None = None
    after: MemoryBlock | None = None

    @property
    def is_split(self) -> bool:
        """Return whether the segment contains other blocks, too."""
        return self.before is not None or self.after is not None


class _Pool:
    """The free and the unmapped blocks of one stream, of one kind: small or large.

    Free blocks are sorted by size, then by address. Unmapped blocks are sorted by address.
    """

    def __init__(self, *, is_small: bool) -> None:
        self.is_small = is_small
        self.page_bytes = SMALL_SEGMENT_BYTES if is_small else LARGE_SEGMENT_BYTES
        self.free: list[tuple[int, int, MemoryBlock]] = []
        self.unmapped: list[tuple[int, MemoryBlock]] = []

    def insert(self, block: MemoryBlock) -> None:
        if block.mapped:
            bisect.insort(self.free, (block.size, block.address, block))
        else:
            bisect.insort(self.unmapped, (block.address, block))

    def remove(self, block: MemoryBlock) -> None:
        if block.mapped:
            del self.free[bisect.bisect_left(self.free, (block.size, block.address))]
        else:
            del self.unmapped[bisect.bisect_left(self.unmapped, (block.address,))]


class CachingAllocator:
    """The allocator of one device.

    Parameters
    ----------
    capacity_bytes : int, optional
        Bytes of the device that the allocator may reserve; no limit by default.
    expandable_segments : bool
        The option of this name in ``PYTORCH_CUDA_ALLOC_CONF``. If true, each pool has one segment, which grows page by
        page.

    Attributes
    ----------
    allocated_bytes, reserved_bytes : int
        The values of ``torch.cuda.memory_allocated`` and ``torch.cuda.memory_reserved``.

    Examples
    --------
    >>> allocator = CachingAllocator()
    >>> block = allocator.allocate(1000)
    >>> allocator.allocated_bytes, allocator.reserved_bytes
    (1024, 2097152)
    """

    def __init__(self, capacity_bytes: int | None = None, *, expandable_segments: bool = False) -> None:
        self.allocated_bytes = self.reserved_bytes = 0
        self._capacity_bytes, self._expandable = capacity_bytes, expandable_segments
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._end = 0

    @property
    def largest_free_bytes(self) -> int:
        """Size of the largest free block."""
        return max((pool.free[-1][0] for pool in self._pools.values() if pool.free), default=0)

    def allocate(self, nbytes: int, stream: int = 0) -> MemoryBlock:
        """Allocate a block.

        Parameters
        ----------
        nbytes : int
            Requested size, at least 1.
        stream : int
            Number of the CUDA stream. Each stream has its own pools.

        Raises
        ------
        OutOfMemory
            If the device has too little memory for the block.
        """
        size = allocated_bytes(nbytes, "cuda")
        is_small = size <= SMALL_BYTES
        pool = self._pools.setdefault((stream, is_small), _Pool(is_small=is_small))
        block = self._best_fit(pool, size) or self._grow(pool, size)
        if block is None:
            self.release_cached()
            block = self._grow(pool, size)
        if block is None:
            raise OutOfMemory(nbytes, self)
        least = CUDA_BLOCK_BYTES if is_small or self._expandable else SMALL_BYTES + 1
        if block.size - size >= least:
            pool.insert(self._split(block, size))
        block.allocated = True
        self.allocated_bytes += block.size
        return block

    def free(self, block: MemoryBlock) -> None:
        """Put a block back into its pool, and join it with free neighbours."""
        block.allocated = False
        self.allocated_bytes -= block.size
        self._join(block)
        block.pool.insert(block)

    def release_cached(self) -> None:
        """Give memory without allocated blocks back to the device, as ``torch.cuda.empty_cache`` does."""
        for pool in self._pools.values():
            for _, _, block in tuple(pool.free):
                if self._expandable:
                    self._unmap_pages(block)
                elif not block.is_split:
                    pool.remove(block)
                    self.reserved_bytes -= block.size

    def _best_fit(self, pool: _Pool, size: int) -> MemoryBlock | None:
        at = bisect.bisect_left(pool.free, (size,))
        if at == len(pool.free):
            return None
        if self._expandable:
            # A free block can grow into the unmapped block behind it. Avoid blocks that could become large.
            while at + 1 < len(pool.free) and _growable(pool.free[at + 1][2]) < _growable(pool.free[at][2]):
                at += 1
        return pool.free.pop(at)[2]

    def _grow(self, pool: _Pool, size: int) -> MemoryBlock | None:
        """Reserve memory of the device, and return it as a block. Return None if the device has too little memory."""
        if self._expandable:
            return self._grow_segment(pool, size)
        if pool.is_small:
            segment = SMALL_SEGMENT_BYTES
        elif size < OWN_SEGMENT_BYTES:
            segment = LARGE_SEGMENT_BYTES
        else:
            segment = _rounded(size, SEGMENT_ROUNDING_BYTES)
        if not self._reserve(segment):
            return None
        block = MemoryBlock(pool, self._end, segment)
        self._end += segment
        return block

    def _grow_segment(self, pool: _Pool, size: int) -> MemoryBlock | None:
        """Find the lowest address at which adjacent free and unmapped blocks have `size` bytes, and map them to memory.

        Return them as one block; None if the device has too little memory.
        """
        found = next((first for _, each in pool.unmapped if _room(first := _first(each)) >= size), None)
        if found is None:
            found = MemoryBlock(pool, self._end, _ADDRESS_SPACE_BYTES, mapped=False)
            self._end += _ADDRESS_SPACE_BYTES
            pool.insert(found)
        if not found.mapped and (found := self._map(found, size)) is None:
            return None
        while found.size < size:
            assert found.after is not None, "there is less address space behind the block than `_room` counted"
            if (found := self._map(found.after, size - found.size)) is None:
                return None
        pool.remove(found)
        return found

    def _map(self, block: MemoryBlock, size: int) -> MemoryBlock | None:
        """Map the start of an unmapped block to memory, join it with free neighbours, and return the result."""
        pool = block.pool
        mapped = min(_rounded(size, pool.page_bytes), block.size)
        if not self._reserve(mapped):
            return None
        pool.remove(block)
        if mapped < block.size:
            pool.insert(self._split(block, mapped))
        block.mapped = True
        self._join(block)
        pool.insert(block)
        return block

    def _unmap_pages(self, block: MemoryBlock) -> None:
        """Give all complete pages inside of a free block back to the device."""
        pool = block.pool
        start = _rounded(block.address, pool.page_bytes)
        end = (block.address + block.size) // pool.page_bytes * pool.page_bytes
        if start >= end:
            return
        pool.remove(block)
        middle = block
        if start > block.address:
            middle = self._split(block, start - block.address)
            pool.insert(block)
        if end < middle.address + middle.size:
            pool.insert(self._split(middle, end - middle.address))
        middle.mapped = False
        self.reserved_bytes -= middle.size
        self._join(middle)
        pool.insert(middle)

    def _reserve(self, nbytes: int) -> bool:
        if self._capacity_bytes is not None and self.reserved_bytes + nbytes > self._capacity_bytes:
            return False
        self.reserved_bytes += nbytes
        return True

    def _split(self, block: MemoryBlock, size: int) -> MemoryBlock:
        """Shorten a block to `size`, and return the rest as a new block."""
        rest = MemoryBlock(block.pool, block.address + size, block.size - size, False, block.mapped, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        return rest

    def _join(self, block: MemoryBlock) -> None:
        """Join a free block with its free neighbours, or an unmapped block with its unmapped neighbours.

        The block itself must not be in a list of its pool.
        """
        for each in (block.before, block.after):
            if each is None or each.allocated or each.mapped != block.mapped:
                continue
            block.pool.remove(each)
            if each is block.before:
                block.address, block.before = each.address, each.before
                if each.before is not None:
                    each.before.after = block
            else:
                block.after = each.after
                if each.after is not None:
                    each.after.before = block
            block.size += each.size


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _growable(block: MemoryBlock) -> int:
    return block.size + (block.after.size if block.after is not None and not block.after.mapped else 0)


def _first(unmapped: MemoryBlock) -> MemoryBlock:
    """Return the free block right before an unmapped block. If there is no such block, return the unmapped block."""
    before = unmapped.before
    return before if before is not None and not before.allocated else unmapped


def _room(block: MemoryBlock | None) -> int:
    """Return the bytes of a block and of the adjacent blocks after it, up to the first allocated block."""
    room = 0
    while block is not None and not block.allocated:
        room, block = room + block.size, block.after
    return room
