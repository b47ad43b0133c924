"""A solver of linear programs, waited for by someone who may stop waiting."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scipy.optimize import milp

from workbench.errors import PlanError

_LOOK_S = 0.02
_HERE_S = 2.0
"""Seconds that a program of whole choices is solved in this process, before it goes to one that can be ended."""
_LONGEST_S = 120.0
"""Seconds that it may take there. Far more than what is asked for takes, for what a clock ends is another each time."""
_TIME_IS_UP = 1
"""The status of a solution that is only what was found in its time."""
_THERE = """\
import pickle, sys
from scipy.optimize import milp
with open(sys.argv[1], "rb") as asked:
    given, options = pickle.load(asked)
with open(sys.argv[2], "wb") as answer:
    pickle.dump(milp(*given, **options), answer)
"""


class _Solving(threading.Thread):
    """Calls a solver, and keeps what it returns or raises."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(name="workbench-solver", daemon=True)
        self._call = call
        self.found: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.found = self._call()
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self.error = error


def solve(go_on: Callable[[], None], solver: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """What ``solver(*given, **options)`` finds; HiGHS computes without Python's lock, so that others go on meanwhile.

    Parameters
    ----------
    go_on : callable
        Called while it solves; what it raises ends the waiting, and the solver ends by its own limit of time, unseen.
    solver : callable
    *given, **options
        For it.
    """
    solving = _Solving(lambda: solver(*given, **options))
    solving.start()
    while solving.is_alive():
        solving.join(_LOOK_S)
        if solving.is_alive():
            go_on()
    if solving.error is not None:
        raise solving.error
    return solving.found


class _Quiet:
    """Keeps from this process's standard output what HiGHS prints now and then, which nobody asked for."""

    def __init__(self) -> None:
        self._lock, self._inside, self._kept = threading.Lock(), 0, -1

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside > 1:
                return
            ctypes.CDLL(None).fflush(None)
            try:
                self._kept = os.dup(1)
            except OSError:
                return
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.close(nothing)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside or self._kept < 0:
                return
            # What C has not written yet would go out once its standard output is back.
            ctypes.CDLL(None).fflush(None)
            os.dup2(self._kept, 1)
            os.close(self._kept)
            self._kept = -1


_quiet = _Quiet()


def _quietly(*given: Any, **options: Any) -> Any:
    with _quiet:
        return milp(*given, **options)


def solve_whole(
    go_on: Callable[[], None],
    *given: Any,
    nodes: int,
    options: Mapping[str, Any] = MappingProxyType({}),
    **program: Any,
) -> Any:
    """What `scipy.optimize.milp` finds; what takes long is solved in a process that ends at once with the waiting.

    It ends by how far it has come, not by the clock, so that the same program has the same answer each time.

    Parameters
    ----------
    go_on : callable
        Called while it solves; what it raises ends the waiting and the process.
    *given, **program
        For `milp`.
    nodes : int
        Of its search, after which what it has found and proven counts.
    options : mapping
        For `milp`, beside these.

    Raises
    ------
    PlanError
        If that process ends without an answer, or never starts.
    """
    ends = {**options, "node_limit": nodes}
    found = solve(go_on, _quietly, *given, **program, options={**ends, "time_limit": _HERE_S})
    if found.status != _TIME_IS_UP:
        return found
    with tempfile.TemporaryDirectory(prefix="workbench-solver-") as folder:
        asked, answer = Path(folder, "asked"), Path(folder, "answer")
        asked.write_bytes(pickle.dumps((given, {**program, "options": {**ends, "time_limit": _LONGEST_S}})))
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _THERE, str(asked), str(answer)],
                stdin=subprocess.DEVNULL,
                # HiGHS prints a line now and then that nobody asked for: not into a command's document.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise PlanError(_dead(f"did not start: {error}")) from error
        said = b""
        try:
            while process.returncode is None:
                go_on()
                try:
                    _, said = process.communicate(timeout=_LOOK_S)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
            process.communicate()
        if process.returncode == 0:
            return pickle.loads(answer.read_bytes())
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise PlanError(_dead(f"{_ended(process.returncode)}{f': {last}' if last else ''}"))


def _ended(status: int) -> str:
    try:
        return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    except ValueError:
        return f"was killed by signal {-status}"


def _dead(how: str) -> str:
    return (
        f"the solver's process {how}; nothing was chosen. Where memory is short, close what takes it or state a larger "
        "peak, which takes less to solve; else ask again"
    )
