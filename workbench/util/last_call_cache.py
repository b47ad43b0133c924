"""Cache of each function's last result.

When a picture of the plan is drawn again after a choice, the picture reuses the results whose arguments did not change.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class Remembered:
    """Cache of the last result of each function. Results of the functions must depend only on their arguments."""

    def __init__(self) -> None:
        self._held: dict[Callable[..., Any], tuple[tuple[Any, ...], Any]] = {}

    def result_of[Result](self, make: Callable[..., Result], *parts: Any) -> Result:
        """Return ``make(*parts)``. The result comes from the cache if `parts` are as in the last call for `make`.

        Parameters
        ----------
        make : callable
            A function on module level.
        *parts
            Arguments, which must not be modified later. Arrays, strings and booleans are compared by value, lists and
            tuples by the identity of their items, and all other objects by identity.
        """
        held = self._held.get(make)
        if held is None or not all(map(_is_same_input, parts, held[0])):
            self._held[make] = held = parts, make(*parts)
        result: Result = held[1]
        return result

    def results_of_each[Item, Result](
        self, make: Callable[..., Result], items: Sequence[Item], *parts: Any
    ) -> list[Result]:
        """Return ``make(item, *parts)`` for each item. If `parts` have not changed, only new items are computed."""
        held = self._held.get(make)
        known: dict[int, Result] = {}
        if held is not None and all(map(_is_same_input, parts, held[0][1:])):
            known = dict(zip(map(id, held[0][0]), held[1], strict=True))
        missing = object()
        found: list[Any] = [known.get(id(item), missing) for item in items]
        for place in [place for place, result in enumerate(found) if result is missing]:
            found[place] = make(items[place], *parts)
        # Keep the items alive, so that no other object gets the `id` of an item.
        self._held[make] = (tuple(items), *parts), found
        return found


def _is_same_input(first: Any, second: Any) -> bool:
    if first is second:
        return True
    if type(first) is not type(second):
        return False
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(operator.is_, first, second))
    return isinstance(first, (str, bool)) and first == second
