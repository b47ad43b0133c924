"""Arrays that the graph view draws (boxes, source lines, layers, arcs, marks), and the extents of the columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

ROW = 20.0
"""Height of a statement, in pixels at zoom 1. It is also the distance between arcs that start at the same statement."""


TIGHTEST = 12.0
"""Minimum height of a statement in a block that gets more statements but keeps its height.

Lower statements would be hard to read, and the names of fusions would cover them.
"""


NODE_GAP = 3.0
"""Height of the gap below a statement. The gap belongs to the statement's row."""


BLOCK_PAD = 4.0
"""Empty height at the top and at the bottom of a block."""


SECTION = 26.0
"""Height of a layer's heading."""


NARROWEST = 330.0
"""Minimum width of the columns; in a narrower view, the columns scroll sideways."""


ROOMY = 640.0
"""Minimum width of a view in which the program's column has its full share of the width."""


SHARE, LEAST_SHARE = 0.27, 0.16
"""Share of the width that each column gets, and the share that the program's column gets in the narrowest view."""


HEADER = 30.0
"""Height above the first block, for the column headings."""


Ints = NDArray[np.int32]


Floats = NDArray[np.float32]


class ArcStyle(IntEnum):
    """Style of an arc, from the plan's outcome for its site."""

    SAVED = 0
    RECOMPUTED = 1
    OFFLOADED = 2


class ArcShape(IntEnum):
    """Start and end of an arc."""

    CROSS = 0
    """From the left column to the right column."""
    SIDE = 1
    """Between two statements of one column."""
    STUB = 2
    """To the lower edge of a folded layer, because a hidden layer next to it reads the value."""


@dataclass(frozen=True)
class Nodes:
    """One row for each drawn box: a statement, the heading of a fusion, or a ghost.

    A ghost stands for a value that the forward no longer makes.

    Attributes
    ----------
    statement : int32
        Index into the graph's statements; -1 for a ghost.
    ghost : int32
        For a ghost, the index of the site of the value that the forward no longer makes; otherwise -1.
    side, block, fusion : int8, int32, int32
        Column, row of `Blocks`, and the fusion (statement index, or -1) that the node heads or belongs to.
    heading : bool
        Whether the node is the heading of its fusion.
    waits : int32
        Number of waits in a moment (a group of adjacent waits), if the node stands for this moment. The number is
        negative if the waits are shown one by one and the node is the first of them. It is 0 for all other nodes.
    parts : int32
        Number of statements in a composite (the statements that compute one statement of the program), if the node
        stands for this composite. The number is negative or 0 in the same cases as in `waits`.
    y, height : float32
        Upper edge and height, in pixels at zoom 1.
    """

    statement: Ints
    ghost: Ints
    side: NDArray[np.int8]
    block: Ints
    fusion: Ints
    heading: NDArray[np.bool_]
    waits: Ints
    parts: Ints
    y: Floats
    height: Floats

    def __len__(self) -> int:
        return len(self.statement)


@dataclass(frozen=True)
class Blocks:
    """One row for each shown statement of the program: its origin (-1 if unknown) and its vertical extent."""

    origin: Ints
    y: Floats
    height: Floats

    def __len__(self) -> int:
        return len(self.origin)


@dataclass(frozen=True)
class SourceLines:
    """One row for consecutive blocks of one source line: first block, number of blocks, and vertical extent."""

    block: Ints
    count: Ints
    y: Floats
    height: Floats


@dataclass(frozen=True)
class FusionPieces:
    """One row for each piece of a fusion's box. A piece has consecutive members in one column."""

    fusion: Ints
    side: NDArray[np.int8]
    y: Floats
    height: Floats


@dataclass(frozen=True)
class Section:
    """A layer with a heading, or several identical layers that are folded into one.

    Attributes
    ----------
    stem : str
        Key of the spans that fold and unfold together: ``layers`` for ``layers.0``.
    first, last : str
        Scopes of the first and last layer that the heading stands for; for repeats, `last` is a number.
    count : int
        Number of layers that the heading stands for.
    identical : int
        Number of consecutive identical layers, including this layer. Two or more layers can be folded.
    differs : str
        Difference from the previous layer of the same stem; empty if there is none.
    y, height : float
        Extent with the layer's blocks, in pixels at zoom 1.
    """

    stem: str
    first: str
    last: str
    count: int
    identical: int
    differs: str
    y: float
    height: float


@dataclass(frozen=True)
class Arcs:
    """One row for each arc.

    Attributes
    ----------
    sites : tuple of tuple of int
        Indices of the sites that the arc shows; a double click changes the first. If layers are folded, `peers` has
        the sites of all these layers.
    peers : tuple of tuple of int
        The first site of this arc in each layer that the arc stands for, including the shown layer.
    source, target : int32
        Node indices; -1 for an end at a folded layer's edge.
    side : int8
        Column of an arc with shape `ArcShape.SIDE`.
    shape, style : int8
        `ArcShape` and `ArcStyle`.
    y0, y1 : float32
        Heights of the arc's ends.
    bytes : int64
        Size of the arc's value.
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
    """One row for each mark. A mark is a small label on a statement, and shows a choice.

    Attributes
    ----------
    site : tuple of int
        Index of the mark's site.
    peers : tuple of tuple of int
        The sites of this mark in all layers that the mark stands for, including the shown layer.
    node, place : int32
        The node that has the mark, and the position of the mark among the node's marks, from the right.
    """

    site: tuple[int, ...]
    peers: tuple[tuple[int, ...], ...]
    node: Ints
    place: Ints

    def __len__(self) -> int:
        return len(self.site)


@dataclass(frozen=True)
class GraphLayout:
    """The complete drawing. Heights are pixels at zoom 1, from the top.

    Attributes
    ----------
    node_of : int32
        For each statement of the graph, the node that shows it; -1 if no node does. For a statement of a folded layer,
        the node that shows its counterpart.
    hidden : bool
        For each statement of the graph, whether it is a hidden view. For a hidden view, `node_of` has the node of the
        statement that represents the view.
    unplaced : tuple of int
        Sites of values that the graph does not show; the table of sites lists these sites.
    """

    nodes: Nodes
    blocks: Blocks
    lines: SourceLines
    runs: FusionPieces
    sections: tuple[Section, ...]
    arcs: Arcs
    marks: Marks
    node_of: Ints
    hidden: NDArray[np.bool_]
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
    def fit(cls, width: float, lane: float = 0.0) -> Columns:
        """Divide `width` among label, forward, gap and backward, with a lane beside the forward and the backward.

        ``graph_hit_test.js`` computes the same extents.
        """
        width = max(width, NARROWEST + 2 * lane)
        margin, space, inner = 12.0, 18.0, width - 2 * lane
        free = inner - 2 * margin - space
        share = LEAST_SHARE + (SHARE - LEAST_SHARE) * min(1.0, (inner - NARROWEST) / (ROOMY - NARROWEST))
        label, box = free * share, free * SHARE
        forward = margin + label + space + lane
        backward = width - margin - lane - box
        return cls((margin, margin + label), (forward, forward + box), (backward, backward + box), width)
