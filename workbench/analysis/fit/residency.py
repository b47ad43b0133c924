"""Storages that must be in memory for a recomputation: for each, the places from which others need it.

A storage that is not saved is absent from its last use in the forward until it is first needed in the backward. It is
first needed by its own first reader there, unless an earlier recomputation of another storage reads it. In that case it
must be loaded back or recomputed before that, together with everything that its own recomputation reads. This is true
for any options of any other storages, so a bound may use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from workbench.analysis.memory.incremental_liveness import IncrementalLiveness
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE
from workbench.analysis.memory.recompute_set import Recomputer


@dataclasses.dataclass(frozen=True)
class Need:
    """Storages that the recomputation of a storage reads.

    Attributes
    ----------
    storage, place : int
        The recomputed storage, and the place of the recomputation.
    reads : frozenset of int
        Storages that are in memory at that place, by whatever option.
    """

    storage: int
    place: int
    reads: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Present:
    """The place from which a storage that is not saved is in memory, and the reason.

    Attributes
    ----------
    place : int
    reader : int
        The recomputed storage that reads it.
    first : bool
        Whether the backward itself reads that storage there, and not only another recomputation.
    """

    place: int
    reader: int
    first: bool


@dataclasses.dataclass(frozen=True)
class JointRecompute:
    """Storage whose recomputation shares a statement of several outputs with another's. This also frees its first copy.

    Attributes
    ----------
    start, end : int
        Places at which it may therefore be absent, from the first to before the last.
    makers : frozenset of int
        Storages together with which it is made.
    rows : frozenset of int
        Statements that make it.
    """

    start: int
    end: int
    makers: frozenset[int]
    rows: frozenset[int]


class Presence:
    """Presence of the storages of one joint graph.

    Parameters
    ----------
    work : Recomputer
    stock : IncrementalLiveness
    free : collection of (int, str)
        Options that can be chosen, by storage.
    along, gather : bool
        As for `Recomputer.edit`.
    ahead : int
        Number of statements between loading an offloaded storage back and its first use.
    always : collection of int
        Storages that are recomputed under any choices.

    Attributes
    ----------
    spans : dict of int to (int, int)
        The place from which a storage that is not saved can be absent, and the first place where it cannot.
    beside : dict of int to JointRecompute
        Saved storages that are recomputed together with others, chosen or not.
    needs : tuple of Need
        By place.
    reads : dict of int to frozenset of int
        Storages that a recomputation reads, wherever it runs.
    """

    def __init__(
        self,
        work: Recomputer,
        stock: IncrementalLiveness,
        free: Collection[tuple[int, str]],
        *,
        along: bool,
        gather: bool,
        ahead: int,
        always: Collection[int] = (),
    ) -> None:
        self._always_at = frozenset(stock.position_of(row) for storage in always for row in work.readers_of(storage))
        self.ahead, self.first_backward = ahead, stock.first_backward
        self.spans: dict[int, tuple[int, int]] = {}
        first = work.first_storage_reads(always, along=along, gather=gather)
        for storage, _ in free:
            if (span := stock.absence_of(storage, first.get(storage))) is not None:
                self.spans[storage] = span
        self._again = frozenset(storage for storage, option in free if option == RECOMPUTE)
        self._made_at = {
            storage: frozenset(stock.position_of(row) for row in work.readers_of(storage)) for storage in self._again
        }
        needs: list[Need] = []
        self.reads: dict[int, frozenset[int]] = {}
        for storage in self._again:
            root = int(work.graph.storages.root[storage])
            read_by = work.first_readers(storage)
            read = {
                value: work.storages_read_again(value, storage, along=along, gather=gather)
                & self.spans.keys() - {storage}
                for value in {root, *read_by}
            }
            self.reads[storage] = read[root]
            # A statement that does not run needs no recomputation.
            needs += [
                Need(storage, stock.position_of(row), read[value])
                for value, row in read_by.items()
                if stock.runs_in_backward(row)
            ]
        self.needs = tuple(sorted(needs, key=lambda need: (need.place, need.storage)))

        self.beside = self._joint_recomputations(work, stock, always)

    def _joint_recomputations(
        self, work: Recomputer, stock: IncrementalLiveness, always: Collection[int]
    ) -> dict[int, JointRecompute]:
        found: dict[int, JointRecompute] = {}
        # Earliest possible recomputation of each storage, under any choice.
        early = self.presence_of(dict.fromkeys(self._again, RECOMPUTE))
        for storage in self._again:
            places = self._made_at[storage] | ({early[storage].place} if storage in early else set())
            for other, rows in work.recomputable_together(storage, always).items():
                if (span := stock.absence_of(other)) is None or not places:
                    continue
                # An input whose original content is needed before the shared statement is present until then.
                start = span[0] if always or min(places) < span[1] else span[1]
                end = stock.last_touch(other) if max(places) > span[1] else span[1]
                if start < end:
                    known = found.get(other, JointRecompute(start, end, frozenset(), frozenset()))
                    start, end = min(start, known.start), max(end, known.end)
                    found[other] = JointRecompute(start, end, known.makers | {storage}, known.rows | rows)
        return found

    def presence_of(self, options: Mapping[int, str]) -> dict[int, Present]:
        """Return when others first need storages that are not saved, if that is before their own first reader."""
        found: dict[int, Present] = {}
        for need in self.needs:
            if options.get(need.storage) != RECOMPUTE:
                continue
            queue = [(storage, need.storage, True) for storage in need.reads]
            while queue:
                storage, reader, first = queue.pop()
                if storage in found or storage not in options or need.place >= self.spans[storage][1]:
                    continue
                found[storage] = Present(need.place, reader, first)
                if options[storage] == RECOMPUTE:
                    queue += [(other, storage, False) for other in self.reads[storage]]
        return found

    def recomputable_until_use(self, storage: int, position: int) -> frozenset[int] | None:
        """Return the storages that may be recomputed between a place and a storage's first use.

        None if that is too far.

        An offloaded storage is loaded back a few statements before its first use. Close to its first use it is
        therefore in memory, unless statements run again in between.
        """
        end = self.spans[storage][1]
        if not max(self.first_backward, end - self.ahead) <= position < end:
            return None
        if any(position < at <= end for at in self._always_at):
            return None
        return frozenset(other for other, places in self._made_at.items() if any(position < at <= end for at in places))

    def is_reloaded(self, options: Mapping[int, str], storage: int, position: int) -> bool:
        """Return whether a storage is back by a place.

        It is if no recomputation runs between the place and the storage's first use.
        """
        near = self.recomputable_until_use(storage, position) if options.get(storage) == OFFLOAD else None
        return near is not None and not any(options.get(other) == RECOMPUTE for other in near)
