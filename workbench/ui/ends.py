"""What each site is drawn as: an arc from where its value is made to where it is read, or a mark on a statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.graph import BACKWARD, FORWARD, Graph, Kind, StatementFlag
from workbench.lever import Site
from workbench.ui.drawing import Ints, Style

SAVED = "saved"
"""The lever whose sites always run from the forward to the backward."""


REMAT = "remat"


CROSSING = (SAVED, REMAT)
"""Levers whose sites are values on their way, drawn as arcs. Any other lever's sites are marks on a statement."""


_PLACE_END = re.compile(r"[><\[~]")
"""What follows an origin's id in the place that a site's id names."""


_HIDDEN = (Kind.ARGUMENT, Kind.RETURN)


@dataclass(frozen=True)
class Index:
    """Look-ups over the graph's tables. Blocks are numbered by origin plus one; 0 is what has no origin at all."""

    shown: NDArray[np.bool_]
    headed: NDArray[np.bool_]
    block: Ints
    producer: Ints
    readers_start: Ints
    readers: Ints

    @classmethod
    def of(cls, graph: Graph) -> Index:
        """Index a graph."""
        statements = graph.statements
        shown = ~np.isin(statements.kind, _HIDDEN)
        headed = np.zeros(len(statements), bool)
        headed[statements.parent[statements.parent >= 0]] = True
        # A member says more than its fusion about where a value comes from and goes to.
        ends = shown & ~headed
        made_by = np.repeat(np.arange(len(statements)), np.diff(statements.outputs.offsets))
        made, made_by = statements.outputs.items[ends[made_by]], made_by[ends[made_by]]
        producer = np.full(len(graph.values), -1, np.int32)
        producer[made[::-1]] = made_by[::-1]
        read_by = np.repeat(np.arange(len(statements)), np.diff(statements.inputs.offsets))
        read, read_by = statements.inputs.items[ends[read_by]], read_by[ends[read_by]]
        order = np.argsort(read, kind="stable")
        start = np.searchsorted(read[order], np.arange(len(graph.values) + 1))
        block = _blocks_of_statements(graph, ends)
        return cls(shown, headed, block, producer, start.astype(np.int32), read_by[order].astype(np.int32))

    @cached_property
    def producers(self) -> list[int]:
        """`producer` as a list: single ones are looked up by the thousand."""
        return self.producer.tolist()

    @cached_property
    def _readers(self) -> tuple[list[int], list[int]]:
        return self.readers_start.tolist(), self.readers.tolist()

    def readers_of(self, value: int) -> list[int]:
        """Statements that read a value."""
        start, readers = self._readers
        return readers[start[value] : start[value + 1]]

    @cached_property
    def blocks(self) -> list[int]:
        """`block` as a list."""
        return self.block.tolist()

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """Statements of each block that are shown, headings apart, in program order."""
        rows = np.flatnonzero(self.shown & ~self.headed)
        return by_key(rows, self.block[rows])


def by_key(rows: NDArray[Any], keys: NDArray[Any]) -> dict[int, list[int]]:
    """Rows by their keys, in the order in which they came."""
    if not len(rows):
        return {}
    order = np.argsort(keys, kind="stable")
    ordered, found = keys[order], rows[order].tolist()
    first = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1)).tolist()
    ends = zip(first, [*first[1:], len(found)], strict=True)
    return {key: found[start:stop] for key, (start, stop) in zip(ordered[first].tolist(), ends, strict=True)}


@dataclass(frozen=True)
class Arc:
    """An arc before heights are known. Ends are statements; a `source` of -1 is a ghost in `block`."""

    sites: tuple[int, ...]
    source: int
    block: int
    targets: tuple[int, ...]
    style: Style
    bytes: int
    peers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Mark:
    """A mark before nodes are known: on a statement, in its block."""

    site: int
    statement: int
    block: int
    peers: tuple[int, ...] = ()


def style_of(site: Site) -> Style:
    """How the arc of a site is drawn."""
    return _STYLES.get(site.outcome or site.choice, Style.SAVED)


_STYLES = {"recompute": Style.RECOMPUTED, "offload": Style.OFFLOADED}


def _blocks_of_statements(graph: Graph, ends: NDArray[np.bool_]) -> Ints:
    """Block of each statement: what has no origin stands with what runs just before it on its side."""
    block = np.where(ends, graph.statements.origin + 1, 0).astype(np.int32)
    for side in (FORWARD, BACKWARD):
        rows = np.flatnonzero(graph.statements.side == side)
        known = np.flatnonzero(block[rows] > 0)
        if len(known):
            previous = np.searchsorted(known, np.arange(len(rows)), side="right") - 1
            block[rows] = block[rows][known[np.maximum(previous, 0)]]
    return block


def arcs_of_sites(graph: Graph, sites: Sequence[Site], index: Index) -> tuple[list[Arc], list[int]]:
    """One arc for each value that sites are about; what crosses to the backward is one arc for all levers."""
    found: dict[tuple[int | str, bool], Arc] = {}
    unplaced: list[int] = []
    origins = {origin.id: number for number, origin in enumerate(graph.origins)}
    ends = _Ends(graph, index)
    able = [
        (site.lever != SAVED, number) for number, site in enumerate(sites) if site.lever in CROSSING and site.values
    ]
    value_index = graph.value_index
    # What is saved comes first: it owns the arc that crosses, and other levers' sites join it.
    for _, number in sorted(able):
        site = sites[number]
        values = [value_index[name] for name in site.values if name in value_index]
        root = next((v for v in values if index.producers[v] >= 0), values[0] if values else -1)
        key: int | str = root if root >= 0 else site.values[0]
        arc = ends.arc(number, site, root, values, origins)
        if arc is None:
            unplaced.append(number)
            continue
        crosses = arc.source < 0 or any(ends.side[target] != ends.side[arc.source] for target in arc.targets)
        if (key, crosses) in found:
            first = found[key, crosses]
            both, style = (*first.sites, number), max(first.style, arc.style)
            found[key, crosses] = Arc(both, first.source, first.block, first.targets, style, first.bytes)
        else:
            found[key, crosses] = arc
    return list(found.values()), unplaced


def _place(site: Site) -> str:
    """Where the site is, as its id says."""
    return site.id.partition(":")[2]


def marks_of_sites(graph: Graph, sites: Sequence[Site], index: Index) -> tuple[list[Mark], list[int]]:
    """Marks of the sites that are not arcs; those about nothing that is shown come second."""
    marks: list[Mark] = []
    unplaced: list[int] = []
    origins = {origin.id: number for number, origin in enumerate(graph.origins)}
    ends = np.flatnonzero(index.shown & ~index.headed)
    rows_of = by_key(ends, graph.statements.origin[ends])
    producers, blocks = index.producers, index.blocks

    def rows_at(origin: str) -> list[int]:
        return rows_of.get(origins[origin], []) if origin in origins else []

    def places(site: Site) -> Iterator[int]:
        """The statement that the id names; where the choice took it away, what it belonged to, or who has its value."""
        values = [graph.value_index[name] for name in site.values if name in graph.value_index]
        makers = [producers[value] for value in values if producers[value] >= 0]
        if here := rows_at(_place(site)):
            yield from (row for row in here if row in makers)
            readers = {reader for value in values for reader in index.readers_of(value)}
            yield from (row for row in here if row in readers)
            yield here[-1]
        yield from rows_at(_place(site).partition("!")[0])
        yield from makers
        for value in values:
            yield from index.readers_of(value)

    for number, site in enumerate(sites):
        if site.lever in CROSSING or (not site.values and not _place(site)):
            continue
        found = next(places(site), None)
        if found is not None:
            marks.append(Mark(number, found, blocks[found]))
        else:
            unplaced.append(number)
    return marks, unplaced


class _Ends:
    """Finds the ends of arcs, in a graph whose columns are looked up by the thousand."""

    def __init__(self, graph: Graph, index: Index) -> None:
        statements = graph.statements
        self._graph, self._index = graph, index
        self.side: list[int] = statements.side.tolist()
        self._kind: list[int] = statements.kind.tolist()
        self._parent: list[int] = statements.parent.tolist()
        self._bytes: list[int] = graph.values.bytes.tolist()

    def arc(self, number: int, site: Site, root: int, values: list[int], origins: Mapping[str, int]) -> Arc | None:
        """The arc of a site about some values, of which `root` is the first that is made; None where there is none."""
        side, parent, blocks, style = self.side, self._parent, self._index.blocks, style_of(site)
        source = self._index.producers[root] if root >= 0 else -1
        if len(values) == 1:
            readers = [reader for reader in self._index.readers_of(values[0]) if reader != source]
        else:
            readers = [reader for value in values for reader in self._index.readers_of(value) if reader != source]
        across = [reader for reader in readers if side[reader] == BACKWARD]
        targets: tuple[int, ...]
        if source < 0 or (side[source] == BACKWARD and site.lever == SAVED):
            # The forward makes it no longer as a value of its own, or it is an argument: a ghost stands for it.
            block = origins.get(_PLACE_END.split(_place(site), maxsplit=1)[0], -1) + 1
            again = (source,) if source >= 0 else tuple(across) or self._clones("", block)
            block = blocks[again[0]] if again and not block else block
            targets, source = again, -1
            if not targets:
                return None
        else:
            block = blocks[source]
            if style is Style.OFFLOADED and (back := self._reloads(values)):
                targets = back
            elif side[source] == FORWARD and across:
                targets = tuple(across)
            elif side[source] == FORWARD and style is Style.RECOMPUTED and site.lever == SAVED:
                targets = self._clones(self._graph.statements.name[source], block)
            else:
                other = [r for r in readers if parent[r] != parent[source] or parent[r] < 0]
                targets = tuple(other or readers)
            if not targets:
                return None
        size = site.bytes or (self._bytes[root] if root >= 0 else 0)
        return Arc((number,), source, block, targets, style, size)

    def _reloads(self, values: Sequence[int]) -> tuple[int, ...]:
        """Statements that bring back what was taken off the device of `values`."""
        readers_of, kind = self._index.readers_of, self._kind
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
        statements = self._graph.statements
        here = [row for row in self._index.members.get(block, ()) if self.side[row] == BACKWARD]
        again = [row for row in here if statements.flags[row] & StatementFlag.CLONE.value]
        rows = again or here
        return tuple(row for row in rows if statements.name[row] == name) or tuple(rows)
