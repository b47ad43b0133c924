"""Time and memory of an assignment: an option, to save, recompute or offload, for each storage."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.fit.fusion_costs import RecomputeCost


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionRates:
    """Times of statements and the speed of transfers, from which the time of an assignment is predicted.

    Attributes
    ----------
    seconds : (statements,) float64
        Seconds of each statement of the joint graph.
    offload_bytes_per_s : float
        Bytes per second of a transfer in one direction.
    hides : bool
        Whether transfers run at the same time as compute, as on a GPU.
    again, least : RecomputeCost, optional
        Predicted time of recomputations, and a lower bound of this time. By default, the prediction uses `seconds`, and
        the lower bound is equal to the prediction. The lower bound of a fit's step time is computed from `least`.
    """

    seconds: NDArray[np.float64]
    offload_bytes_per_s: float
    hides: bool
    again: RecomputeCost | None = None
    least: RecomputeCost | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionCost:
    """An assignment of options to storages, and the predicted memory and added time of a step under it.

    Attributes
    ----------
    options : mapping of int to str
        Maps each storage that is not saved to its option.
    peak_bytes, saved_bytes : int
    recompute_s, transfer_s : float
        Seconds that recomputed statements add to a step, and seconds of transfers that do not overlap with compute. If
        the assignment was planned, `recompute_s` is the plan's compute time minus the compute time of the plan that
        saves everything. The difference is negative if the plan is faster.
    """

    options: Mapping[int, str]
    peak_bytes: int
    saved_bytes: int
    recompute_s: float
    transfer_s: float

    @property
    def added_s(self) -> float:
        """Seconds by which a step is longer than a step that saves everything."""
        return self.recompute_s + self.transfer_s


def lowest_first(point: OptionCost) -> tuple[int, float, int]:
    """Return the sort key for the lowest peak: peak bytes, then seconds, then number of choices."""
    return point.peak_bytes, point.added_s, len(point.options)


def fastest_first(point: OptionCost) -> tuple[float, int, int]:
    """Return the sort key for the fastest assignment: seconds, then peak bytes, then number of choices."""
    return point.added_s, point.peak_bytes, len(point.options)
