"""The census of fusions: how many there are, how many are identical, and how many compilations suffice."""

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
        Number of distinct structures, which is the number of compilations if identical fusions are compiled once.
    largest : int
        Number of statements in the largest fusion.
    forward_unique, backward_unique : int
        Number of distinct structures in the forward and in the backward; one may occur in both.
    groups : tuple of tuple of int
        Positions of identical fusions; each group is in order, and groups are ordered by their first member.
    """

    count: int
    unique: int
    largest: int
    forward_unique: int
    backward_unique: int
    groups: tuple[tuple[int, ...], ...]

    def reorder(self, positions: Sequence[int]) -> Census:
        """Return the census of the same fusions in another order.

        Each place has the position of the fusion in this census.
        """
        place = {position: at for at, position in enumerate(positions)}
        groups = (tuple(sorted(place[position] for position in group)) for group in self.groups)
        return dataclasses.replace(self, groups=tuple(sorted(groups)))


def census(keys: Sequence[Hashable], sides: Sequence[int], sizes: Sequence[int]) -> Census:
    """Count fusions by structure.

    Parameters
    ----------
    keys : sequence of hashable
        Key per fusion, equal for identical fusions.
    sides : sequence of int
        Per fusion, `workbench.core.graph.FORWARD` or `BACKWARD`.
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
