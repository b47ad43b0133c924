"""End all processes of a run and delete its temporary files, in a separate program that a busy kernel does not delay.

In a kernel with a busy cell, each access to ``/proc`` and each deletion of a file waits some milliseconds for the
interpreter's lock, and about a thousand accesses are necessary. A separate process has a lock of its own. This program
starts in a thirtieth of a second, because it needs only the standard library.
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
"""Environment variable that a worker and all processes it starts have; its value identifies the run."""


def reap(group: int | None, mark: str, scratch: Path, timeout_s: float) -> bool:
    """Kill a process group and all processes with the mark, until none is left, and delete the temporary files.

    Parameters
    ----------
    group : int, optional
        Id of the process group; None if the id may by now belong to a different group.
    mark : str
        Mark of the run. Processes in groups of their own, such as compilers' helpers, have the mark, too.
    scratch : Path
        Folder to delete, as far as possible.
    timeout_s : float
        Time after which to give up on processes that do not die, because the system is still busy with them.

    Returns
    -------
    bool
        Whether no process with the mark is left.
    """
    if group is not None:
        # Kill the group here, because this does not wait. Running processes would slow down the search for the others.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    try:
        command = [sys.executable, "-I", "-S", __file__, mark, str(scratch), str(timeout_s)]
        # With `close_fds` the start itself would wait for the lock several times.
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
    except OSError:  # gone, or another user's
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
    # Ignore interrupts, because an interrupt of a kernel goes to the kernel's whole process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(0 if _reap(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])) else 1)
