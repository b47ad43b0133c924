"""The event log of a run: one typed record per line, its writer, its reader, and what a compilation reports to it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

LOG_FILE = "events.jsonl"
"""Name of the log in a run's folder."""

UNATTRIBUTED = "unattributed"
"""Name of the stage that is no stage: time that nothing accounts for."""

EXIT_LOG_UNWRITABLE = 74
"""Exit status of a worker that cannot write its log any more (``EX_IOERR`` of sysexits.h)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened in a run.

    Attributes
    ----------
    t_s : float
        Seconds since the worker started, on a clock that never goes back.
    """

    type: ClassVar[str]
    t_s: float


_TYPES: dict[str, type[Event]] = {}


def _event[T: type[Event]](cls: T) -> T:
    """Make a class readable under its `type`."""
    _TYPES[cls.type] = cls
    return cls


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Started(Event):
    """The worker is alive.

    Attributes
    ----------
    pid : int
    time_s : float
        Seconds since the epoch at ``t_s == 0``.
    """

    type = "started"
    pid: int
    time_s: float


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment(Event):
    """What the run runs on.

    Attributes
    ----------
    versions : dict
        Of Python and of packages.
    machine : dict
        System, cores, memory, threads and GPU.
    """

    type = "environment"
    versions: dict[str, str]
    machine: dict[str, Any]


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase(Event):
    """The worker begins ``build``, ``compile``, ``warmup``, ``memory``, ``time``, ``clocks`` or ``accuracy``."""

    type = "phase"
    phase: str


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Warned(Event):
    """Something of the config does not fit the program; the run goes on without it."""

    type = "warned"
    message: str


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage(Event):
    """A stage of compilation ended at `t_s`, after so many seconds."""

    type = "stage"
    name: str
    seconds: float


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class FusionBegin(Event):
    """A fusion, number `index` (from 0) of `count`, is about to be compiled."""

    type = "fusion_begin"
    name: str
    index: int
    count: int


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class FusionEnd(Event):
    """The fusion is compiled and has run once.

    Attributes
    ----------
    name, index, count
        As in `FusionBegin`.
    seconds : float
    parts : dict
        Seconds of its definition, of each compiler, and of its first launch; they add up to `seconds`.
    cached : bool
        Whether a compiler found what it would have made in its cache.
    """

    type = "fusion_end"
    name: str
    index: int
    count: int
    seconds: float
    parts: dict[str, float] = dataclasses.field(default_factory=dict)
    cached: bool = False


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class MemorySample(Event):
    """Memory in use now.

    Attributes
    ----------
    rss_bytes : int
        Size of the process.
    allocated_bytes, reserved_bytes, fragmented_bytes : int, optional
        On CUDA: what its allocator gave out, what it holds, and what lies free in blocks that are in use in part.
    """

    type = "memory_sample"
    rss_bytes: int
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    fragmented_bytes: int | None = None


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled(Event):
    """The first forward and backward is done.

    Attributes
    ----------
    compile_s : float
        Its wall time, all of it.
    attributed : float
        Share of it that stages and fusions account for, 0 to 1.
    stages : list of dict
        ``{"name", "seconds"}``: time spent in a stage and in no stage inside it; the last is `UNATTRIBUTED`.
    """

    type = "compiled"
    compile_s: float
    attributed: float
    stages: list[dict[str, Any]]


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Step(Event):
    """One forward and backward ended."""

    type = "step"
    seconds: float
    warmup: bool


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTimes(Event):
    """All timed steps, without those for warm-up.

    Attributes
    ----------
    step_s, low_s, high_s : float
        Median wall time with its 95 % interval; the device waited for before and after each step.
    samples_s : list of float
        Wall times.
    host_s, device_s : float
        Medians of the time that issuing takes, and of the device's; see `workbench.runs.timing.StepTime`.
    noise : float
        How much the machine's own speed varied meanwhile: a share of itself.
    """

    type = "step_times"
    step_s: float
    samples_s: list[float]
    low_s: float = 0.0
    high_s: float = 0.0
    host_s: float = 0.0
    device_s: float = 0.0
    noise: float = 0.0


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class VariantTimes(Event):
    """Timed steps of another way to run the same program, taken in turns with the run's own.

    Attributes
    ----------
    name : str
    samples_s : list of float
        Wall times; those at one index here and in `StepTimes` were taken in one turn.
    step_s : float
        Median.
    ratio, ratio_low, ratio_high : float
        The variant's time over the run's own, with its 95 % interval.
    """

    type = "variant_times"
    name: str
    samples_s: list[float]
    step_s: float
    ratio: float
    ratio_low: float
    ratio_high: float

    @property
    def verdict(self) -> Literal["faster", "slower", "noise"]:
        """What the variant is beside the run: noise where the interval holds 1."""
        if self.ratio_low <= 1 <= self.ratio_high:
            return "noise"
        return "faster" if self.ratio < 1 else "slower"


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class StatementTimes(Event):
    """Where the time of a step goes, statement by statement: medians over steps with clocks.

    Attributes
    ----------
    names, sides, sources, outputs : list
        Of each statement, in the order of the plan's, without members of fusions; ``sides`` 0 is the forward.
    start_s, seconds, free_s : list of float
        Since the step began; on the host until the next statement; in deletions after it, where those were clocked by
        themselves and not with the statement.
    step_s : float
        A step with clocks.
    overhead, overhead_low, overhead_high : float
        What the clocks add to a step, as a share of it, with its 95 % interval; measured in turns.
    kernels : list of dict
        The device's work: ``name``, ``stream``, ``start_s``, ``end_s``. Empty on a CPU.
    launch_bound : bool, optional
        Whether a step waits for the host; None on a CPU, where the host is the device.
    verdict : str
        That, in words.
    head_gap_s, bubbles_s, device_busy_s : float
        Until the device's first work, without work after it, and with work.
    """

    type = "statement_times"
    names: list[str]
    sides: list[int]
    sources: list[str]
    outputs: list[list[str]]
    start_s: list[float]
    seconds: list[float]
    free_s: list[float]
    step_s: float
    overhead: float
    overhead_low: float
    overhead_high: float
    kernels: list[dict[str, Any]]
    launch_bound: bool | None
    verdict: str
    head_gap_s: float
    bubbles_s: float
    device_busy_s: float


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class PeakMeasured(Event):
    """Memory of one forward and backward, from allocation events.

    Attributes
    ----------
    measured_peak_bytes : int
        `baseline_bytes` plus the most that was allocated on top of them.
    baseline_bytes : int
        Parameters, buffers and inputs.
    timeline_s, live_bytes : list
        Seconds since the step began, and bytes in use from then on.
    method : str
        ``allocation events`` or ``cuda allocator``.
    statement_live_bytes, statement_peak_bytes : list of int
        After each statement and what it frees, and the most inside it; in the order of the plan's statements, without
        members of fusions. Empty where the statements could not be told apart.
    peak_statement : dict
        That ran at the peak: its index ``statement`` with its ``name``, ``outputs`` and ``source``; -1 and empty where
        none did. Empty where the statements could not be told apart.
    alive : list of dict
        What the step had allocated and not yet freed at the peak, the largest first: ``bytes``, the ``value`` that lies
        there, empty where it is none that the statement gives, and the statement that allocated it, as above.
    kernels : list of dict
        As in `StatementTimes`.
    reserved_bytes, fragmented_bytes : int, optional
        On CUDA: the most that the allocator held during the step, and the most that lay free in blocks in use in part.
    """

    type = "peak_measured"
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


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorChecked(Event):
    """One tensor compared: see `workbench.runs.accuracy.TensorError`."""

    type = "tensor_checked"
    name: str
    against: str
    dtype: str
    max_abs_error: float
    max_rel_error: float
    tolerance: float
    ok: bool


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyChecked(Event):
    """All tensors are compared; `worst` is the one that is nearest to its tolerance, or farthest beyond."""

    type = "accuracy_checked"
    ok: bool
    max_error: float
    against: str
    worst: str


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class RankEnded(Event):
    """A rank of a run that several share is over.

    Attributes
    ----------
    rank : int
    reason : str
        Why it failed; empty where it did its part.
    detail : str
        Its traceback, or the last lines that it wrote.
    compile_s, step_s : float, optional
        As in `Compiled` and `StepTimes`; None where it did not come so far.
    measured_peak_bytes : int, optional
        As in `PeakMeasured`.
    """

    type = "rank_ended"
    rank: int
    reason: str = ""
    detail: str = ""
    compile_s: float | None = None
    step_s: float | None = None
    measured_peak_bytes: int | None = None


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished(Event):
    """The run is done."""

    type = "finished"


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Failed(Event):
    """The run ended early.

    Attributes
    ----------
    reason : str
        One line for a person.
    detail : str
        A traceback, or the last lines that the process wrote.
    """

    type = "failed"
    reason: str
    detail: str = ""


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cancelled(Event):
    """A person stopped the run."""

    type = "cancelled"


FINAL = (Finished, Failed, Cancelled)
"""Types of the record that ends a log."""


def encode(event: Event) -> bytes:
    """One line, with its end."""
    return _ENCODER.encode({"type": event.type, **vars(event)}).encode() + b"\n"


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=dataclasses.asdict)


def decode(line: bytes) -> Event | None:
    """The event of a line; None for a line that is torn, or of a type that this version does not know."""
    try:
        record = json.loads(line)
        cls = _TYPES[record.pop("type")]
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in record.items() if key in known})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class Tail:
    """Reads a log while it grows.

    Parameters
    ----------
    path : Path
        The log; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0

    def read(self) -> list[Event]:
        """Events whose lines were completed since the last call. What follows the last line end waits."""
        try:
            if os.stat(self.path).st_size == self.offset:
                return []
            with open(self.path, "rb", buffering=0) as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data.rfind(b"\n") + 1
        self.offset += complete
        return [event for line in data[:complete].splitlines() if (event := decode(line)) is not None]


def read(run_dir: Path) -> list[Event]:
    """All events of a run's log, oldest first. A torn last line is left out."""
    return Tail(run_dir / LOG_FILE).read()


def append(path: Path, event: Event) -> None:
    """Add an event to the log of a worker that is gone; a line that it left torn is closed first."""
    with path.open("ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            torn = file.read(1) != b"\n"
        else:
            torn = False
        file.write((b"\n" if torn else b"") + encode(event))


class EventLog:
    """Writes a log, from any thread of the worker.

    A worker that can no longer write its log cannot tell anyone what it does: it says so on its standard error and
    ends at once, with status `EXIT_LOG_UNWRITABLE`. So does, silently, a copy of the process that the program forked.

    Parameters
    ----------
    path : Path
        Created; must not exist.
    """

    def __init__(self, path: Path) -> None:
        self._start = time.perf_counter()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def now_s(self) -> float:
        """Seconds since the log was opened."""
        return time.perf_counter() - self._start

    def since_s(self, perf_counter_s: float) -> float:
        """A reading of `time.perf_counter`, on the clock of the log."""
        return perf_counter_s - self._start

    def write(self, event: Event) -> None:
        """Write one event; it is in the file when this returns."""
        if os.getpid() != self._pid:
            os._exit(EXIT_LOG_UNWRITABLE)
        line = encode(event)
        with self._lock:
            try:
                written = os.write(self._file, line)
                while written < len(line):
                    written += os.write(self._file, line[written:])
            except OSError as error:
                os.write(2, f"\nthe event log could not be written: {error.strerror}\n".encode())
                os._exit(EXIT_LOG_UNWRITABLE)


class StageObserver(Protocol):
    """Told what the compiler does, while it does it. ``Config.jit(fn, observer=...)`` takes one."""

    def stage(self, name: str, seconds: float) -> None:
        """A stage of compilation ended now, after so many seconds of wall time."""

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        """A fusion, of so many, is about to be compiled."""

    def fusion_end(
        self, name: str, index: int, count: int, seconds: float, parts: Mapping[str, float], cached: bool
    ) -> None:
        """The fusion is compiled and has run once: its seconds by part, and whether a cache on disk had it."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """A named stretch of time, in seconds on any one clock."""

    name: str
    start_s: float
    end_s: float


def intervals_of(event: Stage | FusionEnd) -> list[Interval]:
    """What an event says of where time went; the parts of a fusion are put one after the other."""
    start_s = event.t_s - event.seconds
    if isinstance(event, Stage):
        return [Interval(event.name, start_s, event.t_s)]
    found = []
    for name, seconds in (event.parts or {"compilation": event.seconds}).items():
        found.append(Interval(f"fusions: {name}", start_s, start_s + seconds))
        start_s += seconds
    return found


class Recorder:
    """A `StageObserver` that writes what it is told into a log, and keeps it as intervals.

    Parameters
    ----------
    log : EventLog
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.intervals: list[Interval] = []

    def stage(self, name: str, seconds: float) -> None:
        """Write that a stage ended now."""
        now = self._log.now_s()
        self.intervals.append(Interval(name, now - seconds, now))
        self._log.write(Stage(t_s=now, name=name, seconds=seconds))

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        """Write that a fusion is about to be compiled."""
        self._log.write(FusionBegin(t_s=self._log.now_s(), name=name, index=index, count=count))

    def fusion_end(
        self, name: str, index: int, count: int, seconds: float, parts: Mapping[str, float], cached: bool
    ) -> None:
        """Write that a fusion is compiled."""
        event = FusionEnd(
            t_s=self._log.now_s(),
            name=name,
            index=index,
            count=count,
            seconds=seconds,
            parts=dict(parts),
            cached=cached,
        )
        self.intervals.extend(intervals_of(event))
        self._log.write(event)

    def rest_of(self, name: str, start_s: float, end_s: float) -> None:
        """Write as a stage what no interval so far covers between two moments of the log's clock."""
        at = start_s
        gaps: list[Interval] = []
        for interval in sorted(self.intervals, key=lambda i: i.start_s):
            if interval.end_s <= at or interval.start_s >= end_s:
                continue
            if interval.start_s > at:
                gaps.append(Interval(name, at, interval.start_s))
            at = max(at, interval.end_s)
        if at < end_s:
            gaps.append(Interval(name, at, end_s))
        self.intervals.extend(gaps)
        for gap in gaps:
            self._log.write(Stage(t_s=gap.end_s, name=name, seconds=gap.end_s - gap.start_s))


def attribute(intervals: Iterable[Interval], start_s: float, end_s: float) -> tuple[list[dict[str, Any]], float]:
    """Share a window of time out among the intervals in it, each moment to the innermost.

    Parameters
    ----------
    intervals : iterable of Interval
        May nest.
    start_s, end_s : float
        The window.

    Returns
    -------
    stages : list of dict
        ``{"name", "seconds"}`` in order of first appearance, equal names added up; last `UNATTRIBUTED`, where the
        window is finite: what no interval covers.
    attributed : float
        Share of the window that any interval covers, 0 to 1.
    """
    clipped = [Interval(i.name, max(i.start_s, start_s), min(i.end_s, end_s)) for i in intervals]
    clipped = sorted((i for i in clipped if i.end_s > i.start_s), key=lambda i: (i.start_s, -i.end_s))
    seconds: dict[str, float] = {i.name: 0.0 for i in clipped}
    moments = sorted({m for i in clipped for m in (i.start_s, i.end_s)})
    open_: list[Interval] = []
    upcoming = iter([*clipped, None])
    following = next(upcoming)
    for moment, after in itertools.pairwise(moments):
        while following is not None and following.start_s <= moment:
            open_.append(following)
            following = next(upcoming)
        open_ = [i for i in open_ if i.end_s > moment]
        if open_:
            # The innermost is the one that began last; of several that began together, the shortest.
            seconds[open_[-1].name] += after - moment
    total = end_s - start_s
    attributed = sum(seconds.values()) / total if total > 0 else 0.0
    if math.isfinite(total) and total > 0:
        seconds[UNATTRIBUTED] = max(0.0, total - sum(seconds.values()))
    return [{"name": name, "seconds": spent} for name, spent in seconds.items()], min(attributed, 1.0)


def last_of[T: Event](events: Sequence[Event], kind: type[T]) -> T | None:
    """The latest event of a type, or None."""
    return next((event for event in reversed(events) if isinstance(event, kind)), None)
