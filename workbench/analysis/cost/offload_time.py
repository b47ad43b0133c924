"""Time that offloading adds to a step: the part of the transfers that compute does not hide."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import BACKWARD, Graph


def hidden_s(graph: Graph, seconds: NDArray[np.float64], *, hides: bool) -> tuple[float, float]:
    """Seconds of transfers that the compute of the forward hides, and that of the backward.

    Parameters
    ----------
    graph : Graph
    seconds : (statements,) float64
        Compute of each of the graph's statements.
    hides : bool
        Whether transfers run beside compute, as on a GPU; on a CPU nothing hides them.
    """
    if not hides:
        return 0.0, 0.0
    top = graph.statements.parent < 0
    backward = graph.statements.side == BACKWARD
    return float(seconds[top & ~backward].sum()), float(seconds[top & backward].sum())


def exposed_s(way_s: float, hidden: tuple[float, float]) -> float:
    """Return the seconds that transfers add to a step: out beside the forward, back beside the backward.

    Parameters
    ----------
    way_s : float
        Seconds to move all offloaded storages one way.
    hidden : tuple of float
        As `hidden_s` gives them.
    """
    return sum(max(0.0, way_s - hides) for hides in hidden)
