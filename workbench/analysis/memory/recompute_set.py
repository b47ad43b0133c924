"""Find the statements that the backward repeats if storages are recomputed, and where it repeats them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.memory.liveness import StatementSchedule
from workbench.core.graph import BACKWARD, Graph, Kind, StatementFlag, ValueFlag


@dataclasses.dataclass(frozen=True)
class Recompute:
    """The statements of a joint trace that run again in the backward.

    Attributes
    ----------
    before : dict of int to tuple of int
        Maps a statement of the backward to the statements that run again right before it, in program order.
    """

    before: dict[int, tuple[int, ...]]

    def schedule(self, graph: Graph) -> StatementSchedule:
        """Return the order in which the statements of the joint graph run, including the repeated statements."""
        order: list[int] = []
        clone: list[bool] = []
        for row in np.flatnonzero(graph.statements.parent < 0).tolist():
            again = self.before.get(row, ())
            order += [*again, row]
            clone += [True] * len(again) + [False]
        return StatementSchedule(np.asarray(order, np.int32), np.asarray(clone, bool))


def needed_by_forward(graph: Graph) -> NDArray[np.bool_]:
    """Find the statements of a joint graph that Thunder's split puts into the forward.

    The split does not use Thunder's tags, which mark the statements of the backward. If only the backward reads a
    statement's outputs, the split puts it into the backward, even if it belongs to the program's forward.
    """
    statements, values = graph.statements, graph.values
    needed = np.asarray((values.flags & ValueFlag.OUTPUT) != 0)
    written_here = (values.flags & ValueFlag.ARGUMENT) != 0
    forward = np.zeros(len(statements), bool)
    in_place = (statements.flags & StatementFlag.INPLACE) != 0
    for row in range(len(statements) - 1, -1, -1):
        if statements.parent[row] >= 0 or statements.kind[row] == Kind.GET_GRAD:
            continue
        inputs, outputs = statements.inputs[row], statements.outputs[row]
        copies = statements.kind[row] == Kind.COPY and (needed[inputs[1:2]] | written_here[inputs[1:2]]).any()
        if needed[outputs].any() or copies or (in_place[row] and written_here[inputs].any()):
            forward[row] = True
            needed[inputs] = True
    return forward


def saved_values(graph: Graph, forward: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return the values of a joint graph that the forward would save for the backward, except arguments."""
    statements, values = graph.statements, graph.values
    reads = (statements.parent < 0) & ~forward & (statements.kind != Kind.GET_GRAD)
    read, made = np.zeros(len(values), bool), np.zeros(len(values), bool)
    read[statements.inputs.take_rows(np.flatnonzero(reads)).items] = True
    made[statements.outputs.take_rows(np.flatnonzero(forward)).items] = True
    tensor = (values.flags & ValueFlag.TENSOR) != 0
    return np.flatnonzero(read & made & tensor).astype(np.int32)


def backward_rows(graph: Graph, *, by_tag: bool) -> NDArray[np.bool_]:
    """Find the statements that run in the backward: by Thunder's tags if `by_tag`, else by `needed_by_forward`."""
    if by_tag:
        return np.asarray(graph.statements.side == BACKWARD)
    return ~needed_by_forward(graph) & (graph.statements.parent < 0)


_RANDOM, _INPLACE = int(StatementFlag.RANDOM), int(StatementFlag.INPLACE)


class Recomputer:
    """Finds the statements that run again if storages of a joint graph are recomputed.

    Parameters
    ----------
    graph : Graph
        Graph of the joint trace.
    by_tag : bool
        Whether Thunder's tags determine which statements run in the backward, as is the case if a pass fuses
        statements.
    also_saved : collection of int, optional
        Values that are saved although the backward does not read them. Recomputations can start from these values.
    """

    def __init__(self, graph: Graph, *, by_tag: bool, also_saved: Collection[int] = ()) -> None:
        self.graph, self.by_tag, self.kept = graph, by_tag, frozenset(also_saved)
        self.backward = backward_rows(graph, by_tag=by_tag)
        saved = saved_values(graph, ~self.backward & (graph.statements.parent < 0))
        self.saved = (
            np.union1d(saved, np.asarray(sorted(also_saved), np.int32)).astype(np.int32) if also_saved else saved
        )
        values = graph.values
        argument = np.zeros(len(graph.storages), bool)
        held = values.storage[(values.flags & ValueFlag.ARGUMENT) != 0]
        argument[held[held >= 0]] = True
        self.argument_storage = argument
        self.last_write = self._last_writes()
        self._blocked: dict[int, str] = {}
        # Convert columns to Python lists: reading one item of an array is slow, and tens of thousands are read.
        self._inputs, self._outputs = graph.statements.inputs.lists(), graph.statements.outputs.lists()
        self._flags: list[int] = graph.statements.flags.tolist()
        self._kind: list[int] = graph.statements.kind.tolist()
        self._last_write: list[int] = self.last_write.tolist()
        self._storage: list[int] = values.storage.tolist()
        self._producer: list[int] = values.producer.tolist()
        backward = self.backward.tolist()
        self._made_by_forward = [producer >= 0 and not backward[producer] for producer in self._producer]
        sent = np.isin(graph.statements.kind, (Kind.COLLECTIVE, Kind.WAIT))
        self._sent = frozenset(np.flatnonzero(sent).tolist())
        self._saved_on: dict[int, list[int]] = {}
        for value in self.saved.tolist():
            self._saved_on.setdefault(self._storage[value], []).append(value)
        self._held = frozenset(np.flatnonzero(argument).tolist()) | frozenset(self.storages().tolist())
        self._readers = self._backward_readers()

    def _backward_readers(self) -> dict[int, list[int]]:
        """Map each storage to the statements of the backward that read the storage's saved values."""
        saved = set(self.saved.tolist())
        found: dict[int, list[int]] = {}
        for row in np.flatnonzero(self.backward & (self.graph.statements.kind != Kind.GET_GRAD)).tolist():
            for storage in {self._storage[value] for value in self._inputs[row] if value in saved}:
                found.setdefault(storage, []).append(row)
        return found

    def _last_writes(self) -> NDArray[np.int32]:
        statements, values = self.graph.statements, self.graph.values
        last = np.full(len(self.graph.storages), -1, np.int32)
        for row in np.flatnonzero(statements.flags & StatementFlag.INPLACE):
            storages = values.storage[statements.outputs[row]]
            if statements.kind[row] != Kind.COPY:
                # A composite that contains copies, such as a batch norm, may write to each of its inputs.
                storages = np.union1d(storages, values.storage[statements.inputs[row]])
            last[storages[storages >= 0]] = row
        return last

    def storages(self) -> NDArray[np.int32]:
        """Return the storages that the forward saves for the backward, except arguments, in program order."""
        storages = dict.fromkeys(self.graph.values.storage[self.saved].tolist())
        return np.array([s for s in storages if s >= 0 and not self.argument_storage[s]], np.int32)

    def values_on(self, storage: int) -> NDArray[np.int32]:
        """Return the saved values in a storage."""
        return np.asarray(self._saved_on.get(storage, ()), np.int32)

    def readers_of(self, storage: int) -> list[int]:
        """Return the statements of the backward that read the saved values of a storage, in program order."""
        return self._readers.get(storage, [])

    def first_readers(self, storage: int) -> dict[int, int]:
        """Map each saved value of a storage to the first statement of the backward that reads the value."""
        found: dict[int, int] = {}
        for row in self.readers_of(storage):
            for value in self._inputs[row]:
                if self._storage[value] == storage:
                    found.setdefault(value, row)
        return {value: found[value] for value in self._saved_on.get(storage, ()) if value in found}

    def first_storage_reads(self, always: Collection[int], *, along: bool, gather: bool) -> dict[int, int]:
        """Return, by saved storage, before which statement a recomputation of a storage in `always` first reads it.

        Each of these statements is in the backward. The result is empty if the constructor's `also_saved` is empty.
        """
        found: dict[int, int] = {}
        for storage in always if self.kept else ():
            if not (readers := self.readers_of(storage)):
                continue
            for row in self.rows_rerun((storage,), along=along, gather=gather):
                for value in self._inputs[row]:
                    lives = self._storage[value]
                    if self._made_by_forward[value] and lives in self._held:
                        found[lives] = min(found.get(lives, readers[0]), readers[0])
        return found

    def storages_read_again(self, value: int, storage: int, *, along: bool, gather: bool) -> frozenset[int]:
        """Return the saved storages that the recomputation of a value reads, if no other storage is recomputed.

        Parameters
        ----------
        value, storage : int
            A saved value and its storage.
        along, gather : bool
            See `edit`.
        """
        repeats = self._repeats(frozenset((storage,)), along=along, gather=gather)
        queue, seen, found = [value], set(), set()
        while queue:
            producer = self._producer[queue.pop()]
            if producer not in seen:
                seen.add(producer)
                for read in self._inputs[producer]:
                    if repeats(read):
                        queue.append(read)
                    elif self._made_by_forward[read] and self._storage[read] in self._held:
                        found.add(self._storage[read])
        return frozenset(found)

    def recomputable_together(self, storage: int, always: Collection[int] = ()) -> dict[int, frozenset[int]]:
        """Find other saved storages that a recomputation of `storage` recomputes, too.

        This happens if a statement that runs again has several outputs in different storages.

        Parameters
        ----------
        storage : int
        always : collection of int
            Storages that are recomputed under all choices.

        Returns
        -------
        dict of int to frozenset of int
            Maps each found storage to the repeated statements that make it.
        """
        saved = self._saved_on
        queue, seen = list(saved.get(storage, ())), set()
        found: dict[int, frozenset[int]] = {}
        while queue:
            producer = self._producer[queue.pop()]
            if producer in seen:
                continue
            seen.add(producer)
            made = {self._storage[value] for value in self._outputs[producer]} - {-1}
            for other in made & saved.keys() - {storage} if len(made) > 1 else ():
                found[other] = found.get(other, frozenset()) | {producer}
            for read in self._inputs[producer]:
                lives = self._storage[read]
                # Stop at a saved value of another storage, because its recomputation is a separate choice.
                left = lives != storage and lives not in always and read in saved.get(lives, ())
                if self._made_by_forward[read] and not left:
                    queue.append(read)
        return found

    def why_no_recompute(self, storage: int) -> str:
        """Return the reason why a storage cannot be recomputed; empty if it can be."""
        if self._last_write[storage] >= 0:
            return "it is written in place: the backward reads the new content, which recomputing would not give"
        queue = self.values_on(storage).tolist()
        seen: set[int] = set()
        while queue:
            row = self._producer[queue.pop()]
            if row in seen or row < 0:
                continue
            seen.add(row)
            if reason := self._why_no_rerun(row):
                return reason
            # If a view is recomputed, its base in the same storage is recomputed, too.
            queue += [v for v in self._inputs[row] if self._storage[v] == storage]
        return ""

    def is_gathered_argument(self, storage: int) -> bool:
        """Return whether a storage is the result of an all-gather of an argument. Such a gather can be repeated."""
        graph = self.graph
        makers = graph.values.producer[np.flatnonzero(graph.values.storage == storage)]
        return any(graph.statements.kind[row] == Kind.COLLECTIVE and self._gathers_argument(row) for row in makers)

    def _gathers_argument(self, row: int) -> bool:
        """Return whether a statement is an all-gather of an argument, or the wait for such an all-gather."""
        statements, values = self.graph.statements, self.graph.values
        sent = statements.inputs[row][:1]
        if statements.kind[row] == Kind.WAIT:
            return self._gathers_argument(int(values.producer[sent[0]]))
        return "all_gather" in statements.name[row] and bool(self.argument_storage[values.storage[sent]].all())

    def why_no_offload(self, storage: int) -> str:
        """Return the reason why a storage cannot be offloaded; empty if it can be."""
        if self.last_write[storage] >= 0:
            return "it is written in place: a copy from before the write would be out of date"
        return ""

    def _why_no_rerun(self, row: int) -> str:
        statements, values = self.graph.statements, self.graph.values
        if row in self._blocked:
            return self._blocked[row]
        reason = ""
        name = statements.name[row]
        flags, kind = self._flags[row], self._kind[row]
        if flags & _RANDOM:
            reason = f"{name} draws random numbers: a recomputation would draw others"
        elif flags & _INPLACE or kind in (Kind.COPY, Kind.FENCE):
            reason = f"{name} writes in place: a recomputation would write twice"
        elif kind in (Kind.COLLECTIVE, Kind.WAIT) and not self._gathers_argument(row):
            reason = f"{name} is a collective: every rank would have to repeat it"
        else:
            for value in self._inputs[row]:
                storage = self._storage[value]
                if storage >= 0 and self._last_write[storage] >= 0:
                    reason = (
                        f"{name} reads {values.name[value]}, which is written in place and may have changed by then"
                    )
                    break
        self._blocked[row] = reason
        return reason

    def _repeats(self, chosen: frozenset[int], *, along: bool, gather: bool) -> Callable[[int], bool]:
        """Return a predicate for values: whether a recomputation that reads the value also recomputes the value.

        `chosen` are the storages for which recomputation is chosen.
        """
        storages, producers, made, held = self._storage, self._producer, self._made_by_forward, self._held

        def is_rerun(value: int) -> bool:
            storage = storages[value]
            if not made[value]:
                return False
            if storage in chosen:
                return True
            if storage in held:
                return False
            producer = producers[value]
            return along and (gather or producer not in self._sent) and not self._why_no_rerun(producer)

        return is_rerun

    def rows_rerun(self, chosen: Collection[int], *, along: bool, gather: bool = False) -> frozenset[int]:
        """Return the rows of all statements that run again under the result of `edit` with the same parameters."""
        repeats = self._repeats(frozenset(chosen), along=along, gather=gather)
        queue = [value for storage in chosen for value in self._saved_on.get(storage, ())]
        rows: set[int] = set()
        while queue:
            producer = self._producer[queue.pop()]
            if producer not in rows:
                rows.add(producer)
                queue += [value for value in self._inputs[producer] if repeats(value)]
        return frozenset(rows)

    def storages_read(self, rows: Collection[int]) -> set[int]:
        """Return the storages that statements read; -1 for an input without a storage."""
        return {self._storage[value] for row in rows for value in self._inputs[row]}

    def storages_made(self, rows: Collection[int]) -> set[int]:
        """Return the storages of the outputs of statements; -1 for an output without a storage."""
        return {self._storage[value] for row in rows for value in self._outputs[row]}

    def edit(self, chosen: Collection[int], *, along: bool, gather: bool = False) -> Recompute:
        """Return the statements that run again in the backward if the storages `chosen` are recomputed.

        Parameters
        ----------
        chosen : collection of int
            Storages to recompute; `why_no_recompute` of each must be empty.
        along : bool
            If True, the inputs of recomputed statements are also recomputed, where this is legal. The same applies to
            their inputs, until saved values are reached. If False, the inputs are saved.
        gather : bool
            Whether an all-gather of an argument may be repeated to recompute an input.
        """
        chosen_set = frozenset(chosen)
        again = self._repeats(chosen_set, along=along, gather=gather)
        done: set[int] = set()
        before: dict[int, tuple[int, ...]] = {}
        again_in_backward = {value for storage in chosen_set for value in self._saved_on.get(storage, ())}
        for row in sorted({row for storage in chosen_set for row in self._readers.get(storage, ())}):
            queue = [value for value in self._inputs[row] if value in again_in_backward]
            group: set[int] = set()
            while queue:
                producer = self._producer[queue.pop()]
                if producer in done or producer in group:
                    continue
                group.add(producer)
                queue.extend(value for value in self._inputs[producer] if again(value))
            if group:
                done |= group
                before[row] = tuple(sorted(group))
        return Recompute(before)
