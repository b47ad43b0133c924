"""Names and positions of the statements that `expand_trace` adds for missing layers.

Missing layers are layers that were left out when the trace was recorded. Their position in the trace is the gap.
Thunder's names of values, such as ``t12``, contain a number. Thunder counts these numbers up while it records a trace,
so each further layer increases all later numbers.
"""

from __future__ import annotations

import dataclasses
import itertools
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
        Pairs of a number and a shift. The shift is added to all numbers from this number on.
    """

    steps: tuple[tuple[int, int], ...]

    @classmethod
    def from_pairs(
        cls, pairs: Iterable[tuple[int, int]], missing: int, further: Iterable[tuple[int, int]] = ()
    ) -> Numbering:
        """Compute the rule for `missing` layers.

        Parameters
        ----------
        pairs : iterable of (int, int)
            Pairs of corresponding numbers in the layers before and after the gap.
        missing : int
        further : iterable of (int, int), optional
            Further steps.
        """
        phases: list[list[tuple[int, int]]] = []
        for one, other in sorted(pairs):
            first = phases[-1][0] if phases else (0, 0)
            # A phase is a group of pairs, such as the pairs of the backward. In a phase, all numbers of one layer
            # precede all numbers of the other layer, and all pairs have the same difference.
            if first[1] - first[0] == other - one and min(one, other) < max(first):
                phases[-1].append((one, other))
            else:
                phases.append([(one, other)])
        steps = ((max(phase[0]), missing * abs(phase[0][1] - phase[0][0])) for phase in phases)
        return cls((*steps, *further))

    def shift(self, number: int, extra: int = 0) -> int:
        """Return the number that replaces `number` if the layers are added. The offset `extra` is added, too."""
        return number + extra + sum(step for begun, step in self.steps if number >= begun)

    @property
    def total_shift(self) -> int:
        """The increase of the largest number if the layers are added."""
        return sum(step for _, step in self.steps)

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
        low, step = self.shift(min(first, last), extra), abs(first - last)
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


def argument_phases[T](items: Iterable[tuple[int | None, T]]) -> list[dict[int, list[T]]]:
    """Group items that belong to arguments of the program into phases.

    In a phase, the items of one argument follow each other, and the arguments are in ascending or in descending order.

    Parameters
    ----------
    items : iterable of (int or None, object)
        Items, each with the index of its argument. None for an item that belongs to no argument; it ends a phase.

    Returns
    -------
    list of dict
        For each phase, a map from the arguments to their items, in order.
    """
    phases: list[dict[int, list[T]]] = []
    phase: dict[int, list[T]] = {}
    for argument, item in items:
        last = list(itertools.islice(reversed(phase), 2))
        turns = len(last) == 2 and argument is not None and (last[0] > last[1]) != (argument > last[0])
        if argument is None or (last and argument != last[0] and (argument in phase or turns)):
            phase = {}
        if argument is not None:
            if not phase:
                phases.append(phase)
            phase.setdefault(argument, []).append(item)
    return phases


def insertions(here: Rows, there: Rows) -> tuple[dict[int, tuple[bool, Rows]], dict[int, int]]:
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
    dict
        Windows, in which late statements of one layer lie between statements of the next layer. A key is the first row
        of the window that contains statements of `there` and late statements of `here`; the value is the length. The
        window before it has the same statements of `here` and of the layer before. A window for each missing layer is
        added between the two windows.

    Raises
    ------
    LayerMismatch
        If a sequence of statements of one layer and the corresponding sequence of the other layer are not adjacent.
    """
    found: dict[int, tuple[bool, Rows]] = {}
    windows: dict[int, int] = {}
    if not len(here):
        return found, windows
    mixed: list[tuple[Rows, Rows]] = []
    cuts = np.flatnonzero((np.diff(here) != 1) | (np.diff(there) != 1)) + 1
    for one, other in zip(np.split(here, cuts), np.split(there, cuts), strict=True):
        if one[-1] + 1 == other[0]:
            found[int(one[-1])] = False, one
        elif other[-1] + 1 == one[0]:
            found[int(other[-1])] = True, one
        else:
            mixed.append((one, other))
    while mixed:
        begun, length, rows = int(mixed[0][1][0]), int(mixed[0][1][0] - mixed[0][0][0]), set[int]()
        while mixed and len(rows) < 2 * length and mixed[0][1][0] - mixed[0][0][0] == length:
            rows.update(*(each.tolist() for each in mixed.pop(0)))
        if len(rows) != 2 * length or not rows.issuperset(range(begun, begun + length)):
            raise LayerMismatch("other statements lie between the statements of two layers")
        windows[begun] = length
    return found, windows
