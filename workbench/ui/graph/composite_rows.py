"""Several statements that are shown as one row: a moment or a composite.

A moment is a group of adjacent waits. A composite is a group of statements that compute one statement of the program.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from workbench.core.graph import BACKWARD, FORWARD, Graph, Kind
from workbench.core.lever import Site
from workbench.ui.graph.fold_layers import Fold
from workbench.ui.graph.layout_arrays import GraphLayout
from workbench.ui.graph.site_anchors import GraphIndex, Mark


def waits_key(graph: Graph, statement: int) -> str:
    """Return the key of the moment that begins with the wait `statement`.

    If the keys of unfolded groups include this key, the moment's waits are shown one by one.
    """
    return f"waits:{graph.values.name[graph.statements.outputs[statement][0]]}"


def moments_of(
    graph: Graph, index: GraphIndex, sites: Sequence[Site], marks: list[Mark], fold: Fold
) -> list[tuple[int, ...]]:
    """Find groups of two or more adjacent waits with equal choices. In each group, the uppermost wait comes first."""
    statements = graph.statements
    shown = np.zeros(len(graph.origins) + 1, bool)
    shown[[block for span in fold.shown for block in span.blocks]] = True
    waits = (statements.kind == Kind.WAIT) & (statements.parent < 0) & shown[index.block]
    waits &= np.diff(statements.outputs.offsets) > 0
    chosen: dict[int, list[tuple[str, str]]] = {}
    for mark in marks:
        chosen.setdefault(mark.statement, []).append((sites[mark.site].choice, sites[mark.site].outcome))
    found: list[tuple[int, ...]] = []
    for side in (FORWARD, BACKWARD):
        rows = np.flatnonzero(index.shown & ~index.headed & (statements.side == side))
        places = np.flatnonzero(waits[rows])
        # Adjacent waits have consecutive places.
        alike = (
            (place - number, index.blocks[row], *chosen.get(row, ()))
            for number, (place, row) in enumerate(zip(places.tolist(), rows[places].tolist(), strict=True))
        )
        for _, group in itertools.groupby(zip(alike, rows[places].tolist(), strict=True), key=lambda pair: pair[0]):
            moment = [row for _, row in group]
            if len(moment) > 1:
                found.append(tuple(moment if side == FORWARD else moment[::-1]))
    return found


def merge_marks(marks: list[Mark], closed: list[tuple[int, ...]]) -> list[Mark]:
    """Merge the marks of waits that are shown as one row: each mark of the first wait then stands for all waits."""
    moment_of = {moment[0]: moment for moment in closed}
    leader = {row: moment[0] for moment in closed for row in moment}
    on: dict[int, list[Mark]] = {}
    for mark in marks:
        on.setdefault(mark.statement, []).append(mark)
    kept = []
    for mark in marks:
        if leader.get(mark.statement, mark.statement) != mark.statement:
            continue
        place = on[mark.statement].index(mark)
        others = moment_of.get(mark.statement, (mark.statement,))
        kept.append(mark._replace(peers=tuple(peer for row in others for peer in on[row][place].peers)))
    return kept


def parts_of(graph: Graph, layout: GraphLayout, node: int) -> list[int]:
    """Return the statements of a composite's row in the shown layer, in program order."""
    origin = layout.blocks.origin[layout.nodes.block[node]]
    here = (layout.node_of == node) & ~layout.hidden & (graph.statements.origin == origin)
    return np.flatnonzero(here).tolist()


LEAST = 3
"""Minimum number of statements of a composite. Two statements are not folded, because this would save only one row."""


def composite_key(graph: Graph, origin: int) -> str:
    """Return a composite's key. If unfolded groups include this key, the statements are shown one by one."""
    return f"composite:{graph.origins[origin].id}"


def composites_of(graph: Graph, index: GraphIndex, marks: Sequence[Mark], fold: Fold) -> list[tuple[int, ...]]:
    """Group the statements that compute one statement of the program, such as scaled dot-product attention.

    Forward and backward are separate groups. The uppermost statement of a group comes first. If a statement is
    in a fusion or has a mark, the statements of its program statement stay single. In a program with collectives,
    nothing is grouped, because the user can move a collective to any statement.
    """
    statements = graph.statements
    if np.isin(statements.kind, (Kind.COLLECTIVE, Kind.WAIT)).any():
        return []
    plain = (statements.kind == Kind.OP) & (statements.parent < 0)
    plain[[mark.statement for mark in marks]] = False
    is_plain, side = plain.tolist(), statements.side.tolist()
    found: list[tuple[int, ...]] = []
    for block in sorted({block for span in fold.shown for block in span.blocks} - {0}):
        here = index.members.get(block, [])
        forward = [row for row in here if side[row] == FORWARD]
        backward = [row for row in here if side[row] == BACKWARD]
        if len(forward) >= LEAST and all(is_plain[row] for row in here):
            found.append(tuple(forward))
            if len(backward) > 1:
                found.append(tuple(backward[::-1]))
    return found
