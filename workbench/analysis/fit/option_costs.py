"""Time and memory of options for storages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.fit.fusion_costs import RecomputeCost


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionRates:
    """Rates that determine the time of options.

    Attributes
    ----------
    seconds : (statements,) float64
        Seconds of each statement of the joint graph.
    offload_bytes_per_s : float
        One way.
    hides : bool
        Whether transfers run beside compute, as on a GPU.
    again, least : RecomputeCost, optional
        Predicted cost of a recomputation, and its lower bound, on which the bound of a fit depends. By default the
        prediction uses `seconds`, and the lower bound equals the prediction.
    """

    seconds: NDArray[np.float64]
    offload_bytes_per_s: float
    hides: bool
    again: RecomputeCost | None = None
    least: RecomputeCost | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionCost:
    """Options for storages and their cost, by exact prediction of the joint graph.

    Attributes
    ----------
    options : mapping of int to str
        Storages that are not saved, with their options.
    peak_bytes, saved_bytes : int
    recompute_s, transfer_s : float
        Seconds added to a step: recomputed statements, and transfers without hiding. If a plan was made, the
        recomputation part is the increase of its compute over the stock plan's, and may be negative.
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


def lowest_first(point: OptionCost) -> tuple[int, float, int]:
    """Return the sort key for the lowest point: bytes, then seconds, then number of choices."""
    return point.peak_bytes, point.added_s, len(point.options)


def fastest_first(point: OptionCost) -> tuple[float, int, int]:
    """Return the sort key for the fastest point: seconds, then bytes, then number of choices."""
    return point.added_s, point.peak_bytes, len(point.options)
