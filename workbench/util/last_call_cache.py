"""Cache of the last result per function, so that a picture after a choice reuses the unchanged parts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Remembered:
    """The last result of each function that is passed to `of`.

    The cache does not change results, provided that those functions read only their arguments.
    """

    def __init__(self) -> None:
        self._held: dict[Callable[..., Any], tuple[tuple[Any, ...], Any]] = {}

    def of[Result](self, make: Callable[..., Result], *parts: Any) -> Result:
        """Return a function's result for some parts; if they are the same as before, the earlier result.

        Parameters
        ----------
        make : callable
            Defined in a module, and dependent only on its arguments.
        *parts
            Immutable inputs. Arrays and strings are compared by value, lists and tuples by the identity of their items,
            and all other objects by identity.
        """
        held = self._held.get(make)
        if held is None or not all(map(_same, parts, held[0])):
            self._held[make] = held = parts, make(*parts)
        result: Result = held[1]
        return result

    def each[Item, Result](self, make: Callable[..., Result], items: Sequence[Item], *parts: Any) -> list[Result]:
        """Return a function's result for each item and some parts, as `of` does; only new items are computed."""
        held = self._held.get(make)
        known: dict[int, Result] = {}
        if held is not None and all(map(_same, parts, held[0][1:])):
            known = dict(zip(map(id, held[0][0]), held[1], strict=True))
        missing = object()
        found: list[Any] = [known.get(id(item), missing) for item in items]
        for place in [place for place, result in enumerate(found) if result is missing]:
            found[place] = make(items[place], *parts)
        # The items are kept alive, so that no other object gets the id of one of them.
        self._held[make] = (tuple(items), *parts), found
        return found


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(operator.is_, one, other))
    return isinstance(one, (str, bool)) and one == other
