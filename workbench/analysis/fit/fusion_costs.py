"""Predict the time to recompute storages that fusions of the forward write, and a lower bound of this time.

If a statement of a fusion is recomputed, it becomes a member of a fusion in the backward, and launches no separate
kernel. If only this fusion reads the statement's results, they are not written to memory. The fusion must read saved
values, arguments, and results of unfused statements from memory. It must write values that unfused statements read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.cost.machines import Machine
from workbench.analysis.cost.roofline import operations_s
from workbench.analysis.memory.recompute_set import Recomputer
from workbench.core.graph import BACKWARD, Graph, Kind, StatementFlag, ValueFlag


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecomputeCost:
    """Time of recomputations.

    Attributes
    ----------
    seconds : (statements,) float64
        Seconds of each statement of the joint graph if it runs again. A statement runs again at most once, even if
        several recomputed storages need it.
    each_s : mapping of int to float
        Maps a storage to the seconds that its recomputation adds besides the statements' seconds, for example to write
        the storage. These seconds are negative if the recomputation may save memory traffic.
    """

    seconds: NDArray[np.float64]
    each_s: Mapping[int, float] = dataclasses.field(default_factory=dict)


def fused_statements(joint: Graph, plan: Graph) -> NDArray[np.bool_]:
    """Find the statements of a joint graph whose outputs no unfused statement of the execution graph makes.

    The fusions of the execution graph contain these statements, or make them unnecessary.

    Parameters
    ----------
    joint, plan : Graph

    Returns
    -------
    (statements,) bool
        One entry for each statement of the joint graph.
    """
    statements, outputs = plan.statements, joint.statements.outputs
    unfused = np.flatnonzero((statements.parent < 0) & (statements.kind != Kind.FUSION))
    made = {plan.values.name[value] for value in statements.outputs.take_rows(unfused).items.tolist()}
    alone = np.fromiter(map(made.__contains__, joint.values.name), bool, len(joint.values.name))
    before = np.cumsum([0, *alone[outputs.items]])[outputs.offsets]
    return np.asarray((joint.statements.kind == Kind.OP) & (np.diff(outputs.offsets) > 0) & (np.diff(before) == 0))


def recompute_costs(
    work: Recomputer,
    plan: Graph,
    machine: Machine,
    seconds: NDArray[np.float64],
    inner: Collection[int] = (),
) -> tuple[RecomputeCost, RecomputeCost]:
    """Return the predicted time of recomputations, and a lower bound of this time.

    The lower bound assumes that a recomputation changes no other fusions.

    Parameters
    ----------
    work : Recomputer
        Recomputer of the joint graph.
    plan : Graph
        The execution graph with everything saved.
    machine : Machine
    seconds : (statements,) float64
        Seconds of each statement of the joint graph if it runs by itself.
    inner : collection of int
        Storages that the joint graph saves, but that fusions recompute even if no choice is made; see
        `storages_remade`.

    Returns
    -------
    tuple of RecomputeCost
        The prediction and the lower bound. The lower bound subtracts the time of each write and read of a recomputed
        storage that the recomputation may make unnecessary.
    """
    joint = work.graph
    inside = fused_statements(joint, plan)
    held = work.argument_storage.copy()
    held[work.storages()] = True
    held[list(inner)] = False
    statements, values = joint.statements, joint.values
    predicted, certain = seconds.copy(), seconds.copy()
    rows = np.flatnonzero(inside)
    # The lower bound counts no time for a fused statement: its operations may run while the fusion waits for memory.
    certain[rows] = 0.0
    by, read = statements.inputs.pairs(rows)
    lives = values.storage[read]
    view = (statements.flags[rows] & StatementFlag.VIEW) != 0
    from_memory = ~view[by] & (lives >= 0) & (held[lives] | ~inside[values.producer[read]])
    # Count a value once for each statement that reads it, even if the statement reads it twice.
    once = np.unique(np.stack((by[from_memory], read[from_memory])), axis=1)
    nbytes = np.bincount(once[0], values.bytes[once[1]], minlength=len(rows))
    predicted[rows] = np.maximum(operations_s(joint, rows, machine), nbytes / machine.bytes_per_s)
    uses = _Uses(joint, plan)
    written_s, least_s = {}, {}
    for storage in work.storages().tolist():
        way_s = float(joint.storages.bytes[storage]) / machine.bytes_per_s
        if storage in uses.by_fusion:
            written_s[storage] = way_s * (storage in uses.read_alone)
            least_s[storage] = written_s[storage] - way_s * uses.transfers_spared(storage)
    return RecomputeCost(seconds=predicted, each_s=written_s), RecomputeCost(seconds=certain, each_s=least_s)


def storages_remade(work: Recomputer, plan: Graph) -> frozenset[int]:
    """Return the storages that the joint graph saves and the execution graph does not, because fusions recompute them.

    Parameters
    ----------
    work : Recomputer
        Recomputer of the joint graph.
    plan : Graph
        The execution graph with everything saved.
    """
    values, storage_of = plan.values, _storage_of(work.graph)
    saved = np.flatnonzero(values.flags & ValueFlag.SAVED).tolist()
    return frozenset(work.storages().tolist()) - {storage_of.get(values.name[value], -1) for value in saved}


def _storage_of(joint: Graph) -> dict[str, int]:
    return dict(zip(joint.values.name, joint.values.storage.tolist(), strict=True))


class _Uses:
    """Sorts the storages of a joint graph by the statements of its execution graph that write and read them.

    Attributes
    ----------
    by_fusion : set of int
        Storages that a fusion of the forward writes.
    read_alone : set of int
        Storages that an unfused statement of the backward reads.
    """

    def __init__(self, joint: Graph, plan: Graph) -> None:
        storage_of = _storage_of(joint)
        names, statements = plan.values.name, plan.statements
        outputs = (joint.values.flags & ValueFlag.OUTPUT) != 0
        self._returned = set(joint.values.storage[outputs].tolist())
        self.by_fusion: set[int] = set()
        self.read_alone: set[int] = set()
        self._read_forward: set[int] = set()
        self._fusions_of: dict[int, int] = {}
        kinds = (Kind.OP, Kind.FUSION)
        for row in np.flatnonzero((statements.parent < 0) & np.isin(statements.kind, kinds)).tolist():
            read = {storage_of.get(names[value], -1) for value in statements.inputs[row].tolist()} - {-1}
            made = {storage_of.get(names[value], -1) for value in statements.outputs[row].tolist()} - {-1} - read
            fusion = statements.kind[row] == Kind.FUSION
            if statements.flags[row] & StatementFlag.VIEW:
                continue
            if statements.side[row] != BACKWARD:
                self._read_forward |= read
                self.by_fusion |= made if fusion else set()
            elif fusion:
                for storage in read:
                    self._fusions_of[storage] = self._fusions_of.get(storage, 0) + 1
            else:
                self.read_alone |= read

    def transfers_spared(self, storage: int) -> int:
        """Return an upper bound of the number of writes and reads of a storage that a recomputation avoids."""
        for_backward = storage not in self._read_forward and storage not in self._returned
        return for_backward + self._fusions_of.get(storage, 0)
