"""The U layout: where statements, fusions, source lines and arcs stand, as arrays. A pure function of graph and sites.

Forward statements run down the left column, backward statements up the right one, each at the height of the user's
statement (origin) that it computes or differentiates. Only heights are decided here: `Columns` turns a column into
x positions, so that the same layout fits a narrow notebook, a wide screen and a picture.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from workbench.graph import BACKWARD, FORWARD, Graph, Kind
from workbench.lever import Site
from workbench.ui.drawing import (
    BLOCK_PAD,
    HEADER,
    NODE_GAP,
    ROW,
    SECTION,
    TIGHTEST,
    Arcs,
    Blocks,
    Ints,
    Layout,
    Lines,
    Marks,
    Nodes,
    Runs,
    Section,
    Shape,
)
from workbench.ui.ends import Arc, Index, Mark, arcs_of_sites, marks_of_sites
from workbench.ui.hiding import Hidden, arcs_through, hide, marks_through, without

_LAYER = re.compile(r"^(.*?(?:^|\.)\d+)(?:\.|$)")


type _Signature = tuple[tuple[str, object, object, object], ...]
"""Per block of a layer its symbol, statements, arcs and marks: what has to be the same for layers to be folded."""


_DIFFERENCES = ((2, "another choice, or other bytes,"), (3, "another choice"), (1, "other statements"))
"""What it means where these parts of a signature differ; a choice comes first, for other statements come of it."""


_DIGITS = re.compile(r"\d+")


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
    differs: tuple[str, ...]
    twin: Ints
    """For each statement the one that is shown in its place; -1 where it is shown itself."""


def compute(
    graph: Graph,
    sites: Sequence[Site] = (),
    *,
    unfolded: Collection[str] = (),
    views: bool = True,
    kept: Mapping[str, float] = MappingProxyType({}),
) -> Layout:
    """Lay out a graph.

    Parameters
    ----------
    graph : Graph
        What is drawn; a fusion is drawn as its members in a box.
    sites : sequence of Site
        Those with `values` become arcs.
    unfolded : collection of str
        Stems of layer scopes, such as ``layers``, whose identical layers are shown one by one; ``waits:`` with the name
        of what the first of them makes, for waits of one moment that are.
    views : bool
        Whether views are drawn; else edges go through them, and what sits on one stands where its storage does.
    kept : mapping of str to float
        Heights that blocks had before, by `block_key`, in pixels: what is new in a block is put closer together
        there, down to `TIGHTEST`, so that no other block moves.
    """
    index = Index.of(graph)
    arcs, lost = arcs_of_sites(graph, sites, index)
    marks, unmarked = marks_of_sites(graph, sites, index)
    hidden = Hidden(np.full(len(graph.statements), -1, np.int32))
    if not views:
        hidden = hide(graph, index, arcs, ["", *(_layer(origin.scope) for origin in graph.origins)])
        arcs = arcs_through(graph, index, arcs, hidden)
        marks = marks_through(index, marks, hidden)
        index = without(index, hidden)
    fold = _fold(graph, index, sites, arcs, marks, unfolded)
    arcs = [replace(arc, peers=tuple(p.sites[0] for p in peers)) for arc, peers in _folded(arcs, fold)]
    marks = [replace(mark, peers=tuple(p.site for p in peers)) for mark, peers in _folded(marks, fold)]
    moments = _moments(graph, index, sites, marks, fold)
    opened = [moment for moment in moments if waits_key(graph, moment[0]) in unfolded]
    closed = [moment for moment in moments if waits_key(graph, moment[0]) not in unfolded]
    marks = _of_moments(marks, closed)
    nodes, ghosts = _nodes(graph, index, fold, arcs, closed, opened)
    node_of = _node_of(graph, nodes, fold, closed, hidden)
    heights = [kept.get(block_key(graph, block - 1), 0.0) for span in fold.shown for block in span.blocks]
    nodes, blocks, sections, height = _heights(nodes, arcs, node_of, ghosts, fold, np.asarray(heights))
    return Layout(
        nodes=nodes,
        blocks=blocks,
        lines=_lines(graph, blocks, sections),
        runs=_runs(nodes),
        sections=sections,
        arcs=_place_arcs(arcs, graph, nodes, node_of, ghosts, fold, sections),
        marks=_place_marks(marks, node_of),
        node_of=node_of,
        hidden=hidden.rows,
        unplaced=(*lost, *unmarked),
        height=height,
    )


def block_key(graph: Graph, origin: int) -> str:
    """What the block of an origin is called as long as the program is the same; empty for none."""
    return graph.origins[origin].id if origin >= 0 else ""


def waits_key(graph: Graph, statement: int) -> str:
    """What a wait's moment is called where it is to be shown wait by wait."""
    return f"waits:{graph.values.name[graph.statements.outputs[statement][0]]}"


def _moments(
    graph: Graph, index: Index, sites: Sequence[Site], marks: list[Mark], fold: _Fold
) -> list[tuple[int, ...]]:
    """Waits that follow each other with nothing between and are chosen alike, two or more: the uppermost first."""
    statements = graph.statements
    chosen: dict[int, list[tuple[str, str]]] = {}
    for mark in marks:
        chosen.setdefault(mark.statement, []).append((sites[mark.site].choice, sites[mark.site].outcome))
    shown = {block for span in fold.shown for block in span.blocks}
    found: list[tuple[int, ...]] = []
    for side in (FORWARD, BACKWARD):
        rows = np.flatnonzero(index.shown & ~index.headed & (statements.side == side)).tolist()
        alike = [
            (int(index.block[row]), *chosen.get(row, ()))
            if statements.kind[row] == Kind.WAIT
            and statements.parent[row] < 0
            and len(statements.outputs[row])
            and int(index.block[row]) in shown
            else None
            for row in rows
        ]
        for what, group in itertools.groupby(zip(alike, rows, strict=True), key=lambda pair: pair[0]):
            moment = [row for _, row in group]
            if what is not None and len(moment) > 1:
                found.append(tuple(moment if side == FORWARD else moment[::-1]))
    return found


def _of_moments(marks: list[Mark], closed: list[tuple[int, ...]]) -> list[Mark]:
    """Marks of waits that are shown as one stand on the first, each for those of all."""
    leader = {row: moment[0] for moment in closed for row in moment}
    on: dict[int, list[Mark]] = {}
    for mark in marks:
        on.setdefault(mark.statement, []).append(mark)
    kept = []
    for mark in marks:
        if leader.get(mark.statement, mark.statement) != mark.statement:
            continue
        place = on[mark.statement].index(mark)
        others = next((moment for moment in closed if moment[0] == mark.statement), (mark.statement,))
        kept.append(replace(mark, peers=tuple(peer for row in others for peer in on[row][place].peers)))
    return kept


def _place_marks(marks: list[Mark], node_of: Ints) -> Marks:
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


def _layer(scope: str) -> str:
    match = _LAYER.match(scope)
    return match.group(1) if match else ""


def _spans(graph: Graph, index: Index) -> list[_Span]:
    spans: list[_Span] = []
    for block in np.unique(index.block[index.shown]).tolist():
        layer = _layer(graph.origins[block - 1].scope) if block else ""
        if spans and spans[-1].layer == layer:
            spans[-1] = _Span(layer, (*spans[-1].blocks, block))
        else:
            spans.append(_Span(layer, (block,)))
    return spans


def _members(index: Index, side: NDArray[np.int8]) -> dict[int, list[int]]:
    """Statements of each block, forward first, in program order."""
    rows = np.flatnonzero(index.shown & ~index.headed)
    rows = rows[np.lexsort((rows, side[rows], index.block[rows]))]
    members: dict[int, list[int]] = {}
    for row, block in zip(rows.tolist(), index.block[rows].tolist(), strict=True):
        members.setdefault(block, []).append(row)
    return members


def _by_block[T: (Arc, Mark)](found: Sequence[T]) -> dict[int, list[T]]:
    rows: dict[int, list[T]] = {}
    for one in found:
        rows.setdefault(one.block, []).append(one)
    return rows


def _fold(
    graph: Graph,
    index: Index,
    sites: Sequence[Site],
    arcs: list[Arc],
    marks: list[Mark],
    unfolded: Collection[str],
) -> _Fold:
    """Find runs of identical layers and choose what is shown of them."""
    spans = _spans(graph, index)
    side = graph.statements.side
    members = _members(index, side)
    names = [_DIGITS.sub("", name) for name in graph.statements.name]
    arcs_of, marks_of = _by_block(arcs), _by_block(marks)

    def signature(span: _Span) -> _Signature:
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
    differs: list[str] = []
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
            above = shown[-2] if len(shown) > 1 and group[0].layer and shown[-2].stem == first.stem else None
            differs.append(_difference(signature(above), signature(group[0])) if above is not None else "")
            for span in group[1:]:
                for mine, other in zip(group[0].blocks, span.blocks, strict=True):
                    twin[members.get(other, [])] = members.get(mine, [])
        start = stop
    return _Fold(tuple(shown), tuple(stands_for), tuple(identical), tuple(differs), twin)


def _difference(above: _Signature, here: _Signature) -> str:
    """The first thing in which two layers differ, in words; empty where they are identical."""
    if [block[0] for block in above] != [block[0] for block in here]:
        return "other operations"
    for place, words in _DIFFERENCES:
        for one, other in zip(above, here, strict=True):
            if one[place] != other[place]:
                return f"{words} at {one[0]}" if one[0] else words
    return ""


def _folded[T: (Arc, Mark)](found: list[T], fold: _Fold) -> list[tuple[T, tuple[T, ...]]]:
    """What starts in the layers that are shown, each with all that it stands for."""
    rows = _by_block(found)
    return [
        (one, tuple(rows[layer.blocks[offset]][place] for layer in layers))
        for span, layers in zip(fold.shown, fold.stands_for, strict=True)
        for offset, block in enumerate(span.blocks)
        for place, one in enumerate(rows.get(block, ()))
    ]


def _nodes(
    graph: Graph,
    index: Index,
    fold: _Fold,
    arcs: list[Arc],
    closed: list[tuple[int, ...]],
    opened: list[tuple[int, ...]],
) -> tuple[Nodes, dict[int, int]]:
    """Nodes in the order in which they stand: by block, column, and downwards. Ghosts come by their site."""
    statements = graph.statements
    blocks = np.asarray([block for span in fold.shown for block in span.blocks], np.int32)
    visible = index.shown & ~index.headed & np.isin(index.block, blocks)
    visible[[row for moment in closed for row in moment[1:]]] = False
    rows = np.flatnonzero(visible)
    waits = np.zeros(len(statements) + 1, np.int32)  # the last is for ghosts, whose statement is -1
    waits[[moment[0] for moment in closed]] = [len(moment) for moment in closed]
    waits[[moment[0] for moment in opened]] = [-len(moment) for moment in opened]
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
        waits=waits[table["statement"][order]],
        y=np.zeros(len(order), np.float32),
        height=np.full(len(order), ROW, np.float32),
    )
    return nodes, {int(nodes.ghost[i]): int(i) for i in np.flatnonzero(nodes.ghost >= 0)}


def _node_of(graph: Graph, nodes: Nodes, fold: _Fold, closed: list[tuple[int, ...]], hidden: Hidden) -> Ints:
    node_of = np.full(len(graph.statements), -1, np.int32)
    real = np.flatnonzero(nodes.statement >= 0)
    node_of[nodes.statement[real]] = real
    for moment in closed:
        node_of[list(moment[1:])] = node_of[moment[0]]
    folded = np.flatnonzero(fold.twin >= 0)
    node_of[folded] = node_of[fold.twin[folded]]
    # A fusion in a folded layer is shown by the heading of its members' twins.
    parent = graph.statements.parent
    fused = folded[parent[folded] >= 0]
    node_of[parent[fused]] = np.maximum(node_of[parent[fused]], node_of[parent[fold.twin[fused]]])
    node_of[hidden.rows] = node_of[hidden.stand_in[hidden.rows]]
    return node_of


def _source_nodes(arcs: list[Arc], node_of: Ints, ghosts: dict[int, int]) -> list[int]:
    return [ghosts[arc.sites[0]] if arc.source < 0 else int(node_of[arc.source]) for arc in arcs]


def _heights(
    nodes: Nodes,
    arcs: list[Arc],
    node_of: Ints,
    ghosts: dict[int, int],
    fold: _Fold,
    kept: NDArray[np.float64],
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
    natural = np.maximum(filled.reshape(count, 2).max(axis=1, initial=0.0), ROW) + 2 * BLOCK_PAD
    # What became more keeps to the height that was there.
    room = kept - BLOCK_PAD
    tight = (kept > 0) & (natural > kept) & (room / (natural - 2 * BLOCK_PAD) >= TIGHTEST / ROW)
    block_height = np.where(tight, kept, np.maximum(natural, kept))
    squeezed = np.repeat(tight, 2) & (filled > np.repeat(room, 2))
    factor = np.where(squeezed, np.repeat(room, 2) / np.maximum(filled, 1.0), 1.0)[column]
    pad = np.where(squeezed, BLOCK_PAD / 2, BLOCK_PAD)[column]
    gap = np.where(squeezed, NODE_GAP / 2, NODE_GAP)[column]
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
            differs=differs,
            y=float(block_y[starts[number]] - SECTION),
            height=float(bottom[starts[number + 1] - 1] - block_y[starts[number]] + SECTION),
        )
        for number, (span, layers, identical, differs) in enumerate(
            zip(fold.shown, fold.stands_for, fold.identical, fold.differs, strict=True)
        )
        if span.layer
    )
    placed = replace(
        nodes,
        y=(block_y[nodes.block] + pad + within * factor).astype(np.float32),
        height=(height * factor - gap).astype(np.float32),
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
    arcs: list[Arc],
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
    ports = Counter(sources)
    target, side, shape, y0, y1 = [], [], [], [], []
    for arc, source in zip(arcs, sources, strict=True):
        port = used.get(source, 0)
        used[source] = port + 1
        start = float(nodes.y[source]) + float(nodes.height[source]) * (port + 0.5) / ports[source]
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
