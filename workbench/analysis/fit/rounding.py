"""Options within a limit, and a bound on their distance from the best.

First, the fractional choices that reach the bound are rounded. Then `scipy.optimize.milp` solves an integer program
with few memory rows. Exact prediction shows where more is alive than the limit, and those rows are added, until none is
broken. First, identical layers are solved as one, which takes a hundredth of the time. If the result exceeds the limit,
all choices are solved one by one. As long as nothing fits, each program is solved with a loose tolerance, because its
answer only serves to find the next rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.fit.lp_bound import Bound, IntegerFacts, LimitedProgram, Relaxation

SOLVED_TO = 1e-4
"""Maximum relative gap between the added time and the least that the solver could find."""
_LOOSELY = 5e-2
"""The same as long as no options that fit are known."""
_ROUNDS = 40
_SOLVINGS = 6
"""Number of programs that may use up all their nodes; after that, no further program is solved for the limit."""
_SOLVED = 0.1
"""Weight of a program that does not use up its nodes, relative to one that does."""
_FOLDED_NODES = 100
"""Least number of nodes for a program with merged layers, because it is small."""
_PLACES_PER_ROUND = 40
_NOTHING = 1e-6
"""Fractions below this count as zero."""
_TOLERANCE = 1e-6
"""Maximum tolerance of the solver on a row."""


class RoundedOptions(Protocol):
    """Cost of options."""

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive."""

    @property
    def added_s(self) -> float:
        """Seconds added to a step."""

    @property
    def options(self) -> Mapping[int, str]:
        """Storages that are not saved, with their options."""


class Rounding[P: RoundedOptions]:
    """Integer solutions and bounds of one program, for one limit after another.

    Parameters
    ----------
    relaxation : Relaxation
    evaluate : callable
        Returns the cost of options, and the peak bytes at each place.
    fastest_known : callable
        The fastest options within a limit of all that were evaluated.
    frees : callable
        Bytes that each choice frees at a place as the only one, as far as they are known.
    step_s : float
        Seconds of a step with everything saved.
    nodes : int
        Node limit of the solver's search, for each integer program.
    go_on : callable
        Called while a program is solved; an exception that it raises ends the work.
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
        """Return the best lower bound known so far on the cost of any options under a limit."""
        bound = self._program(limit_bytes)[1]
        # The least time for a larger limit is also a bound for a smaller one.
        proven_s = max((added_s for limit, added_s in self._proven.items() if limit >= limit_bytes), default=-np.inf)
        return Bound(added_s=max(bound.added_s, proven_s), s_per_byte=bound.s_per_byte)

    def gap(self, point: RoundedOptions, limit_bytes: int) -> float:
        """Return the largest possible distance of a step from the best within a limit, as a share above the bound."""
        return max(0.0, point.added_s - self.bound(limit_bytes).added_s) / (self._step_s + point.added_s)

    def is_near_bound(self, limit_bytes: int, gap: float) -> bool:
        """Return whether the best known result for a limit is this close to the bound, or as close as the solver."""
        known = self._known(limit_bytes)
        if known is None:
            return self._proven.get(limit_bytes, -np.inf) == np.inf
        least_s = self.bound(limit_bytes).added_s
        return known.added_s <= least_s * (1 + SOLVED_TO) or self.gap(known, limit_bytes) <= gap

    def _program(self, limit_bytes: int) -> tuple[LimitedProgram, Bound]:
        """The program for a limit, and its bound with fractional choices."""
        if limit_bytes not in self._programs:
            under = self._relaxation.program_for(limit_bytes)
            self._programs[limit_bytes] = under, under.bound(self._go_on)
        return self._programs[limit_bytes]

    # Search for options within a limit.

    def close_gap(self, limit_bytes: int, gap: float = 0.0) -> None:
        """Search for options within a limit until the best known is within a gap of the bound, or the search ends.

        Parameters
        ----------
        limit_bytes : int
        gap : float, optional
            As for `is_near_bound`.
        """
        pure, left = self._program(limit_bytes)[0], float(_SOLVINGS)
        if not self.is_near_bound(limit_bytes, gap):
            self._round(pure.fractions, limit_bytes)
        # A folded program is far smaller, but choices made from its values may break rows that it cannot contain.
        for folds in (True, False):
            under, to = pure, _LOOSELY
            if self.is_near_bound(limit_bytes, gap):
                return
            for _ in range(_ROUNDS):
                found = self._solve(under, limit_bytes, folds, to) if left > 0 else None
                if found is None:
                    break
                left -= 1.0 if found.limited else _SOLVED
                # Proven only by rows that are valid for any choices.
                if not under.has_guesses:
                    self._proven[limit_bytes] = max(self._proven.get(limit_bytes, -np.inf), found.proven_s)
                if found.taken is None:
                    break
                point, peaks = self._evaluate(self._relaxation.options(np.flatnonzero(found.taken > 0.5).tolist()))
                if point.peak_bytes > limit_bytes and self._learn(under, point, peaks, limit_bytes):
                    continue
                if gap and self.is_near_bound(limit_bytes, gap):
                    return
                # A loose solution may contain needless choices without cost.
                if to > SOLVED_TO:
                    to = SOLVED_TO
                elif folds or point.peak_bytes <= limit_bytes:
                    break
                else:
                    # From here on, results are not proven.
                    under = under.copy()
                    self._correct(under, point, peaks, limit_bytes)

    def _round(self, x: NDArray[np.float64], limit_bytes: int) -> None:
        """Round fractional choices to integers: the largest first, as few as are needed for the limit."""
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
        """Add constraints that hold for any options and that some options broke; return whether any is new."""
        places = _highest(peaks, limit_bytes)
        asked = [program.add_memory_row(place) for place in places]
        return program.add_presence_rows(point.options, places) or any(asked)

    def _correct(self, program: LimitedProgram, point: P, peaks: NDArray[np.int64], limit_bytes: int) -> None:
        """Add the same, or constraints that hold near these options.

        General ones are also added to the limit's program.
        """
        pure = self._programs[limit_bytes][0]
        if program is not pure:
            self._learn(pure, point, peaks, limit_bytes)
        if self._learn(program, point, peaks, limit_bytes):
            return
        taken = self._relaxation.choice_vector(point.options)
        if not program.differs_from_last(taken):
            # The excess is within the solver's tolerance.
            program.beyond = max(_TOLERANCE, 2 * program.beyond)
        for place in _highest(peaks, limit_bytes):
            freed = self._frees(place)
            if np.maximum(freed, 0) @ (1 - taken) + np.maximum(-freed, 0) @ taken < peaks[place] - limit_bytes:
                # Further rows would not help: the chosen options conflict in a way that the program does not model.
                program.refuse(taken)
            else:
                program.guess(freed, float(peaks[place]) - limit_bytes + float(freed @ taken))


def _highest(peaks: NDArray[np.int64], limit_bytes: int) -> list[int]:
    """Return the places that exceed a limit, highest first, but only a few."""
    over = np.flatnonzero(peaks > limit_bytes)
    highest: list[int] = over[np.argsort(-peaks[over], kind="stable")][:_PLACES_PER_ROUND].tolist()
    return highest
