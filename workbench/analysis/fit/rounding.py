"""Find integer options within a limit, and a lower bound on the time of the best options.

The fractional choices of the bound are rounded first. Then `scipy.optimize.milp` solves an integer program with few
memory rows. Exact prediction shows at which places the memory exceeds the limit. Rows for these places are added, and
the program is solved again, until no place exceeds the limit. At first, equal choices of equal layers are merged, which
takes a hundredth of the time. If the result exceeds the limit, a program with all choices is solved. As long as no
options within the limit are known, programs are solved with a loose tolerance, because their solutions only serve to
find further rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.fit.lp_bound import Bound, IntegerFacts, LimitedProgram, Relaxation

SOLVED_TO = 1e-4
"""Relative gap between the solver's solution and its bound at which the solver stops."""
_LOOSELY = 5e-2
"""Relative gap at which the solver stops as long as no options within the limit are known."""
_ROUNDS = 40
_SOLVINGS = 6
"""Largest number of programs that are solved for a limit and that use all their nodes."""
_SOLVED = 0.1
"""How much a program that does not use all its nodes counts in `_SOLVINGS`; any other program counts 1."""
_FOLDED_NODES = 100
"""Smallest limit of nodes for a program with merged layers. Such a program is small, so its nodes are fast."""
_PLACES_PER_ROUND = 40
_NOTHING = 1e-6
"""Fractions below this count as 0."""
_TOLERANCE = 1e-6
"""Largest tolerance with which the solver satisfies a row."""


class RoundedOptions(Protocol):
    """Options for storages, with their memory and time."""

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive at any time in a step."""

    @property
    def added_s(self) -> float:
        """Seconds added to a step."""

    @property
    def options(self) -> Mapping[int, str]:
        """Map from each storage that is not saved to its option."""


class Rounding[P: RoundedOptions]:
    """Finds integer options and lower bounds for different limits of one program.

    Parameters
    ----------
    relaxation : Relaxation
    evaluate : callable
        Returns the cost of options, and the peak bytes at each place.
    fastest_known : callable
        Returns the fastest evaluated options within a limit; None if there are none.
    frees : callable
        Returns the bytes that each choice frees at a place if it is the only choice, or an upper bound of them.
    step_s : float
        Seconds of a step if everything is saved.
    nodes : int
        Limit of the nodes that the solver searches in an integer program.
    go_on : callable
        Is called while a program is solved. An exception from `go_on` ends the search.
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
        """Return the best known lower bound on the cost of all options within a limit."""
        bound = self._program(limit_bytes)[1]
        # A bound for a larger limit also holds for a smaller limit.
        proven_s = max((added_s for limit, added_s in self._proven.items() if limit >= limit_bytes), default=-np.inf)
        return Bound(added_s=max(bound.added_s, proven_s), s_per_byte=bound.s_per_byte)

    def gap(self, point: RoundedOptions, limit_bytes: int) -> float:
        """Return by how much options may be slower than the best options within a limit, as a share of the step."""
        return max(0.0, point.added_s - self.bound(limit_bytes).added_s) / (self._step_s + point.added_s)

    def is_near_bound(self, limit_bytes: int, gap: float) -> bool:
        """Return whether the best known options within a limit are as close to the bound as `gap` or the solver's gap.

        Also return True if it is proven that no options are within the limit.
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

    # Search for options within a limit.

    def close_gap(self, limit_bytes: int, gap: float = 0.0) -> None:
        """Search for options within a limit until the best known options are close to the bound, or the search ends.

        Parameters
        ----------
        limit_bytes : int
        gap : float, optional
            See `is_near_bound`.
        """
        pure, left = self._program(limit_bytes)[0], float(_SOLVINGS)
        if not self.is_near_bound(limit_bytes, gap):
            self._round(pure.fractions, limit_bytes)
        # Solve with merged layers first: this program is far smaller, but choices from its solution may break rows.
        for folds in (True, False):
            under, to = pure, _LOOSELY
            if self.is_near_bound(limit_bytes, gap):
                return
            for _ in range(_ROUNDS):
                found = self._solve(under, limit_bytes, folds, to) if left > 0 else None
                if found is None:
                    break
                left -= 1.0 if found.limited else _SOLVED
                # Record the bound only if all rows are valid for all choices.
                if not under.has_guesses:
                    self._proven[limit_bytes] = max(self._proven.get(limit_bytes, -np.inf), found.proven_s)
                if found.taken is None:
                    break
                point, peaks = self._evaluate(self._relaxation.options(np.flatnonzero(found.taken > 0.5).tolist()))
                if point.peak_bytes > limit_bytes and self._learn(under, point, peaks, limit_bytes):
                    continue
                if gap and self.is_near_bound(limit_bytes, gap):
                    return
                # Solve again with the small gap, because a solution with the loose gap may contain needless choices.
                if to > SOLVED_TO:
                    to = SOLVED_TO
                elif folds or point.peak_bytes <= limit_bytes:
                    break
                else:
                    # The copy gets rows that may be invalid for some choices, so it proves no bound.
                    under = under.copy()
                    self._correct(under, point, peaks, limit_bytes)

    def _round(self, x: NDArray[np.float64], limit_bytes: int) -> None:
        """Evaluate integer choices from fractional ones: take the largest, and as few as the limit needs."""
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

    # Learning from options that exceed a limit.

    def _learn(self, program: LimitedProgram, point: P, peaks: NDArray[np.int64], limit_bytes: int) -> bool:
        """Add rows that are valid for all options and that these options break. Return whether a row is new."""
        places = _highest(peaks, limit_bytes)
        asked = [program.add_memory_row(place) for place in places]
        return program.add_presence_rows(point.options, places) or any(asked)

    def _correct(self, program: LimitedProgram, point: P, peaks: NDArray[np.int64], limit_bytes: int) -> None:
        """Add rows as `_learn` does; if none is new, add rows that are valid only near these options.

        Rows that are valid for all options are also added to the program that proves the bound.
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
                # The row would not forbid these choices, whose interaction the program does not model.
                program.refuse(taken)
            else:
                program.guess(freed, float(peaks[place]) - limit_bytes + float(freed @ taken))


def _highest(peaks: NDArray[np.int64], limit_bytes: int) -> list[int]:
    """Return the places that exceed a limit, highest first; at most `_PLACES_PER_ROUND`."""
    over = np.flatnonzero(peaks > limit_bytes)
    highest: list[int] = over[np.argsort(-peaks[over], kind="stable")][:_PLACES_PER_ROUND].tolist()
    return highest
