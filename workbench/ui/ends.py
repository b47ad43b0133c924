"""What each site is drawn as: an arc from where its value is made to where it is read, or a mark on a statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

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

    def readers_of(self, value: int) -> list[int]:
        """Statements that read a value."""
        return self.readers[self.readers_start[value] : self.readers_start[value + 1]].tolist()


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
    outcome = site.outcome or site.choice
    return {"recompute": Style.RECOMPUTED, "offload": Style.OFFLOADED}.get(outcome, Style.SAVED)


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
    side = graph.statements.side
    # What is saved comes first: it owns the arc that crosses, and other levers' sites join it.
    for number in sorted(range(len(sites)), key=lambda n: sites[n].lever != SAVED):
        site = sites[number]
        if not site.values or site.lever not in CROSSING:
            continue
        values = [graph.value_index[name] for name in site.values if name in graph.value_index]
        root = next((v for v in values if index.producer[v] >= 0), values[0] if values else -1)
        key: int | str = root if root >= 0 else site.values[0]
        block = origins.get(_PLACE_END.split(_place(site), maxsplit=1)[0], -1) + 1
        arc = _arc(graph, index, number, site, root, values, block)
        if arc is None:
            unplaced.append(number)
            continue
        crosses = arc.source < 0 or any(side[target] != side[arc.source] for target in arc.targets)
        if (key, crosses) in found:
            first = found[key, crosses]
            found[key, crosses] = replace(first, sites=(*first.sites, number), style=max(first.style, arc.style))
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
    statements = graph.statements
    ends = index.shown & ~index.headed
    rows_of: dict[int, list[int]] = {}
    for row in np.flatnonzero(ends).tolist():
        rows_of.setdefault(int(statements.origin[row]), []).append(row)

    def rows_at(origin: str) -> list[int]:
        return rows_of.get(origins[origin], []) if origin in origins else []

    for number, site in enumerate(sites):
        if site.lever in CROSSING or (not site.values and not _place(site)):
            continue
        values = [graph.value_index[name] for name in site.values if name in graph.value_index]
        here = rows_at(_place(site))
        makers = [int(index.producer[value]) for value in values if index.producer[value] >= 0]
        readers = [reader for value in values for reader in index.readers_of(value)]
        # The statement that the id names; where the choice took it away, what it belonged to, or who has its value.
        there = [row for row in here if row in makers] or [row for row in here if row in readers] or here[-1:]
        found = [*there, *rows_at(_place(site).partition("!")[0]), *makers, *readers]
        if found:
            marks.append(Mark(number, found[0], int(index.block[found[0]])))
        else:
            unplaced.append(number)
    return marks, unplaced


def _arc(graph: Graph, index: Index, number: int, site: Site, root: int, values: list[int], block: int) -> Arc | None:
    side, parent = graph.statements.side, graph.statements.parent
    source = int(index.producer[root]) if root >= 0 else -1
    readers = [reader for value in values for reader in index.readers_of(value) if reader != source]
    across = [reader for reader in readers if side[reader] == BACKWARD]
    targets: tuple[int, ...]
    if source < 0 or (side[source] == BACKWARD and site.lever == SAVED):
        # The forward makes it no longer as a value of its own, or it is an argument: a ghost stands for it.
        again = (source,) if source >= 0 else tuple(across) or _clones(graph, index, "", block)
        block = int(index.block[again[0]]) if again and not block else block
        targets, source = again, -1
        if not targets:
            return None
    else:
        block = int(index.block[source])
        if style_of(site) is Style.OFFLOADED and (back := _reloads(graph, index, values)):
            targets = back
        elif side[source] == FORWARD and across:
            targets = tuple(across)
        elif side[source] == FORWARD and style_of(site) is Style.RECOMPUTED and site.lever == SAVED:
            targets = _clones(graph, index, graph.statements.name[source], block)
        else:
            other = [r for r in readers if parent[r] != parent[source] or parent[r] < 0]
            targets = tuple(other or readers)
        if not targets:
            return None
    size = site.bytes or (int(graph.values.bytes[root]) if root >= 0 else 0)
    return Arc((number,), source, block, targets, style_of(site), size)


def _reloads(graph: Graph, index: Index, values: Sequence[int]) -> tuple[int, ...]:
    """Statements that bring back what was taken off the device of `values`."""
    statements = graph.statements
    away = [
        int(kept)
        for value in values
        for reader in index.readers_of(value)
        if statements.kind[reader] == Kind.OFFLOAD
        for kept in statements.outputs[reader]
    ]
    return tuple(r for kept in away for r in index.readers_of(kept) if statements.kind[r] == Kind.RELOAD)


def _clones(graph: Graph, index: Index, name: str, block: int) -> tuple[int, ...]:
    """Backward statements that compute a block's value again; without one, what else the backward does there."""
    statements = graph.statements
    here = (statements.side == BACKWARD) & index.shown & ~index.headed & (index.block == block)
    again = here & ((statements.flags & StatementFlag.CLONE) != 0)
    rows = np.flatnonzero(again if again.any() else here).tolist()
    return tuple(row for row in rows if statements.name[row] == name) or tuple(rows)
