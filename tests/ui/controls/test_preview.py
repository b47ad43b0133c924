"""The preview shows an option's effect on the figures before the option is chosen. It makes no plan."""

from __future__ import annotations

import threading
import time

import pytest

import workbench as wb
from tests.needs import needs_nvfuser
from tests.ui.apps import look, settled, until
from workbench.bench import PlanDiff
from workbench.compiler import api
from workbench.errors import ChoiceError
from workbench.summary import human_bytes
from workbench.ui.app.app import App
from workbench.ui.controls.messages import words_of_change


@pytest.fixture(scope="module")
def app():
    app = App(wb.open("mlp", device="cpu", layers=2))
    yield app
    app.close()


@pytest.fixture
def no_plans(monkeypatch):
    """Make every attempt to plan raise an error."""

    def refused(*_args, **_named):
        raise AssertionError("a preview made a plan")

    monkeypatch.setattr(api, "plan", refused)


def legal(app: App) -> wb.Site:
    return next(s for s in app.bench.sites("saved") if s.values and "recompute" not in s.illegal)


def shown(app: App, before: dict) -> dict:
    """Wait until the preview line differs from `before`. Return its content."""
    give_up = time.monotonic() + 30
    while app.preview.content is before or "how" not in app.preview.content:
        assert time.monotonic() < give_up, app.preview.content
        time.sleep(0.01)
    return app.preview.content


def point(app: App, message: dict) -> dict:
    before = app.preview.content
    app.graph._receive(None, {"type": "preview", **message}, [])
    return shown(app, before)


def test_pointing_at_an_arc_shows_what_a_click_would_change(app, no_plans):
    site, plan = legal(app), app.bench.plan
    gain = app.bench.worth().quick({site.id: "recompute"})
    content = point(app, {"id": site.id})
    assert content["what"] == f"recompute for {site.label}"
    saved = next(figure for figure in content["figures"] if figure["name"] == "saved")
    assert saved["text"].removeprefix("≈\u00a0") == human_bytes(gain.saved_bytes, signed=True)
    assert saved["tone"] == "good"
    assert app.bench.plan is plan
    assert not app.bench.choices
    app.graph._receive(None, {"type": "preview"}, [])
    assert app.preview.content == {}


def test_the_status_line_counts_pointed_options_and_has_the_message(app):
    site, before = legal(app), app.preview.pointed
    point(app, {"id": site.id})
    assert app.preview.pointed == before + 1
    app.preview.renew()
    app._say("Planning…")
    assert app.preview.said["message"] == {"text": "Planning…", "bad": False}
    app.graph._receive(None, {"type": "preview"}, [])
    assert app.preview.pointed == before + 1
    app._on_message({"type": "no_tab"})
    assert "This page has no tabs" in app.preview.said["message"]["text"]
    app._on_message({"type": "versions_differ", "lab": "0.0.9"})
    assert "JupyterLab has thunder-workbench 0.0.9, and this kernel has" in app.preview.said["message"]["text"]
    app._say(None)
    assert app.preview.said["message"] is None


def test_a_setting_is_previewed_by_its_name(app, no_plans):
    setting = app.bench.site("order.statements")
    assert len(setting.label) > 60
    option = next(one for one in setting.options if one != setting.choice and one not in setting.illegal)
    assert point(app, {"id": setting.id, "option": option})["what"] == f"{option} for order.statements"
    assert point(app, {"id": setting.id, "option": setting.choice})["what"] == "order.statements is stock now"


def test_options_rows_and_parts_have_previews_of_the_same_kind(app, no_plans):
    site = legal(app)
    by_option = point(app, {"id": site.id, "option": "recompute"})
    by_row = point(app, {"choices": {site.id: "recompute"}})
    assert by_row == by_option
    before = app.preview.content
    app.outline.show_plan()
    part = next(
        part
        for part in app.outline.content["parts"]
        if any(turn["option"] == "recompute" and turn["count"] for turn in part["turns"])
    )
    app.outline._receive({"type": "preview", "key": part["key"], "option": "recompute"})
    assert shown(app, before)["what"] == f"recompute for all in {part['label']}"
    app.outline._receive({"type": "preview"})
    assert app.preview.content == {}


def test_the_preview_says_that_an_option_is_in_force_or_refused(app, no_plans):
    site = legal(app)
    app.preview.point({"id": site.id, "option": site.choice})
    assert app.preview.content["how"] == "nothing would change"
    refused = next(s for s in app.bench.plan.sites if s.illegal)
    option, reason = next(iter(refused.illegal.items()))
    app.preview.point({"id": refused.id, "option": option})
    assert reason in app.preview.content["what"]
    assert app.preview.content["bad"]


def test_a_preview_of_a_refused_choice_does_not_say_that_the_choice_is_in_force(app, monkeypatch):
    site, asked, refuse = legal(app), threading.Event(), threading.Event()

    def refused(_, by_hand):
        asked.set()
        assert refuse.wait(60)
        raise ChoiceError("these choices conflict")

    monkeypatch.setattr(app.bench, "choose", refused)
    app._on_message({"type": "choose_all", "choices": {site.id: "recompute"}})
    assert asked.wait(60)
    app.preview.point({"choices": {site.id: "recompute"}})
    assert app.preview.content["how"] == "nothing would change", "a preview must count a pending choice as made"
    refuse.set()
    settled(app)
    assert app.controls.content["message"] == {"text": "these choices conflict", "bad": True}
    until(lambda: app.preview.content.get("what") == f"recompute for {site.label}")
    app.preview.point({})


def test_several_choices_are_in_force_only_if_all_are(app):
    first, second = [s for s in app.bench.sites("saved") if s.values and not s.illegal][:2]
    content = point(app, {"choices": {first.id: first.choice, second.id: "recompute"}})
    assert content["what"] == "2 choices"
    assert content["how"] != "nothing would change"
    app.preview.point({})


def test_a_preview_is_updated_when_the_next_plan_is_ready(app):
    site = legal(app)
    point(app, {"id": site.id, "option": "recompute"})
    app.bench.choose({site.id: "recompute"})
    assert app.preview.content == {"what": f"{site.label} is recompute now", "how": "nothing would change"}
    app.bench.undo()
    app.preview.point({})
    assert app.preview.content == {}


@pytest.mark.slow
def test_a_choice_that_changes_fusions_has_no_estimate_until_the_inspector_computed_one():
    app = App(wb.open("mlp", device="cpu", layers=1, executor="torchcompile"))
    site = legal(app)
    content = point(app, {"id": site.id, "option": "recompute"})
    assert "no estimate: this choice changes the fusions" in content["how"]
    assert "figures" not in content
    app.graph.selected = site.id
    # The preview changes without a further movement of the pointer.
    until(lambda: app.preview.content["how"] == "exact; see the inspector")
    assert app.preview.content["figures"]
    app.close()


@needs_nvfuser
def test_a_choice_ranked_by_a_plan_has_a_preview():
    app = App(wb.open("mlp", device="planned", layers=1, executor="nvfuser"))
    choices = {"remat.preset": "off"}
    assert "no estimate" in point(app, {"choices": choices})["how"]
    look(app, "Single choices")
    until(lambda: app.preview.content["how"] == "exact; see Single choices")
    until(lambda: app.worth.content["left"] == 0)
    row = next(row for row in app.worth.content["rows"] if row["choices"] == choices)
    shown = {figure["name"]: figure["text"] for figure in app.preview.content["figures"]}
    assert row["saved_bytes"]
    assert shown["saved"] == human_bytes(row["saved_bytes"], signed=True)
    app.preview.point({})
    app.preview.learn(app.bench.plan, choices, app.bench.worth().exact(choices), "a test")
    assert app.preview.content == {}
    app.close()


def test_a_change_names_the_other_sites_that_changed():
    layers = [f"layers.{number}.attention" for number in range(3)]
    changed = (*(f"saved:{layer}/softmax" for layer in layers), "saved:norm/mul", "order.forward")
    diff = PlanDiff(
        **dict.fromkeys(("peak_bytes", "saved_bytes", "saved_tensors", "flops", "fusions"), 0),
        counts={},
        changed=changed,
    )
    told = words_of_change("attention/softmax", "recompute", ["saved:layers.0.attention/softmax"], "", diff, "H100")
    others = "layers.*.attention/softmax × 2, norm/mul, …"
    assert told == f"attention/softmax set to recompute: 4 other sites changed too ({others})."
