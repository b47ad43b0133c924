"""State, figures and outcome of a run, read from its event log: `Record`."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.runs.log import compile_stages, events, untrusted_files
from workbench.runs.log.events import Event, PartTimes, StatementTimes
from workbench.runs.log.tensor_error import TensorError
from workbench.runs.process import request
from workbench.runs.process.request import OUTPUT_BYTES, OUTPUT_FILE

if TYPE_CHECKING:
    from workbench.runs.measure.accuracy import Accuracy

State = Literal["starting", "compiling", "running", "done", "failed", "cancelled"]

FINAL_STATES = ("done", "failed", "cancelled")

_STATES: dict[str, State] = {"finished": "done", "failed": "failed", "cancelled": "cancelled"}


COMPETED_CORES = 0.25
"""If a run lacked at least this many cores while its steps were timed, the step times are marked as unreliable."""


class Record:
    """A run as its folder describes it: its request, and the events so far.

    Parameters
    ----------
    run_dir : Path

    Raises
    ------
    RunError
        If the folder has no readable request.
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.request = request.read_request(run_dir)
        self._lock = threading.RLock()
        self._events: list[Event] = []
        self._of_type: dict[type[Event], list[Event]] = {}

    def _keep(self, new: Iterable[Event]) -> None:
        with self._lock:
            for event in new:
                self._events.append(event)
                self._of_type.setdefault(type(event), []).append(event)

    def _all_of[T: Event](self, kind: type[T]) -> list[T]:
        with self._lock:
            # Use the list of this type. A search through all events would be slow, because each step has an event.
            return list(self._of_type.get(kind, ()))  # type: ignore[arg-type]  # the list has only events of this type

    def _last_of[T: Event](self, kind: type[T] | tuple[type[T], ...]) -> T | None:
        with self._lock:
            kinds = kind if isinstance(kind, tuple) else (kind,)
            return next((self._of_type[each][-1] for each in kinds if each in self._of_type), None)  # type: ignore[return-value]  # likewise

    # Identity and state.

    @property
    def name(self) -> str:
        """The run's name for users."""
        return self.request.name

    @property
    def events(self) -> tuple[Event, ...]:
        """All events so far, oldest first."""
        with self._lock:
            return tuple(self._events)

    @property
    def state(self) -> State:
        """State of the run: ``starting``, ``compiling``, ``running``, ``done``, ``failed`` or ``cancelled``.

        The run has one of the last three states once its process is gone.
        """
        last = self._last_of(events.FINAL)
        if last is not None:
            return _STATES[last.type]
        phase = self._last_of(events.Phase)
        if phase is None or phase.phase == "build":
            return "starting"
        return "compiling" if phase.phase == "compile" else "running"

    @property
    def phase(self) -> str:
        """Current phase of the worker, see `workbench.runs.log.events.Phase`; empty before the first."""
        phase = self._last_of(events.Phase)
        return phase.phase if phase is not None else ""

    @property
    def ok(self) -> bool:
        """Return whether the run is done and its results, if they were checked, are accurate."""
        return self.state == "done" and (self.accuracy is None or self.accuracy.ok)

    @property
    def error(self) -> str | None:
        """Reason why the run is not `ok`, in one line; None while the run continues, and if it is `ok`."""
        last = self._last_of(events.FINAL)
        if isinstance(last, events.Failed):
            return untrusted_files.one_line(last.reason) or "failed"
        if isinstance(last, events.Cancelled):
            return "cancelled"
        if last is not None and self.accuracy is not None and not self.accuracy.ok:
            worst = max(self.accuracy.tensors, key=lambda tensor: tensor.severity, default=None)
            if worst is None:
                return "the results are not accurate, and the log does not name the tensors"
            if worst.lacks:
                return untrusted_files.one_line(f"{worst.difference}, so the two cannot be compared")
            if worst.tolerance == 0 and worst.bitwise is False:
                return untrusted_files.one_line(
                    f"some bits of {worst.name} differ from {worst.against}, although the kernels are the same; "
                    f"the largest difference is {worst.max_abs_error:.3g}"
                )
            return untrusted_files.one_line(
                f"{worst.difference}, more than the {worst.tolerance:.3g} allowed for {worst.dtype}"
            )
        return None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings, for example about choices that do not fit the program, or about damaged lines of the log."""
        messages = [untrusted_files.one_line(event.message) for event in self._all_of(events.Warned)]
        if count := self.skipped_lines:
            lines = "1 line" if count == 1 else f"{count} lines"
            messages.append(f"{lines} of the event log could not be read, and their content is missing")
        return tuple(messages)

    @property
    def skipped_lines(self) -> int:
        """Number of lines of the event log, so far, that could not be read as records; 0 if the log is undamaged."""
        return 0

    @property
    def detail(self) -> str:
        """Traceback or last output of a failed run."""
        last = self._last_of(events.Failed)
        return last.detail if last is not None else ""

    @property
    def output(self) -> str:
        """End of the worker's output."""
        return untrusted_files.read_end(self.run_dir / OUTPUT_FILE, OUTPUT_BYTES)

    @property
    def compile_s(self) -> float | None:
        """Wall time of the first forward and backward, in seconds; None until they are done."""
        compiled = self._last_of(events.Compiled)
        return compiled.compile_s if compiled is not None else None

    @property
    def compile_attributed(self) -> float | None:
        """Share of `compile_s` that stages and fusions account for, 0 to 1."""
        compiled = self._last_of(events.Compiled)
        return compiled.attributed if compiled is not None else None

    @property
    def proven(self) -> bool | None:
        """Return whether the compiled code was proven to compute the same as the program.

        Return None before the code is compiled, and for a run without a config.
        """
        compiled = self._last_of(events.Compiled)
        return compiled.proven if compiled is not None else None

    @property
    def rules(self) -> list[str]:
        """Names of the rules that the proof used."""
        compiled = self._last_of(events.Compiled)
        return compiled.rules if compiled is not None else []

    @property
    def stages(self) -> list[dict[str, Any]]:
        """``{"name", "seconds"}`` of each stage of compilation that has ended."""
        compiled = self._last_of(events.Compiled)
        if compiled is not None:
            return list(compiled.stages)
        kinds: tuple[type[events.Stage | events.FusionEnd], ...] = (events.Stage, events.FusionEnd)
        ended = [
            interval
            for kind in kinds
            for event in self._all_of(kind)
            for interval in compile_stages.intervals_of(event)
        ]
        return compile_stages.attribute(ended, 0.0, math.inf)[0]

    @property
    def step_s(self) -> float | None:
        """Median wall time of a forward and backward after warm-up."""
        times = self._last_of(events.StepTimes)
        return times.step_s if times is not None else None

    @property
    def times(self) -> dict[str, float] | None:
        """The fields ``step_s``, ``low_s``, ``high_s``, ``host_s``, ``device_s`` and ``noise`` of the step times.

        See `workbench.runs.log.events.StepTimes`. The property is None if no steps were timed.
        """
        times = self._last_of(events.StepTimes)
        if times is None:
            return None
        return {n: getattr(times, n) for n in ("step_s", "low_s", "high_s", "host_s", "device_s", "noise")}

    @property
    def beside_load(self) -> str:
        """Warning that other processes competed for the CPU while steps were timed; empty if none did."""
        times = self._last_of(events.StepTimes)
        if times is None or times.other_cores is None or times.free_cores is None or times.free_cores > -COMPETED_CORES:
            return ""
        return f"measured under other load: other processes used {times.other_cores:.1f} cores meanwhile"

    @property
    def against(self) -> dict[str, dict[str, Any]]:
        """Figures of each variant that was timed interleaved with this run, by the variant's name.

        ``step_s`` is the variant's step time. ``ratio`` is ``step_s`` divided by this run's step time; its 95 %
        interval is ``low`` to ``high``. ``verdict`` says whether the variant is ``faster`` or ``slower`` than this run;
        it is ``noise`` if the interval contains 1.
        """
        found = {}
        for event in self._all_of(events.VariantTimes):
            figures = {"ratio": event.ratio, "low": event.ratio_low, "high": event.ratio_high}
            found[event.name] = {"step_s": event.step_s, **figures, "verdict": event.verdict}
        return found

    @property
    def statements(self) -> StatementTimes | None:
        """Time of each statement of a step; None if it was not measured."""
        return self._last_of(StatementTimes)

    @property
    def part_times(self) -> PartTimes | None:
        """Time of each part of a program in parts; None if it was not measured."""
        return self._last_of(PartTimes)

    @property
    def coverage(self) -> dict[str, float | None] | None:
        """Shares, from 0 to 1, that the planned parts have of the ``step`` and of the ``peak`` of a program in parts.

        The share of the step is the time measured in planned parts, divided by the step time. A prediction lacks the
        memory of opaque parts. The share of the peak is therefore the predicted peak memory divided by the measured
        peak memory, at most 1. The property is None if the run did not time parts, for example because the program is
        one graph. The share of the peak is None if the peak memory was not measured or not predicted.
        """
        times = self.part_times
        if times is None:
            return None
        exact, bound, measured = (
            self.memory[name] for name in ("predicted_peak_bytes", "peak_bound_bytes", "measured_peak_bytes")
        )
        predicted = exact if exact is not None else bound
        peak = min(predicted / measured, 1.0) if predicted is not None and measured else None
        return {"step": times.planned_share, "peak": peak}

    @property
    def memory(self) -> dict[str, int | None]:
        """``predicted_peak_bytes``, ``measured_peak_bytes`` and ``baseline_bytes``; None if unknown.

        If the plan predicts only a lower bound of the peak, ``predicted_peak_bytes`` is None and ``peak_bound_bytes``
        is the bound.
        On CUDA also ``reserved_bytes`` and ``fragmented_bytes``: see `workbench.runs.log.events.PeakMeasured`.
        """
        peak = self._last_of(events.PeakMeasured)
        names = ("measured_peak_bytes", "baseline_bytes", "reserved_bytes", "fragmented_bytes")
        return {
            "predicted_peak_bytes": self.request.predicted_peak_bytes,
            "peak_bound_bytes": self.request.peak_bound_bytes,
            **{name: getattr(peak, name) if peak is not None else None for name in names},
        }

    @property
    def eager_peak_bytes(self) -> int | None:
        """Peak memory of a step of the program in eager PyTorch; None if the run did not compare with eager PyTorch."""
        peak = self._last_of(events.EagerPeakMeasured)
        return peak.measured_peak_bytes if peak is not None else None

    @property
    def alive_at_peak(self) -> list[dict[str, Any]]:
        """Live allocations of the step at the measured peak memory; see `workbench.runs.log.events.PeakMeasured`."""
        peak = self._last_of(events.PeakMeasured)
        return peak.alive if peak is not None else []

    @property
    def peak_statement(self) -> dict[str, Any] | None:
        """Statement at the measured peak memory: ``statement``, ``name``, ``outputs``, ``source``; None if unknown."""
        peak = self._last_of(events.PeakMeasured)
        return peak.peak_statement or None if peak is not None else None

    @property
    def predicted_alive_at_peak(self) -> list[dict[str, Any]]:
        """Live values at the plan's predicted peak memory; see `workbench.runs.process.request.RunRequest`."""
        return self.request.predicted_alive

    @property
    def timeline(self) -> tuple[list[float], list[int]] | None:
        """Measured memory of one step: seconds since the step began, and the bytes in use from each time on."""
        peak = self._last_of(events.PeakMeasured)
        return (peak.timeline_s, peak.live_bytes) if peak is not None else None

    @property
    def statement_peak_bytes(self) -> list[int]:
        """Measured maximum of memory during each statement; a fusion is one statement. Empty if it is not known."""
        peak = self._last_of(events.PeakMeasured)
        return peak.statement_peak_bytes if peak is not None else []

    @property
    def accuracy(self) -> Accuracy | None:
        """Outcome of the accuracy check; None before the check is done, or if it was not requested."""
        checked = self._last_of(events.AccuracyChecked)
        if checked is None:
            return None
        # Import this here, because it imports PyTorch, and a process that only follows runs needs no PyTorch.
        from workbench.runs.measure.accuracy import Accuracy

        return Accuracy(
            ok=checked.ok,
            max_error=checked.max_error,
            against=checked.against,
            # Leave out the events' times: in a run with ranks, they do not say when a tensor was compared.
            tensors=tuple(
                TensorError(**{field.name: getattr(event, field.name) for field in dataclasses.fields(TensorError)})
                for event in self._all_of(events.TensorChecked)
            ),
            bitwise=checked.bitwise,
            changed_kernels=None if checked.changed_kernels is None else tuple(checked.changed_kernels),
            unstable=checked.unstable,
            is_saved=checked.is_saved,
            why=checked.why,
        )

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """Outcome of each rank of a run with several ranks.

        Each dict has the rank's number ``rank``, the ``reason`` of its failure (empty if it did not fail), and its
        figures ``compile_s``, ``step_s`` and ``measured_peak_bytes``. Each figure of the run is the largest of the
        ranks' figures.
        """
        names = ("rank", "reason", "compile_s", "step_s", "measured_peak_bytes")
        return [{name: getattr(event, name) for name in names} for event in self._all_of(events.RankEnded)]

    def to_json(self) -> dict[str, Any]:
        """Return the run as ``thunder-workbench run --json`` prints it; infinities and unknown values are None."""
        accuracy = self.accuracy
        document = {
            "ok": self.ok,
            "error": self.error,
            "warnings": list(self.warnings),
            "compile_s": self.compile_s,
            "compile_attributed": self.compile_attributed,
            "proven": self.proven,
            "rules": self.rules,
            "stages": self.stages,
            "step_s": self.step_s,
            "times": self.times,
            "beside_load": self.beside_load,
            "clocks": self._clocks_json(),
            "coverage": self.coverage,
            "parts": self._parts_json(),
            "against": self.against,
            "memory": {
                **self.memory,
                "eager_peak_bytes": self.eager_peak_bytes,
                "peak_statement": self.peak_statement,
                "alive_at_peak": self.alive_at_peak,
                "predicted_alive_at_peak": self.predicted_alive_at_peak,
            },
            "accuracy": None
            if accuracy is None
            else {
                "ok": accuracy.ok,
                "bitwise": accuracy.bitwise,
                "changed_kernels": accuracy.changed_kernels,
                "relative_tolerance": accuracy.relative_tolerance,
                "words": untrusted_files.one_line(accuracy.words),
                "max_error": accuracy.max_error,
                "against": accuracy.against,
                "why": untrusted_files.one_line(accuracy.why),
                "worst": _error_json(accuracy.worst),
                "worst_float64": _error_json(accuracy.worst_float64),
            },
            "run_dir": str(self.run_dir),
            **({"ranks": self.ranks} if self.request.parallel else {}),
        }
        finite: dict[str, Any] = untrusted_files.finite(document)
        return finite

    def _parts_json(self) -> list[dict[str, Any]] | None:
        times = self.part_times
        if times is None:
            return None
        rows = zip(times.names, times.opaque, times.forward_s, times.backward_s, strict=True)
        names = ("name", "opaque", "forward_s", "backward_s")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _clocks_json(self) -> dict[str, Any] | None:
        clocked = self.statements
        names = ("overhead", "overhead_low", "overhead_high", "launch_bound", "verdict", "head_gap_s", "bubbles_s")
        return None if clocked is None else {name: getattr(clocked, name) for name in names}


def _error_json(error: TensorError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {
        "name": error.name,
        "against": error.against,
        "bitwise": error.bitwise,
        "tolerance": error.tolerance,
        "max_abs_error": error.max_abs_error,
        "max_rel_error": error.max_rel_error,
    }
