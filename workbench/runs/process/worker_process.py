"""Processes of a run: identify, follow and kill a worker with its children, check its limits, and explain its end."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Literal

import psutil

from workbench.errors import RunError
from workbench.runs.log import untrusted_files
from workbench.runs.process import reaper
from workbench.runs.process.request import OUTPUT_BYTES, SCRATCH

WORKER_FILE = "worker.json"
"""File in a run's folder that identifies the run's process; removed when the run has ended."""

_F_SETSIG = 10  # from <linux/fcntl.h>; Python 3.12's fcntl module lacks it

_LOOKS, _LOOK_S = 20, 0.005
KILL_TIMEOUT_S = 5.0
"""Time to wait for killed processes that the system has not removed yet."""


def new_mark(run_dir: Path) -> str:
    """Return a mark for the environment of all processes of a run.

    Different runs, and copies of a run's folder, have different marks.
    """
    return f"{uuid.uuid4().hex}:{run_dir}"


@dataclasses.dataclass(frozen=True)
class Note:
    """Identity of a run's process.

    Attributes
    ----------
    pid : int
    start_ticks : int
        Start time of the process, on the clock of its machine.
    mark : str
        Mark in the environment of the process and of all its children.
    machine : str
        The machine and its last boot. On another machine, or after a reboot, `pid` belongs to a different process.
    """

    pid: int
    start_ticks: int
    mark: str
    machine: str

    @classmethod
    def of(cls, pid: int, mark: str) -> Note:
        """Return the identity of a living process.

        Raises
        ------
        OSError
            If the process does not exist.
        """
        return cls(pid, _start_ticks(pid), mark, _machine())

    @classmethod
    def read(cls, run_dir: Path) -> Note | None:
        """Return the identity of the process that a run's folder names.

        Return None if the file is missing, cannot be read, or belongs to a different folder.
        """
        with contextlib.suppress(OSError, ValueError, RecursionError):
            record = json.loads(untrusted_files.read(run_dir / WORKER_FILE))
            kinds = {field.name: {"int": int, "str": str}[str(field.type)] for field in dataclasses.fields(cls)}
            if isinstance(record, dict) and all(type(record.get(name)) is kind for name, kind in kinds.items()):
                note = cls(**{name: record[name] for name in kinds})
                if note.pid > 0 and re.fullmatch(r"[0-9a-f]{32}:" + re.escape(str(run_dir)), note.mark):
                    return note
        return None

    def write(self, run_dir: Path) -> None:
        """Write this identity into a run's folder.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        untrusted_files.write(run_dir / WORKER_FILE, json.dumps(dataclasses.asdict(self)))

    @property
    def liveness(self) -> Literal["alive", "gone", "unknown"]:
        """Return whether the process is alive.

        The result is ``alive`` only if process `pid` has this start time and this mark. The result is ``unknown`` if
        the process is on another machine, belongs to another user, or was started before the machine's last boot.
        """
        if self.machine != _machine():
            return "unknown"
        try:
            if _start_ticks(self.pid) != self.start_ticks:
                return "gone"
            environment = _environment(self.pid)
        except PermissionError:
            return "unknown"
        except (OSError, ValueError):
            return "gone"
        return "alive" if reaper.entry(self.mark) in environment.split(b"\0") else "gone"


def _start_ticks(pid: int) -> int:
    # Split after the process name, which may contain any character. The start time is field 22, see proc(5).
    state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    if state == b"Z":
        raise ProcessLookupError(f"process {pid} has ended")
    return int(fields[18])


def _environment(pid: int) -> bytes:
    # A process that is just starting its program has an empty environment for a moment.
    for _ in range(_LOOKS):
        if found := Path(f"/proc/{pid}/environ").read_bytes():
            return found
        time.sleep(_LOOK_S)
    return b""


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def clear(run_dir: Path, note: Note) -> None:
    """End the remaining processes of a run whose worker is gone, and delete the run's temporary files."""
    try:
        left = bool(reaper.marked_processes(note.mark))
    except OSError:  # no free file descriptor; the next process that opens the run ends the remaining processes
        return
    if not left:
        shutil.rmtree(run_dir / SCRATCH, ignore_errors=True)
    elif not reaper.reap(None, note.mark, run_dir / SCRATCH, KILL_TIMEOUT_S):
        return
    with contextlib.suppress(OSError):
        (run_dir / WORKER_FILE).unlink()


class Worker:
    """A worker's process, started by this process or by a different one.

    Parameters
    ----------
    run_dir : Path
    pid : int
    mark : str
    child : subprocess.Popen, optional
        The process object, if this process started it.

    Raises
    ------
    OSError
        If the process is gone, or if this process has no free file descriptor.
    """

    def __init__(self, run_dir: Path, pid: int, mark: str, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self.mark = mark
        self._run_dir = run_dir
        self._child = child
        self._lock = threading.Lock()
        self._reaped = False
        self._closed = False
        self._handle: int | None = os.pidfd_open(pid)
        self._handle_lock = threading.Lock()
        self._waiting = 0
        self._output: deque[bytes] = deque()
        self._output_bytes = 0
        self._drain: threading.Thread | None = None
        if child is not None:
            self._drain = threading.Thread(target=self._read_output, name=f"output-{pid}", daemon=True)
            self._drain.start()

    @classmethod
    def of(cls, run_dir: Path, note: Note) -> Worker | None:
        """Return the process with this identity, if it is alive."""
        with contextlib.suppress(OSError):
            # Open a handle of the process before checking its identity. If the process ends and the system gives its
            # number to another process, the handle still belongs to the first process.
            found = cls(run_dir, note.pid, note.mark)
            if note.liveness == "alive":
                return found
            found._let_go()
        return None

    @property
    def is_child(self) -> bool:
        """Return whether this process started the worker."""
        return self._child is not None

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for the end of the process; return whether it has ended."""
        with self._handle_lock:
            if self._handle is None:
                return True
            handle = self._handle
            self._waiting += 1
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            return bool(poll.poll(timeout_s * 1000))
        finally:
            with self._handle_lock:
                self._waiting -= 1
                self._close_handle()

    def _let_go(self) -> None:
        with self._handle_lock:
            self._closed = True
            self._close_handle()

    def _close_handle(self) -> None:
        """Close the handle, unless a thread waits for the process.

        If the handle were closed while a thread waits, another file could get the handle's number.
        """
        if self._closed and not self._waiting and self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def kill(self) -> None:
        """Kill the process and all its children.

        Raises
        ------
        RunError
            If the process does not end.
        """
        with self._lock:
            self._reap()
        if not self.wait(KILL_TIMEOUT_S):
            raise RunError(
                f"process {self.pid} cannot be ended: it belongs to another user, or the system does not release it"
            )

    def close(self) -> int | None:
        """Wait up to `KILL_TIMEOUT_S` for the end of the process, kill its children, and delete its temporary files.

        Return the exit status; None if this process did not start the worker, or if the worker has not ended.
        """
        with self._lock:
            if not self._closed:
                ended = self.wait(KILL_TIMEOUT_S)
                self._reap()
                if self._child is not None:
                    if ended:
                        self._child.wait()
                    if self._child.stdin is not None:
                        self._child.stdin.close()
                if self._drain is not None:
                    self._drain.join(KILL_TIMEOUT_S)
                if self._reaped:  # else keep the file: a later process uses it to find the remaining processes
                    with contextlib.suppress(OSError):
                        (self._run_dir / WORKER_FILE).unlink()
                self._let_go()
            return self._child.returncode if self._child is not None else None

    def _reap(self) -> None:
        if not self._reaped:
            # A child keeps its id until this process waits for it. If a process that is not a child has ended, the
            # system may have given its id to another process.
            group = self.pid if self.is_child or not self.wait(0) else None
            self._reaped = reaper.reap(group, self.mark, self._run_dir / SCRATCH, KILL_TIMEOUT_S)

    def output(self) -> str:
        """Return the last part of the worker's output."""
        return b"".join(tuple(self._output)).decode(errors="replace")

    def _read_output(self) -> None:
        """Read the output as it is written, so that a worker that prints a lot neither blocks nor fills the disk."""
        assert self._child is not None
        assert self._child.stdout is not None
        with self._child.stdout as pipe:
            while data := os.read(pipe.fileno(), 1 << 16):
                self._output.append(data)
                self._output_bytes += len(data)
                while self._output_bytes - len(self._output[0]) > OUTPUT_BYTES:
                    self._output_bytes -= len(self._output.popleft())


def die_with_parent(*, keep_input: bool = False) -> None:
    """Make the system kill the process group when the parent closes its end of standard input.

    A thread that waits would not suffice, because a call that holds the interpreter's lock stops all threads.
    PR_SET_PDEATHSIG would not suffice, because it reacts to the end of the parent's thread, not of the parent.

    Parameters
    ----------
    keep_input : bool
        Whether standard input remains the parent's pipe. Child processes that call this function, too, need the pipe.
        If False, standard input is empty from now on.
    """
    # Open standard input a second time. Linux stores the receiver of the signal in the open file, and a child process
    # shares each open file that it inherits. A child's call would therefore replace the receiver of a file that the two
    # share.
    parent = os.open("/proc/self/fd/0", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.fcntl(parent, fcntl.F_SETOWN, -os.getpgid(0))
    fcntl.fcntl(parent, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(parent, fcntl.F_SETFL, fcntl.fcntl(parent, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(0, select.POLLHUP)
    if poll.poll(0):  # standard input was closed before the signal was set up
        os._exit(1)
    if not keep_input:
        # Replace standard input by an empty file, for programs that read it.
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)


def memory_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if the process is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def reason_over_limit(pid: int, limit_bytes: int | None) -> str:
    """Return the reason to end a process whose memory is over the limit; empty if the memory is within the limit."""
    used = memory_bytes(pid) if limit_bytes is not None else 0
    if limit_bytes is None or used <= limit_bytes:
        return ""
    return f"out of memory: {used} bytes in use, over the limit of {limit_bytes}"


def may_signal(pid: int) -> bool:
    """Return whether this user may end a process; True if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        try:
            os.kill(pid, 0)
        except PermissionError:
            return False
    return True


def reason_over_time(begun_s: float, timeout_s: float | None) -> str:
    """Return the reason to end a process that has run longer than `timeout_s`; empty if it has not."""
    if timeout_s is None or time.monotonic() - begun_s <= timeout_s:
        return ""
    return f"timeout: not done after {timeout_s:g} s"


def how_ended(status: int, when: str = "before the run was done") -> str:
    """Describe the exit status of a worker that ended without a terminal event.

    A negative status is a signal's number.
    """
    if status >= 0:
        return f"ended by itself with exit status {status} {when}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = ", by hand or by the system when memory ran out" if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
