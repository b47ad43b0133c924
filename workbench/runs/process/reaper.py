"""End a run's processes and delete its temporary files, in a separate program that a busy Jupyter kernel cannot delay.

The work needs about a thousand accesses to ``/proc``. In a Jupyter kernel with a busy cell, each access and each
deletion of a file would wait some milliseconds for the interpreter's lock. A separate process has a lock of its own.
This program starts in a thirtieth of a second, because it needs only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "WORKBENCH_RUN"
"""Environment variable of a worker and of all processes that it starts. Its value, the mark, identifies the run."""


def reap(group: int | None, mark: str, scratch: Path, timeout_s: float) -> bool:
    """Kill a process group and all processes with the mark, until no such process runs; delete the temporary files.

    Parameters
    ----------
    group : int, optional
        Id of the process group; None if the id may by now belong to a different group.
    mark : str
        Mark of the run. Processes in groups of their own, such as compilers' helpers, have the mark, too.
    scratch : Path
        Folder to delete, as far as possible.
    timeout_s : float
        Time to wait for processes that do not die at once, for example because a driver still holds them.

    Returns
    -------
    bool
        Whether no process with the mark is left.
    """
    if group is not None:
        # Kill the group here, because `killpg` returns at once. Processes that still run would slow down the search.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    try:
        command = [sys.executable, "-I", "-S", __file__, mark, str(scratch), str(timeout_s)]
        # With `close_fds`, starting the program would itself wait for the interpreter's lock several times.
        done = subprocess.run(command, close_fds=False, check=False).returncode == 0
    except OSError:  # no memory or process number is left
        done = False
    return done or _reap(mark, scratch, timeout_s)


def entry(mark: str) -> bytes:
    """Return the environment entry of a process that carries a mark."""
    return os.fsencode(f"{MARK}={mark}")


def marked_processes(mark: str) -> list[int]:
    """Return the ids of running processes with a mark."""
    wanted = entry(mark)
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and wanted in _environment(pid).split(b"\0")]


def _environment(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # the process is gone, or belongs to another user
        return b""


def _reap(mark: str, scratch: Path, timeout_s: float) -> bool:
    deadline_s = time.monotonic() + timeout_s
    none_left = False
    # Repeat until no process is found, because a process may fork while the processes are listed.
    while not none_left and time.monotonic() < deadline_s:
        try:
            left = marked_processes(mark)
        except OSError:  # no file descriptor is left at the moment
            time.sleep(0.05)
            continue
        none_left = not left
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if left:
            time.sleep(0.002)
    shutil.rmtree(scratch, ignore_errors=True)
    return none_left


if __name__ == "__main__":
    # Ignore interrupts, because an interrupt of a Jupyter kernel goes to the whole process group of that kernel.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(0 if _reap(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])) else 1)
