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
import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint
from scipy.sparse import csr_array

from workbench.analysis.cost.offload_time import exposed_s, hidden_s
from workbench.analysis.fit.fusion_costs import RecomputeCost
from workbench.analysis.fit.lp_bound import Bound, Relaxation
from workbench.analysis.fit.milp_process import solve_whole
from workbench.analysis.fit.option_costs import OptionCost, OptionRates, fastest_first, lowest_first
from workbench.analysis.fit.residency import Presence
from workbench.analysis.fit.rounding import Rounding
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE, ExactMemory, PeakPositions
from workbench.analysis.memory.recompute_set import Recomputer

_ROUNDS = 40
_CUTS_PER_ROUND = 40
_NODES = 1000
"""Maximum number of nodes that the solver searches in an integer program."""
GUIDE_NODES = 1
"""Maximum number of nodes for a guide (see `Chooser`). One node is enough, because a guide's result is approximate."""
_PLANS_TO_SAVE_AGAIN = 4
"""Number of plans that may be computed to improve the result for a large program, if each evaluation needs a plan."""
_PLANNED_TO_SAVE_AGAIN = 8_000
"""For a small program, more plans may be computed: this number, divided by the number of the program's statements."""
_WORTH = 1e-4
"""Share of a step's time that is worth a further search.

A recomputation that may make a step faster is tried only if it may save more than this share. The search ends if the
time of its result exceeds the lower bound by at most this share.
"""
_AIMS = 8
"""Largest number of results of one guide that one pass evaluates exactly; each evaluation needs a plan."""
_NEAR = 0.01
"""Share that decides whether the result of a guide is close enough, so that the guide does not search again.

The result is close enough if its peak memory is at most this share below the limit. After the first guide, no further
guide searches if the time of the best known assignment exceeds the lower bound by at most this share of a step.
"""
_TURNS = (40, 400)
"""Smallest and largest number of changes that are evaluated to improve a result. A change sets one storage's option."""
_TURNED = 400_000
"""The number of changes is this number divided by the number of the program's statements, but within `_TURNS`."""
_ALONE = 1_000_000
"""Limit of statements times choices up to which the bytes that each choice frees alone are predicted exactly.

For a larger product, or if evaluations need plans, an upper bound of these bytes is used.
"""


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
        Each callable returns a guide: a chooser that evaluates assignments approximately, in milliseconds. The chooser
        that owns the guides evaluates their results exactly, and adds the difference to later predictions of the guide.
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
        self._dragged, self.stands_for = frozenset(dragged), stands_for
        self._nodes, self._remade = nodes, frozenset(remade)
        self._go_on, self._guides = go_on, tuple(functools.cache(make) for make in guides)
        self._work, self._places, self._rates, self._weigh, self._quick = work, positions, rates, weigh, quick
        self._fixed = dict(fixed)
        self._along, self._gather, self._ahead = along, gather, ahead
        self._variables = [
            (storage, option)
            for storage, options in free.items()
            for option in (RECOMPUTE, OFFLOAD)
            if option in options
        ]
        self._legal = frozenset(self._variables)
        self._chains = {storage: self._chain(storage) for storage, option in self._variables if option == RECOMPUTE}
        self._bytes = work.graph.storages.bytes
        self._known: dict[frozenset[tuple[int, str]], tuple[OptionCost, NDArray[np.int64]]] = {}
        self._weighed: dict[frozenset[tuple[int, str]], tuple[OptionCost, NDArray[np.int64]]] = {}
        self._more: NDArray[np.int64] | None = None
        self._again = rates.again or RecomputeCost(seconds=rates.seconds)
        self._stock_s: float | None = None
        self._lowered_once = False
        self._spared: OptionCost | None = None
        self.stock, self._stock_peaks = self._evaluate({})
        self._alone = self._bytes_freed_alone() if quick and positions.count * len(self._variables) <= _ALONE else None
        self._relaxation = self._build_relaxation()
        self._closing = self._closing_of()

    def _closing_of(self) -> Rounding[OptionCost]:
        return Rounding(
            self._relaxation,
            self._evaluate,
            self.fastest_known,
            self._bytes_freed,
            step_s=float(self._rates.seconds[self._work.graph.statements.parent < 0].sum()),
            nodes=self._nodes,
            go_on=self._go_on,
        )

    def with_correction(self, more: NDArray[np.int64]) -> Chooser:
        """Return a copy of the chooser whose predicted peak at each position is higher by `more` bytes."""
        other = copy.copy(self)
        other._more, other._known, other._lowered_once, other._spared = more, {}, False, None
        other.stock, other._stock_peaks = other._evaluate({})
        other._relaxation = self._relaxation.with_peaks(other._stock_peaks)
        other._closing = other._closing_of()
        return other

    def point(self, options: Mapping[int, str]) -> OptionCost:
        """Return the exact cost of an assignment."""
        return self._evaluate(options)[0]

    def alone_s(self, storage: int, option: str) -> float:
        """Return the seconds that a choice adds if it is the only choice, and if compute hides no transfer."""
        if option == RECOMPUTE:
            return self._chain_s(storage)
        return 2 * float(self._bytes[storage]) / self._rates.offload_bytes_per_s

    def hoped_s(self, limit_bytes: int) -> float:
        """Estimate, without a plan, the seconds that a limit adds: the lower bound of the first guide."""
        if not self._guides:
            return self.bound(limit_bytes).added_s
        guide = self._guides[0]()
        return guide.with_correction(self._stock_peaks - guide._stock_peaks).bound(limit_bytes).added_s

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
            self._fastest_time_saver()
            return self.fastest_known(limit_bytes)
        if limit_bytes < self._relaxation.floor_bytes and self.least().peak_bytes > limit_bytes:
            return None  # the least peak memory that was found exceeds the limit
        if self._fit_by_guides(limit_bytes, below_s) is None:
            if self._guides and np.isfinite(below_s):
                return None
            self._closing.close_gap(limit_bytes, gap)
            if gap and self._closing.is_near_bound(limit_bytes, gap):
                return self.fastest_known(limit_bytes)
            if self.fastest_known(limit_bytes) is None:
                self.least()
        found = self.fastest_known(limit_bytes)
        if found is not None:
            better = found
            if self._quick or not self._closing.is_near_bound(limit_bytes, _WORTH):
                better = self._save_more(self._save_what_fits(found, limit_bytes), limit_bytes)
            if spared := self._fastest_time_saver().options:
                self.point({**better.options, **spared})
        return self.fastest_known(limit_bytes)

    def _fastest_time_saver(self) -> OptionCost:
        """Choose recomputations that make a step faster. Return their assignment, which is empty if none is found.

        Inside of a fusion, it may take less time to recompute a value than to write it and read it again. A storage is
        tried if the lower bound of the time that its recomputation adds is far enough below 0. Storages of equal size
        and equal bound, as in equal layers, are tried together. A plan shows whether their recomputation makes a step
        faster. The most promising groups are tried first, at most `_plan_budget()` groups.
        """
        if self._spared is not None:
            return self._spared
        self._spared, least = self.stock, self._rates.least
        step_s = float(self._rates.seconds[self._work.graph.statements.parent < 0].sum())
        kinds: dict[tuple[int, int], list[int]] = {}
        gains_s: dict[tuple[int, int], float] = {}
        for storage, option in self._variables:
            if self._quick or least is None or option != RECOMPUTE:
                continue
            gain_s = -float(least.seconds[sorted(self._chains[storage])].sum()) - least.each_s.get(storage, 0.0)
            if gain_s > _WORTH * step_s:
                kind = int(self._bytes[storage]), round(gain_s / step_s / _WORTH)
                kinds.setdefault(kind, []).append(storage)
                gains_s[kind] = gains_s.get(kind, 0.0) + gain_s
        for kind in sorted(kinds, key=lambda kind: -gains_s[kind])[: self._plan_budget()]:
            options = {**self._spared.options, **dict.fromkeys(kinds[kind], RECOMPUTE)}
            tried = self.point(self._add_values_read(options, self._remade))
            if tried.added_s < self._spared.added_s:
                self._spared = tried
        return self._spared

    def _fit_by_guides(self, limit_bytes: int, below_s: float) -> OptionCost | None:
        """Evaluate results of the guides exactly, and return the fastest known assignment within a limit.

        Return None if there are no guides, or if no assignment within the limit is known.
        """
        for number, guide in enumerate(self._guides):
            # The first guide predicts plans most exactly. The other guides reach lower peaks, but need many more plans.
            if self._closing.is_near_bound(limit_bytes, _NEAR if number else _WORTH):
                break
            if self._ask(guide(), limit_bytes, below_s) and self._plan_budget() == _PLANS_TO_SAVE_AGAIN:
                break
        return self.fastest_known(limit_bytes) if self._guides else None

    def _ask(self, guide: Chooser, limit_bytes: int, below_s: float) -> bool:
        """Compute plans under the assignments that a guide finds. Return whether at least one plan is within the limit.

        After each plan, the difference between the plan's peaks and the guide's prediction is added to the predictions
        of the guide, and the guide searches again.
        """
        fits = False
        more = self._stock_peaks - guide._stock_peaks
        asked: set[frozenset[tuple[int, str]]] = set()
        for _ in range(_AIMS):
            nearer = guide.with_correction(more)
            if asked and nearer.bound(limit_bytes).added_s >= below_s:
                break
            point = nearer.fit(limit_bytes) or nearer.least()
            key = frozenset(point.options.items())
            found = self._from_guide(guide, point)
            fits |= found.peak_bytes <= limit_bytes
            close = (1 - _NEAR) * limit_bytes <= found.peak_bytes <= limit_bytes
            if close or key in asked or self._closing.is_near_bound(limit_bytes, _WORTH):
                break
            asked.add(key)
            peaks = self._evaluate(found.options)[1]
            seen = peaks - guide._evaluate(point.options)[1]
            over = found.peak_bytes > limit_bytes and nearer.fastest_known(limit_bytes) is not None
            more = np.where(peaks > limit_bytes, np.maximum(more, seen), more) if over else seen
        # If no plan is within the limit, try other assignments that the guide has evaluated.
        for point in nearer.evaluated_points(limit_bytes)[:_AIMS]:
            if fits:
                break
            fits = self._from_guide(guide, point).peak_bytes <= limit_bytes
        return fits

    def _from_guide(self, guide: Chooser, point: OptionCost) -> OptionCost:
        """Extend a guide's assignment by `_add_values_read`, and return its exact cost."""
        if guide.stands_for is not None:
            return self.point(self._add_values_read(guide.stands_for(point.options), self._remade))
        return self.point(
            self._add_values_read(point.options, self._remade - {storage for storage, _ in guide._variables})
        )

    def _add_values_read(self, base_options: Mapping[int, str], candidates: Collection[int]) -> dict[int, str]:
        """Return `base_options`, and add RECOMPUTE for every candidate that a recomputed statement reads."""
        graph, options = self._work.graph, dict(base_options)
        while True:
            chosen = [storage for storage, option in options.items() if option == RECOMPUTE]
            rows = self._work.rows_rerun(chosen, along=self._along, gather=self._gather)
            read = {int(graph.values.storage[value]) for row in rows for value in graph.statements.inputs[row]}
            if not (more := read & set(candidates) - options.keys()):
                return options
            options |= dict.fromkeys(sorted(more), RECOMPUTE)

    def _plan_budget(self) -> int:
        """Return the number of plans that may be computed to improve a result, if each evaluation needs a plan."""
        return max(_PLANS_TO_SAVE_AGAIN, _PLANNED_TO_SAVE_AGAIN // max(1, self._places.count))

    def evaluated_points(self, limit_bytes: int) -> list[OptionCost]:
        """Return all evaluated assignments within a limit, fastest first."""
        within = [point for point, _ in self._known.values() if point.peak_bytes <= limit_bytes]
        return sorted(within, key=fastest_first)

    def fastest_known(self, limit_bytes: int) -> OptionCost | None:
        """Return the fastest evaluated assignment within a limit. It may have been found for another limit.

        If several are equally fast, return the one with the lowest peak memory. Return None if no evaluated assignment
        is within the limit.
        """
        within = (point for point, _ in self._known.values() if point.peak_bytes <= limit_bytes)
        return min(within, key=fastest_first, default=None)

    def lowest_known(self, limit_s: float, before_s: float) -> OptionCost:
        """Return, among the evaluated assignments with a step time of at most `limit_s`, the one with the lowest peak.

        `before_s` is the step time if everything is saved.
        """
        within = [point for point, _ in self._known.values() if before_s + point.added_s <= limit_s]
        return min(within, key=lowest_first, default=self.stock)

    def helpful_choices(self, point: OptionCost, position: int) -> list[tuple[int, str]]:
        """Return the choices that free bytes at a position, for storages that `point` saves.

        The choices are sorted by added seconds per freed byte, lowest first.
        """
        costs = self._costs() + self._transfers()[0] * (not self._rates.hides)
        freed = self._bytes_freed(position)
        open_ = [
            number
            for number, (storage, _) in enumerate(self._variables)
            if storage not in point.options and freed[number] > 0
        ]
        return [self._variables[n] for n in sorted(open_, key=lambda n: (costs[n] + 1e-12) / freed[n])]

    def added_s(self, options: Mapping[int, str]) -> float:
        """Return the predicted seconds that an assignment adds to a step, without evaluating its memory."""
        return sum(self._added_seconds(options))

    def least(self) -> OptionCost:
        """Search for the assignment with the least peak memory, however long the step. Return the best one found."""
        if not self._lowered_once:
            self._lowest()
            self._lowered_once = True
        return min((point for point, _ in self._known.values()), key=lowest_first)

    def _lowest(self) -> None:
        """Search for the assignment with the least peak memory.

        Each round solves a linear program. The rounds end if the lower bound of peak memory is reached, or if the
        program's least peak is not below the lowest known peak. If evaluations need no plan, `_lower_peak` then
        continues the search.
        """
        floor_bytes = self._relaxation.floor_bytes
        for make in self._guides:
            self._ask_lowest(make(), floor_bytes)
        best, x = self.stock, np.zeros(len(self._variables))
        rows, limits = [], []
        for _ in range(_ROUNDS):
            if min(point.peak_bytes for point, _ in self._known.values()) <= floor_bytes:
                return
            point, peaks = self._evaluate(self._options(x))
            best = min(best, point, key=lowest_first)
            for place in self._highest(peaks, int(0.98 * point.peak_bytes)):
                freed = self._bytes_freed(place)
                rows.append(freed)
                limits.append(float(peaks[place]) + float(freed @ x))
            # Minimize the peak z. At each position with a row, the bytes minus the freed bytes must be at most z.
            count = len(self._variables)
            if not count:
                break
            scale = max(1.0, float(self.stock.peak_bytes))
            matrix = np.vstack([*(np.append(row / scale, 1.0) for row in rows)])
            solved = solve_whole(
                self._go_on,
                np.append(self._costs() * 1e-6, 1.0),
                constraints=[
                    LinearConstraint(csr_array(matrix), np.asarray(limits) / scale, np.inf),
                    *self._one_each(extra=1),
                ],
                integrality=np.append(np.ones(count), 0),
                bounds=(0, np.append(np.ones(count), np.inf)),
                nodes=self._nodes,
            )
            if solved.x is None or np.array_equal(np.round(solved.x[:-1]), x):
                break
            if solved.x[-1] * scale >= min(point.peak_bytes for point, _ in self._known.values()):
                break  # the least peak memory of the linear program is not below the lowest known peak memory
            x = np.round(solved.x[:-1])
        if self._quick:
            away = self.point({storage: OFFLOAD for storage, option in self._variables if option == OFFLOAD})
            self._lower_peak(best)
            self._lower_peak(away)

    def _ask_lowest(self, guide: Chooser, floor_bytes: int) -> None:
        """Compute plans under the assignments for which a guide predicts the least peak memory.

        After each plan, the difference between the plan's peaks and the guide's prediction is added to the predictions
        of the guide, and the guide searches again. The search ends when the guide's lower bound of peak memory is not
        below the lowest known peak memory.
        """
        asked: set[frozenset[tuple[int, str]]] = set()
        apart = self._stock_peaks - guide._stock_peaks
        for more in (apart, np.zeros_like(apart)):
            # In the second pass, `more` is zero at first. Without a correction, the guide's bound does not hold for
            # plans, so it is not used.
            bound_bytes = floor_bytes
            for _ in range(_AIMS):
                nearer = guide.with_correction(more)
                lowest_bytes = min(point.peak_bytes for point, _ in self._known.values())
                if more.any():
                    bound_bytes = max(floor_bytes, nearer._relaxation.floor_bytes)
                if lowest_bytes <= bound_bytes:
                    break
                point = nearer.least()
                key = frozenset(point.options.items())
                if key in asked:
                    break
                asked.add(key)
                found = self._from_guide(guide, point)
                more = self._evaluate(found.options)[1] - guide._evaluate(point.options)[1]

    def _lower_peak(self, point: OptionCost) -> None:
        """Change the option of one storage at a time. Always make the best change, until none lowers the peak memory.

        The search also ends after `_change_budget()` evaluations. It finds improvements that the linear program misses,
        because the linear program does not model how choices interact.
        """
        left = self._change_budget()
        while left > 0:
            place = int(np.argmax(self._evaluate(point.options)[1]))
            turns: list[dict[int, str]] = []
            helps = self._relaxation.most_bytes_freed(place)
            # A large program has too many choices to try all. Begin with the choices that may free the most bytes at
            # the peak.
            for number in np.argsort(-helps, kind="stable").tolist():
                storage, option = self._variables[number]
                if len(turns) == left:
                    break
                if point.options.get(storage) == option:
                    turns.append({s: o for s, o in point.options.items() if s != storage})
                elif storage in point.options or helps[number]:
                    turns.append({**point.options, storage: option})
            left -= len(turns)
            lower = min((self.point(options) for options in turns), key=lowest_first, default=point)
            if lower.peak_bytes >= point.peak_bytes:
                break
            point = lower

    def _change_budget(self) -> int:
        """Return the number of changes of one storage's option that may be evaluated, if evaluations need no plan."""
        least, most = _TURNS
        return max(least, min(most, _TURNED // max(1, self._places.count)))

    def bound(self, limit_bytes: int) -> Bound:
        """Return the highest known lower bound on the time of all assignments within a limit."""
        return self._closing.bound(limit_bytes)

    def gap(self, point: OptionCost, limit_bytes: int) -> float:
        """Return how much slower `point` may be than the best assignment within a limit; see `Rounding.gap`."""
        return self._closing.gap(point, limit_bytes)

    def _build_relaxation(self) -> Relaxation:
        stock, fixed = self._places.stock, self._fixed.items()
        presence = Presence(
            self._work,
            stock,
            self._variables,
            along=self._along,
            gather=self._gather,
            ahead=self._ahead,
            always=[storage for storage, option in fixed if option == RECOMPUTE],
        )
        transfers, hidden = self._transfers()
        least = self._rates.least or self._again
        away_s = sum(int(self._bytes[s]) for s, o in fixed if o == OFFLOAD) / self._rates.offload_bytes_per_s
        return Relaxation(
            variables=self._variables,
            spans=[
                self._spread(*(presence.spans.get(storage, (0, 0)) if storage not in self._remade else (0, 0)))
                for storage, _ in self._variables
            ],
            sizes=self._bytes[[storage for storage, _ in self._variables]].astype(float),
            chains=[self._chains[storage] if option == RECOMPUTE else () for storage, option in self._variables],
            seconds=least.seconds,
            each_s=np.asarray(
                [least.each_s.get(storage, 0.0) if option == RECOMPUTE else 0.0 for storage, option in self._variables]
            ),
            transfers=transfers,
            hidden=(hidden[0] - away_s, hidden[1] - away_s),
            peaks=self._stock_peaks,
            joint_recomputations={
                storage: (dataclasses.replace(found, start=start, end=end), float(self._bytes[storage]))
                for storage, found in presence.beside.items()
                for start, end in (self._spread(found.start, found.end),)
            },
            presence=presence if self._quick else None,
        )

    def _spread(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of positions whose peak is lower if a storage is absent from `start` to before `end`.

        All members of a fusion have the peak of the fusion. Therefore, if the range begins or ends inside of a fusion,
        it is extended to the complete fusion.
        """
        if self._quick or start >= end:
            return start, end
        # The members of a fusion are at adjacent positions with equal peaks.
        steps = np.flatnonzero(np.append(True, np.diff(self._stock_peaks) != 0))
        ends = np.append(steps[1:], len(self._stock_peaks))
        first = steps[np.searchsorted(steps, start, side="right") - 1]
        return int(first), int(ends[np.searchsorted(ends, end - 1, side="right")])

    def _evaluate(self, options: Mapping[int, str]) -> tuple[OptionCost, NDArray[np.int64]]:
        """Return the exact cost of an assignment, and the peak at each position.

        Only an assignment that consists of legal choices is added to the known assignments.
        """
        key = frozenset(options.items())
        if key not in self._known:
            if key not in self._weighed:
                self._weighed[key] = self._compute_cost(options)
            point, peaks = self._weighed[key]
            if self._more is not None:
                peaks = peaks + self._more
                point = dataclasses.replace(point, peak_bytes=int(peaks.max()))
            if not self._legal.issuperset(key):
                return point, peaks
            self._known[key] = point, peaks
        return self._known[key]

    def _compute_cost(self, options: Mapping[int, str]) -> tuple[OptionCost, NDArray[np.int64]]:
        weighed = self._weigh(options)
        recompute_s, transfer_s = self._added_seconds(options)
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

    def _added_seconds(self, options: Mapping[int, str]) -> tuple[float, float]:
        """Return the seconds of repeated statements, and the seconds of transfers that do not overlap with compute."""
        chosen = {storage for storage, option in options.items() if option == RECOMPUTE}
        again = self._work.rows_rerun(chosen, along=self._along, gather=self._gather)
        if self._dragged:
            again = again.union(*(self._chains.get(storage) or self._chain(storage) for storage in chosen))
        again_s = float(self._again.seconds[sorted(again)].sum()) + self._seconds_of_each(chosen)
        moved = sum(int(self._bytes[s]) for s, o in {**self._fixed, **options}.items() if o == OFFLOAD)
        way_s = moved / self._rates.offload_bytes_per_s
        return again_s, exposed_s(way_s, self._transfers()[1])

    def _seconds_of_each(self, chosen: Collection[int]) -> float:
        return sum(self._again.each_s.get(storage, 0.0) for storage in sorted(chosen))

    def _chain(self, storage: int) -> frozenset[int]:
        """Return the statements that run again to recompute only this storage."""
        options = self._add_values_read({storage: RECOMPUTE}, self._dragged)
        return frozenset(self._work.rows_rerun(options, along=self._along, gather=self._gather))

    def _chain_s(self, storage: int) -> float:
        """Return the seconds that the recomputation of a storage adds if no other storage is recomputed."""
        # `_chains` contains only storages of `free`, but the current plan may recompute other storages.
        chain = self._chains[storage] if storage in self._chains else self._chain(storage)
        return float(self._again.seconds[sorted(chain)].sum()) + self._seconds_of_each((storage,))

    # The linear model.

    def _bytes_freed(self, position: int) -> NDArray[np.float64]:
        """Return the bytes that each choice frees at a position if it is the only choice, or an upper bound of them."""
        return self._relaxation.most_bytes_freed(position) if self._alone is None else self._alone[:, position]

    def _bytes_freed_alone(self) -> NDArray[np.float64]:
        """Return, for each choice, the exact bytes that it frees at each position if it is the only choice."""
        found = np.zeros((len(self._variables), len(self._stock_peaks)))
        for number, (storage, option) in enumerate(self._variables):
            found[number] = self._stock_peaks - self._evaluate({storage: option})[1]
        return found

    def _costs(self) -> NDArray[np.float64]:
        """Return, for each choice, the seconds that it adds if it is the only recomputation; 0 for an offload."""
        found = [self._chain_s(storage) if option == RECOMPUTE else 0.0 for storage, option in self._variables]
        return np.asarray(found, float)

    def _transfers(self) -> tuple[NDArray[np.float64], tuple[float, float]]:
        """Return the seconds of each choice's transfer, and the seconds of transfers that can overlap with compute.

        The seconds that can overlap are two numbers: one for the forward, and one for the backward.
        """
        seconds = np.asarray(
            [
                float(self._bytes[storage]) / self._rates.offload_bytes_per_s if option == OFFLOAD else 0.0
                for storage, option in self._variables
            ],
            float,
        )
        return seconds, hidden_s(self._work.graph, self._rates.seconds, hides=self._rates.hides)

    def _exclusive_pairs(self) -> list[list[int]]:
        """Return the numbers of the two choices of each storage that may be either recomputed or offloaded."""
        numbers: dict[int, list[int]] = {}
        for number, (storage, _) in enumerate(self._variables):
            numbers.setdefault(storage, []).append(number)
        return [both for both in numbers.values() if len(both) > 1]

    def _pairs(self) -> NDArray[np.float64]:
        pairs = self._exclusive_pairs()
        matrix = np.zeros((len(pairs), len(self._variables)))
        for row, both in enumerate(pairs):
            matrix[row, both] = 1
        return matrix

    def _one_each(self, extra: int) -> list[LinearConstraint]:
        pairs = self._pairs()
        return [LinearConstraint(np.hstack([pairs, np.zeros((len(pairs), extra))]), -np.inf, 1)] if len(pairs) else []

    def _options(self, x: NDArray[np.float64]) -> dict[int, str]:
        return {storage: option for (storage, option), taken in zip(self._variables, x, strict=True) if taken > 0.5}

    @staticmethod
    def _highest(peaks: NDArray[np.int64], limit_bytes: int) -> list[int]:
        """Return the positions that exceed a limit, highest first; at most `_CUTS_PER_ROUND`."""
        over = np.flatnonzero(peaks > limit_bytes)
        highest: list[int] = over[np.argsort(-peaks[over], kind="stable")][:_CUTS_PER_ROUND].tolist()
        return highest

    def _save_what_fits(self, point: OptionCost, limit_bytes: int) -> OptionCost:
        """Save storages again if the free bytes at all their positions suffice, and return the resulting assignment.

        Several storages are saved again at once, so this computes only a few plans. If evaluations need no plan, return
        `point` itself, because `_save_more` then tries each storage.
        """
        numbers = {chosen: number for number, chosen in enumerate(self._variables)}
        share = 1.0
        for _ in range(0 if self._quick else _PLANS_TO_SAVE_AGAIN):
            left = limit_bytes - self._evaluate(point.options)[1]
            options, added_s = dict(point.options), self.added_s(point.options)
            taken: list[int] = []
            for storage in sorted(options, key=lambda storage: -int(self._bytes[storage])):
                number = numbers[storage, point.options[storage]]
                places = slice(self._relaxation.start[number], self._relaxation.end[number])
                size = int(self._bytes[storage])
                without = {s: o for s, o in options.items() if s != storage}
                if left[places].min(initial=limit_bytes) >= size and (less_s := self.added_s(without)) < added_s:
                    left[places] -= size
                    options, added_s = without, less_s
                    taken.append(storage)
            taken = taken[: int(share * len(taken))]
            if not taken:
                break
            tried = self.point({s: o for s, o in point.options.items() if s not in taken})
            if tried.peak_bytes <= limit_bytes and tried.added_s < point.added_s:
                point = tried
            else:
                share /= 2
        return point

    def _save_more(self, point: OptionCost, limit_bytes: int) -> OptionCost:
        """Try for each storage to save it again, or to change its option. Return the resulting assignment.

        A change is kept if the result is within the limit and not slower.
        """
        tries_left = min(len(point.options) * 2, self._change_budget()) if self._quick else self._plan_budget()
        legal = set(self._variables)
        alone = dict(zip(self._variables, self._costs() + self._transfers()[0] * (not self._rates.hides), strict=True))
        for storage, option in sorted(point.options.items(), key=lambda chosen: -alone[chosen]):
            without = {s: o for s, o in point.options.items() if s != storage}
            other = OFFLOAD if option == RECOMPUTE else RECOMPUTE
            tries = [without, *([{**without, storage: other}] if (storage, other) in legal else [])]
            for options in tries[:tries_left]:
                tries_left -= 1
                tried = self.point(options)
                if tried.peak_bytes <= limit_bytes and tried.added_s <= point.added_s:
                    point = tried
                    break
        return point
