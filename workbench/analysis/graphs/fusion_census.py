"""Count fusions and their different structures. Fusions of equal structure can share one compilation."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

from workbench.core.graph import BACKWARD, FORWARD


@dataclasses.dataclass(frozen=True)
class Census:
    """Fusions counted by structure.

    Attributes
    ----------
    count : int
        Number of fusions.
    unique : int
        Number of different structures. This is the number of compilations if equal fusions are compiled once.
    largest : int
        Number of statements in the largest fusion.
    forward_unique, backward_unique : int
        Number of different structures in the forward, and in the backward. If a structure is in forward and backward,
        both numbers count it.
    groups : tuple of tuple of int
        For each structure, the positions of its fusions in the arguments of `census`. Groups are sorted by their first
        position.
    """

    count: int
    unique: int
    largest: int
    forward_unique: int
    backward_unique: int
    groups: tuple[tuple[int, ...], ...]

    def reorder(self, positions: Sequence[int]) -> Census:
        """Return the census for a new order of the fusions. ``positions[i]`` is the old position of new fusion `i`."""
        place = {position: at for at, position in enumerate(positions)}
        groups = (tuple(sorted(place[position] for position in group)) for group in self.groups)
        return dataclasses.replace(self, groups=tuple(sorted(groups)))


def census(keys: Sequence[Hashable], sides: Sequence[int], sizes: Sequence[int]) -> Census:
    """Count fusions by structure.

    Parameters
    ----------
    keys : sequence of hashable
        One key for each fusion. Fusions with equal keys have equal structure.
    sides : sequence of int
        For each fusion, `workbench.core.graph.FORWARD` or `BACKWARD`.
    sizes : sequence of int
        Number of statements in each fusion.

    Returns
    -------
    Census
    """
    groups: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    return Census(
        count=len(keys),
        unique=len(groups),
        largest=max(map(int, sizes), default=0),
        forward_unique=len({key for key, side in zip(keys, sides, strict=True) if side == FORWARD}),
        backward_unique=len({key for key, side in zip(keys, sides, strict=True) if side == BACKWARD}),
        groups=tuple(map(tuple, groups.values())),
    )
