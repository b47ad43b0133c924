"""Exact memory under options for storages, by place. Places are statements in the order in which stock runs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.memory.incremental_liveness import IncrementalLiveness
from workbench.analysis.memory.liveness import Predictor, StatementSchedule
from workbench.analysis.memory.recompute_set import Recomputer
from workbench.core.graph import BACKWARD, Graph

SAVE, RECOMPUTE, OFFLOAD = "save", "recompute", "offload"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactMemory:
    """Exact memory under options.

    Attributes
    ----------
    peak_bytes, saved_bytes : int
    peaks : (places + 1,) int64
        Maximum bytes alive at each place of `PeakPositions`, and after the last statement.
    compute_s : float or None
        Seconds of a step's compute, without transfers; None if only the time that the choices add is known.
    """

    peak_bytes: int
    saved_bytes: int
    peaks: NDArray[np.int64]
    compute_s: float | None = None


class PeakPositions:
    """Places of peaks, independent of choices: the joint graph's statements in stock execution order.

    Parameters
    ----------
    work : Recomputer
    predictor : Predictor
        Of the same graph.
    """

    def __init__(self, work: Recomputer, predictor: Predictor) -> None:
        self.stock = IncrementalLiveness(predictor, work.edit((), along=True).schedule(work.graph))
        self.of_row = {row: place for place, row in enumerate(self.stock.rows)}
        self.first_backward = self.stock.first_backward
        self.count = len(self.of_row)

    def positions_ahead(self, plan: Graph, ahead: int) -> int:
        """Return the number of backward places in `ahead` statements of an execution graph.

        A fusion counts as one statement.
        """
        statements = plan.statements
        planned = int(((statements.parent < 0) & (statements.side == BACKWARD)).sum())
        return round(ahead * max(1.0, (self.count - self.first_backward) / max(1, planned)))

    def peaks_of_plan(self, joint: Graph, plan: Graph, peaks: NDArray[np.int64], after_bytes: int) -> NDArray[np.int64]:
        """Return peaks by place from those of an execution graph; all members of a fusion have the fusion's peak.

        Parameters
        ----------
        joint, plan : Graph
        peaks : (statements,) int64
            Maximum bytes alive during each statement of `plan`.
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
                # If the backward makes a value of the forward, it makes a copy of it.
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


class JointGraphMemory:
    """Evaluates options by the joint graph alone, in milliseconds; exact if nothing is fused.

    Parameters
    ----------
    work : Recomputer
    predictor : Predictor
    positions : PeakPositions
    fixed : mapping of int to str
        Storages that are never saved, whatever else is chosen.
    along, gather : bool
        As for `Recomputer.edit`.
    ahead : int
        Number of statements between loading an offloaded storage back and its first use.
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

    def __call__(self, options: Mapping[int, str]) -> ExactMemory:
        """Weigh options."""
        chosen = {**self._fixed, **options}
        again = [storage for storage, option in chosen.items() if option == RECOMPUTE]
        away = [storage for storage, option in chosen.items() if option == OFFLOAD]
        edit = self._work.edit(again, along=self._along, gather=self._gather)
        known = self._places.stock(edit.before, away, self._ahead)
        if known is None:
            return self.evaluate_schedule(edit.schedule(self._work.graph), away)
        peak_bytes, saved_bytes, peaks = known
        return ExactMemory(peak_bytes=peak_bytes, saved_bytes=saved_bytes, peaks=peaks)

    def evaluate_schedule(self, schedule: StatementSchedule, offloaded_storages: Collection[int]) -> ExactMemory:
        """Evaluate a schedule statement by statement, with offloaded storages."""
        found = self._predictor.predict(schedule, offloaded_storages=offloaded_storages, ahead=self._ahead)
        peaks = np.zeros(self._places.count + 1, np.int64)
        place = self._places.count
        # Go from the end, so that a clone counts at the place for which it is made.
        for entry in range(len(found.entries) - 1, -1, -1):
            number = int(found.entries[entry])
            if not schedule.clone[number]:
                place = self._places.of_row.get(int(schedule.order[number]), place)
            peaks[place] = max(peaks[place], int(found.timeline.statement_peak_bytes[entry]))
        peaks[-1] = max(int(peaks[-1]), found.timeline.after_bytes)
        return ExactMemory(peak_bytes=found.peak_bytes, saved_bytes=found.saved_bytes, peaks=peaks)
