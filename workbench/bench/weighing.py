"""`Weighing`: other cuts between fusions weighed beside other work, with the best so far, until it is cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.bench.cutting import Cuts, Cutter
from workbench.errors import WorkbenchError

if TYPE_CHECKING:
    from workbench.analysis.machines import Machine
    from workbench.bench.bench import Workbench


class _Cancelled(Exception):
    """Nobody waits for the table any more."""


class Weighing:
    """A table of cuts as it is made in a thread; nothing is changed. Made by `Workbench.weigh_cuts`.

    Parameters
    ----------
    bench : Workbench
    machine : Machine
        Whose rates the times rest on.

    Attributes
    ----------
    machine : Machine
    pinned : dict of str to str
        Choices made by hand, beside which the cuts are.
    error : WorkbenchError or None
        What ended it, if something did.
    """

    def __init__(self, bench: Workbench, machine: Machine) -> None:
        self.machine, self.pinned = machine, bench.pinned
        self.error: WorkbenchError | None = None
        self._cutter: Cutter | None = None
        self._table: Cuts | None = None
        self._stop, self._ended = threading.Event(), False
        self._observers: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._work, args=(bench,), name="workbench-cuts", daemon=True)
        self._thread.start()

    @property
    def done(self) -> int:
        """Plans weighed so far."""
        return 0 if self._cutter is None else self._cutter.done

    @property
    def most(self) -> int:
        """Plans after which the table is taken as it is; it is made of fewer where these gain nothing more."""
        return 0 if self._cutter is None else self._cutter.most

    @property
    def table(self) -> Cuts | None:
        """What nothing beats of all that was weighed so far; None before anything was."""
        return self._table

    @property
    def state(self) -> str:
        """``working``, ``done``, ``cancelled`` or ``failed``."""
        if not self._ended:
            return "working"
        if self.error is not None:
            return "failed"
        return "cancelled" if self._stop.is_set() else "done"

    def observe(self, callback: Callable[[], None]) -> None:
        """Call `callback` from the thread before each plan, and at the end."""
        self._observers.append(callback)

    def cancel(self) -> None:
        """Stop with the plan that is being made; what was found stays."""
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> Weighing:
        """Wait until it is done or cancelled.

        Raises
        ------
        WorkbenchError
            What ended it, if something did.
        """
        self._thread.join(timeout_s)
        if self.error is not None:
            raise self.error
        return self

    def __repr__(self) -> str:
        head = f"{self.done} plans weighed, {self.state}, by {self.machine.name}'s rates"
        return head if self._table is None else f"{head}\n{self._table!r}"

    def _work(self, bench: Workbench) -> None:
        try:
            self._cutter = cutter = Cutter(bench, self.machine, self._go_on)
            self._table = cutter.table()
        except _Cancelled:
            pass
        except WorkbenchError as error:
            self.error = error
        finally:
            self._ended = True
            self._tell()

    def _go_on(self) -> None:
        if self._cutter is not None:
            self._table = self._cutter.so_far()
        self._tell()
        if self._stop.is_set():
            raise _Cancelled

    def _tell(self) -> None:
        for callback in tuple(self._observers):
            callback()
