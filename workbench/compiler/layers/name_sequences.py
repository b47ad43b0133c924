"""Numbering of names from layer to layer, and positions of the statements of additional layers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from workbench.compiler.layers.partition import LayerMismatch

type Rows = NDArray[np.intp]

_NUMBERED = re.compile(r"(.*?)(\d+)")


@dataclasses.dataclass(frozen=True)
class Numbering:
    """Numbering of names after a gap of layers.

    Attributes
    ----------
    steps : tuple of (int, int)
        Pairs of the first number that is shifted and the shift for each missing layer.
    """

    steps: tuple[tuple[int, int], ...]

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[int, int]]) -> Numbering:
        """Compute the numbering from pairs of corresponding numbers in two layers."""
        phases: list[list[tuple[int, int]]] = []
        for one, other in sorted(pairs):
            first = phases[-1][0] if phases else (0, 0)
            # All numbers of one layer precede all numbers of the other layer.
            if first[1] - first[0] == other - one and min(one, other) < max(first):
                phases[-1].append((one, other))
            else:
                phases.append([(one, other)])
        return cls(tuple((max(phase[0]), abs(phase[0][1] - phase[0][0])) for phase in phases))

    def shift(self, number: int, gap: int, extra: int = 0) -> int:
        """Return what a number becomes if `gap` layers are added, increased by `extra`."""
        return number + extra + gap * sum(step for begun, step in self.steps if number >= begun)

    def total_shift(self, gap: int) -> int:
        """Return the shift of the last number."""
        return gap * sum(step for _, step in self.steps)

    def numbers_between(self, first: int, last: int, gap: int, extra: int = 0) -> range:
        """Return a value's number in each missing layer, if its numbers around the gap are `first` and `last`."""
        low, step = self.shift(min(first, last), gap, extra), abs(first - last)
        # The backward visits the layers from last to first.
        return range(low + step, low + (gap + 1) * step, step) if first < last else range(low + gap * step, low, -step)


def number_of(name: str) -> tuple[str, int]:
    """Return a name's prefix and its number.

    Raises
    ------
    LayerMismatch
        If the name has no number.
    """
    found = _NUMBERED.fullmatch(name)
    if found is None:
        raise LayerMismatch(f"{name} has no number")
    return found[1], int(found[2])


def insertions(here: Rows, there: Rows) -> dict[int, tuple[bool, Rows]]:
    """Map a row to whether copies of the last layer come first, and to the rows to copy after the row.

    Raises
    ------
    LayerMismatch
        If the rows of the layers are not consecutive.
    """
    found: dict[int, tuple[bool, Rows]] = {}
    if not len(here):
        return found
    cuts = np.flatnonzero((np.diff(here) != 1) | (np.diff(there) != 1)) + 1
    for one, other in zip(np.split(here, cuts), np.split(there, cuts), strict=True):
        if one[-1] + 1 == other[0]:
            found[int(one[-1])] = False, one
        elif other[-1] + 1 == one[0]:
            found[int(other[-1])] = True, one
        else:
            raise LayerMismatch("statements of layers are mixed with those of others")
    return found
