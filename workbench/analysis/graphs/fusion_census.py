"""The census of fusions: how many there are, and how many are identical and could be compiled once."""

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
        Fusions.
    unique : int
        Number of distinct structures: compilations if identical fusions are compiled once.
    largest : int
        Statements in the largest fusion.
    forward_unique, backward_unique : int
        Different structures in the forward and in the backward; one may occur in both.
    groups : tuple of tuple of int
        Positions of identical fusions, each group in order, groups by their first member.
    """

    count: int
    unique: int
    largest: int
    forward_unique: int
    backward_unique: int
    groups: tuple[tuple[int, ...], ...]

    def reordered(self, positions: Sequence[int]) -> Census:
        """The census of the same fusions in another order: for each place the position that it has here."""
        place = {position: at for at, position in enumerate(positions)}
        groups = (tuple(sorted(place[position] for position in group)) for group in self.groups)
        return dataclasses.replace(self, groups=tuple(sorted(groups)))


def census(keys: Sequence[Hashable], sides: Sequence[int], sizes: Sequence[int]) -> Census:
    """Count fusions by structure.

    Parameters
    ----------
    keys : sequence of hashable
        Per fusion, equal for identical ones.
    sides : sequence of int
        Per fusion, `workbench.core.graph.FORWARD` or `BACKWARD`.
    sizes : sequence of int
        Per fusion, how many statements it holds.

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
