"""Measure a worker's memory: samples of the memory in use during the run, and the allocations of one step."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import json
import math
import os
import resource
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from workbench.interop.torch_private import _EventType
from workbench.runs.log.event_log import EventLog
from workbench.runs.log.events import MemorySample
from workbench.runs.measure.accuracy import Stepper
from workbench.runs.measure.statement_times import DeviceActivity, device_kernels
from workbench.runs.process.request import ALIVE_LISTED

if TYPE_CHECKING:
    from workbench.compiler.driver.statement_timers import StatementClocks

TIMELINE_POINTS = 4000
"""Maximum number of points of a memory timeline in the log. Among neighboring points, the highest is logged."""


_CUDA_STATS = {
    "allocated_bytes": "allocated_bytes",
    "reserved_bytes": "reserved_bytes",
    "fragmented_bytes": "inactive_split_bytes",
}
"""Maps each figure of a memory sample to its name in `torch.cuda.memory_stats`."""


_METER_TIMEOUT_S = 2.0


class MemorySampler(threading.Thread):
    """A thread that writes a `MemorySample` into the log at a steady rate until it is stopped.

    Parameters
    ----------
    log : EventLog
    interval_s : float
        Time between two samples.
    apart : bool, optional
        Let a separate process, `workbench.runs.measure.memory_sampler_process`, write the samples, also during calls
        that hold the interpreter's lock. During such a call, the samples repeat the device figures from before the
        call.
    """

    def __init__(self, log: EventLog, interval_s: float, *, apart: bool = False) -> None:
        super().__init__(name="memory-sampler", daemon=True)
        self._log = log
        self._interval_s = interval_s
        # Keep the file open; psutil, which opens the file for each sample, takes ten times as long.
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._stopped = threading.Event()
        self._meter = self._start_meter() if apart else None

    def run(self) -> None:
        """Write samples until `stop` is called."""
        due_s = time.monotonic() + self._interval_s
        while not self._stopped.wait(max(0.0, due_s - time.monotonic())):
            if not self._notify_meter():
                self._log.write(self._sample())
            # If this sample had to wait for the interpreter's lock, do not take the missed samples all at once.
            due_s = max(due_s + self._interval_s, time.monotonic())

    def stop(self) -> None:
        """Stop the thread after its current sample, and end the separate process."""
        self._stopped.set()
        self.join()
        with contextlib.suppress(OSError):  # the program may have closed the file
            os.close(self._statm)
        self._end_meter(b"\n")

    def _start_meter(self) -> subprocess.Popen[bytes] | None:
        where, file = os.path.join(os.path.dirname(__file__), "memory_sampler_process.py"), self._log.descriptor
        given = (file, os.getpid(), self._log.start_s, self._interval_s)
        try:
            meter = subprocess.Popen(
                [sys.executable, "-I", "-S", where, *map(str, given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(file,),
            )
        except OSError:  # no memory or process number is left
            return None
        assert meter.stdin is not None, "it is a pipe"
        os.set_blocking(meter.stdin.fileno(), False)
        return meter

    def _end_meter(self, last: bytes = b"") -> None:
        meter, self._meter = self._meter, None
        if meter is None or meter.stdin is None:
            return
        with contextlib.suppress(OSError, ValueError):
            os.write(meter.stdin.fileno(), last)
            meter.stdin.close()
        try:
            meter.wait(_METER_TIMEOUT_S if last else 0)
        except subprocess.TimeoutExpired:
            meter.kill()
            meter.wait()

    def _notify_meter(self) -> bool:
        """Send the figures of the device's allocator to the separate process; return whether the process exists."""
        if self._meter is None or self._meter.stdin is None:
            return False
        try:
            os.write(self._meter.stdin.fileno(), json.dumps(self._on_device()).encode() + b"\n")
        except (OSError, ValueError):  # the meter has ended or does not read, or the program has closed the pipe
            self._end_meter()
            return False
        return True

    def _sample(self) -> MemorySample:
        rss_bytes = int(os.pread(self._statm, 128, 0).split()[1]) * resource.getpagesize()
        return MemorySample(t_s=self._log.now_s(), rss_bytes=rss_bytes, **self._on_device())

    def _on_device(self) -> dict[str, int | None]:
        # Do not query CUDA before the program uses it. The query would initialize CUDA and so take seconds and memory.
        if not torch.cuda.is_initialized():
            return dict.fromkeys(_CUDA_STATS)
        stats = torch.cuda.memory_stats()
        return {name: stats[f"{key}.all.current"] for name, key in _CUDA_STATS.items()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Peak:
    """Memory of one step; see `workbench.runs.log.events.PeakMeasured`."""

    measured_peak_bytes: int
    baseline_bytes: int
    timeline_s: list[float]
    live_bytes: list[int]
    method: str
    statement_live_bytes: list[int] = dataclasses.field(default_factory=list)
    statement_peak_bytes: list[int] = dataclasses.field(default_factory=list)
    peak_statement: dict[str, Any] = dataclasses.field(default_factory=dict)
    alive: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    kernels: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    reserved_bytes: int | None = None
    fragmented_bytes: int | None = None


def measure_peak(stepper: Stepper, clocks: StatementClocks | None = None) -> Peak:
    """Measure the memory of one step of a program that has already been stepped.

    On a CPU, the peak memory is computed from the allocator's events and not from the size of the process, because only
    the program's allocations count. On CUDA, the allocator reports the peak memory, and the timeline is computed from
    the allocator's events.

    Parameters
    ----------
    stepper : Stepper
        The program; its gradients are cleared first.
    clocks : StatementClocks, optional
        Clocks of the stepper's callable. Their times show which statement allocates. The clocks must read
        `time.time_ns`, as the profiler does. If the step runs different statements than the clocks expect, the result
        has no figures for statements.

    Returns
    -------
    Peak
    """
    stepper.clear_grads()
    stepper.synchronize()
    baseline = stepper.baseline_bytes()
    cuda = stepper.device.type == "cuda"
    held = 0
    if cuda:
        held = torch.cuda.memory_allocated(stepper.device)
        torch.cuda.reset_peak_memory_stats(stepper.device)
    with _frees_of_baseline(stepper) as freed:
        changes, kernels = observe_step(stepper, clocks)
    changes = _merge_frees(changes, freed)
    live = most = baseline
    timeline_s, live_bytes = [0.0], [live]
    for change in changes:
        live += change.nbytes
        most = max(most, live)
        timeline_s.append((change.at_ns - changes[0].at_ns) / 1e9)
        live_bytes.append(live)
    more: dict[str, Any] = {}
    if clocks is not None and clocks.complete():
        ticks = [(tick.statement, tick.frees) for tick in clocks.ticks]
        peak_ns, alive = alive_at_peak(changes, ticks, clocks.times_ns)
        inside = by_statement(changes, baseline, ticks, clocks.times_ns)
        more = {
            "statement_live_bytes": inside[0],
            "statement_peak_bytes": inside[1],
            "peak_statement": _describe_owner(clocks, statement_at(peak_ns, ticks, clocks.times_ns)),
            "alive": [{"bytes": each.nbytes, **describe_allocation(each, clocks)} for each in alive[:ALIVE_LISTED]],
        }
    if cuda:
        # Subtract allocations that existed before the step and are not in the baseline, such as compilers' workspaces.
        most = baseline + torch.cuda.max_memory_allocated(stepper.device) - held
        stats = torch.cuda.memory_stats(stepper.device)
        more |= {name: stats[f"{_CUDA_STATS[name]}.all.peak"] for name in ("reserved_bytes", "fragmented_bytes")}
    timeline_s, live_bytes = thin_out(timeline_s, live_bytes, TIMELINE_POINTS)
    return Peak(
        measured_peak_bytes=most,
        baseline_bytes=baseline,
        timeline_s=timeline_s,
        live_bytes=live_bytes,
        method="cuda allocator" if cuda else "allocation events",
        kernels=[dataclasses.asdict(kernel) for kernel in kernels],
        **more,
    )


def observe_step(stepper: Stepper, clocks: StatementClocks | None) -> tuple[list[MemoryEvent], list[DeviceActivity]]:
    """Run one step under PyTorch's profiler; return the allocations and frees on the device, and the device's work."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if stepper.device.type == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    if clocks is not None:
        clocks.clear()
        clocks.start()
    try:
        with torch.profiler.profile(activities=activities, profile_memory=True, acc_events=True) as profile:
            begun_ns = time.time_ns()
            outputs = stepper.step()
            stepper.synchronize()
    finally:
        if clocks is not None:
            clocks.stop()
    del outputs
    return _memory_changes(profile, stepper.device.type), device_kernels(profile, begun_ns)


@contextlib.contextmanager
def _frees_of_baseline(stepper: Stepper) -> Iterator[list[MemoryEvent]]:
    """Collect the frees of the baseline's CPU storages, such as of a tensor that the step replaces.

    The profiler reports no free of CPU memory that was allocated while no profiler ran.
    """
    found: list[MemoryEvent] = []

    def note(nbytes: int, address: int) -> None:
        found.append(MemoryEvent(time.time_ns(), -nbytes, address))

    watched = [
        weakref.finalize(storage, note, nbytes, storage.data_ptr())
        for storage, nbytes in (stepper.baseline_storages() if stepper.device.type == "cpu" else ())
    ]
    try:
        yield found
    finally:
        for each in watched:
            each.detach()


def _merge_frees(changes: Sequence[MemoryEvent], freed: Sequence[MemoryEvent]) -> list[MemoryEvent]:
    """Return the changes with the frees that they lack. They contain a free if it is the first event of its address."""
    first = {change.address: change.nbytes for change in reversed(changes)}
    lacking = [change for change in freed if first.get(change.address, 1) > 0]
    return sorted([*changes, *lacking], key=_by_time)


def _by_time(change: MemoryEvent) -> tuple[int, int]:
    # At equal times, frees come first, because a freed address may be allocated again at the same time.
    return change.at_ns, change.nbytes


def describe_allocation(allocation: Allocation, clocks: StatementClocks | None) -> dict[str, Any]:
    """Return the value that an allocation stores, and the statement that made the allocation.

    Returns
    -------
    dict
        ``value`` is the name of the stored value; it is empty if the allocation is not an output of the statement.
        ``statement``, ``name``, ``outputs`` and ``source`` describe the statement.
    """
    if clocks is None or allocation.statement < 0:
        return {"value": "", **_describe_owner(clocks, -1)}
    found = _describe_owner(clocks, allocation.statement)
    lie = zip(found["outputs"], clocks.addresses[allocation.statement], strict=True)
    values = (name for name, address in lie if allocation.outlives_statement and address == allocation.address)
    return {"value": next(values, ""), **found}


def _describe_owner(clocks: StatementClocks | None, statement: int) -> dict[str, Any]:
    if clocks is None or statement < 0:
        return {"statement": -1, "name": "", "outputs": [], "source": ""}
    by = clocks.statements[statement]
    return {"statement": statement, "name": by.name, "outputs": list(by.outputs), "source": by.source}


def by_statement(
    changes: Sequence[MemoryEvent], baseline_bytes: int, ticks: Sequence[tuple[int, bool]], times_ns: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the live and peak bytes of each statement of a step.

    Parameters
    ----------
    changes : sequence of MemoryEvent
        Allocations and frees in order of time.
    baseline_bytes : int
        Bytes in use before the first statement.
    ticks : sequence of (int, bool)
        A tick is one reading of a clock. The int is the statement, or -1 at the beginning of a trace. The bool is False
        at the statement's end, and True at the end of the deletions after the statement.
    times_ns : sequence of int
        Time of each tick.

    Returns
    -------
    live_bytes, peak_bytes : list of int
        Bytes in use after each statement and its deletions, and the maximum while the statement runs.
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
    """Reduce a timeline to at most `most` points: the highest point of each interval, so that the peak is kept."""
    if len(times_s) <= most:
        return times_s, live_bytes
    width = -(-len(times_s) // most)
    kept = [
        max(range(start, min(start + width, len(live_bytes))), key=live_bytes.__getitem__)
        for start in range(0, len(live_bytes), width)
    ]
    return [times_s[i] for i in kept], [live_bytes[i] for i in kept]


@dataclasses.dataclass(frozen=True)
class MemoryEvent:
    """An allocation (positive bytes) or a free (negative bytes); the time is in nanoseconds since the epoch."""

    at_ns: int
    nbytes: int
    address: int


@dataclasses.dataclass(frozen=True)
class Allocation:
    """One allocation of a step.

    Attributes
    ----------
    address, nbytes : int
    statement : int
        The statement that allocated it, or -1 if none did.
    begin, end : int
        Indices, among the step's memory events, of the allocation and of its free. If it was not freed, `end` is the
        number of events.
    outlives_statement : bool
        Whether the memory was still allocated when the statement ended; False if no statement allocated it.
    """

    address: int
    nbytes: int
    statement: int
    begin: int
    end: int
    outlives_statement: bool


def statement_at(at_ns: float, ticks: Sequence[tuple[int, bool]], times_ns: Sequence[int]) -> int:
    """Return the statement that ran at a time, or -1 if none did; `ticks` and `times_ns` as in `by_statement`."""
    at = bisect.bisect_right(times_ns, at_ns)
    return ticks[at][0] if at < len(ticks) and not ticks[at][1] else -1


def allocations(
    changes: Sequence[MemoryEvent], ticks: Sequence[tuple[int, bool]], times_ns: Sequence[int]
) -> list[Allocation]:
    """Return the allocations among a step's memory events, in order of time.

    Parameters
    ----------
    changes : sequence of MemoryEvent
        Allocations and frees in order of time.
    ticks, times_ns
        As in `by_statement`.
    """
    freed: dict[int, int] = {}
    held: dict[int, int] = {}
    for index, change in enumerate(changes):
        if change.nbytes > 0:
            held[change.address] = index
        elif change.address in held:
            freed[held.pop(change.address)] = index
    ended_ns = {statement: at_ns for (statement, frees), at_ns in zip(ticks, times_ns, strict=True) if not frees}
    found = []
    for index, change in enumerate(changes):
        if change.nbytes <= 0:
            continue
        statement = statement_at(change.at_ns, ticks, times_ns)
        end = freed.get(index, len(changes))
        freed_ns = changes[end].at_ns if end < len(changes) else math.inf
        outlives = statement >= 0 and freed_ns >= ended_ns[statement]
        found.append(Allocation(change.address, change.nbytes, statement, index, end, outlives))
    return found


def alive_at_peak(
    changes: Sequence[MemoryEvent], ticks: Sequence[tuple[int, bool]], times_ns: Sequence[int]
) -> tuple[float, list[Allocation]]:
    """Return the time of a step's peak in nanoseconds, and the allocations that were live then, largest first.

    If the step allocates nothing, the time is infinite and the list is empty.
    """
    live = most = 0
    peak = -1
    for index, change in enumerate(changes):
        live += change.nbytes
        if live > most:
            most, peak = live, index
    if peak < 0:
        return math.inf, []
    alive = [each for each in allocations(changes, ticks, times_ns) if each.begin <= peak < each.end]
    return changes[peak].at_ns, sorted(alive, key=lambda each: -each.nbytes)


def _memory_changes(profile: Any, device_type: str) -> list[MemoryEvent]:
    """Return the allocations and frees on devices of type `device_type`."""
    found: list[MemoryEvent] = []
    open_ = list(profile.profiler.kineto_results.experimental_event_tree())
    while open_:
        event = open_.pop()
        open_.extend(event.children)
        if event.tag == _EventType.Allocation and event.extra_fields.device.type == device_type:
            fields = event.extra_fields
            found.append(MemoryEvent(event.start_time_ns, fields.alloc_size, fields.ptr))
    return sorted(found, key=_by_time)
