"""Find which storages to save, recompute and offload for the least step time under a limit on peak memory.

For each storage that the stock forward saves, the solver chooses to keep it, recompute it or offload it. The method
combines linear programs with exact predictions of memory. Recomputation costs the time of the statements that run
again. Offloading costs the time of transfers that do not overlap with compute. A linear program models how many bytes
each choice frees at each statement. An exact prediction shows at which statements the memory exceeds the limit. Rows
for these statements are added, and the program is solved again, until no statement exceeds the limit. Finally,
recomputed or offloaded storages are saved again if the limit still allows it.

A choice is to recompute or to offload one storage. An assignment is the choices for all storages together; a parameter
`options` maps each storage that an assignment does not save to its option. A limit is a limit on peak memory. A
position is the number of a statement; see `workbench.analysis.memory.peak_by_statement.PeakPositions`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.fit.added_time import AddedTime
from workbench.analysis.fit.evaluations import Evaluations
from workbench.analysis.fit.fit_problem import FitProblem
from workbench.analysis.fit.fusion_costs import RecomputeCost
from workbench.analysis.fit.guides import Guides
from workbench.analysis.fit.improvement import Improvement
from workbench.analysis.fit.lowest_peak import search_lowest_peak
from workbench.analysis.fit.lp_bound import Bound, Relaxation
from workbench.analysis.fit.option_costs import OptionCost, OptionRates, lowest_first
from workbench.analysis.fit.residency import Presence
from workbench.analysis.fit.rounding import Rounding
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE, ExactMemory, PeakPositions
from workbench.analysis.memory.recompute_set import Recomputer

_NODES = 1000
"""Maximum number of nodes that the solver searches in an integer program."""
_ALONE = 1_000_000
"""Limit of statements times choices up to which the bytes that each choice frees alone are predicted exactly.

For a larger product, or if evaluations need plans, an upper bound of these bytes is used.
"""
_BISECTIONS = 8
"""Maximum number of limits with which the search for the least peak tries to lower the peak further."""
_PEAK_GAP = 0.01
"""The bisection ends if the peak exceeds its lower bound by at most this share of the stock peak."""
_FEW_CHOICES = 64
"""Up to this number of choices, the search for the least peak ends only if a search for one byte less finds nothing."""
_LAST_TRIES = 8
"""Maximum number of these last searches."""


class Chooser:
    """Searches for assignments for the storages of one joint graph.

    Parameters
    ----------
    work : Recomputer
    positions : PeakPositions
    rates : OptionRates
    weigh : callable
        Returns the exact memory under the given `options`.
    quick : bool
        Whether `weigh` takes only milliseconds, so that it can be called for each storage.
    free : mapping of int to collection of str
        Maps each storage whose option the search may choose to its legal options. `SAVE` counts as legal in any case.
    fixed : mapping of int to str
        Maps each storage whose option is fixed, and is not `SAVE`, to that option.
    along, gather, ahead
        See `JointGraphMemory`.
    go_on : callable, optional
        Called repeatedly while a linear program is solved. An exception from `go_on` ends the search.
    guides : sequence of callable, optional
        Each callable returns a guide; see `Guides`.
    remade : collection of int
        Storages that fusions recompute even if no choice is made. If a chosen recomputation reads a storage R of this
        kind, recomputation must also be chosen for R; otherwise the plan saves R.
    dragged : collection of int
        Storages in `fixed` that are recomputed only if the recomputation of a chosen storage reads them.
    stands_for : callable, optional
        For a guide: converts its assignments to equivalent assignments of the chooser that owns the guide. Set only if
        the two choosers have different storages.
    nodes : int, optional
        Maximum number of nodes that the solver searches in an integer program.
    """

    def __init__(
        self,
        work: Recomputer,
        positions: PeakPositions,
        rates: OptionRates,
        weigh: Callable[[Mapping[int, str]], ExactMemory],
        free: Mapping[int, Collection[str]],
        fixed: Mapping[int, str],
        *,
        quick: bool,
        along: bool = True,
        gather: bool = False,
        ahead: int = 4,
        go_on: Callable[[], None] = lambda: None,
        guides: Sequence[Callable[[], Chooser]] = (),
        remade: Collection[int] = (),
        dragged: Collection[int] = (),
        stands_for: Callable[[Mapping[int, str]], Mapping[int, str]] | None = None,
        nodes: int = _NODES,
    ) -> None:
        self.stands_for = stands_for
        self._lowers_by_limits = quick
        self.choices = tuple(
            (storage, option)
            for storage, options in free.items()
            for option in (RECOMPUTE, OFFLOAD)
            if option in options
        )
        time = AddedTime(work, rates, self.choices, fixed, dragged=dragged, along=along, gather=gather)
        self._problem = problem = FitProblem(
            work=work,
            positions=positions,
            rates=rates,
            choices=self.choices,
            time=time,
            quick=quick,
            remade=frozenset(remade),
            nodes=nodes,
            go_on=go_on,
        )
        self._make_guides = guides
        evaluations = Evaluations(weigh, time, self.choices)
        few = quick and positions.count * len(self.choices) <= _ALONE
        self._alone = _bytes_freed_alone(evaluations, self.choices) if few else None
        always = [storage for storage, option in fixed.items() if option == RECOMPUTE]
        presence = Presence(work, positions.stock, self.choices, along=along, gather=gather, ahead=ahead, always=always)
        away_s = sum(int(problem.bytes[s]) for s, o in fixed.items() if o == OFFLOAD) / rates.offload_bytes_per_s
        self._begin(evaluations, _relax(problem, presence, evaluations.stock_peaks, away_s))

    def _begin(self, evaluations: Evaluations, relaxation: Relaxation) -> None:
        """Set the parts of the search that depend on the predicted peaks."""
        self.evaluations, self._relaxation = evaluations, relaxation
        self.stock = evaluations.stock
        self._rounding: Rounding[OptionCost] = Rounding(
            relaxation,
            evaluations.evaluate,
            evaluations.fastest,
            self._bytes_freed,
            step_s=self._problem.step_s,
            nodes=self._problem.nodes,
            go_on=self._problem.go_on,
        )
        self._improvement = Improvement(self._problem, evaluations, relaxation, self._rounding.is_near_bound)
        self.guides = Guides(self._problem, evaluations, self._rounding, self._make_guides)
        self._searched_lowest = False

    def with_correction(self, more: NDArray[np.int64]) -> Chooser:
        """Return a copy of the chooser whose predicted peak at each position is higher by `more` bytes."""
        other = copy.copy(self)
        # A guide's lowest point is only a proposal: plans under lower points of a guide are often not lower.
        other._lowers_by_limits = False
        evaluations = self.evaluations.with_correction(more)
        other._begin(evaluations, self._relaxation.with_peaks(evaluations.stock_peaks))
        return other

    def point(self, options: Mapping[int, str]) -> OptionCost:
        """Return the exact cost of an assignment."""
        return self.evaluations.point(options)

    def fastest_known(self, limit_bytes: int) -> OptionCost | None:
        """Return the fastest evaluated assignment within a limit; see `Evaluations.fastest`."""
        return self.evaluations.fastest(limit_bytes)

    def lowest_known(self, limit_s: float, before_s: float) -> OptionCost:
        """Return, among the evaluated assignments with a step time of at most `limit_s`, the one with the lowest peak.

        `before_s` is the step time if everything is saved.
        """
        within = [point for point in self.evaluations.points() if before_s + point.added_s <= limit_s]
        return min(within, key=lowest_first, default=self.stock)

    def added_s(self, options: Mapping[int, str]) -> float:
        """Return the predicted seconds that an assignment adds to a step, without evaluating its memory."""
        return self._problem.time.of(options)

    def alone_s(self, storage: int, option: str) -> float:
        """Return the seconds that a choice adds if it is the only choice, and if compute hides no transfer."""
        return self._problem.time.alone_s(storage, option)

    def bytes_of(self, storage: int) -> int:
        """Return the bytes of a storage."""
        return int(self._problem.bytes[storage])

    def helpful_choices(self, point: OptionCost, position: int) -> list[tuple[int, str]]:
        """Return the choices that free bytes at a position, for storages that `point` saves.

        The choices are sorted by added seconds per freed byte, lowest first.
        """
        seconds, freed = self._problem.time.of_choices(), self._bytes_freed(position)
        open_ = [
            number
            for number, (storage, _) in enumerate(self.choices)
            if storage not in point.options and freed[number] > 0
        ]
        return [self.choices[n] for n in sorted(open_, key=lambda n: (seconds[n] + 1e-12) / freed[n])]

    def bound(self, limit_bytes: int) -> Bound:
        """Return the highest known lower bound on the time of all assignments within a limit."""
        return self._rounding.bound(limit_bytes)

    def hoped_s(self, limit_bytes: int) -> float:
        """Estimate, without a plan, the seconds that a limit adds: the lower bound of the first guide."""
        return (self.guides.corrected(0) if self.guides else self).bound(limit_bytes).added_s

    def gap(self, point: OptionCost, limit_bytes: int) -> float:
        """Return how much slower `point` may be than the best assignment within a limit; see `Rounding.gap`."""
        return self._rounding.gap(point, limit_bytes)

    @property
    def floor_bytes(self) -> int:
        """A lower bound of the peak memory of all assignments."""
        return self._relaxation.floor_bytes

    def fit(self, limit_bytes: int, *, gap: float = 0.0, below_s: float = np.inf) -> OptionCost | None:
        """Search for the fastest assignment within a limit. Return the best one found; None if none was found.

        Parameters
        ----------
        limit_bytes : int
        gap : float
            The search may end if the added time exceeds its lower bound by at most this share of a step.
        below_s : float
            The caller needs only an assignment that adds fewer seconds. The search may skip attempts that add more.
        """
        if self.stock.peak_bytes <= limit_bytes:
            _ = self._improvement.time_saver
            return self.fastest_known(limit_bytes)
        if limit_bytes < self.floor_bytes and self.least().peak_bytes > limit_bytes:
            return None  # the least peak memory that was found exceeds the limit
        if self.guides.fit(limit_bytes, below_s) is None:
            if self.guides and np.isfinite(below_s):
                return None
            self._rounding.close_gap(limit_bytes, gap)
            if gap and self._rounding.is_near_bound(limit_bytes, gap):
                return self.fastest_known(limit_bytes)
            if self.fastest_known(limit_bytes) is None:
                self.least()
        found = self.fastest_known(limit_bytes)
        if found is not None:
            better = self._improvement.save_again(found, limit_bytes)
            if spared := self._improvement.time_saver.options:
                self.point({**better.options, **spared})
        return self.fastest_known(limit_bytes)

    def least(self) -> OptionCost:
        """Search for the assignment with the least peak memory, however long the step. Return the best one found."""
        if not self._searched_lowest:
            self.guides.lower_peak(self.floor_bytes)
            search_lowest_peak(self._problem, self.evaluations, self._relaxation, self._bytes_freed)
            if self._lowers_by_limits:
                self._lower_by_limits()
            self._searched_lowest = True
        return self.evaluations.lowest()

    def _lower_by_limits(self) -> None:
        """Lower the least known peak: by bisection, search for an assignment within a smaller limit.

        The search for a fast assignment under a limit finds some assignments that `search_lowest_peak` misses.
        """
        low, known = self.floor_bytes, self.evaluations.lowest().peak_bytes
        for _ in range(_BISECTIONS):
            if known - low <= _PEAK_GAP * self.stock.peak_bytes:
                break
            limit_bytes = (low + known) // 2
            self._rounding.close_gap(limit_bytes, gap=np.inf)
            if self.fastest_known(limit_bytes) is None:
                low = limit_bytes
            else:
                known = self.evaluations.lowest().peak_bytes
        if len(self.choices) > _FEW_CHOICES:
            return
        for _ in range(_LAST_TRIES):
            self._rounding.close_gap(known - 1, gap=np.inf)
            if self.fastest_known(known - 1) is None:
                break
            known = self.evaluations.lowest().peak_bytes

    def _bytes_freed(self, position: int) -> NDArray[np.float64]:
        """Return the bytes that each choice frees at a position if it is the only choice, or an upper bound of them."""
        return self._relaxation.most_bytes_freed(position) if self._alone is None else self._alone[:, position]


def _bytes_freed_alone(evaluations: Evaluations, choices: Sequence[tuple[int, str]]) -> NDArray[np.float64]:
    """Return, for each choice, the exact bytes that it frees at each position if it is the only choice."""
    found = np.zeros((len(choices), len(evaluations.stock_peaks)))
    for number, (storage, option) in enumerate(choices):
        found[number] = evaluations.stock_peaks - evaluations.peaks({storage: option})
    return found


def _relax(problem: FitProblem, presence: Presence, peaks: NDArray[np.int64], away_s: float) -> Relaxation:
    """Return the linear model of the choices.

    Parameters
    ----------
    problem : FitProblem
    presence : Presence
    peaks : (positions + 1,) int64
        The peak at each position if everything is saved.
    away_s : float
        Seconds of the transfers of storages that are always offloaded, in one direction.
    """
    # The members of a fusion are at adjacent positions with equal peaks.
    steps = np.flatnonzero(np.append(True, np.diff(peaks) != 0))

    def span(start: int, end: int) -> tuple[int, int]:
        return (start, end) if problem.quick or start >= end else _extend_to_fusions(start, end, steps, len(peaks))

    rates, sizes = problem.rates, problem.bytes
    least = rates.least or rates.again or RecomputeCost(seconds=rates.seconds)
    hidden = problem.time.hidden
    return Relaxation(
        variables=problem.choices,
        spans=[
            span(*(presence.spans.get(storage, (0, 0)) if storage not in problem.remade else (0, 0)))
            for storage, _ in problem.choices
        ],
        sizes=sizes[[storage for storage, _ in problem.choices]].astype(float),
        chains=[problem.time.rows(storage) if option == RECOMPUTE else () for storage, option in problem.choices],
        seconds=least.seconds,
        each_s=np.asarray(
            [least.each_s.get(storage, 0.0) if option == RECOMPUTE else 0.0 for storage, option in problem.choices]
        ),
        transfers=problem.time.of_transfers(),
        hidden=(hidden[0] - away_s, hidden[1] - away_s),
        peaks=peaks,
        joint_recomputations={
            storage: (dataclasses.replace(found, start=start, end=end), float(sizes[storage]))
            for storage, found in presence.beside.items()
            for start, end in (span(found.start, found.end),)
        },
        presence=presence if problem.quick else None,
    )


def _extend_to_fusions(start: int, end: int, steps: NDArray[np.int64], count: int) -> tuple[int, int]:
    """Return the range of positions whose peak is lower if a storage is absent from `start` to before `end`.

    All members of a fusion have the peak of the fusion. Therefore, if the range begins or ends inside of a fusion, it
    is extended to the complete fusion. `steps` are the first positions of the fusions and of the other statements, and
    `count` is the number of positions.
    """
    first = steps[np.searchsorted(steps, start, side="right") - 1]
    after = np.searchsorted(steps, end, side="left")
    return int(first), int(steps[after]) if after < len(steps) else count
