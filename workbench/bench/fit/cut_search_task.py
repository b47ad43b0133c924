"""`CutSearchTask`: a cancellable search in a thread for cuts between fusions, with access to the best results so far.

A cut is the set of values that one fusion passes to another.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from workbench.bench.fit.cancellable_task import Background
from workbench.bench.fit.cut_search import Cuts, CutSearch

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.bench.session.workbench import Workbench


class CutSearchTask(Background):
    """A thread that computes a table of cuts. It changes no choice. `Workbench.weigh_cuts` returns it.

    Parameters
    ----------
    bench : Workbench
    machine : Machine
        Machine model for the times.

    Attributes
    ----------
    machine : Machine
    pinned : dict of str to str
        The choices made by hand. They are part of all plans of the table.
    by_hand : frozenset of str
        The sites whose options the search does not change; see `Workbench.by_hand`.
    """

    def __init__(self, bench: Workbench, machine: Machine) -> None:
        super().__init__()
        self.machine, self.pinned, self.by_hand = machine, bench.pinned, bench.by_hand
        self._cutter: CutSearch | None = None
        self._table: Cuts | None = None
        self._start("workbench-cuts", functools.partial(self._work, bench))

    @property
    def done(self) -> int:
        """Number of plans evaluated so far."""
        return 0 if self._cutter is None else self._cutter.done

    @property
    def most(self) -> int:
        """Maximum number of plans. The search ends earlier if further plans improve no figure."""
        return 0 if self._cutter is None else self._cutter.most

    @property
    def table(self) -> Cuts | None:
        """Pareto front of all results so far; None before the first result."""
        return self._table

    def __repr__(self) -> str:
        head = f"{self.done} plans weighed, {self.state}, by {self.machine.name}'s rates"
        return head if self._table is None else f"{head}\n{self._table!r}"

    def _work(self, bench: Workbench) -> None:
        self._cutter = cutter = CutSearch(bench, self.machine, self._current_table)
        self._table = cutter.table()

    def _current_table(self) -> None:
        if self._cutter is not None:
            self._table = self._cutter.current_table()
        self._notify()
        self._go_on()
