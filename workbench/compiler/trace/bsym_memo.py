"""Caches of facts about statements.

Successive plans share the caches, because a choice leaves most statements unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import chain, count
from typing import Any

identity: Callable[[object], int] = object.__hash__
"""Return a number that no other living object has, like `id`.

Each call of `id` raises an audit event, and filelock, which PyTorch imports, handles every audit event in Python. With
`id`, these events took 7 % of the time to plan a choice.
"""

PLANS = 16
"""Number of plans in a generation. At the end of a generation, `PlanMemo` drops each result that no plan of the
generation has used, so that memory does not grow in long sessions.
"""


class PlanMemo:
    """Cache of results. A key identifies the objects on which a result depends.

    Keys identify statements and values by address, which is cheap. Each entry keeps its objects alive, so that no other
    object can get the same address.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Any, Any]] = {}
        self._older: dict[Hashable, tuple[Any, Any]] = {}
        self._plans = 0
        self.numbers = count()
        """Numbers that are given once."""

    def begin(self) -> None:
        """Begin the next plan."""
        self._plans += 1
        if self._plans % PLANS == 0:
            self._older, self._known = self._known, {}

    def get_or_make(self, key: Hashable, alive: Any, make: Callable[[], Any]) -> Any:
        """Return the cached result for `key`. For a new key, call `make` and cache its result.

        Parameters
        ----------
        key : hashable
            The `identity` of each object on which the result depends.
        alive : object
            Any object that refers to the objects in `key`. The cache holds `alive`, so that these objects stay alive.
        make : callable
            Computes the result.
        """
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._older.pop(key) if key in self._older else (alive, make())
        return found[1]


def ids(objects: Any) -> tuple[int, ...]:
    """Return the `identity` of each object, for use in a key."""
    return tuple(map(identity, objects))


class Structure:
    """Cache of facts about a statement. The facts depend on the statement's structure, and not on names of values."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}

    def get_or_make(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the cached fact for `key`. For a new key, call `make` and cache its result."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def get(self, key: Hashable) -> Any:
        """Return the cached fact for a key, or None if it is not cached yet."""
        return self._known.get(key)


STRUCTURE = "_workbench_structure"
"""Attribute in which a statement stores its `Structure`. A copy that differs only in tags, source location or names of
values shares the structure; see `fastpath.passes`.

The structure contains no facts about tags, because a statement is tagged after it is copied.
"""


SHARED = "_workbench_shared"
"""Attribute in which a statement stores the result of `shared_of`."""

READ, MADE = "_workbench_read", "_workbench_made"
"""Attributes in which a statement stores the results of `read_names` and `made_names`."""

CROSSING = "_workbench_crossing"
"""Attribute in which a fusion stores a pair: its subsymbols, and the index of these subsymbols that
`fusion.fusion_crossings` computes.
"""

CLEAN = "_workbench_clean"
"""Attribute in which a statement stores its list of subsymbols after dead code elimination. If the statement still has
this list, dead code elimination does not search the list again.
"""

NAMES = "_workbench_names"
"""Attribute in which a statement stores a pair: its subsymbols, and the result of `names_in` for these subsymbols."""


def shared_of(bsym: Any) -> dict[Hashable, Any]:
    """Return a statement's cache of facts that do not depend on tags. Copies with other tags share this cache."""
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
    """Return the names of a statement's outputs, in order. A returned input is included."""
    found: tuple[str, ...] | None = bsym.__dict__.get(MADE)
    if found is None:
        found = bsym.__dict__[MADE] = tuple([proxy.name for proxy in bsym.flat_proxy_outs])
    return found


def names_in(bsym: Any) -> tuple[str, ...]:
    """Return all names in a statement, each once. The names in its subsymbols come first."""
    known: tuple[Any, tuple[str, ...]] | None = bsym.__dict__.get(NAMES)
    if known is not None and known[0] is bsym.subsymbols:
        return known[1]
    inside = [names_in(sub) for sub in bsym.subsymbols]
    once = tuple(dict.fromkeys(chain(*inside, read_names(bsym), made_names(bsym))))
    bsym.__dict__[NAMES] = (bsym.subsymbols, once)
    return once


def structure_of(bsym: Any) -> Structure:
    """Return the `Structure` of a statement. Statements that differ only in tags or names may share a structure."""
    found: Structure | None = bsym.__dict__.get(STRUCTURE)
    if found is None:
        found = bsym.__dict__[STRUCTURE] = Structure()
    return found
