"""A solver of linear programs, waited for by someone who may stop waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_LOOK_S = 0.02


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
