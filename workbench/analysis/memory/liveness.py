"""Compute the memory over a step from a graph: live storages, peak memory, and the effect of a different schedule.

A storage is alive from the statement that makes its first value until its last value is freed. Arguments are alive
during the complete step. Cotangents are the gradients of outputs; the backward receives them, and they are alive from
the start of the backward. Outputs and gradients are alive until the end.

After the last statement, autograd accumulates the gradients in leaves, one after the other. Leaves are assumed to have
no gradient before the step. Autograd copies a gradient if it is expanded or transposed, or if two arguments share it.
In all other cases, the leaf holds the gradient itself. Later work, such as the backward of code that computed the
inputs, is not included.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import Graph, Kind, StatementFlag, ValueFlag

_HELD = ValueFlag.ARGUMENT | ValueFlag.OUTPUT | ValueFlag.GRADIENT
"""Flags of values that the caller holds, even if the traces free them."""


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Memory over the statements of a step.

    Attributes
    ----------
    live_bytes : (statements,) int64
        Bytes alive after each statement and after the frees that follow it. Members of a fusion have the same bytes as
        the fusion.
    statement_peak_bytes : (statements,) int64
        Most bytes alive during each statement, including its inputs, its outputs and its transient memory. Members of a
        fusion have the same bytes as the fusion.
    peak_bytes : int
        Most bytes alive at once in the step; at least `baseline_bytes`.
    peak_statement : int
        The first statement that reaches the peak. If it is the number of statements, the peak is after the last
        statement. If it is -1, the peak is `baseline_bytes`.
    baseline_bytes : int
        Bytes of the arguments: parameters, buffers and inputs.
    after_bytes : int
        Most bytes alive after the last statement, while autograd copies gradients.
    """

    live_bytes: NDArray[np.int64]
    statement_peak_bytes: NDArray[np.int64]
    peak_bytes: int
    peak_statement: int
    baseline_bytes: int
    after_bytes: int


@dataclasses.dataclass(frozen=True)
class AliveValue:
    """A storage that is alive at a statement. The first of its live values describes the storage.

    Attributes
    ----------
    value, name : int, str
        Index and name of the value.
    storage, bytes : int
        Index and bytes of the storage.
    producer : int
        The statement that makes the value; -1 if no statement makes it.
    origin : int
        Index of the producer's origin in `Graph.origins`; -1 if the value has no producer, or the producer has no
        origin.
    source : str
        The line of the origin, as ``file.py:12``; empty if unknown.
    """

    value: int
    name: str
    storage: int
    bytes: int
    producer: int
    origin: int
    source: str


class GradientCopy(NamedTuple):
    """Autograd's copy of a gradient.

    Attributes
    ----------
    storage : int
        The storage of the gradient that is copied.
    copied_bytes, copying_bytes : int
        Bytes of the copy, and the most bytes that are allocated at once during the copying.
    frees : bool
        Whether the storage is freed after the copy.
    """

    storage: int
    copied_bytes: int
    copying_bytes: int
    frees: bool


@dataclasses.dataclass(frozen=True)
class StatementSchedule:
    """Statements of a joint graph in the order in which they would run.

    Attributes
    ----------
    order : (entries,) int32
        Indices of statements that are not members of fusions. A recomputed statement appears twice.
    clone : (entries,) bool
        True for the second appearance of a statement, in the backward. All later entries of the backward read the
        outputs of the second appearance instead of the original values.
    """

    order: NDArray[np.int32]
    clone: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Sequence[int], reruns: Mapping[int, Sequence[int]]) -> StatementSchedule:
        """Return the schedule of the statements `rows`, in which ``reruns[row]`` run again right before `row`."""
        order: list[int] = []
        clone: list[bool] = []
        for row in rows:
            again = reruns.get(row, ())
            order.extend((*again, row))
            clone.extend((*(True for _ in again), False))
        return cls(np.asarray(order, np.int32), np.asarray(clone, np.bool_))


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Predicted memory of a schedule of a joint graph.

    Attributes
    ----------
    peak_bytes, baseline_bytes : int
        See `Timeline`.
    saved_bytes : int
        Bytes of the storages that the forward passes to the backward, without storages of arguments.
    saved_tensors : int
        Number of tensors in Thunder's list of saved tensors. This list includes arguments.
    saved : (saved_tensors,) int32
        The values in Thunder's list of saved tensors.
    flops : int
        Floating point operations of all entries that run.
    entries : (running,) int32
        Numbers of the schedule's entries that run: first those in the forward, then those in the backward. The other
        entries are dead code, or statements that execute nothing, such as a return.
    first_backward : int
        Number of forward entries in `entries`.
    timeline : Timeline
        One row for each element of `entries`.
    """

    peak_bytes: int
    baseline_bytes: int
    saved_bytes: int
    saved_tensors: int
    saved: NDArray[np.int32]
    flops: int
    entries: NDArray[np.int32]
    first_backward: int
    timeline: Timeline


def timeline(graph: Graph) -> Timeline:
    """Compute the memory over the statements of an execution graph.

    Parameters
    ----------
    graph : Graph
        An execution graph: first the statements of the forward, then those of the backward. `frees` must be filled.

    Returns
    -------
    Timeline
        One row for each statement of the graph.
    """
    statements = graph.statements
    start, end = storage_spans(graph)
    rows = np.flatnonzero(statements.parent < 0)
    found = _timeline(
        len(statements),
        rows,
        start,
        end,
        graph.storages.bytes,
        statements.transient_bytes,
        _baseline(graph),
        _after_bytes(graph, graph.values.storage.tolist(), graph.storages.bytes.tolist()),
    )
    members = np.flatnonzero(statements.parent >= 0)
    for column in (found.live_bytes, found.statement_peak_bytes):
        column[members] = column[statements.parent[members]]
    return found


def alive_at(graph: Graph, statement: int) -> tuple[AliveValue, ...]:
    """Return every storage that is alive during a statement of an execution graph, largest first.

    Parameters
    ----------
    graph : Graph
        An execution graph; see `timeline`.
    statement : int
        Index of a statement. The number of statements means the time after the last statement.

    Returns
    -------
    tuple of AliveValue
        One entry for each storage. The statement's peak is the sum of the bytes of all entries and of the statement's
        transient bytes. After the last statement, the bytes of autograd's copies take the place of the transient bytes.
    """
    return describe_storages(graph, alive_storages(graph, statement))


def alive_storages(graph: Graph, statement: int) -> NDArray[np.intp]:
    """Return, for each storage that is alive at a statement, the first of its values that are alive.

    Returns
    -------
    (storages,) intp
        Rows of the graph's values.
    """
    statements, values = graph.statements, graph.values
    if statement < len(statements) and statements.parent[statement] >= 0:
        statement = int(statements.parent[statement])
    made, dropped = _value_spans(graph)
    start, end = _storage_spans(graph, made, dropped)
    alive = (made <= statement) & (statement <= dropped) & (values.storage >= 0)
    if statement == len(statements):
        given = ValueFlag.COTANGENT if graph.first_backward == statement else 0
        alive &= (values.flags & (_HELD | given)) != 0
    alive &= ((start <= statement) & (statement <= end))[values.storage]
    rows = np.flatnonzero(alive)
    storages, first = np.unique(values.storage[rows], return_index=True)
    shown = rows[first]
    found: NDArray[np.intp] = shown[np.lexsort((shown, -graph.storages.bytes[storages]))]
    return found


def describe_storages(graph: Graph, rows: NDArray[np.intp]) -> tuple[AliveValue, ...]:
    """Return descriptions of storages; `rows` is the result of `alive_storages`."""
    statements, values = graph.statements, graph.values
    storages, producer = values.storage[rows], values.producer[rows]
    origin = np.where(producer >= 0, statements.origin[producer], -1)
    columns = (rows, storages, graph.storages.bytes[storages], producer, origin)
    places = [f"{place.file}:{place.line}" if place.file else "" for place in graph.origins]
    return tuple(
        AliveValue(
            value=value,
            name=values.name[value],
            storage=storage,
            bytes=nbytes,
            producer=maker,
            origin=source,
            source=places[source] if source >= 0 else "",
        )
        for value, storage, nbytes, maker, source in zip(*(column.tolist() for column in columns), strict=True)
    )


class Predictor:
    """Predicts memory for schedules of one joint graph. A prediction takes milliseconds.

    `predict` models what Thunder does with a joint trace. Thunder removes dead code. It puts the statements that the
    outputs need into the forward, and all other statements into the backward. It frees values after their last use.

    Parameters
    ----------
    graph : Graph
        A joint graph. The flags of its values mark arguments, outputs, gradients and cotangents. `frees` is not used.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        statements, values = graph.statements, graph.values
        runs = (statements.parent < 0) & ~np.isin(statements.kind, (Kind.ARGUMENT, Kind.GET_GRAD, Kind.RETURN))
        self._runs: list[bool] = runs.tolist()
        self._inputs = statements.inputs.lists()
        self._outputs = statements.outputs.lists()
        self._inplace: list[bool] = ((statements.flags & StatementFlag.INPLACE) != 0).tolist()
        self._storage: list[int] = values.storage.tolist()
        self._tensor: list[bool] = ((values.flags & ValueFlag.TENSOR) != 0).tolist()
        self._arguments = _values_with(graph, ValueFlag.ARGUMENT)
        self._outcomes = _values_with(graph, ValueFlag.OUTPUT)
        self._gradients = _values_with(graph, ValueFlag.GRADIENT)
        self._cotangents = _values_with(graph, ValueFlag.COTANGENT)
        # Cotangents that no statement makes. They are alive until the end, even if no statement reads them.
        self._ignored = self._cotangents - {value for row in self._outputs for value in row}
        self._argument_storages = {self._storage[value] for value in self._arguments}
        self._baseline_bytes = _baseline(graph)

    def predict(
        self, schedule: StatementSchedule | None = None, offloaded_storages: Collection[int] = (), ahead: int = 0
    ) -> Prediction:
        """Predict memory under a schedule.

        Parameters
        ----------
        schedule : StatementSchedule, optional
            By default the order of the joint graph.
        offloaded_storages : collection of int, optional
            Storages that are offloaded. An offloaded storage is not alive between its last use in the forward and its
            reload. `saved_bytes` does not contain it.
        ahead : int
            Number of statements by which the reload of a storage precedes its first use in the backward.

        Returns
        -------
        Prediction
        """
        if schedule is None:
            rows: list[int] = np.flatnonzero(self.graph.statements.parent < 0).tolist()
            clones = [False] * len(rows)
        else:
            rows, clones = schedule.order.tolist(), schedule.clone.tolist()
        running = [entry for entry, row in enumerate(rows) if self._runs[row]]
        available, forward = self._split_forward(rows, clones, running)
        backward = [entry for entry in running if entry not in forward]
        storage, sizes = list(self._storage), self.graph.storages.bytes.tolist()
        reads, makes = self._stand_ins(rows, clones, backward, storage, sizes)
        backward = self._needed_entries(rows, backward, reads, makes)

        saved = list(dict.fromkeys(value for entry in backward for value in reads[entry] if value in available))
        saved_tensors = [value for value in saved if self._tensor[value]]
        saved_storages = (
            {storage[value] for value in saved_tensors} - self._argument_storages - {-1, *offloaded_storages}
        )

        forward_entries = [entry for entry in running if entry in forward]
        entries = forward_entries + backward
        for entry in forward_entries:
            reads[entry], makes[entry] = self._inputs[rows[entry]], self._outputs[rows[entry]]
        start, end = self._spans(entries, len(forward_entries), reads, makes, storage, len(sizes))
        self._insert_offload_gaps(
            offloaded_storages, ahead, len(forward_entries), entries, reads, makes, storage, (start, end, sizes)
        )
        order = np.asarray([rows[entry] for entry in entries], np.int32)
        found = _timeline(
            len(entries),
            np.arange(len(entries)),
            np.asarray(start),
            np.asarray(end),
            np.asarray(sizes, np.int64),
            self.graph.statements.transient_bytes[order],
            self._baseline_bytes,
            _after_bytes(self.graph, storage, sizes),
        )
        return Prediction(
            peak_bytes=found.peak_bytes,
            baseline_bytes=found.baseline_bytes,
            saved_bytes=sum(sizes[index] for index in saved_storages),
            saved_tensors=len(saved_tensors),
            saved=np.asarray(saved_tensors, np.int32),
            flops=int(self.graph.statements.flops[order].sum()),
            entries=np.asarray(entries, np.int32),
            first_backward=len(forward_entries),
            timeline=found,
        )

    @staticmethod
    def _insert_offload_gaps(
        offloaded_storages: Collection[int],
        ahead: int,
        first_backward: int,
        entries: list[int],
        reads: dict[int, list[int]],
        makes: dict[int, list[int]],
        storage: list[int],
        spans: tuple[list[int], list[int], list[int]],
    ) -> None:
        """Let the spans of offloaded storages end in the forward, and append spans for the reloaded storages."""
        start, end, sizes = spans
        last: dict[int, int] = {}
        first: dict[int, int] = {}
        gone = frozenset(offloaded_storages)
        for position, entry in enumerate(entries if gone else ()):
            for value in (*reads[entry], *makes[entry]):
                if (index := storage[value]) not in gone:
                    continue
                if position < first_backward:
                    last[index] = position
                else:
                    first.setdefault(index, position)
        for index in offloaded_storages:
            if index in last and index in first:
                start.append(max(first_backward, first[index] - ahead))
                end.append(end[index])
                sizes.append(sizes[index])
                end[index] = last[index]

    def _split_forward(self, rows: list[int], clones: list[bool], running: list[int]) -> tuple[set[int], set[int]]:
        """Split the entries into forward and backward, as Thunder does.

        Returns
        -------
        set of int
            Values that the backward can read: arguments and values of the forward.
        set of int
            Entries of the forward.
        """
        available = set(self._outcomes) | self._arguments
        if not self._gradients and not self._cotangents:
            # Without a backward, all entries are in the forward, even in-place writes whose results no statement reads.
            return available, set(running)
        forward = set()
        for entry in reversed(running):
            row = rows[entry]
            if clones[entry]:
                continue
            made = self._outputs[row]
            if available.isdisjoint(made) and not (self._inplace[row] and self._writes(row, available)):
                continue
            forward.add(entry)
            available.update(made)
            available.update(self._inputs[row])
        return available, forward

    def _writes(self, row: int, values: set[int]) -> bool:
        """Return whether statement `row` writes to the memory of one of `values`."""
        written = {self._storage[value] for value in self._outputs[row]}
        return any(value in values and self._storage[value] in written for value in self._inputs[row])

    def _stand_ins(
        self, rows: list[int], clones: list[bool], backward: list[int], storage: list[int], sizes: list[int]
    ) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Return the inputs and the outputs of each backward entry, after clones have replaced values.

        A clone is the second appearance of a statement. Its outputs are new values. Later entries read the new values
        instead of the originals. Add the new values to `storage`, and the bytes of their storages to `sizes`.
        """
        stand_in: dict[int, int] = {}
        reads: dict[int, list[int]] = {}
        makes: dict[int, list[int]] = {}
        for entry in backward:
            row = rows[entry]
            reads[entry] = [stand_in.get(value, value) for value in self._inputs[row]]
            makes[entry] = self._outputs[row]
            shared = {
                self._storage[value]: storage[fresh]
                for value, fresh in zip(self._inputs[row], reads[entry], strict=True)
            }
            if not clones[entry]:
                # A view of a replaced value is now a view of the replacement, so it is in the storage of the
                # replacement.
                for value in self._outputs[row]:
                    storage[value] = shared.get(storage[value], storage[value])
                continue
            makes[entry] = []
            for value in self._outputs[row]:
                original = self._storage[value]
                if original >= 0 and original not in shared:
                    shared[original] = len(sizes)
                    sizes.append(sizes[original])
                stand_in[value] = len(storage)
                makes[entry].append(len(storage))
                storage.append(shared[original] if original >= 0 else -1)
        return reads, makes

    def _needed_entries(
        self, rows: list[int], backward: list[int], reads: dict[int, list[int]], makes: dict[int, list[int]]
    ) -> list[int]:
        """Return the backward entries that write in place, or that a gradient or an in-place write needs."""
        needed = set(self._gradients)
        alive = []
        for entry in reversed(backward):
            if self._inplace[rows[entry]] or not needed.isdisjoint(makes[entry]):
                alive.append(entry)
                needed.update(reads[entry])
        alive.reverse()
        return alive

    def _spans(
        self,
        entries: list[int],
        first_backward: int,
        reads: dict[int, list[int]],
        makes: dict[int, list[int]],
        storage: list[int],
        storages: int,
    ) -> tuple[list[int], list[int]]:
        """Return the first and the last position at which each storage is alive."""
        never, ever = len(entries), len(entries)
        start, end = [never] * storages, [-1] * storages
        for position, entry in enumerate(entries):
            for value in makes[entry]:
                index = storage[value]
                if index >= 0:
                    start[index] = min(start[index], position)
                    end[index] = position
            for value in reads[entry]:
                if storage[value] >= 0:
                    end[storage[value]] = position
        for value in self._cotangents:
            index = storage[value]
            start[index] = min(start[index], first_backward)
            end[index] = ever if value in self._ignored else max(end[index], first_backward)
        for value in self._outcomes | self._gradients:
            if storage[value] >= 0:
                end[storage[value]] = ever
        for value in self._arguments:
            if storage[value] >= 0:
                start[storage[value]], end[storage[value]] = -1, ever
        return start, end


def _values_with(graph: Graph, flag: ValueFlag) -> set[int]:
    return set(np.flatnonzero(graph.values.flags & flag).tolist())


def _baseline(graph: Graph) -> int:
    arguments = np.unique(graph.values.storage[(graph.values.flags & ValueFlag.ARGUMENT) != 0])
    return int(graph.storages.bytes[arguments[arguments >= 0]].sum())


def _after_bytes(graph: Graph, storage: Sequence[int], sizes: Sequence[int]) -> int:
    """Return the most bytes alive after the last statement, while autograd accumulates gradients.

    Parameters
    ----------
    graph : Graph
        The accumulated gradients are in `StepBoundary`.
    storage, sizes : sequence of int
        Storage of each value, and bytes of each storage, under the schedule.
    """
    held = {storage[value] for value in np.flatnonzero(graph.values.flags & _HELD).tolist()} - {-1}
    held_bytes = sum(sizes[index] for index in held)
    allocated = most = 0
    for copy in gradient_copies(graph, storage):
        most = max(most, allocated + copy.copying_bytes)
        allocated += copy.copied_bytes
        if copy.frees:
            allocated -= sizes[copy.storage]
    return held_bytes + most


def gradient_copies(graph: Graph, storage: Sequence[int]) -> Iterator[GradientCopy]:
    """Yield autograd's copies of gradients after the backward, in order.

    Parameters
    ----------
    graph : Graph
        The accumulated gradients are in `StepBoundary`.
    storage : sequence of int
        Storage of each value, under the schedule.
    """
    ends = graph.ends
    others = np.flatnonzero(graph.values.flags & (ValueFlag.ARGUMENT | ValueFlag.OUTPUT)).tolist()
    # If autograd does not accumulate a gradient in a leaf, it passes the gradient to another node of its graph.
    passed_on = Counter(value for value in ends.gradients if value >= 0) - Counter(ends.accumulated)
    kept = {storage[value] for value in (*others, *passed_on)}
    waiting = Counter(storage[value] for value in ends.accumulated)
    for value, copied_bytes, copying_bytes in zip(ends.accumulated, ends.copied_bytes, ends.copying_bytes, strict=True):
        source = storage[value]
        if not copied_bytes:
            kept.add(source)
            continue
        waiting[source] -= 1
        yield GradientCopy(source, copied_bytes, copying_bytes, frees=not waiting[source] and source not in kept)


def _value_spans(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, for each value, the first and the last statement at which it is alive.

    A value inside of a fusion is never alive: its first statement is the number of statements.
    """
    statements, flags = graph.statements, graph.values.flags
    count = len(statements)
    made = np.full(len(graph.values), count, np.int64)
    dropped = np.full(len(graph.values), -1, np.int64)
    top = statements.parent < 0
    rows = np.repeat(np.arange(count), np.diff(statements.outputs.offsets))
    on_top = top[rows]
    np.minimum.at(made, statements.outputs.items[on_top], rows[on_top])
    np.maximum.at(dropped, statements.frees.items, np.repeat(np.arange(count), np.diff(statements.frees.offsets)))
    cotangent = (flags & ValueFlag.COTANGENT) != 0
    # Cotangents are alive from the start of the backward. If the backward has no statements, this start is after the
    # last statement.
    made[cotangent] = graph.first_backward
    dropped = np.where(dropped < 0, count, np.maximum(dropped, made))
    dropped[(flags & _HELD) != 0] = count
    made[(flags & ValueFlag.ARGUMENT) != 0] = -1
    return made, dropped


def storage_spans(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first and the last statement at which each storage is alive.

    The statement -1 stands for the time before the first statement. The number of statements stands for the time after
    the last statement. If a storage is never alive, its first statement is later than its last statement.
    """
    return _storage_spans(graph, *_value_spans(graph))


def _storage_spans(
    graph: Graph, produced_at: NDArray[np.int64], dropped_at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    start = np.full(len(graph.storages), len(graph.statements), np.int64)
    end = np.full(len(graph.storages), -1, np.int64)
    given = (graph.values.flags & ValueFlag.COTANGENT) != 0
    alive = (graph.values.storage >= 0) & (given | (produced_at < len(graph.statements)))
    np.minimum.at(start, graph.values.storage[alive], produced_at[alive])
    np.maximum.at(end, graph.values.storage[alive], dropped_at[alive])
    return start, end


def _timeline(
    count: int,
    rows: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    sizes: NDArray[np.int64],
    transient_bytes: NDArray[np.int64],
    baseline_bytes: int,
    after_bytes: int,
) -> Timeline:
    """Return the timeline of storages that are alive from `start` to `end`, inclusive.

    There are `count` statements. Only the statements `rows` can have the peak: they are not members of fusions.
    """
    alive = start <= end
    made = np.zeros(count + 1, np.int64)
    dropped = np.zeros(count + 1, np.int64)
    np.add.at(made, np.maximum(start[alive], 0), sizes[alive])
    np.add.at(dropped, end[alive], sizes[alive])
    total = np.cumsum(made)[:count]
    gone = np.cumsum(dropped)[:count]
    live_bytes = total - gone
    statement_peak_bytes = live_bytes + dropped[:count] + transient_bytes
    peak_bytes, peak_statement = baseline_bytes, -1
    if len(rows):
        at = int(rows[np.argmax(statement_peak_bytes[rows])])
        if statement_peak_bytes[at] >= baseline_bytes:
            peak_bytes, peak_statement = int(statement_peak_bytes[at]), at
    # If the backward has no statements, cotangents are alive only after the last statement.
    last_bytes = int(made.sum() - dropped[:count].sum())
    if max(last_bytes, after_bytes) > peak_bytes:
        peak_bytes, peak_statement = max(last_bytes, after_bytes), count
    return Timeline(live_bytes, statement_peak_bytes, peak_bytes, peak_statement, baseline_bytes, after_bytes)
