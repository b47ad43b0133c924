"""What planning finds out about statements, kept while they are there: a choice leaves most as they are."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain
from typing import Any

identity: Callable[[object], int] = object.__hash__
"""Tells objects apart while they are there, as `id` does.

That raises an audit event each time, and filelock, which PyTorch imports, listens to all of them with a function in
Python: a fifteenth of what a choice takes.
"""

PLANS = 16
"""What none of as many plans asked for is forgotten: a program that is chosen in all day does not grow by it."""


class PlanMemo:
    """Outcomes by what they are found from.

    Statements and values are told apart by what they are in memory, which costs nothing to ask: what is kept holds on
    to them, so that no other comes to stand there.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Any, Any]] = {}
        self._older: dict[Hashable, tuple[Any, Any]] = {}
        self._plans = 0

    def begin(self) -> None:
        """Another plan begins."""
        self._plans += 1
        if self._plans % PLANS == 0:
            self._older, self._known = self._known, {}

    def once(self, key: Hashable, alive: Any, make: Callable[[], Any]) -> Any:
        """What `make` gave when the key was first asked for.

        Parameters
        ----------
        key : hashable
            All that the outcome depends on; objects by their `id`.
        alive : object
            Holds those objects.
        make : callable
        """
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._older.pop(key) if key in self._older else (alive, make())
        return found[1]


def ids(objects: Any) -> tuple[int, ...]:
    """What tells objects apart, as part of a key."""
    return tuple(map(identity, objects))


class Structure:
    """What is found out about a statement by what it is made of, whatever its values are called."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gave when the key was first asked for."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def known(self, key: Hashable) -> Any:
        """The same, where it was asked for; else None."""
        return self._known.get(key)


STRUCTURE = "_workbench_structure"
"""Where a statement has its structure; a copy of it has the same unless what is inside changes: see `quick_passes`.

Its tags are no part of it: a statement is tagged after it is copied.
"""


SHARED = "_workbench_shared"
"""Where a statement has what `shared_of` gives."""

READ, MADE = "_workbench_read", "_workbench_made"
"""Where it has the names of the values that it is given, and that it makes."""

CROSSING = "_workbench_crossing"
"""Attribute of a fusion: the result of `compiler.fusion.fusion_boundaries`, with the statements inside of it then."""

CLEAN = "_workbench_clean"
"""Where it has the statements inside of it, as they were when there was nothing left to remove among them."""

NAMES = "_workbench_names"
"""Where it has all names in it, in order, with the statements inside of it as they were."""


def shared_of(bsym: Any) -> dict[Hashable, Any]:
    """What is found of a statement whatever it is tagged with: the same for copies that differ in nothing else."""
    found: dict[Hashable, Any] | None = bsym.__dict__.get(SHARED)
    if found is None:
        found = bsym.__dict__[SHARED] = {}
    return found


def read_names(bsym: Any) -> tuple[str, ...]:
    """Names of the values that a statement is given, in order."""
    found: tuple[str, ...] | None = bsym.__dict__.get(READ)
    if found is None:
        found = bsym.__dict__[READ] = tuple([proxy.name for proxy in bsym.flat_proxy_args])
    return found


def made_names(bsym: Any) -> tuple[str, ...]:
    """Names of the values that a statement gives, in order: what it is given and hands on is among them."""
    found: tuple[str, ...] | None = bsym.__dict__.get(MADE)
    if found is None:
        found = bsym.__dict__[MADE] = tuple([proxy.name for proxy in bsym.flat_proxy_outs])
    return found


def names_in(bsym: Any) -> tuple[str, ...]:
    """All names in a statement, those inside of it first, each once."""
    known: tuple[Any, tuple[str, ...]] | None = bsym.__dict__.get(NAMES)
    if known is not None and known[0] is bsym.subsymbols:
        return known[1]
    inside = [names_in(sub) for sub in bsym.subsymbols]
    once = tuple(dict.fromkeys(chain(*inside, read_names(bsym), made_names(bsym))))
    bsym.__dict__[NAMES] = (bsym.subsymbols, once)
    return once


def structure_of(bsym: Any) -> Structure:
    """The structure of a statement, the same object for copies, and for fusions that differ in nothing but names."""
    found: Structure | None = bsym.__dict__.get(STRUCTURE)
    if found is None:
        found = bsym.__dict__[STRUCTURE] = Structure()
    return found
