"""Predict the memory of a program of several graphs, from the plan of each part and from one recording of a step.

A part is one graph of the program. The recording lists allocations, frees and runs of parts; see `RecordedStep`. The
step is recorded once: on fake tensors, or on tensors with values if the program reads values. The recording does not
depend on the plans. The plan of a part determines only the storages inside of the part, and the storages that the part
holds for its backward. Therefore, new choices need no new recording.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.memory.liveness import Timeline, _storage_spans, _value_spans
from workbench.core.graph import Graph, ValueFlag


@dataclasses.dataclass(frozen=True)
class StorageAllocated:
    """A storage is allocated between parts, or is returned by a part, or exists when the step starts."""

    storage: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class StorageFreed:
    """The last object outside of the parts releases a storage. A part may still hold the storage for its backward."""

    storage: int


@dataclasses.dataclass(frozen=True)
class Forward:
    """The forward of a part runs.

    Attributes
    ----------
    part : str
    call : int
        Number of this run. No two runs have the same number.
    arguments, outputs : tuple of int
        Storage of each argument, and of each output; -1 for an argument or output that is not a tensor.
    shapes : str
        Shapes of the arguments, compared with those of the part's plan: ``planned`` if they are equal, ``larger`` if no
        dimension is smaller, else ``other``.
    """

    part: str
    call: int
    arguments: tuple[int, ...]
    outputs: tuple[int, ...]
    shapes: Literal["planned", "larger", "other"] = "planned"


@dataclasses.dataclass(frozen=True)
class Backward:
    """The backward of a part runs, and returns gradients.

    Attributes
    ----------
    call : int
        Number of the run, as in its `Forward`.
    cotangents : tuple of int
        For each output, the storage of its gradient.
    gradients : tuple of int
        For each argument, the storage of its gradient. A later `StorageAllocated` allocates it.
    """

    call: int
    cotangents: tuple[int, ...]
    gradients: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class KernelRuns:
    """PyTorch runs a CPU kernel that allocates more than its results.

    Attributes
    ----------
    bytes : int
        Most bytes that the kernel holds at once, results included.
    """

    bytes: int


type Event = StorageAllocated | StorageFreed | Forward | Backward | KernelRuns


@dataclasses.dataclass(frozen=True)
class RecordedStep:
    """Recorded events of a step: allocations, runs of parts, and frees, in order.

    Attributes
    ----------
    baseline : tuple of StorageAllocated
        Storages of parameters, buffers, inputs, and the state of optimizers.
    events : tuple of Event
    opaque : tuple of str
        Names of parts that PyTorch runs without Thunder. The memory that their kernels use internally is not known.
    runs_between : bool
        Whether the step was recorded on tensors with values, because the program reads values between its parts. The
        operators between the parts may then use memory that the recording does not contain.
    varies : bool
        Whether another call of the program has run other parts.
    unmeasured : bool
        Whether a CPU kernel that PyTorch runs could not be measured.
    """

    baseline: tuple[StorageAllocated, ...]
    events: tuple[Event, ...]
    opaque: tuple[str, ...]
    runs_between: bool = False
    varies: bool = False
    unmeasured: bool = False

    def with_part_names(self, names: Mapping[str, str]) -> RecordedStep:
        """Return the step with new names for the parts. `names` maps old names to new names."""
        events = (
            dataclasses.replace(event, part=names[event.part]) if isinstance(event, Forward) else event
            for event in self.events
        )
        return dataclasses.replace(self, events=tuple(events), opaque=tuple(names[part] for part in self.opaque))


@dataclasses.dataclass(frozen=True)
class StepMemory:
    """Predicted memory over a step of a program of several graphs.

    Attributes
    ----------
    live_bytes : (events,) int64
        Most bytes alive during each event.
    where : tuple of str
        The part that runs at each event, as ``part2`` or ``part2 backward``; empty between parts.
    peak_bytes, baseline_bytes : int
    bound_reason : str
        Reason why the figures are lower bounds; empty if they are exact.
    """

    live_bytes: NDArray[np.int64]
    where: tuple[str, ...]
    peak_bytes: int
    baseline_bytes: int
    bound_reason: str

    @property
    def at_least(self) -> bool:
        """Whether the figures are lower bounds."""
        return bool(self.bound_reason)

    @property
    def peak_part(self) -> str:
        """The part that runs at the peak; empty if the peak is between parts."""
        return self.where[int(np.argmax(self.live_bytes))] if len(self.where) else ""


@dataclasses.dataclass(frozen=True)
class PartMemory:
    """Memory under the plan of a part, from which the memory of the complete step is computed.

    A cotangent is the gradient of an output. Storages of arguments, outputs and cotangents are shared: they also exist
    outside of the part. All other storages, such as those of gradients, are not shared.

    Attributes
    ----------
    first_backward : int
    live_bytes, peak_bytes : (statements,) int64
        Bytes alive after each statement, and most bytes alive during each statement. Only storages that are not shared
        count.
    saved_bytes : int
        Bytes of the storages that are not shared and that the forward passes to the backward.
    after_bytes : int
        Bytes of autograd's copies of gradients after the backward.
    argument, output, cotangent, gradient : tuple of int
        Numbers of storages in the plan: the storage of each argument, of each output, of each output's gradient, and of
        each argument's gradient; -1 if a value has no storage.
    made : mapping of int to int
        Maps the storage of an output to the statement that makes it.
    dropped : mapping of int to int
        Maps each shared storage that the forward saves, or that is a cotangent, to the last statement of the backward
        that uses the storage.
    bytes : (storages,) int64
    at_least : bool
        Whether the figures are lower bounds, because a CPU kernel of the part could not be measured.
    """

    first_backward: int
    live_bytes: NDArray[np.int64]
    peak_bytes: NDArray[np.int64]
    saved_bytes: int
    after_bytes: int
    argument: tuple[int, ...]
    output: tuple[int, ...]
    cotangent: tuple[int, ...]
    gradient: tuple[int, ...]
    made: Mapping[int, int]
    dropped: Mapping[int, int]
    bytes: NDArray[np.int64]
    at_least: bool = False


def memory_inside(graph: Graph, own: Timeline, arguments: Sequence[str]) -> PartMemory:
    """Return the `PartMemory` of the plan of a part.

    Parameters
    ----------
    graph : Graph
        The execution graph of the part.
    own : Timeline
        The timeline of this graph alone.
    arguments : sequence of str
        Names of the part's arguments, in order.
    """
    statements, values = graph.statements, graph.values
    count, first_backward = len(statements), graph.first_backward
    start, end = _storage_spans(graph, *_value_spans(graph))
    index = graph.value_index
    argument = tuple(int(values.storage[index[name]]) if name in index else -1 for name in arguments)
    output, cotangent, gradients = (
        tuple(int(values.storage[v]) if v >= 0 else -1 for v in ends)
        for ends in (graph.ends.outputs, graph.ends.cotangents, graph.ends.gradients)
    )
    flagged = np.flatnonzero(values.flags & ValueFlag.ARGUMENT).tolist()
    # A plan without a backward has no gradients.
    by_name = {values.name[at]: gradient for at, gradient in zip(flagged, gradients, strict=False)}
    # The plan also counts tensors that the part holds and does not read, such as the state of an optimizer in a hook.
    seen = {*argument, *output, *cotangent, *values.storage[flagged].tolist()} - {-1}
    hidden = np.ones(len(graph.storages), bool)
    hidden[list(seen)] = False
    live = np.zeros(count + 1, np.int64)
    gone = np.zeros(count + 1, np.int64)
    alive = hidden & (start <= end)
    np.add.at(live, np.maximum(start[alive], 0), graph.storages.bytes[alive])
    np.add.at(gone, end[alive], graph.storages.bytes[alive])
    live_bytes = np.cumsum(live)[:count] - np.cumsum(gone)[:count]
    peak_bytes = live_bytes + gone[:count] + statements.transient_bytes
    crossing = alive & (start < first_backward) & (end >= first_backward)
    made = {storage: int(start[storage]) for storage in set(output) - set(argument) - {-1}}
    held = np.unique(values.storage[(values.flags & (ValueFlag.ARGUMENT | ValueFlag.OUTPUT | ValueFlag.GRADIENT)) != 0])
    held_bytes = int(graph.storages.bytes[held[held >= 0]].sum())
    return PartMemory(
        first_backward,
        live_bytes,
        peak_bytes,
        int(graph.storages.bytes[crossing].sum()),
        max(own.after_bytes - held_bytes, 0),
        argument,
        output,
        cotangent,
        tuple(by_name.get(name, -1) for name in arguments),
        made,
        _last_backward_reads(graph, seen),
        graph.storages.bytes,
        graph.has_unmeasured_kernels,
    )


def _last_backward_reads(graph: Graph, shared: Collection[int]) -> dict[int, int]:
    """Return `PartMemory.dropped`, given the `shared` storages of a part."""
    statements, storage = graph.statements, graph.values.storage
    kept = set(graph.saved_storages(arguments=True).tolist())
    kept |= set(storage[(graph.values.flags & ValueFlag.COTANGENT) != 0].tolist())
    found: dict[int, int] = {}
    for row in range(graph.first_backward, len(statements)):
        if statements.parent[row] >= 0:
            continue
        for value in (*statements.inputs[row].tolist(), *statements.frees[row].tolist()):
            at = int(storage[value])
            if at in shared and at in kept:
                found[at] = row
    return found


def join_step_memory(recorded: RecordedStep, part_memories: Mapping[str, PartMemory]) -> StepMemory:
    """Return the memory of a step under the plans of its parts.

    Parameters
    ----------
    recorded : RecordedStep
    part_memories : mapping of str to PartMemory
        Maps the name of a part to the memory of its plan. It contains no opaque parts.
    """
    state = _LiveStorages(recorded, part_memories)
    for at, event in enumerate(recorded.events):
        state.apply_event(at, event)
    live = np.asarray(state.most, np.int64)
    baseline = sum(made.bytes for made in recorded.baseline)
    peak = max(int(live.max(initial=0)), baseline)
    return StepMemory(live, tuple(state.where), peak, baseline, "; ".join(_bound_reasons(recorded, part_memories)))


def _bound_reasons(recorded: RecordedStep, part_memories: Mapping[str, PartMemory]) -> Iterator[str]:
    """Yield the reasons why the memory of a step is a lower bound."""
    forwards = [event for event in recorded.events if isinstance(event, Forward)]
    if recorded.opaque:
        yield f"the memory that PyTorch's kernels use in {_first_of(recorded.opaque)} is not known"
    if recorded.unmeasured or any(part.at_least for part in part_memories.values()):
        yield "the memory that a CPU kernel allocates could not be measured"
    if reshaped := dict.fromkeys(event.part for event in forwards if event.shapes != "planned"):
        yield f"{_first_of(list(reshaped))} runs with several shapes, and has a plan for the first"
    if recorded.runs_between:
        yield "the program reads values between its parts, and may use more memory there"
    if recorded.varies:
        yield "other parts run in some calls"


def _first_of(parts: Sequence[str]) -> str:
    return f"{parts[0]} and {len(parts) - 1} other part{'s' * (len(parts) > 2)}" if len(parts) > 1 else parts[0]


class _LiveStorages:
    """Replays the events of a step, and counts the bytes of the storages that are alive."""

    def __init__(self, recorded: RecordedStep, part_memories: Mapping[str, PartMemory]) -> None:
        self.events, self.inside = recorded.events, part_memories
        self.bytes = {made.storage: made.bytes for made in recorded.baseline}
        self.outside = set(self.bytes)
        self.kept: dict[int, set[int]] = {}
        """Maps each run of a part to the shared storages that the part holds for its backward."""
        self.hidden: dict[int, int] = {}
        """Maps each run of a part to the part's `saved_bytes`, until the backward of this run begins."""
        self.same: dict[int, int] = {}
        """Maps a storage of the recording to a second storage of the recording if the plan uses one storage for both.

        For example, two arguments may share one gradient.
        """
        self.calls: dict[int, Forward] = {}
        self.most: list[int] = []
        self.where: list[str] = []

    def plan_memory(self, event: Forward) -> PartMemory | None:
        """Return the memory of the plan that holds for a run of a part; None if PyTorch runs it, or if none holds.

        A plan for smaller shapes gives a lower bound.
        """
        return None if event.shapes == "other" else self.inside.get(event.part)

    def live_bytes(self) -> int:
        alive = {self.same.get(storage, storage) for storage in self.outside.union(*self.kept.values())}
        # The size of a result that a part keeps is not known before its allocation if the plan is for other shapes.
        return sum(self.bytes.get(storage, 0) for storage in alive) + sum(self.hidden.values())

    def apply_event(self, index: int, event: Event) -> None:
        place = ""
        if isinstance(event, StorageAllocated):
            # If a part makes the storage, `_run_forward` has stored its size under the plan. In the recording, other
            # operators may have made it: for example, PyTorch's loss on the CPU is a scalar in a larger storage.
            self.bytes.setdefault(event.storage, event.bytes)
            self.outside.add(event.storage)
            most = self.live_bytes()
        elif isinstance(event, StorageFreed):
            self.outside.discard(event.storage)
            most = self.live_bytes()
        elif isinstance(event, KernelRuns):
            most = self.live_bytes() + event.bytes
        elif isinstance(event, Forward):
            most, place = self._run_forward(event), event.part
        else:
            most, place = self._run_backward(index, event), f"{self.calls[event.call].part} backward"
        self.most.append(most)
        self.where.append(place)

    def _run_forward(self, event: Forward) -> int:
        self.calls[event.call] = event
        before, inside = self.live_bytes(), self.plan_memory(event)
        if inside is None:
            return before
        made = np.zeros(inside.first_backward + 1, np.int64)
        for storage, row in inside.made.items():
            made[min(row, inside.first_backward)] += inside.bytes[storage]
        rows = slice(0, inside.first_backward)
        most = (np.cumsum(made)[: inside.first_backward] + inside.peak_bytes[rows]).max(initial=0)
        places = {**dict(zip(inside.output, event.outputs, strict=False))}
        places |= dict(zip(inside.argument, event.arguments, strict=False))
        self.kept[event.call] = {places[storage] for storage in inside.dropped if places.get(storage, -1) >= 0}
        for storage, place in places.items():
            # A later event allocates the outputs. Here, only their sizes are stored.
            # A part's plan has no storage for an argument that the plan does not read.
            if place >= 0 and storage >= 0 and event.shapes == "planned":
                self.bytes.setdefault(place, int(inside.bytes[storage]))
        self.hidden[event.call] = inside.saved_bytes
        after = self.live_bytes() if inside.first_backward < len(inside.peak_bytes) else 0
        if inside.first_backward == len(inside.peak_bytes):
            self.kept.pop(event.call)
            self.hidden.pop(event.call)
        return max(before + int(most), after)

    def _run_backward(self, index: int, event: Backward) -> int:
        call = self.calls[event.call]
        inside = self.plan_memory(call)
        if inside is None:
            return self.live_bytes()
        kept = self.kept.pop(event.call, set())
        self.hidden.pop(event.call, None)
        places = dict(zip(inside.output, call.outputs, strict=False))
        places |= dict(zip(inside.argument, call.arguments, strict=False))
        others = self.live_bytes()
        elsewhere = self.outside.union(*self.kept.values())
        first = dict(zip(inside.cotangent, event.cotangents, strict=False))
        for storage, place in zip(inside.gradient, event.gradients, strict=False):
            if storage >= 0 and place >= 0 and first.setdefault(storage, place) != place:
                self.same[place] = self.same.get(first[storage], first[storage])
        going = self._ownerless_storages(index, event.gradients)
        change = np.zeros(len(inside.peak_bytes) + 1, np.int64)
        for storage, row in inside.dropped.items():
            place = places.get(storage, -1)
            if place in kept and place not in elsewhere:
                change[0] += self.bytes[place]
                change[row + 1] -= self.bytes[place]
        for storage, place in zip(inside.cotangent, event.cotangents, strict=False):
            if self.same.get(place, place) in going and place not in kept and storage in inside.dropped:
                change[inside.dropped[storage] + 1] -= self.bytes[place]
            elif place < 0 <= storage:
                # Autograd passes new zeros to the backward for an output whose gradient is not defined.
                change[0] += inside.bytes[storage]
                change[inside.dropped.get(storage, len(inside.peak_bytes) - 1) + 1] -= inside.bytes[storage]
        rows = slice(inside.first_backward, len(inside.peak_bytes))
        most = (np.cumsum(change)[rows] + inside.peak_bytes[rows]).max(initial=0)
        gradients = int(inside.live_bytes[-1]) if len(inside.live_bytes) else 0
        left = sum(self.bytes[place] for place in going)
        return others + max(int(most), gradients - left + inside.after_bytes, 0)

    def _ownerless_storages(self, index: int, gradients: Sequence[int]) -> set[int]:
        """Return the live storages that are freed after event `index`, but before the next part runs.

        The result leaves out the storages of `gradients`, and storages that a part holds.
        """
        freed: set[int] = set()
        for event in self.events[index + 1 :]:
            if isinstance(event, Forward | Backward):
                break
            if isinstance(event, StorageFreed):
                freed.add(event.storage)
        left = (self.outside - freed).union(gradients, *self.kept.values())
        return {self.same.get(storage, storage) for storage in freed & self.outside} - {
            self.same.get(storage, storage) for storage in left
        }
