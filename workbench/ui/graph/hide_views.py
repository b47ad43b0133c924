"""Hide views. Edges pass through a hidden view. The view's sites move to the statement that represents the view."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import Graph, Kind, Ragged, StatementFlag
from workbench.ui.graph.layout_arrays import Ints
from workbench.ui.graph.site_anchors import Arc, GraphIndex, Mark


@dataclass(frozen=True)
class HiddenViews:
    """The hidden views, and the statement that represents each hidden view.

    Attributes
    ----------
    stand_in : int32
        For each hidden statement, the shown statement that represents it; -1 for shown statements.
    """

    stand_in: Ints

    @cached_property
    def rows(self) -> NDArray[np.bool_]:
        """Mask of the hidden statements."""
        return self.stand_in >= 0


def views_of(graph: Graph) -> NDArray[np.bool_]:
    """Return a mask of the statements that neither own nor write memory: views, and `shallow_copy`."""
    statements = graph.statements
    views = (statements.flags & StatementFlag.VIEW.value != 0) & (statements.flags & StatementFlag.INPLACE.value == 0)
    headed = np.zeros(len(statements), bool)
    headed[statements.parent[statements.parent >= 0]] = True
    return np.asarray(~headed & views & (statements.kind == Kind.OP))


def hide(graph: Graph, index: GraphIndex, ghosts: NDArray[np.int32], layers: Sequence[str]) -> HiddenViews:
    """Choose a representative for each view.

    The representative is the statement that produces the viewed value, if this statement is on the view's side (forward
    or backward) and in the view's layer. If it is not, the representative is the first reader of the view on this side
    and in this layer. If the chosen statement is itself a hidden view, its own representative is used. A view without a
    representative stays visible. The views of a block with a ghost stay visible, too, and so do the views of a fusion
    that consists only of views.

    Parameters
    ----------
    graph : Graph
    index : GraphIndex
    ghosts : int32
        Blocks that contain ghosts. A ghost stands for a value that the forward no longer makes.
    layers : sequence of str
        Layer of each block; empty outside layers.
    """
    statements = graph.statements
    views = views_of(graph)
    # Do not hide the views of a fusion that consists only of views.
    member = index.shown & ~index.headed & (statements.parent >= 0)
    plain = np.bincount(statements.parent[member & ~views], minlength=len(statements))
    views &= (statements.parent < 0) | (plain[statements.parent] > 0)
    views[np.isin(index.block, ghosts)] = False
    rows = np.flatnonzero(views).tolist()
    stand_in = dict.fromkeys(rows, -1)
    # One number for each pair of side and layer.
    numbers: dict[str, int] = {}
    layer = np.asarray([numbers.setdefault(name, len(numbers)) for name in layers], np.int32)
    column: list[int] = (2 * layer[index.block] + statements.side).tolist()
    producers = index.producers
    read = dict(zip(rows, _list_rows(statements.inputs.take_rows(np.asarray(rows, np.intp))), strict=True))
    made = dict(zip(rows, _list_rows(statements.outputs.take_rows(np.asarray(rows, np.intp))), strict=True))

    def representative_of(row: int) -> int:
        """Return a view's representative; -1 if none is known yet. Return any other statement itself."""
        return stand_in.get(row, row)

    def maker_above(row: int) -> int:
        for value in read[row]:
            maker = producers[value]
            if maker >= 0 and maker != row and column[row] == column[maker]:
                return representative_of(maker)
        return -1

    def reader_below(row: int) -> int:
        for value in made[row]:
            for reader in index.readers_of(value):
                if reader != row and column[row] == column[reader] and (found := representative_of(reader)) >= 0:
                    return found
        return -1

    for order, search in ((rows, maker_above), (rows[::-1], reader_below), (rows, maker_above)):
        for row in order:
            if stand_in[row] < 0:
                stand_in[row] = search(row)
    stands = np.full(len(statements), -1, np.int32)
    stands[rows] = list(stand_in.values())
    return HiddenViews(stands)


def _list_rows(rows: Ragged) -> Iterator[list[int]]:
    items = rows.items.tolist()
    return (items[start:stop] for start, stop in itertools.pairwise(rows.offsets.tolist()))


def hide_in_index(index: GraphIndex, hidden: HiddenViews) -> GraphIndex:
    """Return an index in which hidden statements are not shown."""
    return replace(index, shown=index.shown & ~hidden.rows)


def redirect_arcs(graph: Graph, index: GraphIndex, arcs: Sequence[Arc], hidden: HiddenViews) -> list[Arc]:
    """Redirect arcs that end at a hidden view to the view's readers or, if it has none, to its representative."""
    stand_in: list[int] = hidden.stand_in.tolist()

    def ends(target: int) -> list[int]:
        if stand_in[target] < 0:
            return [target]
        readers = [r for value in graph.statements.outputs[target].tolist() for r in index.readers_of(value)]
        found = [end for reader in readers if reader > target for end in ends(reader)]
        return found or [stand_in[target]]

    moved = []
    left_out = frozenset(np.flatnonzero(hidden.rows).tolist())
    for arc in arcs:
        targets = arc.targets
        if not left_out.isdisjoint(targets):
            targets = tuple(end for target in targets for end in ends(target))
        targets = tuple(dict.fromkeys(targets))
        moved.append(arc._replace(targets=tuple(end for end in targets if end != arc.source) or targets))
    return moved


def redirect_marks(index: GraphIndex, marks: Sequence[Mark], hidden: HiddenViews) -> list[Mark]:
    """Move marks on hidden views to the views' representatives."""
    stand_in, blocks = hidden.stand_in.tolist(), index.blocks
    return [
        Mark(mark.site, row, blocks[row], mark.peers) if (row := stand_in[mark.statement]) >= 0 else mark
        for mark in marks
    ]
