"""Event types of a run: one type for each record of its event log."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypedDict

from workbench.runs.log.tensor_error import TensorError


class _StageSeconds(TypedDict):
    name: str
    seconds: float


class _Place(TypedDict):
    statement: int
    name: str
    outputs: list[str]
    source: str


class _Alive(_Place):
    bytes: int
    value: str


class _Kernel(TypedDict):
    name: str
    stream: int
    start_s: float
    end_s: float


class _Nothing(TypedDict):
    __pydantic_config__ = {"extra": "forbid"}  # type: ignore[misc]  # noqa: RUF012  # pydantic looks for it here


class _Form:
    """Form that plain data in a log must have; it is checked when the log is read."""

    def __init__(self, form: Any) -> None:
        self._form = form

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return handler.generate_schema(self._form)


type _Stages = Annotated[list[dict[str, Any]], _Form(list[_StageSeconds])]
type _Kernels = Annotated[list[dict[str, Any]], _Form(list[_Kernel])]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """Something that has happened in a run.

    Attributes
    ----------
    t_s : float
        Seconds since the worker started, on a monotonic clock.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"strict": True, "allow_inf_nan": False}

    type: ClassVar[str]
    t_s: float


_INFINITE: dict[str, Any] = {"strict": True, "allow_inf_nan": True}
"""Settings of records that compare tensors: only these records may contain infinities or NaN."""

TYPES: dict[str, type[Event]] = {}
"""All event types, by `Event.type`."""


def _check_same_length(*columns: Sequence[Any]) -> None:
    if len({len(column) for column in columns}) > 1:
        raise ValueError("lists of one length are needed")


def _event[T: type[Event]](cls: T) -> T:
    """Register a class, so that records of its `type` can be read."""
    TYPES[cls.type] = cls
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
    """Versions and machine of the run.

    Attributes
    ----------
    versions : dict
        Versions of Python and of packages.
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
    """A part of the config or of the measurement does not fit the program; the run continues without it."""

    type = "warned"
    message: str


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage(Event):
    """A stage of compilation ended at `t_s`, after `seconds`."""

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
        Seconds of the fusion's definition, of each compiler, and of the fusion's first launch; their sum is `seconds`.
    cached : bool
        Whether a compiler found the compiled fusion in a cache.
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
        On CUDA: bytes allocated, bytes reserved, and free bytes in partly used blocks. While a call locks the
        interpreter, as a call of nvFuser's compiler does, these are the last figures before the call.
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
        Complete wall time of the first forward and backward.
    attributed : float
        Share of `compile_s` that belongs to stages and fusions, 0 to 1.
    stages : list of dict
        ``{"name", "seconds"}``: time in a stage but in no inner stage; the last entry is `UNATTRIBUTED`.
    proven : bool, optional
        Whether the compiled code was proven, before it ran, to compute the same as the program; None if the program
        was compiled without a config.
    rules : list of str
        Names of the rules that the proof used, see `workbench.analysis.equivalence.rewrite_rules`.
    """

    type = "compiled"
    compile_s: float
    attributed: float
    stages: _Stages
    proven: bool | None = None
    rules: list[str] = dataclasses.field(default_factory=list)


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Step(Event):
    """One forward and backward has ended."""

    type = "step"
    seconds: float
    warmup: bool


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class StepTimes(Event):
    """All timed steps, without the warm-up steps.

    Attributes
    ----------
    step_s, low_s, high_s : float
        Median wall time with its 95 % interval; each step is preceded and followed by a wait for the device.
    samples_s : list of float
        Wall times.
    host_s, device_s : float
        Medians of the time to issue the work, and of the device's time; see
        `workbench.runs.measure.interleaved_timing.StepTime`.
    noise : float
        Variation of the machine's own speed during the measurement, as a share of that speed.
    yardstick_s : float
        Median time of a small fixed computation, which runs before each step. A comparison of two runs uses it to find
        how much the machine's speed changed between the runs. 0 in older logs, which lack it.
    other_cores, free_cores : float, optional
        `other_cores` is the number of cores that other processes used during the measurement. `free_cores` is the
        number of all cores minus `other_cores` and the run's own threads; it is negative if the run competed for cores.
        None in older logs, which lack these figures.
    """

    type = "step_times"
    step_s: float
    samples_s: list[float]
    low_s: float = 0.0
    high_s: float = 0.0
    host_s: float = 0.0
    device_s: float = 0.0
    noise: float = 0.0
    yardstick_s: float = 0.0
    other_cores: float | None = None
    free_cores: float | None = None


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class VariantTimes(Event):
    """Timed steps of a variant of the run, interleaved with the run's own steps.

    Attributes
    ----------
    name : str
    samples_s : list of float
        Wall times. The times with the same index here and in `StepTimes` were measured in the same turn.
    step_s : float
        Median of the wall times.
    ratio, ratio_low, ratio_high : float
        Ratio of the variant's time to the run's own, with its 95 % interval.
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
        """Speed of the variant relative to the run; "noise" if the interval contains 1."""
        if self.ratio_low <= 1 <= self.ratio_high:
            return "noise"
        return "faster" if self.ratio < 1 else "slower"


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class StatementTimes(Event):
    """Time of each statement of a step: medians over steps with clocks.

    Attributes
    ----------
    names, sides, sources, outputs : list
        For each statement, in the order of the plan's statements without members of fusions; 0 in ``sides`` is the
        forward.
    start_s, seconds, free_s : list of float
        Of each statement: its start, in seconds since the step began; its duration on the host, until the next
        statement; and the duration of the deletions after the statement, if the deletions have their own clock.
    step_s : float
        Median duration of a step with clocks.
    overhead, overhead_low, overhead_high : float
        Time that the clocks add to a step, as a share of the step, with its 95 % interval; measured interleaved.
    kernels : list of dict
        Work of the device: ``name``, ``stream``, ``start_s``, ``end_s``. Empty on a CPU.
    launch_bound : bool, optional
        Whether a step waits for the host; None on a CPU, which is both host and device.
    verdict : str
        A sentence that says whether a step waits for the host.
    head_gap_s, bubbles_s, device_busy_s : float
        Seconds before the device's first work, seconds without work after that, and seconds with work.
    one_start_s, one_seconds, one_free_s : list of float
        Like `start_s`, `seconds` and `free_s`, but of one real step, with clocks in the forward and in the backward. It
        is the step of median length among several. Empty in older logs, which lack it. The medians in `start_s` belong
        to no real step: according to them, a backward may begin before its forward ends.
    one_step_s : float
        Duration of this real step.
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
    kernels: _Kernels
    launch_bound: bool | None
    verdict: str
    head_gap_s: float
    bubbles_s: float
    device_busy_s: float
    one_start_s: list[float] = dataclasses.field(default_factory=list)
    one_seconds: list[float] = dataclasses.field(default_factory=list)
    one_free_s: list[float] = dataclasses.field(default_factory=list)
    one_step_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a record whose lists of statements have different lengths."""
        columns = (self.names, self.sides, self.sources, self.outputs, self.start_s, self.seconds, self.free_s)
        _check_same_length(*columns)
        one = (self.one_start_s, self.one_seconds, self.one_free_s)
        _check_same_length(*one, *([self.names] if any(one) else []))

    @property
    def one_step_or_medians(self) -> tuple[list[float], list[float], list[float]]:
        """Return starts, durations and deletions of one real step; if the log has no such step, their medians."""
        if self.one_start_s:
            return self.one_start_s, self.one_seconds, self.one_free_s
        return self.start_s, self.seconds, self.free_s


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class PeakMeasured(Event):
    """Memory of one forward and backward, from allocation events.

    Attributes
    ----------
    measured_peak_bytes : int
        `baseline_bytes` plus the maximum that was allocated in addition.
    baseline_bytes : int
        Bytes of parameters, buffers and inputs.
    timeline_s, live_bytes : list
        Seconds since the step began, and bytes in use from then on.
    method : str
        ``allocation events`` or ``cuda allocator``.
    statement_live_bytes, statement_peak_bytes : list of int
        Bytes after each statement and its frees, and the maximum during it, in the order of the plan's statements
        without members of fusions. Empty if the statements could not be distinguished.
    peak_statement : dict
        The statement that ran at the peak: its index ``statement`` with its ``name``, ``outputs`` and ``source``. If
        no statement ran at the peak, the index is -1 and the other entries are empty. If the statements could not be
        distinguished, the dict is empty.
    alive : list of dict
        Allocations of the step that were not yet freed at the peak, largest first: ``bytes``, the stored ``value``
        (empty if it is not an output of the statement), and the statement that allocated it, as in `peak_statement`.
    kernels : list of dict
        As in `StatementTimes`.
    reserved_bytes, fragmented_bytes : int, optional
        On CUDA: the maximum that the allocator held during the step, and the maximum of free bytes in partly used
        blocks.
    """

    type = "peak_measured"
    measured_peak_bytes: int
    baseline_bytes: int
    timeline_s: list[float]
    live_bytes: list[int]
    method: str
    statement_live_bytes: list[int] = dataclasses.field(default_factory=list)
    statement_peak_bytes: list[int] = dataclasses.field(default_factory=list)
    peak_statement: Annotated[dict[str, Any], _Form(_Place | _Nothing)] = dataclasses.field(default_factory=dict)
    alive: Annotated[list[dict[str, Any]], _Form(list[_Alive])] = dataclasses.field(default_factory=list)
    kernels: _Kernels = dataclasses.field(default_factory=list)
    reserved_bytes: int | None = None
    fragmented_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse a record whose lists of times or statements have different lengths."""
        _check_same_length(self.timeline_s, self.live_bytes)
        _check_same_length(self.statement_live_bytes, self.statement_peak_bytes)


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorChecked(Event, TensorError):
    """One tensor was compared with the reference's tensor."""

    __pydantic_config__ = _INFINITE

    type = "tensor_checked"


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyChecked(Event):
    """All tensors are compared; `worst` is the tensor closest to its tolerance, or farthest beyond it.

    The other fields are those of `workbench.runs.measure.accuracy.Accuracy`.
    """

    __pydantic_config__ = _INFINITE

    type = "accuracy_checked"
    ok: bool
    max_error: float
    against: str
    worst: str
    bitwise: bool | None = None
    changed_kernels: list[str] | None = None
    unstable: bool = False
    is_saved: bool = False
    why: str = ""


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class RankEnded(Event):
    """A rank of a shared run has ended.

    Attributes
    ----------
    rank : int
    reason : str
        Reason why it failed; empty if it did not fail.
    detail : str
        Traceback of the failure, or the last lines of the rank's output.
    compile_s, step_s : float, optional
        As in `Compiled` and `StepTimes`; None if the rank did not get that far.
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
        One line for the user.
    detail : str
        A traceback, or the last lines of the process's output.
    """

    type = "failed"
    reason: str
    detail: str = ""


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cancelled(Event):
    """The user stopped the run."""

    type = "cancelled"


FINAL = (Finished, Failed, Cancelled)
"""Types of records that end a log."""


def last_of[T: Event](events: Sequence[Event], kind: type[T]) -> T | None:
    """Return the latest event of type `kind`; None if there is none."""
    return next((event for event in reversed(events) if isinstance(event, kind)), None)
