"""Time that offloading adds to a step: the seconds of transfers that do not run at the same time as compute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import BACKWARD, Graph


def hidden_s(graph: Graph, seconds: NDArray[np.float64], *, hides: bool) -> tuple[float, float]:
    """Return the seconds of transfers that the compute of the forward hides, and those that the backward hides.

    Parameters
    ----------
    graph : Graph
    seconds : (statements,) float64
        Seconds of compute of each statement.
    hides : bool
        Whether transfers run at the same time as compute. This is so on a GPU, and not on a CPU.
    """
    if not hides:
        return 0.0, 0.0
    top = graph.statements.parent < 0
    backward = graph.statements.side == BACKWARD
    return float(seconds[top & ~backward].sum()), float(seconds[top & backward].sum())


def exposed_s(way_s: float, hidden: tuple[float, float]) -> float:
    """Return the seconds that transfers add to a step.

    Storages are moved to the host during the forward, and back during the backward.

    Parameters
    ----------
    way_s : float
        Seconds to move all offloaded storages in one direction.
    hidden : tuple of float
        Result of `hidden_s`.
    """
    return sum(max(0.0, way_s - hides) for hides in hidden)
