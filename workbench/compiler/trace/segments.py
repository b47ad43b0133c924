"""Cut traces into segments: runs of consecutive statements. Successive plans share the segments that did not change.

The end of a segment depends only on the statement before it. Therefore a statement that a choice adds or removes
changes the segment around it, and no other segment. A pass stores its results with a segment, together with what it
read from outside of the segment. In a later plan, it uses a stored result if it would read the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from workbench.compiler.trace.bsym_memo import PlanMemo, ids, made_names, shared_of

LENGTH = 32
"""Mean number of statements that make values, in a segment."""

_LAST = "last of its segment"


class Segment:
    """Consecutive statements of a trace, and what passes found about them.

    Attributes
    ----------
    bsyms : tuple of BoundSymbol
    """

    __slots__ = ("_known", "bsyms")

    def __init__(self, bsyms: Sequence[Any]) -> None:
        self.bsyms = tuple(bsyms)
        self._known: dict[Hashable, Any] = {}

    def get_or_make(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the stored result for `key`. For a new key, call `make` and store its result."""
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def get(self, key: Hashable) -> Any:
        """Return the stored result for a key, or None."""
        return self._known.get(key)


class SegmentTable:
    """The segments of a program's plans."""

    def __init__(self) -> None:
        self._memo = PlanMemo()

    def begin(self) -> None:
        """Begin the next plan."""
        self._memo.begin()

    def cut(self, bsyms: Sequence[Any]) -> list[Segment]:
        """Return the segments of a trace. Segments that an earlier plan also has are the same objects."""
        numbers, begin, found = ids(bsyms), 0, []
        ends = [at for at, bsym in enumerate(bsyms, 1) if _is_last(bsym)]
        for end in (*ends, len(bsyms)):
            if end > begin:
                inside = bsyms[begin:end]
                found.append(self._memo.get_or_make(numbers[begin:end], inside, partial(Segment, inside)))
            begin = end
        return found


def _is_last(bsym: Any) -> bool:
    known = shared_of(bsym)
    found: bool | None = known.get(_LAST)
    if found is None:
        names = made_names(bsym)
        found = known[_LAST] = bool(names) and zlib.crc32(names[0].encode()) % LENGTH == 0
    return found
