"""`start` a run in a process of its own and follow it: `Run` is its state and its results, then and ever after."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import select
import shutil
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import psutil

from workbench.errors import RunError
from workbench.runs import events, logs, processes, ranks, reaper, request, stages
from workbench.runs.accuracy import Accuracy, TensorError
from workbench.runs.events import Event, StatementTimes
from workbench.runs.request import OUTPUT_BYTES, OUTPUT_FILE, SCRATCH

State = Literal["starting", "compiling", "running", "done", "failed", "cancelled"]

FINAL_STATES = ("done", "failed", "cancelled")

Observer = Callable[[Event], None]

WORKER_FILE = "worker.json"

FOLLOW_INTERVAL_S = 0.03
"""How often the log is read: a readout follows what it shows by no more than a twentieth of a second."""

KILL_TIMEOUT_S = 5.0
"""How long to wait for killed processes that the system holds on to."""

SWITCH_INTERVAL_S = 0.0005
"""How long a thread waits for the interpreter's lock before it asks for it, at most, while a run is followed."""

_LOGGER = logging.getLogger(__name__)

_LIVE: dict[Path, Run] = {}
"""Runs that this process follows, so that there is one `Run` of each."""


class _Prompt:
    """While any thread is within, all get the interpreter's lock soon, whatever the cell of a notebook computes.

    A thread asks for the lock when it has waited for the switch interval and no other took it meanwhile. A cell that
    gives the lock up for an instant more often than that, to look at a file, is never asked for it: it always has it
    back first, and the others starve. That has kept a press of Cancel waiting for seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within = 0
        self._before_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before_s, SWITCH_INTERVAL_S))
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                sys.setswitchinterval(self._before_s)


_PROMPT = _Prompt()


class Run:
    """One compile and execution under a config, in a process of its own.

    Made by `start`, or by `workbench.runs.store.open` from a folder. All that it tells comes from the event log.

    Parameters
    ----------
    run_dir : Path
    """

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.request = request.read(run_dir)
        self._tail: logs.Tail | ranks.Elsewhere = logs.Tail(run_dir / logs.LOG_FILE)
        self._events: list[Event] = []
        self._latest: dict[type[Event], Event] = {}
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._observers: dict[Observer, int] = {}
        self._delivery = threading.RLock()
        self._worker: _Worker | _Elsewhere | None = None
        self._stop: Event | None = None

    # What it is.

    @property
    def name(self) -> str:
        """The run's name, for people."""
        return self.request.name

    @property
    def events(self) -> tuple[Event, ...]:
        """All records so far, oldest first."""
        with self._lock:
            return tuple(self._events)

    @property
    def state(self) -> State:
        """``starting``, ``compiling``, ``running``; ``done``, ``failed`` or ``cancelled`` once the process is gone."""
        last = self._last(events.FINAL)
        if last is not None:
            return {"finished": "done", "failed": "failed", "cancelled": "cancelled"}[last.type]  # type: ignore[return-value]  # the values are States
        phase = self._last(events.Phase)
        if phase is None or phase.phase == "build":
            return "starting"
        return "compiling" if phase.phase == "compile" else "running"

    @property
    def phase(self) -> str:
        """What the worker is at: see `workbench.runs.events.Phase`; empty before it begins."""
        phase = self._last(events.Phase)
        return phase.phase if phase is not None else ""

    @property
    def ok(self) -> bool:
        """Whether the run is done and its results are accurate, as far as they were checked."""
        return self.state == "done" and (self.accuracy is None or self.accuracy.ok)

    @property
    def error(self) -> str | None:
        """Why the run is not `ok`, in one line; None while it runs and when it is."""
        last = self._last(events.FINAL)
        if isinstance(last, events.Failed):
            return last.reason
        if isinstance(last, events.Cancelled):
            return "cancelled"
        if last is not None and self.accuracy is not None and not self.accuracy.ok:
            worst = max(self.accuracy.tensors, key=lambda tensor: tensor.severity)
            return (
                f"{worst.name} differs from {worst.against}'s by {worst.max_abs_error:.3g}, "
                f"more than the {worst.tolerance:.3g} allowed for {worst.dtype}"
            )
        return None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What of the config does not fit the program."""
        return tuple(event.message for event in self.events if isinstance(event, events.Warned))

    @property
    def detail(self) -> str:
        """Traceback or last output of a failed run."""
        last = self._last(events.Failed)
        return last.detail if last is not None else ""

    @property
    def output(self) -> str:
        """The last of what the worker printed."""
        if self._worker is not None:
            return self._worker.output()
        path = self.run_dir / OUTPUT_FILE
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def compile_s(self) -> float | None:
        """Wall time of the first forward and backward; None before it is done."""
        compiled = self._last(events.Compiled)
        return compiled.compile_s if compiled is not None else None

    @property
    def compile_attributed(self) -> float | None:
        """Share of `compile_s` that `stages` account for."""
        compiled = self._last(events.Compiled)
        return compiled.attributed if compiled is not None else None

    @property
    def stages(self) -> list[dict[str, Any]]:
        """``{"name", "seconds"}`` of each stage of compilation; while it compiles, of those that are over."""
        compiled = self._last(events.Compiled)
        if compiled is not None:
            return list(compiled.stages)
        ended = [
            interval
            for e in self.events
            if isinstance(e, events.Stage | events.FusionEnd)
            for interval in stages.intervals_of(e)
        ]
        return stages.attribute(ended, 0.0, math.inf)[0]

    @property
    def step_s(self) -> float | None:
        """Median wall time of a forward and backward after warm-up."""
        times = self._last(events.StepTimes)
        return times.step_s if times is not None else None

    @property
    def times(self) -> dict[str, float] | None:
        """Of a step: ``step_s`` with its 95 % interval ``low_s`` to ``high_s``, ``host_s``, ``device_s``, ``noise``."""
        times = self._last(events.StepTimes)
        if times is None:
            return None
        return {n: getattr(times, n) for n in ("step_s", "low_s", "high_s", "host_s", "device_s", "noise")}

    @property
    def against(self) -> dict[str, dict[str, Any]]:
        """By name, each other way to run the program that was timed in turns with this run's.

        ``step_s``; ``ratio`` to this run's own time with its 95 % interval ``low`` to ``high``; and the ``verdict``:
        ``faster`` or ``slower`` than this run, or ``noise`` where the interval holds 1.
        """
        found = {}
        for event in self.events:
            if isinstance(event, events.VariantTimes):
                figures = {"ratio": event.ratio, "low": event.ratio_low, "high": event.ratio_high}
                found[event.name] = {"step_s": event.step_s, **figures, "verdict": event.verdict}
        return found

    @property
    def statements(self) -> StatementTimes | None:
        """Where the time of a step goes, statement by statement; None where it was not clocked."""
        return self._last(StatementTimes)

    @property
    def memory(self) -> dict[str, int | None]:
        """``predicted_peak_bytes``, ``measured_peak_bytes`` and ``baseline_bytes``; None where not known.

        On CUDA ``reserved_bytes`` and ``fragmented_bytes``, too: see `workbench.runs.events.PeakMeasured`.
        """
        peak = self._last(events.PeakMeasured)
        names = ("measured_peak_bytes", "baseline_bytes", "reserved_bytes", "fragmented_bytes")
        return {
            "predicted_peak_bytes": self.request.predicted_peak_bytes,
            **{name: getattr(peak, name) if peak is not None else None for name in names},
        }

    @property
    def alive_at_peak(self) -> list[dict[str, Any]]:
        """What the step had allocated at the measured peak; see `workbench.runs.events.PeakMeasured`."""
        peak = self._last(events.PeakMeasured)
        return peak.alive if peak is not None else []

    @property
    def peak_statement(self) -> dict[str, Any] | None:
        """What ran at the measured peak: ``statement``, ``name``, ``outputs``, ``source``; None where not known."""
        peak = self._last(events.PeakMeasured)
        return peak.peak_statement or None if peak is not None else None

    @property
    def predicted_alive_at_peak(self) -> list[dict[str, Any]]:
        """What the plan has alive at the peak that it predicts; see `workbench.runs.request.RunRequest`."""
        return self.request.predicted_alive

    @property
    def timeline(self) -> tuple[list[float], list[int]] | None:
        """Measured memory of one step: seconds since it began, and bytes in use from then on."""
        peak = self._last(events.PeakMeasured)
        return (peak.timeline_s, peak.live_bytes) if peak is not None else None

    @property
    def accuracy(self) -> Accuracy | None:
        """Outcome of the check; None before it is done and where none was asked for."""
        checked = self._last(events.AccuracyChecked)
        if checked is None:
            return None
        fields = TensorError.__dataclass_fields__
        tensors = tuple(
            TensorError(**{name: getattr(event, name) for name in fields})
            for event in self.events
            if isinstance(event, events.TensorChecked)
        )
        return Accuracy(ok=checked.ok, max_error=checked.max_error, against=checked.against, tensors=tensors)

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """How each rank of a run that several share ended.

        Its number ``rank``, the ``reason`` why it failed or an empty text, and its figures ``compile_s``, ``step_s``
        and ``measured_peak_bytes``. Those of the run are the largest among them.
        """
        names = ("rank", "reason", "compile_s", "step_s", "measured_peak_bytes")
        ended = (event for event in self.events if isinstance(event, events.RankEnded))
        return [{name: getattr(event, name) for name in names} for event in ended]

    def command(self, machines: int = 1) -> str:
        """What to start on each of several machines that reach the run's folder, so that they carry the run out.

        ``$HEAD`` in it is the name or address of the first of them. For a folder that was not run yet, as
        `workbench.bench.Workbench.prepare` makes it.

        Raises
        ------
        RunError
            If the ranks do not divide among so many machines, or the run is for one process.
        """
        if not self.request.parallel:
            raise RunError(f"run {self.name} is for one process; only a run with ranks has a command for machines")
        return ranks.command(self.run_dir, self.request.ranks, machines=machines, port=self.request.options.port)

    def to_json(self) -> dict[str, Any]:
        """The run as ``thunder-workbench run --json`` prints it; what is infinite or not known is None."""
        accuracy = self.accuracy
        return {
            "ok": self.ok,
            "error": self.error,
            "compile_s": self.compile_s,
            "compile_attributed": self.compile_attributed,
            "stages": self.stages,
            "step_s": self.step_s,
            "times": self.times,
            "clocks": self._clocks_json(),
            "against": self.against,
            "memory": {
                **self.memory,
                "peak_statement": self.peak_statement,
                "alive_at_peak": self.alive_at_peak,
                "predicted_alive_at_peak": self.predicted_alive_at_peak,
            },
            "accuracy": None
            if accuracy is None
            else {
                "ok": accuracy.ok,
                "max_error": accuracy.max_error if math.isfinite(accuracy.max_error) else None,
                "against": accuracy.against,
                "worst": _error_json(accuracy.worst),
                "worst_float64": _error_json(accuracy.worst_float64),
            },
            "run_dir": str(self.run_dir),
            **({"ranks": self.ranks} if self.request.parallel else {}),
        }

    def _clocks_json(self) -> dict[str, Any] | None:
        clocked = self.statements
        names = ("overhead", "overhead_low", "overhead_high", "launch_bound", "verdict", "head_gap_s", "bubbles_s")
        return None if clocked is None else {name: getattr(clocked, name) for name in names}

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self.state}{f', {self.error}' if self.error else ''}>"

    # What one can do with it.

    def observe(self, callback: Observer) -> Callable[[], None]:
        """Have `callback` called with each event: at once those so far, then each when it is read.

        Later calls come from a thread that follows the log, and so come while the main thread is busy, too.

        Returns
        -------
        callable
            Ends it.
        """
        with self._delivery:
            self._observers[callback] = 0
            self._deliver()
        return lambda: self._forget(callback)

    def wait(self, timeout_s: float | None = None) -> Run:
        """Wait until the run is over and its process is gone.

        Raises
        ------
        RunError
            If it is not over in time; it runs on.
        """
        if not self._over.wait(timeout_s):
            raise RunError(f"run {self.name} is not over after {timeout_s} s; it is {self.state}")
        return self

    def cancel(self) -> None:
        """Kill the run's processes. When this returns they are gone; a run that was over stays as it was."""
        if self._over.is_set():
            return
        with self._lock:
            if self._stop is None:
                self._stop = events.Cancelled(t_s=self._now_s())
        assert self._worker is not None
        if isinstance(self._worker, _Worker) and not self._worker.is_child:
            # Before it is killed, so that the process which started it knows why it ended.
            logs.append(self._tail.path, self._stop)
        self._worker.kill()
        self._conclude()

    # How it keeps up with its process.

    def _last[T: Event](self, kind: type[T] | tuple[type[T], ...]) -> T | None:
        with self._lock:
            # Not by going back through all: a run has a record for each of its steps.
            kinds = kind if isinstance(kind, tuple) else (kind,)
            return next((self._latest[each] for each in kinds if each in self._latest), None)  # type: ignore[return-value]  # what is kept by its type

    def _keep(self, new: Iterable[Event]) -> None:
        for event in new:
            self._events.append(event)
            self._latest[type(event)] = event

    def _now_s(self) -> float:
        """Seconds on the log's clock, as well as another process can tell."""
        started = self._last(events.Started)
        return max(0.0, time.time() - started.time_s) if started is not None else 0.0

    def _forget(self, callback: Observer) -> None:
        with self._delivery:
            self._observers.pop(callback, None)

    def _deliver(self) -> None:
        with self._delivery:
            for callback in list(self._observers):
                with self._lock:
                    new = self._events[self._observers.get(callback, 0) :]
                for event in new:
                    if callback not in self._observers:
                        break
                    self._observers[callback] += 1
                    try:
                        callback(event)
                    except Exception:
                        # A view that breaks must not end the run, nor keep the others from seeing it.
                        _LOGGER.exception("an observer of run %s failed", self.name)

    def _attach(self, worker: _Worker | _Elsewhere) -> None:
        """Follow a process until it ends."""
        self._worker = worker
        _LIVE[self.run_dir] = self
        threading.Thread(target=self._follow, name=f"follow-{self.name}", daemon=True).start()

    def _follow(self) -> None:
        assert self._worker is not None
        options = self.request.options
        # Ranks that were started by hand keep it where they run.
        timeout_s = options.timeout_s if isinstance(self._worker, _Worker) else None
        begun_s = time.monotonic()
        ended = False
        with _PROMPT:
            while not ended and not self._over.is_set():
                ended = self._worker.wait(FOLLOW_INTERVAL_S)
                with self._lock:
                    if not self._over.is_set():
                        # The record that ends the log counts when the process is gone.
                        self._keep(e for e in self._read() if not isinstance(e, events.FINAL))
                self._deliver()
                reason = processes.over_time(begun_s, timeout_s)
                # Of ranks each has the limit, which is kept where they run.
                if not reason and not self.request.parallel:
                    reason = processes.over_limit(self._worker.pid, options.memory_limit_bytes)
                if reason and not ended:
                    with self._lock:
                        self._stop = self._stop or events.Failed(t_s=self._now_s(), reason=reason)
                    self._worker.kill()
            self._conclude()
            self._deliver()

    def _read(self) -> list[Event]:
        found = self._tail.read()
        for event in found:
            if isinstance(event, events.FINAL):
                self._said = self._said or event
        return found

    _said: Event | None = None
    """The worker's own last word."""

    def _conclude(self) -> None:
        """Once the process is gone: leave nothing of it behind, and write how it ended if it could not do so itself."""
        assert self._worker is not None
        status = self._worker.close()
        with self._lock:
            if self._over.is_set():
                return
            self._keep(e for e in self._read() if not isinstance(e, events.FINAL))
            end = self._said or self._stop
            if end is None:
                end = events.Failed(t_s=self._now_s(), reason=_reason(status, self.output), detail=self.output[-4000:])
            if end is not self._said and self._worker.is_child:
                # With no space left, even without the temporary files, the record is missing in the log; `store.open`
                # then says what can be known.
                with contextlib.suppress(OSError):
                    logs.append(self._tail.path, end)
            if output := self.output:
                with contextlib.suppress(OSError):
                    (self.run_dir / OUTPUT_FILE).write_text(output)
            self._keep([end])
            self._over.set()
            _LIVE.pop(self.run_dir, None)


def _error_json(error: TensorError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    figures = {"max_abs_error": error.max_abs_error, "max_rel_error": error.max_rel_error}
    return {
        "name": error.name,
        "against": error.against,
        **{name: value if math.isfinite(value) else None for name, value in figures.items()},
    }


class _Worker:
    """A worker's process, a child of this one or of one that is gone."""

    def __init__(self, run_dir: Path, pid: int, mark: str, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self.mark = mark
        self._run_dir = run_dir
        self._child = child
        self._lock = threading.Lock()
        self._reaped = False
        self._closed = False
        self._handle = os.pidfd_open(pid)
        # Not when the process is closed: another thread may be waiting for it right then.
        weakref.finalize(self, os.close, self._handle)
        self._output: deque[bytes] = deque()
        self._output_bytes = 0
        self._drain: threading.Thread | None = None
        if child is not None:
            self._drain = threading.Thread(target=self._read_output, name=f"output-{pid}", daemon=True)
            self._drain.start()

    def write_down(self) -> None:
        """Note in the run's folder how to find the process."""
        created_s = psutil.Process(self.pid).create_time()
        record = {"pid": self.pid, "process_created_s": created_s, "mark": self.mark}
        (self._run_dir / WORKER_FILE).write_text(json.dumps(record))

    @classmethod
    def written_down(cls, run_dir: Path) -> _Worker | None:
        """The process noted in a run's folder, if it is alive."""
        with contextlib.suppress(ValueError, KeyError, ProcessLookupError):  # torn, or ended right now
            record = json.loads((run_dir / WORKER_FILE).read_text())
            if processes.is_alive(record["pid"], record["process_created_s"]):
                return cls(run_dir, record["pid"], record["mark"])
        return None

    @property
    def is_child(self) -> bool:
        """Whether this process started it."""
        return self._child is not None

    def wait(self, timeout_s: float) -> bool:
        """Whether the process ended, or ends in this time."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(None if math.isinf(timeout_s) else timeout_s * 1000))

    def kill(self) -> None:
        """Kill the process and all that it started."""
        with self._lock:
            self._reap(self.pid)

    def close(self) -> int | None:
        """Once the process has ended: its exit status where it can be known.

        All that it started is gone then, and so are its temporary files.
        """
        with self._lock:
            if not self._closed:
                self.wait(math.inf)
                # The id of a child that was not waited for stands for it yet; any other may be used again.
                self._reap(self.pid if self.is_child else None)
                if self._child is not None:
                    self._child.wait()
                    if self._child.stdin is not None:
                        self._child.stdin.close()
                if self._drain is not None:
                    self._drain.join(KILL_TIMEOUT_S)
                self._closed = True
            return self._child.returncode if self._child is not None else None

    def _reap(self, group: int | None) -> None:
        if not self._reaped:
            reaper.reap(group, self.mark, self._run_dir / SCRATCH, KILL_TIMEOUT_S)
            self._reaped = True

    def output(self) -> str:
        """The last of what it printed."""
        return b"".join(tuple(self._output)).decode(errors="replace")

    def _read_output(self) -> None:
        """Keep reading, so that a worker that prints a lot never waits and never fills the disk."""
        assert self._child is not None
        assert self._child.stdout is not None
        with self._child.stdout as pipe:
            while data := os.read(pipe.fileno(), 1 << 16):
                self._output.append(data)
                self._output_bytes += len(data)
                while self._output_bytes - len(self._output[0]) > OUTPUT_BYTES:
                    self._output_bytes -= len(self._output.popleft())


class _Elsewhere:
    """The ranks of a run that were started by hand, on whatever machines; they are known by their logs alone."""

    pid = 0
    is_child = False

    def __init__(self, run_dir: Path, log: ranks.Elsewhere) -> None:
        self._run_dir, self._log = run_dir, log

    def wait(self, timeout_s: float) -> bool:
        """Whether all had their last word, as far as their logs were read."""
        if not self._log.over:
            time.sleep(timeout_s)
        return self._log.over

    def kill(self) -> None:
        """Have them end themselves; they look for it a few times a second."""
        (self._run_dir / ranks.CANCEL_FILE).touch()
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while not self._log.over and time.monotonic() < deadline:
            time.sleep(FOLLOW_INTERVAL_S)

    def close(self) -> None:
        """Nothing of them is held here."""

    def output(self) -> str:
        """The last of what rank 0 printed."""
        return ranks.last_output(ranks.folder_of(self._run_dir, 0))


def start(run_dir: Path) -> Run:
    """Start the run of a folder that `workbench.runs.request.prepare` made.

    Parameters
    ----------
    run_dir : Path

    Returns
    -------
    Run
        Which has just begun.

    Raises
    ------
    RunError
        If the folder holds no request, was run before, or is for a device that is not there.
    """
    run_dir = run_dir.resolve()
    run = Run(run_dir)
    if (run_dir / logs.LOG_FILE).exists():
        raise RunError(f"{run_dir} was run before; its log would be lost")
    device = run.request.program.get("device", "")
    if device == "planned":
        raise RunError("a planned device is not there to run on; legal: cpu, or cuda where one is attached")
    request.check(run.request.options, device, run.request.variants, ranks=run.request.ranks)
    shared = bool(run.request.parallel)
    if shared and device == "cuda":
        _check_gpus(run_dir, run.request.ranks)
    scratch = run_dir / SCRATCH
    mark = uuid.uuid4().hex
    environment = {
        **os.environ,
        # What the program was pickled by reference to is found where it was found here.
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
        "TMPDIR": str(scratch),
        reaper.MARK: mark,
    }
    if run.request.options.cold:
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / "inductor")
        environment["TRITON_CACHE_DIR"] = str(scratch / "triton")
        environment["CUDA_CACHE_PATH"] = str(scratch / "cuda")
    try:
        scratch.mkdir()
        child = subprocess.Popen(
            [sys.executable, "-m", f"workbench.runs.{'ranks' if shared else 'worker'}", str(run_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise RunError(f"the worker of run {run.name} cannot be started: {error.strerror}") from error
    worker = _Worker(run_dir, child.pid, mark, child)
    try:
        worker.write_down()
    except OSError as error:
        worker.kill()
        worker.close()
        raise RunError(f"the run's folder {run_dir} cannot be written: {error.strerror}") from error
    run._attach(worker)
    return run


def _check_gpus(run_dir: Path, count: int) -> None:
    import torch

    attached = torch.cuda.device_count()
    if attached < count:
        # As many machines as it takes, one GPU each where none is attached to count with.
        machines = next(n for n in range(1, count + 1) if count % n == 0 and count // n <= max(attached, 1))
        raise RunError(
            f"{count} ranks need {count} GPUs, and {attached} are attached here; "
            f"on {machines} machines, start on each: {ranks.command(run_dir, count, machines=machines)}"
        )


def follow(run_dir: Path) -> Run:
    """The run of a folder as its log tells it, followed if its process is alive.

    Parameters
    ----------
    run_dir : Path

    Returns
    -------
    Run

    Raises
    ------
    RunError
        If the folder holds no run.
    """
    run_dir = run_dir.resolve()
    if run_dir in _LIVE:
        return _LIVE[run_dir]
    run = Run(run_dir)
    elsewhere = None
    if run.request.parallel and not (run_dir / logs.LOG_FILE).exists():
        elsewhere = run._tail = ranks.Elsewhere(run_dir, run.request.ranks)
    found = run._read()
    run._keep(event for event in found if not isinstance(event, events.FINAL))
    if (run_dir / WORKER_FILE).exists():
        worker = _Worker.written_down(run_dir)
        if worker is not None:
            run._attach(worker)
            return run
        # What is left of a run that no one followed to its end.
        shutil.rmtree(run_dir / SCRATCH, ignore_errors=True)
    if elsewhere is not None and elsewhere.begun and not elsewhere.over:
        run._attach(_Elsewhere(run_dir, elsewhere))
        return run
    run._keep([run._said or _end_unknown(found)])
    run._over.set()
    return run


def _end_unknown(found: list[Event]) -> Event:
    if not found:
        return events.Failed(t_s=0.0, reason="the run was never started, or ended before it wrote anything")
    return events.Failed(
        t_s=found[-1].t_s, reason="the run ended without a last word: it and the process that followed it were killed"
    )


def _reason(status: int | None, output: str) -> str:
    """Why a worker ended that did not say so in its log."""
    if status == logs.EXIT_LOG_UNWRITABLE:
        line = next((line for line in reversed(output.splitlines()) if line.strip()), "")
        return line or "the event log could not be written"
    if status is None:
        return "the worker ended without a last word"
    return f"the worker {processes.how_ended(status)}"
