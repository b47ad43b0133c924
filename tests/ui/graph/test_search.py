"""The graph's search finds statements in folded layers and hidden views, and shows them."""

from __future__ import annotations

import pytest

import workbench as wb
from tests.needs import needs_nvfuser
from tests.ui.synthetic import llama
from workbench.ui.graph.graph_view import GraphView
from workbench.ui.graph.hide_views import views_of
from workbench.ui.graph.search_index import ids_of
from workbench.ui.tabs.peak_table import predicted_content


@pytest.fixture
def view():
    made = GraphView(on_turn=print, on_undo=print, on_redo=print)
    made.show(*llama(6))
    return made


def index_of(view: GraphView, monkeypatch) -> dict:
    sent = []
    monkeypatch.setattr(view, "send", lambda message, *_: sent.append(message))
    view._receive(view, {"type": "index"}, [])
    assert [message["type"] for message in sent] == ["index"]
    return sent[0]


def titles(view: GraphView) -> list[tuple[str, int]]:
    return [(section.first, section.count) for section in view.shown.layout.sections]


def test_the_index_has_each_statement_once_from_top_to_bottom(view, monkeypatch):
    found = index_of(view, monkeypatch)
    rows = found["rows"]
    assert len(set(rows["id"])) == len(rows["id"])
    assert set(view.shown.node_of) <= set(rows["id"])
    softmax = [
        found["origins"][origin][0]
        for name, origin in zip(rows["name"], rows["origin"], strict=True)
        if found["strings"][name] == "softmax"
    ]
    assert softmax == [f"layers.{layer}.attn" for layer in range(6)]


def test_a_statement_of_a_folded_layer_unfolds_only_its_layer(view, monkeypatch):
    found = index_of(view, monkeypatch)
    graph = view.shown.graph
    assert titles(view) == [("layers.0", 6)]
    softmax = [
        id
        for id, name in zip(found["rows"]["id"], found["rows"]["name"], strict=True)
        if found["strings"][name] == "softmax"
    ]
    assert softmax[3] not in view.shown.node_of
    view._receive(view, {"type": "unveil", "id": softmax[3]}, [])
    assert titles(view) == [("layers.0", 3), ("layers.3", 1), ("layers.4", 2)]
    assert view.selected == softmax[3]
    row = view.statement_of(softmax[3])
    assert graph.origins[graph.statements.origin[row]].scope == "layers.3.attn"

    # A choice at a folded group then applies to the layers of this group.
    peers = {len(view.peers(site.id)) for site in view.shown.sites}
    assert peers == {1, 2, 3}
    # A second layer can be unfolded too. A click on a single layer folds all layers again.
    view._receive(view, {"type": "unveil", "id": softmax[4]}, [])
    assert titles(view) == [("layers.0", 3), ("layers.3", 1), ("layers.4", 1), ("layers.5", 1)]
    view._receive(view, {"type": "fold", "stem": "layers", "folded": False}, [])
    assert titles(view) == [("layers.0", 6)]
    view._receive(view, {"type": "unveil", "id": softmax[1]}, [])
    view._receive(view, {"type": "fold", "stem": "layers", "folded": True}, [])
    assert titles(view) == [(f"layers.{layer}", 1) for layer in range(6)]


@pytest.fixture(scope="module", params=["torch", pytest.param("nvfuser", marks=needs_nvfuser)])
def bench(request) -> wb.Workbench:
    return wb.open("llama", device="planned", layers=4, executor=request.param)


@pytest.mark.slow
def test_each_statement_of_a_program_can_be_shown(bench, monkeypatch):
    view = GraphView(on_turn=print, on_undo=print, on_redo=print)
    view.show(bench.plan.graph, bench.plan.sites)
    found = index_of(view, monkeypatch)
    graph = bench.plan.graph
    hidden = [id for id in found["rows"]["id"] if id not in view.shown.node_of]
    assert len(hidden) > len(view.shown.node_of)
    assert len(set(found["rows"]["id"])) == len(found["rows"]["id"])
    views, asked = views_of(graph), []
    ids = ids_of(graph, view.shown.layout, view.shown.node_ids)
    for id in hidden[:: max(1, len(hidden) // 12)]:
        view._unfolded.clear()
        view._views = False
        view.show(graph, bench.plan.sites)
        view.unveil(id)
        row = ids.index(id)
        assert view.statement_of(view.selected) == row, f"{id} is not shown"
        asked.append(bool(views[row]))
    assert set(asked) == {False, True}
    before = view.selected
    view.unveil("t:no_such_value")
    assert view.selected == before


def test_each_value_that_the_memory_list_names_is_found(bench, monkeypatch):
    view = GraphView(on_turn=print, on_undo=print, on_redo=print)
    view.show(bench.plan.graph, bench.plan.sites)
    made = {value for values in index_of(view, monkeypatch)["rows"]["values"] for value in values.split()}
    listed = {row["value"] for row in predicted_content(bench.plan, view.shown_ids())["rows"] if row["id"]}
    assert len(listed) > 10
    assert listed <= made
