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
    """Annotation of a field: pydantic checks the field against the type `form` when the log is read."""

    def __init__(self, form: Any) -> None:
        self._form = form

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return handler.generate_schema(self._form)


type _Stages = Annotated[list[dict[str, Any]], _Form(list[_StageSeconds])]
type _Kernels = Annotated[list[dict[str, Any]], _Form(list[_Kernel])]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    """An event of a run, such as the end of a step. Each subclass is one type of record.

    Attributes
    ----------
    t_s : float
        Seconds since the worker opened its log, on a monotonic clock.
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
        raise ValueError("the lists of a record must have equal lengths")


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
class Progress(Event):
    """The current phase has done `done` of about `count` steps, and takes about `left_s` more seconds."""

    type = "progress"
    done: int
    count: int
    left_s: float


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Warned(Event):
    """A warning, for example that a choice does not fit the program, or that a rank is silent. The run continues."""

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
    """Memory in use at `t_s`.

    Attributes
    ----------
    rss_bytes : int
        Resident memory of the process.
    allocated_bytes, reserved_bytes, fragmented_bytes : int, optional
        On CUDA: bytes allocated, bytes reserved, and free bytes in partly used blocks. While a call holds the
        interpreter's lock, as nvFuser's compiler does, these figures are not updated.
    """

    type = "memory_sample"
    rss_bytes: int
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    fragmented_bytes: int | None = None


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled(Event):
    """The first forward and backward have ended.

    Attributes
    ----------
    compile_s : float
        Complete wall time of the first forward and backward.
    attributed : float
        Share of `compile_s` that belongs to stages and fusions, 0 to 1.
    stages : list of dict
        ``{"name", "seconds"}`` of each stage, without the seconds of its inner stages. The last entry is
        `UNATTRIBUTED`: the time outside of all stages.
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
        Median time in which the host issues a step's work, and median time of the step on the device's clock; see
        `workbench.runs.measure.interleaved_timing.StepTime`.
    noise : float
        Variation of the machine's own speed during the measurement, as a share of that speed.
    yardstick_s : float
        Median time of a small fixed computation. The computation runs before each step. A comparison of two runs uses
        this time to find how much the machine's speed changed between the runs. 0 in older logs, which lack it.
    other_cores, free_cores : float, optional
        `other_cores` is the number of cores that other processes used during the measurement. `free_cores` is the
        machine's number of cores, minus `other_cores`, minus the run's own threads. A negative `free_cores` means that
        the run competed for cores. `other_cores` and `free_cores` are None in older logs, which lack these figures.
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
        Wall times. The times with the same index here and in `StepTimes` come from the same turn, in which one step of
        the run and of each variant was timed.
    step_s : float
        Median of the wall times.
    ratio, ratio_low, ratio_high : float
        Ratio of the variant's step time to the run's own step time, with its 95 % interval.
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
    """Time of each statement of a step: medians over steps with clocks. Clocks read the time between statements.

    Attributes
    ----------
    names, sides, sources, outputs : list
        Name, side, source line and outputs of each statement, in the plan's order. A fusion is one entry; its members
        have no entries. Side 0 is the forward, side 1 the backward.
    start_s : list of float
        Start of each statement, in seconds since the step began.
    seconds : list of float
        Duration of each statement on the host, until the next statement begins.
    free_s : list of float
        Duration of the deletions after each statement; 0 if deletions are not timed separately.
    step_s : float
        Median duration of a step with clocks.
    overhead, overhead_low, overhead_high : float
        Time that the clocks add to a step, as a share of the step, with its 95 % interval. For this figure, steps with
        clocks and steps without clocks are interleaved.
    kernels : list of dict
        Work of the device: ``name``, ``stream``, ``start_s``, ``end_s``. Empty on a CPU.
    launch_bound : bool, optional
        Whether a step waits for the host; None on a CPU, which is both host and device.
    verdict : str
        A sentence that says whether a step waits for the host.
    head_gap_s, bubbles_s, device_busy_s : float
        Idle seconds before the device's first work, idle seconds between its first and its last work, and seconds with
        work.
    one_start_s, one_seconds, one_free_s : list of float
        Like `start_s`, `seconds` and `free_s`, but of one real step with clocks in the forward and in the backward.
        Among several such steps, it is the step whose duration is nearest the median of steps without clocks. The
        medians in `start_s` come from different steps, so a median start in the backward may be before the end of the
        forward. Empty in older logs, which lack this step.
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
        """Return the statements' starts, durations and deletion times in one real step.

        If the log has no such step, return the medians over steps.
        """
        if self.one_start_s:
            return self.one_start_s, self.one_seconds, self.one_free_s
        return self.start_s, self.seconds, self.free_s


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class PartTimes(Event):
    """Time of each part of a program in parts: medians over steps with timers.

    Attributes
    ----------
    names : list of str
        Names of the parts that ran, such as ``part1``. If the config does not list a part, the part's key is its name.
    opaque : list of bool
        For each part, whether PyTorch runs it.
    forward_s, backward_s : list of float
        For each part, the seconds of all its calls in a step. The backward of an opaque part is 0: PyTorch runs it
        operator by operator, so it has no timer.
    step_s : float
        Median duration of the steps with timers.
    planned_share : float
        Median share of a step that the forwards and backwards of planned parts take, from 0 to 1.
    """

    type = "part_times"
    names: list[str]
    opaque: list[bool]
    forward_s: list[float]
    backward_s: list[float]
    step_s: float
    planned_share: float

    def __post_init__(self) -> None:
        """Refuse a record whose lists have different lengths."""
        _check_same_length(self.names, self.opaque, self.forward_s, self.backward_s)


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class PeakMeasured(Event):
    """Memory of one forward and backward, from allocation events.

    Attributes
    ----------
    measured_peak_bytes : int
        `baseline_bytes` plus the most further bytes that the step held at once.
    baseline_bytes : int
        Bytes of parameters, buffers and inputs.
    timeline_s, live_bytes : list
        Seconds since the step began, and bytes in use from then on.
    method : str
        ``allocation events`` or ``cuda allocator``.
    statement_live_bytes, statement_peak_bytes : list of int
        For each statement, in the plan's order: bytes in use after the statement and its deletions, and the maximum
        while it runs. A fusion is one entry; its members have no entries. Empty if the measurement could not tell which
        statement made which allocation.
    peak_statement : dict
        The statement that ran at the peak, as a dict with its index ``statement``, its ``name``, ``outputs`` and
        ``source``. If no statement ran at the peak, the index is -1 and the other entries are empty. If the statement
        is unknown, the dict is empty.
    alive : list of dict
        Allocations of the step that were not yet freed at the peak, largest first. Each dict has the ``bytes``, and
        the entries of `peak_statement` for the statement that allocated them. The entry ``value`` is the name of the
        stored value; it is empty if the allocation is not an output of the statement.
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
class EagerPeakMeasured(Event):
    """Memory of one forward and backward of the program in eager PyTorch, for comparison.

    Attributes
    ----------
    measured_peak_bytes : int
        As in `PeakMeasured`.
    """

    type = "eager_peak_measured"
    measured_peak_bytes: int


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorChecked(Event, TensorError):
    """One tensor was compared with the reference's tensor."""

    __pydantic_config__ = _INFINITE

    type = "tensor_checked"


@_event
@dataclasses.dataclass(frozen=True, kw_only=True)
class AccuracyChecked(Event):
    """All tensors are compared; `worst` names the tensor closest to its tolerance, or farthest beyond it.

    `workbench.runs.measure.accuracy.Accuracy` describes the other fields.
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
    """A rank of a run with several ranks has ended.

    Attributes
    ----------
    rank : int
    reason : str
        Reason why the rank failed; empty if it did not fail.
    detail : str
        Traceback of the failure, or the last lines of the rank's output.
    compile_s, step_s : float, optional
        As in `Compiled` and `StepTimes`; None if the rank ended before this measurement.
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
"""Types of terminal events, which end a log."""


def last_of[T: Event](events: Sequence[Event], kind: type[T]) -> T | None:
    """Return the latest event of type `kind`; None if there is none."""
    return next((event for event in reversed(events) if isinstance(event, kind)), None)
