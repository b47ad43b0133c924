"""Find the storages that must be in memory because recomputations of other storages read them.

A storage that is not saved is absent from its last use in the forward until its first use in the backward. The first
use may be a statement of the backward, or an earlier recomputation of another storage. The storage must be reloaded or
recomputed before its first use; if it is recomputed, the storages that its recomputation reads must be in memory, too.
This holds for all options of all other storages, so a lower bound may use it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from workbench.analysis.memory.incremental_liveness import IncrementalLiveness
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE
from workbench.analysis.memory.recompute_set import Recomputer


@dataclasses.dataclass(frozen=True)
class Need:
    """The storages that a recomputation reads.

    Attributes
    ----------
    storage, place : int
        The recomputed storage, and the place of the recomputation.
    reads : frozenset of int
        Storages that must be in memory at this place, whatever their options.
    """

    storage: int
    place: int
    reads: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Present:
    """The place from which a storage that is not saved must be in memory, and the reason.

    Attributes
    ----------
    place : int
    reader : int
        The recomputed storage whose recomputation reads the storage.
    first : bool
        Whether a statement of the backward reads `reader` at this place. If False, another recomputation reads it.
    """

    place: int
    reader: int
    first: bool


@dataclasses.dataclass(frozen=True)
class JointRecompute:
    """A storage that is recomputed together with others, because one statement makes several storages.

    The recomputation replaces the storage, so the old storage can be freed even if it is saved.

    Attributes
    ----------
    start, end : int
        The storage may be absent from the place `start` to before the place `end`.
    makers : frozenset of int
        Storages whose recomputation also makes the storage.
    rows : frozenset of int
        Statements that make the storage together with one of `makers`.
    """

    start: int
    end: int
    makers: frozenset[int]
    rows: frozenset[int]


class Presence:
    """Finds at which places the storages of a joint graph must be in memory.

    Parameters
    ----------
    work : Recomputer
    stock : IncrementalLiveness
    free : collection of (int, str)
        The choices: a storage and an option.
    along, gather : bool
        See `Recomputer.edit`.
    ahead : int
        Number of statements by which the reload of a storage precedes its first use in the backward.
    always : collection of int
        Storages that are recomputed under any choices.

    Attributes
    ----------
    spans : dict of int to (int, int)
        For each storage, the first place at which it can be absent if it is not saved, and the first later place at
        which it cannot be absent.
    beside : dict of int to JointRecompute
        Storages that may be recomputed together with others, without a choice for them.
    needs : tuple of Need
        What recomputations read, in the order of places.
    reads : dict of int to frozenset of int
        For each storage, the storages that its recomputation reads at any place.
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
            # Only statements that run in the backward need a recomputation.
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
        # If all storages are recomputed, each one is recomputed as early as it can be under any choices.
        early = self.presence_of(dict.fromkeys(self._again, RECOMPUTE))
        for storage in self._again:
            places = self._made_at[storage] | ({early[storage].place} if storage in early else set())
            for other, rows in work.recomputable_together(storage, always).items():
                if (span := stock.absence_of(other)) is None or not places:
                    continue
                # If no recomputation runs before the first use of the storage, it is in memory until this use.
                start = span[0] if always or min(places) < span[1] else span[1]
                end = stock.last_touch(other) if max(places) > span[1] else span[1]
                if start < end:
                    known = found.get(other, JointRecompute(start, end, frozenset(), frozenset()))
                    start, end = min(start, known.start), max(end, known.end)
                    found[other] = JointRecompute(start, end, known.makers | {storage}, known.rows | rows)
        return found

    def presence_of(self, options: Mapping[int, str]) -> dict[int, Present]:
        """Return from which place recomputations need storages that are not saved.

        Only storages for which this is before their first use by the backward itself are included.
        """
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
        """Return the storages that may be recomputed between a place and the first use of an offloaded storage.

        The storage is reloaded `ahead` statements before its first use. If none of the returned storages is recomputed,
        it is in memory at the place. None means that it need not be in memory at the place in any case.
        """
        end = self.spans[storage][1]
        if not max(self.first_backward, end - self.ahead) <= position < end:
            return None
        if any(position < at <= end for at in self._always_at):
            return None
        return frozenset(other for other, places in self._made_at.items() if any(position < at <= end for at in places))

    def is_reloaded(self, options: Mapping[int, str], storage: int, position: int) -> bool:
        """Return whether a storage is offloaded, and certainly reloaded at a place."""
        near = self.recomputable_until_use(storage, position) if options.get(storage) == OFFLOAD else None
        return near is not None and not any(options.get(other) == RECOMPUTE for other in near)
