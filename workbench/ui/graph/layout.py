"""The U layout: positions of statements, fusions, source lines and arcs, as arrays.

Forward statements run down the left column, and backward statements run up the right column. A statement of the program
is a block. The statements that compute it and the statements that differentiate it are at the block's height. The
layout has only heights. `Columns` computes x positions for a given width, so that the same layout fits a narrow
notebook, a wide screen and a picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import FORWARD, Graph, layer_of
from workbench.core.lever import Site
from workbench.ui.graph.arcs import ArcTable
from workbench.ui.graph.composite_rows import composite_key, composites_of, merge_marks, moments_of, waits_key
from workbench.ui.graph.fold_layers import Fold, fold_marks, fold_of
from workbench.ui.graph.hide_views import HiddenViews, hide, hide_in_index, redirect_arcs, redirect_marks
from workbench.ui.graph.layout_arrays import (
    BLOCK_PAD,
    HEADER,
    NODE_GAP,
    ROW,
    SECTION,
    TIGHTEST,
    Arcs,
    ArcShape,
    Blocks,
    FusionPieces,
    GraphLayout,
    Ints,
    Marks,
    Nodes,
    Section,
    SourceLines,
)
from workbench.ui.graph.site_anchors import Arc, GraphIndex, Mark, marks_of_sites
from workbench.util.last_call_cache import Remembered


def compute(
    graph: Graph,
    sites: Sequence[Site] = (),
    *,
    unfolded: Collection[str] = (),
    views: bool = True,
    composites: bool = False,
    earlier_heights: Mapping[str, float] = MappingProxyType({}),
    remembered: Remembered | None = None,
) -> GraphLayout:
    """Lay out a graph.

    Parameters
    ----------
    graph : Graph
        The graph to draw; a fusion is drawn as a box around its members.
    sites : sequence of Site
        Sites of the levers `saved` and `remat` with `values` become arcs. Sites of other levers become marks.
    unfolded : collection of str
        Keys of groups whose members are shown one by one: stems of layer scopes, such as ``layers``, for identical
        layers; `waits_key` for adjacent waits; `composite_key` for the statements of one program statement. A single
        layer, such as ``layers.17``, is shown apart from the layers that are identical to it.
    views : bool
        Whether to draw views. If not, they are hidden; see `workbench.ui.graph.hide_views`.
    composites : bool
        Whether to draw the statements of one program statement as one row in each column, except for composites in
        `unfolded`.
    earlier_heights : mapping of str to float
        First heights of blocks by `block_key`, in pixels. If a block gets more rows, they are packed into this
        height, so that no other block moves. If a row would become lower than `TIGHTEST`, the block grows.
    remembered : Remembered, optional
        Cache with unchanged parts of an earlier layout. It does not change the result.
    """
    remembered = remembered or Remembered()
    index = GraphIndex.of(graph)
    table, lost = ArcTable.of(graph, sites, index, remembered)
    marks, unmarked = marks_of_sites(graph, sites, index, remembered)
    hidden = HiddenViews(np.full(len(graph.statements), -1, np.int32))
    if not views:
        ghostly = table.block[table.source < 0]
        hidden = hide(graph, index, ghostly, ["", *(layer_of(origin.scope) for origin in graph.origins)])
        table = table.redirect(index, hidden.stand_in)
        marks = redirect_marks(index, marks, hidden)
        index = hide_in_index(index, hidden)
    fold = fold_of(graph, index, sites, table, marks, unfolded)
    arcs = table.arcs_of(fold.blocks)
    if not views:
        arcs = redirect_arcs(graph, index, arcs, hidden)
    marks = fold_marks(marks, fold)
    moments = moments_of(graph, index, sites, marks, fold)
    opened = [moment for moment in moments if waits_key(graph, moment[0]) in unfolded]
    closed = [moment for moment in moments if waits_key(graph, moment[0]) not in unfolded]
    made = composites_of(graph, index, marks, fold) if composites else []
    whole = [rows for rows in made if composite_key(graph, int(index.block[rows[0]]) - 1) not in unfolded]
    marks = merge_marks(marks, closed)
    nodes, ghosts = _nodes(graph, index, fold, arcs, [*closed, *whole])
    node_of = _node_of(graph, nodes, fold, [*closed, *whole], hidden)
    nodes = replace(
        nodes,
        waits=_count_statements(nodes, len(node_of), closed, opened),
        parts=_count_statements(nodes, len(node_of), whole, [rows for rows in made if rows not in whole]),
    )
    heights = [earlier_heights.get(block_key(graph, block - 1), 0.0) for span in fold.shown for block in span.blocks]
    nodes, blocks, sections, height = _heights(nodes, arcs, node_of, ghosts, fold, np.asarray(heights))
    return GraphLayout(
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
    """Return a key for the block of an origin; empty without an origin. The key is the same in all plans."""
    return graph.origins[origin].id if origin >= 0 else ""


def _place_marks(marks: list[Mark], node_of: Ints) -> Marks:
    """Assign marks to nodes, and place the marks of one node side by side."""
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


def _nodes(
    graph: Graph,
    index: GraphIndex,
    fold: Fold,
    arcs: list[Arc],
    closed: list[tuple[int, ...]],
) -> tuple[Nodes, dict[int, int]]:
    """Return nodes sorted by block, column and height, and a map from the site of each ghost to the ghost's node."""
    statements = graph.statements
    blocks = np.asarray([block for span in fold.shown for block in span.blocks], np.int32)
    visible = index.shown & ~index.headed & np.isin(index.block, blocks)
    visible[[row for group in closed for row in group[1:]]] = False
    rows = np.flatnonzero(visible)
    side = statements.side[rows]
    parent = statements.parent[rows]
    key = np.where(side == FORWARD, rows, -rows).astype(float)
    # A fusion's heading is directly above its uppermost member, in both columns.
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
        waits=np.zeros(len(order), np.int32),
        parts=np.zeros(len(order), np.int32),
        y=np.zeros(len(order), np.float32),
        height=np.full(len(order), ROW, np.float32),
    )
    return nodes, {int(nodes.ghost[i]): int(i) for i in np.flatnonzero(nodes.ghost >= 0)}


def _count_statements(
    nodes: Nodes, statements: int, closed: list[tuple[int, ...]], open_composites: list[tuple[int, ...]]
) -> Ints:
    """Count the statements of each node's moment or composite; 0 for other nodes.

    If the statements are shown one by one, the count of the first statement is negative.
    """
    # The last entry is for ghosts, whose statement is -1.
    count = np.zeros(statements + 1, np.int32)
    for sign, groups in ((1, closed), (-1, open_composites)):
        for group in groups:
            count[group[0]] = sign * len(group)
    found: Ints = np.where(nodes.heading, 0, count[nodes.statement]).astype(np.int32)
    return found


def _node_of(graph: Graph, nodes: Nodes, fold: Fold, closed: list[tuple[int, ...]], hidden: HiddenViews) -> Ints:
    node_of = np.full(len(graph.statements), -1, np.int32)
    real = np.flatnonzero(nodes.statement >= 0)
    node_of[nodes.statement[real]] = real
    for group in closed:
        node_of[list(group[1:])] = node_of[group[0]]
    folded = np.flatnonzero(fold.twin >= 0)
    node_of[folded] = node_of[fold.twin[folded]]
    # A fusion in a folded layer is shown by the heading above the counterparts of its members.
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
    fold: Fold,
    earlier_heights: NDArray[np.float64],
) -> tuple[Nodes, Blocks, tuple[Section, ...], float]:
    """Stack nodes within blocks, and blocks below each other.

    Return the nodes and blocks with their positions, the sections, and the height of the drawing.
    """
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
    # Keep a block with more rows at its former height, unless its rows would be too low.
    room = earlier_heights - BLOCK_PAD
    tight = (earlier_heights > 0) & (natural > earlier_heights) & (room / (natural - 2 * BLOCK_PAD) >= TIGHTEST / ROW)
    block_height = np.where(tight, earlier_heights, np.maximum(natural, earlier_heights))
    squeezed = np.repeat(tight, 2) & (filled > np.repeat(room, 2))
    factor = np.where(squeezed, np.repeat(room, 2) / np.maximum(filled, 1.0), 1.0)[column]
    pad = np.where(squeezed, BLOCK_PAD / 2, BLOCK_PAD)[column]
    gap = np.where(squeezed, NODE_GAP / 2, NODE_GAP)[column]
    starts = np.cumsum([0, *(len(span.blocks) for span in fold.shown)])
    heading = np.zeros(count)
    for number, span in enumerate(fold.shown):
        # Leave a small gap above blocks outside of layers, so that the end of the layer before them is visible.
        heading[starts[number]] = SECTION if span.layer else BLOCK_PAD
    block_y = HEADER + np.cumsum(heading + block_height) - block_height
    bottom = block_y + block_height
    sections = tuple(
        Section(
            stem=span.stem,
            first=span.layer,
            last=layers[-1].layer.rpartition(" ")[2] if span.loop else layers[-1].layer,
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


def _lines(graph: Graph, blocks: Blocks, sections: tuple[Section, ...]) -> SourceLines:
    """Return the source lines: consecutive blocks of the same line within one layer are joined."""
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
    return SourceLines(first, stop - first, y, (end - y).astype(np.float32))


def _runs(nodes: Nodes) -> FusionPieces:
    """Return the pieces of fusions' boxes: consecutive members of a fusion in one column are joined."""
    order = np.lexsort((nodes.y, nodes.side))
    fusion, side = nodes.fusion[order], nodes.side[order]
    new = np.ones(len(order), bool)
    new[1:] = (fusion[1:] != fusion[:-1]) | (side[1:] != side[:-1])
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(order)) - 1
    keep = fusion[first] >= 0 if len(order) else np.zeros(0, bool)
    first, last = first[keep], last[keep[: len(last)]]
    top, bottom = order[first], order[last]
    return FusionPieces(
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
    fold: Fold,
    sections: tuple[Section, ...],
) -> Arcs:
    """Place the ends of arcs: each arc starts at a separate height of its source, and ends at the nearest reader."""
    sources = _source_nodes(arcs, node_of, ghosts)
    used: dict[int, int] = {}
    ports = Counter(sources)
    target, side, shape, y0, y1 = [], [], [], [], []
    place, twin, sides = node_of.tolist(), fold.twin.tolist(), nodes.side.tolist()
    tops, heights = nodes.y.tolist(), nodes.height.tolist()
    middles = (nodes.y + nodes.height / 2).tolist()
    stands = [section for section in sections if section.count > 1]
    for arc, source in zip(arcs, sources, strict=True):
        port = used.get(source, 0)
        used[source] = port + 1
        start = tops[source] + heights[source] * (port + 0.5) / ports[source]
        visible = [place[t] for t in arc.targets if twin[t] < 0]
        section = None if visible else next((s for s in stands if s.y <= start < s.y + s.height), None)
        side.append(sides[source])
        if section is not None:
            shape.append(ArcShape.STUB)
            target.append(-1)
            y1.append(section.y + section.height - BLOCK_PAD / 2)
        else:
            ends = visible or [place[t] for t in arc.targets]
            nearest = min(ends, key=lambda end: abs(middles[end] - start))
            shape.append(ArcShape.CROSS if sides[nearest] != sides[source] else ArcShape.SIDE)
            target.append(nearest)
            y1.append(middles[nearest])
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
