"""Names and numbers of one layer after the other: what stands for those of a layer in further ones."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workbench.compiler.layers import OtherwiseError

type Rows = NDArray[np.intp]

_NUMBERED = re.compile(r"(.*?)(\d+)")


@dataclasses.dataclass(frozen=True)
class Chain:
    """What stands for each name of a layer in further layers: those that are left out, and the one after them.

    Attributes
    ----------
    here : int
        The layer before those that are left out, of those that stay; the next is the one after them.
    made_in : mapping of str to int
        The layer of each name; in none if it is not there, or below 0.
    stay : mapping of str to str
        What each is called in the whole program.
    copies : sequence of mapping of str to str
        What stands for those of `here` in each layer that is left out.
    pairs, before, after : mapping of str to str
        What stands for those of `here` in the layer after the gap, for those of the one before `here` in it, and for
        those of the layer after the gap in the next; of the last two as far as it is known.
    """

    here: int
    made_in: Mapping[str, int]
    stay: Mapping[str, str]
    copies: Sequence[Mapping[str, str]]
    pairs: Mapping[str, str]
    before: Mapping[str, str]
    after: Mapping[str, str]

    def named(self, name: str, layer: int) -> list[str | None]:
        """What is called so where a layer reads it; of `here` that and all further layers have, the last if known.

        Raises
        ------
        OtherwiseError
            If that cannot be told.
        """
        made_in, own = self.made_in.get(name, -1), self.stay[name]
        count = len(self.copies) + 2 if layer == self.here else 1
        if count > 1 and made_in < 0 and self.made_in.get(of_next := self.before.get(name, ""), -1) == self.here - 1:
            # Of the layer two before, which may be in no run: the next tells of the one before, as that one does.
            return [own, *self.named(of_next, layer)[:-1]]
        # On one side of the gap, and of what is in no layer, it is what it is.
        if made_in < 0 or (layer != self.here and (layer <= self.here) == (made_in <= self.here)):
            return [own] * count
        if not self.here - 1 <= layer <= self.here + 2:
            return [own]
        far = made_in - layer
        first = layer - self.here if layer <= self.here else len(self.copies) + layer - self.here
        try:
            as_here = self._as_here[name]
        except KeyError as error:
            raise OtherwiseError from error
        return [own if first + by + far < 0 else self._on(as_here, first + by + far) for by in range(count)]

    def of_next(self, name: str) -> str:
        """What stands for a name in the next of the layers that stay.

        Raises
        ------
        OtherwiseError
            If that is not known.
        """
        layer = self.made_in.get(name, -1)
        if layer < 0:
            return name
        known_of = {self.here - 1: self.before, self.here: self.pairs, self.here + 1: self.after}
        found = known_of.get(layer, {}).get(name)
        if found is None:
            raise OtherwiseError
        return found

    @cached_property
    def _as_here(self) -> Mapping[str, str]:
        """What stands in `here` for each name of the layers that stay."""
        back = {y: x for x, y in self.pairs.items()}
        found = {x: x for x in self.pairs} | back
        found |= {x: y for x, y in self.before.items() if y in self.pairs}
        return found | {y: back[x] for x, y in self.after.items() if x in back}

    def _on(self, name: str, by: int) -> str | None:
        """What stands for a name of `here` so many layers on; None where that is not known."""
        if by == 0:
            return self.stay[name]
        if by <= len(self.copies):
            return self.copies[by - 1].get(name)
        of_next: str | None = self.pairs[name]
        if by == len(self.copies) + 2:
            of_next = self.after.get(self.pairs[name])
        elif by > len(self.copies) + 2:
            of_next = None
        return None if of_next is None else self.stay.get(of_next)


@dataclasses.dataclass(frozen=True)
class Numbering:
    """How numbers go on where layers are left out.

    Attributes
    ----------
    steps : tuple of (int, int)
        From which number on names are moved, and how far by each layer.
    """

    steps: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Numbering:
        """By the numbers that two layers took, one of each."""
        phases: list[list[tuple[int, int]]] = []
        for one, other in sorted(pairs):
            first = phases[-1][0] if phases else (0, 0)
            # All that one layer made is numbered before all that the other did.
            if first[1] - first[0] == other - one and min(one, other) < max(first):
                phases[-1].append((one, other))
            else:
                phases.append([(one, other)])
        return cls(tuple((max(phase[0]), abs(phase[0][1] - phase[0][0])) for phase in phases))

    def moved(self, number: int, gap: int, by: int = 0) -> int:
        """A number where so many layers are left out, and all are so much higher."""
        return number + by + gap * sum(step for begun, step in self.steps if number >= begun)

    def moved_in_all(self, gap: int) -> int:
        """How much higher the last is."""
        return gap * sum(step for _, step in self.steps)

    def between(self, one: int, other: int, gap: int, by: int = 0) -> range:
        """The numbers of the layers between two, from the one to the other."""
        low, step = self.moved(min(one, other), gap, by), abs(one - other)
        # The backward goes through the layers from the last to the first.
        return range(low + step, low + (gap + 1) * step, step) if one < other else range(low + gap * step, low, -step)


def number_of(name: str) -> tuple[str, int]:
    """A name's number, and what stands before it.

    Raises
    ------
    OtherwiseError
        If it has none.
    """
    found = _NUMBERED.fullmatch(name)
    if found is None:
        raise OtherwiseError
    return found[1], int(found[2])


def known(names: Sequence[str | None]) -> list[str]:
    """Names, all of which are known.

    Raises
    ------
    OtherwiseError
        If one is not.
    """
    found = [name for name in names if name is not None]
    if len(found) != len(names):
        raise OtherwiseError
    return found


def inserted(here: Rows, there: Rows) -> dict[int, tuple[bool, Rows]]:
    """After which row copies of which others go, and whether those of the last layer go first.

    Raises
    ------
    OtherwiseError
        If rows of the layers do not follow each other.
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
            raise OtherwiseError
    return found
