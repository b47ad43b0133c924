"""All that the graph view draws, as arrays: nodes, blocks, lines, runs, sections, arcs and marks, and the columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

ROW = 20.0
"""Height of a statement, in pixels at zoom 1; also the height between two arcs that leave one statement."""


TIGHTEST = 6.0
"""Least height of a statement where more than before has to keep to its block's height; below 9 it has no words."""


NODE_GAP = 3.0
"""Part of a row that stays empty under a statement."""


BLOCK_PAD = 4.0
"""Empty height at the top and at the bottom of a block."""


SECTION = 26.0
"""Height of a layer's heading."""


NARROWEST = 330.0
"""A narrower view is scrolled sideways."""


ROOMY = 640.0
"""In a view narrower than this, the program's column gives way first."""


SHARE, LEAST_SHARE = 0.27, 0.16
"""Shares of the width: of each column, and of the program's in the narrowest view."""


HEADER = 30.0
"""Height above the first block, for the columns' headings."""


Ints = NDArray[np.int32]


Floats = NDArray[np.float32]


class ArcStyle(IntEnum):
    """How an arc is drawn, from what the plan makes of its site."""

    SAVED = 0
    RECOMPUTED = 1
    OFFLOADED = 2


class ArcShape(IntEnum):
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
    waits : int32
        For how many waits of one moment it stands; below 0 for the first of them where each is shown; 0 for others.
    parts : int32
        Likewise for how many statements of a composite.
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
    """One row per user statement shown: its origin (-1: none) and its vertical extent."""

    origin: Ints
    y: Floats
    height: Floats

    def __len__(self) -> int:
        return len(self.origin)


@dataclass(frozen=True)
class SourceLines:
    """Consecutive blocks that come from one source line: first block, number of blocks, extent."""

    block: Ints
    count: Ints
    y: Floats
    height: Floats


@dataclass(frozen=True)
class FusionPieces:
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
        Scopes of the first and last layer that it stands for; of repeats the last's number.
    count : int
        Number of layers that it stands for.
    identical : int
        Number of consecutive identical layers around it: above 1, it can be folded.
    differs : str
        In what it differs from the layer of the same stem above it; empty where there is none.
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
        Column of a `ArcShape.SIDE` arc.
    shape, style : int8
        `ArcShape` and `ArcStyle`.
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
class GraphLayout:
    """Everything that is drawn. Heights are pixels at zoom 1, from the top.

    Attributes
    ----------
    node_of : int32
        For each statement of the graph the node that shows it (in a folded layer its representative), or -1.
    hidden : bool
        For each statement of the graph whether it is a view that is left out; `node_of` is then what stands for it.
    unplaced : tuple of int
        Sites about values that the graph does not show; they are reached through the table of sites.
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
        """Share `width` among label, forward, gap and backward, with a lane beside each of the two columns.

        ``graph_hit_test.js`` computes the same.
        """
        width = max(width, NARROWEST + 2 * lane)
        margin, space, inner = 12.0, 18.0, width - 2 * lane
        free = inner - 2 * margin - space
        share = LEAST_SHARE + (SHARE - LEAST_SHARE) * min(1.0, (inner - NARROWEST) / (ROOMY - NARROWEST))
        label, box = free * share, free * SHARE
        forward = margin + label + space + lane
        backward = width - margin - lane - box
        return cls((margin, margin + label), (forward, forward + box), (backward, backward + box), width)
