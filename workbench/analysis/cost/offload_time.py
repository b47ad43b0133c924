"""Predict the time that offloading adds to a step: the seconds of transfers that do not overlap with compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import BACKWARD, Graph


def hidden_s(graph: Graph, seconds: NDArray[np.float64], *, hides: bool) -> tuple[float, float]:
    """Return how many seconds of transfers can overlap with compute: in the forward, and in the backward.

    Parameters
    ----------
    graph : Graph
    seconds : (statements,) float64
        Seconds of compute of each statement.
    hides : bool
        Whether transfers run at the same time as compute, as on a GPU; False for a CPU.
    """
    if not hides:
        return 0.0, 0.0
    top = graph.statements.parent < 0
    backward = graph.statements.side == BACKWARD
    return float(seconds[top & ~backward].sum()), float(seconds[top & backward].sum())


def exposed_s(way_s: float, hidden: tuple[float, float]) -> float:
    """Return the seconds that transfers add to a step, because they do not overlap with compute.

    Storages are moved to the host during the forward, and back to the device during the backward.

    Parameters
    ----------
    way_s : float
        Seconds for moving all offloaded storages in one direction.
    hidden : tuple of float
        Result of `hidden_s`.
    """
    return sum(max(0.0, way_s - hides) for hides in hidden)
