"""Curves as a screen can show them: all points of what is in sight, or those of each pixel column that can be seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PER_PIXEL = 4
"""Points that a pixel column of a line needs: the first, the lowest, the highest and the last.

With these, a line drawn through all points and one drawn through the sample fill the same pixels: U. Jugel and others,
"M4: A Visualization-Oriented Time Series Data Aggregation", VLDB 2014.
"""


@dataclass(frozen=True)
class SampledCurve:
    """Points in the order of `x`, which never falls.

    Attributes
    ----------
    x : (points,) int64 or float64
    y : (points,) int64
    """

    x: NDArray[Any]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.x)


def in_sight(curve: SampledCurve, start: float, end: float, pixels: int) -> tuple[NDArray[np.intp], bool]:
    """What to draw of a curve between two places.

    Parameters
    ----------
    curve : SampledCurve
    start, end : float
        The edges of what is in sight, in units of `x`.
    pixels : int
        Columns of the screen between them.

    Returns
    -------
    (points,) intp
        Points in order; one on each side of what is in sight, too, so that lines reach its edges.
    bool
        Whether these are all there are.
    """
    first = max(0, int(np.searchsorted(curve.x, start, "left")) - 1)
    stop = min(len(curve), int(np.searchsorted(curve.x, end, "right")) + 1)
    if stop - first <= PER_PIXEL * pixels or end <= start:
        return np.arange(first, stop), True
    y = curve.y[first:stop]
    column = np.floor((curve.x[first:stop] - start) * (pixels / (end - start)))
    begins = np.flatnonzero(np.diff(column, prepend=column[0] - 1))
    lengths = np.diff(begins, append=len(y))
    kept = np.zeros(len(y), bool)
    kept[begins] = kept[begins + lengths - 1] = True
    for extreme in (np.minimum, np.maximum):
        is_it = np.flatnonzero(y == np.repeat(extreme.reduceat(y, begins), lengths))
        kept[is_it[np.searchsorted(is_it, begins)]] = True
    return first + np.flatnonzero(kept), False
