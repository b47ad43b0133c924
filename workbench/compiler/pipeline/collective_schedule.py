"""`CollectiveSchedule`: the statements of a trace with collectives, and how far each statement may move."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence
from enum import Enum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workbench.compiler.interop.thunder_api import BoundSymbol

type Key = tuple[int, int, int, float, int]
"""Requested position of a statement: its slot (the number of compute statements before it), and four tie breakers."""

COMPUTE_TIE = 9
"""Second part of the key of a compute statement. This part is larger than in the keys of other statements. Therefore,
all other statements of a slot precede the compute statement of the slot.
"""


class CollectiveRole(Enum):
    """Role of a statement. The role determines how the statement may move."""

    COMPUTE = "compute"
    ISSUE = "issue"
    WAIT = "wait"
    VIEW = "view"
    """A statement that only reshapes the result of a wait, or takes the results out of a bucket."""
    PRODUCER = "producer"
    """A statement that only prepares the data of a collective. It has one input tensor, such as a gradient to divide,
    or it fills a bucket.
    """


@dataclasses.dataclass(frozen=True)
class Collective:
    """A collective of a trace.

    Attributes
    ----------
    place : str
        Stable id. It contains the name of the parameter that is gathered or whose gradient is reduced, or else the id
        of the sent value.
    issue, wait : int
        Indices in `CollectiveSchedule.statements` of the statements that start the collective and wait for it.
    producers : tuple of int
        Indices of the statements that only prepare the collective's data.
    result : str
        Name of the value that the wait returns.
    nbytes : int
        Bytes of the result.
    read : bool
        Whether a statement of this trace reads the result; False if the result is only returned.
    parameter : bool
        Whether the sent value is an argument of the program, or producers compute it only from arguments.
    """

    place: str
    issue: int
    wait: int
    producers: tuple[int, ...]
    result: str
    nbytes: int
    read: bool
    parameter: bool = False


@dataclasses.dataclass(frozen=True)
class CollectiveSchedule:
    """The statements of a split or joint trace, and their ordering constraints.

    Attributes
    ----------
    statements : tuple of BoundSymbol
        The statements in the order of the trace, without unpacking, deletions and the `return`.
    roles : tuple of CollectiveRole
    before : tuple of tuple of int
        For each statement, the indices of the statements that must precede it.
    slot : tuple of int
        For each statement, the number of compute statements before it in the trace.
    low, high : tuple of int
        Smallest and largest slot that each statement may have.
    names, outputs : tuple of str
        For each compute statement, its unique name in options ``at(NAME)``, and the name of its first output.
    collectives : tuple of Collective
        In the order of their issues.
    """

    statements: tuple[BoundSymbol, ...]
    roles: tuple[CollectiveRole, ...]
    before: tuple[tuple[int, ...], ...]
    slot: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]
    collectives: tuple[Collective, ...]

    def arrange(self, keys: Sequence[Key]) -> list[int]:
        """Return the indices of the statements, in an order that follows `keys` as far as dependencies allow.

        The next statement in the order always has the smallest key among the statements whose predecessors are placed.
        """
        order = sorted(range(len(keys)), key=keys.__getitem__)
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        earlier, later = self._pairs
        if (place[earlier] < place[later]).all():
            return order
        missing = [len(before) for before in self.before]
        ready = [(keys[i], i) for i, count in enumerate(missing) if not count]
        heapq.heapify(ready)
        order.clear()
        while ready:
            _, statement = heapq.heappop(ready)
            order.append(statement)
            for freed in self._followers[statement]:
                missing[freed] -= 1
                if not missing[freed]:
                    heapq.heappush(ready, (keys[freed], freed))
        return order

    @cached_property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """For each dependency, the earlier statement (first array) and the later statement (second array)."""
        later = np.repeat(np.arange(len(self.before)), [len(before) for before in self.before])
        return np.asarray([e for before in self.before for e in before], np.intp), later

    @cached_property
    def _followers(self) -> tuple[tuple[int, ...], ...]:
        """For each statement, the statements that must follow it."""
        after: list[list[int]] = [[] for _ in self.statements]
        for earlier, later in zip(*(ends.tolist() for ends in self._pairs), strict=True):
            after[earlier].append(later)
        return tuple(map(tuple, after))
