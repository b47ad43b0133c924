"""Find the storages that must be in memory because recomputations of other storages read them.

A storage that is not saved is absent from its last use in the forward until its first use in the backward. The first
user may be an ordinary statement of the backward, or the recomputation of another storage. The storage must be reloaded
or recomputed before its first use. If it is recomputed, the storages that its recomputation reads must be in memory
before that. These facts hold for all options of the other storages, so the solver may use them for its lower bound on
the step time.

A position is the number of a statement in the order of the step. A choice is one option, `RECOMPUTE` or `OFFLOAD`, for
one storage.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from workbench.analysis.memory.incremental_liveness import IncrementalLiveness
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE
from workbench.analysis.memory.recompute_set import Recomputer


@dataclasses.dataclass(frozen=True)
class Need:
    """The storages that one recomputation reads.

    Attributes
    ----------
    storage, place : int
        The recomputed storage, and the position of the backward's statement that needs it.
    reads : frozenset of int
        Storages that the recomputation reads. They must be in memory at this position under every option.
    """

    storage: int
    place: int
    reads: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Present:
    """The position from which a storage must be in memory although it is not saved, and the reason.

    Attributes
    ----------
    place : int
    reader : int
        The recomputed storage whose recomputation reads the storage.
    first : bool
        Whether a statement of the backward reads `reader` at this position. If False, another recomputation reads it.
    """

    place: int
    reader: int
    first: bool


@dataclasses.dataclass(frozen=True)
class JointRecompute:
    """Facts on a storage that the recomputation of another storage recomputes, too.

    This happens if a statement of the recomputation has several outputs, and one of them is in this storage.
    A recomputed statement allocates new storages for all its outputs, even if the storage of one output is saved. Later
    reads use the new storage, so the saved storage can be freed before the recomputation.

    Attributes
    ----------
    start, end : int
        The storage may be absent at the positions from `start` to `end`, excluding `end`.
    makers : frozenset of int
        The other storages whose recomputation also recomputes this storage.
    rows : frozenset of int
        Statements of these recomputations that output this storage.
    """

    start: int
    end: int
    makers: frozenset[int]
    rows: frozenset[int]


class Presence:
    """Finds at which positions the storages of a joint graph must be in memory.

    Parameters
    ----------
    work : Recomputer
    stock : IncrementalLiveness
    free : collection of (int, str)
        The available choices; each is a storage and an option.
    along, gather : bool
        See `Recomputer.edit`.
    ahead : int
        Number of statements by which the reload of a storage precedes its first use in the backward.
    always : collection of int
        Storages that are recomputed under all choices.

    Attributes
    ----------
    spans : dict of int to (int, int)
        Maps each storage to the range of positions at which it can be absent if it is not saved: the first position,
        and the position after the last.
    beside : dict of int to JointRecompute
        Maps a storage to its `JointRecompute` if the recomputation of another storage may recompute it, too.
    needs : tuple of Need
        For each recomputation that may be chosen, the storages that it reads; sorted by position.
    reads : dict of int to frozenset of int
        For each storage, the storages that its recomputation always reads, wherever it happens.
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
        # A storage is recomputed earliest if all storages are recomputed.
        early = self.presence_of(dict.fromkeys(self._again, RECOMPUTE))
        for storage in self._again:
            places = self._made_at[storage] | ({early[storage].place} if storage in early else set())
            for other, rows in work.recomputable_together(storage, always).items():
                if (span := stock.absence_of(other)) is None or not places:
                    continue
                # If `storage` is recomputed only after the first use of `other`, the saved `other` is in memory until
                # this use.
                start = span[0] if always or min(places) < span[1] else span[1]
                end = stock.last_touch(other) if max(places) > span[1] else span[1]
                if start < end:
                    known = found.get(other, JointRecompute(start, end, frozenset(), frozenset()))
                    start, end = min(start, known.start), max(end, known.end)
                    found[other] = JointRecompute(start, end, known.makers | {storage}, known.rows | rows)
        return found

    def presence_of(self, options: Mapping[int, str]) -> dict[int, Present]:
        """Map each storage that is not saved to the first position at which a recomputation reads the storage.

        A storage is included only if this position is before the first ordinary statement of the backward that reads
        the storage.
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
        """Return the storages whose recomputation could delay the reload of an offloaded storage beyond a position.

        The reload runs `ahead` statements before the first use of the offloaded storage. Recomputed statements count as
        such statements. Therefore, each statement that is recomputed between the position and the first use moves the
        reload to a later position. Return the storages that may be recomputed between the position and the first use.
        If no returned storage is recomputed, the offloaded storage is back in memory at the position.

        Return None if the storage may be absent at the position even without such recomputations.
        """
        end = self.spans[storage][1]
        if not max(self.first_backward, end - self.ahead) <= position < end:
            return None
        if any(position < at <= end for at in self._always_at):
            return None
        return frozenset(other for other, places in self._made_at.items() if any(position < at <= end for at in places))

    def is_reloaded(self, options: Mapping[int, str], storage: int, position: int) -> bool:
        """Return whether a storage is offloaded, and certainly back in memory at a position."""
        near = self.recomputable_until_use(storage, position) if options.get(storage) == OFFLOAD else None
        return near is not None and not any(options.get(other) == RECOMPUTE for other in near)
