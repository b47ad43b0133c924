"""History of choices: undo and redo."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

_STAMPS = itertools.count()
"""Sequence numbers for changes. They are unique in the process, so changes of several parts can be ordered."""


def new_stamp() -> int:
    """Return the sequence number of a new change. The states of several parts share it if one change made them."""
    return next(_STAMPS)


class History:
    """States of the choices, in the order in which they were made. One of the states is current.

    Parameters
    ----------
    choices : mapping of str to str
        The first state.
    group : list of History, optional
        The histories of all parts of a program; the new history is appended. A new state in one part drops the states
        of all parts that could be redone.

    Attributes
    ----------
    at : int
        Index of the current state.
    """

    def __init__(self, choices: Mapping[str, str], group: list[History] | None = None) -> None:
        self._group: list[History] = [] if group is None else group
        self._group.append(self)
        self._made = [dict(choices)]
        self._stamps = [new_stamp()]
        self._found: list[frozenset[str]] = [frozenset()]
        """For each state, the sites whose choices a search made."""
        self._kept: list[frozenset[str]] = [frozenset()]
        """For each state, the sites whose default option the user chose. They are not in the choices."""
        self.at = 0

    @property
    def choices(self) -> dict[str, str]:
        """The current choices."""
        return dict(self._made[self.at])

    @property
    def pinned(self) -> dict[str, str]:
        """The current choices that the user made. Choices that a search made are left out."""
        return {id: option for id, option in self.choices.items() if id not in self._found[self.at]}

    @property
    def by_hand(self) -> frozenset[str]:
        """The sites whose current option the user chose, also if it is the default."""
        return frozenset(self.pinned) | self._kept[self.at]

    def make(
        self,
        choices: Mapping[str, str],
        by_hand: Collection[str] = (),
        found: Collection[str] = (),
        *,
        stamp: int | None = None,
    ) -> None:
        """If `choices` differ from the current choices, append them as the new current state.

        States after the current one are dropped first. If `choices` equal the current choices, only their attribution
        to the user or to a search changes.

        Parameters
        ----------
        choices : mapping of str to str
            All choices.
        by_hand, found : collection of str
            Sites whose options are chosen now: by the user (`by_hand`), or by a search (`found`). A site that is not in
            `choices` gets its default option. All other choices stay attributed to the user or to a search, as before.
        stamp : int, optional
            Sequence number of the change, if other parts also have states from it; see `new_stamp`.
        """
        searched = (self._found[self.at] - set(by_hand) | set(found)) & choices.keys()
        kept = (self._kept[self.at] | set(by_hand)) - set(found) - choices.keys()
        if choices != self._made[self.at]:
            for history in self._group:
                history._drop_undone()
            self._made.append(dict(choices))
            self._stamps.append(new_stamp() if stamp is None else stamp)
            self._found.append(searched)
            self._kept.append(kept)
            self.at += 1
        else:
            self._found[self.at], self._kept[self.at] = searched, kept

    def release(self, sites: Collection[str]) -> None:
        """Attribute the current options of `sites` to a search, as if the user had not chosen them."""
        self.make(self.choices, found=sites)

    def _drop_undone(self) -> None:
        for states in (self._made, self._stamps, self._found, self._kept):
            del states[self.at + 1 :]

    def can_go(self, steps: int) -> bool:
        """Return whether `steps` steps through the history are possible; negative numbers are steps back."""
        return 0 <= self.at + steps < len(self._made)

    def go(self, steps: int) -> None:
        """Go `steps` steps through the history; negative numbers are steps back."""
        self.at += steps

    def stamp(self, steps: int) -> int:
        """Return the sequence number of the change that would be redone (`steps` is 1) or undone (`steps` is -1)."""
        return self._stamps[self.at + max(steps, 0)]
