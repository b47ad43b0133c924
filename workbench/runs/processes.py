"""Processes of a run: whether they live, keep their limits, and how they ended."""

from __future__ import annotations

import signal
import time

import psutil


def is_alive(pid: int, created_s: float) -> bool:
    """Whether a process is still the one that was created then, and runs."""
    try:
        process = psutil.Process(pid)
        same = abs(float(process.create_time()) - created_s) < 0.1
        return same and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


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
