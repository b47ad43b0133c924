"""Memo tables for facts about statements.

Successive plans share the tables, because a choice leaves most statements unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain
from typing import Any

identity: Callable[[object], int] = object.__hash__
"""Like `id`, return a number that no other living object has.

Each call of `id` raises an audit event. filelock, which PyTorch imports, handles every audit event in Python. With
`id`, these events took a fifteenth of the time of a choice.
"""

PLANS = 16
"""Plans per generation. Outcomes that no plan of a generation uses are dropped, so that memory does not grow in long
sessions.
"""


class PlanMemo:
    """Cache of outcomes. The key of an outcome consists of the objects that the outcome depends on.

    Keys identify statements and values by address, which is cheap. Each entry keeps its objects alive, so that no other
    object can get the same address.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Any, Any]] = {}
        self._older: dict[Hashable, tuple[Any, Any]] = {}
        self._plans = 0

    def begin(self) -> None:
        """Begin the next plan."""
        self._plans += 1
        if self._plans % PLANS == 0:
            self._older, self._known = self._known, {}

    def get_or_make(self, key: Hashable, alive: Any, make: Callable[[], Any]) -> Any:
        """Return the cached outcome for `key`; for a new key, call `make` and cache the result.

        Parameters
        ----------
        key : hashable
            The `identity` of each object that the outcome depends on.
        alive : object
            Any object that refers to the objects in `key`. The cache holds `alive`, so that they stay alive.
        make : callable
            Computes the outcome.
        """
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._older.pop(key) if key in self._older else (alive, make())
        return found[1]


def ids(objects: Any) -> tuple[int, ...]:
    """Return the `identity` of each object, for use in a key."""
    return tuple(map(identity, objects))


class Structure:
    """Cached facts about a statement that depend on its structure and not on the names of its values."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def get_or_make(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the cached outcome for `key`; for a new key, call `make` and cache the result."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def get(self, key: Hashable) -> Any:
        """Return the cached outcome for a key; None if there is none yet."""
        return self._known.get(key)


STRUCTURE = "_workbench_structure"
"""Attribute of a statement: its `Structure`. A copy of the statement shares the structure unless the copy's subsymbols
change; see `quick_passes`.

The structure contains no facts about tags, because a statement is tagged after it is copied.
"""


SHARED = "_workbench_shared"
"""Attribute of a statement: the result of `shared_of`."""

READ, MADE = "_workbench_read", "_workbench_made"
"""Attributes of a statement: the names of the values that it reads, and of the values that it makes."""

CROSSING = "_workbench_crossing"
"""Attribute of a fusion: the result of `compiler.fusion.fusion_boundaries`, with the subsymbols from which it was
computed.
"""

CLEAN = "_workbench_clean"
"""Attribute of a statement: a list of its subsymbols in which dead code elimination found nothing to remove."""

NAMES = "_workbench_names"
"""Attribute of a statement: the result of `names_in`, with the subsymbols from which it was computed."""


def shared_of(bsym: Any) -> dict[Hashable, Any]:
    """Return a statement's cached facts that do not depend on tags; copies that differ only in tags share the facts."""
    found: dict[Hashable, Any] | None = bsym.__dict__.get(SHARED)
    if found is None:
        found = bsym.__dict__[SHARED] = {}
    return found


def read_names(bsym: Any) -> tuple[str, ...]:
    """Return the names of a statement's inputs, in order."""
    found: tuple[str, ...] | None = bsym.__dict__.get(READ)
    if found is None:
        found = bsym.__dict__[READ] = tuple([proxy.name for proxy in bsym.flat_proxy_args])
    return found


def made_names(bsym: Any) -> tuple[str, ...]:
    """Return the names of a statement's outputs in order, including returned inputs."""
    found: tuple[str, ...] | None = bsym.__dict__.get(MADE)
    if found is None:
        found = bsym.__dict__[MADE] = tuple([proxy.name for proxy in bsym.flat_proxy_outs])
    return found


def names_in(bsym: Any) -> tuple[str, ...]:
    """Return all names in a statement, each once; the names in its subsymbols come first."""
    known: tuple[Any, tuple[str, ...]] | None = bsym.__dict__.get(NAMES)
    if known is not None and known[0] is bsym.subsymbols:
        return known[1]
    inside = [names_in(sub) for sub in bsym.subsymbols]
    once = tuple(dict.fromkeys(chain(*inside, read_names(bsym), made_names(bsym))))
    bsym.__dict__[NAMES] = (bsym.subsymbols, once)
    return once


def structure_of(bsym: Any) -> Structure:
    """Return the `Structure` of a statement. Copies share one `Structure`; so do fusions that differ only in names."""
    found: Structure | None = bsym.__dict__.get(STRUCTURE)
    if found is None:
        found = bsym.__dict__[STRUCTURE] = Structure()
    return found
