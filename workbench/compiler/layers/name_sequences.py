"""Names and positions of the statements that `expand_trace` adds for missing layers.

Missing layers are layers that were left out when the trace was recorded. Their position in the trace is the gap.
Thunder's names of values, such as ``t12``, contain a number. Thunder counts these numbers up while it records a trace,
so each further layer increases all later numbers.
"""

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
    """Rule by which the numbers in names increase if missing layers are added.

    Attributes
    ----------
    steps : tuple of (int, int)
        Pairs of a number and a shift. For each missing layer, the shift is added to all numbers from this number on.
    """

    steps: tuple[tuple[int, int], ...]

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[int, int]]) -> Numbering:
        """Compute the rule from pairs of corresponding numbers in the layers before and after the gap."""
        phases: list[list[tuple[int, int]]] = []
        for one, other in sorted(pairs):
            first = phases[-1][0] if phases else (0, 0)
            # A phase is a group of pairs, such as the pairs of the backward. In a phase, all numbers of one layer
            # precede all numbers of the other layer, and all pairs have the same difference.
            if first[1] - first[0] == other - one and min(one, other) < max(first):
                phases[-1].append((one, other))
            else:
                phases.append([(one, other)])
        return cls(tuple((max(phase[0]), abs(phase[0][1] - phase[0][0])) for phase in phases))

    def shift(self, number: int, missing: int, extra: int = 0) -> int:
        """Return the number that replaces `number` if `missing` layers are added. The offset `extra` is added, too."""
        return number + extra + missing * sum(step for begun, step in self.steps if number >= begun)

    def total_shift(self, missing: int) -> int:
        """Return the increase of the largest number if `missing` layers are added."""
        return missing * sum(step for _, step in self.steps)

    def numbers_between(self, first: int, last: int, missing: int, extra: int = 0) -> range:
        """Return the numbers of a value in the missing layers, in the order of the layers.

        Parameters
        ----------
        first, last : int
            Numbers of the value in the layer before the gap and in the layer after the gap.
        missing : int
            Number of missing layers.
        extra : int, optional
            Offset of all numbers.
        """
        low, step = self.shift(min(first, last), missing, extra), abs(first - last)
        if first < last:
            return range(low + step, low + (missing + 1) * step, step)
        # The backward visits the layers from last to first, so its numbers decrease from layer to layer.
        return range(low + missing * step, low, -step)


def number_of(name: str) -> tuple[str, int]:
    """Return the prefix and the number of a name.

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
    """Return the positions at which the statements of missing layers are added.

    Parameters
    ----------
    here, there : array of int
        Rows of the statements of the layer before the gap, and of the corresponding statements after the gap.

    Returns
    -------
    dict
        A key is the row after which statements are added. The value is a pair. Its first item is True if the last
        missing layer comes first, as in the backward. Its second item has the rows of `here` to copy for each missing
        layer.

    Raises
    ------
    LayerMismatch
        If a sequence of statements of one layer and the corresponding sequence of the other layer are not adjacent.
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
            raise LayerMismatch("other statements lie between the statements of two layers")
    return found
