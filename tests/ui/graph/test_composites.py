"""A composite is one row in each column for the trace statements of a program statement. A double click opens it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import workbench as wb
from tests.ui.synthetic import Builder
from workbench.core.graph import BACKWARD, FORWARD, Graph, Kind
from workbench.core.lever import Site
from workbench.ui.app.app import App
from workbench.ui.graph.graph_view import GraphView
from workbench.ui.graph.layout import compute
from workbench.ui.graph.payload import COMPOSITE, payload

PARTS = ("mul", "matmul", "softmax", "matmul")


def program(*, parts: tuple[str, ...] = PARTS, collective: bool = False) -> tuple[Graph, list[Site]]:
    """Return a graph and its sites. One program statement becomes several statements, and their results are saved."""
    builder = Builder()
    first = builder.origin("", "relu", 1, "x = relu(x)")
    attention = builder.origin("", "scaled_dot_product_attention", 2, "y = scaled_dot_product_attention(x, x, x)")
    value = builder.value((4, 4))
    builder.add("relu", FORWARD, first, [], [value])
    made = []
    for name in parts:
        made.append(builder.value((4, 4)))
        builder.add(name, FORWARD, attention, [value], [made[-1]])
        value = made[-1]
    grad = builder.value((4, 4))
    builder.add("ones", BACKWARD, attention, [], [grad])
    for name, saved in zip(parts, made, strict=True):
        other = builder.value((4, 4))
        builder.add(name, BACKWARD, attention, [grad, saved], [other])
        grad = other
    if collective:
        builder.add("wait", BACKWARD, first, [grad], [builder.value((4, 4))], kind=Kind.WAIT)
    graph = builder.graph()
    sites = [
        Site(
            id=f"saved:{graph.values.name[value]}", lever="saved", label=f"value {n}", source="",
            options=("save", "recompute"), choice="save", default="save", values=(graph.values.name[value],), bytes=64,
        )
        for n, value in enumerate(made)
    ]  # fmt: skip
    return graph, sites


def test_a_composite_is_one_row_in_each_column_with_an_arc_per_saved_value() -> None:
    graph, sites = program()
    layout = compute(graph, sites, composites=True)
    assert sorted(layout.nodes.parts.tolist()) == [0, len(PARTS), len(PARTS) + 1]
    assert (layout.node_of >= 0).all()
    assert len(layout.arcs) == len(PARTS)
    assert len(set(layout.arcs.source.tolist())) == 1
    assert len(set(layout.arcs.y0.tolist())) == len(PARTS)
    strings = payload(graph, layout, sites)["strings"]
    assert "▸ scaled_dot_product_attention" in strings
    assert any("softmax" in text and "double-click, or press Enter" in text for text in strings)


def test_two_statements_from_one_program_statement_stay_two_rows() -> None:
    graph, sites = program(parts=PARTS[:2])
    assert not compute(graph, sites, composites=True).nodes.parts.any()


def test_each_statement_is_a_row_if_collectives_can_move_between_statements() -> None:
    graph, sites = program(collective=True)
    assert not compute(graph, sites, composites=True).nodes.parts.any()


def test_a_composite_opens_to_its_statements_and_closes_again() -> None:
    graph, sites = program()
    view = GraphView(on_turn=print, on_undo=print, on_redo=print)
    view.show(graph, sites)
    row = next(id for id, node in view.shown.node_of.items() if view.composite_of(id) == node)
    all_rows = len(view.shown.node_ids)
    view._receive(view, {"type": "fold", "node": row}, [])
    assert len(view.shown.node_ids) == all_rows + 2 * len(PARTS) - 1
    assert view.composite_of(row) is None
    opened = next(id for id, node in view.shown.node_of.items() if view.shown.layout.nodes.parts[node] < 0)
    view._receive(view, {"type": "fold", "node": opened}, [])
    assert len(view.shown.node_ids) == all_rows


def test_a_composite_with_different_choices_stays_one_row() -> None:
    graph, sites = program()
    sites[1] = dataclasses.replace(sites[1], choice="recompute")
    layout = compute(graph, sites, composites=True)
    assert sorted(layout.nodes.parts.tolist()) == [0, len(PARTS), len(PARTS) + 1]


@pytest.fixture(scope="module")
def app():
    app = App(wb.open("llama", device="cpu", layers=2))
    yield app
    app.close()


@pytest.mark.slow
def test_the_inspector_lists_the_statements_of_a_composite_and_opens_the_composite(app):
    view = app.graph
    shown = view.shown
    names = {id: node for id, node in shown.node_of.items() if view.composite_of(id) is not None}
    symbol = {id: shown.graph.origins[shown.layout.blocks.origin[shown.layout.nodes.block[n]]].symbol
              for id, n in names.items()}  # fmt: skip
    row = next(id for id, name in symbol.items() if name == "scaled_dot_product_attention")
    view.selected = row
    content = app.inspector.content
    assert content["title"] == "scaled_dot_product_attention"
    assert len(content["parts"]) == shown.layout.nodes.parts[names[row]]
    assert content["here"]
    app._on_inspector({"type": "unfold"})
    assert view.composite_of(row) is None
    assert app.inspector.content["outputs"], "the inspector must still show the composite"
    assert np.count_nonzero(view.shown.layout.nodes.parts < 0) == 2
    view.fold(row)
    assert view.composite_of(row) is not None
    flags = np.frombuffer(view.data["tables"]["node"]["flags"][1], np.uint8)
    assert (flags & COMPOSITE).any()
