"""Merge fusion regions that are separated only by statement order.

Thunder ends a region at each unfused statement, such as a matmul, even if the next statements do not need its result.
Therefore a value goes through memory if it is made before such a statement and read after the statement. If two
regions, one before and one after the statement, read the same value, both regions read the value from memory. This pass
merges two regions if one region makes a value that the other region reads, or if both regions read the same value. The
merged region takes the position of one of the two regions. The new order preserves all dependencies between statements.

A merge must not raise the peak memory. No statement between the two regions may have more bytes alive than before the
merge. While the merged region runs, at most as many bytes may be alive as at the peak of the trace. Only values that go
through memory after the cuts between fusions are counted. Values that stay inside a region, or are recomputed in a
region, take no memory. The merged regions may get other cuts, so the peak memory may rise in spite of these rules.
Therefore, tests compare the peak memory with and without merged regions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from workbench.compiler.interop.thunder_api import BoundSymbol, BoundSymbolTag, prims
from workbench.compiler.trace.copy_sets import MemoryAliases, count_copies_and_fences
from workbench.compiler.trace.proxy_traits import bytes_of


@dataclasses.dataclass(eq=False)
class _RegionGroup:
    """Statements that run one after the other: a region, or a statement outside of regions.

    Attributes
    ----------
    bsyms : list of BoundSymbol
    place : int
        Position among the groups.
    region : bool
        Whether the group may be merged with other groups.
    backward : bool
        Whether the group contains statements of the backward.
    fixed : bool
        Whether no group may move past this group, because this group contains an in-place copy or a fence.
    reads, makes : set of str
        Names of values that the group reads from outside, and of values that it makes.
    held : set of str
        Names of values that the group reads from memory or writes to memory.
    bytes : int
        Bytes alive while the group runs.
    """

    bsyms: list[BoundSymbol]
    place: int
    region: bool
    backward: bool
    fixed: bool
    reads: set[str]
    makes: set[str]
    held: set[str]
    bytes: int = 0

    @classmethod
    def from_bsyms(cls, bsyms: list[BoundSymbol], position: int, region: bool, names: Iterable[str]) -> _RegionGroup:
        """Return a group. `names` are the values that it reads from memory or writes to memory."""
        makes = {out.name for bsym in bsyms for out in bsym.flat_proxy_outs}
        reads = {arg.name for bsym in bsyms for arg in bsym.flat_proxy_args} - makes
        sides = {BoundSymbolTag.BACKWARD in bsym.tags for bsym in bsyms}
        fixed = any(any(count_copies_and_fences(bsym)) for bsym in bsyms)
        return cls(
            bsyms, position, region and len(sides) == 1 and not fixed, True in sides, fixed, reads, makes, set(names)
        )


class _RegionGroups:
    """The groups in order, and the storages of their values.

    The name of a storage is the name of its first value. The bytes of the program's inputs do not count, because inputs
    always stay alive.
    """

    def __init__(self, groups: Sequence[_RegionGroup]) -> None:
        self.order: list[_RegionGroup | None] = list(groups)
        memory = MemoryAliases(bsym for group in groups for bsym in group.bsyms)
        self._base = memory.base
        self.bytes: dict[str, int] = {}
        self.maker: dict[str, _RegionGroup] = {}
        self.readers: dict[str, set[_RegionGroup]] = {}
        self.touched: dict[str, set[_RegionGroup]] = {}
        for group in groups:
            given = any(bsym.sym.id is prims.PrimIDs.UNPACK_TRIVIAL for bsym in group.bsyms)
            for bsym in group.bsyms:
                for out in bsym.flat_proxy_outs:
                    self.maker.setdefault(out.name, group)
                    # The storage may be named after a value inside a statement, so take the name from `_base`.
                    self.bytes.setdefault(self._base(out.name), 0 if given else bytes_of(out))
            for name in group.reads:
                self.readers.setdefault(name, set()).add(group)
            for name in group.held:
                self.touched.setdefault(self._base(name), set()).add(group)
        changes = [0] * (len(groups) + 1)
        for base, touching in self.touched.items():
            places = [group.place for group in touching]
            changes[min(places)] += self.bytes.get(base, 0)
            changes[max(places) + 1] -= self.bytes.get(base, 0)
        alive = 0
        for group, change in zip(groups, changes, strict=False):
            alive += change
            group.bytes = alive
        self.most = max((group.bytes for group in groups), default=0)

    def earlier_regions(self, group: _RegionGroup) -> list[_RegionGroup]:
        """Return the earlier regions that share values with a region, nearest first.

        Only regions of the same side, forward or backward, are returned.
        """
        found: set[_RegionGroup] = set()
        for name in group.reads:
            if self.bytes.get(self._base(name), 0):
                found |= {self.maker[name], *self.readers[name]} if name in self.maker else self.readers[name]
        return sorted(
            (one for one in found if one.region and one.backward == group.backward and one.place < group.place),
            key=lambda one: -one.place,
        )

    def join(self, first: _RegionGroup, second: _RegionGroup) -> bool:
        """Merge two regions if the order stays valid and peak memory does not rise. Return whether they were merged."""
        between = [one for one in self.order[first.place + 1 : second.place] if one is not None]
        if any(one.fixed for one in between):
            return False
        made_between = {name for one in between for name in one.makes}
        if not second.reads & made_between and self._merge_if_it_fits(first, second, between, target=first):
            return True
        read_between = {name for one in between for name in one.reads}
        return not first.makes & read_between and self._merge_if_it_fits(first, second, between, target=second)

    def _merge_if_it_fits(
        self, first: _RegionGroup, second: _RegionGroup, between: list[_RegionGroup], target: _RegionGroup
    ) -> bool:
        """Merge two regions at `target` if the rules on bytes alive allow it. Return whether they were merged."""
        both = {first, second}
        place = target.place
        change = dict.fromkeys((*between, target), 0)
        bases = {self._base(name) for group in both for name in group.held}
        for base in bases:
            touching, nbytes = self.touched[base], self.bytes.get(base, 0)
            before = [group.place for group in touching]
            after = [place if group in both else group.place for group in touching]
            inside = touching <= both and base in first.makes | second.makes
            for group in change:
                was = min(before) <= group.place <= max(before)
                # After the merge, a value that one region makes only for the other does not go through memory.
                is_now = not inside and min(after) <= group.place <= max(after)
                change[group] += nbytes * (is_now - was)
        if any(change[group] > 0 for group in between) or target.bytes + change[target] > self.most:
            return False
        for group, nbytes in change.items():
            group.bytes += nbytes
        self._merge(first, second, target)
        return True

    def _merge(self, first: _RegionGroup, second: _RegionGroup, target: _RegionGroup) -> None:
        gone = second if target is first else first
        target.bsyms = [*first.bsyms, *second.bsyms]
        target.makes = first.makes | second.makes
        target.reads = (first.reads | second.reads) - target.makes
        self.order[gone.place] = None
        for name in gone.makes:
            self.maker[name] = target
        for users in (self.readers.get(name) for name in gone.reads):
            if users is not None:
                users.discard(gone)
                users.add(target)
        for name in target.makes:
            self.readers.get(name, set()).discard(target)
        for base in {self._base(name) for name in gone.held}:
            self.touched[base].discard(gone)
            self.touched[base].add(target)
        target.held |= gone.held


def merge_regions(
    groups: Sequence[list[BoundSymbol]],
    is_region: Callable[[list[BoundSymbol]], bool],
    names_in_memory: Sequence[Iterable[str]],
) -> list[list[BoundSymbol]]:
    """Merge regions that are separated only by statement order.

    Parameters
    ----------
    groups : sequence of list of BoundSymbol
        Groups in execution order, as Thunder's partition gives them.
    is_region : callable
        Returns whether a group will be fused.
    names_in_memory : sequence of iterable of str
        For each group, the names of values that the group reads from or writes to memory after all cuts.

    Returns
    -------
    list of list of BoundSymbol
        Groups in a valid execution order. Groups that are not regions keep their order.
    """
    given = zip(groups, names_in_memory, strict=True)
    found = _RegionGroups(
        [_RegionGroup.from_bsyms(bsyms, place, is_region(bsyms), names) for place, (bsyms, names) in enumerate(given)]
    )
    for place in range(len(groups)):
        group = found.order[place]
        while group is not None and group.region:
            group = next(
                (at for one in found.earlier_regions(group) if (at := _join(found, one, group)) is not None), None
            )
    return [group.bsyms for group in found.order if group is not None]


def _join(groups: _RegionGroups, first: _RegionGroup, second: _RegionGroup) -> _RegionGroup | None:
    """Merge two regions if `_RegionGroups.join` allows it. Return the merged region, or None if they stay separate."""
    if not groups.join(first, second):
        return None
    return second if groups.order[second.place] is second else first
