"""Iterations of a loop outside of modules are repeats. Like identical layers, identical repeats are shown as one."""

from __future__ import annotations

import dataclasses

import pytest

from tests.ui.synthetic import Builder
from workbench.core.graph import BACKWARD, FORWARD, Graph
from workbench.core.lever import Site
from workbench.ui.graph import svg
from workbench.ui.graph.graph_view import GraphView
from workbench.ui.graph.layout import compute

COUNT = 6


def program(count: int = COUNT) -> tuple[Graph, list[Site]]:
    """Return the graph of a function with one line, then a loop over two lines, then one line; and its sites."""
    builder = Builder()
    value = builder.value((4, 4))
    builder.add("relu", FORWARD, builder.origin("f", "relu", 1, "x = relu(x)"), [], [value])
    saved = []
    for n in range(count):
        for name, line, text in (("tanh", 3, "x = tanh(x)"), ("matmul", 4, "x = w @ x")):
            other = builder.value((4, 4))
            builder.add(name, FORWARD, builder.origin("f", f"{name}", line, text), [value], [other])
            value = other
        saved.append((n, value, len(builder.origins) - 1))
    total = builder.value(())
    builder.add("sum", FORWARD, builder.origin("f", "sum", 6, "return x.sum()"), [value], [total])
    grad = total
    for _, value, origin in reversed(saved):
        other = builder.value((4, 4))
        builder.add("matmul", BACKWARD, origin, [grad, value], [other])
        grad = other
    graph = builder.graph()
    sites = [
        Site(
            id=f"saved:{graph.values.name[value]}", lever="saved", label=f"value {n}", source="",
            options=("save", "recompute"), choice="save", default="save", values=(graph.values.name[value],), bytes=64,
        )
        for n, value, _ in saved
    ]  # fmt: skip
    return graph, sites


def test_identical_repeats_are_shown_as_one_and_chosen_together() -> None:
    graph, sites = program()
    view = GraphView(on_turn=print, on_undo=print, on_redo=print)
    view.show(graph, sites)
    (section,) = view.shown.layout.sections
    assert section.count == COUNT
    assert (section.first, section.last) == ("llama.py:3, repeat 0", str(COUNT - 1))
    assert len(view.peers(sites[0].id)) == COUNT
    assert view.kind_of_peers(sites[0].id) == "repeats"
    assert f"{COUNT} identical repeats" in svg.render(graph, sites)
    view._receive(view, {"type": "fold", "stem": section.stem}, [])
    assert [one.count for one in view.shown.layout.sections] == [1] * COUNT
    assert len(view.peers(sites[0].id)) == 1


def test_a_repeat_with_another_choice_is_shown_alone_and_other_repeats_stay_folded() -> None:
    graph, sites = program()
    sites[2] = dataclasses.replace(sites[2], choice="recompute")
    layout = compute(graph, sites)
    assert [one.count for one in layout.sections] == [2, 1, 3]
    assert len({one.stem for one in layout.sections}) == 1


@pytest.mark.parametrize("count", [2, 3])
def test_a_few_repetitions_are_not_a_loop(count) -> None:
    assert compute(*program(count)).sections == ()
