"""`start` a run in a separate process and follow it.

`Run` has the state and the results of a run, during the run and afterwards.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from workbench.errors import RunError
from workbench.runs.log import event_log, events, untrusted_files
from workbench.runs.log.events import Event
from workbench.runs.process import callbacks, rank_launcher, reaper, request, worker_process
from workbench.runs.process.record import FINAL_STATES, Record
from workbench.runs.process.request import OUTPUT_FILE, SCRATCH
from workbench.runs.process.worker_process import KILL_TIMEOUT_S, Worker

__all__ = ["FINAL_STATES", "Run", "follow", "reload_names", "start"]

Observer = Callable[[Event], None]

OTHERS_WORD_S = 2.0
"""Time after the worker's end in which the process that started the run may write the run's outcome."""
FOLLOW_INTERVAL_S = 0.03
"""Interval between reads of the log, so that a display is late by at most a twentieth of a second."""

SWITCH_INTERVAL_S = 0.0005
"""Maximum time, while a run is followed, that a thread waits for the interpreter's lock before it requests the lock."""

_LOGGER = logging.getLogger(__name__)

_LIVE: dict[Path, Run] = {}
"""Runs that this process follows, by folder, so that there is only one `Run` for each folder."""

_KNOWN: weakref.WeakSet[Run] = weakref.WeakSet()
"""All `Run` objects of this process, because a new name of a run applies to all objects for the run's folder."""

_OPENING = threading.Lock()


class _Prompt:
    """While any thread is inside, all threads get the interpreter's lock soon, even if a notebook's cell computes.

    A thread requests the lock after it has waited for the switch interval, if no other thread took the lock meanwhile.
    If a cell briefly releases the lock more often than once in this interval, for example to access a file, the thread
    never requests the lock. The cell always takes the lock back first, and the other threads starve. This once delayed
    a click on Cancel by seconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._within = 0
        self._before_s = self._set_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._within:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before_s, SWITCH_INTERVAL_S))
                self._set_s = sys.getswitchinterval()
            self._within += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            # Keep a value that other code has set in the meantime.
            if not self._within and sys.getswitchinterval() == self._set_s:
                sys.setswitchinterval(self._before_s)


_PROMPT = _Prompt()


@dataclasses.dataclass(eq=False)
class _Observed:
    """An observer, and the number of events that it has received."""

    callback: Observer
    given: int = 0
    ended: bool = False


class Run(Record):
    """One compilation and execution under a config, in a separate process.

    Made by `start`, or by `workbench.runs.process.run_store.open` from a folder. All its data comes from the event log.

    Parameters
    ----------
    run_dir : Path
    """

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self._tail: event_log.Tail | rank_launcher.ExternallyLaunched = event_log.Tail(
            run_dir / event_log.LOG_FILE, keep_open=True
        )
        self._over = threading.Event()
        self._observers: list[_Observed] = []
        self._posted = False
        self._worker: Worker | _ExternallyLaunched | None = None
        self._stop: Event | None = None
        self._finals: list[Event] = []
        self._unreadable = ""
        _KNOWN.add(self)

    @property
    def output(self) -> str:
        """End of the worker's output."""
        return self._worker.output() if self._worker is not None else super().output

    @property
    def skipped_lines(self) -> int:
        """Number of lines of the event log so far that are not records; if there are any, the log is damaged."""
        return self._tail.skipped

    def command(self, machines: int = 1) -> str:
        """Return the command that executes the run, for each of several machines that can reach the run's folder.

        In the command, ``$HEAD`` is the name or address of the first machine. The run of the folder must not have
        started yet; `workbench.bench.Workbench.prepare` makes such a folder.

        Raises
        ------
        RunError
            If the ranks cannot be divided equally among the machines, or if the run is for one process.
        """
        if not self.request.parallel:
            raise RunError(f"run {self.name} is for one process; only a run with ranks has a command for machines")
        return rank_launcher.command(
            self.run_dir, self.request.ranks, machines=machines, port=self.request.options.port
        )

    def __repr__(self) -> str:
        return f"<Run {self.name}: {self.state}{f', {self.error}' if self.error else ''}>"

    # User actions.

    def observe(self, callback: Observer) -> Callable[[], None]:
        """Call `callback` with each event: first the events so far, then each new event when it is read.

        One thread calls all observers of all runs, one after another and without delay. It calls them even while the
        main thread is busy, and holds no lock meanwhile. If a callback raises an exception, the exception is logged,
        and further events are still delivered.

        Returns
        -------
        callable
            Function that ends the observation.
        """
        observed = _Observed(callback)
        with self._lock:
            self._observers.append(observed)
        self._notify()

        def end() -> None:
            observed.ended = True
            with self._lock:
                if observed in self._observers:
                    self._observers.remove(observed)

        return end

    def wait(self, timeout_s: float | None = None) -> Run:
        """Wait until the run has ended and its process is gone.

        Raises
        ------
        RunError
            If the run has not ended after `timeout_s`; the run continues.
        """
        if not self._over.wait(timeout_s):
            raise RunError(f"run {self.name} is not done after {timeout_s} s; it is {self.state}")
        return self

    def cancel(self) -> None:
        """Kill the run's processes, and return when they are gone. A run that had already ended does not change.

        Raises
        ------
        RunError
            If the processes cannot be killed, because they belong to another user.
        """
        if self._over.is_set():
            return
        assert self._worker is not None
        others = self._worker if isinstance(self._worker, Worker) and not self._worker.is_child else None
        if others is not None and not worker_process.may_signal(others.pid):
            raise RunError(f"run {self.name} cannot be cancelled: its process belongs to another user")
        with self._lock:
            earlier = self._stop
            self._stop = stop = earlier or events.Cancelled(t_s=self._now_s())
        if others is not None:
            # Write the event before the kill, so that the process that started the run knows why the run ended.
            with contextlib.suppress(OSError):
                event_log.append(self._tail.path, stop)
        try:
            self._worker.kill()
        except (OSError, RunError) as error:
            with self._lock:
                self._stop = earlier
            raise RunError(f"run {self.name} cannot be cancelled: {error}") from error
        self._conclude()

    # Following the process.

    def _now_s(self) -> float:
        """Return seconds on the log's clock, as far as another process can tell."""
        started = self._last_of(events.Started)
        return max(0.0, time.time() - started.time_s) if started is not None else 0.0

    def _notify(self) -> None:
        """Pass new events to the observers."""
        with self._lock:
            if self._posted or not self._observers:
                return
            self._posted = True
        callbacks.post(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            self._posted = False
            observers = tuple(self._observers)
        for observed in observers:
            with self._lock:
                new = self._events[observed.given :]
            for event in new:
                if observed.ended:
                    break
                observed.given += 1
                callbacks.call(observed.callback, event, subject=f"run {self.name}")

    def _attach(self, worker: Worker | _ExternallyLaunched) -> None:
        """Follow a process until it ends."""
        self._worker = worker
        _LIVE[self.run_dir] = self
        try:
            threading.Thread(target=self._follow, name=f"follow-{self.name}", daemon=True).start()
        except BaseException:
            del _LIVE[self.run_dir]
            raise

    def _follow(self) -> None:
        try:
            with _PROMPT:
                self._keep_up()
        except BaseException as error:
            # Catch any exception. Otherwise nothing would follow the run, and threads that wait for the run would wait
            # forever.
            _LOGGER.exception("run %s could not be followed", self.name)
            self._end(f"the run could not be followed: {type(error).__name__}: {error}")
        self._conclude()

    def _keep_up(self) -> None:
        assert self._worker is not None
        begun_s = time.monotonic()
        ended = False
        while not ended and not self._over.is_set():
            ended = self._worker.wait(FOLLOW_INTERVAL_S)
            with self._lock:
                if not self._over.is_set():
                    self._read_log()
            self._notify()
            if not ended and (reason := self._over_limit(begun_s)):
                self._end(reason)
                break

    def _over_limit(self, begun_s: float) -> str:
        """Return why the process must end; empty if it may continue, or if it was not started by this process."""
        if not self._worker or not self._worker.is_child:
            return ""
        options = self.request.options
        reason = worker_process.reason_over_time(begun_s, options.timeout_s)
        # Each rank has its own limit, enforced in its process.
        if not reason and not self.request.parallel:
            reason = worker_process.reason_over_limit(self._worker.pid, options.memory_limit_bytes)
        return reason

    def _end(self, reason: str) -> None:
        """Kill the worker if this process started it; otherwise only stop following it."""
        assert self._worker is not None
        with self._lock:
            self._stop = self._stop or events.Failed(t_s=self._now_s(), reason=reason)
        if self._worker.is_child:
            with contextlib.suppress(OSError, RunError):
                self._worker.kill()

    def _read_log(self) -> None:
        """Store the new events of the log. The terminal record counts only when the process is gone."""
        try:
            found = self._tail.read()
        except OSError as error:
            # The log is on disk. It may become readable a moment later, when this process has file descriptors again.
            self._unreadable = error.strerror or str(error)
            return
        self._unreadable = ""
        self._finals += [event for event in found if isinstance(event, events.FINAL)]
        self._keep(event for event in found if not isinstance(event, events.FINAL))

    def _end_in_log(self, status: int | None = None) -> Event | None:
        """Return how the run ended according to the log, checked against the worker's exit status if it is known."""
        if not self._finals:
            return None
        first, *later = self._finals
        if not isinstance(first, events.Finished) or any(isinstance(event, events.Cancelled) for event in later):
            return first
        if status and self._stop is None:
            why = worker_process.how_ended(status, "after that")
            return events.Failed(t_s=first.t_s, reason=f"the worker reported that the run was done, but {why}")
        # If there is a later failure, the process that followed the run has written it.
        return next((event for event in later if isinstance(event, events.Failed)), first)

    def _conclude(self) -> None:
        """Clean up after the process is gone, and write how the run ended if the process could not write it."""
        assert self._worker is not None
        status: int | None = None
        trouble = ""
        try:
            status = self._worker.close()
        except BaseException as error:
            _LOGGER.exception("the remains of run %s could not be cleared", self.name)
            trouble = f"{type(error).__name__}: {error}"
        if not self._worker.is_child and self._stop is None:
            self._await_other_s_word()
        with self._lock:
            if self._over.is_set():
                return
            end: Event = self._stop or events.Failed(
                t_s=self._now_s(), reason=trouble or "the worker ended without a terminal event"
            )
            try:
                end = self._record_end(status)
            except BaseException:
                _LOGGER.exception("the end of run %s could not be written", self.name)
            finally:
                self._keep([end])
                self._over.set()
                _LIVE.pop(self.run_dir, None)
        self._notify()

    def _await_other_s_word(self) -> None:
        """Wait for an entry of the process that started the worker, because that process knows the exit status."""
        until = time.monotonic() + OTHERS_WORD_S
        while not self._finals and not self._unreadable and time.monotonic() < until:
            time.sleep(FOLLOW_INTERVAL_S)
            with self._lock:
                self._read_log()

    def _record_end(self, status: int | None) -> Event:
        """Return how the run ended; write it into the folder if the worker could not."""
        assert self._worker is not None
        self._read_log()
        if isinstance(self._tail, event_log.Tail):
            self._tail.close()
        output = self.output
        end = self._end_in_log(status) or self._stop
        if end is None:
            reason = (
                f"the event log cannot be read: {self._unreadable}" if self._unreadable else _reason(status, output)
            )
            end = events.Failed(t_s=self._now_s(), reason=reason, detail=output[-4000:])
        if end not in self._finals and self._worker.is_child and not self._unreadable:
            # If there is no space left, even without the temporary files, the log lacks the record. A later
            # `store.open` then finds out the end of the run again.
            with contextlib.suppress(OSError):
                event_log.append(self._tail.path, end)
        if output and self._worker.is_child:
            with contextlib.suppress(OSError):
                untrusted_files.write(self.run_dir / OUTPUT_FILE, output)
        return end


class _ExternallyLaunched:
    """The ranks of a run that were started by hand, on any machines; only their logs are known."""

    pid = 0
    is_child = False

    def __init__(self, run_dir: Path, log: rank_launcher.ExternallyLaunched) -> None:
        self._run_dir, self._log = run_dir, log

    def wait(self, timeout_s: float) -> bool:
        """Return whether all ranks have reported their terminal event; if not, wait for `timeout_s`."""
        if not self._log.over:
            time.sleep(timeout_s)
        return self._log.over

    def kill(self) -> None:
        """Make the ranks end themselves: they look for the cancel file a few times a second."""
        (self._run_dir / rank_launcher.CANCEL_FILE).touch()
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while not self._log.over and time.monotonic() < deadline:
            time.sleep(FOLLOW_INTERVAL_S)

    def close(self) -> None:
        """Do nothing: the resources of ranks belong to other processes."""

    def output(self) -> str:
        """Return the end of rank 0's output."""
        return rank_launcher.last_output(rank_launcher.folder_of(self._run_dir, 0))


def refuse_planned_device(device: str) -> None:
    """Refuse to run a program for a planned device, before a folder is made for it.

    Raises
    ------
    RunError
        If the device is ``planned``; the message lists the legal devices.
    """
    if device == "planned":
        raise RunError("nothing runs on the device planned; legal: cpu, or cuda if a GPU is attached")


def start(run_dir: Path) -> Run:
    """Start the run of a folder that `workbench.runs.process.request.prepare` made.

    Parameters
    ----------
    run_dir : Path

    Returns
    -------
    Run
        The run, which has just begun.

    Raises
    ------
    RunError
        If the folder has no request, its run was already started, or it is for a device that this machine lacks.
    """
    run_dir = run_dir.resolve()
    run = Run(run_dir)
    if (run_dir / event_log.LOG_FILE).exists():
        raise RunError(f"{run_dir} contains an earlier run, whose log would be lost")
    device = run.request.program.get("device", "")
    refuse_planned_device(device)
    request.check_options(run.request.options, device, run.request.variants, ranks=run.request.ranks)
    shared = bool(run.request.parallel)
    if shared and device == "cuda":
        _check_gpus(run_dir, run.request.ranks)
    scratch = run_dir / SCRATCH
    mark = worker_process.new_mark(run_dir)
    environment = {
        **os.environ,
        # The worker must import objects that were pickled by reference from the same paths.
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
            [
                sys.executable,
                "-m",
                f"workbench.runs.{'process.rank_launcher' if shared else 'worker.worker'}",
                str(run_dir),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        # Otherwise the folder could not be started again.
        shutil.rmtree(scratch, ignore_errors=True)
        raise RunError(f"the worker of run {run.name} cannot be started: {error.strerror}") from error
    try:
        worker = Worker(run_dir, child.pid, mark, child)
    except BaseException as error:  # no file descriptor or thread is left to follow the worker
        _give_up(child, mark, scratch)
        raise RunError(f"the worker of run {run.name} cannot be followed: {error}") from error
    try:
        worker_process.Note.of(child.pid, mark).write(run_dir)
        run._attach(worker)
    except BaseException as error:
        with contextlib.suppress(RunError):
            worker.kill()
        worker.close()
        if isinstance(error, OSError):
            raise RunError(f"the run's folder {run_dir} cannot be written: {error.strerror}") from error
        raise RunError(f"the worker of run {run.name} cannot be followed: {error}") from error
    return run


def _give_up(child: subprocess.Popen[bytes], mark: str, scratch: Path) -> None:
    reaper.reap(child.pid, mark, scratch, KILL_TIMEOUT_S)
    child.wait(KILL_TIMEOUT_S)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


def _check_gpus(run_dir: Path, count: int) -> None:
    import torch

    attached = torch.cuda.device_count()
    if attached < count:
        # `machines` is the number of machines that are needed. If no GPU is attached here, assume one GPU per machine.
        machines = next(n for n in range(1, count + 1) if count % n == 0 and count // n <= max(attached, 1))
        raise RunError(
            f"{count} ranks need {count} GPUs, but {attached} are attached here; "
            f"to use {machines} machines, start on each: {rank_launcher.command(run_dir, count, machines=machines)}"
        )


def follow(run_dir: Path) -> Run:
    """Return the run of a folder from its log; if the run's process is alive, follow the process.

    Parameters
    ----------
    run_dir : Path

    Returns
    -------
    Run

    Raises
    ------
    RunError
        If the folder has no readable run.
    """
    try:
        run_dir = run_dir.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # circular links, or a NUL in the name
        raise RunError(f"{str(run_dir)!r} is not a run: {error}") from error
    with _OPENING:
        return _LIVE.get(run_dir) or _open_run(run_dir)


def _open_run(run_dir: Path) -> Run:
    run = Run(run_dir)
    elsewhere = None
    if run.request.parallel and not untrusted_files.exists(run_dir / event_log.LOG_FILE):
        elsewhere = run._tail = rank_launcher.ExternallyLaunched(run_dir, run.request.ranks)
    run._read_log()
    standing = ""
    if untrusted_files.exists(run_dir / worker_process.WORKER_FILE):
        note = worker_process.Note.read(run_dir)
        standing = note.liveness if note is not None else "unknown"
        if note is not None and standing == "alive" and (worker := Worker.of(run_dir, note)) is not None:
            run._attach(worker)
            return run
        if note is not None and standing == "gone":
            worker_process.clear(run_dir, note)
            # Read the last events of the process, which is gone now.
            run._read_log()
    if elsewhere is not None and elsewhere.is_going_on:
        run._attach(_ExternallyLaunched(run_dir, elsewhere))
        return run
    if isinstance(run._tail, event_log.Tail):
        run._tail.close()
    elif not standing:
        standing = "silent"
    run._keep([run._end_in_log() or _end_unknown(run, standing)])
    run._over.set()
    return run


def reload_names(run_dir: Path) -> None:
    """Make all `Run` objects for a folder read their request again, because the run's name has changed."""
    for run in tuple(_KNOWN):
        if run.run_dir == run_dir.resolve():
            run.request = request.read_request(run_dir)


def _end_unknown(run: Run, liveness: str) -> Event:
    """Return the end of a run whose log does not have a terminal event."""
    t_s = run._events[-1].t_s if run._events else 0.0
    if run._unreadable:
        return events.Failed(t_s=t_s, reason=f"the event log cannot be read: {run._unreadable}")
    if liveness == "unknown":
        reason = (
            "the log has no terminal event, and the run's process cannot be found: it belongs to another user or "
            "is on another machine, this folder is a copy, or the machine was restarted"
        )
        return events.Failed(t_s=t_s, reason=reason)
    if not run._events:
        return events.Failed(t_s=t_s, reason="the run was never started, or ended before it wrote anything")
    if liveness == "silent":
        return events.Failed(t_s=t_s, reason="the ranks wrote nothing for an hour, and did not report how they ended")
    reason = "the run ended without a terminal event: it and the process that followed it were killed"
    return events.Failed(t_s=t_s, reason=reason)


def _reason(status: int | None, output: str) -> str:
    """Return the reason why a worker ended, if the worker did not write the reason into its log."""
    if status == event_log.EXIT_LOG_UNWRITABLE:
        line = next((line for line in reversed(output.splitlines()) if line.strip()), "")
        return line or "the event log could not be written"
    if status is None:
        return (
            "the worker ended and no reason was written: the kernel that started it was shut down, or both were killed"
        )
    return f"the worker {worker_process.how_ended(status)}"
