"""Meters of a worker: memory in use while it runs, and what one step allocates, over time and by statement."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psutil
import torch
from torch._C._profiler import _EventType

from workbench.runs.accuracy import Stepper
from workbench.runs.clocks import device_kernels
from workbench.runs.events import EventLog, MemorySample

if TYPE_CHECKING:
    from workbench.compiler.clocks import StatementClocks

TIMELINE_POINTS = 4000
"""Most points of a memory timeline that go into the log; what is left out was lower than its neighbour."""


ALIVE_LISTED = 200
"""Most allocations alive at the peak that go into the log, the largest first."""


class MemorySampler(threading.Thread):
    """Writes a `MemorySample` into the log at a steady pace, until stopped.

    Parameters
    ----------
    log : EventLog
    interval_s : float
        Between samples.
    """

    def __init__(self, log: EventLog, interval_s: float) -> None:
        super().__init__(name="memory-sampler", daemon=True)
        self._log = log
        self._interval_s = interval_s
        self._process = psutil.Process()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Sample until stopped."""
        while not self._stopped.wait(self._interval_s):
            self._log.write(self._sample())

    def stop(self) -> None:
        """Stop, after the sample being taken."""
        self._stopped.set()
        self.join()

    def _sample(self) -> MemorySample:
        allocated = reserved = None
        # Asking a CUDA that is not in use would start it, and that takes seconds and memory.
        if torch.cuda.is_initialized():
            allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        return MemorySample(
            t_s=self._log.now_s(),
            rss_bytes=self._process.memory_info().rss,
            allocated_bytes=allocated,
            reserved_bytes=reserved,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peak:
    """Memory of one step; see `workbench.runs.events.PeakMeasured`."""

    measured_peak_bytes: int
    baseline_bytes: int
    timeline_s: list[float]
    live_bytes: list[int]
    method: str
    statement_live_bytes: list[int] = dataclasses.field(default_factory=list)
    statement_peak_bytes: list[int] = dataclasses.field(default_factory=list)
    alive: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    kernels: list[dict[str, Any]] = dataclasses.field(default_factory=list)


def measure_peak(stepper: Stepper, clocks: StatementClocks | None = None) -> Peak:
    """Measure the memory of one step of a program that has been stepped before.

    On the CPU from the allocator's own events, not from the size of the process: what is measured is what the program
    asked for. On CUDA the peak is the allocator's; the timeline has its events too.

    Parameters
    ----------
    stepper : Stepper
        Gradients are cleared first.
    clocks : StatementClocks, optional
        Of the stepper's callable, by `time.time_ns`, the profiler's clock: they tell which statement allocates.

    Returns
    -------
    Peak
    """
    stepper.clear_grads()
    stepper.synchronize()
    baseline = stepper.baseline_bytes()
    cuda = stepper.device.type == "cuda"
    activities = [torch.profiler.ProfilerActivity.CPU]
    held = 0
    if cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
        held = torch.cuda.memory_allocated(stepper.device)
        torch.cuda.reset_peak_memory_stats(stepper.device)
    if clocks is not None:
        clocks.clear()
        clocks.start()
    try:
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            begun_ns = time.time_ns()
            outputs = stepper.step()
            stepper.synchronize()
    finally:
        if clocks is not None:
            clocks.stop()
    del outputs
    changes = _memory_changes(profile, stepper.device.type)
    live = most = baseline
    timeline_s, live_bytes = [0.0], [live]
    for change in changes:
        live += change.nbytes
        most = max(most, live)
        timeline_s.append((change.at_ns - changes[0].at_ns) / 1e9)
        live_bytes.append(live)
    inside: tuple[list[int], list[int]] = ([], [])
    alive: list[dict[str, Any]] = []
    if clocks is not None:
        ticks = [(tick.statement, tick.frees) for tick in clocks.ticks]
        inside = by_statement(changes, baseline, ticks, clocks.times_ns)
        for nbytes, statement in alive_at_peak(changes, ticks, clocks.times_ns)[:ALIVE_LISTED]:
            by = clocks.statements[statement] if statement >= 0 else None
            alive.append(
                {
                    "bytes": nbytes,
                    "statement": statement,
                    "name": by.name if by is not None else "",
                    "outputs": list(by.outputs) if by is not None else [],
                    "source": by.source if by is not None else "",
                }
            )
    if cuda:
        # Whatever else is held on the device, such as a compiler's workspaces, was so before the step and is not its.
        most = baseline + torch.cuda.max_memory_allocated(stepper.device) - held
    timeline_s, live_bytes = thin_out(timeline_s, live_bytes, TIMELINE_POINTS)
    return Peak(
        measured_peak_bytes=most,
        baseline_bytes=baseline,
        timeline_s=timeline_s,
        live_bytes=live_bytes,
        method="cuda allocator" if cuda else "allocation events",
        statement_live_bytes=inside[0],
        statement_peak_bytes=inside[1],
        alive=alive,
        kernels=[dataclasses.asdict(kernel) for kernel in device_kernels(profile, begun_ns)],
    )


def by_statement(
    changes: Sequence[Change], baseline_bytes: int, ticks: Sequence[tuple[int, bool]], times_ns: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Which statement of a step allocated and freed what.

    Parameters
    ----------
    changes : sequence of Change
        In order of time.
    baseline_bytes : int
        In use before the first.
    ticks : sequence of (int, bool)
        Statement that ended at each tick, or -1 where a trace begins; and whether it was the deletions after it.
    times_ns : sequence of int
        When each tick was.

    Returns
    -------
    live_bytes, peak_bytes : list of int
        After each statement and what it frees, and the most inside it.
    """
    count = max((statement for statement, _ in ticks), default=-1) + 1
    live_bytes, peak_bytes = [0] * count, [0] * count
    live, at = baseline_bytes, 0
    for (statement, frees), end_ns in zip(ticks, times_ns, strict=True):
        most = live
        while at < len(changes) and changes[at].at_ns < end_ns:
            live += changes[at].nbytes
            most = max(most, live)
            at += 1
        if statement >= 0:
            live_bytes[statement] = live
            if not frees:
                peak_bytes[statement] = most
    return live_bytes, peak_bytes


def thin_out(times_s: list[float], live_bytes: list[int], most: int) -> tuple[list[float], list[int]]:
    """Keep at most so many points, of each stretch the highest, so that the peak stays."""
    if len(times_s) <= most:
        return times_s, live_bytes
    width = -(-len(times_s) // most)
    kept = [
        max(range(start, min(start + width, len(live_bytes))), key=live_bytes.__getitem__)
        for start in range(0, len(live_bytes), width)
    ]
    return [times_s[i] for i in kept], [live_bytes[i] for i in kept]


@dataclasses.dataclass(frozen=True)
class Change:
    """An allocation (positive bytes) or a free at an address; nanoseconds since the epoch."""

    at_ns: int
    nbytes: int
    address: int


def alive_at_peak(
    changes: Sequence[Change], ticks: Sequence[tuple[int, bool]], times_ns: Sequence[int]
) -> list[tuple[int, int]]:
    """What was allocated during a step and alive at its peak.

    Parameters
    ----------
    changes : sequence of Change
        In order of time.
    ticks, times_ns
        As in `by_statement`.

    Returns
    -------
    list of (int, int)
        Bytes, and the statement that allocated them or -1 where none did; the largest first.
    """
    live = most = peak = 0
    for index, change in enumerate(changes, start=1):
        live += change.nbytes
        if live > most:
            most, peak = live, index
    held: dict[int, tuple[int, int]] = {}
    at = 0
    for change in changes[:peak]:
        while at < len(times_ns) and times_ns[at] <= change.at_ns:
            at += 1
        if change.nbytes > 0:
            statement = ticks[at][0] if at < len(ticks) and not ticks[at][1] else -1
            held[change.address] = (change.nbytes, statement)
        else:
            held.pop(change.address, None)
    return sorted(held.values(), reverse=True)


def _memory_changes(profile: Any, device_type: str) -> list[Change]:
    """Allocations and frees on a type of device."""
    found: list[Change] = []
    open_ = list(profile.profiler.kineto_results.experimental_event_tree())
    while open_:
        event = open_.pop()
        open_.extend(event.children)
        if event.tag == _EventType.Allocation and event.extra_fields.device.type == device_type:
            fields = event.extra_fields
            found.append(Change(event.start_time_ns, fields.alloc_size, fields.ptr))
    # At one moment, what is freed is freed first: its address may be given out again.
    return sorted(found, key=lambda change: (change.at_ns, change.nbytes))
