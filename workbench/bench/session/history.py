"""History of choices: undo and redo."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

_STAMPS = itertools.count()
"""Sequence numbers of changes, across all programs."""


class History:
    """Choices in the order in which they were made; the last, or one gone back to, are in force.

    Parameters
    ----------
    choices : mapping of str to str
        To begin with.

    Attributes
    ----------
    at : int
        Which of them are in force.
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
        """Choices in force that the user made."""
        return {id: option for id, option in self.choices.items() if (id, option) not in self._found}

    def found(self, choices: Mapping[str, str]) -> None:
        """Take note that it was a search which made these."""
        self._found |= set(choices.items())

    def pin(self, ids: Iterable[str]) -> None:
        """Record that the user makes the choices of these sites."""
        of = set(ids)
        self._found = {choice for choice in self._found if choice[0] not in of}

    def make(self, choices: Mapping[str, str]) -> None:
        """Put choices in force, if they differ; this clears the redo history."""
        if choices != self._made[self.at]:
            del self._made[self.at + 1 :], self._stamps[self.at + 1 :]
            self._made.append(dict(choices))
            self._stamps.append(next(_STAMPS))
            self.at += 1

    def can_go(self, by: int) -> bool:
        """Return whether there are so many steps forward, or backward where negative."""
        return 0 <= self.at + by < len(self._made)

    def go(self, by: int) -> None:
        """Go so many steps forward, or backward where negative."""
        self.at += by

    def stamp(self, by: int) -> int:
        """When the change was made that a step forward makes again, or, where negative, one backward takes back."""
        return self._stamps[self.at + max(by, 0)]
