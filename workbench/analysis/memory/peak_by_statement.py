"""Compute the memory at each statement of the joint graph if storages are saved, recomputed or offloaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.memory.incremental_liveness import IncrementalLiveness, RecomputedMemory
from workbench.analysis.memory.liveness import Predictor, StatementSchedule
from workbench.analysis.memory.recompute_set import Recompute, Recomputer
from workbench.core.graph import BACKWARD, Graph

SAVE, RECOMPUTE, OFFLOAD = "save", "recompute", "offload"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactMemory:
    """The memory of a step under options for storages.

    Attributes
    ----------
    peak_bytes, saved_bytes : int
    peaks : (positions + 1,) int64
        Most bytes alive at each position of `PeakPositions`, and after the last statement.
    compute_s : float or None
        Seconds of a step's compute, without transfers. None if no plan was computed; then they are unknown.
    """

    peak_bytes: int
    saved_bytes: int
    peaks: NDArray[np.int64]
    compute_s: float | None = None


class PeakPositions:
    """The positions at which the peaks of different plans can be compared.

    The statements of the joint graph that run under the stock plan are numbered in order. A position is such a number.
    Other plans have other statements, so their peaks are assigned to these positions.

    Parameters
    ----------
    work : Recomputer
    predictor : Predictor
        Predictor for the graph of `work`.
    """

    def __init__(self, work: Recomputer, predictor: Predictor) -> None:
        self.stock = IncrementalLiveness(predictor, work.edit((), along=True).schedule(work.graph))
        self.of_row = {row: place for place, row in enumerate(self.stock.rows)}
        self.first_backward = self.stock.first_backward
        self.count = len(self.of_row)

    def positions_ahead(self, plan: Graph, ahead: int) -> int:
        """Return how many backward positions correspond to `ahead` statements of the plan's graph (`plan`).

        A fusion is one statement of the plan's graph, but its members have several positions.
        """
        statements = plan.statements
        planned = int(((statements.parent < 0) & (statements.side == BACKWARD)).sum())
        return round(ahead * max(1.0, (self.count - self.first_backward) / max(1, planned)))

    def peaks_of_plan(self, joint: Graph, plan: Graph, peaks: NDArray[np.int64], after_bytes: int) -> NDArray[np.int64]:
        """Assign the peaks of an execution graph's statements to positions.

        Return the peak at each position, and after the last statement. All members of a fusion have the peak of the
        fusion.

        Parameters
        ----------
        joint, plan : Graph
            The joint graph and an execution graph.
        peaks : (statements,) int64
            Most bytes alive during each statement of `plan`.
        after_bytes : int
            Most bytes alive after the last statement.
        """
        producer = dict(zip(joint.values.name, joint.values.producer.tolist(), strict=True))
        places = np.asarray([self.of_row.get(producer.get(name, -1), -1) for name in plan.values.name], np.int64)
        statements = plan.statements
        rows = np.arange(len(statements))
        by, made = statements.outputs.pairs(rows)
        top = np.where(statements.parent < 0, rows, statements.parent)[by]
        in_backward = statements.side == BACKWARD
        # Ignore recomputations: statements of the backward that make values of the forward.
        own = (places[made] >= self.first_backward) == in_backward[top]
        reached = np.full(len(statements), -1)
        np.maximum.at(reached, top[own], places[made][own])
        found = np.zeros(self.count + 1, np.int64)
        tops = np.flatnonzero(statements.parent < 0)
        # Statements run in order, and those of the backward not before its first position.
        least = np.where(in_backward[tops], min(self.first_backward, self.count), 0)
        ends = np.maximum.accumulate(np.maximum(reached[tops], least))
        starts = np.maximum(np.append(0, ends[:-1]), least)
        for start, end, peak in zip(starts.tolist(), ends.tolist(), peaks[tops].tolist(), strict=True):
            np.maximum(found[start : end + 1], peak, out=found[start : end + 1])
        found[-1] = max(int(found[-1]), after_bytes)
        return found


class JointGraphMemory:
    """Computes the memory under options from the joint graph, without a plan. This takes milliseconds.

    The result is exact if the executors fuse no statements.

    Parameters
    ----------
    work : Recomputer
    predictor : Predictor
    positions : PeakPositions
    fixed : mapping of int to str
        Options of storages whose option does not change.
    along, gather : bool
        See `Recomputer.edit`.
    ahead : int
        Number of statements by which the reload of a storage precedes its first use in the backward.
    """

    def __init__(
        self,
        work: Recomputer,
        predictor: Predictor,
        positions: PeakPositions,
        fixed: Mapping[int, str],
        *,
        along: bool,
        gather: bool,
        ahead: int,
    ) -> None:
        self._work, self._predictor, self._places, self._fixed = work, predictor, positions, dict(fixed)
        self._along, self._gather, self._ahead = along, gather, ahead
        self._last: tuple[list[int], Recompute, RecomputedMemory | None] | None = None
        """The last recomputed storages, and their recomputations. Many evaluations differ only in offloads."""

    def __call__(self, options: Mapping[int, str]) -> ExactMemory:
        """Return the memory under `options`, a map from storages to their options."""
        chosen = {**self._fixed, **options}
        again = [storage for storage, option in chosen.items() if option == RECOMPUTE]
        away = [storage for storage, option in chosen.items() if option == OFFLOAD]
        last = self._last
        if last is None or last[0] != again:
            edit = self._work.edit(again, along=self._along, gather=self._gather)
            last = self._last = again, edit, self._places.stock.with_reruns(edit.before)
        _, edit, recomputed = last
        if recomputed is None:
            return self.evaluate_schedule(edit.schedule(self._work.graph), away)
        peak_bytes, saved_bytes, peaks = recomputed.with_offloads(away, self._ahead)
        return ExactMemory(peak_bytes=peak_bytes, saved_bytes=saved_bytes, peaks=peaks)

    def evaluate_schedule(self, schedule: StatementSchedule, offloaded_storages: Collection[int]) -> ExactMemory:
        """Return the memory of a schedule with offloaded storages, from the `Predictor`."""
        found = self._predictor.predict(schedule, offloaded_storages=offloaded_storages, ahead=self._ahead)
        peaks = np.zeros(self._places.count + 1, np.int64)
        place = self._places.count
        # A repeated statement has no position, so it gets the position of the next statement that is not repeated.
        # Therefore go backwards.
        for entry in range(len(found.entries) - 1, -1, -1):
            number = int(found.entries[entry])
            if not schedule.clone[number]:
                place = self._places.of_row.get(int(schedule.order[number]), place)
            peaks[place] = max(peaks[place], int(found.timeline.statement_peak_bytes[entry]))
        peaks[-1] = max(int(peaks[-1]), found.timeline.after_bytes)
        return ExactMemory(peak_bytes=found.peak_bytes, saved_bytes=found.saved_bytes, peaks=peaks)
