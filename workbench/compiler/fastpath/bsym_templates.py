"""Templates of statements: flatten a statement once, then instantiate it repeatedly with other values.

To instantiate a statement, a template looks up the name of each argument in a map of new values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from workbench.compiler.interop.thunder_api import BoundSymbol, FutureTensorProxy, TensorProxy
from workbench.compiler.trace.bsym_memo import CLEAN, STRUCTURE, identity, structure_of
from workbench.compiler.trace.dead_code import is_clean

Mark = tuple[set[Any], Any, Any]
"""Metadata of a statement: its tags, its source file, and positions in the file."""

_FLAT = ("flat_args", "flat_proxy_args", "flat_outs", "flat_proxy_outs")
_FIELDS = tuple(field.name for field in dataclasses.fields(BoundSymbol))
_Get = Callable[[Mapping[Hashable, Any]], Any]


class TemplateValues(dict[Hashable, Any]):
    """Map from leaves of statements to their replacements.

    The key of a tensor is its name. The key of any other leaf is its identity, and such a leaf replaces itself.

    Parameters
    ----------
    leaves : mapping
        Leaves of the statements; see `BsymTemplates`.
    make : callable
        Makes the replacement of a tensor proxy that has no replacement yet.
    pairs : iterable of (str, Proxy), optional
        Names of tensors, each with its initial replacement.
    """

    def __init__(
        self, leaves: Mapping[Hashable, Any], make: Callable[[Any], Any], pairs: Iterable[tuple[str, Any]] = ()
    ) -> None:
        super().__init__(pairs)
        self._leaves, self._make = leaves, make

    def __missing__(self, key: Hashable) -> Any:
        leaf = self._leaves[key]
        found = self[key] = self._make(leaf) if type(key) is str else leaf
        return found


class BsymTemplates:
    """Templates of several statements that share leaves.

    Parameters
    ----------
    check : callable
        Raises an error for a leaf that is not a tensor and cannot be in a template.

    Attributes
    ----------
    leaves : dict
        Leaves of the statements. The key of a tensor is its name. The key of any other leaf is its identity.
    marks : list of Mark
        Marks of the statements, without repetitions.
    """

    def __init__(self, check: Callable[[Any], None]) -> None:
        self._check = check
        self.leaves: dict[Hashable, Any] = {}
        self.marks: list[Mark] = []
        self._mark_at: dict[Hashable, int] = {}

    def statement_template(self, bsym: Any) -> BsymTemplate:
        """Return the template of a statement in its current state."""
        state = bsym.__dict__
        base = {name: state[name] for name in _FIELDS}
        base[STRUCTURE] = structure_of(bsym)
        gets = [("args", self.tree_template(state["args"]))]
        if state["kwargs"]:
            gets.append(("kwargs", self.tree_template(state["kwargs"])))
        inside = tuple(map(self.statement_template, state["subsymbols"]))
        gets.append(("output", self.tree_template(state["output"])))
        gets.extend((name, self.tree_template(state[name])) for name in _FLAT if name in state)
        return BsymTemplate(base, tuple(gets), inside, self._mark(state), is_clean(bsym))

    def _mark(self, state: Mapping[str, Any]) -> int:
        tags, filename, positions = state["tags"], state["source_filename"], state["source_positions"]
        at = self._mark_at.setdefault((frozenset(tags), identity(filename), identity(positions)), len(self.marks))
        if at == len(self.marks):
            self.marks.append((tags.copy(), filename, positions))
        return at

    def tree_template(self, tree: Any) -> _Get:
        """Return a function that builds a tree with the structure of `tree` from a map of new leaves."""
        kind = type(tree)
        if kind is dict:
            gets = {name: self.tree_template(each) for name, each in tree.items()}
            return lambda values: {name: get(values) for name, get in gets.items()}
        if kind is not tuple and kind is not list:
            return itemgetter(self._key(tree))
        if any(type(each) in (tuple, list, dict) for each in tree):
            parts = [self.tree_template(each) for each in tree]
            return lambda values: kind([get(values) for get in parts])
        keys = tuple([self._key(each) for each in tree])
        if not keys:
            return lambda values: kind()
        if len(keys) == 1:
            key = keys[0]
            return lambda values: kind((values[key],))
        every = itemgetter(*keys)
        return every if kind is tuple else lambda values: list(every(values))

    def _key(self, leaf: Any) -> Hashable:
        key: Hashable
        if type(leaf) is TensorProxy or type(leaf) is FutureTensorProxy:
            key = leaf.name
        else:
            self._check(leaf)
            key = identity(leaf)
        self.leaves.setdefault(key, leaf)
        return key


class BsymTemplate:
    """Template of a statement.

    Parameters
    ----------
    base : dict
        Attributes that do not depend on the values.
    gets : tuple of (str, callable)
        Names of the other attributes, each with the function that computes it from values.
    inside : tuple of BsymTemplate
        Templates of the statement's subsymbols.
    mark : int
        Index of the statement's mark in `BsymTemplates.marks`.
    clean : bool
        Whether the statement contains no dead code.
    """

    __slots__ = ("_base", "_clean", "_gets", "_inside", "_mark")

    def __init__(
        self,
        base: dict[str, Any],
        gets: tuple[tuple[str, _Get], ...],
        inside: tuple[BsymTemplate, ...],
        mark: int,
        clean: bool,
    ) -> None:
        self._base, self._gets, self._inside, self._mark, self._clean = base, gets, inside, mark, clean

    def instantiate(self, values: Mapping[Hashable, Any], marks: Sequence[Mark]) -> Any:
        """Return a new statement with the given values and marks.

        Parameters
        ----------
        values : TemplateValues
        marks : sequence of Mark
            Replacements of `BsymTemplates.marks`, in the same order.
        """
        state = self._base.copy()
        for name, get in self._gets:
            state[name] = get(values)
        tags, state["source_filename"], state["source_positions"] = marks[self._mark]
        state["tags"] = tags.copy()
        inside = state["subsymbols"] = [each.instantiate(values, marks) for each in self._inside]
        if self._clean:
            state[CLEAN] = inside
        made = object.__new__(BoundSymbol)
        made.__dict__ = state
        return made
