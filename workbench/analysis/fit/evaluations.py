"""`Evaluations`: the assignments that were evaluated so far, their exact costs, and the best of them for a limit.

An assignment sets each storage to an option: save, recompute or offload.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.fit.added_time import AddedTime
from workbench.analysis.fit.option_costs import OptionCost, fastest_first, lowest_first
from workbench.analysis.memory.peak_by_statement import ExactMemory

type _Key = frozenset[tuple[int, str]]


class Evaluations:
    """Evaluates each assignment once, and remembers those that consist of legal choices.

    Parameters
    ----------
    weigh : callable
        Returns the exact memory under the given options.
    time : AddedTime
        Predicts the added seconds if `weigh` computes no plan.
    legal : collection of (int, str)
        All legal choices.

    Attributes
    ----------
    stock : OptionCost
        The cost if everything is saved.
    stock_peaks : (positions + 1,) int64
        The peak at each position if everything is saved.
    """

    def __init__(
        self, weigh: Callable[[Mapping[int, str]], ExactMemory], time: AddedTime, legal: Collection[tuple[int, str]]
    ) -> None:
        self._weigh, self._time, self._legal = weigh, time, frozenset(legal)
        self._known: dict[_Key, tuple[OptionCost, NDArray[np.int64]]] = {}
        self._weighed: dict[_Key, tuple[OptionCost, NDArray[np.int64]]] = {}
        self._correction: NDArray[np.int64] | None = None
        self._stock_s: float | None = None
        self.stock, self.stock_peaks = self.evaluate({})

    def with_correction(self, more: NDArray[np.int64]) -> Evaluations:
        """Return evaluations that know no assignment yet, and whose peak at each position is higher by `more` bytes."""
        other = copy.copy(self)
        other._correction, other._known = more, {}
        other.stock, other.stock_peaks = other.evaluate({})
        return other

    def __len__(self) -> int:
        """Return the number of known assignments."""
        return len(self._known)

    def evaluate(self, options: Mapping[int, str]) -> tuple[OptionCost, NDArray[np.int64]]:
        """Return the exact cost of an assignment, and the peak at each position.

        Only an assignment that consists of legal choices is added to the known assignments.
        """
        key = frozenset(options.items())
        if key not in self._known:
            if key not in self._weighed:
                self._weighed[key] = self._compute_cost(options)
            point, peaks = self._weighed[key]
            if self._correction is not None:
                peaks = peaks + self._correction
                point = dataclasses.replace(point, peak_bytes=int(peaks.max()))
            if not self._legal.issuperset(key):
                return point, peaks
            self._known[key] = point, peaks
        return self._known[key]

    def point(self, options: Mapping[int, str]) -> OptionCost:
        """Return the exact cost of an assignment."""
        return self.evaluate(options)[0]

    def peaks(self, options: Mapping[int, str]) -> NDArray[np.int64]:
        """Return the peak at each position under an assignment."""
        return self.evaluate(options)[1]

    def points(self) -> list[OptionCost]:
        """Return all known assignments, in the order of their evaluation."""
        return [point for point, _ in self._known.values()]

    def within(self, limit_bytes: int) -> list[OptionCost]:
        """Return all known assignments within a limit, fastest first."""
        return sorted((point for point in self.points() if point.peak_bytes <= limit_bytes), key=fastest_first)

    def fastest(self, limit_bytes: int) -> OptionCost | None:
        """Return the fastest known assignment within a limit. It may have been found for another limit.

        If several are equally fast, return the one with the lowest peak memory. Return None if no known assignment is
        within the limit.
        """
        within = (point for point in self.points() if point.peak_bytes <= limit_bytes)
        return min(within, key=fastest_first, default=None)

    def lowest(self) -> OptionCost:
        """Return the known assignment with the lowest peak memory."""
        return min(self.points(), key=lowest_first)

    def _compute_cost(self, options: Mapping[int, str]) -> tuple[OptionCost, NDArray[np.int64]]:
        weighed = self._weigh(options)
        recompute_s, transfer_s = self._time.parts(options)
        if weighed.compute_s is not None:
            if self._stock_s is None:
                self._stock_s = weighed.compute_s
            recompute_s = weighed.compute_s - self._stock_s
        point = OptionCost(
            options=dict(options),
            peak_bytes=weighed.peak_bytes,
            saved_bytes=weighed.saved_bytes,
            recompute_s=recompute_s,
            transfer_s=transfer_s,
        )
        return point, weighed.peaks
