"""Processes of a run: found again by a mark in their environment, killed without leaving any behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

MARK = "WORKBENCH_RUN"
"""Environment variable that a worker and everything it starts carry; its value is the run's own."""


def is_alive(pid: int, created_s: float) -> bool:
    """Whether a process is still the one that was created then, and runs."""
    try:
        process = psutil.Process(pid)
        same = abs(float(process.create_time()) - created_s) < 0.1
        return same and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def marked(mark: str) -> list[int]:
    """Ids of the processes that carry a mark and run."""
    entry = f"{MARK}={mark}".encode()
    return [pid for pid in psutil.pids() if entry in _environment(pid).split(b"\0")]


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's
        return b""


def kill_all(group: int | None, mark: str, timeout_s: float) -> list[int]:
    """Kill a process group, and all that carry the mark, until none is left.

    Parameters
    ----------
    group : int, optional
        Id of the group's first process, where it is known still to stand for this group.
    mark : str
        What the program started in groups of its own, as compilers do with their helpers, carries it too.
    timeout_s : float
        When to give up.

    Returns
    -------
    list of int
        Ids of processes that would not die in time; the system is then busy on their behalf.
    """
    deadline = time.monotonic() + timeout_s
    if group is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    # Again until none is found: one may have been forked while the others were listed.
    while left := marked(mark):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.002)
    return left


def memory_bytes(pid: int) -> int:
    """Resident memory of a process; 0 once it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def over_limit(pid: int, limit_bytes: int | None) -> str:
    """Why a process has to end for the memory that it takes; empty where it keeps the limit, or there is none."""
    used = memory_bytes(pid) if limit_bytes is not None else 0
    if limit_bytes is None or used <= limit_bytes:
        return ""
    return f"out of memory: {used} bytes in use, over the limit of {limit_bytes}"


def over_time(begun_s: float, timeout_s: float | None) -> str:
    """Why what began then, on the monotonic clock, has to end for the time it takes; empty where it may go on."""
    if timeout_s is None or time.monotonic() - begun_s <= timeout_s:
        return ""
    return f"timeout: not done after {timeout_s:g} s"


def how_ended(status: int) -> str:
    """What an exit status says of a worker that ended without a last word; negative is a signal's number."""
    if status >= 0:
        return f"ended by itself with exit status {status} before the run was done"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = ", by hand or by the system when memory ran out" if -status == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"
