"""Solve linear programs in a thread, and integer programs in a separate process.

An integer program may take long. A process can be killed at any time, a thread cannot.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from types import MappingProxyType
from typing import Any

from workbench.errors import PlanError

_LOOK_S = 0.02
_LONGEST_S = 120.0
"""Time limit of the solver for one program, in seconds.

This time limit is only a safeguard, because the number of nodes normally limits a search. Results with a limit of nodes
are reproducible.
"""
_IDLE_S = 5.0
"""Seconds after which an idle solver process is ended."""
_THERE = """\
import sys
from multiprocessing.connection import Connection
from scipy.optimize import milp
with Connection(int(sys.argv[1])) as asked:
    while True:
        try:
            given, options = asked.recv()
        except EOFError:
            break
        asked.send(milp(*given, **options))
"""


class _Solving(threading.Thread):
    """A thread that calls a solver, and stores the result or the exception."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(name="workbench-solver", daemon=True)
        self._call = call
        self.found: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.found = self._call()
        except Exception as error:  # noqa: BLE001 - `solve` raises it
            self.error = error


def solve(go_on: Callable[[], None], solver: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Call ``solver(*given, **options)`` in a thread, and return its result.

    The solver, HiGHS, releases the interpreter's lock, so other threads run meanwhile.

    Parameters
    ----------
    go_on : callable
        Called repeatedly while the solver runs. An exception from `go_on` leaves this function; the solver's thread
        continues until the solver returns.
    solver : callable
    *given, **options
        Arguments of `solver`.
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


class _Process:
    """A process that solves one integer program after another, and ends when its parent process ends.

    HiGHS sometimes prints a line to file descriptor 1, and no option prevents this. The output of the solver process is
    discarded, so that this line does not appear in the output of the user's process.

    Raises
    ------
    PlanError
        If the process does not start.
    """

    def __init__(self) -> None:
        self._connection, there = Pipe()
        self._ending: threading.Timer | None = None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _THERE, str(there.fileno())],
                pass_fds=[there.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            self._connection.close()
            raise PlanError(_process_died(f"did not start: {error}")) from error
        finally:
            there.close()

    def answer(self, go_on: Callable[[], None], request: Any) -> Any:
        """Send a request, and return the answer of the process. Call `go_on` repeatedly while waiting."""
        try:
            self._connection.send(request)
        except OSError:
            raise self._end_reason() from None
        while not self._connection.poll(_LOOK_S):
            go_on()
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            raise self._end_reason() from None

    def _end_reason(self) -> PlanError:
        assert self._process.stderr is not None
        last = self._process.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        return PlanError(_process_died(f"{_describe_exit(self._process.wait())}{f': {last}' if last else ''}"))

    def end(self) -> None:
        """Kill the process, and close its pipes."""
        self.keep_on()
        self._connection.close()
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def end_later(self) -> None:
        """End the process in `_IDLE_S` seconds, unless `keep_on` is called before."""
        self._ending = threading.Timer(_IDLE_S, _end_idle, (self,))
        self._ending.daemon = True
        self._ending.start()

    def keep_on(self) -> None:
        """Cancel a pending `end_later`."""
        if self._ending is not None:
            self._ending.cancel()

    def forget(self) -> None:
        """In a forked process: close the copy of the connection, because the solver process belongs to the parent."""
        self._connection.close()


_lock = threading.Lock()
_idle: list[_Process] = []
_of_parent: list[_Process] = []
"""In a forked process, the parent's solver processes. They stay referenced, so that Python does not collect them."""


def _end_idle(process: _Process) -> None:
    with _lock:
        if process not in _idle:
            return
        _idle.remove(process)
    process.end()


@atexit.register
def end_idle() -> None:
    """End all idle solver processes immediately."""
    while _idle:
        _idle.pop().end()


def _forget_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    for process in _idle:
        process.forget()
    _of_parent.extend(_idle)
    _idle.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def solve_whole(
    go_on: Callable[[], None],
    *given: Any,
    nodes: int,
    options: Mapping[str, Any] = MappingProxyType({}),
    **program: Any,
) -> Any:
    """Call `scipy.optimize.milp` in a separate process, and return its result.

    `nodes` limits the search, so that equal programs have equal results. Time stops only a search that takes more than
    `_LONGEST_S` seconds.

    Parameters
    ----------
    go_on : callable
        Called repeatedly while the solver runs. An exception from `go_on` leaves this function and ends the process.
    *given, **program
        Arguments of `milp`.
    nodes : int
        Maximum number of nodes that the solver searches. At the limit, it returns its best result so far.
    options : mapping
        Further options of `milp`.

    Raises
    ------
    PlanError
        If the process ends without an answer, or does not start.
    """
    asked = (given, {**program, "options": {**options, "node_limit": nodes, "time_limit": _LONGEST_S}})
    with _lock:
        process = _idle.pop() if _idle else None
    if process is None:
        process = _Process()
    process.keep_on()
    try:
        found = process.answer(go_on, asked)
    except BaseException:
        process.end()
        raise
    with _lock:
        _idle.append(process)
    process.end_later()
    return found


def _describe_exit(status: int) -> str:
    try:
        return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    except ValueError:
        return f"was killed by signal {-status}"


def _process_died(reason: str) -> str:
    return (
        f"the solver's process {reason}; nothing was chosen. If memory is short, close other programs or set a "
        "higher limit for the peak, for which the solver needs less memory; otherwise try again"
    )
