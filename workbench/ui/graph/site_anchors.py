"""Find where each site is drawn: as an arc from the producer of its value to a reader, or as a mark on a statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import BACKWARD, FORWARD, Graph, Kind, Origin
from workbench.core.lever import Site
from workbench.ui.graph.layout_arrays import ArcStyle, Ints
from workbench.util.last_call_cache import Remembered

SAVED = "saved"
"""Name of the lever whose sites are always drawn as arcs from the forward to the backward."""


REMAT = "remat"


CROSSING = (SAVED, REMAT)
"""Levers whose sites concern values and are drawn as arcs. Sites of other levers are drawn as marks on a statement."""


_HIDDEN = (Kind.ARGUMENT, Kind.RETURN)


@dataclass(frozen=True)
class GraphIndex:
    """Look-ups in the tables of a graph.

    A block is a statement of the program (an origin) with all graph statements that compute or differentiate it. The
    number of a block is the number of its origin plus one. Block 0 has no origin.

    Attributes
    ----------
    shown, headed : bool
        For each statement, whether it is drawn, and whether it is a fusion with members.
    block : int32
        Block of each statement.
    producer : int32
        Statement that produces each value; -1 if there is none. For a value that a fusion produces, this is the member
        of the fusion.
    readers_start, readers : int32
        The readers of value ``v`` are ``readers[readers_start[v]:readers_start[v + 1]]``.
    """

    shown: NDArray[np.bool_]
    headed: NDArray[np.bool_]
    block: Ints
    producer: Ints
    readers_start: Ints
    readers: Ints

    @classmethod
    def of(cls, graph: Graph) -> GraphIndex:
        """Index a graph."""
        statements = graph.statements
        shown = ~np.isin(statements.kind, _HIDDEN)
        headed = np.zeros(len(statements), bool)
        headed[statements.parent[statements.parent >= 0]] = True
        # Leave out fusions: their members locate the producers and readers of a value more precisely.
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
        """`producer` as a list, because thousands of single entries are read."""
        return self.producer.tolist()

    @cached_property
    def _readers(self) -> tuple[list[int], list[int]]:
        return self.readers_start.tolist(), self.readers.tolist()

    def readers_of(self, value: int) -> list[int]:
        """Return the statements that read a value."""
        start, readers = self._readers
        return readers[start[value] : start[value + 1]]

    @cached_property
    def blocks(self) -> list[int]:
        """`block` as a list, because thousands of single entries are read."""
        return self.block.tolist()

    @cached_property
    def members(self) -> dict[int, list[int]]:
        """Shown statements of each block, without headings, in program order."""
        rows = np.flatnonzero(self.shown & ~self.headed)
        return group_by_key(rows, self.block[rows])


def group_by_key(rows: NDArray[Any], keys: NDArray[Any]) -> dict[int, list[int]]:
    """Group rows by their keys. Within a group, the order of the rows does not change."""
    if not len(rows):
        return {}
    order = np.argsort(keys, kind="stable")
    ordered, found = keys[order], rows[order].tolist()
    first = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1)).tolist()
    ends = zip(first, [*first[1:], len(found)], strict=True)
    return {key: found[start:stop] for key, (start, stop) in zip(ordered[first].tolist(), ends, strict=True)}


class Arc(NamedTuple):
    """An arc before its position is known: its ends are statements.

    If the forward no longer makes the arc's value, `source` is -1, and the arc starts at a ghost in `block`.
    """

    sites: tuple[int, ...]
    source: int
    block: int
    targets: tuple[int, ...]
    style: ArcStyle
    bytes: int
    peers: tuple[int, ...] = ()


class Mark(NamedTuple):
    """A mark before its node is known: its site, its statement, and the statement's block."""

    site: int
    statement: int
    block: int
    peers: tuple[int, ...] = ()


def style_of(site: Site) -> ArcStyle:
    """Return the style of a site's arc."""
    return _STYLES.get(site.outcome or site.choice, ArcStyle.SAVED)


_STYLES = {"recompute": ArcStyle.RECOMPUTED, "offload": ArcStyle.OFFLOADED}


def _blocks_of_statements(graph: Graph, ends: NDArray[np.bool_]) -> Ints:
    """Return each statement's block. A statement without an origin gets the block of the statement before it."""
    block = np.where(ends, graph.statements.origin + 1, 0).astype(np.int32)
    for side in (FORWARD, BACKWARD):
        rows = np.flatnonzero(graph.statements.side == side)
        known = np.flatnonzero(block[rows] > 0)
        if len(known):
            previous = np.searchsorted(known, np.arange(len(rows)), side="right") - 1
            block[rows] = block[rows][known[np.maximum(previous, 0)]]
    return block


def place_in(site: Site) -> str:
    """Return the part of a site's id that names a place in the program."""
    return site.id.partition(":")[2]


class _MarkPlace(NamedTuple):
    """Possible places of a mark. They do not depend on the order of statements.

    Attributes
    ----------
    known : bool
        Whether the site names a place or values.
    here, above : int
        The origin that the site's id names, and the origin that the id names without its part from ``!`` on; -1 for an
        origin that does not exist.
    values : tuple of int
        Values of the site that the graph has.
    """

    known: bool
    here: int
    above: int
    values: tuple[int, ...]


def _place_of(site: Site, value_index: Mapping[str, int], numbers: Mapping[str, int]) -> _MarkPlace:
    place = place_in(site)
    values = tuple([value_index[name] for name in site.values if name in value_index])
    return _MarkPlace(
        bool(site.values or place), numbers.get(place, -1), numbers.get(place.partition("!")[0], -1), values
    )


def origin_numbers(origins: Sequence[Origin]) -> dict[str, int]:
    """Return the number of each origin, by the origin's id."""
    return {origin.id: number for number, origin in enumerate(origins)}


def marks_of_sites(
    graph: Graph, sites: Sequence[Site], index: GraphIndex, remembered: Remembered | None = None
) -> tuple[list[Mark], list[int]]:
    """Return marks for the sites that are not arcs, and the indices of sites for which nothing is shown."""
    marks: list[Mark] = []
    unplaced: list[int] = []
    able = [number for number, site in enumerate(sites) if site.lever not in CROSSING]
    marking = [sites[number] for number in able]
    remembered = remembered or Remembered()
    numbers = remembered.result_of(origin_numbers, graph.origins)
    places = remembered.results_of_each(_place_of, marking, graph.value_index, numbers)
    named = np.zeros(len(graph.origins) + 1, bool)
    named[list({origin for place in places for origin in place[1:3]})] = True
    named[-1] = False
    ends = np.flatnonzero(index.shown & ~index.headed & named[graph.statements.origin])
    rows_of = group_by_key(ends, graph.statements.origin[ends])
    producers, blocks, readers_of = index.producers, index.blocks, index.readers_of
    for number, (known, origin, whole, values) in zip(able, places, strict=True):
        if not known:
            continue
        # Use a statement of the origin that the id names. If there is none, use the origin without the part from ``!``
        # on. If there is none either, use a statement that makes or reads one of the site's values.
        if here := rows_of.get(origin, ()):
            makers = {producers[value] for value in values}
            found = next((row for row in here if row in makers), -1)
            if found < 0:
                readers = {reader for value in values for reader in readers_of(value)}
                found = next((row for row in here if row in readers), here[-1])
        elif above := rows_of.get(whole, ()):
            found = above[0]
        else:
            found = producers[values[0]] if values else -1
            if found < 0:
                found = next((producers[value] for value in values if producers[value] >= 0), -1)
            if found < 0:
                found = next((row for value in values for row in readers_of(value)), -1)
        if found >= 0:
            marks.append(Mark(number, found, blocks[found]))
        else:
            unplaced.append(number)
    return marks, unplaced
