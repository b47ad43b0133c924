"""Modules of the program in the layout. The graph view shows the names of modules when statements are too small."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from workbench.core.graph import BACKWARD, FORWARD, Graph, layer_of
from workbench.ui.graph.layout_arrays import ArcShape, ArcStyle, GraphLayout
from workbench.ui.graph.node_names import short_name


@dataclass(frozen=True)
class ModuleSpan:
    """Consecutive blocks of one module.

    Attributes
    ----------
    scope : str
        Scope of the module: ``layers.0.self_attn``.
    name, short : str
        `name` is the scope within the layer. It is empty for a layer, because the layer's heading shows the name.
        `short` equals `name`, but for a layer it is the end of the layer's scope.
    depth : int
        Number of modules around this one. A module comes before the modules inside it.
    y, height : float
        Extent in pixels at zoom 1.
    forward, backward : int
        Number of statements in each column, without hidden views.
    operations : tuple of str
        Names of the statements in each column, the most frequent first: ``linear × 4, mul``. A composite has the name
        of its statement in the program.
    saved_bytes : int
        Bytes of the module's values that are saved on the device for the backward.
    """

    scope: str
    name: str
    short: str
    depth: int
    y: float
    height: float
    forward: int
    backward: int
    saved_bytes: int
    operations: tuple[str, str]


def modules_of(graph: Graph, layout: GraphLayout) -> list[ModuleSpan]:
    """Return all modules in the layout from the top, outer modules first. Nested modules of equal extent are merged."""
    blocks, nodes, arcs = layout.blocks, layout.nodes, layout.arcs
    scopes = [_parts(graph.origins[origin].scope) if origin >= 0 else () for origin in blocks.origin.tolist()]
    # A row that stands for several statements (a composite, or adjacent waits) counts as the number of its statements.
    counted = np.where((nodes.statement >= 0) & ~nodes.heading, np.maximum(np.maximum(nodes.parts, nodes.waits), 1), 0)
    rows = {
        side: np.bincount(nodes.block, np.where(nodes.side == side, counted, 0), len(blocks))
        for side in (FORWARD, BACKWARD)
    }
    kept = (arcs.shape == ArcShape.CROSS) & (arcs.style == ArcStyle.SAVED)
    saved = np.zeros(len(blocks), np.int64)
    np.add.at(saved, nodes.block[arcs.source[kept]], arcs.bytes[kept])
    named = functools.cache(short_name)
    asked, starts = {}, {}
    for side in (FORWARD, BACKWARD):
        # Collect the names of operations block by block.
        which = np.flatnonzero((counted > 0) & (nodes.side == side))
        asked[side] = [named(graph.statements.name[row]) for row in nodes.statement[which].tolist()]
        for place in np.flatnonzero(nodes.parts[which] > 0).tolist():
            # Use the program's name for a composite, and the statement's name for other rows.
            origin = int(blocks.origin[nodes.block[which[place]]])
            if origin >= 0:
                asked[side][place] = graph.origins[origin].symbol
        starts[side] = np.searchsorted(nodes.block[which], np.arange(len(blocks) + 1)).tolist()

    def operations(side: int, first: int, stop: int) -> str:
        return _count_names(asked[side][starts[side][first] : starts[side][stop]])

    found = []
    for first, stop, parts, depth in _spans(scopes, 0, len(scopes), 0, 0):
        layer = layer_of(".".join(parts))
        found.append(
            ModuleSpan(
                scope=".".join(parts),
                name=(name := ".".join(parts[1:] if layer else parts)),
                short=name or ".".join(layer.split(".")[-2:]),
                depth=depth,
                y=float(blocks.y[first]),
                height=float(blocks.y[stop - 1] + blocks.height[stop - 1] - blocks.y[first]),
                forward=int(rows[FORWARD][first:stop].sum()),
                backward=int(rows[BACKWARD][first:stop].sum()),
                saved_bytes=int(saved[first:stop].sum()),
                operations=(operations(FORWARD, first, stop), operations(BACKWARD, first, stop)),
            )
        )
    return found


def _count_names(names: Iterable[str]) -> str:
    counts = Counter(names).most_common()
    return ", ".join(f"{name} × {count}" if count > 1 else name for name, count in counts)


def _parts(scope: str) -> tuple[str, ...]:
    """Split a scope into names. The scope of a layer is a single name."""
    layer = layer_of(scope)
    rest = scope.removeprefix(layer).removeprefix(".")
    return (*([layer] if layer else []), *(rest.split(".") if rest else []))


def _spans(
    scopes: list[tuple[str, ...]], start: int, stop: int, level: int, depth: int
) -> Iterator[tuple[int, int, tuple[str, ...], int]]:
    """Yield first block, end block, names and depth of each module in a range of blocks."""
    while start < stop:
        parts = scopes[start][: level + 1]
        end = start + 1
        while end < stop and scopes[end][: level + 1] == parts:
            end += 1
        if len(parts) > level:
            # Merge nested modules that cover the same blocks.
            inner = scopes[start:end]
            while all(len(one) > len(parts) and one[len(parts)] == inner[0][len(parts)] for one in inner):
                parts = inner[0][: len(parts) + 1]
            yield start, end, parts, depth
            yield from _spans(scopes, start, end, len(parts), depth + 1)
        start = end
