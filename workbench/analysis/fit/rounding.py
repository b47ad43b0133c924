"""Find an assignment within a limit on peak memory, and a lower bound on the step time of the best assignment.

An assignment sets each storage to an option: save, recompute or offload.

In the linear program of `lp_bound`, a choice is a number from 0 to 1, such as 0.3 for a storage that is recomputed to
30 %. This module searches for choices that are 0 or 1. It rounds the fractions first. Then `scipy.optimize.milp` solves
an integer program with few memory rows; each memory row limits the bytes at one position. An exact prediction shows at
which positions the memory exceeds the limit. Rows for these positions are added, and the program is solved again, until
no position exceeds the limit.

Equal choices of equal layers are merged first, because the merged program takes a hundredth of the time. If the result
is not close to the bound, a program with all choices is solved. While no assignment within the limit is known, programs
are solved with a loose tolerance, because their solutions only serve to find further rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.fit.lp_bound import Bound, IntegerFacts, LimitedProgram, Relaxation

SOLVED_TO = 1e-4
"""Relative gap between the solver's solution and its bound at which the solver stops."""
_LOOSELY = 5e-2
"""Relative gap at which the solver stops while no assignment within the limit is known."""
_ROUNDS = 40
_SOLVINGS = 6
"""Largest number of integer programs that are solved for one limit, if each search stops at its limit of nodes."""
_SOLVED = 0.1
"""`_SOLVINGS` counts a program with this weight if its search ends before the limit of nodes, and else with 1."""
_FOLDED_NODES = 100
"""Smallest limit of nodes for a program with merged layers. A node of such a program takes little time."""
_PLACES_PER_ROUND = 40
_NOTHING = 1e-6
"""Fractions below this count as 0."""
_TOLERANCE = 1e-6
"""Largest tolerance with which the solver satisfies a row."""
_ROUNDED = 1e-12
"""Relative error of a bound by rounding: the solver adds up the same times as a prediction, in another order."""


class RoundedOptions(Protocol):
    """An assignment of options to storages, with its memory and time."""

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive at once in a step."""

    @property
    def added_s(self) -> float:
        """Seconds added to a step."""

    @property
    def options(self) -> Mapping[int, str]:
        """Map from each storage that is not saved to its option."""


class Rounding[P: RoundedOptions]:
    """Finds integer assignments and lower bounds for different limits of one program.

    Parameters
    ----------
    relaxation : Relaxation
    evaluate : callable
        Returns the cost of an assignment, and the peak bytes at each position.
    fastest_known : callable
        Returns the fastest evaluated assignment within a limit; None if there is none.
    frees : callable
        Returns, for a position, the bytes that each choice frees there if it is the only choice, or an upper bound.
    step_s : float
        Seconds of a step if everything is saved.
    nodes : int
        Maximum number of nodes that the solver searches in an integer program.
    go_on : callable
        Called repeatedly while a program is solved. An exception from `go_on` ends the search.
    """

    def __init__(
        self,
        relaxation: Relaxation,
        evaluate: Callable[[Mapping[int, str]], tuple[P, NDArray[np.int64]]],
        fastest_known: Callable[[int], P | None],
        frees: Callable[[int], NDArray[np.float64]],
        *,
        step_s: float,
        nodes: int,
        go_on: Callable[[], None],
    ) -> None:
        self._relaxation, self._evaluate, self._known, self._frees = relaxation, evaluate, fastest_known, frees
        self._step_s, self._nodes, self._go_on = step_s, nodes, go_on
        self._programs: dict[int, tuple[LimitedProgram, Bound]] = {}
        self._proven: dict[int, float] = {}

    # Bounds for a limit.

    def bound(self, limit_bytes: int) -> Bound:
        """Return the best known lower bound on the cost of all assignments within a limit."""
        bound = self._program(limit_bytes)[1]
        # A lower bound of the time for a larger limit also holds for a smaller limit.
        proven_s = max((added_s for limit, added_s in self._proven.items() if limit >= limit_bytes), default=-np.inf)
        added_s = max(bound.added_s, proven_s)
        return Bound(added_s=added_s * (1 - math.copysign(_ROUNDED, added_s)), s_per_byte=bound.s_per_byte)

    def gap(self, point: RoundedOptions, limit_bytes: int) -> float:
        """Return how much slower `point` may be than the best assignment within a limit, as a share of its step time.

        The share is an upper bound, because it is computed from the lower bound on the time of the best assignment.
        """
        return max(0.0, point.added_s - self.bound(limit_bytes).added_s) / (self._step_s + point.added_s)

    def is_near_bound(self, limit_bytes: int, gap: float) -> bool:
        """Return whether the best known assignment within a limit is close enough to the bound to end the search.

        This holds if the difference is at most `gap`, as a share of the step time, or at most the solver's tolerance.
        It also holds if it is proven that no assignment meets the limit.
        """
        known = self._known(limit_bytes)
        if known is None:
            return self._proven.get(limit_bytes, -np.inf) == np.inf
        least_s = self.bound(limit_bytes).added_s
        return known.added_s <= least_s * (1 + SOLVED_TO) or self.gap(known, limit_bytes) <= gap

    def _program(self, limit_bytes: int) -> tuple[LimitedProgram, Bound]:
        """Return the program for a limit, and its bound with fractional choices."""
        if limit_bytes not in self._programs:
            under = self._relaxation.program_for(limit_bytes)
            self._programs[limit_bytes] = under, under.bound(self._go_on)
        return self._programs[limit_bytes]

    # Search for an assignment within a limit.

    def close_gap(self, limit_bytes: int, gap: float = 0.0) -> None:
        """Search for assignments within a limit until the best known one is close to the bound.

        The search also ends after `_SOLVINGS` programs.

        Parameters
        ----------
        limit_bytes : int
        gap : float, optional
            See `is_near_bound`.
        """
        pure, left = self._program(limit_bytes)[0], float(_SOLVINGS)
        if not self.is_near_bound(limit_bytes, gap):
            self._round(pure.fractions, limit_bytes)
        # Solve with merged layers first. This program is far smaller, but its solution may violate the original rows.
        for folds in (True, False):
            under, to = pure, _LOOSELY
            if self.is_near_bound(limit_bytes, gap):
                return
            for _ in range(_ROUNDS):
                found = self._solve(under, limit_bytes, folds, to) if left > 0 else None
                if found is None:
                    break
                left -= 1.0 if found.limited else _SOLVED
                # A row may be a guess that forbids good choices. Without guesses, the solver's bound holds.
                if not under.has_guesses:
                    self._proven[limit_bytes] = max(self._proven.get(limit_bytes, -np.inf), found.proven_s)
                if found.taken is None:
                    break
                point, peaks = self._evaluate(self._relaxation.options(np.flatnonzero(found.taken > 0.5).tolist()))
                if point.peak_bytes > limit_bytes and self._learn(under, point, peaks, limit_bytes):
                    continue
                if gap and self.is_near_bound(limit_bytes, gap):
                    return
                # Solve again with the small tolerance, because a loose solution may recompute more than necessary.
                if to > SOLVED_TO:
                    to = SOLVED_TO
                elif folds or point.peak_bytes <= limit_bytes:
                    break
                else:
                    # Add guesses only to a copy, because a program with guesses proves no bound.
                    under = under.copy()
                    self._correct(under, point, peaks, limit_bytes)

    def _round(self, x: NDArray[np.float64], limit_bytes: int) -> None:
        """Evaluate the choices with the largest fractions in `x`. By bisection, find how many of them are necessary."""
        order = [number for number in np.argsort(-x, kind="stable").tolist() if x[number] > _NOTHING]
        low, high = sum(bool(x[number] > 1 - _NOTHING) for number in order), len(order)
        point, _ = self._evaluate(self._relaxation.options(order))
        while low < high and point.peak_bytes <= limit_bytes:
            middle = (low + high) // 2
            tried, _ = self._evaluate(self._relaxation.options(order[:middle]))
            if tried.peak_bytes <= limit_bytes:
                high = middle
            else:
                low = middle + 1

    def _solve(self, program: LimitedProgram, limit_bytes: int, folds: bool, gap: float) -> IntegerFacts | None:
        if folds:
            return program.solve_merged(self._go_on, nodes=max(self._nodes, _FOLDED_NODES), gap=gap / 4)
        known = self._known(limit_bytes)
        return program.solve_integer(
            self._go_on, nodes=self._nodes, gap=gap, below_s=np.inf if known is None else known.added_s
        )

    # Learning from assignments that exceed a limit.

    def _learn(self, program: LimitedProgram, point: P, peaks: NDArray[np.int64], limit_bytes: int) -> bool:
        """Add rows that the assignment of `point` violates and that all assignments within the limit satisfy.

        Return whether at least one of the rows is new.
        """
        places = _highest(peaks, limit_bytes)
        asked = [program.add_memory_row(place) for place in places]
        return program.add_presence_rows(point.options, places) or any(asked)

    def _correct(self, program: LimitedProgram, point: P, peaks: NDArray[np.int64], limit_bytes: int) -> None:
        """Add rows as `_learn` does. If no row is new, add guesses: rows that are exact only near `point`.

        The rows of `_learn` are also added to the program that proves the bound.
        """
        pure = self._programs[limit_bytes][0]
        if program is not pure:
            self._learn(pure, point, peaks, limit_bytes)
        if self._learn(program, point, peaks, limit_bytes):
            return
        taken = self._relaxation.choice_vector(point.options)
        if not program.differs_from_last(taken):
            # The solver returned the same choices again, within its tolerance, so increase the margin of the rows.
            program.beyond = max(_TOLERANCE, 2 * program.beyond)
        for place in _highest(peaks, limit_bytes):
            freed = self._frees(place)
            if np.maximum(freed, 0) @ (1 - taken) + np.maximum(-freed, 0) @ taken < peaks[place] - limit_bytes:
                # A row from `guess` would not exclude these choices, because it adds up the bytes that each choice
                # frees alone. Therefore exclude exactly this combination.
                program.refuse(taken)
            else:
                program.guess(freed, float(peaks[place]) - limit_bytes + float(freed @ taken))


def _highest(peaks: NDArray[np.int64], limit_bytes: int) -> list[int]:
    """Return the positions that exceed a limit, highest first; at most `_PLACES_PER_ROUND`."""
    over = np.flatnonzero(peaks > limit_bytes)
    highest: list[int] = over[np.argsort(-peaks[over], kind="stable")][:_PLACES_PER_ROUND].tolist()
    return highest
