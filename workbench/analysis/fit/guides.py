"""`Guides`: approximate choosers, whose assignments are evaluated exactly.

An assignment sets each storage to an option: save, recompute or offload. If each evaluation of an assignment needs
a plan, a search can try only a few assignments. A guide is a chooser (see `budget_solver`) that evaluates assignments
approximately, in milliseconds. Its results are evaluated exactly, and the difference is added to its later predictions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from workbench.analysis.fit.evaluations import Evaluations
from workbench.analysis.fit.fit_problem import LEAST_PLANS, FitProblem
from workbench.analysis.fit.improvement import NEAR_BOUND
from workbench.analysis.fit.option_costs import OptionCost
from workbench.analysis.fit.rounding import Rounding

if TYPE_CHECKING:
    from workbench.analysis.fit.budget_solver import Chooser

GUIDE_NODES = 1
"""Maximum number of nodes for a guide. One node is enough, because a guide's result is approximate."""
_AIMS = 8
"""Largest number of results of one guide that one pass evaluates exactly; each evaluation needs a plan."""
_NEAR = 0.01
"""Share that decides whether the result of a guide is close enough, so that the guide does not search again.

The result is close enough if its peak memory is at most this share below the limit. After the first guide, no further
guide searches if the time of the best known assignment exceeds the lower bound by at most this share of a step.
"""


class Guides:
    """Asks guides one after another, and evaluates their assignments exactly.

    Parameters
    ----------
    problem : FitProblem
    evaluations : Evaluations
        Gets the exact costs of the guides' assignments.
    rounding : Rounding
        Has the lower bounds at which the guides need not search further.
    make : sequence of callable
        Each callable returns a guide. The first guide predicts plans most exactly. The other guides reach lower peaks,
        but need many more plans.
    """

    def __init__(
        self,
        problem: FitProblem,
        evaluations: Evaluations,
        rounding: Rounding[OptionCost],
        make: Sequence[Callable[[], Chooser]],
    ) -> None:
        self._problem, self._evaluations, self._rounding = problem, evaluations, rounding
        self._make = tuple(functools.cache(one) for one in make)

    def __len__(self) -> int:
        return len(self._make)

    def __getitem__(self, number: int) -> Chooser:
        """Return a guide. It is made when it is first needed."""
        return self._make[number]()

    def corrected(self, number: int) -> Chooser:
        """Return a guide whose predicted peaks are exact for the assignment that saves everything."""
        guide = self[number]
        return guide.with_correction(self._evaluations.stock_peaks - guide.evaluations.stock_peaks)

    def exact(self, guide: Chooser, point: OptionCost) -> OptionCost:
        """Return the exact cost of a guide's assignment.

        If one of its recomputations reads a storage in `FitProblem.remade`, this storage is recomputed, too.
        """
        problem, options, candidates = self._problem, point.options, self._problem.remade
        if guide.stands_for is not None:
            options = guide.stands_for(options)
        else:
            candidates -= {storage for storage, _ in guide.choices}
        return self._evaluations.point(problem.time.add_values_read(options, candidates))

    def fit(self, limit_bytes: int, below_s: float) -> OptionCost | None:
        """Evaluate results of the guides exactly, and return the fastest known assignment within a limit.

        Return None if there are no guides, or if no assignment within the limit is known.
        """
        for number in range(len(self)):
            if self._rounding.is_near_bound(limit_bytes, _NEAR if number else NEAR_BOUND):
                break
            if self._fit_by(self[number], limit_bytes, below_s) and self._problem.plan_budget == LEAST_PLANS:
                break
        return self._evaluations.fastest(limit_bytes) if len(self) else None

    def _fit_by(self, guide: Chooser, limit_bytes: int, below_s: float) -> bool:
        """Compute plans under the assignments that a guide finds. Return whether at least one plan is within the limit.

        After each plan, the difference between the plan's peaks and the guide's prediction is added to the predictions
        of the guide, and the guide searches again.
        """
        fits = False
        more = self._evaluations.stock_peaks - guide.evaluations.stock_peaks
        asked: set[frozenset[tuple[int, str]]] = set()
        for _ in range(_AIMS):
            nearer = guide.with_correction(more)
            if asked and nearer.bound(limit_bytes).added_s >= below_s:
                break
            point = nearer.fit(limit_bytes) or nearer.least()
            key = frozenset(point.options.items())
            found = self.exact(guide, point)
            fits |= found.peak_bytes <= limit_bytes
            close = (1 - _NEAR) * limit_bytes <= found.peak_bytes <= limit_bytes
            if close or key in asked or self._rounding.is_near_bound(limit_bytes, NEAR_BOUND):
                break
            asked.add(key)
            peaks = self._evaluations.peaks(found.options)
            seen = peaks - guide.evaluations.peaks(point.options)
            over = found.peak_bytes > limit_bytes and nearer.fastest_known(limit_bytes) is not None
            more = np.where(peaks > limit_bytes, np.maximum(more, seen), more) if over else seen
        # If no plan is within the limit, try other assignments that the guide has evaluated.
        for point in nearer.evaluations.within(limit_bytes)[:_AIMS]:
            if fits:
                break
            fits = self.exact(guide, point).peak_bytes <= limit_bytes
        return fits

    def lower_peak(self, floor_bytes: int) -> None:
        """Compute plans under the assignments for which the guides predict the least peak memory.

        The search ends when the lower bound of peak memory is reached: `floor_bytes`, or a higher bound of a guide.
        """
        for number in range(len(self)):
            self._lower_peak_by(self[number], floor_bytes)

    def _lower_peak_by(self, guide: Chooser, floor_bytes: int) -> None:
        asked: set[frozenset[tuple[int, str]]] = set()
        apart = self._evaluations.stock_peaks - guide.evaluations.stock_peaks
        for more in (apart, np.zeros_like(apart)):
            # In the second pass, `more` is zero at first. Without a correction, the guide's bound does not hold for
            # plans, so it is not used.
            bound_bytes = floor_bytes
            for _ in range(_AIMS):
                nearer = guide.with_correction(more)
                if more.any():
                    bound_bytes = max(floor_bytes, nearer.floor_bytes)
                if self._evaluations.lowest().peak_bytes <= bound_bytes:
                    break
                point = nearer.least()
                key = frozenset(point.options.items())
                if key in asked:
                    break
                asked.add(key)
                found = self.exact(guide, point)
                more = self._evaluations.peaks(found.options) - guide.evaluations.peaks(point.options)
