"""The arcs of all sites as a table. `ArcTable.arcs_of` makes `Arc` objects only for the blocks that are shown."""

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
from workbench.ui.graph.site_anchors import CROSSING, SAVED, Arc, GraphIndex, group_by_key, place_in, style_of
from workbench.util.last_call_cache import Remembered

_PLACE_END = re.compile(r"[><\[~]")
"""Pattern of the characters that follow the origin's id in the id of a site."""
_CLONE = StatementFlag.CLONE.value


@dataclass(frozen=True)
class ArcTable:
    """One row for each arc, before folding decides which arcs are shown.

    Attributes
    ----------
    sites : Ragged
        Indices of the sites that the arc shows; a double click changes the first.
    source, block : int32
        Statement at which the arc starts, and the block of this statement. A block is a statement of the program with
        all graph statements that compute or differentiate it. For a ghost (a value that the forward does not make), the
        statement is -1.
    style : int8
        An `ArcStyle`.
    value_bytes : int64
        Size of the arc's value.
    targets : Ragged
        Statements at which the arc may end.
    alone : dict of int to tuple of int
        Maps the rows of some arcs to their targets. For these arcs, `targets` is not used.
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
        """Return an arc for each value that has a site, and the indices of sites without an arc.

        A value that crosses to the backward has one arc for the sites of all levers. The site of the lever `saved` is
        the arc's first site; the sites of other levers follow.
        """
        of_lever: dict[str, list[int]] = {lever: [] for lever in CROSSING}
        for number, site in enumerate(sites):
            if site.lever in of_lever and site.values:
                of_lever[site.lever].append(number)
        able = [number for numbers in of_lever.values() for number in numbers]
        crossing = [sites[number] for number in able]
        about = (remembered or Remembered()).result_of(_subjects_of_sites, crossing, graph.values.name, graph.origins)
        return _ArcEnds(graph, index).table(able, crossing, about)

    def redirect(self, index: GraphIndex, stand_in: Ints) -> ArcTable:
        """Replace hidden sources of arcs by the statements that represent them."""
        source = np.where((self.source >= 0) & (stand_in[self.source] >= 0), stand_in[self.source], self.source)
        return replace(self, source=source, block=np.where(source >= 0, index.block[source], self.block))

    @cached_property
    def _order_by_block(self) -> tuple[NDArray[np.intp], Ints]:
        order = np.argsort(self.block, kind="stable")
        return order, self.block[order]

    def contents(self, blocks: int) -> list[bytes]:
        """Return bytes for each block. Two blocks have equal bytes if their arcs look the same."""
        order, block = self._order_by_block
        columns = np.stack([self.style.astype(np.int64), self.value_bytes, np.diff(self.sites.offsets)], axis=1)[order]
        row_bytes = columns.itemsize * columns.shape[1]
        edges = (row_bytes * np.searchsorted(block, np.arange(blocks + 1))).tolist()
        content = columns.tobytes()
        return [content[start:stop] for start, stop in itertools.pairwise(edges)]

    def arcs_of(self, blocks: Sequence[tuple[int, Sequence[int]]]) -> list[Arc]:
        """Return the arcs of some blocks.

        Parameters
        ----------
        blocks : sequence of (int, sequence of int)
            A block, and the blocks that it represents, including itself. All these blocks have equally many arcs.
        """
        order, block = self._order_by_block
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
    """Properties of sites that do not depend on the order of statements; one row for each site.

    Attributes
    ----------
    values : tuple of tuple of int
        The site's values that exist in the graph.
    first, count : intp
        First of these values (-1 without values), and the number of these values.
    stranger : intp
        A negative number that identifies the first value's name if the graph has none of the values; otherwise 0.
    ghost : tuple of int
        Block in which a ghost of the value would stand; 0 if the site's id does not name a block.
    saved : bool
        Whether the site belongs to the lever `saved`.
    style : int8
    bytes : int64
        0 if the site does not give the size.
    """

    values: tuple[tuple[int, ...], ...]
    first: NDArray[np.intp]
    count: NDArray[np.intp]
    stranger: NDArray[np.intp]
    ghost: tuple[int, ...]
    saved: NDArray[np.bool_]
    style: NDArray[np.int8]
    bytes: NDArray[np.int64]


def _subjects_of_sites(sites: Sequence[Site], names: tuple[str, ...], origins: Sequence[Origin]) -> _SiteSubjects:
    value_index = index_of_names(names)
    numbers = {origin.id: number for number, origin in enumerate(origins)}
    values = tuple([tuple([value_index[name] for name in site.values if name in value_index]) for site in sites])
    # If the graph has none of a site's values, the name of the first value identifies the site's arc.
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
"""Source, block and targets of an arc, and whether a target is on the other side (forward or backward)."""


class _ArcEnds:
    """Finds the ends of arcs. It uses lists instead of arrays, because thousands of single entries are read."""

    def __init__(self, graph: Graph, index: GraphIndex) -> None:
        self._graph, self._index = graph, index
        self._again = functools.cache(self._clones_in)

    @cached_property
    def _columns(self) -> tuple[list[int], list[int], list[int]]:
        """Sides, kinds and parents of statements as lists, because thousands of single entries are read."""
        statements = self._graph.statements
        return statements.side.tolist(), statements.kind.tolist(), statements.parent.tolist()

    @cached_property
    def _clones_by_block(self) -> dict[int, list[int]]:
        """For each block, the backward statements that were added to recompute values."""
        statements, index = self._graph.statements, self._index
        cloned = index.shown & ~index.headed & (statements.side == BACKWARD) & (statements.flags & _CLONE != 0)
        rows = np.flatnonzero(cloned)
        return group_by_key(rows, index.block[rows])

    def table(self, numbers: Sequence[int], sites: Sequence[Site], about: _SiteSubjects) -> tuple[ArcTable, list[int]]:
        """Return the arcs of sites, each shared arc once, and the indices of sites without an arc."""
        producers = self._index.producers
        root, style = about.first.copy(), about.style
        for row in np.flatnonzero(about.count > 1).tolist():
            values = about.values[row]
            root[row] = next((value for value in values if producers[value] >= 0), values[0])
        source, targets, crosses, rest = self._find_ends_at_once(root, about)
        block = self._index.block[source]
        count = np.diff(targets.offsets)
        alone: dict[int, tuple[int, ...]] = {}
        for row in np.flatnonzero(about.count == 0).tolist():
            # The graph lacks the value, so its readers are unknown. Use statements that recompute the block's values.
            ghost = about.ghost[row]
            alone[row] = again = self._again(ghost)
            count[row] = len(again)
            block[row] = self._index.block[again[0]] if again and not ghost else ghost
        crosses |= about.count == 0
        for row in np.flatnonzero(rest & (about.count > 0)).tolist():
            source[row], block[row], alone[row], crosses[row] = self._find_ends(
                int(root[row]), about.values[row], about.ghost[row], ArcStyle(style[row]), saved=bool(about.saved[row])
            )
            count[row] = len(alone[row])
        sizes = np.where(about.bytes == 0, np.where(root >= 0, self._graph.values.bytes[root], 0), about.bytes)
        key = np.where(root >= 0, root, about.stranger)
        there = np.flatnonzero(count > 0)
        _, first, joined = np.unique((2 * key + crosses)[there], return_index=True, return_inverse=True)
        # Sort the arcs by the first site of each.
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
            targets=targets.take_rows(rows),
            alone={place: alone[row] for place, row in enumerate(rows.tolist()) if row in alone},
        )
        return table, [numbers[row] for row in np.flatnonzero(count == 0).tolist()]

    def _find_ends_at_once(
        self, roots: NDArray[np.intp], about: _SiteSubjects
    ) -> tuple[Ints, Ragged, NDArray[np.bool_], NDArray[np.bool_]]:
        """Find the ends of arcs for all sites with a single value that a statement produces.

        Returns
        -------
        Ints
            Source of each site's arc.
        Ragged
            Targets of each site's arc.
        bool
            For each site, whether its arc goes to the other side (forward or backward).
        bool
            For each site, whether `_find_ends` must find its arc, because this function has not found it.
        """
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

    def _find_ends(self, root: int, values: Sequence[int], ghost: int, style: ArcStyle, *, saved: bool) -> _Found:
        """Find the ends of one site's arc. `root` is the first of the site's values that a statement produces."""
        (side, _, parent), blocks = self._columns, self._index.blocks
        source = self._index.producers[root]
        readers = [reader for value in values for reader in self._index.readers_of(value) if reader != source]
        across = [reader for reader in readers if side[reader] == BACKWARD] if readers else []
        if source < 0 or (side[source] == BACKWARD and saved):
            # The arc starts at a ghost: the value is an argument, or the forward no longer produces it.
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
        """Return statements that reload offloaded `values` to the device."""
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
        """Return the backward statements called `name` that recompute values of a block.

        If no such statement has this name, return all backward statements that recompute values of the block. If no
        statement recomputes them, return all backward statements of the block.
        """
        rows, names = self._again(block), self._graph.statements.name
        return tuple([row for row in rows if names[row] == name]) or rows

    def _clones_in(self, block: int) -> tuple[int, ...]:
        if block in self._clones_by_block:
            return tuple(self._clones_by_block[block])
        side = self._columns[0]
        return tuple([row for row in self._index.members.get(block, ()) if side[row] == BACKWARD])
