"""Compute exact memory with recomputed or offloaded storages, from the memory of the stock schedule.

`Predictor` visits all statements for each schedule. This module visits only the statements that a recomputation or an
offload affects. This takes milliseconds, even for a long program. The module gives no result in three cases: a repeated
statement does not run in the forward, a repeated statement makes a value in the storage of an argument or a cotangent,
or a recomputation would move an output or a gradient to a different storage. Then the `Predictor` must be used.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.memory.liveness import Predictor, StatementSchedule
from workbench.core.graph import ValueFlag


class IncrementalLiveness:
    """Computes the memory of a schedule after recomputations and offloads.

    A position is the number of a statement among the statements that run under the stock schedule. A clone is a
    statement of the forward that runs again in the backward.

    Parameters
    ----------
    predictor : Predictor
    stock : StatementSchedule
        The schedule without recomputations.
    """

    def __init__(self, predictor: Predictor, stock: StatementSchedule) -> None:
        graph = predictor.graph
        self._graph, self._bytes = graph, graph.storages.bytes
        found = predictor.predict(stock)
        self.rows: list[int] = stock.order[found.entries].tolist()
        """The statement at each position."""
        self.first_backward, self._count = found.first_backward, len(self.rows)
        self._transient = graph.statements.transient_bytes
        self._inputs: list[list[int]] = graph.statements.inputs.lists()
        self._outputs: list[list[int]] = graph.statements.outputs.lists()
        self._storage: list[int] = graph.values.storage.tolist()
        flags = graph.values.flags
        self._tensor: list[bool] = ((flags & ValueFlag.TENSOR) != 0).tolist()
        self._argument, self._ends = (
            self._storages_with(ValueFlag.ARGUMENT),
            self._storages_with(ValueFlag.OUTPUT | ValueFlag.GRADIENT),
        )
        self._cotangent = self._storages_with(ValueFlag.COTANGENT)
        self._cotangents = np.asarray(sorted(self._cotangent), np.int64)
        produced = {value for outputs in self._outputs for value in outputs}
        ignored = set(np.flatnonzero(flags & ValueFlag.COTANGENT).tolist()) - produced
        self._ignored = np.asarray(sorted({self._storage[value] for value in ignored}), np.int64)
        self._runs = frozenset(self.rows[self.first_backward :])
        self._forward = frozenset(self.rows[: self.first_backward])
        made = {value for row in self._forward for value in (*self._inputs[row], *self._outputs[row])}
        self._available = made | set(np.flatnonzero(flags & (ValueFlag.ARGUMENT | ValueFlag.OUTPUT)).tolist())
        self._saved = {self._storage[value] for value in found.saved.tolist()} - self._argument - {-1}
        self._start, self._end, self._last_forward, self._touches = self._spans()
        # A clone may have to run before a statement that is dead code and therefore has no position. `_next` maps each
        # statement to the position of the next statement of the backward that runs.
        self._next: dict[int, int] = {}
        place = self._count
        place_of = {row: place for place, row in enumerate(self.rows)}
        for row in reversed(stock.order.tolist()):
            if row not in self._forward:
                place = place_of.get(row, place)
            self._next[row] = place
        self._baseline_bytes = found.baseline_bytes
        self._after_bytes = found.timeline.after_bytes

    def _storages_with(self, flag: ValueFlag) -> frozenset[int]:
        """Return the storages of all values with `flag`."""
        return frozenset(self._storage[value] for value in np.flatnonzero(self._graph.values.flags & flag).tolist())

    def _spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64], dict[int, int], dict[int, list[int]]]:
        """Return, for each storage, where it is made, its last use, its last forward use, and all its backward uses.

        The four results contain positions. If a storage is alive at the end of the step, its last use is the number of
        positions.
        """
        count, storages = self._count, len(self._bytes)
        start, end = np.full(storages, count, np.int64), np.full(storages, -1, np.int64)
        last: dict[int, int] = {}
        touches: dict[int, list[int]] = {}
        for place, row in enumerate(self.rows):
            made = [self._storage[value] for value in self._outputs[row]]
            for storage in {*made, *(self._storage[value] for value in self._inputs[row])} - {-1}:
                end[storage] = place
                if place < self.first_backward:
                    last[storage] = place
                else:
                    touches.setdefault(storage, []).append(place)
            for storage in made:
                if storage >= 0:
                    start[storage] = min(start[storage], place)
        for storage in self._ends - {-1}:
            end[storage] = count
        for storage in self._argument - {-1}:
            start[storage], end[storage] = -1, count
        return start, end, last, touches

    def position_of(self, row: int) -> int:
        """Return the position before which a clone runs if statement `row` needs it."""
        return self._next[row]

    def runs_in_backward(self, row: int) -> bool:
        """Return whether statement `row` runs in the backward."""
        return row in self._runs

    def absence_of(self, storage: int, reader: int | None = None) -> tuple[int, int] | None:
        """Return the range of positions at which a storage need not be alive.

        The range begins right after the last use in the forward, and ends before the first use in the backward. The
        second number is the position of this first use. Return None if the forward or the backward does not use the
        storage.

        Parameters
        ----------
        storage : int
        reader : int, optional
            A statement of the backward. If given, assume that clones right before this statement also read the storage.
        """
        touches = self._touches.get(storage, [])[:1] + ([] if reader is None else [self.position_of(reader)])
        if storage not in self._last_forward or not touches:
            return None
        return self._last_forward[storage] + 1, min(touches)

    def last_touch(self, storage: int) -> int:
        """Return the last position in the backward that uses a storage."""
        return self._touches[storage][-1]

    def with_reruns(self, reruns: Mapping[int, Sequence[int]]) -> RecomputedMemory | None:
        """Return the spans of all storages under recomputations; None if only the `Predictor` can compute the memory.

        Parameters
        ----------
        reruns : mapping of int to sequence of int
            See `workbench.analysis.memory.recompute_set.Recompute.before`.
        """
        again = _RerunReads(self, reruns)
        return RecomputedMemory(self, again) if again.known else None


class RecomputedMemory:
    """The memory under recomputations. It can be computed for different offloaded storages.

    Parameters
    ----------
    stock : IncrementalLiveness
    again : _RerunReads
    """

    def __init__(self, stock: IncrementalLiveness, again: _RerunReads) -> None:
        self._stock, self._recomputed = stock, again.storages
        clones, running = again.clones, again.needed_clones()
        count, added = stock._count, len(running)
        self._places = places = np.asarray([clones[number].place for number in running], np.int64)
        shift = np.searchsorted(places, np.arange(count), side="right")
        self._position = position = np.arange(count) + shift
        self._inserted = places + np.arange(added)
        at = dict(zip(running, self._inserted.tolist(), strict=True))
        self._length = length = count + added
        # `start` and `end` also contain two special positions. `count` stands for the time after the last statement,
        # and -1 for the time before the first.
        moved = np.concatenate([position, [length, -1]])
        start, end = moved[stock._start], moved[stock._end]
        # Cotangents are alive at the first statement of the backward, even if it does not use them.
        start[stock._cotangents] = np.minimum(start[stock._cotangents], stock.first_backward)
        end[stock._cotangents] = np.maximum(end[stock._cotangents], stock.first_backward)
        end[stock._ignored] = length
        self._first: dict[int, int] = {}
        """The first position in the backward at which a clone or a moved statement uses a storage."""
        first, saved = self._first, stock._saved - again.storages
        fresh = len(stock._bytes)
        starts, ends = [length] * len(again.fresh), [-1] * len(again.fresh)
        reached: dict[int, int] = {}
        for storage in again.storages - stock._argument:
            reached[storage] = int(position[stock._last_forward[storage]]) if storage in stock._last_forward else -1

        def touch(storage: int, where: int, makes: bool) -> None:
            if storage >= fresh:
                ends[storage - fresh] = max(ends[storage - fresh], where)
                if makes:
                    starts[storage - fresh] = min(starts[storage - fresh], where)
            elif storage >= 0 and storage not in stock._argument:
                first[storage] = min(first.get(storage, where), where)
                reached[storage] = max(reached[storage] if storage in reached else int(end[storage]), where)

        for place, touched in again.touched.items():
            where = int(position[place])
            for storage, makes in touched:
                touch(storage, where, makes)
        for number in running:
            for storage, makes in clones[number].touched:
                touch(storage, at[number], makes)
            saved |= clones[number].saved
        saved |= again.still_saved
        for storage, where in reached.items():
            end[storage] = length if storage in stock._ends else where
        self._saved = saved - stock._argument - {-1}
        self._start = np.concatenate([start, np.asarray(starts, np.int64)])
        self._end = np.concatenate([end, np.asarray(ends, np.int64)])
        self._bytes = np.concatenate([stock._bytes, stock._bytes[again.fresh]])
        self._transient = np.zeros(length, np.int64)
        self._transient[position] = stock._transient[stock.rows]
        self._transient[self._inserted] = stock._transient[[clones[number].row for number in running]]

    def with_offloads(self, storages: Collection[int], ahead: int) -> tuple[int, int, NDArray[np.int64]]:
        """Return the memory if storages are offloaded, too.

        Parameters
        ----------
        storages : collection of int
            Storages that are offloaded.
        ahead : int
            See `Predictor.predict`.

        Returns
        -------
        int, int
            Peak bytes and saved bytes.
        (positions + 1,) int64
            Most bytes alive at each position, and after the last position.
        """
        stock, length, position, end = self._stock, self._length, self._position, self._end.copy()
        moved_start, moved_end, moved_bytes = self._reloaded_spans(storages, ahead, end)
        span_start = np.concatenate([self._start, moved_start])
        span_end = np.concatenate([end, moved_end])
        span_bytes = np.concatenate([self._bytes, moved_bytes])
        alive = span_start <= span_end
        made, dropped = np.zeros(length + 1, np.int64), np.zeros(length + 1, np.int64)
        np.add.at(made, np.maximum(span_start[alive], 0), span_bytes[alive])
        np.add.at(dropped, span_end[alive], span_bytes[alive])
        inside = np.cumsum(made)[:length] - np.cumsum(dropped)[:length] + dropped[:length] + self._transient
        peaks = np.zeros(stock._count + 1, np.int64)
        peaks[:-1] = inside[position]
        np.maximum.at(peaks, self._places, inside[self._inserted])
        peaks[-1] = max(int(peaks[-1]), stock._after_bytes)
        saved_bytes = int(stock._bytes[list(self._saved.difference(storages))].sum())
        return max(int(peaks.max()), stock._baseline_bytes), saved_bytes, peaks

    def _reloaded_spans(
        self, storages: Collection[int], ahead: int, end: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the first positions, last positions and bytes of the reloaded storages.

        Set their entries in `end` to their last use in the forward, after which they are offloaded.
        """
        stock, position = self._stock, self._position
        begins, ends, sizes = [], [], []
        for storage in storages:
            touches = () if storage in self._recomputed else stock._touches.get(storage, ())
            firsts = [int(position[touches[0]])] if touches else []
            firsts += [self._first[storage]] if storage in self._first else []
            if storage in stock._last_forward and firsts:
                begins.append(max(stock.first_backward, min(firsts) - ahead))
                ends.append(int(end[storage]))
                sizes.append(int(stock._bytes[storage]))
                end[storage] = position[stock._last_forward[storage]]
        return np.asarray(begins, np.int64), np.asarray(ends, np.int64), np.asarray(sizes, np.int64)


class _Clone:
    """A statement of the forward that runs again in the backward.

    Attributes
    ----------
    row, place : int
        The statement, and the position before which it runs.
    touched : list of (int, bool)
        Each storage that the clone reads (with False) or makes (with True).
    reads : list of int
        Numbers of the earlier clones whose results this clone reads.
    saved : set of int
        Storages of the forward's values that the clone reads.
    """

    __slots__ = ("place", "reads", "row", "saved", "touched")

    def __init__(self, row: int, position: int) -> None:
        self.row, self.place = row, position
        self.touched: list[tuple[int, bool]] = []
        self.reads: list[int] = []
        self.saved: set[int] = set()


class _RerunReads:
    """The accesses of clones to storages, and the accesses of the backward to recomputed storages.

    Attributes
    ----------
    known : bool
        False if the memory cannot be computed by this module, and the `Predictor` must be used.
    storages : set of int
        Storages that are recomputed.
    clones : list of _Clone
        The clones in the order in which they run.
    fresh : list of int
        For each new storage of a clone, the original storage of the forward. The two storages have the same size.
    touched : dict of int to list of (int, bool)
        Maps a position to the recomputed storages, or their replacements, that its statement reads or makes; see
        `_Clone.touched`.
    still_saved : set of int
        Recomputed storages that must also be saved, because the backward reads a value in them that is not recomputed.
    """

    def __init__(self, stock: IncrementalLiveness, reruns: Mapping[int, Sequence[int]]) -> None:
        self._stock = stock
        self.clones: list[_Clone] = []
        self.fresh: list[int] = []
        self.touched: dict[int, list[tuple[int, bool]]] = {}
        self.still_saved: set[int] = set()
        self._needed: set[int] = set()
        storage = stock._storage
        made = {row: None for group in reruns.values() for row in group}
        self.storages = {storage[value] for row in made for value in stock._outputs[row]} - {-1}
        self.known = stock._forward.issuperset(made) and not self.storages & stock._cotangent
        if self.known:
            self._follow(reruns)

    def _follow(self, reruns: Mapping[int, Sequence[int]]) -> None:
        stock = self._stock
        groups: dict[int, list[int]] = {}
        for row in sorted(reruns):
            groups.setdefault(stock._next[row], []).extend(reruns[row])
        places = {place for storage in self.storages - stock._argument for place in stock._touches.get(storage, ())}
        self._made: dict[int, tuple[int, int]] = {}
        self._lives: dict[int, int] = {}
        for place in sorted(places | groups.keys()):
            for row in groups.get(place, ()):
                self._run_again(row, place)
            if place in places:
                self._run(place)

    def _run_again(self, row: int, position: int) -> None:
        stock, clone = self._stock, _Clone(row, position)
        shared: dict[int, int] = {}
        for value in stock._inputs[row]:
            lives = self._record_read(value, clone.reads, clone.saved)
            clone.touched.append((lives, False))
            shared[stock._storage[value]] = lives
        for value in stock._outputs[row]:
            original = stock._storage[value]
            if original >= 0 and original not in shared:
                if original in stock._argument:
                    self.known = False
                shared[original] = len(stock._bytes) + len(self.fresh)
                self.fresh.append(original)
            lives = shared[original] if original >= 0 else -1
            self._made[value] = (lives, len(self.clones))
            clone.touched.append((lives, True))
        self.clones.append(clone)

    def _record_read(self, value: int, reads: list[int] | set[int], saved: set[int]) -> int:
        """Return the storage from which a value is read, and record where the value comes from.

        If a clone has made the value, add the number of the clone to `reads`. If the forward has made it, add its
        storage to `saved`.
        """
        stock = self._stock
        if value in self._made:
            lives, number = self._made[value]
            if isinstance(reads, set):
                reads.add(number)
            else:
                reads.append(number)
            return lives
        lives = self._lives.get(value, stock._storage[value])
        if value in stock._available and stock._tensor[value]:
            saved.add(lives)
        return lives

    def _run(self, position: int) -> None:
        stock = self._stock
        row = stock.rows[position]
        touched = self.touched.setdefault(position, [])
        shared: dict[int, int] = {}
        read: set[int] = set()
        for value in stock._inputs[row]:
            lives = self._record_read(value, self._needed, read)
            original = stock._storage[value]
            shared[original] = lives
            if original in self.storages:
                touched.append((lives, False))
        self.still_saved |= read & self.storages
        for value in stock._outputs[row]:
            original = stock._storage[value]
            if original in self.storages:
                lives = shared.get(original, original)
                if lives != original:
                    self._lives[value] = lives
                    # An output or a gradient would move to a different storage.
                    if original in stock._ends:
                        self.known = False
                touched.append((lives, True))

    def needed_clones(self) -> list[int]:
        """Return the numbers of the clones that the backward needs, in order. All other clones are dead code."""
        needed = set(self._needed)
        for number in range(len(self.clones) - 1, -1, -1):
            if number in needed:
                needed.update(self.clones[number].reads)
        return sorted(needed)
