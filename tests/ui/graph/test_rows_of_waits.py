"""Adjacent waits with equal choices are one row of the graph. A double click on the row's mark chooses the same option
for all its waits.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tests.ui.synthetic import Builder
from workbench.core.graph import BACKWARD, Graph, Kind
from workbench.core.lever import Site
from workbench.ui.graph.composite_rows import waits_key
from workbench.ui.graph.graph_view import GraphView
from workbench.ui.graph.layout import compute
from workbench.ui.graph.payload import payload

COUNT = 5


def program() -> tuple[Graph, list[Site]]:
    """Return the graph of a backward whose last statements are waits, and a site for each wait."""
    builder = Builder()
    origin = builder.origin("", "embedding", 1, "x = embedding(tokens)")
    grads = [builder.value((4, 4)) for _ in range(COUNT)]
    done = [builder.value((4, 4)) for _ in range(COUNT)]
    builder.add("all_reduce", BACKWARD, origin, [], grads)
    for grad, value in zip(grads, done, strict=True):
        builder.add("wait", BACKWARD, origin, [grad], [value], kind=Kind.WAIT)
    graph = builder.graph()
    sites = [
        Site(
            id=f"waits:{graph.values.name[value]}",
            lever="waits",
            label=f"wait {n}",
            source="",
            options=("stock", "early"),
            choice="stock",
            default="stock",
            values=(graph.values.name[value],),
        )
        for n, value in enumerate(done)
    ]
    return graph, sites


def test_adjacent_waits_with_equal_choices_are_one_row_with_one_mark() -> None:
    graph, sites = program()
    layout = compute(graph, sites)
    assert sorted(layout.nodes.waits.tolist()) == [0, COUNT]
    (peers,) = layout.marks.peers
    assert {sites[number].id for number in peers} == {site.id for site in sites}
    assert (layout.node_of[np.asarray(graph.statements.kind) == Kind.WAIT] >= 0).all()
    strings = payload(graph, layout, sites)["strings"]
    assert f"{COUNT} waits" in strings
    assert any(f"double click: early in all {COUNT} waits" in text for text in strings)


def test_a_row_of_waits_opens_to_single_waits_and_closes_again() -> None:
    graph, sites = program()
    first = int(np.flatnonzero(np.asarray(graph.statements.kind) == Kind.WAIT)[-1])
    layout = compute(graph, sites, unfolded={waits_key(graph, first)})
    assert sorted(layout.nodes.waits.tolist()) == [-COUNT, *[0] * COUNT]
    assert [len(peers) for peers in layout.marks.peers] == [1] * COUNT

    view = GraphView(on_turn=print, on_undo=print, on_redo=print)
    view.show(graph, sites)
    assert len(view.peers(sites[0].id)) == COUNT
    assert view.kind_of_peers(sites[0].id) == "waits"
    for count in (1, COUNT):
        view._receive(view, {"type": "fold", "stem": waits_key(graph, first)}, [])
        assert len(view.peers(sites[0].id)) == count


def test_a_wait_with_another_choice_is_shown_alone() -> None:
    graph, sites = program()
    sites[0] = dataclasses.replace(sites[0], choice="early")
    assert sorted(compute(graph, sites).nodes.waits.tolist()) == [0, 0, COUNT - 1]
