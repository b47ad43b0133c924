"""The U layout: where statements, fusions, source lines and arcs stand, as arrays. A pure function of graph and sites.

Forward statements run down the left column, backward statements up the right one, each at the height of the user's
statement (origin) that it computes or differentiates. Only heights are decided here: `Columns` turns a column into
x positions, so that the same layout fits a narrow notebook, a wide screen and a picture.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from workbench.graph import BACKWARD, FORWARD, Graph, Kind, StatementFlag
from workbench.levers.base import Site

ROW = 20.0
"""Height of a statement, in pixels at zoom 1; also the height between two arcs that leave one statement."""
NODE_GAP = 3.0
"""Part of a row that stays empty under a statement."""
BLOCK_PAD = 4.0
"""Empty height at the top and at the bottom of a block."""
SECTION = 26.0
"""Height of a layer's heading."""
NARROWEST = 440.0
"""A narrower view is scrolled sideways."""
HEADER = 30.0
"""Height above the first block, for the columns' headings."""

SAVED = "saved"
"""The lever whose sites always run from the forward to the backward."""
REMAT = "remat"
CROSSING = (SAVED, REMAT)
"""Levers whose sites are values on their way, drawn as arcs. Any other lever's sites are marks on a statement."""

_LAYER = re.compile(r"^(.*?(?:^|\.)\d+)(?:\.|$)")
_PLACE_END = re.compile(r"[><\[~]")
"""What follows an origin's id in the place that a site's id names."""
_DIGITS = re.compile(r"\d+")
_HIDDEN = (Kind.ARGUMENT, Kind.RETURN)

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


class Style(IntEnum):
    """How an arc is drawn, from what the plan makes of its site."""

    SAVED = 0
    RECOMPUTED = 1
    OFFLOADED = 2


class Shape(IntEnum):
    """Where an arc runs."""

    CROSS = 0
    """From the left column to the right one."""
    SIDE = 1
    """Between two statements of one column."""
    STUB = 2
    """To the lower edge of a folded layer, whose hidden neighbour reads the value."""


@dataclass(frozen=True)
class Nodes:
    """One row per box drawn: a statement, the heading of a fusion, or the ghost of a value kept nowhere.

    Attributes
    ----------
    statement : int32
        Index into the graph's statements; -1 for a ghost.
    ghost : int32
        For a ghost the site whose value the forward no longer makes; -1 otherwise.
    side, block, fusion : int8, int32, int32
        Column, row of `Blocks`, and the fusion that the node heads or belongs to (a statement index, or -1).
    heading : bool
        Whether the node is the heading of its fusion.
    y, height : float32
        Upper edge and height, in pixels at zoom 1.
    """

    statement: Ints
    ghost: Ints
    side: NDArray[np.int8]
    block: Ints
    fusion: Ints
    heading: NDArray[np.bool_]
    y: Floats
    height: Floats

    def __len__(self) -> int:
        return len(self.statement)


@dataclass(frozen=True)
class Blocks:
    """One row per user statement shown: its origin (-1: none) and its vertical extent."""

    origin: Ints
    y: Floats
    height: Floats

    def __len__(self) -> int:
        return len(self.origin)


@dataclass(frozen=True)
class Lines:
    """Consecutive blocks that come from one source line: first block, number of blocks, extent."""

    block: Ints
    count: Ints
    y: Floats
    height: Floats


@dataclass(frozen=True)
class Runs:
    """Vertical pieces of a fusion's box: consecutive members in one column."""

    fusion: Ints
    side: NDArray[np.int8]
    y: Floats
    height: Floats


@dataclass(frozen=True)
class Section:
    """The heading of a layer, or of identical layers folded into one.

    Attributes
    ----------
    stem : str
        What folds and unfolds together: ``layers`` of ``layers.0``.
    first, last : str
        Scopes of the first and last layer that it stands for.
    count : int
        Number of layers that it stands for.
    identical : int
        Number of consecutive identical layers around it: above 1, it can be folded.
    y, height : float
        Extent with the layer's blocks, in pixels at zoom 1.
    """

    stem: str
    first: str
    last: str
    count: int
    identical: int
    y: float
    height: float


@dataclass(frozen=True)
class Arcs:
    """One row per arc.

    Attributes
    ----------
    sites : tuple of tuple of int
        Indices of the sites that it shows; the first is the one that a click turns. A folded layer's arc has
        those of all layers that it stands for in `peers`.
    peers : tuple of tuple of int
        The first sites of the same arc in all layers that the arc stands for, its own included.
    source, target : int32
        Node indices; -1 where the end is a folded layer's edge.
    side : int8
        Column of a `Shape.SIDE` arc.
    shape, style : int8
        `Shape` and `Style`.
    y0, y1 : float32
        Heights of its ends.
    bytes : int64
        Bytes of one value.
    """

    sites: tuple[tuple[int, ...], ...]
    peers: tuple[tuple[int, ...], ...]
    source: Ints
    target: Ints
    side: NDArray[np.int8]
    shape: NDArray[np.int8]
    style: NDArray[np.int8]
    y0: Floats
    y1: Floats
    bytes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sites)


@dataclass(frozen=True)
class Marks:
    """One row per mark: a choice shown on a statement.

    Attributes
    ----------
    site : tuple of int
        Index of its site.
    peers : tuple of tuple of int
        The sites of the same mark in all layers that it stands for, its own included.
    node, place : int32
        The node that carries it, and how many other marks stand to the right of it there.
    """

    site: tuple[int, ...]
    peers: tuple[tuple[int, ...], ...]
    node: Ints
    place: Ints

    def __len__(self) -> int:
        return len(self.site)


@dataclass(frozen=True)
class Layout:
    """Everything that is drawn. Heights are pixels at zoom 1, from the top.

    Attributes
    ----------
    node_of : int32
        For each statement of the graph the node that shows it (in a folded layer its representative), or -1.
    unplaced : tuple of int
        Sites about values that the graph does not show; they are reached through the table of sites.
    """

    nodes: Nodes
    blocks: Blocks
    lines: Lines
    runs: Runs
    sections: tuple[Section, ...]
    arcs: Arcs
    marks: Marks
    node_of: Ints
    unplaced: tuple[int, ...]
    height: float


@dataclass(frozen=True)
class Columns:
    """Horizontal extents of the columns, in pixels at zoom 1."""

    label: tuple[float, float]
    forward: tuple[float, float]
    backward: tuple[float, float]
    width: float

    @classmethod
    def fit(cls, width: float) -> Columns:
        """Share `width` among label, forward, gap and backward. ``graph_view.js`` computes the same."""
        width = max(width, NARROWEST)
        margin, space = 12.0, 18.0
        free = width - 2 * margin - space
        label, box = free * 0.27, free * 0.27
        forward = margin + label + space
        backward = width - margin - box
        return cls((margin, margin + label), (forward, forward + box), (backward, backward + box), width)


@dataclass(frozen=True)
class _Index:
    """Look-ups over the graph's tables. Blocks are numbered by origin plus one; 0 is what has no origin at all."""

    shown: NDArray[np.bool_]
    headed: NDArray[np.bool_]
    block: Ints
    producer: Ints
    readers_start: Ints
    readers: Ints

    @classmethod
    def of(cls, graph: Graph) -> _Index:
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
        return self.readers[self.readers_start[value] : self.readers_start[value + 1]].tolist()


@dataclass(frozen=True)
class _Arc:
    """An arc before heights are known. Ends are statements; a `source` of -1 is a ghost in `block`."""

    sites: tuple[int, ...]
    source: int
    block: int
    targets: tuple[int, ...]
    style: Style
    bytes: int
    peers: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Mark:
    """A mark before nodes are known: on a statement, in its block."""

    site: int
    statement: int
    block: int
    peers: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Span:
    """Consecutive blocks of one layer; `layer` is empty between layers."""

    layer: str
    blocks: tuple[int, ...]

    @property
    def stem(self) -> str:
        return self.layer.rpartition(".")[0] or self.layer


@dataclass(frozen=True)
class _Fold:
    """Which spans are shown, for how many layers each stands, and what stands for what is hidden."""

    shown: tuple[_Span, ...]
    stands_for: tuple[tuple[_Span, ...], ...]
    identical: tuple[int, ...]
    twin: Ints
    """For each statement the one that is shown in its place; -1 where it is shown itself."""


def style_of(site: Site) -> Style:
    """How the arc of a site is drawn."""
    outcome = site.outcome or site.choice
    return {"recompute": Style.RECOMPUTED, "offload": Style.OFFLOADED}.get(outcome, Style.SAVED)


def compute(graph: Graph, sites: Sequence[Site] = (), *, unfolded: Collection[str] = ()) -> Layout:
    """Lay out a graph.

    Parameters
    ----------
    graph : Graph
        What is drawn; a fusion is drawn as its members in a box.
    sites : sequence of Site
        Those with `values` become arcs.
    unfolded : collection of str
        Stems of layer scopes, such as ``layers``, whose identical layers are shown one by one.
    """
    index = _Index.of(graph)
    arcs, lost = _arcs(graph, sites, index)
    marks, unmarked = _marks(graph, sites, index)
    fold = _fold(graph, index, sites, arcs, marks, unfolded)
    arcs = [replace(arc, peers=tuple(p.sites[0] for p in peers)) for arc, peers in _folded(arcs, fold)]
    marks = [replace(mark, peers=tuple(p.site for p in peers)) for mark, peers in _folded(marks, fold)]
    nodes, ghosts = _nodes(graph, index, fold, arcs)
    node_of = _node_of(graph, nodes, fold)
    nodes, blocks, sections, height = _heights(nodes, arcs, node_of, ghosts, fold)
    return Layout(
        nodes=nodes,
        blocks=blocks,
        lines=_lines(graph, blocks, sections),
        runs=_runs(nodes),
        sections=sections,
        arcs=_place_arcs(arcs, graph, nodes, node_of, ghosts, fold, sections),
        marks=_place_marks(marks, node_of),
        node_of=node_of,
        unplaced=(*lost, *unmarked),
        height=height,
    )


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


def _arcs(graph: Graph, sites: Sequence[Site], index: _Index) -> tuple[list[_Arc], list[int]]:
    """One arc for each value that sites are about; what crosses to the backward is one arc for all levers."""
    found: dict[tuple[int | str, bool], _Arc] = {}
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


def _marks(graph: Graph, sites: Sequence[Site], index: _Index) -> tuple[list[_Mark], list[int]]:
    """Marks of the sites that are not arcs; those about nothing that is shown come second."""
    marks: list[_Mark] = []
    unplaced: list[int] = []
    origins = {origin.id: number for number, origin in enumerate(graph.origins)}
    statements = graph.statements
    ends = index.shown & ~index.headed
    rows_of: dict[int, list[int]] = {}
    for row in np.flatnonzero(ends).tolist():
        rows_of.setdefault(int(statements.origin[row]), []).append(row)
    for number, site in enumerate(sites):
        if site.lever in CROSSING or (not site.values and not _place(site)):
            continue
        values = [graph.value_index[name] for name in site.values if name in graph.value_index]
        here = rows_of.get(origins.get(_place(site), -1), [])
        makers = [int(index.producer[value]) for value in values if index.producer[value] >= 0]
        readers = [reader for value in values for reader in index.readers_of(value)]
        # The statement that the id names; where the choice took it away, what it belonged to, or who has its value.
        there = [row for row in here if row in makers] or [row for row in here if row in readers] or here[-1:]
        found = [*there, *rows_of.get(origins.get(_place(site).partition("!")[0], -1), []), *makers, *readers]
        if found:
            marks.append(_Mark(number, found[0], int(index.block[found[0]])))
        else:
            unplaced.append(number)
    return marks, unplaced


def _place_marks(marks: list[_Mark], node_of: Ints) -> Marks:
    """Give marks their nodes, and those of one node places side by side."""
    node = node_of[np.asarray([mark.statement for mark in marks], np.int64)]
    used: dict[int, int] = {}
    place = []
    for at in node.tolist():
        place.append(used.get(at, 0))
        used[at] = place[-1] + 1
    return Marks(
        site=tuple(mark.site for mark in marks),
        peers=tuple(mark.peers for mark in marks),
        node=node.astype(np.int32),
        place=np.asarray(place, np.int32),
    )


def _arc(graph: Graph, index: _Index, number: int, site: Site, root: int, values: list[int], block: int) -> _Arc | None:
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
    return _Arc((number,), source, block, targets, style_of(site), size)


def _reloads(graph: Graph, index: _Index, values: Sequence[int]) -> tuple[int, ...]:
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


def _clones(graph: Graph, index: _Index, name: str, block: int) -> tuple[int, ...]:
    """Backward statements that compute a block's value again; without one, what else the backward does there."""
    statements = graph.statements
    here = (statements.side == BACKWARD) & index.shown & ~index.headed & (index.block == block)
    again = here & ((statements.flags & StatementFlag.CLONE) != 0)
    rows = np.flatnonzero(again if again.any() else here).tolist()
    return tuple(row for row in rows if statements.name[row] == name) or tuple(rows)


def _layer(scope: str) -> str:
    match = _LAYER.match(scope)
    return match.group(1) if match else ""


def _spans(graph: Graph, index: _Index) -> list[_Span]:
    spans: list[_Span] = []
    for block in np.unique(index.block[index.shown]).tolist():
        layer = _layer(graph.origins[block - 1].scope) if block else ""
        if spans and spans[-1].layer == layer:
            spans[-1] = _Span(layer, (*spans[-1].blocks, block))
        else:
            spans.append(_Span(layer, (block,)))
    return spans


def _members(index: _Index, side: NDArray[np.int8]) -> dict[int, list[int]]:
    """Statements of each block, forward first, in program order."""
    rows = np.flatnonzero(index.shown & ~index.headed)
    rows = rows[np.lexsort((rows, side[rows], index.block[rows]))]
    members: dict[int, list[int]] = {}
    for row, block in zip(rows.tolist(), index.block[rows].tolist(), strict=True):
        members.setdefault(block, []).append(row)
    return members


def _by_block[T: (_Arc, _Mark)](found: Sequence[T]) -> dict[int, list[T]]:
    rows: dict[int, list[T]] = {}
    for one in found:
        rows.setdefault(one.block, []).append(one)
    return rows


def _fold(
    graph: Graph,
    index: _Index,
    sites: Sequence[Site],
    arcs: list[_Arc],
    marks: list[_Mark],
    unfolded: Collection[str],
) -> _Fold:
    """Find runs of identical layers and choose what is shown of them."""
    spans = _spans(graph, index)
    side = graph.statements.side
    members = _members(index, side)
    names = [_DIGITS.sub("", name) for name in graph.statements.name]
    arcs_of, marks_of = _by_block(arcs), _by_block(marks)

    def signature(span: _Span) -> tuple[object, ...]:
        return tuple(
            (
                graph.origins[block - 1].symbol if block else "",
                tuple((names[row], int(side[row])) for row in members.get(block, ())),
                tuple((arc.style, arc.bytes, len(arc.sites)) for arc in arcs_of.get(block, ())),
                tuple(
                    (within(span, sites[mark.site].choice), within(span, sites[mark.site].outcome))
                    for mark in marks_of.get(block, ())
                ),
            )
            for block in span.blocks
        )

    def within(span: _Span, option: str) -> str:
        # A place in the layer itself is the same place in each.
        place = option.removeprefix(f"at({span.layer}")
        return place if place.startswith((".", "/")) else option

    shown: list[_Span] = []
    stands_for: list[tuple[_Span, ...]] = []
    identical: list[int] = []
    twin = np.full(len(graph.statements), -1, np.int32)
    start = 0
    while start < len(spans):
        first, stop = spans[start], start + 1
        if first.layer:
            same = signature(first)
            while stop < len(spans) and spans[stop].stem == first.stem and signature(spans[stop]) == same:
                stop += 1
        run = spans[start:stop]
        groups = [[span] for span in run] if first.stem in unfolded else [run]
        for group in groups:
            shown.append(group[0])
            stands_for.append(tuple(group))
            identical.append(len(run))
            for span in group[1:]:
                for mine, other in zip(group[0].blocks, span.blocks, strict=True):
                    twin[members.get(other, [])] = members.get(mine, [])
        start = stop
    return _Fold(tuple(shown), tuple(stands_for), tuple(identical), twin)


def _folded[T: (_Arc, _Mark)](found: list[T], fold: _Fold) -> list[tuple[T, tuple[T, ...]]]:
    """What starts in the layers that are shown, each with all that it stands for."""
    rows = _by_block(found)
    return [
        (one, tuple(rows[layer.blocks[offset]][place] for layer in layers))
        for span, layers in zip(fold.shown, fold.stands_for, strict=True)
        for offset, block in enumerate(span.blocks)
        for place, one in enumerate(rows.get(block, ()))
    ]


def _nodes(graph: Graph, index: _Index, fold: _Fold, arcs: list[_Arc]) -> tuple[Nodes, dict[int, int]]:
    """Nodes in the order in which they stand: by block, column, and downwards. Ghosts come by their site."""
    statements = graph.statements
    blocks = np.asarray([block for span in fold.shown for block in span.blocks], np.int32)
    rows = np.flatnonzero(index.shown & ~index.headed & np.isin(index.block, blocks))
    side = statements.side[rows]
    parent = statements.parent[rows]
    key = np.where(side == FORWARD, rows, -rows).astype(float)
    # A fusion's heading stands right above its uppermost member, in both columns.
    upward = np.lexsort((key, index.block[rows]))
    fused = upward[parent[upward] >= 0]
    heads, first = np.unique(parent[fused], return_index=True)
    top = fused[first]
    ghosts = [arc for arc in arcs if arc.source < 0]
    none = np.full(len(ghosts), -1)
    table = {
        "statement": np.concatenate([rows, heads, none]),
        "ghost": np.concatenate([np.full(len(rows) + len(heads), -1), [arc.sites[0] for arc in ghosts]]),
        "side": np.concatenate([side, side[top], np.full(len(ghosts), FORWARD)]),
        "block": np.concatenate([index.block[rows], index.block[rows][top], [arc.block for arc in ghosts]]),
        "fusion": np.concatenate([parent, heads, none]),
        "heading": np.repeat([False, True, False], [len(rows), len(heads), len(ghosts)]),
        "key": np.concatenate([key, key[top] - 0.5, np.full(len(ghosts), np.inf)]),
    }
    order = np.lexsort((table["key"], table["side"], table["block"]))
    nodes = Nodes(
        statement=table["statement"][order].astype(np.int32),
        ghost=table["ghost"][order].astype(np.int32),
        side=table["side"][order].astype(np.int8),
        block=np.searchsorted(blocks, table["block"][order]).astype(np.int32),
        fusion=table["fusion"][order].astype(np.int32),
        heading=table["heading"][order],
        y=np.zeros(len(order), np.float32),
        height=np.full(len(order), ROW, np.float32),
    )
    return nodes, {int(nodes.ghost[i]): int(i) for i in np.flatnonzero(nodes.ghost >= 0)}


def _node_of(graph: Graph, nodes: Nodes, fold: _Fold) -> Ints:
    node_of = np.full(len(graph.statements), -1, np.int32)
    real = np.flatnonzero(nodes.statement >= 0)
    node_of[nodes.statement[real]] = real
    hidden = np.flatnonzero(fold.twin >= 0)
    node_of[hidden] = node_of[fold.twin[hidden]]
    return node_of


def _source_nodes(arcs: list[_Arc], node_of: Ints, ghosts: dict[int, int]) -> list[int]:
    return [ghosts[arc.sites[0]] if arc.source < 0 else int(node_of[arc.source]) for arc in arcs]


def _heights(
    nodes: Nodes, arcs: list[_Arc], node_of: Ints, ghosts: dict[int, int], fold: _Fold
) -> tuple[Nodes, Blocks, tuple[Section, ...], float]:
    """Stack nodes in blocks and blocks under each other."""
    ports = np.bincount(np.asarray(_source_nodes(arcs, node_of, ghosts), np.int64), minlength=len(nodes))
    height = (ROW * np.maximum(ports, 1)).astype(np.float64)
    column = nodes.block.astype(np.int64) * 2 + nodes.side
    above = np.concatenate([[0.0], np.cumsum(height)])
    first = np.searchsorted(column, column, side="left")
    within = above[:-1] - above[first]

    origins = np.asarray([block - 1 for span in fold.shown for block in span.blocks], np.int32)
    count = len(origins)
    filled = np.zeros(2 * count)
    np.maximum.at(filled, column, within + height)
    block_height = np.maximum(filled.reshape(count, 2).max(axis=1, initial=0.0), ROW) + 2 * BLOCK_PAD
    starts = np.cumsum([0, *(len(span.blocks) for span in fold.shown)])
    heading = np.zeros(count)
    for number, span in enumerate(fold.shown):
        # What follows a layer without being one starts a little lower, so that the layer's end shows.
        heading[starts[number]] = SECTION if span.layer else BLOCK_PAD
    block_y = HEADER + np.cumsum(heading + block_height) - block_height
    bottom = block_y + block_height
    sections = tuple(
        Section(
            stem=span.stem,
            first=span.layer,
            last=layers[-1].layer,
            count=len(layers),
            identical=identical,
            y=float(block_y[starts[number]] - SECTION),
            height=float(bottom[starts[number + 1] - 1] - block_y[starts[number]] + SECTION),
        )
        for number, (span, layers, identical) in enumerate(
            zip(fold.shown, fold.stands_for, fold.identical, strict=True)
        )
        if span.layer
    )
    placed = replace(
        nodes,
        y=(block_y[nodes.block] + BLOCK_PAD + within).astype(np.float32),
        height=(height - NODE_GAP).astype(np.float32),
    )
    blocks = Blocks(origins, block_y.astype(np.float32), block_height.astype(np.float32))
    return placed, blocks, sections, float(bottom[-1] if count else HEADER) + ROW


def _lines(graph: Graph, blocks: Blocks, sections: tuple[Section, ...]) -> Lines:
    """Join consecutive blocks of one source line, within one layer."""
    breaks = {section.y + SECTION for section in sections}
    starts: list[int] = []
    place: tuple[str, int] | None = None
    for row, origin in enumerate(blocks.origin.tolist()):
        here = (graph.origins[origin].file, graph.origins[origin].line) if origin >= 0 else ("", 0)
        if here != place or not here[0] or float(blocks.y[row]) in breaks:
            starts.append(row)
        place = here
    first = np.asarray(starts, np.int32)
    stop = np.append(first[1:], len(blocks)).astype(np.int32)
    y = blocks.y[first]
    end = (blocks.y + blocks.height)[stop - 1] if len(first) else y
    return Lines(first, stop - first, y, (end - y).astype(np.float32))


def _runs(nodes: Nodes) -> Runs:
    """Join consecutive members of one fusion in one column."""
    order = np.lexsort((nodes.y, nodes.side))
    fusion, side = nodes.fusion[order], nodes.side[order]
    new = np.ones(len(order), bool)
    new[1:] = (fusion[1:] != fusion[:-1]) | (side[1:] != side[:-1])
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(order)) - 1
    keep = fusion[first] >= 0 if len(order) else np.zeros(0, bool)
    first, last = first[keep], last[keep[: len(last)]]
    top, bottom = order[first], order[last]
    return Runs(
        fusion=nodes.fusion[top],
        side=nodes.side[top],
        y=nodes.y[top],
        height=nodes.y[bottom] + nodes.height[bottom] - nodes.y[top],
    )


def _place_arcs(
    arcs: list[_Arc],
    graph: Graph,
    nodes: Nodes,
    node_of: Ints,
    ghosts: dict[int, int],
    fold: _Fold,
    sections: tuple[Section, ...],
) -> Arcs:
    """Give arcs their ends: each its own height at its source, the nearest reader as its target."""
    sources = _source_nodes(arcs, node_of, ghosts)
    used: dict[int, int] = {}
    target, side, shape, y0, y1 = [], [], [], [], []
    for arc, source in zip(arcs, sources, strict=True):
        port = used.get(source, 0)
        used[source] = port + 1
        start = float(nodes.y[source]) + port * ROW + (ROW - NODE_GAP) / 2
        visible = [t for t in arc.targets if fold.twin[t] < 0] or []
        ends = node_of[np.asarray(visible or arc.targets, np.int64)]
        middle = nodes.y[ends] + nodes.height[ends] / 2
        nearest = int(np.argmin(np.abs(middle - start)))
        section = next((s for s in sections if s.count > 1 and s.y <= start < s.y + s.height), None)
        side.append(int(nodes.side[source]))
        if not visible and section is not None:
            shape.append(Shape.STUB)
            target.append(-1)
            y1.append(section.y + section.height - BLOCK_PAD / 2)
        else:
            across = int(nodes.side[ends[nearest]]) != int(nodes.side[source])
            shape.append(Shape.CROSS if across else Shape.SIDE)
            target.append(int(ends[nearest]))
            y1.append(float(middle[nearest]))
        y0.append(start)
    return Arcs(
        sites=tuple(arc.sites for arc in arcs),
        peers=tuple(arc.peers for arc in arcs),
        source=np.asarray(sources, np.int32),
        target=np.asarray(target, np.int32),
        side=np.asarray(side, np.int8),
        shape=np.asarray(shape, np.int8),
        style=np.asarray([arc.style for arc in arcs], np.int8),
        y0=np.asarray(y0, np.float32),
        y1=np.asarray(y1, np.float32),
        bytes=np.asarray([arc.bytes for arc in arcs], np.int64),
    )
