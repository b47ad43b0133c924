"""Run a script on ranks that are forked from one process, so that PyTorch and Thunder are imported only once."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run(folder: Path, count: int, script: Path, *arguments: object, timeout_s: float = 1700.0) -> list[Any]:
    """Start a script that calls `be_ranks`. Return, in the order of ranks, the JSON document that each rank writes.

    The script's arguments are the folder of the documents, the number of ranks, and `arguments`.
    """
    started = subprocess.Popen(
        [sys.executable, str(script), str(folder), str(count), *map(str, arguments)],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path),
        },
        start_new_session=True,
    )
    try:
        assert started.wait(timeout_s) == 0, "a rank failed; its output has the reason"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


def be_ranks(count: int, be: Callable[[int], None]) -> None:
    """Fork one child process for each rank, and call `be` in it. If a rank fails, end all ranks.

    Assert that this process has only one thread, because a fork copies only the calling thread.
    """
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: only one of them would be in the ranks"
    left = {_fork(rank, be) for rank in range(count)}
    while left:
        pid, status = os.wait()
        left.discard(pid)
        if status:
            for other in left:
                os.kill(other, signal.SIGKILL)
            raise SystemExit(1)


def _fork(rank: int, be: Callable[[int], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        be(rank)
        status = 0
    except BaseException:  # noqa: BLE001 - after any exception, the process ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
