"""Simulate how collectives overlap with compute, and compare the order of collectives with the order of their readers.

All times are simulated, by default from a machine's published peak rates. The simulation assumes that no other work
runs, and that streams do not slow each other down.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.cost.machines import H100, Machine
from workbench.analysis.cost.roofline import Calibration, moved_bytes, operations_s, signature
from workbench.core.graph import FORWARD, Graph, Kind, Ragged, StatementFlag, ValueFlag

PACK = "bucket_pack"
"""Name prefix of statements that copy the tensors of a bucket into the buffer of the bucket's collective."""

UNPACK = "bucket_unpack"
"""Name prefix of statements that take tensors out of a bucket's buffer.

A bucket is a set of tensors that one collective sends in one buffer.
"""

HOST, COMPUTE, COMMUNICATION = "host", "compute", "communication"

_NO_KERNEL = (Kind.COLLECTIVE, Kind.WAIT, Kind.GET_GRAD, Kind.RETURN, Kind.FENCE, Kind.ARGUMENT)

# Convert to integers, because operations on members of an enumeration are slow.
_COLLECTIVE, _WAIT = int(Kind.COLLECTIVE), int(Kind.WAIT)
_VIEW, _RETURNED = int(StatementFlag.VIEW), int(ValueFlag.OUTPUT | ValueFlag.SAVED | ValueFlag.GRADIENT)

_TRAFFIC = {"all_gather": 1.0, "reduce_scatter": 1.0, "all_reduce": 2.0, "all_to_all": 1.0}
"""Traffic of each rank in a ring of n ranks, in units of (n - 1) / n of the full tensor.

Source: PERFORMANCE.md of NCCL's tests.
"""


@dataclasses.dataclass(frozen=True)
class StatementSeconds:
    """Seconds that each statement of a graph takes on the host and on each kind of stream; 0 for members of fusions.

    Attributes
    ----------
    host_s, compute_s, communication_s : (statements,) float64
        Seconds on the host, the compute stream, and the communication stream.
    """

    host_s: NDArray[np.float64]
    compute_s: NDArray[np.float64]
    communication_s: NDArray[np.float64]

    def reorder(self, rows: NDArray[np.intp]) -> StatementSeconds:
        """Return the seconds for the graph with its rows in the order `rows`."""
        return StatementSeconds(self.host_s[rows], self.compute_s[rows], self.communication_s[rows])


def costs(graph: Graph, machine: Machine, ranks: int, calibration: Calibration | None = None) -> StatementSeconds:
    """Return the seconds of each statement.

    By default, a kernel takes the longer of two times: the time for its operations, and the time to read and write its
    bytes.

    Parameters
    ----------
    graph : Graph
    machine : Machine
    ranks : int
        Number of processes in each collective whose group is not known.
    calibration : Calibration, optional
        Measured times of kernels, and rates for kernels that were not measured. Without it, the machine's rates are
        used. For collectives, the machine's rates are always used, because a run does not measure their duration.
    """
    statements = graph.statements
    top = statements.parent < 0
    view = (statements.flags & StatementFlag.VIEW) != 0
    kernel = top & ~view & ~np.isin(statements.kind, _NO_KERNEL)
    compute = np.zeros(len(statements))
    communication = np.zeros(len(statements))
    rows = np.flatnonzero(kernel)
    nbytes = moved_bytes(graph, rows)
    if calibration is None:
        compute[rows] = np.maximum(operations_s(graph, rows, machine), nbytes / machine.bytes_per_s)
    else:
        for row, of_row in zip(rows.tolist(), nbytes.tolist(), strict=True):
            known = calibration.seconds.get(signature(graph, row))
            compute[row] = calibration.rates.seconds(float(statements.flops[row]), of_row) if known is None else known
    for row in np.flatnonzero(top & (statements.kind == Kind.COLLECTIVE)).tolist():
        factor = next((f for word, f in _TRAFFIC.items() if word in statements.name[row]), 1.0)
        group = int(statements.group[row])
        among = ranks if group < 0 else graph.groups[group]
        moved = factor * _full_bytes(graph, row) * (among - 1) / among
        communication[row] = machine.latency_s + moved / machine.link_bytes_per_s
    return StatementSeconds(np.where(top, machine.launch_s, 0.0), compute, communication)


def _full_bytes(graph: Graph, row: int | np.integer[Any]) -> int:
    """Return the bytes of the full tensors of a collective.

    For an all-gather, these are the bytes of its results. For a reduction, these are the bytes of its inputs.
    """
    inputs = int(graph.values.bytes[graph.statements.inputs[row]].sum())
    return max(inputs, _result_bytes(graph, row))


def _result_bytes(graph: Graph, row: int | np.integer[Any]) -> int:
    storages = graph.values.storage[graph.statements.outputs[row]]
    if len(storages) == 1:
        return int(graph.storages.bytes[storages[0]]) if storages[0] >= 0 else 0
    return int(graph.storages.bytes[np.unique(storages[storages >= 0])].sum())


@dataclasses.dataclass(frozen=True)
class Links:
    """The collectives of a graph, with their waits and readers.

    If the statements of the graph are reordered, only the row numbers and the order of the collectives change; see
    `reorder`.

    Attributes
    ----------
    issue, wait : (collectives,) int32
        Rows of each collective and of its wait (-1 if there is no wait), in the order in which collectives are issued.
    readers : Ragged
        For each collective, the rows in the same half of the step (forward or backward) that compute with the result.
        Views do not count.
    bytes : (collectives,) int64
        Bytes of each result.
    """

    issue: NDArray[np.int32]
    wait: NDArray[np.int32]
    readers: Ragged
    bytes: NDArray[np.int64]

    def reorder(self, rows: NDArray[np.intp]) -> Links:
        """Return the links for the graph with its rows in the order `rows`."""
        new_row = np.empty(len(rows), np.int32)
        new_row[rows] = np.arange(len(rows), dtype=np.int32)
        issue = new_row[self.issue]
        by_issue = np.argsort(issue)
        return Links(
            issue=issue[by_issue],
            wait=np.where(self.wait >= 0, new_row[self.wait], self.wait)[by_issue],
            readers=dataclasses.replace(self.readers, items=new_row[self.readers.items]).take_rows(by_issue),
            bytes=self.bytes[by_issue],
        )

    @property
    def has_reader(self) -> NDArray[np.bool_]:
        """Return, for each collective, whether it has `readers`."""
        return np.diff(self.readers.offsets) > 0

    @property
    def consumer(self) -> NDArray[np.int32]:
        """Row of the first of each collective's `readers`; -1 if it has none."""
        first = np.full(len(self.issue), -1, np.int32)
        read = self.has_reader
        if read.any():
            first[read] = np.minimum.reduceat(self.readers.items, self.readers.offsets[:-1][read])
        return first


def links(graph: Graph) -> Links:
    """Find the collectives of a graph, and their waits and readers."""
    statements, columns = graph.statements, _Columns(graph)
    issues = np.flatnonzero((statements.parent < 0) & (statements.kind == Kind.COLLECTIVE))
    waits = [
        min((r for r in columns.readers_of(issue) if columns.kind[r] == _WAIT), default=-1) for issue in issues.tolist()
    ]
    return Links(
        issue=issues.astype(np.int32),
        wait=np.asarray(waits, np.int32),
        readers=Ragged.of(sorted(_readers(columns, wait)) if wait >= 0 else () for wait in waits),
        bytes=np.asarray([_result_bytes(graph, issue) for issue in issues], np.int64),
    )


class _Columns:
    """Columns of a graph as lists, which are faster to index than arrays."""

    def __init__(self, graph: Graph) -> None:
        statements, values = graph.statements, graph.values
        self.kind, self.side, self.flags = statements.kind.tolist(), statements.side.tolist(), statements.flags.tolist()
        self.inputs, self.outputs = statements.inputs.lists(), statements.outputs.lists()
        self.consumers = graph.consumers.lists()
        self.producer, self.storage, self.value_flags = (
            values.producer.tolist(),
            values.storage.tolist(),
            values.flags.tolist(),
        )

    def readers_of(self, row: int) -> list[int]:
        """Return the rows that read an output of `row`."""
        return [reader for value in self.outputs[row] for reader in self.consumers[value]]


def _readers(columns: _Columns, row: int) -> set[int]:
    """Return the rows that compute with the outputs of `row`, directly or through views. See `Links.readers`."""
    found: set[int] = set()
    for reader in columns.readers_of(row):
        if columns.side[reader] == columns.side[row]:
            found |= _readers(columns, reader) if columns.flags[reader] & _VIEW else {reader}
    return found


def _rows(graph: Graph) -> NDArray[np.intp]:
    return np.flatnonzero(graph.statements.parent < 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class IssueOrder:
    """Comparison of the order in which collectives are issued with the order in which their results are used.

    Attributes
    ----------
    collectives : int
    inversions : int
        Number of pairs of collectives whose results are first read in the opposite order of their issues. If both run
        on one stream, the first read must wait for both. A pair counts only if both collectives are in the forward, or
        both are in the backward. Collectives without `Links.readers`, such as those of returned gradients, do not
        count.
    without_compute : int
        Number of collectives that have a wait, but no kernel between issue and wait. Such collectives cannot overlap
        with compute.
    distances : tuple of int
        Number of kernels between issue and wait of each collective with a wait, in the order of the issues.
    """

    collectives: int
    inversions: int
    without_compute: int
    distances: tuple[int, ...]


def issue_order(graph: Graph, known_links: Links | None = None) -> IssueOrder:
    """Return the `IssueOrder` of a graph. `known_links` is the result of `links(graph)`, if it is already computed."""
    statements = graph.statements
    idle = np.isin(statements.kind, _NO_KERNEL) | ((statements.flags & StatementFlag.VIEW) != 0)
    kernels = np.cumsum((statements.parent < 0) & ~idle)
    found = links(graph) if known_links is None else known_links
    waited, consumer = found.wait >= 0, found.consumer
    distances = tuple((kernels[found.wait[waited]] - kernels[found.issue[waited]]).tolist())
    inversions = 0
    for side in np.unique(statements.side):
        read = consumer[(consumer >= 0) & (statements.side[found.issue] == side)]
        inversions += int(np.triu(read[:, None] > read[None, :], 1).sum())
    return IssueOrder(
        collectives=len(found.issue),
        inversions=inversions,
        without_compute=distances.count(0),
        distances=distances,
    )


def communication_streams(graph: Graph) -> tuple[str, ...]:
    """Return the names of the communication streams, one for each process group of the graph's collectives."""
    if len(graph.groups) < 2:
        return (COMMUNICATION,)
    return tuple(f"{COMMUNICATION} {at + 1}, {ranks} ranks" for at, ranks in enumerate(graph.groups))


class Bar(NamedTuple):
    """One interval of work on a stream: a bar of a Gantt chart.

    Attributes
    ----------
    stream : str
        ``host``, ``compute``, or a name from `communication_streams`.
    row : int
        Row of the statement in the graph.
    start_s, end_s : float
    """

    stream: str
    row: int
    start_s: float
    end_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Simulation:
    """A simulated step on a host, a compute stream, and one communication stream for each process group.

    Attributes
    ----------
    step_s : float
        Seconds from the first launch until the host and all streams have finished.
    forward_s : float
        Seconds from the first launch until host and compute stream have finished the forward.
    stall_s : tuple of float
        Seconds during which a wait blocks the compute stream, in the forward and in the backward.
    idle_compute_s : float
        Seconds during which the compute stream is idle for any reason.
    in_flight_bytes : (statements,) int64
        After each statement, in the order of `rows`, the bytes of results of collectives that are issued and not yet
        waited for.
    ahead_peak_bytes : int
        Maximum of the bytes in flight, counting only results that a later statement of the same trace reads. Returned
        values, such as gradients, do not count, because they stay alive in every order.
    rows : list of int
        Rows of the graph's statements, in the order in which the host launches them.
    launched_s : (statements,) float64
        Time at which the host has finished each statement, in the order of `rows`.
    busy : mapping of int to (str, float, float)
        Maps a row to the work of its statement on the compute stream or a communication stream: stream, start and end.
    blocked_s : mapping of int to float
        Maps the row of a wait to the seconds during which it blocks the compute stream, without waits that block none.
    """

    step_s: float
    forward_s: float
    stall_s: tuple[float, float]
    idle_compute_s: float
    in_flight_bytes: NDArray[np.int64]
    ahead_peak_bytes: int
    rows: Sequence[int]
    launched_s: NDArray[np.float64]
    busy: Mapping[int, tuple[str, float, float]]
    blocked_s: Mapping[int, float]

    @cached_property
    def bars(self) -> tuple[Bar, ...]:
        """Bars of all streams, in the order in which the host launches the work."""
        found: list[Bar] = []
        begun = 0.0
        for row, launched in zip(self.rows, self.launched_s.tolist(), strict=True):
            found.append(Bar(HOST, row, begun, launched))
            begun = launched
            if row in self.busy:
                stream, start, end = self.busy[row]
                found.append(Bar(stream, row, start, end))
        return tuple(found)

    @property
    def exposed_communication_s(self) -> float:
        """Seconds during which waits block the compute stream, in the complete step."""
        return sum(self.stall_s)

    @property
    def in_flight_peak_bytes(self) -> int:
        """Largest number of bytes that are in flight at once."""
        return int(self.in_flight_bytes.max(initial=0))


def simulate(
    graph: Graph,
    cost: StatementSeconds,
    rows: Sequence[int] | NDArray[np.intp] | None = None,
    known_links: Links | None = None,
) -> Simulation:
    """Simulate a step on a host thread, a compute stream, and a communication stream for each process group.

    The host and each stream run one item of work after another. The host launches the statements in order. A kernel
    starts when it is launched and the compute stream is free. A collective starts, as with NCCL, when three conditions
    hold: it is launched, the stream of its group is free, and the compute stream has finished all earlier work. Groups
    do not block each other, and each has the full bandwidth. A wait blocks only the compute stream. Bytes in flight
    follow the order of statements on the host, because the host allocates the memory.

    Parameters
    ----------
    graph : Graph
        An execution graph.
    cost : StatementSeconds
    rows : sequence of int, optional
        Rows of the graph, without members of fusions, in the order to simulate; by default program order.
    known_links : Links, optional
        Result of `links`, if the caller has it.
    """
    statements = graph.statements
    found = links(graph) if known_links is None else known_links
    order_ = _rows(graph) if rows is None else np.asarray(rows, np.intp)
    place = np.full(len(statements), -1, np.intp)
    place[order_] = np.arange(len(order_))
    launched_s = np.cumsum(cost.host_s[order_])
    issued = {row: at for at, row in enumerate(found.issue.tolist())}
    waited = {row: at for at, row in enumerate(found.wait.tolist()) if row >= 0}
    done = [0.0] * len(issued)
    streams = communication_streams(graph)
    # Collectives without a group run on the first communication stream.
    communication = [0.0] * len(streams)
    compute = forward = kernels_s = 0.0
    stall = [0.0, 0.0]
    busy: dict[int, tuple[str, float, float]] = {}
    blocked: dict[int, float] = {}
    does = np.isin(statements.kind, (Kind.COLLECTIVE, Kind.WAIT)) | (cost.compute_s > 0)
    at = np.flatnonzero(does[order_])
    acting = order_[at]
    columns = (
        launched_s[at],
        statements.side[acting],
        np.maximum(statements.group[acting], 0),
        cost.compute_s[acting],
        cost.communication_s[acting],
    )
    for row, host, side, group, compute_s, communication_s in zip(
        acting.tolist(), *(column.tolist() for column in columns), strict=True
    ):
        if row in issued:
            start = max(host, communication[group], compute)
            communication[group] = done[issued[row]] = start + communication_s
            busy[row] = (streams[group], start, communication[group])
        elif row in waited:
            end = done[waited[row]]
            free = max(host, compute)
            if end > free:
                blocked[row] = end - free
                stall[0 if side == FORWARD else 1] += end - free
                compute = end
        elif compute_s > 0:
            start = max(host, compute)
            compute = start + compute_s
            kernels_s += compute_s
            busy[row] = (COMPUTE, start, compute)
        if side == FORWARD:
            forward = compute
    ahead = np.flatnonzero(statements.side[order_] == FORWARD)
    forward = max(forward, float(launched_s[ahead[-1]])) if len(ahead) else 0.0
    step = max(float(launched_s[-1]) if len(launched_s) else 0.0, compute, *communication)
    return Simulation(
        step_s=step,
        forward_s=forward,
        stall_s=(stall[0], stall[1]),
        idle_compute_s=step - kernels_s,
        in_flight_bytes=_bytes_in_flight(found, place, len(order_), found.bytes),
        ahead_peak_bytes=int(
            _bytes_in_flight(found, place, len(order_), np.where(found.has_reader, found.bytes, 0)).max(initial=0)
        ),
        rows=order_.tolist(),
        launched_s=launched_s,
        busy=busy,
        blocked_s=blocked,
    )


def _bytes_in_flight(
    collectives: Links, positions: NDArray[np.intp], count: int, sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the bytes in flight after each of `count` statements. `positions` maps a row to its place in the order."""
    change = np.zeros(count, np.int64)
    change[positions[collectives.issue]] = sizes
    waited = collectives.wait >= 0
    change[positions[collectives.wait[waited]]] -= sizes[waited]
    return np.cumsum(change)


def lower_bound(graph: Graph, cost: StatementSeconds) -> float:
    """Return a lower bound on the seconds of a step that holds for every order of the collectives.

    The streams are the same as in `simulate`. Kernels are assumed to stay in program order. Each range of kernels gives
    one bound for each process group. This bound is the sum of three times: the compute before the range, the
    collectives of the group that must be issued and waited for inside of the range, and the compute after the range.
    The time of all compute is another bound, and the time of all launches is another. The result is the largest of
    these bounds.
    """
    by_group, prefix = _ranges(graph, cost)
    around = (_bound_of_stream(ranges, prefix) for ranges in by_group.values())
    return max(float(cost.compute_s.sum()), float(cost.host_s.sum()), float(prefix[-1]), *around)


def _bound_of_stream(ranges: Sequence[tuple[int, int, float]], prefix: NDArray[np.float64]) -> float:
    lows = sorted({low for low, _, _ in ranges})
    highs = sorted({high for _, high, _ in ranges})
    table = np.zeros((len(lows), len(highs)))
    low_at, high_at = {v: i for i, v in enumerate(lows)}, {v: i for i, v in enumerate(highs)}
    for low, high, seconds in ranges:
        table[low_at[low], high_at[high]] += seconds
    # Seconds of the collectives that are issued at `low` or later and waited for at `high` or earlier.
    inside = table[::-1].cumsum(0)[::-1].cumsum(1)
    around = prefix[lows][:, None] + (prefix[-1] - prefix[highs])[None, :]
    return float((inside + around)[inside > 0].max(initial=0.0))


def _ranges(
    graph: Graph, cost: StatementSeconds
) -> tuple[dict[int, list[tuple[int, int, float]]], NDArray[np.float64]]:
    """Return the range of kernels with which each collective can overlap, and prefix sums of the kernels' times.

    Collectives, waits, and the statements that can move together with a collective do not count as kernels. The latter
    are views, statements that read only results of waits, and statements whose results only collectives read. A
    statement of the last kind must have one input, or pack a bucket.

    Returns
    -------
    dict of int to list of (int, int, float)
        Maps a process group to its collectives: the number of kernels that must precede the collective, the number of
        kernels that may precede its wait, and its seconds. Collectives without a group belong to the first group.
    (kernels + 1,) float64
        Entry n is the seconds of the first n kernels together.
    """
    columns, rows = _Columns(graph), _rows(graph).tolist()
    moves = _movable(graph, columns, rows)
    compute_order = {row: at for at, row in enumerate(row for row in rows if not moves[row])}
    prefix = np.concatenate(([0.0], np.cumsum(cost.compute_s[list(compute_order)])))
    first = next((at for row, at in compute_order.items() if columns.side[row] != FORWARD), len(compute_order))
    low, high = dict.fromkeys(rows, 0), dict.fromkeys(rows, len(compute_order))
    for row in rows:
        low[row] = 0 if columns.side[row] == FORWARD else first
        for producer in (columns.producer[v] for v in columns.inputs[row]):
            if producer >= 0:
                low[row] = max(low[row], low[producer] if moves[producer] else compute_order[producer] + 1)
    for row in reversed(rows):
        high[row] = first if columns.side[row] == FORWARD else len(compute_order)
        for reader in columns.readers_of(row):
            high[row] = min(high[row], high[reader] if moves[reader] else compute_order[reader])
    found: dict[int, list[tuple[int, int, float]]] = {}
    for row in (row for row in rows if columns.kind[row] == _COLLECTIVE):
        group = max(int(graph.statements.group[row]), 0)
        found.setdefault(group, []).append((low[row], high[row], float(cost.communication_s[row])))
    return found, prefix


def _movable(graph: Graph, columns: _Columns, rows: Sequence[int]) -> dict[int, bool]:
    kind, storage = columns.kind, columns.storage
    moves = {row: kind[row] in (_COLLECTIVE, _WAIT) or bool(columns.flags[row] & _VIEW) for row in rows}
    hangs = {row: kind[row] == _WAIT for row in rows}
    for row in rows:
        producers = [columns.producer[v] for v in columns.inputs[row] if storage[v] >= 0]
        if producers and all(p >= 0 and hangs[p] for p in producers):
            hangs[row] = moves[row] = True
    feeds = {row: kind[row] == _COLLECTIVE for row in rows}
    for row in reversed(rows):
        readers = columns.readers_of(row)
        returned = any(columns.value_flags[v] & _RETURNED for v in columns.outputs[row])
        if readers and all(feeds[r] for r in readers) and not returned:
            inputs = [v for v in columns.inputs[row] if storage[v] >= 0]
            if len(inputs) == 1 or graph.statements.name[row].startswith(PACK):
                feeds[row] = moves[row] = True
    return moves


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlap:
    """Overlap of a plan's collectives with compute: order of issues, simulated step, and lower bound of its seconds.

    Attributes
    ----------
    machine : Machine
    ranks : int
    order : IssueOrder
    simulation : Simulation
    lower_bound_s : float
        Seconds that a step takes at least, in every order of the collectives.
    cost : StatementSeconds
        Seconds of each statement in the simulation.
    links : Links
    calibrated : bool
        Whether the times of kernels come from a run, and not from the rates of `machine`.
    """

    machine: Machine
    ranks: int
    order: IssueOrder
    simulation: Simulation
    lower_bound_s: float
    cost: StatementSeconds
    links: Links
    calibrated: bool = False

    def reorder(self, graph: Graph, rows: NDArray[np.intp]) -> Overlap:
        """Return the overlap of the reordered `graph`. `rows` contains, in the new order, the rows of the old graph."""
        cost, known = self.cost.reorder(rows), self.links.reorder(rows)
        return dataclasses.replace(
            self,
            order=issue_order(graph, known),
            simulation=simulate(graph, cost, known_links=known),
            cost=cost,
            links=known,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain data for JSON."""
        return {
            "step_s": self.simulation.step_s,
            "forward_s": self.simulation.forward_s,
            "exposed_communication_s": self.simulation.exposed_communication_s,
            "idle_compute_s": self.simulation.idle_compute_s,
            "in_flight_peak_bytes": self.simulation.in_flight_peak_bytes,
            "inversions": self.order.inversions,
            "collectives": self.order.collectives,
            "without_compute": self.order.without_compute,
            "lower_bound_s": self.lower_bound_s,
            "machine": self.machine.name,
            "ranks": self.ranks,
            "calibrated": self.calibrated,
            "simulated": True,
        }

    def __repr__(self) -> str:
        """Return the figures, without arrays."""
        shown = (
            (name, f"{value:.4g}" if isinstance(value, float) else value) for name, value in self.to_json().items()
        )
        return f"Overlap({', '.join(f'{name}={value}' for name, value in shown)})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OverlapChange:
    """Change of simulated figures from one plan to another: the new figure minus the old one.

    Attributes
    ----------
    step_s, exposed_communication_s : float
    in_flight_peak_bytes : int
    """

    step_s: float
    exposed_communication_s: float
    in_flight_peak_bytes: int


def overlap_change(old_overlap: Overlap | None, new_overlap: Overlap | None) -> OverlapChange | None:
    """Return the change from the old plan to the new one; None if either plan has no collectives."""
    if old_overlap is None or new_overlap is None:
        return None
    old, new = old_overlap.simulation, new_overlap.simulation
    return OverlapChange(
        step_s=new.step_s - old.step_s,
        exposed_communication_s=new.exposed_communication_s - old.exposed_communication_s,
        in_flight_peak_bytes=new.in_flight_peak_bytes - old.in_flight_peak_bytes,
    )


def overlap(
    graph: Graph, ranks: int, machine: Machine = H100, calibration: Calibration | None = None
) -> Overlap | None:
    """Return the overlap of an execution graph; None if it has no collectives."""
    if not (graph.statements.kind == Kind.COLLECTIVE).any():
        return None
    cost, known = costs(graph, machine, ranks, calibration), links(graph)
    return Overlap(
        machine=machine,
        ranks=ranks,
        order=issue_order(graph, known),
        simulation=simulate(graph, cost, known_links=known),
        lower_bound_s=lower_bound(graph, cost),
        cost=cost,
        links=known,
        calibrated=calibration is not None,
    )


def layer_of_parameter(parameter: str) -> str:
    """Return the layer of a parameter, from the parameter's name in a trace.

    Underscores separate the parts of a name. The layer is the name up to and including the first part that is a number.
    If no part is a number, the layer is the name without its last part.
    """
    name = re.split(r"[<>]", parameter, maxsplit=1)[0]
    numbered = re.match(r"(?:.*?_)??\d+(?=_)", name)
    return numbered[0] if numbered else name.rpartition("_")[0] or name
