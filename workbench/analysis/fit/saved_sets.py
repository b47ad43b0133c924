"""Choose which values of a forward to save, and which to recompute, for the least time at each number of saved bytes.

A value that the backward needs is saved, or recomputed from values that are saved or recomputed themselves. A saved
byte has a price in seconds. For each price, a linear program finds the set for which the recompute time plus the price
of the saved bytes is least. All vertices of this linear program are integers. A higher price gives a set with fewer
bytes and more recompute time.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

_EARLIER = 0.1
"""A byte of the first value costs more than a byte of the last value, by this share.

Therefore, among identical layers, values of the first layers are recomputed rather than values of the last: the values
of the first layers would be saved for the longest time.
"""
_SOLVED = 96
"""Largest number of linear programs that are solved for one list of sets."""
_LOWEST_PRICE = 1e-5
"""Lowest price of all bytes together, as a multiple of the time of the whole forward; 1 / this is the highest price."""


@dataclasses.dataclass(frozen=True)
class ForwardValue:
    """A value of the forward, with its own storage.

    Attributes
    ----------
    name : str
    bytes : int
        Bytes of the storage. Zero if saving the value needs no more memory.
    seconds : float
        Time to compute the value from its inputs.
    inputs : tuple of str
        Names of the values that it is computed from. Values that are always in memory are left out.
    needed : bool
        Whether the backward reads it.
    can_save, can_recompute : bool
    """

    name: str
    bytes: int
    seconds: float
    inputs: tuple[str, ...]
    needed: bool
    can_save: bool = True
    can_recompute: bool = True


@dataclasses.dataclass(frozen=True)
class SavedSet:
    """Values that are saved, and values that are recomputed from them.

    Attributes
    ----------
    saved, recomputed : frozenset of str
    bytes : int
        Bytes of the saved values.
    seconds : float
        Time of the recomputation in a step.
    """

    saved: frozenset[str]
    recomputed: frozenset[str]
    bytes: int
    seconds: float


def from_saved(values: Sequence[ForwardValue], saved: Collection[str]) -> SavedSet:
    """Return the values of `saved` that the backward reads, and the values that it recomputes from them."""
    of = {value.name: value for value in values}
    kept, again = set[str](), set[str]()
    todo = [value.name for value in values if value.needed]
    while todo:
        name = todo.pop()
        if name in kept or name in again or name not in of:
            continue
        if name in saved:
            kept.add(name)
        else:
            again.add(name)
            todo += of[name].inputs
    return SavedSet(
        frozenset(kept),
        frozenset(again),
        sum(of[name].bytes for name in kept),
        sum(of[name].seconds for name in again),
    )


def cheapest_sets(
    values: Sequence[ForwardValue], below_bytes: int, go_on: Callable[[], None] = lambda: None
) -> list[SavedSet]:
    """Return sets with fewer saved bytes than `below_bytes`, sorted by rising recompute time and falling bytes.

    Each set has the least recompute time for its bytes, where a byte of an early value counts slightly more.
    """
    program = _Program(values)
    tie = iter(range(10**6))
    ends = program.solve(_LOWEST_PRICE), program.solve(1 / _LOWEST_PRICE)
    found = {one.saved.saved: one for one in ends}
    gaps: list[tuple[float, int, _Priced, _Priced]] = []

    def push(dear: _Priced, cheap: _Priced) -> None:
        if dear.weight > cheap.weight and cheap.saved.bytes < below_bytes:
            heapq.heappush(gaps, (min(below_bytes, cheap.saved.bytes) - dear.saved.bytes, next(tie), dear, cheap))

    push(*ends)
    for _ in range(_SOLVED):
        if not gaps:
            break
        go_on()
        _, _, left, right = heapq.heappop(gaps)
        price = (right.saved.seconds - left.saved.seconds) / (left.weight - right.weight) / program.unit_s
        between = program.solve(max(_LOWEST_PRICE, price))
        if between.saved.saved in found:
            continue
        found[between.saved.saved] = between
        push(left, between)
        push(between, right)
    below = [one.saved for one in found.values() if one.saved.bytes < below_bytes]
    sets: list[SavedSet] = []
    for one in sorted(below, key=lambda one: (one.seconds, one.bytes)):
        if not sets or one.bytes < sets[-1].bytes:
            sets.append(one)
    return sets


@dataclasses.dataclass(frozen=True)
class _Priced:
    saved: SavedSet
    weight: float


class _Program:
    """The linear program. Each value has two variables: whether the backward reads it, and whether it is recomputed."""

    def __init__(self, values: Sequence[ForwardValue]) -> None:
        self._values, count = values, len(values)
        at = {value.name: index for index, value in enumerate(values)}
        self._seconds = np.array([value.seconds for value in values])
        size = np.array([value.bytes for value in values], dtype=float)
        self._weights = size * (1 + _EARLIER * np.linspace(1, 0, count)) / max(1.0, size.sum())
        self.unit_s = float(self._seconds.sum()) or 1.0
        upper, lower = np.ones(2 * count), np.zeros(2 * count)
        rows: list[tuple[int, int]] = []
        for index, value in enumerate(values):
            rows += [(count + index, index), *((count + index, at[name]) for name in value.inputs if name in at)]
            if value.needed:
                lower[index] = 1
            if not value.can_recompute:
                upper[count + index] = 0
            if not value.can_save:
                rows.append((index, count + index))
        # Each row says that the first variable is at most the second.
        number = np.arange(len(rows))
        first, second = np.array(rows).T
        ones = np.ones(len(rows))
        self._matrix = coo_array(
            (np.concatenate([ones, -ones]), (np.concatenate([number, number]), np.concatenate([first, second]))),
            shape=(len(rows), 2 * count),
        ).tocsr()
        self._bounds = np.column_stack([lower, upper])

    def solve(self, price: float) -> _Priced:
        """Return the best set if all bytes together cost `price` times the time of the whole forward."""
        count, paid = len(self._values), price * self._weights
        again = self._seconds / self.unit_s
        costs = np.concatenate([paid, again - paid])
        solved: Any = linprog(
            costs / max(1.0, price), A_ub=self._matrix, b_ub=np.zeros(self._matrix.shape[0]), bounds=self._bounds
        )
        is_saved = solved.x[:count] - solved.x[count:] > 0.5
        saved = {value.name for value, kept in zip(self._values, is_saved, strict=True) if kept}
        return _Priced(from_saved(self._values, saved), float(self._weights[is_saved].sum()))
