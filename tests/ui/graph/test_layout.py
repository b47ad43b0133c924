"""In a layout, no two statements overlap. Each site is on an arc or a mark, or is listed as unplaced."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import workbench
from tests.trial_counts import amount
from tests.ui.synthetic import Builder, llama
from workbench.core.graph import BACKWARD, FORWARD, Graph, Kind, StatementFlag, ValueFlag
from workbench.core.lever import Site
from workbench.ui.graph.graph_view import GraphView
from workbench.ui.graph.layout import block_key, compute
from workbench.ui.graph.layout_arrays import BLOCK_PAD, ROW, ArcShape, ArcStyle, Columns, GraphLayout
from workbench.ui.graph.module_labels import modules_of
from workbench.ui.graph.payload import payload

DRAWN = settings(max_examples=amount(15, 40, 400))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, tuple[Site, ...]]:
    """Draw a random graph. Its origins (lines of the source) are in random order, and some statements have none."""
    made = Builder()
    layers = draw(st.integers(0, 3))
    scopes = ["", "head", *(f"layers.{layer}.mlp" for layer in range(layers))]
    origins = [made.origin(scope, "mul", n, f"x{n} = a * b") for n, scope in enumerate(scopes) for _ in range(2)]
    values = [made.value((4,))]
    sites = []
    for side in (FORWARD, BACKWARD):
        for _ in range(draw(st.integers(0, 8))):
            origin = draw(st.sampled_from([*origins, -1]))
            size = draw(st.integers(0, 3))
            fusion = made.add("fusion", side, -1, [], [], kind=Kind.FUSION) if size else -1
            for _ in range(max(1, size)):
                inputs = draw(st.lists(st.sampled_from(values), max_size=3))
                output = made.value((4,))
                view = bool(inputs) and draw(st.booleans())
                made.add("reshape" if view else "mul", side, origin, inputs, [output], parent=fusion,
                         flags=StatementFlag.VIEW if view else 0)  # fmt: skip
                values.append(output)
                if draw(st.booleans()):
                    name = made.values[output]["name"]
                    lever = draw(st.sampled_from(["saved", "remat", "copies"]))
                    choice = draw(st.sampled_from(["save", "recompute"]))
                    place = made.origins[origin].id if origin >= 0 else name
                    sites.append(
                        Site(id=f"{lever}:{place}>{name}", lever=lever, label=name, options=("save", "recompute"),
                             choice=choice, default="save", values=(draw(st.sampled_from([name, "gone"])),), bytes=8)
                    )  # fmt: skip
    return made.graph(), tuple(sites)


def overlaps(layout: GraphLayout) -> int:
    """Return the number of pairs of neighbouring rows in a column that overlap."""
    count = 0
    for side in (FORWARD, BACKWARD):
        rows = np.flatnonzero(layout.nodes.side == side)
        rows = rows[np.argsort(layout.nodes.y[rows], kind="stable")]
        bottoms = (layout.nodes.y + layout.nodes.height)[rows]
        count += int((layout.nodes.y[rows][1:] < bottoms[:-1]).sum())
    return count


@pytest.mark.drawn
@DRAWN
@given(graphs(), st.sampled_from([(), ("layers",)]), st.booleans())
def test_no_two_statements_overlap_and_every_statement_has_a_node(made, unfolded, views):
    graph, sites = made
    layout = compute(graph, sites, unfolded=unfolded, views=views)
    assert overlaps(layout) == 0
    shown = (graph.statements.kind != Kind.ARGUMENT) & (graph.statements.kind != Kind.RETURN)
    assert (layout.node_of[shown] >= 0).all()


@pytest.mark.drawn
@DRAWN
@given(graphs())
def test_statements_of_an_origin_are_inside_the_block_of_the_origin(made):
    graph, sites = made
    layout = compute(graph, sites)
    nodes, blocks = layout.nodes, layout.blocks
    assert (nodes.y >= blocks.y[nodes.block]).all()
    assert (nodes.y + nodes.height <= (blocks.y + blocks.height)[nodes.block]).all()
    for node, statement in enumerate(nodes.statement.tolist()):
        if statement >= 0 and not nodes.heading[node] and graph.statements.origin[statement] >= 0:
            assert blocks.origin[nodes.block[node]] == graph.statements.origin[statement]


@pytest.mark.drawn
@DRAWN
@given(graphs(), st.sampled_from([(), ("layers",)]), st.booleans())
def test_every_site_is_on_an_arc_or_a_mark_or_named_as_unplaced(made, unfolded, views):
    graph, sites = made
    layout = compute(graph, sites, unfolded=unfolded, views=views)
    reached = {n for group in (*layout.arcs.sites, *layout.arcs.peers, *layout.marks.peers) for n in group}
    assert reached | set(layout.unplaced) == set(range(len(sites)))
    assert not reached & set(layout.unplaced)


@pytest.mark.drawn
@DRAWN
@given(graphs(), st.booleans())
def test_arcs_of_one_node_start_at_different_heights(made, views):
    graph, sites = made
    layout = compute(graph, sites, views=views)
    arcs, nodes = layout.arcs, layout.nodes
    starts = list(zip(arcs.source.tolist(), arcs.y0.tolist(), strict=True))
    assert len(set(starts)) == len(starts)
    assert (arcs.y0 >= nodes.y[arcs.source]).all()
    assert (arcs.y0 <= (nodes.y + nodes.height)[arcs.source]).all()
    ends = arcs.target >= 0
    assert (arcs.shape[~ends] == ArcShape.STUB).all()
    cross = ends & (arcs.shape == ArcShape.CROSS)
    assert (nodes.side[arcs.source[cross]] != nodes.side[arcs.target[cross]]).all()


def test_an_arc_from_a_statement_to_its_derivative_is_horizontal():
    graph, sites = llama(1, fused=False)
    arcs = compute(graph, sites).arcs
    ids = [sites[group[0]].id for group in arcs.sites]
    linear = ids.index("saved:layers.0.attn/linear#0")
    assert arcs.y0[linear] == pytest.approx(arcs.y1[linear], abs=0.5)


def test_identical_layers_fold_into_one_and_unfold():
    graph, sites = llama(4)
    folded = compute(graph, sites)
    assert [(s.first, s.last, s.count, s.identical) for s in folded.sections] == [("layers.0", "layers.3", 4, 4)]
    assert all(len(peers) == 4 for peers in folded.arcs.peers)
    unfolded = compute(graph, sites, unfolded=["layers"])
    assert [(s.first, s.count) for s in unfolded.sections] == [(f"layers.{n}", 1) for n in range(4)]
    assert len(unfolded.nodes) > 3 * len(folded.nodes)


def test_a_layer_with_a_different_choice_is_shown_alone():
    graph, sites = llama(4, recompute=frozenset({"saved:layers.1.mlp/silu#0"}))
    assert [(s.first, s.count) for s in compute(graph, sites).sections] == [
        ("layers.0", 1),
        ("layers.1", 1),
        ("layers.2", 2),
    ]
    why = "another choice, or other bytes, at silu"
    assert [s.differs for s in compute(graph, sites).sections] == ["", why, why]
    assert [s.differs for s in compute(*llama(4), unfolded=["layers"]).sections] == [""] * 4


def test_a_site_of_a_whole_layer_has_no_statement_and_splits_no_layers():
    bench = workbench.open("mlp", layers=2, executor="torch", device="cpu")
    bench.choose({site.id: "recompute" for site in bench.sites("saved") if "recompute" in site.options})
    graph, sites = bench.plan.graph, bench.plan.sites
    layers = {number for number, site in enumerate(sites) if site.id.startswith("order:recomputed/")}
    assert len(layers) == 2
    layout = compute(graph, sites)
    assert layers <= set(layout.unplaced)
    alone = compute(graph, [site for number, site in enumerate(sites) if number not in layers])
    assert [(s.first, s.count) for s in layout.sections] == [(s.first, s.count) for s in alone.sections]


def test_a_recomputed_value_has_a_dashed_arc_to_its_recomputation():
    id = "saved:layers.0.mlp/silu#0"
    graph, sites = llama(1, recompute=frozenset({id}))
    layout = compute(graph, sites)
    arc = next(i for i, group in enumerate(layout.arcs.sites) if sites[group[0]].id == id)
    assert layout.arcs.style[arc] == ArcStyle.RECOMPUTED
    target = layout.nodes.statement[layout.arcs.target[arc]]
    assert graph.statements.name[target] == "torch.silu"
    assert graph.statements.side[target] == BACKWARD


def test_the_tooltip_of_a_site_shows_its_choice_and_a_different_outcome():
    graph, sites = llama(1)
    first = next(site for site in sites if site.id == "saved:layers.0.mlp/silu#0")
    changed = [dataclasses.replace(site, outcome="recompute") if site is first else site for site in sites]
    rows = [line for text in payload(graph, compute(graph, changed), changed)["strings"] for line in text.split("\n")]
    assert rows.count("saved, set to: save, in effect: recompute") == 1
    assert "saved, set to: save" in rows


def test_a_mark_is_on_the_node_of_its_site_or_value_or_is_unplaced():
    made = Builder()
    origin = made.origin("", "copy_", 1, "a.copy_(b)")
    a, b = made.value((4,), ValueFlag.ARGUMENT, "a"), made.value((4,), name="b")
    made.add("update_aliases", FORWARD, origin, [a], [b], kind=Kind.FENCE)
    made.add("copy_", FORWARD, origin, [b], [made.value((4,), name="c")])
    place = made.origins[origin].id
    sites = [
        Site(id=id, lever="copies", label=id, options=("keep", "drop"), choice="keep", default="keep", values=values)
        for id, values in ((f"copies:{place}", ("c",)), ("copies:gone", ("b",)), ("copies:nowhere", ("d",)))
    ]
    layout = compute(made.graph(), sites)
    names = [made.rows[layout.nodes.statement[node]]["name"] for node in layout.marks.node]
    assert names == ["copy_", "update_aliases"]
    assert layout.unplaced == (2,)


def test_a_graph_without_statements_has_an_empty_layout():
    layout = compute(Builder().graph())
    assert len(layout.nodes) == len(layout.arcs) == 0
    assert payload(Builder().graph(), layout, ())["tables"]["node"]["id"] == ["i", b""]


@pytest.mark.parametrize("lane", [0, 44])
@pytest.mark.parametrize("width", [300, 640, 900, 1600])
def test_columns_are_separate_and_within_the_width(width, lane):
    columns = Columns.fit(width, lane)
    assert columns.forward[0] - columns.label[1] >= lane
    assert columns.width - columns.backward[1] >= lane
    edges = [*columns.label, *columns.forward, *columns.backward, columns.width]
    assert edges == sorted(edges)
    assert columns.backward[0] - columns.forward[1] > 70


def test_edges_and_arcs_of_a_hidden_view_go_to_the_statements_of_its_storage():
    made = Builder()
    origin = made.origin("", "linear", 3, "y = f(x.t())")
    weight, view, product, again, grad = [made.value((4,), name=name) for name in ("w", "w_t", "y", "y_t", "g")]
    made.add("mul", FORWARD, origin, [], [weight])
    made.add("permute", FORWARD, origin, [weight], [view], flags=StatementFlag.VIEW)
    made.add("matmul", FORWARD, origin, [view], [product])
    made.add("permute", BACKWARD, origin, [view], [again], flags=StatementFlag.VIEW)
    made.add("matmul", BACKWARD, origin, [again], [grad])
    site = Site(
        id="saved:w",
        lever="saved",
        label="w",
        options=("save",),
        choice="save",
        default="save",
        values=("w_t",),
        bytes=4,
    )
    graph = made.graph()
    assert len(compute(graph, [site]).nodes) == 5
    layout = compute(graph, [site], views=False)
    assert [graph.statements.name[row] for row in layout.nodes.statement.tolist()] == ["mul", "matmul", "matmul"]
    assert layout.hidden.tolist() == [False, True, False, True, False]
    # The forward's view is not shown, so the arc starts at the statement that computes the view's storage. The
    # backward's view is not shown either, so the arc ends at the statement that reads the view.
    assert layout.node_of.tolist() == [0, 0, 1, 2, 2]
    assert (layout.arcs.source.tolist(), layout.arcs.target.tolist()) == ([0], [2])
    drawn = payload(graph, layout, [site])
    assert drawn["views"] == {"count": 2, "hidden": 2}
    sources, targets = (
        np.frombuffer(drawn["tables"]["edge"][end][1], np.int32).tolist() for end in ("source", "target")
    )
    assert list(zip(sources, targets, strict=True)) == [(0, 1), (0, 2)]


SILU = frozenset(f"saved:layers.{layer}.mlp/silu#0" for layer in range(4))


def places(graph: Graph, layout: GraphLayout) -> dict[str, tuple[float, float]]:
    """Return the upper edge and the height of each block, by the block's key."""
    keys = [block_key(graph, origin) for origin in layout.blocks.origin.tolist()]
    return dict(zip(keys, zip(layout.blocks.y.tolist(), layout.blocks.height.tolist(), strict=True), strict=True))


@pytest.mark.parametrize("views", [False, True])
def test_choosing_and_undoing_move_no_block(views):
    stock, chosen = llama(4, fused=False), llama(4, fused=False, recompute=SILU)
    before = places(stock[0], compute(*stock, views=views))
    kept = {key: height for key, (_, height) in before.items()}
    # Statements that recompute values need space. Without the heights of the last layout, the blocks below them move.
    assert places(chosen[0], compute(*chosen, views=views)) != before
    after = compute(*chosen, views=views, earlier_heights=kept)
    assert places(chosen[0], after) == before
    assert overlaps(after) == 0
    assert (after.nodes.y + after.nodes.height <= (after.blocks.y + after.blocks.height)[after.nodes.block]).all()
    assert places(stock[0], compute(*stock, views=views, earlier_heights=kept)) == before


def test_a_block_that_grew_for_a_choice_has_its_height_again_after_an_undo():
    def graph_with(rows: int) -> Graph:
        made = Builder()
        x, y = made.value((4,)), made.value((4,))
        origin = made.origin("", "sin", 1, "y = x.sin()")
        made.add("sin", FORWARD, origin, [x], [y])
        for _ in range(rows):
            made.add("cos", BACKWARD, origin, [x], [x := made.value((4,))])
        return made.graph()

    view = GraphView(on_turn=print, on_undo=print, on_redo=print)
    heights = []
    for rows in (1, 2, 4, 1):
        view.show(graph_with(rows), ())
        layout = view.shown.layout
        heights.append(layout.blocks.height.tolist())
        assert layout.nodes.height.min() >= 10, "each row must be high enough for its text"
    one = ROW + 2 * BLOCK_PAD
    assert heights == [[one], [one], [one + 3 * ROW], [one]]


def test_modules_precede_their_submodules_and_count_their_statements():
    layout = compute(*(made := llama(2)), unfolded=["layers"])
    found = modules_of(made[0], layout)
    layers = [module for module in found if module.scope in ("layers.0", "layers.1")]
    assert [(m.name, m.short, m.depth) for m in layers] == [("", "layers.0", 0), ("", "layers.1", 0)]
    for layer in layers:
        inner = [module for module in found if module.scope.startswith(f"{layer.scope}.")]
        assert {module.name for module in inner} >= {"attn", "mlp"}
        assert all(layer.y <= m.y and m.y + m.height <= layer.y + layer.height + 1e-3 for m in inner)
        assert sum(module.forward for module in inner) <= layer.forward
        assert sum(module.saved_bytes for module in inner if module.depth == 1) <= layer.saved_bytes
    assert sum(layer.forward for layer in layers) > 0
    crossing = (layout.arcs.shape == ArcShape.CROSS) & (layout.arcs.style == ArcStyle.SAVED)
    outside = sum(module.saved_bytes for module in found if module.depth == 0)
    assert outside == layout.arcs.bytes[crossing].sum() - unscoped_bytes(made[0], layout, crossing)


def unscoped_bytes(graph, layout, crossing) -> int:
    origins = layout.blocks.origin[layout.nodes.block[layout.arcs.source[crossing]]]
    sizes = layout.arcs.bytes[crossing]
    return int(
        sum(
            size
            for origin, size in zip(origins.tolist(), sizes.tolist(), strict=True)
            if origin < 0 or not graph.origins[origin].scope
        )
    )


def test_a_module_and_its_only_submodule_are_shown_as_one():
    made = Builder()
    x = made.value((4,))
    for line, scope in enumerate(("net.body.first", "net.body.first", "net.body.second", "")):
        y = made.value((4,))
        made.add("sin", FORWARD, made.origin(scope, "sin", line, "x = x.sin()"), [x], [y])
        x = y
    found = modules_of(graph := made.graph(), compute(graph))
    assert [(module.scope, module.depth, module.forward, module.operations) for module in found] == [
        ("net.body", 0, 3, ("sin × 3", "")),
        ("net.body.first", 1, 2, ("sin × 2", "")),
        ("net.body.second", 1, 1, ("sin", "")),
    ]
