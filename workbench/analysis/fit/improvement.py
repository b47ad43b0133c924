"""Improve an assignment that is within a limit: save storages again, and recompute those that make a step faster.

An assignment sets each storage to an option: save, recompute or offload.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from workbench.analysis.fit.evaluations import Evaluations
from workbench.analysis.fit.fit_problem import LEAST_PLANS, FitProblem
from workbench.analysis.fit.lp_bound import Relaxation
from workbench.analysis.fit.option_costs import OptionCost
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE

_WORTH = 1e-4
"""A recomputation that may make a step faster is tried only if it may save more than this share of the step."""
NEAR_BOUND = 1e-3
"""A search whose evaluations need plans ends if its result exceeds the lower bound by at most this share of a step."""


class Improvement:
    """Changes single options of an assignment, as long as the result is within the limit and not slower.

    Parameters
    ----------
    problem : FitProblem
    evaluations : Evaluations
    relaxation : Relaxation
    is_near_bound : callable
        Returns whether the best known assignment within a limit is near enough to the lower bound; see
        `Rounding.is_near_bound`.
    """

    def __init__(
        self,
        problem: FitProblem,
        evaluations: Evaluations,
        relaxation: Relaxation,
        is_near_bound: Callable[[int, float], bool],
    ) -> None:
        self._problem, self._evaluations, self._relaxation = problem, evaluations, relaxation
        self._is_near_bound = is_near_bound

    def _is_enough(self, limit_bytes: int) -> bool:
        """Return whether a better result within a limit is not worth a further plan."""
        return not self._problem.quick and self._is_near_bound(limit_bytes, NEAR_BOUND)

    @cached_property
    def time_saver(self) -> OptionCost:
        """The assignment of recomputations that make a step faster; it saves everything if none is found.

        Inside of a fusion, it may take less time to recompute a value than to write it and read it again. A storage is
        tried if the lower bound of the time that its recomputation adds is far enough below 0. Storages of equal size
        and equal bound, as in equal layers, are tried together. A plan shows whether their recomputation makes a step
        faster. The most promising groups are tried first, at most `FitProblem.plan_budget` groups.
        """
        problem, best, least = self._problem, self._evaluations.stock, self._problem.rates.least
        kinds: dict[tuple[int, int], list[int]] = {}
        gains_s: dict[tuple[int, int], float] = {}
        for storage, option in problem.choices:
            if problem.quick or least is None or option != RECOMPUTE:
                continue
            gain_s = -float(least.seconds[sorted(problem.time.rows(storage))].sum()) - least.each_s.get(storage, 0.0)
            if gain_s > _WORTH * problem.step_s:
                kind = int(problem.bytes[storage]), round(gain_s / problem.step_s / _WORTH)
                kinds.setdefault(kind, []).append(storage)
                gains_s[kind] = gains_s.get(kind, 0.0) + gain_s
        for kind in sorted(kinds, key=lambda kind: -gains_s[kind])[: problem.plan_budget]:
            options = {**best.options, **dict.fromkeys(kinds[kind], RECOMPUTE)}
            tried = self._evaluations.point(problem.time.add_values_read(options, problem.remade))
            if tried.added_s < best.added_s:
                best = tried
        return best

    def save_again(self, point: OptionCost, limit_bytes: int) -> OptionCost:
        """Save storages again while the limit allows it, and return the resulting assignment."""
        return self._try_each(self.save_what_fits(point, limit_bytes), limit_bytes)

    def save_what_fits(self, point: OptionCost, limit_bytes: int) -> OptionCost:
        """Save storages again if the free bytes at all their positions suffice, and return the resulting assignment.

        Several storages are saved again at once, so this computes only a few plans. If evaluations need no plan, return
        `point` itself, because `save_again` then tries each storage.
        """
        problem, added_s_of = self._problem, self._problem.time.of
        numbers = {chosen: number for number, chosen in enumerate(problem.choices)}
        share = 1.0
        for _ in range(0 if problem.quick else LEAST_PLANS):
            if self._is_enough(limit_bytes):
                break
            left = limit_bytes - self._evaluations.peaks(point.options)
            options, added_s = dict(point.options), added_s_of(point.options)
            taken: list[int] = []
            for storage in sorted(options, key=lambda storage: -int(problem.bytes[storage])):
                number = numbers[storage, point.options[storage]]
                places = slice(self._relaxation.start[number], self._relaxation.end[number])
                size = int(problem.bytes[storage])
                without = {s: o for s, o in options.items() if s != storage}
                if left[places].min(initial=limit_bytes) >= size and (less_s := added_s_of(without)) < added_s:
                    left[places] -= size
                    options, added_s = without, less_s
                    taken.append(storage)
            taken = taken[: int(share * len(taken))]
            if not taken:
                break
            tried = self._evaluations.point({s: o for s, o in point.options.items() if s not in taken})
            if tried.peak_bytes <= limit_bytes and tried.added_s < point.added_s:
                point = tried
            else:
                share /= 2
        return point

    def _try_each(self, point: OptionCost, limit_bytes: int) -> OptionCost:
        """Try for each storage to save it again, or to change its option. Return the resulting assignment.

        A change is kept if the result is within the limit and not slower.
        """
        problem = self._problem
        tries_left = min(len(point.options) * 2, problem.change_budget) if problem.quick else problem.plan_budget
        alone = dict(zip(problem.choices, problem.time.of_choices(), strict=True))
        for storage, option in sorted(point.options.items(), key=lambda chosen: -alone[chosen]):
            without = {s: o for s, o in point.options.items() if s != storage}
            other = OFFLOAD if option == RECOMPUTE else RECOMPUTE
            tries = [without, *([{**without, storage: other}] if (storage, other) in alone else [])]
            for options in tries[:tries_left]:
                if self._is_enough(limit_bytes):
                    return point
                tries_left -= 1
                if problem.quick and problem.time.of(options) > point.added_s:
                    continue
                tried = self._evaluations.point(options)
                if tried.peak_bytes <= limit_bytes and tried.added_s <= point.added_s:
                    point = tried
                    break
        return point
