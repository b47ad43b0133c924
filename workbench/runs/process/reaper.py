"""End all processes of a run and delete its temporary files, in a separate program that a busy kernel does not delay.

In a kernel with a busy cell, each access to ``/proc`` and each deletion of a file waits some milliseconds for the
interpreter's lock, and a thousand of these are necessary. A separate process has its own lock. It starts in a thirtieth
of a second, because it needs only the standard library.
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
        Id of the group's first process, if the id certainly still belongs to this group.
    mark : str
        Mark of the run; processes in groups of their own, such as compilers' helpers, also have it.
    scratch : Path
        Folder to delete, as far as possible.
    timeout_s : float
        Time after which to give up on processes that do not die, because the system is still busy with them.

    Returns
    -------
    bool
        Whether none is left.
    """
    if group is not None:
        # Do this here, because it does not wait, and running processes would slow the search for the others.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    try:
        command = [sys.executable, "-I", "-S", __file__, mark, str(scratch), str(timeout_s)]
        # With `close_fds` the start itself would wait for the lock several times.
        done = subprocess.run(command, close_fds=False, check=False).returncode == 0
    except OSError:  # there is no memory or process number left
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
    # Repeat until none is found, because one may have been forked while the others were listed.
    while not none_left and time.monotonic() < deadline_s:
        try:
            left = marked_processes(mark)
        except OSError:  # there is no descriptor left at the moment
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
    # An interrupt of a kernel goes to its whole process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(0 if _reap(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])) else 1)
