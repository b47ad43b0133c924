"""Measure when each statement of a step runs and when the device is idle; write a run as a Chrome trace.

Clocks read the time between statements. They take time themselves, so steps without clocks are timed, too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.cost import chrome_trace as chrome
from workbench.analysis.cost.roofline import Calibration, calibrate
from workbench.errors import ProgramError, RunError
from workbench.runs.log import compile_stages, events
from workbench.runs.measure import interleaved_timing

if TYPE_CHECKING:
    from workbench.compiler.driver.statement_timers import StatementClocks
    from workbench.core.graph import Graph
    from workbench.runs.measure.accuracy import Stepper
    from workbench.runs.process.follow_run import Run

CLOCKED_STEPS = 20
"""Number of steps with clocks if steps are long. Medians need no more steps.

Each step with clocks is measured next to a step without clocks.

If steps are short, more steps are measured. If the time budget is used up, fewer steps are measured.
"""

CLOCKED_S = 0.5
"""Short steps are measured for this many seconds, because in a few short steps noise exceeds the clocks' overhead."""

MOST_CLOCKED_STEPS = 400


@dataclasses.dataclass(frozen=True)
class DeviceActivity:
    """One piece of a device's work, such as a kernel. Its start and end are in seconds since the step began."""

    name: str
    stream: int
    start_s: float
    end_s: float


@dataclasses.dataclass(frozen=True)
class Gaps:
    """Times during a step in which a device was idle.

    Attributes
    ----------
    head_gap_s : float
        Seconds from the start of the step to the device's first work.
    bubbles : tuple of (float, float)
        Start and end of each later gap in the device's work, in seconds since the step began.
    busy_s : float
        Seconds in which at least one stream had work.
    """

    head_gap_s: float
    bubbles: tuple[tuple[float, float], ...]
    busy_s: float

    @property
    def bubbles_s(self) -> float:
        """Sum of the durations of `bubbles`, in seconds."""
        return sum(end - start for start, end in self.bubbles)


def gaps(kernels: Sequence[DeviceActivity]) -> Gaps:
    """Return the gaps, from the step's start to the end of its last work, in which no stream of the device had work."""
    if not kernels:
        return Gaps(0.0, (), 0.0)
    found: list[tuple[float, float]] = []
    ordered = sorted(kernels, key=lambda kernel: kernel.start_s)
    end_s = ordered[0].end_s
    for kernel in ordered[1:]:
        if kernel.start_s > end_s:
            found.append((end_s, kernel.start_s))
        end_s = max(end_s, kernel.end_s)
    idle = sum(end - start for start, end in found)
    return Gaps(ordered[0].start_s, tuple(found), end_s - ordered[0].start_s - idle)


def launch_bound(host_s: float, device_s: float, device_type: str) -> tuple[bool | None, str]:
    """Return whether a step waits for the host, and a sentence for the user with the reason.

    Parameters
    ----------
    host_s : float
        Time until all work was submitted to the device.
    device_s : float
        Time during which the device worked.
    device_type : str

    Returns
    -------
    bound : bool or None
        Whether the step waits for the host; None if the host is the device.
    words : str
    """
    if device_type != "cuda":
        return None, "without a GPU, each statement is done when the next begins"
    if host_s >= device_s:
        return True, f"launch-bound: the host issues for {host_s:.3g} s, the device works for {device_s:.3g} s"
    return False, f"the device is busy for {device_s:.3g} s, longer than the {host_s:.3g} s that issuing takes"


def turns_of(step_s: float, budget_s: float) -> int:
    """Return the maximum number of samples of each variant. Short steps get more samples.

    An infinite budget means a run on ranks, see `workbench.runs.worker.rank_worker`. Each step then needs all ranks,
    and `step_s` differs between ranks, so the number of samples is fixed.
    """
    if math.isinf(budget_s):
        return CLOCKED_STEPS
    return min(max(CLOCKED_STEPS, int(CLOCKED_S / (2 * step_s))), MOST_CLOCKED_STEPS)


def measure(
    stepper: Stepper,
    clocks: StatementClocks,
    budget_s: float,
    kernels: Sequence[DeviceActivity],
    t_s: Callable[[], float],
    on_progress: Callable[[int, int, float], None] | None = None,
) -> events.StatementTimes:
    """Run steps with and without clocks, interleaved, and compute the median time of each statement.

    The medians come from steps with clocks in the forward only or in the backward only, because fewer clocks disturb a
    step less. Further steps have clocks in the forward and in the backward. Among these further steps, the step whose
    duration is nearest the median of the steps without clocks is reported as one real step.

    Parameters
    ----------
    stepper : Stepper
        The program, which has been stepped before.
    clocks : StatementClocks
        Clocks of the stepper's callable; this function stops them at the end.
    budget_s : float
    kernels : sequence of DeviceActivity
        The device's work in one step; empty on a CPU.
    t_s : callable
        The log's clock.
    on_progress : callable, optional
        As in `workbench.runs.measure.interleaved_timing.take_interleaved`.

    Raises
    ------
    UnsteadyError
        If a step runs statements other than the ones that have clocks.
    """
    rows: dict[int, list[list[int]]] = {side: [] for side in clocks.sides}
    whole: list[tuple[float, list[int]]] = []

    def time_with_clocks(*sides: int) -> float:
        clocks.clear()
        clocks.start(*sides)
        begun_ns = time.perf_counter_ns()
        found = interleaved_timing.time_step(stepper)
        # `time_step` waits for the device before the step begins, so compute the beginning from the end and duration.
        end_ns = time.perf_counter_ns()
        if not clocks.complete(*sides):
            raise UnsteadyError(_unsteady(stepper))
        row = [max(begun_ns, end_ns - round(found.wall_s * 1e9)), *clocks.times_ns]
        if len(sides) == 1:
            rows[sides[0]].append(row)
        if len(sides) == len(clocks.sides):
            whole.append((found.wall_s, row))
        return found.wall_s

    def time_without_clocks() -> float:
        clocks.stop()
        return interleaved_timing.time_step(stepper).wall_s

    variants: dict[str, Callable[[], float]] = {
        f"with {side}": functools.partial(time_with_clocks, side) for side in rows
    }
    both: dict[str, Callable[[], float]] = {}
    if len(clocks.sides) > 1:
        both["whole"] = functools.partial(time_with_clocks, *clocks.sides)
    try:
        turns = turns_of(time_without_clocks(), budget_s)
        found = interleaved_timing.take_interleaved(
            {**variants, **both, "without": time_without_clocks}, turns, budget_s, on_progress=on_progress
        )
    finally:
        clocks.stop()
    clocked_s = [seconds for variant in variants for seconds in found[variant]]
    overhead = interleaved_timing.ratio(clocked_s, found["without"] * len(variants), paired=True)
    starts, durations, frees = medians(clocks, rows)
    host_s = statistics.median((row[-1] - row[0]) / 1e9 for row in rows[clocks.sides[-1]])
    # On a busy machine, most of the steps with clocks in forward and backward may be many times as long as a step
    # without clocks.
    median_s = statistics.median(found["without"])
    one_step_s, one_row = min(whole, key=lambda each: abs(each[0] - median_s))
    one_starts, one_seconds, one_frees = one_step(clocks, one_row)
    idle = gaps(kernels)
    bound, words = launch_bound(host_s, idle.busy_s, stepper.device.type)
    return events.StatementTimes(
        t_s=t_s(),
        names=[statement.name for statement in clocks.statements],
        sides=[statement.side for statement in clocks.statements],
        sources=[statement.source for statement in clocks.statements],
        outputs=[list(statement.outputs) for statement in clocks.statements],
        start_s=starts,
        seconds=durations,
        free_s=frees,
        step_s=statistics.median(clocked_s),
        overhead=overhead.median - 1,
        overhead_low=overhead.low - 1,
        overhead_high=overhead.high - 1,
        kernels=[dataclasses.asdict(kernel) for kernel in kernels],
        launch_bound=bound,
        verdict=words,
        head_gap_s=idle.head_gap_s,
        bubbles_s=idle.bubbles_s,
        device_busy_s=idle.busy_s,
        one_start_s=one_starts,
        one_seconds=one_seconds,
        one_free_s=one_frees,
        one_step_s=one_step_s,
    )


class UnsteadyError(ProgramError):
    """A step of the program ran other statements than the step before, so no statement can be timed twice."""


def _unsteady(stepper: Stepper) -> str:
    change = getattr(stepper.run, "_last_change", str)()
    where = f"; the last new capture differs at {change}" if change else ""
    return (
        f"no statement is timed: a step runs other statements than the step before{where}. Values that change with "
        "each call, such as a growing list or a number that sets a size, must be tensors, or outside of the program"
    )


def medians(
    clocks: StatementClocks, rows: Mapping[int, Sequence[Sequence[int]]]
) -> tuple[list[float], list[float], list[float]]:
    """Return the median start, duration and deletion time of each statement, in seconds.

    Starts are relative to the beginning of the step.

    Parameters
    ----------
    clocks : StatementClocks
    rows : mapping of int to sequence of sequence of int
        For each side (0 is the forward, 1 the backward), the steps with clocks on this side. Each step has its
        beginning and the readings of its clocks, in nanoseconds.
    """
    count = len(clocks.statements)
    starts, durations, frees = [0.0] * count, [0.0] * count, [0.0] * count
    for side, steps in rows.items():
        for at, tick in enumerate(clocks.ticks_of(side)):
            if tick.statement < 0:
                continue
            seconds = statistics.median((row[at + 1] - row[at]) / 1e9 for row in steps)
            if tick.frees:
                frees[tick.statement] = seconds
            else:
                durations[tick.statement] = seconds
                starts[tick.statement] = statistics.median((row[at] - row[0]) / 1e9 for row in steps)
    return starts, durations, frees


def one_step(clocks: StatementClocks, row: Sequence[int]) -> tuple[list[float], list[float], list[float]]:
    """Return the start, duration and deletion time of each statement in one step, in seconds.

    Parameters
    ----------
    clocks : StatementClocks
    row : sequence of int
        The beginning of the step and all readings of its clocks, in nanoseconds. The step has clocks in the forward and
        in the backward.
    """
    count = len(clocks.statements)
    starts, durations, frees = [0.0] * count, [0.0] * count, [0.0] * count
    for tick, begun_ns, ended_ns in zip(clocks.ticks, row, row[1:], strict=False):
        if tick.statement < 0:
            continue
        seconds = (ended_ns - begun_ns) / 1e9
        if tick.frees:
            frees[tick.statement] = seconds
        else:
            durations[tick.statement], starts[tick.statement] = seconds, (begun_ns - row[0]) / 1e9
    return starts, durations, frees


def device_kernels(profile: Any, begun_ns: int) -> list[DeviceActivity]:
    """Return the device's work in a profile of one step that began at `begun_ns`, in nanoseconds since the epoch."""
    found = []
    for event in profile.profiler.kineto_results.events():
        if event.device_type().name == "CUDA" and event.name() != "[memory]" and event.duration_ns() > 0:
            start_s = (event.start_ns() - begun_ns) / 1e9
            found.append(
                DeviceActivity(event.name(), event.device_resource_id(), start_s, start_s + event.duration_ns() / 1e9)
            )
    return found


def calibration(run: Run, graph: Graph) -> Calibration:
    """Return a calibration from a run's statement times, with which the times of other plans are predicted.

    Parameters
    ----------
    run : Run
        A run with timed steps and statement clocks.
    graph : Graph
        The execution graph of the plan that the run executed.

    Raises
    ------
    RunError
        If the run has no statement times, or executed statements other than the graph's.
    """
    clocked, step_s = run.statements, run.step_s
    if clocked is None or step_s is None:
        raise RunError(f"run {run.name} has no statement times; run it with samples and clocks")
    # Scale to the times of steps without clocks: clocks take time, and the machine's speed may have changed before the
    # steps with clocks.
    scale = step_s / clocked.step_s
    seconds = [scale * (spent + free) for spent, free in zip(clocked.seconds, clocked.free_s, strict=True)]
    try:
        return calibrate(graph, clocked.names, seconds, step_s)
    except ValueError as error:
        raise RunError(f"run {run.name} does not fit the plan: {error}") from error


def chrome_trace(run: Run) -> dict[str, Any]:
    """Return a run as a trace for Perfetto and ``chrome://tracing``: compilation, one step, and memory.

    Times are in microseconds since the worker began. The trace shows the step directly after the compilation.
    """
    found: list[dict[str, Any]] = []

    def span(process: str, thread: str, name: str, start_s: float, seconds: float, **more: Any) -> None:
        found.append(chrome.span(process, thread, name, start_s, seconds, **more))

    begun_s = 0.0
    for event in run.events:
        if isinstance(event, events.Stage):
            span("compile", "stages", event.name, event.t_s - event.seconds, event.seconds)
        elif isinstance(event, events.FusionEnd):
            span("compile", "fusions", event.name, event.t_s - event.seconds, event.seconds, cached=event.cached)
            for part in compile_stages.intervals_of(event):
                span("compile", "parts of fusions", part.name, part.start_s, part.end_s - part.start_s)
        elif isinstance(event, events.MemorySample):
            found.append(chrome.counter("compile", "process size", event.t_s, event.rss_bytes))
        elif isinstance(event, events.Compiled):
            begun_s = event.t_s
    times = events.last_of(run.events, events.StatementTimes)
    if times is not None:
        columns = zip(times.names, times.sides, times.sources, *times.one_step_or_medians, strict=True)
        for name, side, source, start_s, seconds, free_s in columns:
            thread = "host, backward" if side else "host, forward"
            span("step", thread, name, begun_s + start_s, seconds, source=source)
            if free_s:
                span("step", thread, "free", begun_s + start_s + seconds, free_s)
        for kernel in times.kernels:
            seconds = kernel["end_s"] - kernel["start_s"]
            span("step", f"stream {kernel['stream']}", kernel["name"], begun_s + kernel["start_s"], seconds)
    peak = events.last_of(run.events, events.PeakMeasured)
    if peak is not None:
        for at_s, live_bytes in zip(peak.timeline_s, peak.live_bytes, strict=True):
            found.append(chrome.counter("step, measured for memory", "memory in use", begun_s + at_s, live_bytes))
    return chrome.trace_document(found, run=run.name, verdict=times.verdict if times is not None else "")


def write_chrome_trace(run: Run, path: str | Path) -> Path:
    """Write the result of `chrome_trace` into a file; return the file's path.

    Raises
    ------
    RunError
        If the file cannot be written.
    """
    return chrome.write_trace(chrome_trace(run), path)
