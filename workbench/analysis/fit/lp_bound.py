"""Lower bound on the step time of all assignments that meet a limit on peak memory, by a linear program.

A choice is to recompute or to offload one storage; each choice is a variable from 0 to 1. An assignment is the choices
for all storages together. A position is the number of a statement; see
`workbench.analysis.memory.peak_by_statement.PeakPositions`. A memory row is a constraint that limits the bytes at one
position. Memory rows are added only if a solution violates them, so a model with thousands of statements needs only
dozens of rows. If choices may be fractions, the solver takes milliseconds. If choices must be 0 or 1, the solver takes
longer, but the bound is higher and therefore closer to the best time.

The bound is never too high. The program frees all bytes that a choice could free, and adds only the part of a choice's
time that is certain. If several choices recompute a statement, the statement's time counts once. Two kinds of rows make
the bound higher. A row of the first kind says that a storage must be in memory when the recomputation of another
storage reads it (see `residency`). A row of the second kind says that an offloaded storage is in memory a few
statements before its first use.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, linprog
from scipy.sparse import csr_array

from workbench.analysis.fit.layer_symmetry import LinearProgram, merge_equal_columns
from workbench.analysis.fit.milp_process import solve, solve_whole
from workbench.analysis.fit.residency import JointRecompute, Presence, Present
from workbench.analysis.graphs.sparse_rows import Rows, stack_rows
from workbench.analysis.memory.peak_by_statement import RECOMPUTE

_ROWS_AT_ONCE = 20
_LET_GO = 1e-7
"""The solver may violate a row by this tolerance."""
_INFEASIBLE = 2
"""Status of the solver for an infeasible program."""
_ENDED = (0, _INFEASIBLE)
"""Statuses of the solver if no limit of time or nodes stopped it: solved, or proven infeasible."""
_TIE = 1e-7
"""Relative weight of a penalty for each choice. For solutions of equal cost, the penalty favors few and cheap choices.
"""
_ALIKE = 0.5
"""Choices are merged only if fewer than this share of the choices remain afterwards."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """Lower bound on the step time of all assignments within a limit.

    Attributes
    ----------
    added_s : float
        An assignment within the limit makes a step at least this many seconds longer than a step that saves everything.
    s_per_byte : float
        Decrease of `added_s` if the limit rises by one byte.
    """

    added_s: float
    s_per_byte: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class IntegerFacts:
    """Result of solving a program whose choices must be 0 or 1.

    Attributes
    ----------
    taken : (choices,) float64 or None
        The best solution that was found, up to rounding errors; None if no solution was found.
    proven_s : float
        Lower bound of the seconds that choices of 0 and 1 add, if they satisfy the current rows.
    limited : bool
        Whether a limit of time or nodes stopped the solver.
    """

    taken: NDArray[np.float64] | None
    proven_s: float
    limited: bool = False


class Relaxation:
    """The columns and rows of the linear program that do not depend on the limit.

    Parameters
    ----------
    variables : sequence of (int, str)
        The choices: a storage, and `RECOMPUTE` or `OFFLOAD`. If a storage has both choices, they are adjacent.
    spans : sequence of (int, int)
        For each choice, the range of positions at which it can free bytes: the first position, and the position after
        the last.
    sizes : (variables,) float64
        For each choice, the bytes of the storage.
    chains : sequence of collection of int
        For each choice, the statements that run again; empty for an offload.
    seconds : (statements,) float64
        Seconds of each statement if it runs again.
    transfers : (variables,) float64
        For each choice, the seconds of a transfer in one direction.
    hidden : tuple of float
        Seconds of transfers that compute can hide in the forward, and in the backward.
    peaks : (positions,) int64
        Peak at each position if everything is saved.
    each_s : (variables,) float64, optional
        For each choice, its seconds besides statements and transfers; negative if the choice may save time.
    joint_recomputations : mapping of int to (JointRecompute, float), optional
        For each storage that the recomputation of another storage also recomputes: its `JointRecompute` and its bytes.
        Such a storage may be absent before this recomputation even if no choice is made for it.
    presence : Presence, optional
        The positions at which storages must be in memory. Without it, the bound may be lower, but it is still valid.

    Attributes
    ----------
    floor_s : float
        Lower bound, for all limits, of the seconds that choices add. It is negative if choices may save time.
    """

    def __init__(
        self,
        *,
        variables: Sequence[tuple[int, str]],
        spans: Sequence[tuple[int, int]],
        sizes: NDArray[np.float64],
        chains: Sequence[Collection[int]],
        seconds: NDArray[np.float64],
        transfers: NDArray[np.float64],
        hidden: tuple[float, float],
        peaks: NDArray[np.int64],
        each_s: NDArray[np.float64] | None = None,
        joint_recomputations: Mapping[int, tuple[JointRecompute, float]] | None = None,
        presence: Presence | None = None,
    ) -> None:
        self.variables, self.sizes, self.peaks, self.presence = tuple(variables), sizes, peaks, presence
        self.count = count = len(self.variables)
        self.start = np.asarray([start for start, _ in spans], np.int64)
        self.end = np.asarray([end for _, end in spans], np.int64)
        self.of_storage: dict[int, dict[str, int]] = {}
        for number, (storage, option) in enumerate(self.variables):
            self.of_storage.setdefault(storage, {})[option] = number
        self._freed = self._most_freed(joint_recomputations or {})
        self._build(
            np.zeros(count) if each_s is None else each_s,
            chains,
            seconds,
            transfers,
            hidden,
            joint_recomputations or {},
        )
        self.dear_s = max(float(np.abs(self.costs[:count]).sum() + self.costs[count + 2 :].sum()), 1e-6)
        self.floor_s = float(np.minimum(self.costs[:count], 0.0).sum())
        alone = np.asarray([float(seconds[list(chain)].sum()) for chain in chains], float)
        self.ties = np.zeros(self.width)
        self.ties[:count] = _TIE * (alone + transfers) + _TIE * self.dear_s / max(1, count)

    def _build(
        self,
        each_s: NDArray[np.float64],
        chains: Sequence[Collection[int]],
        seconds: NDArray[np.float64],
        transfers: NDArray[np.float64],
        hidden: tuple[float, float],
        joint_recomputations: Mapping[int, tuple[JointRecompute, float]],
    ) -> None:
        """Build the columns, and all rows ``matrix @ x <= limits`` except memory rows."""
        count = self.count
        costs = each_s.astype(float)
        users: dict[int, list[int]] = {}
        for number, chain in enumerate(chains):
            for row in chain:
                users.setdefault(row, []).append(number)
        together: dict[tuple[int, ...], float] = {}
        users_of = {row: tuple(numbers) for row, numbers in users.items()}
        for row, numbers in users.items():
            if len(numbers) == 1:
                costs[numbers[0]] += seconds[row]
            elif seconds[row] > 0:
                together[tuple(numbers)] = together.get(tuple(numbers), 0.0) + float(seconds[row])
        at = {numbers: count + 2 + which for which, numbers in enumerate(together)}
        shared_until = count + 2 + len(together)
        self.width = shared_until + 2 * len(joint_recomputations)
        rows = Rows()
        for way, hides in enumerate(hidden):
            moved = {number: float(transfers[number]) for number in np.flatnonzero(transfers).tolist()}
            rows.add({**moved, count + way: -1.0}, hides)
        for both in self.of_storage.values():
            if len(both) > 1:
                rows.add(dict.fromkeys(both.values(), 1.0), 1.0)
        # All statements that the same set of choices recomputes have one common column: the share of these statements
        # that runs again. This column must be at least as large as the column of each choice in the set.
        for group, within in _nest_groups(list(together)).items():
            for inside in within:
                rows.add({inside if isinstance(inside, int) else at[inside]: 1.0, at[group]: -1.0}, 0.0)
        # For each storage, the columns whose sum is the share of the storage that is absent. A storage is absent if it
        # is not saved, or if it is recomputed together with another storage.
        self.absent: dict[int, Mapping[int, float]] = {
            storage: dict.fromkeys(both.values(), 1.0) for storage, both in self.of_storage.items()
        }
        self.excuse: dict[int, int] = {}
        # A piece is a range of positions at which a column frees bytes. If a joint recomputation can free a storage
        # only after the span of the storage's own choices, this span is one piece. If a joint recomputation can free
        # the storage earlier, the span is added below, with a column for both reasons of absence.
        own = {storage: int(self.end[next(iter(both.values()))]) for storage, both in self.of_storage.items()}
        pieces = [
            (number, self.start[number], self.end[number], self.sizes[number])
            for number, (storage, _) in enumerate(self.variables)
            if storage not in joint_recomputations or joint_recomputations[storage][0].start >= own[storage]
        ]
        for which, (storage, (found, size)) in enumerate(joint_recomputations.items()):
            excused, absent = shared_until + 2 * which, shared_until + 2 * which + 1
            rows.add({excused: 1.0, **{self.of_storage[maker][RECOMPUTE]: -1.0 for maker in found.makers}}, 0.0)
            run = {users_of.get(row) for row in found.rows}
            makers = {self.of_storage[maker][RECOMPUTE] for maker in found.makers}
            if len(run) == 1 and (known := run.pop()) in at and makers <= set(known or ()):
                # The storage may be absent only if the statement that makes it runs again.
                rows.add({excused: 1.0, at[known]: -1.0}, 0.0)
            start, both = found.start, self.of_storage.get(storage, {})
            if RECOMPUTE in both:
                rows.add({excused: 1.0, both[RECOMPUTE]: 1.0}, 1.0)
            if both and start < own[storage]:
                rows.add({absent: 1.0, excused: -1.0, **dict.fromkeys(both.values(), -1.0)}, 0.0)
                self.absent[storage] = {absent: 1.0}
                self.excuse[storage] = excused
                number = next(iter(both.values()))
                pieces.append((absent, self.start[number], self.end[number], size))
                start = own[storage]
            if start < found.end:
                pieces.append((excused, start, found.end, size))
        columns, starts, ends, sizes = zip(*pieces, strict=True) if pieces else ((), (), (), ())
        self.piece_columns, self.piece_sizes = np.asarray(columns, np.int64), np.asarray(sizes, float)
        self.piece_starts, self.piece_ends = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
        self.costs = np.concatenate(
            [costs, [1.0, 1.0], list(together.values()), np.zeros(2 * len(joint_recomputations))]
        )
        self.upper = np.concatenate([np.ones(count), [np.inf, np.inf], np.ones(self.width - count - 2)])
        self.matrix, self.limits = rows.matrix(self.width), np.asarray(rows.limits, float)

    def _most_freed(self, joint_recomputations: Mapping[int, tuple[JointRecompute, float]]) -> NDArray[np.float64]:
        """Return, for each position, an upper bound of the bytes that choices can free together."""
        freed = np.zeros(len(self.peaks) + 1)
        sizes = {storage: size for storage, (_, size) in joint_recomputations.items()}
        spans = {storage: [(found.start, found.end)] for storage, (found, _) in joint_recomputations.items()}
        for storage, both in self.of_storage.items():
            number = next(iter(both.values()))
            sizes[storage] = max(sizes.get(storage, 0.0), float(self.sizes[number]))
            spans.setdefault(storage, []).append((int(self.start[number]), int(self.end[number])))
        for storage, found in spans.items():
            until = 0
            for start, end in sorted(found):
                freed[max(start, until) : max(end, until)] += sizes[storage]
                until = max(end, until)
        return freed[: len(self.peaks)]

    @property
    def floor_bytes(self) -> int:
        """Lower bound of peak memory for all choices."""
        return int((self.peaks - self._freed).max(initial=0))

    def with_peaks(self, peaks: NDArray[np.int64]) -> Relaxation:
        """Return a copy with other values for the constructor's parameter `peaks`."""
        other = copy.copy(self)
        other.peaks = peaks
        return other

    def most_bytes_freed(self, position: int) -> NDArray[np.float64]:
        """Return, for each choice, an upper bound of the bytes that it frees at a position."""
        return np.where((self.start <= position) & (position < self.end), self.sizes, 0.0)

    def options(self, numbers: Sequence[int]) -> dict[int, str]:
        """Convert numbers of choices to an assignment. If `numbers` has two choices for a storage, use the first."""
        options: dict[int, str] = {}
        for number in numbers:
            options.setdefault(*self.variables[number])
        return options

    def choice_vector(self, options: Mapping[int, str]) -> NDArray[np.float64]:
        """Return the vector with 1 for each choice in `options`, and 0 for all other choices."""
        return np.asarray([float(options.get(storage) == option) for storage, option in self.variables], float)

    def program_for(self, limit_bytes: int) -> LimitedProgram:
        """Return the linear program for a limit."""
        return LimitedProgram(self, limit_bytes)


type _Program = tuple[NDArray[np.float64], NDArray[np.float64], csr_array, NDArray[np.float64]]
"""Costs, upper bounds of `x`, and `matrix` and `limits` of ``matrix @ x <= limits``."""


class LimitedProgram:
    """The linear program for one limit, to which rows and columns are added when they are needed.

    Parameters
    ----------
    base : Relaxation
    limit_bytes : int

    Attributes
    ----------
    over : (positions,) int64
        Positions that exceed the limit if everything is saved.
    unit : float
        Bytes by which the coefficients of memory rows are divided, so that they are close to 1.
    beyond : float
        Margin, in multiples of `unit`: each memory row must free this much more than the limit requires. A program with
        a margin proves no bound, because choices within the limit may violate its rows.
    """

    def __init__(self, base: Relaxation, limit_bytes: int) -> None:
        self._base = base
        self.over = np.flatnonzero(base.peaks > limit_bytes)
        self._needed = base.peaks.astype(float) - limit_bytes
        self.unit = max(1.0, float(self._needed.max(initial=0.0)))
        self._places: dict[int, None] = {}
        # Maps a storage and a position to a column: the share of the storage that is absent at this position and later.
        self._absent: dict[int, dict[int, int]] = {}
        self._because = Rows()
        self._said: set[tuple[object, ...]] = set()
        self._guesses: list[tuple[dict[int, float], float]] = []
        self.beyond = 0.0
        self._fractions = self._against = np.zeros(base.count)
        self._last = np.empty(0)
        self._least_s = base.floor_s
        if len(self.over) and base.count:
            worst = self.over[int(np.argmax(self._needed[self.over]))]
            for place in (*self.over[:: max(1, len(self.over) // 8)].tolist(), int(worst)):
                self._places[place] = None

    def copy(self) -> LimitedProgram:
        """Return a copy. Rows that are added to the copy do not change this object."""
        other = copy.copy(self)
        other._places, other._said = dict(self._places), set(self._said)
        other._absent = {storage: dict(columns) for storage, columns in self._absent.items()}
        other._because, other._guesses = self._because.copy(), list(self._guesses)
        return other

    @property
    def fractions(self) -> NDArray[np.float64]:
        """Value of each choice, from 0 to 1, in the solution of the last call of `bound`."""
        return self._fractions

    @property
    def has_guesses(self) -> bool:
        """Return whether choices within the limit may violate a row of the program, so that it proves no bound."""
        return bool(self._guesses) or self.beyond > 0

    @property
    def is_trivial(self) -> bool:
        """Return whether there is nothing to solve: no position exceeds the limit, or there are no choices."""
        return not len(self.over) or not self._base.count

    # Adding rows.

    def add_memory_row(self, position: int) -> bool:
        """Add the memory row for a position. Return whether the row is new."""
        new = position not in self._places and self._needed[position] > 0
        if new:
            self._places[position] = None
        return new

    def guess(self, freed: NDArray[np.float64], needed: float) -> None:
        """Add the row ``freed @ choices >= needed``, in bytes. Choices within the limit may violate this row."""
        helps = np.flatnonzero(freed)
        self._guesses.append(
            (dict(zip(helps.tolist(), (freed[helps] / self.unit).tolist(), strict=True)), needed / self.unit)
        )

    def refuse(self, choice_vector: NDArray[np.float64]) -> None:
        """Add a row that excludes all solutions that contain every choice in `choice_vector`."""
        numbers = np.flatnonzero(choice_vector > 0.5)
        self._guesses.append((dict.fromkeys(numbers.tolist(), -1.0), 1.0 - len(numbers)))

    def differs_from_last(self, choice_vector: NDArray[np.float64]) -> bool:
        """Return whether `choice_vector` differs from the argument of the previous call of this method."""
        other = not np.array_equal(choice_vector, self._last)
        self._last = choice_vector
        return other

    def add_presence_rows(self, options: Mapping[int, str], positions: Collection[int]) -> bool:
        """Add rows for storages that must be in memory under `options`, although the program counts them as absent.

        `positions` are the positions to check. Return whether at least one of the rows is new.
        """
        presence, new = self._base.presence, False
        if presence is None:
            return False
        present = presence.presence_of(options)
        for place in positions:
            for storage in options:
                if (
                    storage not in presence.spans
                    or not presence.spans[storage][0] <= place < presence.spans[storage][1]
                ):
                    continue
                found = present.get(storage)
                if found is not None and found.place <= place:
                    new |= self._add_reader_rows(storage, present)
                elif presence.is_reloaded(options, storage, place):
                    new |= self._add_reload_row(storage, place)
        return new

    def _add_reader_rows(self, storage: int, present: Mapping[int, Present]) -> bool:
        """Add a row saying that `storage` is in memory when the recomputation of another storage reads it.

        If the other storage is recomputed at this position only because the recomputation of a third storage reads it,
        add a row for the other storage too. Return whether at least one of the rows is new.
        """
        new, at = False, present[storage].place
        while True:
            column, reader, first = self._column(storage, at), present[storage].reader, present[storage].first
            entries = {column: 1.0, self._base.of_storage[reader][RECOMPUTE]: 1.0}
            if not first:
                entries[self._column(reader, at)] = -1.0
            new |= self._add_row_once(storage, (at, reader, first), entries, 1.0)
            if first:
                return new
            storage = reader

    def _add_reload_row(self, storage: int, position: int) -> bool:
        presence = self._base.presence
        assert presence is not None
        entries = {self._column(storage, position): 1.0}
        numbers = self._base.of_storage
        for other in presence.recomputable_until_use(storage, position) or ():
            entries[numbers[other][RECOMPUTE]] = -1.0
        if RECOMPUTE in numbers[storage]:
            entries[numbers[storage][RECOMPUTE]] = -1.0
        return self._add_row_once(storage, (position,), entries, 0.0)

    def _add_row_once(self, storage: int, key: tuple[object, ...], entries: dict[int, float], limit: float) -> bool:
        if (storage, *key) in self._said:
            return False
        self._said.add((storage, *key))
        if storage in self._base.excuse:
            entries[self._base.excuse[storage]] = -1.0
        self._because.add(entries, limit)
        return True

    def _column(self, storage: int, position: int) -> int:
        """Return the column for the share of a storage that is absent at a position and later; add it if it is new."""
        columns = self._absent.setdefault(storage, {})
        if position not in columns:
            columns[position] = self._base.width + sum(map(len, self._absent.values()))
        return columns[position]

    # Solving.

    def _freed_bytes(self, position: int) -> dict[int, float]:
        """Map each column to the bytes that it frees at a position if its value is 1."""
        base = self._base
        here = np.flatnonzero((base.piece_starts <= position) & (position < base.piece_ends))
        entries = dict(zip(base.piece_columns[here].tolist(), base.piece_sizes[here].tolist(), strict=True))
        for storage, columns in self._absent.items():
            at = max((known for known in columns if known <= position), default=None)
            own = [column for column in base.absent[storage] if column in entries]
            if at is not None and own:
                size = entries[own[0]]
                for column in own:
                    del entries[column]
                entries[columns[at]] = size
        return entries

    def _program(self) -> _Program:
        """Return the program: costs, upper bounds of `x`, and `matrix` and `limits` of ``matrix @ x <= limits``.

        Memory rows are the first rows.
        """
        base = self._base
        more = sum(map(len, self._absent.values()))
        rows = Rows()
        for place in self._places:
            freed = {column: -size / self.unit for column, size in self._freed_bytes(place).items()}
            rows.add(freed, -(float(self._needed[place]) / self.unit + self.beyond))
        for entries, needed in self._guesses:
            rows.add({column: -each for column, each in entries.items()}, -(needed + self.beyond))
        for storage, columns in self._absent.items():
            # A storage cannot become absent again, and a saved storage cannot be absent.
            before = dict.fromkeys(base.absent[storage], -1.0)
            for place in sorted(columns):
                rows.add({columns[place]: 1.0, **before}, 0.0)
                before = {columns[place]: -1.0}
        width = base.width + more
        known = self._because.matrix(width)
        still = csr_array(
            (base.matrix.data, base.matrix.indices, base.matrix.indptr), shape=(base.matrix.shape[0], width)
        )
        return (
            np.concatenate([base.costs, np.zeros(more)]),
            np.concatenate([base.upper, np.ones(more)]),
            stack_rows([rows.matrix(width), known, still]),
            np.concatenate([rows.limits, self._because.limits, base.limits]),
        )

    def bound(self, go_on: Callable[[], None] = lambda: None) -> Bound:
        """Return the bound for choices from 0 to 1. Add memory rows until the solution violates no memory row.

        Parameters
        ----------
        go_on : callable, optional
            Called repeatedly while the program is solved. An exception from `go_on` ends the search.
        """
        if self.is_trivial:
            return Bound(added_s=self._base.floor_s, s_per_byte=0.0)
        return self._solve_fractions(go_on)[0]

    def _solve_fractions(self, go_on: Callable[[], None]) -> tuple[Bound, _Program]:
        """Return the bound as `bound` does, and the program after the last row was added."""
        base = self._base
        while True:
            program = costs, upper, matrix, limits = self._program()
            solved: Any = solve(
                go_on,
                linprog,
                costs / base.dear_s,
                A_ub=matrix,
                b_ub=limits,
                bounds=np.column_stack([np.zeros(len(costs)), upper]),
                method="highs",
            )
            if solved.x is None:
                return Bound(added_s=base.floor_s, s_per_byte=0.0), program
            if not self._add_broken(solved.x):
                break
        price = max(0.0, -float(solved.ineqlin.marginals[: len(self._places)].sum()) / self.unit)
        bound = Bound(added_s=max(base.floor_s, float(solved.fun) * base.dear_s), s_per_byte=price * base.dear_s)
        # For each choice, the least increase of the added time if the choice changes between 0 and 1 (reduced cost).
        self._against = np.maximum(solved.lower.marginals, -solved.upper.marginals)[: base.count] * base.dear_s
        self._fractions, self._least_s = np.asarray(solved.x[: base.count]), bound.added_s
        return bound, program

    def _add_broken(self, x: NDArray[np.float64]) -> bool:
        """Add memory rows for the positions at which a solution exceeds the limit most.

        Return whether at least one of the rows is new.
        """
        base = self._base
        freed = np.zeros(len(base.peaks) + 1)
        absent = base.piece_sizes * x[base.piece_columns]
        np.add.at(freed, base.piece_starts, absent)
        np.add.at(freed, base.piece_ends, -absent)
        for storage, columns in self._absent.items():
            # A storage may have to be in memory again before its first use. Do not count its bytes as freed from that
            # position on.
            numbers = list(base.of_storage[storage].values())
            size, until = base.sizes[numbers[0]], int(base.end[numbers].max())
            was = float(x[list(base.absent[storage])].sum())
            for place in sorted(columns):
                freed[place] -= size * (was - x[columns[place]])
                freed[until] += size * (was - x[columns[place]])
                was = float(x[columns[place]])
        missing = (self._needed[self.over] - np.cumsum(freed)[self.over]) / self.unit
        broken = missing > 10 * _LET_GO
        peak = broken & (missing >= np.append(-np.inf, missing[:-1])) & (missing >= np.append(missing[1:], -np.inf))
        found = np.flatnonzero(peak)
        picked = found[np.argsort(-missing[found], kind="stable")][:_ROWS_AT_ONCE]
        asked = [self.add_memory_row(place) for place in self.over[picked].tolist()]
        return any(asked)

    def solve_integer(
        self,
        go_on: Callable[[], None],
        *,
        nodes: int,
        gap: float,
        below_s: float = np.inf,
    ) -> IntegerFacts:
        """Find the cheapest choices of 0 and 1 that satisfy the current rows, and a lower bound of their time.

        Parameters
        ----------
        go_on : callable
            See `bound`.
        nodes : int
            Maximum number of nodes that the solver searches. At the limit, it returns its best result so far.
        gap : float
            The solver stops when its solution is at most this share above its bound.
        below_s : float
            The solver searches only for solutions that add at most this many seconds.
        """
        base = self._base
        if self.is_trivial:
            return IntegerFacts(taken=np.zeros(base.count), proven_s=base.floor_s)
        program = self._solve_fractions(go_on)[1] if np.isfinite(below_s) else self._program()
        costs, upper, matrix, limits = program
        scale = float(base.dear_s)
        costs[: base.width] += base.ties
        lower = np.zeros(len(costs))
        hopeless = self._least_s + self._against > below_s + scale * _LET_GO
        lower[: base.count][hopeless & (self._fractions > 0.5)] = 1.0
        upper[: base.count][hopeless & (self._fractions <= 0.5)] = 0.0
        rows = [LinearConstraint(matrix, -np.inf, limits)]
        if np.isfinite(below_s):
            rows.append(LinearConstraint(csr_array(costs[None] / scale), -np.inf, (below_s + base.ties.sum()) / scale))
        solved: Any = solve_whole(
            go_on,
            costs / scale,
            constraints=rows,
            integrality=(np.arange(len(costs)) < base.count).astype(int),
            bounds=(lower, upper),
            nodes=nodes,
            options={"mip_rel_gap": gap},
        )
        proven = solved.mip_dual_bound
        proven_s = self._least_s
        if solved.status == _INFEASIBLE:
            proven_s = below_s
        elif proven is not None and np.isfinite(proven):
            proven_s = min(below_s, max(proven_s, float(proven) * scale - float(base.ties.sum())))
        taken = None if solved.x is None else np.asarray(solved.x[: base.count])
        return IntegerFacts(taken=taken, proven_s=proven_s, limited=solved.status not in _ENDED)

    def solve_merged(self, go_on: Callable[[], None], *, nodes: int, gap: float) -> IntegerFacts | None:
        """Solve as in `solve_integer`, but with equal choices merged. Return None if few or no choices are equal.

        The resulting bound is also valid for the program before merging. The solution says how many members of each
        merged choice to take. The members that free bytes at the most positions above the limit are taken first. The
        resulting choices may violate rows.
        """
        base = self._base
        if not base.count:
            return None
        costs, upper, matrix, limits = self._program()
        integral, sizes = np.arange(len(costs)) < base.count, np.zeros(len(costs))
        sizes[: base.count] = base.sizes
        # Add a small cost, so that the solver prefers fewer choices among solutions of equal cost.
        tie = _TIE * base.dear_s / base.count
        program = LinearProgram(
            costs=costs + tie * integral, upper=upper, matrix=matrix, limits=limits, integral=integral
        )
        one = merge_equal_columns(program, len(self._places), sizes)
        kinds = one.of[: base.count]
        if kinds.max() >= _ALIKE * base.count:
            return None
        found = one.program
        solved: Any = solve_whole(
            go_on,
            found.costs / base.dear_s,
            constraints=[LinearConstraint(found.matrix, -np.inf, found.limits)],
            integrality=found.integral.astype(int),
            bounds=(0, found.upper),
            nodes=nodes,
            options={"mip_rel_gap": gap},
        )
        proven, limited = solved.mip_dual_bound, solved.status not in _ENDED
        proven_s = self._least_s
        if solved.status == _INFEASIBLE:
            proven_s = np.inf
        elif proven is not None and np.isfinite(proven):
            proven_s = max(proven_s, float(proven) * base.dear_s - tie * base.count)
        if solved.x is None:
            return IntegerFacts(taken=None, proven_s=proven_s, limited=limited)
        left = np.round(solved.x[: int(kinds.max()) + 1])
        taken, chosen = np.zeros(base.count), set[int]()
        covers = np.searchsorted(self.over, base.end) - np.searchsorted(self.over, base.start)
        for number in np.lexsort((base.start, -covers)).tolist():
            storage, kind = base.variables[number][0], kinds[number]
            if left[kind] > 0 and storage not in chosen:
                left[kind] -= 1
                taken[number] = 1.0
                chosen.add(storage)
        return IntegerFacts(taken=taken, proven_s=proven_s, limited=limited)


def _nest_groups(groups: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], list[int | tuple[int, ...]]]:
    """Return a partition of each group of numbers: smaller groups from `groups`, and single numbers."""
    of: dict[int, list[tuple[int, ...]]] = {}
    for group in sorted(groups, key=len):
        for number in group:
            of.setdefault(number, []).append(group)
    found: dict[tuple[int, ...], list[int | tuple[int, ...]]] = {}
    for group in groups:
        within: list[int | tuple[int, ...]] = []
        left, whole = dict.fromkeys(group), frozenset(group)
        while left:
            number = next(iter(left))
            smaller = (other for other in reversed(of[number]) if len(other) < len(group))
            inside = next((other for other in smaller if whole.issuperset(other)), None)
            within.append(number if inside is None else inside)
            for covered in (number,) if inside is None else inside:
                left.pop(covered, None)
        found[group] = within
    return found
