"""Names and deep links open the tabs below the graph. A top-level tab remembers which of its tabs was last open.

The code calls a top-level tab a place.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import workbench as wb
from tests.ui.apps import look
from workbench.errors import ChoiceError
from workbench.ui.app.app import App
from workbench.ui.app.places import PLACES, Target, find
from workbench.ui.controls.help import TABS

ROOT = Path(__file__).parents[3]
EARLIER = (
    *("Memory", "Worth it", "Fit", "Outline", "Compile", "Timeline", "Fusions", "Passes"),
    *("Experiments", "Sites", "Settings", "Trace"),
)
"""Titles of the twelve tabs that the app had before it had top-level tabs."""


@pytest.fixture
def bench():
    return wb.open("mlp", device="planned", layers=1, executor="torch")


def test_each_tab_is_in_one_top_level_tab_and_has_a_help_text():
    titles = [tab for tabs in PLACES.values() for tab in tabs]
    assert len(PLACES) == 5
    assert len(set(titles)) == len(titles)
    assert set(titles) == set(TABS)
    assert not set(titles) & set(PLACES), "a tab and a top-level tab have the same name"


def test_current_and_earlier_names_of_tabs_are_found():
    assert find("fit") == Target("Choices", "Fit")
    assert find(" Worth It ") == find("single choices") == Target("Choices", "Single choices")
    assert find("program") == Target("Program")
    assert find("collectives") == Target("Time", "Timeline")
    assert find("memory") == Target("Memory")
    assert {find(title).place for title in EARLIER} == set(PLACES)
    with pytest.raises(ChoiceError, match=r"no tab 'fitt'; it has Memory \(Curve and peak\), Time"):
        find("fitt")


def test_a_deep_link_opens_a_tab_and_a_wrong_name_shows_no_app(bench):
    app = App(bench, place="fit")
    assert (app.places.place, app.places.tab) == ("Choices", "Fit")
    assert app.help.content["title"] == "Fit"
    app._on_message({"type": "place", "name": "passes"})
    assert (app.places.place, app.places.tab) == ("Program", "Passes")
    app._on_message({"type": "place", "name": "nowhere"})
    assert "no tab 'nowhere'" in app.controls.content["message"]["text"]
    assert app.places.tab == "Passes"
    app.close()
    with pytest.raises(ChoiceError, match="the app has no tab"):
        bench.show("fitt")


def test_a_top_level_tab_remembers_which_of_its_tabs_was_last_open(bench):
    app = App(bench)
    assert (app.places.place, app.places.tab) == ("Memory", "Curve and peak")
    look(app, "Sites")
    look(app, "Trace")
    look(app, "Choices")
    assert app.places.tab == "Sites"
    assert app.sites.content["rows"]
    app.close()


def test_the_palette_has_an_entry_for_each_tab():
    source = (ROOT / "extensions" / "runs-panel" / "src" / "places.ts").read_text()
    entries = re.findall(r'\["([^"]+)", "([^"]+)"\]', source)
    assert entries == [(place, tab) for place, tabs in PLACES.items() for tab in tabs]


def test_the_choices_in_force_are_listed_by_layers_and_reverted():
    bench = wb.open("mlp", device="planned", layers=5, executor="torch")
    app = App(bench)
    look(app, "Chosen")
    assert app.chosen.content["rows"] == []
    able = [site.id for site in bench.sites("saved") if site.values and "recompute" not in site.illegal]
    every = next(ids for id in able if len(ids := [one.id for one in app.graph.everywhere(id)]) == 5)
    bench.choose(dict.fromkeys(every, "recompute"))
    bench.choose({"order.statements": "least peak"})
    rows = app.chosen.content["rows"]
    assert [(row["option"], row["where"], len(row["ids"])) for row in rows] == [
        ("least peak", "", 1),
        ("recompute", "layers 0–4", 5),
    ]
    assert {row["by"] for row in rows} == {"by hand"}
    app._on_message({"type": "revert", "choices": rows[1]["revert"]})
    assert app.choosing.settle(60)
    assert bench.choices == {"order.statements": "least peak"}
    assert [row["option"] for row in app.chosen.content["rows"]] == ["least peak"]
    bench.choose_found({every[2]: "recompute"}, "fit 90 %")
    assert [(row["option"], row["by"]) for row in app.chosen.content["rows"]] == [
        ("least peak", "by hand"),
        ("recompute", "automatically"),
    ]
    app.close()
