"""Arcs of all sites as a table; each with its ends in full only where it is shown, and not folded into another's."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import BACKWARD, FORWARD, Graph, Kind, Origin, Ragged, StatementFlag, index_of_names
from workbench.core.lever import Site
from workbench.ui.graph.layout_arrays import ArcStyle, Ints
from workbench.ui.graph.site_anchors import CROSSING, SAVED, Arc, GraphIndex, by_key, place_in, style_of
from workbench.util.last_call_cache import Remembered

_PLACE_END = re.compile(r"[><\[~]")
"""What follows an origin's id in the place that a site's id names."""
_CLONE = StatementFlag.CLONE.value


@dataclass(frozen=True)
class ArcTable:
    """One row per arc, before it is known which are shown.

    Attributes
    ----------
    sites : Ragged
        Those that the arc shows; the first is the one that a click turns.
    source, block : int32
        The statement that it starts at, -1 for a ghost, and the block that it stands in.
    style : int8
    value_bytes : int64
        Of one value.
    targets : Ragged
        Statements that it may end at.
    alone : dict of int to tuple of int
        Of some arcs the targets in place of those.
    """

    sites: Ragged
    source: Ints
    block: Ints
    style: NDArray[np.int8]
    value_bytes: NDArray[np.int64]
    targets: Ragged
    alone: dict[int, tuple[int, ...]]

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def of(
        cls, graph: Graph, sites: Sequence[Site], index: GraphIndex, remembered: Remembered | None = None
    ) -> tuple[ArcTable, list[int]]:
        """One arc for each value that sites are about, and the numbers of sites that have none.

        What crosses to the backward is one arc for all levers. What is saved comes first, as in `CROSSING`: it owns
        the arc, and other levers' sites join it.
        """
        of_lever: dict[str, list[int]] = {lever: [] for lever in CROSSING}
        for number, site in enumerate(sites):
            if site.lever in of_lever and site.values:
                of_lever[site.lever].append(number)
        able = [number for numbers in of_lever.values() for number in numbers]
        crossing = [sites[number] for number in able]
        about = (remembered or Remembered()).of(_about, crossing, graph.values.name, graph.origins)
        return _ArcEnds(graph, index).table(able, crossing, about)

    def through(self, index: GraphIndex, stand_in: Ints) -> ArcTable:
        """With arcs that begin at what is left out beginning at what stands for it."""
        source = np.where((self.source >= 0) & (stand_in[self.source] >= 0), stand_in[self.source], self.source)
        return replace(self, source=source, block=np.where(source >= 0, index.block[source], self.block))

    @cached_property
    def _by_block(self) -> tuple[NDArray[np.intp], Ints]:
        order = np.argsort(self.block, kind="stable")
        return order, self.block[order]

    def contents(self, blocks: int) -> list[bytes]:
        """Per block what is the same for arcs that look the same."""
        order, block = self._by_block
        columns = np.stack([self.style.astype(np.int64), self.value_bytes, np.diff(self.sites.offsets)], axis=1)[order]
        row_bytes = columns.itemsize * columns.shape[1]
        edges = (row_bytes * np.searchsorted(block, np.arange(blocks + 1))).tolist()
        content = columns.tobytes()
        return [content[start:stop] for start, stop in itertools.pairwise(edges)]

    def shown(self, blocks: Sequence[tuple[int, Sequence[int]]]) -> list[Arc]:
        """The arcs of some blocks.

        Parameters
        ----------
        blocks : sequence of (int, sequence of int)
            A block, and those that it is shown for, its own included, which have as many arcs.
        """
        order, block = self._by_block
        starts = np.searchsorted(block, np.arange(int(block[-1]) + 2 if len(block) else 1)).tolist()
        ordered, first = order.tolist(), self.sites.items[self.sites.offsets[:-1]].tolist()
        found = []
        for one, layers in blocks:
            if one + 1 >= len(starts):
                continue
            for place in range(starts[one + 1] - starts[one]):
                row = ordered[starts[one] + place]
                peers = tuple([first[ordered[starts[layer] + place]] for layer in layers])
                targets = self.alone[row] if row in self.alone else tuple(self.targets[row].tolist())
                found.append(
                    Arc(
                        tuple(self.sites[row].tolist()),
                        int(self.source[row]),
                        one,
                        targets,
                        ArcStyle(self.style[row]),
                        int(self.value_bytes[row]),
                        peers,
                    )
                )
        return found


@dataclass(frozen=True)
class _SiteSubjects:
    """What sites are about, in whatever order statements come; one row per site.

    Attributes
    ----------
    values : tuple of tuple of int
        Those that the graph has.
    first, count : intp
        The first of these, -1 without any, and how many there are.
    stranger : intp
        Where there are none, a number below 0 for the name; 0 elsewhere.
    ghost : tuple of int
        The block that a ghost of it would stand in; 0 where the id names none.
    saved : bool
        Whether it is the lever's that owns arcs.
    style : int8
    bytes : int64
        0 where the site does not say.
    """

    values: tuple[tuple[int, ...], ...]
    first: NDArray[np.intp]
    count: NDArray[np.intp]
    stranger: NDArray[np.intp]
    ghost: tuple[int, ...]
    saved: NDArray[np.bool_]
    style: NDArray[np.int8]
    bytes: NDArray[np.int64]


def _about(sites: Sequence[Site], names: tuple[str, ...], origins: Sequence[Origin]) -> _SiteSubjects:
    value_index = index_of_names(names)
    numbers = {origin.id: number for number, origin in enumerate(origins)}
    values = tuple([tuple([value_index[name] for name in site.values if name in value_index]) for site in sites])
    # Values that the graph lacks are told apart by their names.
    lacking: dict[str, int] = {}
    return _SiteSubjects(
        values=values,
        first=np.asarray([of_site[0] if of_site else -1 for of_site in values], np.intp),
        count=np.asarray([len(of_site) for of_site in values], np.intp),
        stranger=np.asarray(
            [
                0 if of_site else -1 - lacking.setdefault(site.values[0], len(lacking))
                for of_site, site in zip(values, sites, strict=True)
            ],
            np.intp,
        ),
        ghost=tuple([numbers.get(_PLACE_END.split(place_in(site), maxsplit=1)[0], -1) + 1 for site in sites]),
        saved=np.asarray([site.lever == SAVED for site in sites], bool),
        style=np.asarray([style_of(site) for site in sites], np.int8),
        bytes=np.asarray([site.bytes for site in sites], np.int64),
    )


type _Found = tuple[int, int, tuple[int, ...], bool]
"""Of an arc its source, block, and targets, and whether these are across."""


class _ArcEnds:
    """Finds the ends of arcs, in a graph whose columns are looked up by the thousand."""

    def __init__(self, graph: Graph, index: GraphIndex) -> None:
        self._graph, self._index = graph, index
        self._again = functools.cache(self._again_in)

    @cached_property
    def _columns(self) -> tuple[list[int], list[int], list[int]]:
        """Sides, kinds and parents of statements: single ones are looked up by the thousand."""
        statements = self._graph.statements
        return statements.side.tolist(), statements.kind.tolist(), statements.parent.tolist()

    @cached_property
    def _cloned(self) -> dict[int, list[int]]:
        """Backward statements that are there for a choice, by block."""
        statements, index = self._graph.statements, self._index
        cloned = index.shown & ~index.headed & (statements.side == BACKWARD) & (statements.flags & _CLONE != 0)
        rows = np.flatnonzero(cloned)
        return by_key(rows, index.block[rows])

    def table(self, numbers: Sequence[int], sites: Sequence[Site], about: _SiteSubjects) -> tuple[ArcTable, list[int]]:
        """The arcs of sites, those that share one joined, and the numbers of those that have none."""
        producers = self._index.producers
        root, style = about.first.copy(), about.style
        for row in np.flatnonzero(about.count > 1).tolist():
            values = about.values[row]
            root[row] = next((value for value in values if producers[value] >= 0), values[0])
        source, targets, crosses, rest = self._found_at_once(root, about)
        block = self._index.block[source]
        count = np.diff(targets.offsets)
        alone: dict[int, tuple[int, ...]] = {}
        for row in np.flatnonzero(about.count == 0).tolist():
            # A value that the graph does not have: all that makes its block again stands for its readers.
            ghost = about.ghost[row]
            alone[row] = again = self._again(ghost)
            count[row] = len(again)
            block[row] = self._index.block[again[0]] if again and not ghost else ghost
        crosses |= about.count == 0
        for row in np.flatnonzero(rest & (about.count > 0)).tolist():
            source[row], block[row], alone[row], crosses[row] = self._found(
                int(root[row]), about.values[row], about.ghost[row], ArcStyle(style[row]), saved=bool(about.saved[row])
            )
            count[row] = len(alone[row])
        sizes = np.where(about.bytes == 0, np.where(root >= 0, self._graph.values.bytes[root], 0), about.bytes)
        key = np.where(root >= 0, root, about.stranger)
        there = np.flatnonzero(count > 0)
        _, first, joined = np.unique((2 * key + crosses)[there], return_index=True, return_inverse=True)
        # In the order in which they were found first.
        order = np.argsort(first)
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        owner, rows = place[joined], there[first[order]]
        styles = style[rows]
        np.maximum.at(styles, owner, style[there])
        of_arc = np.argsort(owner, kind="stable")
        table = ArcTable(
            sites=Ragged(
                np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(rows)))]).astype(np.int32),
                np.asarray(numbers, np.int32)[there[of_arc]],
            ),
            source=source[rows],
            block=block[rows],
            style=styles,
            value_bytes=sizes[rows],
            targets=targets.taken(rows),
            alone={place: alone[row] for place, row in enumerate(rows.tolist()) if row in alone},
        )
        return table, [numbers[row] for row in np.flatnonzero(count == 0).tolist()]

    def _found_at_once(
        self, roots: NDArray[np.intp], about: _SiteSubjects
    ) -> tuple[Ints, Ragged, NDArray[np.bool_], NDArray[np.bool_]]:
        """Sources, targets and whether these are across, of sites about one value that is made; and what is left."""
        index, statements = self._index, self._graph.statements
        side, parent = statements.side, statements.parent
        saved, style = about.saved, about.style
        source, start = np.where(roots >= 0, index.producer[roots], -1), index.readers_start[roots]
        plain = (about.count == 1) & (source >= 0)
        count = np.where(plain, index.readers_start[roots + 1] - start, 0)
        owner = np.repeat(np.arange(len(roots)), count)
        readers = index.readers[np.arange(len(owner)) + np.repeat(start - (np.cumsum(count) - count), count)]
        of_source = source[owner]
        keep = readers != of_source
        across = keep & (side[readers] == BACKWARD)
        apart = keep & ((parent[readers] != parent[of_source]) | (parent[readers] < 0))
        any_across, any_apart, crosses = np.zeros((3, len(roots)), bool)
        any_across[owner[across]] = any_apart[owner[apart]] = True
        forward = side[source] == FORWARD
        any_across &= forward
        plain &= (forward | ~saved) & (style != ArcStyle.OFFLOADED)
        plain &= any_across | ~(saved & (style == ArcStyle.RECOMPUTED))
        taken = np.where(any_across[owner], across, np.where(any_apart[owner], apart, keep)) & plain[owner]
        owner, readers = owner[taken], readers[taken]
        crosses[owner[side[readers] != side[source[owner]]]] = True
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(roots)))]).astype(np.int32)
        return source, Ragged(offsets, readers), crosses, ~plain

    def _found(self, root: int, values: Sequence[int], ghost: int, style: ArcStyle, *, saved: bool) -> _Found:
        """Source, block, targets and whether they are across, of some values of which `root` is the first made."""
        (side, _, parent), blocks = self._columns, self._index.blocks
        source = self._index.producers[root]
        readers = [reader for value in values for reader in self._index.readers_of(value) if reader != source]
        across = [reader for reader in readers if side[reader] == BACKWARD] if readers else []
        if source < 0 or (side[source] == BACKWARD and saved):
            # The forward makes it no longer as a value of its own, or it is an argument: a ghost stands for it.
            again = (source,) if source >= 0 else tuple(across) or self._clones("", ghost)
            return -1, blocks[again[0]] if again and not ghost else ghost, again, True
        block = blocks[source]
        targets: tuple[int, ...]
        if style is ArcStyle.OFFLOADED and (back := self._reloads(values)):
            targets = back
        elif side[source] == FORWARD and across:
            targets = tuple(across)
        elif side[source] == FORWARD and style is ArcStyle.RECOMPUTED and saved:
            targets = self._clones(self._graph.statements.name[source], block)
        else:
            other = [r for r in readers if parent[r] != parent[source] or parent[r] < 0]
            targets = tuple(other or readers)
        return source, block, targets, any(side[target] != side[source] for target in targets)

    def _reloads(self, values: Sequence[int]) -> tuple[int, ...]:
        """Statements that bring back what was taken off the device of `values`."""
        readers_of, kind = self._index.readers_of, self._columns[1]
        away = [
            kept
            for value in values
            for reader in readers_of(value)
            if kind[reader] == Kind.OFFLOAD
            for kept in self._graph.statements.outputs[reader].tolist()
        ]
        return tuple(r for kept in away for r in readers_of(kept) if kind[r] == Kind.RELOAD)

    def _clones(self, name: str, block: int) -> tuple[int, ...]:
        """Backward statements that compute a block's value again; without one, what else the backward does there."""
        rows, names = self._again(block), self._graph.statements.name
        return tuple([row for row in rows if names[row] == name]) or rows

    def _again_in(self, block: int) -> tuple[int, ...]:
        if block in self._cloned:
            return tuple(self._cloned[block])
        side = self._columns[0]
        return tuple([row for row in self._index.members.get(block, ()) if side[row] == BACKWARD])
