"""Divide the memory of each statement among parameters, saved storages, gradients, and all that is transient."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.memory.liveness import storage_spans
from workbench.core.graph import Graph, ValueFlag

KINDS = ("parameters and inputs", "saved", "gradients", "transient")
"""Kinds of memory. A storage of several kinds counts as the first. Outputs that no backward reads are transient."""


def bytes_by_kind(graph: Graph) -> NDArray[np.int64]:
    """Return the most bytes of each kind that are alive during each statement of an execution graph.

    Returns
    -------
    (kinds, statements) int64
        The sum over the kinds is `Timeline.statement_peak_bytes`.
    """
    statements, values = graph.statements, graph.values
    start, end = storage_spans(graph)
    kind = np.full(len(graph.storages), len(KINDS) - 1)
    gradients = ValueFlag.GRADIENT | ValueFlag.COTANGENT
    for number, flags in ((2, gradients), (1, ValueFlag.SAVED), (0, ValueFlag.ARGUMENT)):
        storages = values.storage[(values.flags & flags) != 0]
        kind[storages[storages >= 0]] = number
    count, alive = len(statements), start <= end
    change = np.zeros((len(KINDS), count + 2), np.int64)
    sizes = graph.storages.bytes[alive]
    np.add.at(change, (kind[alive], np.maximum(start[alive], 0)), sizes)
    np.subtract.at(change, (kind[alive], end[alive] + 1), sizes)
    found = np.cumsum(change, axis=1)[:, :count]
    found[-1] += statements.transient_bytes
    members = np.flatnonzero(statements.parent >= 0)
    found[:, members] = found[:, statements.parent[members]]
    return found
