"""History of choices: undo and redo."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

_STAMPS = itertools.count()
"""Sequence numbers of changes, across all programs."""


class History:
    """Choices in the order in which they were made; the last, or the one returned to, is current.

    Parameters
    ----------
    choices : mapping of str to str
        To begin with.

    Attributes
    ----------
    at : int
        Index of the current ones.
    """

    def __init__(self, choices: Mapping[str, str]) -> None:
        self._made = [dict(choices)]
        self._stamps = [next(_STAMPS)]
        self._found: set[tuple[str, str]] = set()
        self.at = 0

    @property
    def choices(self) -> dict[str, str]:
        """Choices in force."""
        return dict(self._made[self.at])

    @property
    def pinned(self) -> dict[str, str]:
        """Current choices that the user made."""
        return {id: option for id, option in self.choices.items() if (id, option) not in self._found}

    def mark_found(self, choices: Mapping[str, str]) -> None:
        """Record that a search made these choices, and not the user."""
        self._found |= set(choices.items())

    def pin(self, ids: Iterable[str]) -> None:
        """Record that the user made the choices for these sites."""
        of = set(ids)
        self._found = {choice for choice in self._found if choice[0] not in of}

    def make(self, choices: Mapping[str, str]) -> None:
        """Make choices current, if they differ; this clears the redo history."""
        if choices != self._made[self.at]:
            del self._made[self.at + 1 :], self._stamps[self.at + 1 :]
            self._made.append(dict(choices))
            self._stamps.append(next(_STAMPS))
            self.at += 1

    def can_go(self, steps: int) -> bool:
        """Return whether this number of steps is possible; negative numbers are steps back."""
        return 0 <= self.at + steps < len(self._made)

    def go(self, steps: int) -> None:
        """Go this number of steps; negative numbers are steps back."""
        self.at += steps

    def stamp(self, steps: int) -> int:
        """Return when the change was made that a step forward would redo or, if negative, a step back would undo."""
        return self._stamps[self.at + max(steps, 0)]
