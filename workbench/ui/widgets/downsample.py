"""Curves at screen resolution: if there are too many points, keep only the points that change the picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PER_PIXEL = 4
"""Number of points that a line needs in a pixel column: the first, the lowest, the highest and the last point.

A line through all points and a line through only these points fill the same pixels: U. Jugel and others,
"M4: A Visualization-Oriented Time Series Data Aggregation", VLDB 2014.
"""


@dataclass(frozen=True)
class SampledCurve:
    """Points in the order of `x`, which never decreases.

    Attributes
    ----------
    x : (points,) int64 or float64
    y : (points,) int64
    """

    x: NDArray[Any]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.x)


def points_in_sight(curve: SampledCurve, start: float, end: float, pixels: int) -> tuple[NDArray[np.intp], bool]:
    """Return the points of a curve that are drawn between two values of `x`.

    Parameters
    ----------
    curve : SampledCurve
    start, end : float
        Edges of the visible part, in units of `x`.
    pixels : int
        Number of pixels between the edges.

    Returns
    -------
    (points,) intp
        Indices of points in order. One point on each side of the visible part is included, so that lines reach its
        edges.
    bool
        Whether these are all points of the curve in the visible part.
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
