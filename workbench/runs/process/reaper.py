"""End all that a run started and take away its temporary files: a program, so that a busy kernel does not delay it.

In a kernel with a busy cell, each access to ``/proc`` and each deletion of a file waits some milliseconds for the
interpreter's lock, and there are a thousand of them. A separate process has its own lock. It starts in a thirtieth of a
second, since it needs only the standard library.
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
"""Environment variable that a worker and everything it starts carry; its value is the run's own."""


def reap(group: int | None, mark: str, scratch: Path, timeout_s: float) -> bool:
    """Kill a process group and all that carry the mark, until none is left, and delete the temporary files.

    Parameters
    ----------
    group : int, optional
        Id of the group's first process, where it is certain that it still belongs to this group.
    mark : str
        Mark of the run; processes in groups of their own, such as compilers' helpers, carry it too.
    scratch : Path
        Folder that is deleted, as far as it can be.
    timeout_s : float
        When to give up on processes that will not die; the system is then busy on their behalf.

    Returns
    -------
    bool
        Whether none is left.
    """
    if group is not None:
        # Do this here: it waits for nothing, and processes that keep running would slow the search for the rest.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    try:
        command = [sys.executable, "-I", "-S", __file__, mark, str(scratch), str(timeout_s)]
        # With `close_fds` the start itself would wait for the lock a few times more.
        done = subprocess.run(command, close_fds=False, check=False).returncode == 0
    except OSError:  # no memory or no process number is left
        done = False
    return done or _reap(mark, scratch, timeout_s)


def entry(mark: str) -> bytes:
    """Return the environment entry of a process that carries a mark."""
    return os.fsencode(f"{MARK}={mark}")


def marked(mark: str) -> list[int]:
    """Ids of the processes that carry a mark and run."""
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
    # Again until none is found: one may have been forked while the others were listed.
    while not none_left and time.monotonic() < deadline_s:
        try:
            left = marked(mark)
        except OSError:  # no descriptor is left, for the moment
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
