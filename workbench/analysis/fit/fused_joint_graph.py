"""A joint graph with the storages of its execution graph, from which the memory of plans is predicted quickly.

A value that only members of the same fusion read takes no memory. If a fusion outputs only a part of a tensor, this
part has its own storage. The execution graph and the joint graph may save different storages. The storages of the
execution graph are used. For example, the joint graph saves a product in bfloat16. A fusion of the backward recomputes
this product from an activation in float32, so the execution graph saves the activation and not the product. To
recompute the activation in the execution graph, recomputation must be chosen for the product in the joint graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from workbench.analysis.fit.fusion_costs import fused_statements
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE
from workbench.analysis.memory.recompute_set import Recomputer
from workbench.core.graph import Graph, Storages, ValueFlag

_WITHIN, _APART = -2, -3
"""Markers for values without a storage in the execution graph: `_WITHIN` if inside of a fusion, else `_APART`."""


class FusedJointGraph:
    """The joint graph of a program, with the storages of the program's execution graph.

    Parameters
    ----------
    work : Recomputer
        Recomputer of the joint graph.
    plan : Graph
        The execution graph with everything saved.
    free : mapping of int to sequence of str
        Maps each storage of the joint graph whose option may be chosen to its legal options.
    remade : collection of int
        Storages of the joint graph that fusions recompute even if no choice is made.
    along, gather : bool
        See `Recomputer.edit`.

    Attributes
    ----------
    work : Recomputer
        Recomputer of the joint graph with replaced storages. A storage that both graphs save keeps its number in the
        joint graph.
    free : dict of int to sequence of str
        Maps each storage of `work.graph` whose option may be chosen to its legal options. An option is left out
        if `work` would predict its memory wrongly.
    """

    def __init__(
        self,
        work: Recomputer,
        plan: Graph,
        free: Mapping[int, Sequence[str]],
        remade: Collection[int],
        *,
        along: bool,
        gather: bool,
    ) -> None:
        self._along, self._gather = along, gather
        graph, kept = _graph_with_memory(work, plan)
        self.work = Recomputer(graph, by_tag=work.by_tag, also_saved=kept)
        # Storages that only the execution graph saves. A recomputation in the joint graph may recompute them, too.
        more = set(graph.values.storage[kept].tolist())
        remade = frozenset(storage for storage in remade if storage in free)

        def storages_through(storage: int) -> set[int]:
            """Return the storages of `more` that a recomputation of `storage` in the joint graph recomputes, too."""
            chosen = {storage}
            while True:
                rows = work.rows_rerun(chosen, along=along, gather=gather)
                if not (further := work.storages_read(rows) & remade - chosen):
                    return self.work.storages_made(rows) & more
                chosen |= further

        self._of: dict[int, list[int]] = {}
        goes_by = {storage: storages_through(storage) for storage in remade}
        for storage in sorted(remade):
            rows = self.work.rows_rerun((storage,), along=along, gather=gather)
            for read in self.work.storages_read(rows) - {storage}:
                self._of.setdefault(read, []).append(storage)
        # False for a storage if a fusion outputs only a part of it. Such a storage must not be offloaded, because an
        # offload would move the complete tensor.
        whole = graph.storages.bytes[: len(work.graph.storages)] >= work.graph.storages.bytes
        self.free: dict[int, Sequence[str]] = {}
        for storage, options in free.items():
            if storage not in remade and not any(goes_by[made] for made in self._of.get(storage, ())):
                legal = {RECOMPUTE: not storages_through(storage), OFFLOAD: whole[storage]}
                self.free[storage] = tuple(option for option in options if legal.get(option, True))
        for storage in sorted(more):
            if (of := self._of.get(storage)) and all(goes_by[made] <= {storage} for made in of):
                self.free[storage] = (RECOMPUTE,)
        self._joint = frozenset(free)

    def joint_options(self, options: Mapping[int, str]) -> dict[int, str]:
        """Convert an assignment for storages of `work.graph` to an equivalent one for storages of the joint graph."""
        made = {made for storage in options for made in self._of.get(storage, ())}
        found = {
            **{storage: option for storage, option in options.items() if storage in self._joint},
            **dict.fromkeys(sorted(made), RECOMPUTE),
        }
        # Also choose recomputation for storages that the recomputed statements write anyway.
        chosen = {*(storage for storage, option in options.items() if option == RECOMPUTE), *made}
        rows = self.work.rows_rerun(chosen, along=self._along, gather=self._gather)
        for storage, legal in self.free.items():
            if storage in self._joint - found.keys() and RECOMPUTE in legal:
                producers = self.work.graph.values.producer[self.work.values_on(storage)]
                if rows.issuperset(producers.tolist()):
                    found[storage] = RECOMPUTE
        return found


def _graph_with_memory(work: Recomputer, plan: Graph) -> tuple[Graph, list[int]]:
    """Return the joint graph with replaced storages, and the values that only the execution graph saves."""
    joint, values = work.graph, work.graph.values
    handed: dict[str, int] = {}
    for row in np.flatnonzero(plan.statements.parent < 0).tolist():
        for value in plan.statements.outputs[row].tolist():
            handed.setdefault(plan.values.name[value], int(plan.values.storage[value]))
    saved_there = {plan.values.name[value] for value in np.flatnonzero(plan.values.flags & ValueFlag.SAVED).tolist()}
    ends = (values.flags & (ValueFlag.ARGUMENT | ValueFlag.OUTPUT | ValueFlag.GRADIENT | ValueFlag.COTANGENT)) != 0
    still = set(values.storage[ends].tolist()) | {-1}
    inside, saved = fused_statements(joint, plan), set(work.saved.tolist())
    parts: dict[int, dict[int, list[int]]] = {}
    for value, storage in enumerate(values.storage.tolist()):
        producer = int(values.producer[value])
        if storage not in still and producer >= 0:
            part = handed.get(values.name[value], _WITHIN if inside[producer] else _APART)
            parts.setdefault(storage, {}).setdefault(part, []).append(value)
    lives = values.storage.copy()
    nbytes, roots = joint.storages.bytes.tolist(), joint.storages.root.tolist()

    def rank(members: list[int]) -> tuple[bool, bool]:
        return any(values.name[value] in saved_there for value in members), not saved.isdisjoint(members)

    for storage, of in parts.items():
        # If the execution graph saves a part of the storage, this part keeps the storage's number in the joint graph.
        first = max(of.items(), key=lambda item: rank(item[1]))[0]
        for part, members in of.items():
            size = {_WITHIN: 0, _APART: int(joint.storages.bytes[storage])}.get(part, int(plan.storages.bytes[part]))
            number = storage
            if part != first:
                number = len(nbytes)
                nbytes.append(0)
                roots.append(0)
            lives[members] = number
            nbytes[number], roots[number] = size, members[0]
    graph = dataclasses.replace(
        joint,
        values=dataclasses.replace(values, storage=lives),
        storages=Storages(bytes=np.asarray(nbytes, np.int64), root=np.asarray(roots, np.int32)),
    )
    saved_lives = set(lives[sorted(saved)].tolist())
    kept = [
        value
        for value, name in enumerate(values.name)
        if name in saved_there
        and values.storage[value] not in still
        and int(lives[value]) not in saved_lives
        and values.producer[value] >= 0
        and not work.backward[values.producer[value]]
    ]
    return graph, kept
