"""Options within a limit, and how near they are to the best: fractions made whole, then bettered, then proven.

The fractions that reach the bound are nearly whole where layers are alike: what is made of them is within a limit after
a few exact predictions, in a hundredth of what whole choices of a program of thousands of statements take. What is left
to gain is looked for in small programs, in which most choices stay as they are; and then in the whole one, which proves
how much it can be at most. Each way starts from the best that is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.relaxed import Bound, Relaxation, Under

SOLVED_TO = 1e-4
"""What is added to the step is at most this share from the least that the solver could find."""
_ROUNDS = 40
_SOLVINGS = 6
"""Linear programs of all their nodes, after which no further one is solved for a limit."""
_NEAR = 5e-5
"""A share of the step; what is so near to the bound is worth one linear program more."""
_NEARLY = 0.05
"""A share of the step; what is so near to the bound is likely to be the best, which is left to prove."""
_REPAIRS = 8
_LESSONS = 24
"""Times that fractions made whole say what they miss, before anything is guessed."""
_PLACES_PER_ROUND = 40
_SMALL = (100, 400)
"""Choices left open in small programs: those that matter least to the bound."""
_DRAWN, _DRAWINGS = 300, 6
"""Choices left open at random, half of all at most, and how often."""
_SMALL_NODES = 100
_SOLVED = 0.1
"""What a linear program that ends before its nodes do counts for, of those that may be solved for a limit."""
_NOTHING = 1e-6
"""Fractions of a choice that are none."""
_TOLERANCE = 1e-6
"""What the solver lets go of a row at most."""


class Weighed(Protocol):
    """What options come to."""

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive."""

    @property
    def added_s(self) -> float:
        """Seconds added to a step."""

    @property
    def options(self) -> Mapping[int, str]:
        """Storages that are not saved, and what happens to each."""


class Closing[P: Weighed]:
    """Of one program, limit by limit.

    Parameters
    ----------
    relaxation : Relaxation
    evaluate : callable
        What options come to, and the most bytes alive at each place.
    known : callable
        The quickest within a limit of all that was evaluated.
    frees : callable
        Bytes that each choice frees at a place as the only one, as far as that is known.
    step_s : float
        Of a step with everything saved.
    nodes : int
        Of the solver's search, for each linear program of whole choices.
    go_on : callable
        Called while one is solved; what it raises ends the work.
    """

    def __init__(
        self,
        relaxation: Relaxation,
        evaluate: Callable[[Mapping[int, str]], tuple[P, NDArray[np.int64]]],
        known: Callable[[int], P | None],
        frees: Callable[[int], NDArray[np.float64]],
        *,
        step_s: float,
        nodes: int,
        go_on: Callable[[], None],
    ) -> None:
        self._relaxation, self._evaluate, self._known, self._frees = relaxation, evaluate, known, frees
        self._step_s, self._nodes, self._go_on = step_s, nodes, go_on
        self._found: dict[int, tuple[Under, Bound, NDArray[np.float64]]] = {}
        self._proven: dict[int, float] = {}

    # What is known of a limit.

    def bound(self, limit_bytes: int) -> Bound:
        """What no options under a limit can beat, as far as it is known by now."""
        bound = self._under(limit_bytes)[1]
        # What a larger limit takes at least, a smaller one does, too.
        proven_s = max((added_s for limit, added_s in self._proven.items() if limit >= limit_bytes), default=-np.inf)
        return Bound(added_s=max(bound.added_s, proven_s), s_per_byte=bound.s_per_byte)

    def gap(self, point: Weighed, limit_bytes: int) -> float:
        """How far a step may be from the best within a limit: the share of it above the bound."""
        return max(0.0, point.added_s - self.bound(limit_bytes).added_s) / (self._step_s + point.added_s)

    def within(self, limit_bytes: int, gap: float) -> bool:
        """Whether what is known for a limit is as near to the bound as that, or as the solver would go."""
        known = self._known(limit_bytes)
        if known is None:
            return self._proven.get(limit_bytes, -np.inf) == np.inf
        least_s = self.bound(limit_bytes).added_s
        return known.added_s <= least_s * (1 + SOLVED_TO) or self.gap(known, limit_bytes) <= gap

    def _under(self, limit_bytes: int) -> tuple[Under, Bound, NDArray[np.float64]]:
        """The program for a limit, its bound, and the fractions of choices that reach it."""
        if limit_bytes not in self._found:
            under = self._relaxation.under(limit_bytes)
            self._found[limit_bytes] = (under, *under.fractions(self._go_on))
        return self._found[limit_bytes]

    # Ways to options within it.

    def first(self, limit_bytes: int) -> None:
        """Make whole the fractions that reach the bound; free beside them what is over the limit."""
        pure, bound, x = self._under(limit_bytes)
        # What is so for any options is put into the program itself, as long as there is any: the bound rises by it.
        for _ in range(_LESSONS):
            point, peaks = self._filled(x, limit_bytes)
            if point.peak_bytes <= limit_bytes:
                return
            if not self._learn(pure, point, peaks, limit_bytes):
                break
            nearer, x = pure.fractions(self._go_on)
            bound = nearer if nearer.added_s > bound.added_s else bound
            self._found[limit_bytes] = (pure, bound, x)
        under = pure.copy()
        for _ in range(_REPAIRS):
            self._correct(under, point, peaks, limit_bytes)
            _, x = under.fractions(self._go_on)
            point, peaks = self._filled(x, limit_bytes)
            if point.peak_bytes <= limit_bytes:
                return

    def _filled(self, x: NDArray[np.float64], limit_bytes: int) -> tuple[P, NDArray[np.int64]]:
        """Fractions made whole: the largest first, as few as are within a limit; or all of them."""
        order = [number for number in np.argsort(-x, kind="stable").tolist() if x[number] > _NOTHING]
        low, high = sum(bool(x[number] > 1 - _NOTHING) for number in order), len(order)
        found = self._evaluate(self._relaxation.options(order))
        while low < high and found[0].peak_bytes <= limit_bytes:
            middle = (low + high) // 2
            tried = self._evaluate(self._relaxation.options(order[:middle]))
            if tried[0].peak_bytes <= limit_bytes:
                found, high = tried, middle
            else:
                low = middle + 1
        return found

    def alike(self, limit_bytes: int, gap: float = 0.0) -> None:
        """Solve with identical layers as one, predict exactly, put what was over the limit into the program, again.

        What is proven of layers that choose alike as many times as can be is proven of all choices, and takes a
        hundredth of the time. As what is proven is reached in most cases, it leaves nothing to look for.
        """
        pure, left = self._under(limit_bytes)[0], 1.0
        while left > 0 and not self.within(limit_bytes, gap):
            found = pure.alike(self._go_on, nodes=max(self._nodes, _SMALL_NODES), gap=SOLVED_TO / 4)
            if found is None:
                return
            left -= 1.0 if found.limited else _SOLVED
            self._proven[limit_bytes] = max(self._proven.get(limit_bytes, -np.inf), found.proven_s)
            if found.taken is None:
                return
            point, peaks = self._evaluate(self._relaxation.options(np.flatnonzero(found.taken > 0.5).tolist()))
            if point.peak_bytes <= limit_bytes or not self._learn(pure, point, peaks, limit_bytes):
                return

    def nearer(self, limit_bytes: int, gap: float = 0.0) -> None:
        """Better what is known in programs in which all but a few choices stay as they are, until it is within a gap.

        Parameters
        ----------
        limit_bytes : int
        gap : float, optional
            As for `within`.
        """
        pure, _, x = self._under(limit_bytes)
        under, count = pure.copy(), self._relaxation.count
        draw = np.random.default_rng(count)
        order = np.argsort(pure.against, kind="stable")
        for small in _SMALL:
            if small < count:
                self._small(under, order[small:], x, limit_bytes)
            if gap and self.within(limit_bytes, gap):
                return
        open_ = min(_DRAWN, count // 2)
        for _ in range(_DRAWINGS if count > _SMALL[0] else 0):
            known = self._known(limit_bytes)
            if known is None or self.within(limit_bytes, gap):
                break
            self._small(under, draw.permutation(count)[open_:], self._relaxation.taken(known.options), limit_bytes)

    def _small(self, under: Under, fixed: NDArray[np.intp], x: NDArray[np.float64], limit_bytes: int) -> None:
        for _ in range(_REPAIRS):
            known = self._known(limit_bytes)
            found = under.whole(
                self._go_on,
                nodes=min(_SMALL_NODES, self._nodes),
                gap=SOLVED_TO,
                below_s=np.inf if known is None else known.added_s,
                fixed=fixed,
                at=x,
                excused=False,
            )
            if found.taken is None:
                return
            point, peaks = self._evaluate(self._relaxation.options(np.flatnonzero(found.taken > 0.5).tolist()))
            if point.peak_bytes <= limit_bytes:
                return
            self._correct(under, point, peaks, limit_bytes)

    def closed(self, limit_bytes: int, gap: float = 0.0) -> None:
        """Solve, predict exactly, put what was over the limit into the program, again; up to so many nodes in all.

        First without what seldom helps, unless what is known is near: that finds. Then with all of it: as long as all
        that is put in is so for any options, what the solver proves is kept as a bound.
        """
        pure, _, _ = self._under(limit_bytes)
        left = 1.0 if self.within(limit_bytes, _NEAR) else _SOLVINGS
        known = self._known(limit_bytes)
        nearly = known is not None and self.gap(known, limit_bytes) < _NEARLY
        for excused in (False, True) if self._relaxation.excused and not nearly else (True,):
            under, nodes = pure, self._nodes if excused else max(1, self._nodes // 4)
            for _ in range(_ROUNDS):
                if self.within(limit_bytes, gap) or left <= 0:
                    return
                known = self._known(limit_bytes)
                found = under.whole(
                    self._go_on,
                    nodes=nodes,
                    gap=SOLVED_TO,
                    below_s=np.inf if known is None else known.added_s,
                    excused=excused,
                )
                left -= nodes / self._nodes if found.limited else _SOLVED
                if not under.guessed:
                    self._proven[limit_bytes] = max(self._proven.get(limit_bytes, -np.inf), found.proven_s)
                if found.taken is None:
                    break
                point, peaks = self._evaluate(self._relaxation.options(np.flatnonzero(found.taken > 0.5).tolist()))
                if point.peak_bytes <= limit_bytes:
                    break
                if not self._learn(under, point, peaks, limit_bytes):
                    # From here on nothing is proven.
                    under = under.copy()
                    self._correct(under, point, peaks, limit_bytes)

    # What is learnt of what is over a limit.

    def _learn(self, under: Under, point: P, peaks: NDArray[np.int64], limit_bytes: int) -> bool:
        """Put in what is so for any options, and was broken by some; whether there is anything new."""
        places = _highest(peaks, limit_bytes)
        asked = [under.add_place(place) for place in places]
        return under.tell(point.options, places) or any(asked)

    def _correct(self, under: Under, point: P, peaks: NDArray[np.int64], limit_bytes: int) -> None:
        """The same, or what is so near these options; what is so for any goes into the program for the limit, too."""
        pure = self._found[limit_bytes][0]
        if under is not pure:
            self._learn(pure, point, peaks, limit_bytes)
        if self._learn(under, point, peaks, limit_bytes):
            return
        taken = self._relaxation.taken(point.options)
        if not under.again(taken):
            # Over the limit by no more than the solver takes for nothing.
            under.beyond = max(_TOLERANCE, 2 * under.beyond)
        for place in _highest(peaks, limit_bytes):
            freed = self._frees(place)
            if np.maximum(freed, 0) @ (1 - taken) + np.maximum(-freed, 0) @ taken < peaks[place] - limit_bytes:
                # Nothing more helps there: what was chosen is in its own way, as the program does not know.
                under.refuse(taken)
            else:
                under.guess(freed, float(peaks[place]) - limit_bytes + float(freed @ taken))


def _highest(peaks: NDArray[np.int64], limit_bytes: int) -> list[int]:
    """The places over a limit, the highest first, not more than a few."""
    over = np.flatnonzero(peaks > limit_bytes)
    highest: list[int] = over[np.argsort(-peaks[over], kind="stable")][:_PLACES_PER_ROUND].tolist()
    return highest
