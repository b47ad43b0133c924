"""The least time under a stated peak: what to save, recompute and offload, by linear programs and exact prediction.

Each storage that the forward saves is a variable: saved, recomputed or offloaded. Recomputing it costs the statements
that are run again, offloading it the transfers that compute does not hide. A linear model says how many bytes each
choice frees at each statement; the exact prediction of `memory.Predictor` says where the model was wrong, and the
statement is put into the model as it was found there, until no statement is over the limit. Then whatever can be saved
again without going over it is.

What no choice can beat comes from a relaxation that is wrong on one side only: every byte that a choice could free is
counted, nothing that it adds, statements that several choices repeat are shared among them, and choices may be
fractions.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from workbench.analysis.memory import Predictor
from workbench.analysis.recompute import Recomputer
from workbench.graph import BACKWARD, Graph

SAVE, RECOMPUTE, OFFLOAD = "save", "recompute", "offload"

_ROUNDS = 40
_CUTS_PER_ROUND = 40
_SOLVER_S = 5.0
_PLANS_TO_SAVE_AGAIN = 4
_ALONE = 1_000_000
"""Statements times variables up to which each choice is predicted alone, rather than by what it can free at most."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """What choices cost.

    Attributes
    ----------
    seconds : (statements,) float64
        Of each statement of the joint graph.
    offload_bytes_per_s : float
        One way.
    hides : bool
        Whether transfers go on beside compute, as on a GPU.
    """

    seconds: NDArray[np.float64]
    offload_bytes_per_s: float
    hides: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """What options for storages come to, by exact prediction of the joint graph.

    Attributes
    ----------
    options : mapping of int to str
        Storages that are not saved, and what happens to each.
    peak_bytes, saved_bytes : int
    recompute_s, transfer_s : float
        Seconds that are added to a step: statements run again, transfers that nothing hides.
    """

    options: Mapping[int, str]
    peak_bytes: int
    saved_bytes: int
    recompute_s: float
    transfer_s: float

    @property
    def added_s(self) -> float:
        """Seconds added to a step in which everything is saved."""
        return self.recompute_s + self.transfer_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """What no options can beat.

    Attributes
    ----------
    added_s : float
        Seconds that any options within the limit add at least.
    s_per_byte : float
        By which that falls when the limit rises by a byte.
    """

    added_s: float
    s_per_byte: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Weighed:
    """Exact memory under options.

    Attributes
    ----------
    peak_bytes, saved_bytes : int
    peaks : (places + 1,) int64
        The most bytes alive at each place of `Places`, and after the last statement.
    """

    peak_bytes: int
    saved_bytes: int
    peaks: NDArray[np.int64]


class Places:
    """Where peaks stand, whatever is chosen: the joint graph's statements in the order in which stock would run them.

    Parameters
    ----------
    work : Recomputer
    predictor : Predictor
        Of the same graph.
    """

    def __init__(self, work: Recomputer, predictor: Predictor) -> None:
        schedule = work.edit((), along=True).schedule(work.graph)
        stock = predictor.predict(schedule)
        self.of_row = {row: place for place, row in enumerate(schedule.order[stock.entries].tolist())}
        self.first_backward = stock.first_backward
        self.count = len(self.of_row)

    def of_plan(self, joint: Graph, plan: Graph, peaks: NDArray[np.int64], after_bytes: int) -> NDArray[np.int64]:
        """Peaks by place, of an execution graph's: a fusion's stand wherever its members would.

        Parameters
        ----------
        joint, plan : Graph
        peaks : (statements,) int64
            The most bytes alive inside each statement of `plan`.
        after_bytes : int
            And after the last.
        """
        producer = dict(zip(joint.values.name, joint.values.producer.tolist(), strict=True))
        reached: dict[int, int] = {}
        statements = plan.statements
        for row in range(len(statements)):
            top = row if statements.parent[row] < 0 else int(statements.parent[row])
            for value in statements.outputs[row].tolist():
                place = self.of_row.get(producer.get(plan.values.name[value], -1), -1)
                # A forward's value made in the backward is a copy of it.
                if (place >= self.first_backward) == (statements.side[top] == BACKWARD):
                    reached[top] = max(reached.get(top, -1), place)
        found = np.zeros(self.count + 1, np.int64)
        at = 0
        for row in np.flatnonzero(statements.parent < 0).tolist():
            if statements.side[row] == BACKWARD:
                at = max(at, min(self.first_backward, self.count))
            to = max(at, reached.get(row, at))
            found[at : to + 1] = np.maximum(found[at : to + 1], peaks[row])
            at = to
        found[-1] = max(int(found[-1]), after_bytes)
        return found


class ByArithmetic:
    """Weighs by the joint graph alone, in milliseconds; exact where nothing is fused.

    Parameters
    ----------
    work : Recomputer
    predictor : Predictor
    places : Places
    fixed : mapping of int to str
        Storages that are not saved whatever else is chosen.
    along, gather : bool
        As for `Recomputer.edit`.
    ahead : int
        Statements between bringing an offloaded storage back and its first use.
    """

    def __init__(
        self,
        work: Recomputer,
        predictor: Predictor,
        places: Places,
        fixed: Mapping[int, str],
        *,
        along: bool,
        gather: bool,
        ahead: int,
    ) -> None:
        self._work, self._predictor, self._places, self._fixed = work, predictor, places, dict(fixed)
        self._along, self._gather, self._ahead = along, gather, ahead

    def __call__(self, options: Mapping[int, str]) -> Weighed:
        """Weigh options."""
        chosen = {**self._fixed, **options}
        again = [storage for storage, option in chosen.items() if option == RECOMPUTE]
        away = [storage for storage, option in chosen.items() if option == OFFLOAD]
        schedule = self._work.edit(again, along=self._along, gather=self._gather).schedule(self._work.graph)
        found = self._predictor.predict(schedule, away=away, ahead=self._ahead)
        peaks = np.zeros(self._places.count + 1, np.int64)
        place = self._places.count
        # From the end, so that a clone counts where what it is made for stands.
        for entry in range(len(found.entries) - 1, -1, -1):
            number = int(found.entries[entry])
            if not schedule.clone[number]:
                place = self._places.of_row.get(int(schedule.order[number]), place)
            peaks[place] = max(peaks[place], int(found.timeline.statement_peak_bytes[entry]))
        peaks[-1] = max(int(peaks[-1]), found.timeline.after_bytes)
        return Weighed(peak_bytes=found.peak_bytes, saved_bytes=found.saved_bytes, peaks=peaks)


class Chooser:
    """Chooses for the storages of one joint graph.

    Parameters
    ----------
    work : Recomputer
    places : Places
    rates : Rates
    weigh : callable
        Exact memory under options, for storages that are not saved.
    quick : bool
        Whether that takes milliseconds, so that it can be asked for each storage.
    free : mapping of int to collection of str
        Storages to choose for, and the options that are legal beside `SAVE`.
    fixed : mapping of int to str
        Other storages that are not saved.
    along, gather, ahead
        As for `ByArithmetic`.
    """

    def __init__(
        self,
        work: Recomputer,
        places: Places,
        rates: Rates,
        weigh: Callable[[Mapping[int, str]], Weighed],
        free: Mapping[int, Collection[str]],
        fixed: Mapping[int, str],
        *,
        quick: bool,
        along: bool = True,
        gather: bool = False,
        ahead: int = 4,
    ) -> None:
        self._work, self._places, self._rates, self._weigh, self._quick = work, places, rates, weigh, quick
        self._fixed = dict(fixed)
        self._along, self._gather, self._ahead = along, gather, ahead
        self._variables = [
            (storage, option)
            for storage, options in free.items()
            for option in (RECOMPUTE, OFFLOAD)
            if option in options
        ]
        self._chains = {
            storage: work.again({storage}, along=along, gather=gather)
            for storage, option in self._variables
            if option == RECOMPUTE
        }
        self._bytes = work.graph.storages.bytes
        self._known: dict[frozenset[tuple[int, str]], tuple[Point, NDArray[np.int64]]] = {}
        self.stock, self._stock_peaks = self._evaluate({})
        self._freed = self._frees()
        alone = quick and places.count * len(self._variables) <= _ALONE
        self._model = self._each_alone() if alone else self._freed.astype(float)

    def point(self, options: Mapping[int, str]) -> Point:
        """What options come to."""
        return self._evaluate(options)[0]

    def alone_s(self, storage: int, option: str) -> float:
        """Seconds that one choice takes if it is the only one, of an offload if nothing hides it."""
        if option == RECOMPUTE:
            return float(self._rates.seconds[sorted(self._chains[storage])].sum())
        return 2 * float(self._bytes[storage]) / self._rates.offload_bytes_per_s

    def fit(self, limit_bytes: int) -> Point | None:
        """Options whose peak is at most a limit, in the least time that is found; None if none are found."""
        if self.stock.peak_bytes <= limit_bytes:
            return self.stock
        found = self._cut(limit_bytes)
        return self._saved_again(found, limit_bytes) if found is not None else None

    def least(self) -> Point:
        """The options of the least peak that is found, whatever they take."""
        best, x = self.stock, np.zeros(len(self._variables))
        rows, limits = [], []
        for _ in range(_ROUNDS):
            point, peaks = self._evaluate(self._options(x))
            if point.peak_bytes < best.peak_bytes or (point.peak_bytes, point.added_s) < (
                best.peak_bytes,
                best.added_s,
            ):
                best = point
            for place in self._highest(peaks, int(0.98 * point.peak_bytes)):
                freed = self._model[:, place]
                rows.append(freed)
                limits.append(float(peaks[place]) + float(freed @ x))
            # The least z of which every statement seen says: at most this many bytes less what is freed.
            count = len(self._variables)
            if not count:
                break
            scale = max(1.0, float(self.stock.peak_bytes))
            matrix = np.vstack([*(np.append(row / scale, 1.0) for row in rows)])
            solved = milp(
                np.append(self._costs() * 1e-6, 1.0),
                constraints=[
                    LinearConstraint(csr_array(matrix), np.asarray(limits) / scale, np.inf),
                    *self._one_each(extra=1),
                ],
                integrality=np.append(np.ones(count), 0),
                bounds=(0, np.append(np.ones(count), np.inf)),
                options={"time_limit": _SOLVER_S},
            )
            if solved.x is None or np.array_equal(np.round(solved.x[:-1]), x):
                break
            x = np.round(solved.x[:-1])
        return best

    def bound(self, limit_bytes: int) -> Bound:
        """What no options under a limit can beat, in this model of time."""
        over = np.flatnonzero(self._stock_peaks > limit_bytes)
        if not len(over) or not len(self._variables):
            return Bound(added_s=0.0, s_per_byte=0.0)
        shared = Counter(row for chain in self._chains.values() for row in chain)
        seconds = self._rates.seconds
        least = np.asarray(
            [
                sum(seconds[row] / shared[row] for row in self._chains[storage]) if option == RECOMPUTE else 0.0
                for storage, option in self._variables
            ]
        )
        # Of positions that the same storages are alive at, only the highest can bind.
        freed = self._freed.astype(float)
        if not self._quick:
            # All of what a fusion covers has its peak: a byte freed in some of it counts in the whole.
            steps = np.flatnonzero(np.append(True, np.diff(self._stock_peaks) != 0))
            spread = np.maximum.reduceat(freed, steps, axis=1)
            freed = np.repeat(spread, np.diff(np.append(steps, freed.shape[1])), axis=1)
        columns = freed[:, over]
        needed = self._stock_peaks[over].astype(float) - limit_bytes
        kept: dict[bytes, int] = {}
        for place in range(len(over)):
            key = columns[:, place].tobytes()
            if key not in kept or needed[place] > needed[kept[key]]:
                kept[key] = place
        picked = list(kept.values())
        transfers, hidden = self._transfers()
        count = len(self._variables)
        scale = max(1.0, float(needed.max()))
        upper = [
            np.hstack([-columns[:, picked].T / scale, np.zeros((len(picked), 2))]),
            np.hstack([transfers[None], [[-1.0, 0.0]]]),
            np.hstack([transfers[None], [[0.0, -1.0]]]),
            *([np.hstack([self._pairs(), np.zeros((len(self._pairs()), 2))])] if len(self._pairs()) else []),
        ]
        limits = np.concatenate([-needed[picked] / scale, hidden, np.ones(len(self._pairs()))])
        solved = linprog(
            np.append(least, [1.0, 1.0]),
            A_ub=csr_array(np.vstack(upper)),
            b_ub=limits,
            bounds=[(0, 1)] * count + [(0, None)] * 2,
            method="highs",
        )
        if solved.x is None:
            return Bound(added_s=0.0, s_per_byte=0.0)
        price = max(0.0, -float(solved.ineqlin.marginals[: len(picked)].sum()) / scale)
        return Bound(added_s=max(0.0, float(solved.fun)), s_per_byte=price)

    def _evaluate(self, options: Mapping[int, str]) -> tuple[Point, NDArray[np.int64]]:
        key = frozenset(options.items())
        if key not in self._known:
            self._known[key] = self._evaluated(options)
        return self._known[key]

    def _evaluated(self, options: Mapping[int, str]) -> tuple[Point, NDArray[np.int64]]:
        weighed = self._weigh(options)
        again = self._work.again(
            {storage for storage, option in options.items() if option == RECOMPUTE},
            along=self._along,
            gather=self._gather,
        )
        moved = sum(int(self._bytes[s]) for s, o in {**self._fixed, **options}.items() if o == OFFLOAD)
        way_s = moved / self._rates.offload_bytes_per_s
        point = Point(
            options=dict(options),
            peak_bytes=weighed.peak_bytes,
            saved_bytes=weighed.saved_bytes,
            recompute_s=float(self._rates.seconds[sorted(again)].sum()),
            transfer_s=sum(max(0.0, way_s - hidden) for hidden in self._transfers()[1]),
        )
        return point, weighed.peaks

    # The linear model.

    def _frees(self) -> NDArray[np.int64]:
        """Bytes that each variable frees at each place, and after the last statement.

        Where statements are fused, a storage is alive up to the ends of the fusions that touch it, which are not known
        here: up to the first and last place that touches it.
        """
        graph, values = self._work.graph, self._work.graph.values
        freed = np.zeros((len(self._variables), self._places.count + 1), np.int64)
        touched: dict[int, list[int]] = {}
        for row, place in self._places.of_row.items():
            for value in (*graph.statements.inputs[row].tolist(), *graph.statements.outputs[row].tolist()):
                touched.setdefault(int(values.storage[value]), []).append(place)
        for number, (storage, option) in enumerate(self._variables):
            places = sorted(touched.get(storage, ()))
            before = [place for place in places if place < self._places.first_backward]
            after = [place for place in places if place >= self._places.first_backward]
            if before and after:
                ends = after[0] if option == RECOMPUTE else max(self._places.first_backward, after[0] - self._ahead)
                freed[number, before[-1] + 1 : ends] = self._bytes[storage]
        return freed

    def _each_alone(self) -> NDArray[np.float64]:
        """Bytes that each variable frees at each statement where it alone is chosen, by exact prediction."""
        found = np.zeros((len(self._variables), len(self._stock_peaks)))
        for number, (storage, option) in enumerate(self._variables):
            found[number] = self._stock_peaks - self._evaluate({storage: option})[1]
        return found

    def _costs(self) -> NDArray[np.float64]:
        """Seconds that each variable costs alone; of transfers what would be if nothing hid them."""
        found = [
            float(self._rates.seconds[list(self._chains[storage])].sum()) if option == RECOMPUTE else 0.0
            for storage, option in self._variables
        ]
        return np.asarray(found, float)

    def _transfers(self) -> tuple[NDArray[np.float64], tuple[float, float]]:
        """Seconds one way of each variable, and what the compute of forward and backward hides."""
        seconds = np.asarray(
            [
                float(self._bytes[storage]) / self._rates.offload_bytes_per_s if option == OFFLOAD else 0.0
                for storage, option in self._variables
            ],
            float,
        )
        if not self._rates.hides:
            return seconds, (0.0, 0.0)
        side = self._work.graph.statements.side
        top = self._work.graph.statements.parent < 0
        return seconds, (
            float(self._rates.seconds[top & (side != BACKWARD)].sum()),
            float(self._rates.seconds[top & (side == BACKWARD)].sum()),
        )

    def _pairs(self) -> NDArray[np.float64]:
        """A row for each storage that could be recomputed and offloaded, which is one or the other."""
        numbers: dict[int, list[int]] = {}
        for number, (storage, _) in enumerate(self._variables):
            numbers.setdefault(storage, []).append(number)
        pairs = [both for both in numbers.values() if len(both) > 1]
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
        """The places over a limit, the highest first, not more than a few."""
        over = np.flatnonzero(peaks > limit_bytes)
        highest: list[int] = over[np.argsort(-peaks[over], kind="stable")][:_CUTS_PER_ROUND].tolist()
        return highest

    def _cut(self, limit_bytes: int) -> Point | None:
        """Options within a limit: solve, predict exactly, put what was over the limit into the model, again."""
        count = len(self._variables)
        transfers, hidden = self._transfers()
        costs, scale = self._costs(), max(1.0, float(self.stock.peak_bytes))
        # What costs nothing is still not taken where it is not needed.
        weights = np.concatenate([costs + transfers * 1e-3 + max(float(costs.sum()), 1e-6) * 1e-9, [1.0, 1.0]])
        weights /= max(float(weights[:-2].max()), 1e-12) if count else 1.0
        exposed = [
            LinearConstraint(np.append(transfers, [-1.0, 0.0])[None], -np.inf, hidden[0]),
            LinearConstraint(np.append(transfers, [0.0, -1.0])[None], -np.inf, hidden[1]),
        ]
        rows: list[NDArray[np.float64]] = []
        needed: list[float] = []
        x = np.zeros(count)
        best: Point | None = None
        for _ in range(_ROUNDS):
            point, peaks = self._evaluate(self._options(x))
            if point.peak_bytes <= limit_bytes:
                best = point
                break
            for place in self._highest(peaks, limit_bytes):
                freed = self._model[:, place]
                if np.maximum(freed, 0) @ (1 - x) + np.maximum(-freed, 0) @ x < peaks[place] - limit_bytes:
                    # Nothing more helps there: what was chosen is in its own way, as the model does not know.
                    rows.append(np.where(x > 0.5, -1.0, 0.0))
                    needed.append(1.0 - float(x.sum()))
                    continue
                rows.append(freed / scale)
                needed.append((float(peaks[place]) - limit_bytes + float(freed @ x)) / scale)
            matrix = np.hstack([np.vstack(rows), np.zeros((len(rows), 2))])
            solved: Any = milp(
                weights,
                constraints=[LinearConstraint(csr_array(matrix), needed, np.inf), *exposed, *self._one_each(extra=2)],
                integrality=np.concatenate([np.ones(count), np.zeros(2)]),
                bounds=(0, np.concatenate([np.ones(count), [np.inf, np.inf]])),
                options={"time_limit": _SOLVER_S, "mip_rel_gap": 1e-4},
            )
            if solved.x is None:
                break
            x = np.round(solved.x[:count])
        if best is None:
            least = self.least()
            best = least if least.peak_bytes <= limit_bytes else None
        return best

    def _saved_again(self, point: Point, limit_bytes: int) -> Point:
        """The same with whatever can be saved again, the dearest first, and dear ones turned into cheaper."""
        tries_left = len(point.options) * 2 if self._quick else _PLANS_TO_SAVE_AGAIN
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
