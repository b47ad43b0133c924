"""`FitProblem`: the choices that a fit may make in one joint graph, and how much work each search may do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.fit.added_time import AddedTime
from workbench.analysis.fit.option_costs import OptionRates
from workbench.analysis.memory.peak_by_statement import PeakPositions
from workbench.analysis.memory.recompute_set import Recomputer

LEAST_PLANS = 4
"""Number of plans that may be computed to improve the result for a large program, if each evaluation needs a plan."""
_PLANNED = 8_000
"""For a small program, more plans may be computed: this number, divided by the number of the program's statements."""
_TURNS = (40, 400)
"""Smallest and largest number of changes that are evaluated to improve a result. A change sets one storage's option."""
_TURNED = 400_000
"""The number of changes is this number divided by the number of the program's statements, but within `_TURNS`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitProblem:
    """The data that all searches of a fit receive.

    Attributes
    ----------
    work : Recomputer
    positions : PeakPositions
    rates : OptionRates
    choices : tuple of (int, str)
        The storages that may be recomputed or offloaded, each with the option.
    time : AddedTime
    quick : bool
        Whether an evaluation takes only milliseconds. If not, each evaluation needs a plan.
    remade : frozenset of int
        See `Chooser`.
    nodes : int
        Maximum number of nodes that the solver searches in an integer program.
    go_on : callable
        Called repeatedly while a linear program is solved. An exception from `go_on` ends the search.
    """

    work: Recomputer
    positions: PeakPositions
    rates: OptionRates
    choices: tuple[tuple[int, str], ...]
    time: AddedTime
    quick: bool
    remade: frozenset[int]
    nodes: int
    go_on: Callable[[], None]

    @property
    def bytes(self) -> NDArray[np.int64]:
        """Bytes of each storage."""
        return self.work.graph.storages.bytes

    @property
    def step_s(self) -> float:
        """Seconds of a step if everything is saved."""
        return float(self.rates.seconds[self.work.graph.statements.parent < 0].sum())

    @property
    def plan_budget(self) -> int:
        """Number of plans that may be computed to improve a result, if each evaluation needs a plan."""
        return max(LEAST_PLANS, _PLANNED // max(1, self.positions.count))

    @property
    def change_budget(self) -> int:
        """Number of changes of one storage's option that may be evaluated, if evaluations need no plan."""
        least, most = _TURNS
        return max(least, min(most, _TURNED // max(1, self.positions.count)))
