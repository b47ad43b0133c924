"""The picture that a notebook saves has figures, choices and a legend above the graph. A choice updates the picture."""

from __future__ import annotations

import base64
import re
import threading
import time
from xml.etree import ElementTree

import nbformat
import pytest
from nbconvert import HTMLExporter

import workbench as wb
from workbench.ui.app.app import App
from workbench.ui.graph import collective_lanes, layout
from workbench.ui.graph.layout_arrays import Columns
from workbench.ui.html_pages.notebook_picture import Head, NotebookPicture, data_of, render_app, show_bench


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    return wb.open("mlp", device="cpu", layers=3)


@pytest.fixture
def app(bench):
    app = App(bench)
    yield app
    while bench.can_undo:
        bench.undo()
    app.close()


def words(picture: str) -> list[str]:
    return [text for element in ElementTree.fromstring(picture).iter() if (text := (element.text or "").strip())]


def legal(bench) -> wb.Site:
    return next(s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal)


@pytest.fixture
def displayed(bench, monkeypatch):
    """Display a bench. Return the list to which each displayed output adds its data."""
    found = []
    monkeypatch.setattr("IPython.display.display", lambda data, **_: found.append(data))
    show_bench(bench)
    return found


@pytest.mark.slow
def test_nbconvert_shows_the_picture_and_no_failing_widget(displayed):
    outputs = [nbformat.v4.new_output("display_data", data=data) for data in displayed]
    cell = nbformat.v4.new_code_cell("bench", outputs=outputs)
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    (picture,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert {"Peak memory", "Saved for backward", "blocks.0"} <= set(words(base64.b64decode(picture).decode()))
    assert "Error displaying widget" not in page


def test_a_notebook_output_has_the_app_and_a_picture_and_a_text(displayed):
    app, picture = displayed
    assert set(app) == {"application/vnd.jupyter.widget-view+json", "text/plain"}
    assert app["text/plain"].startswith("mlp(layers=3) on cpu")
    assert picture["image/svg+xml"].startswith("<svg")
    assert "predicted; no choices" in picture["image/svg+xml"]


def test_figures_choices_and_legend_are_above_the_graph(app, bench):
    stock = words(render_app(app))
    assert "No choices" in stock
    assert {"Peak memory", "Saved for backward", "saved for the backward", "recomputed in the backward"} <= set(stock)
    sites = app.graph.peers(legal(bench).id)
    bench.choose({site.id: "recompute" for site in sites})
    chosen = words(render_app(app))
    assert "Choices in force" in chosen
    assert any(line.startswith(f"recompute: {sites[0].id}") for line in chosen)
    assert any("vs no choices" in line for line in chosen)
    assert not any("collective" in line for line in chosen)


def test_the_head_grows_with_its_figures_and_choices():
    head = Head(900)
    site = wb.Site(
        id="saved:a", lever="saved", label="a", source="", options=("save", "recompute"), choice="recompute",
        default="save", illegal={}, values=("t0",), bytes=1,
    )  # fmt: skip
    head.figures([{"title": f"figure {n}", "values": [{"text": "1", "kind": "predicted"}]} for n in range(9)])
    figures = head.y
    head.choices([[site]] * 40)
    assert any("and 28 more" in part for part in head.parts)
    head.legend(["saved", "fusion"])
    tops = [float(y) for part in head.parts for y in re.findall(r'<text x="[\d.]+" y="([\d.]+)"', part)]
    assert max(tops) < head.y
    assert figures < head.y


def test_collectives_are_beside_the_columns_and_their_figures_are_not_cut():
    app = App(wb.open("fsdp_llama", layers=1, ranks=4, device="planned", executor="torch"))
    picture = render_app(app)
    plan = app.bench.plan
    app.close()
    drawn = collective_lanes.bars(plan.graph, layout.compute(plan.graph, plan.sites, views=False), plan.sites)
    columns = Columns.fit(900, collective_lanes.LANE)
    ends = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', picture.split("translate(0 ")[-1])]
    assert len(ends) == 2 * len(drawn) > 8
    assert all(columns.label[1] < x < columns.forward[0] or columns.backward[1] < x < columns.width for x in ends)
    # The figure of communication has the longest title and text. Title and text must be complete.
    assert {"Communication,", "in flight"} <= set(words(picture))
    assert any(line.startswith("simulated on ") for line in words(picture))
    assert "…" not in picture.split("No choices")[0]
    assert any("collective, from where" in line for line in words(picture))


def test_the_picture_in_a_notebook_follows_the_choices(app, bench):
    updates: list[dict[str, str]] = []
    came = threading.Event()

    def update(data: dict[str, str]) -> None:
        updates.append(data)
        came.set()

    NotebookPicture(app, update, quiet_s=0.05)
    bench.choose({legal(bench).id: "recompute"})
    assert came.wait(60)
    time.sleep(0.2)
    assert updates[-1] == data_of(render_app(app))
    assert "Choices in force" in updates[-1]["image/svg+xml"]
