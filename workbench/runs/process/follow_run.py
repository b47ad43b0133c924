"""`Run`: state and results of a run, during the run and afterwards; `follow` makes a `Run` from a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from workbench.errors import RunError
from workbench.runs.log import event_log, events, untrusted_files
from workbench.runs.log.events import Event
from workbench.runs.process import callbacks, rank_launcher, request, worker_process
from workbench.runs.process.cancel_run import cancel_run
from workbench.runs.process.record import FINAL_STATES, Record
from workbench.runs.process.request import OUTPUT_FILE
from workbench.runs.process.switch_interval import SHORT_SWITCH_INTERVAL
from workbench.runs.process.worker_process import KILL_TIMEOUT_S, Worker

__all__ = ["FINAL_STATES", "Run", "follow", "follow_worker", "reload_names"]

Observer = Callable[[Event], None]

OTHERS_WORD_S = 2.0
"""Time to wait, after the worker's end, until the process that started the run has written the run's outcome."""
FOLLOW_INTERVAL_S = 0.03
"""Seconds between reads of the log. This interval is short, so that a display follows the run without a visible delay.
"""

_LOGGER = logging.getLogger(__name__)

_LIVE: dict[Path, Run] = {}
"""Runs that this process follows now, by folder, so that `follow` returns the same `Run` for a folder while the run
goes on.
"""

_KNOWN: weakref.WeakSet[Run] = weakref.WeakSet()
"""All `Run` objects of this process, so that `reload_names` finds every object of a renamed run."""

_OPENING = threading.Lock()


@dataclasses.dataclass(eq=False)
class _Observed:
    """An observer, and the number of events that it has received."""

    callback: Observer
    given: int = 0
    ended: bool = False


class Run(Record):
    """One compilation and execution under a config, in a separate process.

    `workbench.runs.process.start_run.start` starts a run and returns its `Run`; `workbench.runs.process.run_store.open`
    returns the `Run` of an existing folder. All data of a `Run` comes from the folder.

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
        """Number of lines of the event log, so far, that could not be read as records; 0 if the log is undamaged."""
        return self._tail.skipped

    def command(self, machines: int = 1) -> str:
        """Return the shell command that a user enters on each machine to execute the run's ranks.

        All machines must be able to reach the run's folder. In the command, ``$HEAD`` is the name or address of the
        first machine. The run must not have started yet; `workbench.bench.Workbench.prepare` makes the folder of such a
        run.

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

        One thread calls all observers of all runs, one after another, even while the main thread is busy. No lock is
        held during a call. If a callback raises an exception, the exception is logged, and further events are still
        delivered.

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

        Ranks that the user started are not killed: they end when the cancel file exists. This method then waits at most
        `KILL_TIMEOUT_S`.

        Raises
        ------
        RunError
            If the processes cannot be killed, for example because they belong to another user.
        """
        cancel_run(self)

    # Following the process.

    def _now_s(self) -> float:
        """Return the present time on the log's clock in seconds.

        The time is estimated from the wall-clock time at which the worker started.
        """
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

    def _follow(self) -> None:
        try:
            with SHORT_SWITCH_INTERVAL:
                self._keep_up()
        except BaseException as error:
            # Catch every exception. If an exception ended this thread, other threads would wait for the run forever.
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
        """Return why the worker must end; empty if it may continue, or if another process started it."""
        if not self._worker or not self._worker.is_child:
            return ""
        options = self.request.options
        reason = worker_process.reason_over_time(begun_s, options.timeout_s)
        # In a run of several ranks, the memory limit holds for each rank, so the launcher of the ranks checks it.
        if not reason and not self.request.parallel:
            reason = worker_process.reason_over_limit(self._worker.pid, options.memory_limit_bytes)
        return reason

    def _end(self, reason: str) -> None:
        """Kill the worker if this process started it; if another process started it, only stop following it."""
        assert self._worker is not None
        with self._lock:
            self._stop = self._stop or events.Failed(t_s=self._now_s(), reason=reason)
        if self._worker.is_child:
            with contextlib.suppress(OSError, RunError):
                self._worker.kill()

    def _read_log(self) -> None:
        """Store the new events of the log. The terminal event is used only when the process is gone."""
        try:
            found = self._tail.read()
        except OSError as error:
            # Try again at the next call: the log may be unreadable only while this process has no free descriptor.
            self._unreadable = error.strerror or str(error)
            return
        self._unreadable = ""
        self._finals += [event for event in found if isinstance(event, events.FINAL)]
        self._keep(event for event in found if not isinstance(event, events.FINAL))

    def _end_in_log(self, status: int | None = None) -> Event | None:
        """Return the log's terminal event; if the worker's exit status contradicts the event, return a failure."""
        if not self._finals:
            return None
        first, *later = self._finals
        if not isinstance(first, events.Finished) or any(isinstance(event, events.Cancelled) for event in later):
            return first
        if status and self._stop is None:
            why = worker_process.how_ended(status, "after that")
            return events.Failed(t_s=first.t_s, reason=f"the worker reported that the run was done, but {why}")
        # If a failure follows the worker's own terminal event, return the failure: the process that wrote the failure
        # knew the exit status.
        return next((event for event in later if isinstance(event, events.Failed)), first)

    def _conclude(self) -> None:
        """Clean up after the process is gone, and write the terminal event if the process could not write it."""
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
        """Wait up to `OTHERS_WORD_S` until the process that started the worker has written the terminal event.

        Only that process knows the worker's exit status.
        """
        until = time.monotonic() + OTHERS_WORD_S
        while not self._finals and not self._unreadable and time.monotonic() < until:
            time.sleep(FOLLOW_INTERVAL_S)
            with self._lock:
                self._read_log()

    def _record_end(self, status: int | None) -> Event:
        """Return the terminal event of the run; write it into the log if the worker could not."""
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
            # The write fails if the disk is still full after the temporary files were removed. The log then has no
            # terminal event, and a process that later opens the run determines the end of the run again.
            with contextlib.suppress(OSError):
                event_log.append(self._tail.path, end)
        if output and self._worker.is_child:
            with contextlib.suppress(OSError):
                untrusted_files.write(self.run_dir / OUTPUT_FILE, output)
        return end


class _ExternallyLaunched:
    """The ranks of a run that the user started with the run's command, on one or several machines.

    Only the logs of the ranks are known, not their processes.
    """

    pid = 0
    is_child = False

    def __init__(self, run_dir: Path, log: rank_launcher.ExternallyLaunched) -> None:
        self._run_dir, self._log = run_dir, log

    def wait(self, timeout_s: float) -> bool:
        """Return whether all ranks have reported their terminal event. If they have not, first wait `timeout_s`."""
        if not self._log.over:
            time.sleep(timeout_s)
        return self._log.over

    def kill(self) -> None:
        """Create the cancel file, and wait up to `KILL_TIMEOUT_S` until the ranks have ended.

        Each rank checks a few times a second whether the file exists.
        """
        (self._run_dir / rank_launcher.CANCEL_FILE).touch()
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while not self._log.over and time.monotonic() < deadline:
            time.sleep(FOLLOW_INTERVAL_S)

    def close(self) -> None:
        """Do nothing, because ranks that the user started hold no resources of this process."""

    def output(self) -> str:
        """Return the end of rank 0's output."""
        return rank_launcher.last_output(rank_launcher.folder_of(self._run_dir, 0))


def follow_worker(run: Run, worker: Worker | _ExternallyLaunched) -> None:
    """Follow the process of a run until it ends."""
    run._worker = worker
    _LIVE[run.run_dir] = run
    try:
        threading.Thread(target=run._follow, name=f"follow-{run.name}", daemon=True).start()
    except BaseException:
        del _LIVE[run.run_dir]
        raise


def follow(run_dir: Path) -> Run:
    """Return the run of a folder, rebuilt from its log; if the run's process is alive, follow the process.

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
            follow_worker(run, worker)
            return run
        if note is not None and standing == "gone":
            worker_process.clear(run_dir, note)
            # The process is gone, but it may have written more after the first read, so read the log again.
            run._read_log()
    if elsewhere is not None and elsewhere.is_going_on:
        follow_worker(run, _ExternallyLaunched(run_dir, elsewhere))
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
    """Return a terminal event for a run whose log has none."""
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
            "the worker ended and no reason was written: the notebook or script that started the worker was shut down, "
            "or was killed together with the worker"
        )
    return f"the worker {worker_process.how_ended(status)}"
