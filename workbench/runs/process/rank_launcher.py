"""Runs that several ranks share: torchrun starts a worker for each rank, and the ranks' logs are merged into one log.

On one machine, `workbench.runs.process.start_run` executes ``python -m workbench.runs.process.rank_launcher RUN_DIR``,
which starts torchrun. With several machines, the user starts torchrun on each machine, see `command`. The machines need
only a run folder that all of them can reach.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.errors import RunError
from workbench.runs.log import event_log, events, untrusted_files
from workbench.runs.log.events import Event
from workbench.runs.process import request, worker_process
from workbench.runs.process.failure_reason import explain

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # PyTorch does not export it explicitly

CANCEL_FILE = "cancel"
"""A file in a run's folder. When this file exists, all ranks of the run end, on all machines."""

PORT = 29400
"""Default port on the first of several machines, at which torchrun's processes meet."""

_WORKER = "workbench.runs.worker.rank_worker"
LOOPBACK = "127.0.0.1"
"""Address at which ranks on one machine meet; other machines cannot reach it."""
_BACKLOG = 2048
"""Number of connections that may wait at the store's socket, as for the socket of PyTorch's own store."""
_INTERVAL_S = 0.02
_GRACE_S = 2.0
"""Seconds that the other ranks may continue after a rank has failed; then the launcher kills them."""

SILENT_S = 120.0
"""If an externally launched rank has reported nothing for this long, the user is warned that the rank may be gone.

A rank samples its memory many times a second, even while it compiles or waits for other ranks. A file system that
several machines share may show the samples a minute late.
"""

GONE_S = 3600.0
"""Externally launched ranks count as gone if they have written nothing for this long. Then the run is not followed."""

_SLOWEST = {events.Compiled: "compile_s", events.StepTimes: "step_s", events.PeakMeasured: "measured_peak_bytes"}
"""Figures whose value for the run is the maximum over the ranks."""
_OWN = (events.Started, events.TensorChecked, events.AccuracyChecked, *_SLOWEST, *events.FINAL)
"""Types of events that are collected from every rank. Events of other types are taken only from rank 0."""

_NO_REPORT = "the run ended before this rank reported its end"
"""Reason of a rank that did not report how it ended, and whose exit status is unknown or means `SIGTERM`."""
_LOST = ("closed by peer", "reset by peer", "Broken pipe", "ProcessGroup", "remote process", "Connection")
"""Words that occur in the error message of a rank if it failed because another rank is gone."""


def folder_of(run_dir: Path, rank: int) -> Path:
    """Return the folder of a rank's log and output, inside the run's folder."""
    return run_dir / f"rank{rank}"


def torchrun_arguments(
    folder: Path,
    ranks: int,
    *,
    machines: int = 1,
    host: str = "",
    port: int | None = None,
    script: Sequence[str] = (),
) -> list[str]:
    """Return torchrun's arguments for a run. The arguments are the same on each machine.

    Parameters
    ----------
    folder : Path
        The run's folder, as all machines see it. The subfolder `request.SCRATCH` must exist.
    ranks : int
        Number of ranks on all machines together.
    machines : int
    host : str
        Name or address of the machine at which the ranks meet. By default, all ranks are on one machine and meet
        through a file.
    port : int, optional
        Port at which the ranks meet; `PORT` by default.
    script : sequence of str
        Script or ``-m`` module that each rank runs, with its arguments; by default the worker of a run.

    Raises
    ------
    RunError
        If the ranks cannot be divided equally among the machines.
    """
    if machines < 1 or ranks % machines:
        raise RunError(
            f"{ranks} ranks cannot be divided equally among {machines} machines; give a number that divides {ranks}"
        )
    if host:
        meeting = ["--rdzv-endpoint", f"{host}:{port or PORT}"]
    else:
        meeting = ["--rdzv-endpoint", str(folder / request.SCRATCH / "torchrun"), "--rdzv-conf", "store_type=file"]
    return [
        *("--nnodes", str(machines), "--nproc-per-node", str(ranks // machines)),
        *("--rdzv-backend", "c10d", "--rdzv-id", folder.name, *meeting),
        *(script or ("-m", _WORKER, str(folder))),
    ]


def command(run_dir: Path, ranks: int, *, machines: int, port: int | None = None) -> str:
    """Return the shell command that starts the ranks of one machine; it is the same for all machines.

    In the command, ``$HEAD`` is the name or address of the first machine.
    """
    arguments = torchrun_arguments(run_dir, ranks, machines=machines, host="$HEAD", port=port)
    return " ".join(["torchrun", *(a if a.startswith("$HEAD") else shlex.quote(a) for a in arguments)])


@dataclasses.dataclass
class _Rank:
    """The data that a rank has reported so far."""

    tail: event_log.Tail
    reported: dict[type[Event], Event] = dataclasses.field(default_factory=dict)
    checked: list[Event] = dataclasses.field(default_factory=list)
    """Events of compared tensors, held back until all ranks have reported, so that the run's log lists them by rank."""
    offset_s: float = 0.0
    killed: str = ""
    """Reason why the launcher killed the rank: too much memory. Empty if it was killed because another rank failed."""
    heard_s: float = 0.0
    """Time at which the rank last reported something, on this process's clock."""
    last_s: float = 0.0
    """Time at which the rank last reported something, on the clock of the run's log."""
    samples: bool = False
    """True if the rank has begun to sample its memory. Before that, a silence of the rank causes no warning."""
    silent: bool = False
    """True if the log already warns that the rank reports nothing at present."""
    unreadable: str = ""
    """Reason why the rank's log cannot be read; empty if it can."""

    @property
    def pid(self) -> int | None:
        started = self.reported.get(events.Started)
        return started.pid if isinstance(started, events.Started) else None

    @property
    def end(self) -> Event | None:
        return next((self.reported[kind] for kind in events.FINAL if kind in self.reported), None)


class RankLogMerger:
    """Reads the logs of all ranks, and writes one log for the run.

    Events about progress come from rank 0. When all ranks have reported a figure, such as the step time, the run's
    figure is the largest of the ranks' figures. Compared tensors are listed for all ranks.

    Parameters
    ----------
    run_dir : Path
    ranks : int
    write : callable
        Receives each event of the run's log.
    time_s : float
        Seconds since the epoch at ``t_s == 0`` of the run's log.
    """

    def __init__(self, run_dir: Path, ranks: int, write: Callable[[Event], None], time_s: float) -> None:
        self.run_dir, self._write, self._time_s = run_dir, write, time_s
        self.ranks = [_Rank(event_log.Tail(folder_of(run_dir, rank) / event_log.LOG_FILE)) for rank in range(ranks)]

    @property
    def has_failed(self) -> bool:
        """Return whether a rank reported that it failed."""
        return any(isinstance(rank.end, events.Failed) for rank in self.ranks)

    @property
    def over(self) -> bool:
        """Return whether all ranks have reported their terminal event."""
        return all(rank.end is not None for rank in self.ranks)

    @property
    def ended_s(self) -> float:
        """Time of the last terminal event of a rank, on the clock of the run's log."""
        return max((rank.end.t_s for rank in self.ranks if rank.end is not None), default=0.0)

    def read(self) -> None:
        """Read the events that the ranks have reported since the last call."""
        for number, rank in enumerate(self.ranks):
            for event in _new_events(rank):
                if isinstance(event, events.Started):
                    rank.offset_s = event.time_s - self._time_s
                rank.heard_s, rank.last_s, rank.silent = time.monotonic(), event.t_s + rank.offset_s, False
                rank.samples = rank.samples or isinstance(event, events.MemorySample)
                self._take(number, rank, dataclasses.replace(event, t_s=rank.last_s))

    def warn_of_silent(self) -> None:
        """Warn once about each rank that has reported nothing for `SILENT_S`; a new silence causes a new warning."""
        for number, rank in enumerate(self.ranks):
            if not rank.samples or rank.end or rank.silent or time.monotonic() - rank.heard_s <= SILENT_S:
                continue
            rank.silent = True
            message = (
                f"rank {number} has reported nothing for {SILENT_S:g} s (last report {rank.last_s:.1f} s after the run "
                "began): its process or its machine may be gone; cancel() ends the other ranks"
            )
            self._write(events.Warned(t_s=rank.last_s + SILENT_S, message=message))

    def _take(self, number: int, rank: _Rank, event: Event) -> None:
        if isinstance(event, events.TensorChecked):
            rank.checked.append(dataclasses.replace(event, name=f"rank {number}: {event.name}"))
        elif not isinstance(event, _OWN):
            if number == 0:
                self._write(event)
        else:
            rank.reported[type(event)] = event
            all_reported = [each.reported[type(event)] for each in self.ranks if type(event) in each.reported]
            if len(all_reported) == len(self.ranks):
                self._all_reported(event, all_reported)

    def _all_reported(self, last: Event, reported: Sequence[Event]) -> None:
        if type(last) in _SLOWEST:
            most = max(reported, key=lambda event: float(getattr(event, _SLOWEST[type(last)])))
            self._write(dataclasses.replace(most, t_s=last.t_s))
        elif isinstance(last, events.AccuracyChecked):
            self._write_checked()
            checked = [event for event in reported if isinstance(event, events.AccuracyChecked)]
            number, worst = max(enumerate(checked), key=lambda each: (not each[1].ok, each[1].max_error))
            self._write(
                dataclasses.replace(
                    last,
                    ok=all(event.ok for event in checked),
                    max_error=worst.max_error,
                    worst=f"rank {number}: {worst.worst}" if worst.worst else "",
                    bitwise=_all_bitwise(checked),
                    changed_kernels=_all_changed(checked),
                )
            )

    def _write_checked(self) -> None:
        for rank in self.ranks:
            for event in rank.checked:
                self._write(event)
            rank.checked.clear()

    def finish(self, t_s: float, statuses: Mapping[int, int] | None = None, reason: str = "") -> Event:
        """Write a `RankEnded` event for each rank, and return the terminal event of the run.

        Parameters
        ----------
        t_s : float
            Time of the written events, on the clock of the run's log.
        statuses : mapping of int to int, optional
            Exit status of failed ranks, if known.
        reason : str
            Reason why the run failed if no rank caused the failure, for example because no rank could be started.

        Returns
        -------
        Event
            The terminal event of the run. If ranks failed, its reason is the reason of the rank that failed first.
        """
        self.read()
        self._write_checked()
        reasons = {}
        for number, rank in enumerate(self.ranks):
            end, status = rank.end, (statuses or {}).get(number)
            detail = end.detail if isinstance(end, events.Failed) else ""
            if isinstance(end, events.Finished):
                why = ""
            elif isinstance(end, events.Cancelled):
                why = "cancelled"
            elif rank.killed:
                why = rank.killed
            elif isinstance(end, events.Failed):
                why = end.reason
            elif status is not None and status != -signal.SIGTERM:
                why = worker_process.how_ended(status)
            elif rank.unreadable:
                why = f"its log cannot be read: {rank.unreadable}"
            else:
                why = _NO_REPORT
            if why and not detail:
                detail = last_output(folder_of(self.run_dir, number))
            reasons[number] = why
            figures = {name: getattr(rank.reported.get(kind), name, None) for kind, name in _SLOWEST.items()}
            self._write(events.RankEnded(t_s=t_s, rank=number, reason=why, detail=detail, **figures))
        if not any(reasons.values()):
            return events.Finished(t_s=t_s)
        if any(isinstance(rank.end, events.Cancelled) for rank in self.ranks):
            return events.Cancelled(t_s=t_s)
        first = min((number for number, why in reasons.items() if why), key=lambda n: self._order(n, reasons[n]))
        if reason and reasons[first] == _NO_REPORT:
            return events.Failed(t_s=t_s, reason=reason)
        end = self.ranks[first].end
        detail = end.detail if isinstance(end, events.Failed) else last_output(folder_of(self.run_dir, first))
        return events.Failed(t_s=t_s, reason=f"rank {first}: {reasons[first]}", detail=detail)

    def _order(self, number: int, reason: str) -> tuple[int, float]:
        """Return a sort key for failed ranks.

        The rank that probably failed first sorts first. Ranks that ended because another rank failed sort last.
        """
        end = self.ranks[number].end
        at_s = end.t_s if end is not None else 0.0
        if self.ranks[number].killed:
            return 0, at_s
        if reason == _NO_REPORT:
            return 4, at_s
        if not isinstance(end, events.Failed):
            return 1, at_s
        return 3 if any(words in reason for words in _LOST) else 2, at_s


def _new_events(rank: _Rank) -> list[Event]:
    try:
        return rank.tail.read()
    except OSError as error:
        rank.unreadable = error.strerror or str(error)
        return []


def last_output(folder: Path) -> str:
    """Return the end of a rank's output."""
    return untrusted_files.read_end(folder / request.OUTPUT_FILE, 4000)


def _begun_s(folder: Path) -> float:
    """Return the time at which a rank began, in seconds since the epoch; 0 if unknown."""
    with contextlib.suppress(OSError):
        return next((e.time_s for e in event_log.read_events(folder)[:1] if isinstance(e, events.Started)), 0.0)
    return 0.0


class ExternallyLaunched:
    """The log of a run whose ranks the user started, on any machines: the merged events of the ranks' logs.

    Parameters
    ----------
    run_dir : Path
    ranks : int
    """

    def __init__(self, run_dir: Path, ranks: int) -> None:
        self.path = run_dir / event_log.LOG_FILE
        self._found: list[Event] = []
        begun_s = min((begun for rank in range(ranks) if (begun := _begun_s(folder_of(run_dir, rank)))), default=0.0)
        self._gathering = RankLogMerger(run_dir, ranks, self._found.append, begun_s)
        self.over = False

    @property
    def skipped(self) -> int:
        """Number of lines so far, in all ranks' logs, that are not records."""
        return sum(rank.tail.skipped for rank in self._gathering.ranks)

    @property
    def is_going_on(self) -> bool:
        """Return whether a rank wrote something recently, and not all ranks have reported their terminal event."""
        written_s = 0.0
        for rank in self._gathering.ranks:
            with contextlib.suppress(OSError):
                written_s = max(written_s, rank.tail.path.stat().st_mtime)
        return not self.over and abs(time.time() - written_s) < GONE_S

    def read(self) -> list[Event]:
        """Return the events since the last call. When all ranks have ended, the last event is the terminal event."""
        self._gathering.read()
        self._gathering.warn_of_silent()
        if self._gathering.over and not self.over:
            self.over = True
            self._found.append(self._gathering.finish(self._gathering.ended_s))
        found = list(self._found)
        self._found.clear()
        return found


def main(run_dir: Path) -> None:
    """Start a run's ranks on this machine, merge their logs, and end this process when the ranks have ended."""
    worker_process.die_with_parent(keep_input=True)
    log = event_log.EventLog(run_dir / event_log.LOG_FILE)
    begun_s = time.time() - log.now_s()
    log.write(events.Started(t_s=log.now_s(), pid=os.getpid(), time_s=begun_s))
    asked = request.read_request(run_dir)
    gathering = RankLogMerger(run_dir, asked.ranks, log.write, begun_s)
    done = threading.Event()
    follower = threading.Thread(target=_follow, args=(gathering, asked.options, done), name="gather", daemon=True)
    follower.start()
    statuses, reason = _torchrun(run_dir, asked)
    done.set()
    follower.join()
    end = gathering.finish(log.now_s(), statuses, reason)
    log.write(end)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0 if isinstance(end, events.Finished) else 1)


def _all_bitwise(checked: Sequence[events.AccuracyChecked]) -> bool | None:
    found = [event.bitwise for event in checked]
    return None if None in found else all(found)


def _all_changed(checked: Sequence[events.AccuracyChecked]) -> list[str] | None:
    """Return the names of the kernels that differ, on at least one rank, from those of unmodified Thunder.

    Return None if a rank did not report such names.
    """
    names: dict[str, None] = {}
    for event in checked:
        if event.changed_kernels is None:
            return None
        names.update(dict.fromkeys(event.changed_kernels))
    return list(names)


def _follow(gathering: RankLogMerger, options: request.RunOptions, done: threading.Event) -> None:
    """Follow the ranks. Kill ranks that take too much memory, and kill all ranks soon after a rank has failed."""
    deadline = float("inf")
    while not done.wait(_INTERVAL_S):
        gathering.read()
        for rank in gathering.ranks:
            if rank.pid is None or rank.end is not None or rank.killed:
                continue
            rank.killed = worker_process.reason_over_limit(rank.pid, options.memory_limit_bytes)
            if rank.killed:
                _kill(rank)
        if gathering.has_failed:
            deadline = min(deadline, time.monotonic() + _GRACE_S)
        if time.monotonic() > deadline:
            for rank in gathering.ranks:
                if rank.end is None:
                    _kill(rank)


def _kill(rank: _Rank) -> None:
    with contextlib.suppress(ProcessLookupError):
        if rank.pid is not None:
            os.kill(rank.pid, signal.SIGKILL)


def _torchrun(run_dir: Path, run_request: request.RunRequest) -> tuple[dict[int, int], str]:
    """Start the ranks and wait for them.

    Return the exit status of each failed rank, and the reason if no rank could be started.
    """
    port = run_request.options.port
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torchrun's own default; without this line torchrun prints a warning
    # Keep torchrun from serving a store on all network interfaces. The ranks of a run meet without this store.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        held = None if port is None else serve_store(port)
        try:
            torchrun.run(torchrun.parse_args(torchrun_arguments(run_dir, run_request.ranks)))
        finally:
            del held
    except RunError as error:
        return {}, str(error)
    except ChildFailedError as error:
        return {rank: failure.exitcode for rank, failure in error.failures.items()}, ""
    except Exception as error:  # noqa: BLE001  # the log reports any failure of torchrun
        return {}, f"torchrun failed: {explain(error)}"
    return {}, ""


def serve_store(port: int) -> TCPStore:
    """Serve the store at which the ranks of one machine meet, on a port that other machines cannot reach.

    PyTorch's own store listens on all interfaces, but it can take over a socket that already listens.

    Raises
    ------
    RunError
        If the port cannot be used.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # PyTorch does not export it explicitly

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen(_BACKLOG)
        except (OSError, OverflowError) as error:
            why = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
            raise RunError(
                f"port {port} cannot be used: {why}; give another port, or no port: on one machine a file is used "
                "instead"
            ) from error
        return TCPStore(
            LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach(), use_libuv=True
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
