"""Predict the memory that PyTorch reserves on a GPU for a plan, by a simulation of PyTorch's caching allocator.

The simulated allocations and frees follow `workbench.analysis.memory.liveness.timeline`. Parameters, buffers and inputs
are allocated first. Each statement allocates its outputs and its transient memory, and frees storages that no later
statement uses. Reloaded storages are allocated from the pools of a second CUDA stream. Two training steps are
simulated, because the second step starts with the segments of memory that the first step has reserved. The prediction
does not include workspaces that PyTorch allocates once for libraries such as cuBLAS.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict

import numpy as np

from workbench.analysis.memory.caching_allocator import CachingAllocator, MemoryBlock, OutOfMemory
from workbench.analysis.memory.liveness import gradient_copies, storage_spans
from workbench.core.graph import Graph, Kind

_STEPS = 2
_SIDE_STREAM = 1


@dataclasses.dataclass(frozen=True)
class ReservedMemory:
    """Predicted figures of PyTorch's caching allocator.

    Attributes
    ----------
    reserved_bytes : int
        Maximum of ``torch.cuda.memory_reserved``.
    allocated_bytes : int
        Maximum of ``torch.cuda.memory_allocated``.
    fragmented_bytes : int
        Bytes that are reserved but not allocated, at the time of the most allocated bytes.
    statement : int
        The last statement that makes the allocator reserve more memory than before. If an allocation is refused, the
        statement of this allocation instead. -1 stands for the allocation of the arguments. The number of statements
        stands for autograd's copies after the last statement.
    refused_bytes : int
        Size of the first allocation for which the device has too little memory; 0 if all allocations succeed. The
        allocation belongs to `statement`.
    """

    reserved_bytes: int
    allocated_bytes: int
    fragmented_bytes: int
    statement: int
    refused_bytes: int = 0

    @property
    def fits(self) -> bool:
        """Return whether the device has enough memory for all allocations."""
        return not self.refused_bytes


class _Step:
    """Simulates the allocations and frees of a step with an allocator, and records the allocator's maxima."""

    def __init__(self, graph: Graph, allocator: CachingAllocator) -> None:
        self.graph, self.allocator = graph, allocator
        self.sizes: list[int] = graph.storages.bytes.tolist()
        self.live: dict[int, MemoryBlock] = {}
        self.statement = -1
        self.most_reserved_bytes = self.most_allocated_bytes = self.fragmented_bytes = 0
        self.last_growth = -1
        start, end = storage_spans(graph)
        self._starts: defaultdict[int, list[int]] = defaultdict(list)
        self._ends: defaultdict[int, list[int]] = defaultdict(list)
        for storage in np.flatnonzero((start <= end) & (graph.storages.bytes > 0)).tolist():
            self._starts[int(start[storage])].append(storage)
            self._ends[int(end[storage])].append(storage)
        statements = graph.statements
        self._rows: list[int] = np.flatnonzero(statements.parent < 0).tolist()
        self._reloads = set(np.flatnonzero(statements.kind == Kind.RELOAD).tolist())

    def allocate(self, nbytes: int, stream: int = 0) -> MemoryBlock:
        block = self.allocator.allocate(nbytes, stream)
        if self.allocator.reserved_bytes > self.most_reserved_bytes:
            self.most_reserved_bytes, self.last_growth = self.allocator.reserved_bytes, self.statement
        if self.allocator.allocated_bytes > self.most_allocated_bytes:
            self.most_allocated_bytes = self.allocator.allocated_bytes
            self.fragmented_bytes = self.allocator.reserved_bytes - self.allocator.allocated_bytes
        return block

    def allocate_arguments(self) -> None:
        for storage in self._starts[-1]:
            self.live[storage] = self.allocate(self.sizes[storage])

    def run(self) -> None:
        """Simulate one step, and then free all storages except arguments."""
        transient: list[int] = self.graph.statements.transient_bytes.tolist()
        for row in self._rows:
            self.statement = row
            for storage in self._starts[row]:
                self.live[storage] = self.allocate(self.sizes[storage], _SIDE_STREAM if row in self._reloads else 0)
            if transient[row]:
                self.allocator.free(self.allocate(transient[row]))
            for storage in self._ends[row]:
                self.allocator.free(self.live.pop(storage))
        self.statement = len(self.graph.statements)
        for storage in self._starts[self.statement]:
            self.live[storage] = self.allocate(self.sizes[storage])
        copies = self._accumulate()
        arguments = set(self._starts[-1])
        for storage in [each for each in self.live if each not in arguments]:
            self.allocator.free(self.live.pop(storage))
        for copy in copies:
            self.allocator.free(copy)

    def _accumulate(self) -> list[MemoryBlock]:
        """Allocate autograd's copies of gradients, and return them; see `workbench.analysis.memory.liveness`."""
        copies = []
        for copy in gradient_copies(self.graph, self.graph.values.storage.tolist()):
            copies.append(self.allocate(copy.copied_bytes))
            if copy.copying_bytes > copy.copied_bytes:
                self.allocator.free(self.allocate(copy.copying_bytes - copy.copied_bytes))
            if copy.frees and copy.storage in self.live:
                self.allocator.free(self.live.pop(copy.storage))
        return copies


def predict_reserved(
    graph: Graph, capacity_bytes: int | None = None, *, expandable_segments: bool = False
) -> ReservedMemory:
    """Predict the memory that PyTorch reserves for an execution graph on a GPU.

    Parameters
    ----------
    graph : Graph
        An execution graph; see `workbench.analysis.memory.liveness.timeline`.
    capacity_bytes : int, optional
        Bytes of the device that PyTorch may reserve; no limit by default.
    expandable_segments : bool
        The option of this name in ``PYTORCH_CUDA_ALLOC_CONF``.

    Returns
    -------
    ReservedMemory
    """
    step = _Step(graph, CachingAllocator(capacity_bytes, expandable_segments=expandable_segments))
    refused_bytes = 0
    try:
        step.allocate_arguments()
        for _ in range(_STEPS):
            step.run()
    except OutOfMemory as error:
        refused_bytes, step.last_growth = error.requested_bytes, step.statement
    return ReservedMemory(
        step.most_reserved_bytes, step.most_allocated_bytes, step.fragmented_bytes, step.last_growth, refused_bytes
    )
