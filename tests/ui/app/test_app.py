"""The app without a browser page: its panels pass requests to the bench, and show the bench's state."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import threading
from types import SimpleNamespace

import comm
import numpy as np
import pytest
from ipykernel.comm.comm import BaseComm
from ipykernel.kernelbase import Kernel

import workbench as wb
from tests.needs import needs_nvfuser
from tests.ui.apps import choose, figure, legal, look, settled, strip, turn, until
from tests.ui.synthetic import llama
from workbench.analysis.memory.liveness import alive_storages
from workbench.bench import PlanDiff
from workbench.bench.fit.choice_ranking import options_of
from workbench.bench.session.plan_diff import newly_held
from workbench.compiler import api
from workbench.core.graph import Kind
from workbench.errors import ChoiceError
from workbench.summary import human_bytes
from workbench.ui.app.app import App
from workbench.ui.controls.controls import Controls
from workbench.ui.controls.messages import choices_file, words_of_change
from workbench.ui.graph import graph_view
from workbench.ui.graph.graph_view import GraphView
from workbench.ui.graph.layout_arrays import ArcStyle
from workbench.ui.graph.module_labels import modules_of
from workbench.ui.graph.node_names import next_option, node_ids
from workbench.ui.graph.payload import payload
from workbench.ui.tabs import passes_tab, tables
from workbench.ui.tabs.tables import site_rows, trace_lines
from workbench.util import gc_pause


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    return wb.open("mlp", device="cpu", layers=2)


@pytest.fixture
def app(bench):
    app = App(bench)
    yield app
    while bench.can_undo:
        bench.undo()
    app.close()


def test_a_double_click_on_an_arc_chooses_and_shows_the_change(app, bench):
    site = legal(bench)
    turn(app, site.id)
    assert bench.site(site.id).choice != site.choice
    assert "delta" in figure(app, "saved")
    assert "set to" in app.controls.content["message"]["text"]
    app.graph._receive(None, {"type": "undo"}, [])
    assert bench.site(site.id).choice == site.choice
    assert "delta" not in figure(app, "saved")
    # The message about the choice was replaced, because undo made it wrong.
    told = app.controls.content["message"]["text"]
    assert told.startswith(f"Undid: {site.label} is back at {site.choice}: predicted peak")
    app._on_message({"type": "redo"})
    assert app.controls.content["message"]["text"].startswith(f"Redid: {site.label} is back at recompute: ")
    app._on_message({"type": "undo"})
    pair = [found for found in bench.sites("saved") if found.values and "recompute" not in found.illegal][:2]
    bench.choose({found.id: "recompute" for found in pair})
    app._on_message({"type": "undo"})
    assert app.controls.content["message"]["text"].startswith("Undid 2 choices: predicted peak ")


def test_the_inspector_shows_the_effect_of_each_option(app, bench):
    site = legal(bench)
    app.graph.selected = site.id
    until(lambda: any("figures" in option for option in app.inspector.content["sites"][0]["options"]))
    effects = bench.effects(site.id)
    options = {option["name"]: option for option in app.inspector.content["sites"][0]["options"]}
    assert set(effects) <= set(options)
    assert options[site.choice]["current"]


def test_without_a_selection_the_inspector_lists_the_choices_that_lower_the_peak_most(app, bench, monkeypatch):
    monkeypatch.setattr("workbench.ui.app.selection._PROGRESS_S", -1.0)
    unfused = wb.open("mlp", device="cpu", layers=2, executor="torch")
    app = App(unfused)
    progress: list[str] = []
    app.inspector.observe(lambda change: progress.append(change.new.get("progress", "")), "content")
    assert not app.inspector.content["best"], "nothing is computed before a page shows the inspector"
    app._on_inspector({"type": "best"})
    until(lambda: not app.inspector.content["waiting"])
    count = len([1 for group in app.graph.groups() if not group[0].is_setting for _ in options_of(group)])
    assert progress == [*(f"{number} of {count}" for number in range(count)), ""]
    first, worth = app.inspector.content["best"][0], unfused.worth()
    single = [choices for group in app.graph.groups() if group[0].values for choices in options_of(group)]
    assert first["peak"]["text"] == human_bytes(min(worth.exact(one).peak_bytes for one in single), signed=True)
    peak_bytes = unfused.plan.peak_bytes
    app._on_inspector({"type": "choose_all", "choices": first["choices"]})
    assert app.choosing.settle(60)
    assert first["peak"]["text"] == human_bytes(unfused.plan.peak_bytes - peak_bytes, signed=True)
    until(lambda: not app.inspector.content["waiting"])
    assert first["choices"] not in [row["choices"] for row in app.inspector.content["best"]]
    app.close()


def test_every_statement_shown_can_be_inspected(app, bench):
    data = app.graph.data
    ids = [text for text in data["strings"] if text.startswith(("t:", "f:", "s:"))]
    assert len(ids) > 20
    for id in ids:
        app.graph.selected = id
        assert app.inspector.content["title"], id


def test_a_module_can_be_inspected(app, bench):
    shown = app.graph.shown
    module = modules_of(shown.graph, shown.layout)[0]
    assert module.forward > 1
    app.graph.selected = f"module:{module.scope}"
    assert app.inspector.content["title"] == module.scope
    assert ["forward", f"{module.forward} statements"] in app.inspector.content["facts"]
    app.graph.selected = "module:none"
    assert app.inspector.content["hint"], "the inspector must show its hint, because the module does not exist"


def test_the_graph_has_the_other_legal_options_of_each_arc(app, bench):
    shown, able = app.graph.shown, legal(bench)
    stuck = dataclasses.replace(able, illegal=dict.fromkeys(able.options, "a reason"))
    for site, others in ((able, "recompute\noffload"), (stuck, None)):
        sites = [site if one.id == site.id else one for one in shown.sites]
        drawn = payload(shown.graph, shown.layout, sites)
        columns = {name: np.frombuffer(text, np.int32) for name, (_, text) in drawn["tables"]["choice"].items()}
        of = [drawn["strings"][id] for id in columns["id"]]
        assert len(of) > 1
        found = drawn["strings"][columns["others"][of.index(site.id)]] if site.id in of else None
        assert found == others


def test_a_refused_choice_changes_nothing_and_gives_one_line(app, bench):
    before = bench.choices
    choose(app, legal(bench).id, "nonsense")
    assert bench.choices == before
    message = app.controls.content["message"]
    assert message["bad"]
    assert "nonsense" in message["text"]
    app._on_message({"type": "dismiss"})
    assert app.controls.content["message"] is None


def test_the_export_below_a_fit_writes_the_usual_file(app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app._on_message({"type": "export"})
    assert (tmp_path / app.controls.file).read_text().startswith('"""Choices for Thunder')


def test_a_failed_export_is_reported_and_a_possible_export_is_written(app, tmp_path):
    app._on_message({"type": "export", "path": str(tmp_path / "none" / "x.py")})
    assert app.controls.content["message"]["bad"]
    (tmp_path / "notes.txt").write_text("mine")
    app._on_message({"type": "export", "path": str(tmp_path / "notes.txt")})
    told = app.controls.content["message"]["text"]
    assert told.endswith("; give another name"), "the message must name only what the app can do"
    app._on_message({"type": "export", "path": str(tmp_path / "x.py")})
    assert app.controls.content["message"] == {
        "text": f'Written to {tmp_path / "x.py"}. In a script: fast = wb.load("{tmp_path / "x.py"}").jit(model)',
        "bad": False,
        "file": str(tmp_path / "x.py"),
    }
    assert wb.load(tmp_path / "x.py").program == "mlp"


@pytest.mark.parametrize(
    ("changes", "held"),
    [
        ({"program": "llama"}, "the choices of llama"),
        ({"fingerprint": "0123456789abcdef"}, "the choices of another mlp, with other statements"),
    ],
)
def test_an_export_replaces_choices_of_another_program_only_at_the_second_press(app, bench, tmp_path, changes, held):
    path = tmp_path / "x.py"
    theirs = dataclasses.replace(bench.config, **changes)
    theirs.write(path)

    def export() -> dict:
        app._on_message({"type": "export", "path": str(path)})
        return app.controls.content["message"]

    asked = {"text": f"{path} exists and holds {held}: Export again to replace it", "bad": True}
    assert export() == asked
    assert wb.load(path) == theirs
    app._on_message({"type": "dismiss"})
    assert export() == asked, "the dismissed question must be asked again"
    assert wb.load(path) == theirs
    assert not export()["bad"]
    assert wb.load(path) == bench.config
    assert not export()["bad"], "choices of the same program must be replaced without a question"


def test_an_export_asks_before_it_replaces_an_unreadable_config(app, bench, tmp_path):
    path = tmp_path / "x.py"
    newer = bench.config.text().replace("format_version=1", "format_version=2")
    path.write_text(newer)
    app._on_message({"type": "export", "path": str(path)})
    assert "a config that cannot be read" in app.controls.content["message"]["text"]
    assert path.read_text() == newer


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("llama", "llama.choices.py"),
        ("/a folder/net.py:factory", "net.py_factory.choices.py"),
        ("<lambda>", "_lambda_.choices.py"),
        ('a"b|c?d*e\\f\n', "a_b_c_d_e_f_.choices.py"),
        ("..", "program.choices.py"),
        ("é" * 300, "é" * 100 + ".choices.py"),
    ],
)
def test_the_default_export_file_is_named_by_the_program(name, file):
    assert choices_file(SimpleNamespace(spec={"name": name})) == file


def test_the_field_of_the_app_has_the_default_export_file(app):
    assert app.controls.file == "mlp.choices.py"


@pytest.fixture
def unplanned():
    """Yield an app whose bench has made only the stock plan."""
    app = App(wb.open("mlp", device="cpu", layers=1))
    yield app
    app.close()


class Slow:
    """Make `api.plan` wait until the event `let` is set."""

    def __init__(self, bench, monkeypatch) -> None:
        self.let, plan = threading.Event(), api.plan

        def held(captured, choices, newer=None):
            assert self.let.wait(120)
            return plan(captured, choices, newer)

        monkeypatch.setattr(api, "plan", held)


def test_a_click_is_shown_before_it_is_planned(unplanned, monkeypatch):
    app, bench = unplanned, unplanned.bench
    slow, site, now = Slow(bench, monkeypatch), legal(bench), bench.plan
    gain = bench.worth().quick({site.id: "recompute"})
    app.graph._receive(None, {"type": "turn", "id": site.id}, [])
    assert bench.plan is now
    assert app.graph.asked == {site.id: ArcStyle.RECOMPUTED}
    assert figure(app, "saved")["text"] == f"≈\u00a0{human_bytes(now.saved_bytes + gain.saved_bytes)}"
    assert figure(app, "peak")["kind"] == "estimated"
    older = {shown["key"] for shown in app.strip.content["figures"] if shown.get("older")}
    # The predicted step is among the figures as soon as the rates of this CPU are measured.
    assert older - {"step"} == {"fusions"}
    slow.let.set()
    settled(app)
    assert bench.choices == {site.id: "recompute"}
    assert app.graph.asked == {}
    # The program has no fusions, so the estimate equals the figure of the plan.
    assert figure(app, "saved")["text"] == human_bytes(now.saved_bytes + gain.saved_bytes)
    assert figure(app, "saved")["kind"] == "predicted"
    assert not any(shown.get("older") for shown in app.strip.content["figures"])


def test_a_choice_applies_to_all_identical_layers_or_to_one_layer_alone():
    app = App(wb.open("mlp", device="cpu", layers=5))
    bench = app.bench
    able = [s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal]
    site = next(s for s in able if len(app.graph.peers(s.id)) == 3)
    app.graph.selected = site.id
    named = {"one": "this layer alone", "alike": "all 3 identical layers", "all": "all 5 layers"}
    assert app.inspector.content["scope"] == {"now": "alike", "named": named}
    app._on_message({"type": "scope", "scope": "one"})
    assert app.inspector.content["scope"]["now"] == "one"
    app._on_inspector({"type": "choose", "id": site.id, "option": "recompute"})
    settled(app)
    assert bench.choices == {site.id: "recompute"}
    # The layer was one of three identical layers. The message and the graph show that it now differs.
    assert "It now differs from the other 2 layers, and is shown separately." in app.controls.content["message"]["text"]
    assert len(app.graph.peers(site.id)) == 1
    assert app.inspector.content["scope"]["named"] == {"one": "this layer alone", "all": "all 5 layers"}
    turn_back = next(s for s in bench.plan.sites if s.id == site.id).default
    choose(app, site.id, turn_back)
    assert "It is identical to 2 other layers again." in app.controls.content["message"]["text"]
    app._on_message({"type": "scope", "scope": "alike"})
    turn(app, site.id)
    assert len(bench.choices) == 3
    # The menu of the graph also chooses for all identical layers.
    app.graph._receive(None, {"type": "choose", "id": site.id, "option": turn_back}, [])
    settled(app)
    assert {peer.choice for peer in app.graph.peers(site.id)} == {turn_back}
    assert len(app.graph.peers(site.id)) == 3
    app.close()


def test_a_choice_applies_to_all_layers_also_to_layers_that_are_shown_apart():
    app = App(wb.open("mlp", device="cpu", layers=5))
    bench = app.bench
    able = [s for s in bench.sites("saved") if s.values and "recompute" not in s.illegal]
    site = next(s for s in able if len(app.graph.peers(s.id)) == 3)
    every = [one.id for one in app.graph.everywhere(site.id)]
    assert len(every) == 5
    app.graph.selected = site.id
    until(lambda: len(content_of(app, site.id, "recompute", "groups")["groups"]) == 4)
    option = content_of(app, site.id, "recompute", "groups")
    assert [row["name"] for row in option["groups"]] == ["all 5 layers", "layer 0", "layers 1–3", "layer 4"]
    effect = bench.effect(dict.fromkeys(every, "recompute"))
    assert option["groups"][0]["saved"]["text"] == f"−{human_bytes(-effect.saved_bytes)}"
    # A click on a row of this table chooses the option in these layers.
    app._on_inspector({"type": "choose_all", "choices": option["groups"][0]["choices"]})
    settled(app)
    assert bench.choices == dict.fromkeys(every, "recompute")
    bench.undo()
    # One layer has the choice already. The choice for all layers includes this layer and the others.
    choose(app, every[2], "recompute")
    app._on_message({"type": "scope", "scope": "all"})
    app.graph.selected = every[2]
    option = content_of(app, every[2], "recompute", "figures")
    assert not option["current"]
    assert option["tag"] == "now in 1 of 5"
    app._on_inspector({"type": "choose", "id": every[2], "option": "recompute"})
    settled(app)
    assert bench.choices == dict.fromkeys(every, "recompute")
    # In the message about several layers, the name of the site has no layer.
    label, told = bench.site(every[2]).label, app.controls.content["message"]["text"]
    assert label.startswith("blocks.2")
    assert told.startswith(f"{label[len('blocks.2.') :]} in 5 layers set to recompute: ")
    # A double click, too, applies to all layers.
    turn(app, every[0])
    assert {bench.site(id).choice for id in every} == {"offload"}
    bench.undo()
    bench.undo()
    # The menu of the graph can choose for all layers, whatever scope is selected.
    app._on_message({"type": "scope", "scope": "alike"})
    app.graph._receive(None, {"type": "choose", "id": every[0], "option": "recompute", "scope": "all"}, [])
    settled(app)
    assert bench.choices == dict.fromkeys(every, "recompute")
    app.close()


def content_of(app: App, id: str, option: str, key: str) -> dict:
    """Wait until the inspector shows `key` of an option, and return the option."""

    def found() -> dict | None:
        sites = {site["id"]: site for site in app.inspector.content.get("sites", ())}
        options = {one["name"]: one for one in sites[id]["options"]} if id in sites else {}
        return options.get(option) if options.get(option, {}).get(key) else None

    until(lambda: found() is not None)
    return found() or {}


def test_a_choice_that_raises_the_peak_says_what_is_alive_there_instead():
    bench = wb.open("mlp", device="cpu", layers=6, batch=4096, executor="torch")
    able = [site.id for site in bench.sites("saved") if site.values and "recompute" not in site.illegal]
    # Between two recomputed layers, one saved tensor is enough. Without it, both layers are alive at once.
    bench.choose({id: "save" if id.endswith("/add") else "recompute" for id in able})
    raises = "saved:blocks.2/add"
    assert bench.effect({raises: "recompute"}).peak_bytes > 0
    app = App(bench)
    app.graph.selected = raises
    held = newly_held(bench.plan, bench.plan_with({**bench.choices, raises: "recompute"}))
    assert held
    app._on_message({"type": "scope", "scope": "one"})
    told = content_of(app, raises, "recompute", "why")["why"]
    assert told.startswith(f"Held at the peak now, and not before: {held[0].name} {human_bytes(held[0].bytes)}")
    choose(app, raises, "recompute")
    assert told in app.controls.content["message"]["text"]
    app.close()


def test_a_click_builds_on_an_earlier_click_that_is_not_planned_yet(unplanned, monkeypatch):
    app, bench = unplanned, unplanned.bench
    slow, site = Slow(bench, monkeypatch), legal(bench)
    for _ in range(2):
        app.graph._receive(None, {"type": "turn", "id": site.id}, [])
    first = next_option(site)
    second = next_option(dataclasses.replace(site, choice=first))
    assert app.choosing.pending == {site.id: second}
    slow.let.set()
    settled(app)
    assert bench.site(site.id).choice == second != first


def test_an_undo_during_planning_undoes_the_choice_that_is_being_planned(unplanned, monkeypatch):
    app, bench = unplanned, unplanned.bench
    before = bench.choices
    slow, site = Slow(bench, monkeypatch), legal(bench)
    app.graph._receive(None, {"type": "turn", "id": site.id}, [])
    app.graph._receive(None, {"type": "undo"}, [])
    assert app.controls.content["message"]["text"] == "Planning, then undo…"
    slow.let.set()
    settled(app)
    assert bench.choices == before
    assert app.controls.content["message"]["text"].startswith(f"Undid: {site.label} is back at {site.choice}")


def test_a_choice_after_an_undo_during_planning_is_kept(unplanned, monkeypatch):
    app, bench = unplanned, unplanned.bench
    before, slow = bench.choices, Slow(bench, monkeypatch)
    first, second = [site for site in bench.sites("saved") if "recompute" in site.options and not site.illegal][:2]
    app.choosing.choose({first.id: "recompute"})
    app.choosing.go(back=True)
    app.choosing.choose({second.id: "recompute"})
    slow.let.set()
    settled(app)
    assert bench.choices == {**before, second.id: "recompute"}


def test_an_undo_while_the_choices_of_a_fit_are_planned_undoes_these(unplanned, monkeypatch):
    app, bench = unplanned, unplanned.bench
    first, second = [site for site in bench.sites("saved") if "recompute" in site.options and not site.illegal][:2]
    bench.choose({first.id: "recompute"})
    before, slow = bench.choices, Slow(bench, monkeypatch)
    fitting = threading.Thread(target=lambda: bench.choose_found({second.id: "recompute"}, "a fit"))
    fitting.start()
    until(lambda: bench.is_choosing)
    app.choosing.go(back=True)
    slow.let.set()
    fitting.join()
    settled(app)
    assert bench.choices == before


@pytest.mark.slow
def test_a_click_among_fused_statements_draws_its_arc_at_once_and_greys_the_figures(monkeypatch):
    app = App(wb.open("mlp", device="planned", layers=1, executor="nvfuser"))
    bench, now = app.bench, app.bench.plan
    slow, site = Slow(bench, monkeypatch), legal(bench)
    app._on_message({"type": "choose", "id": site.id, "option": "recompute"})
    assert bench.plan is now
    assert app.graph.asked == {site.id: ArcStyle.RECOMPUTED}
    assert figure(app, "saved")["kind"] == "predicted"
    older = {shown["key"] for shown in app.strip.content["figures"] if shown.get("older")}
    assert {"peak", "saved", "fusions"} <= older
    assert app.controls.content["message"]["text"].startswith("Planning ")
    slow.let.set()
    settled(app)
    assert bench.choices == {site.id: "recompute"}
    assert app.graph.asked == {}
    assert not any(shown.get("older") for shown in app.strip.content["figures"])
    app.close()


def test_an_app_starts_no_thread_that_works_while_cells_run(bench):
    before = set(threading.enumerate())
    app = App(bench)
    started = set(threading.enumerate()) - before
    for thread in started:
        # These read the recorded runs once, or measure this CPU's rates once, and end.
        if thread.name in ("workbench-experiments", "workbench-rates"):
            thread.join(60)
    alive = {thread.name for thread in started if thread.is_alive()}
    app.close()
    # `workbench-effects` computes effects of sites. It waits until a site is selected.
    assert alive == {"workbench-effects"}


def test_if_planning_refuses_a_choice_nothing_stays_pending(unplanned, monkeypatch):
    app, bench = unplanned, unplanned.bench

    def refused(captured, choices, newer=None):
        raise ChoiceError("not this one", next(iter(choices)))

    monkeypatch.setattr(api, "plan", refused)

    def figures():
        # The predicted step appears as soon as the rates of this CPU are measured.
        return [shown for shown in app.strip.content["figures"] if shown["key"] != "step"]

    shown = figures()
    turn(app, legal(bench).id)
    assert "not this one" in app.controls.content["message"]["text"]
    assert (app.graph.asked, app.choosing.pending, figures()) == ({}, {}, shown)


@needs_nvfuser
def test_without_an_estimate_old_figures_are_marked_until_the_plan_is_ready(monkeypatch):
    bench = wb.open("mlp", device="planned", layers=1, executor="nvfuser")
    app = App(bench)
    slow, site = Slow(bench, monkeypatch), legal(bench)
    app.graph._receive(None, {"type": "turn", "id": site.id}, [])
    marked = {shown["key"] for shown in app.strip.content["figures"] if shown.get("older")}
    assert {"peak", "saved", "fusions"} <= marked
    assert figure(app, "peak")["kind"] == "predicted"
    slow.let.set()
    settled(app)
    assert not any(shown.get("older") for shown in app.strip.content["figures"])
    app.close()


def test_a_choice_of_another_cell_is_shown(app, bench):
    site = legal(bench)
    look(app, "Sites")
    bench.choose({site.id: "recompute"})
    row = next(row for row in app.sites.content["rows"] if row["id"] == site.id)
    assert row["choice"] == "recompute"


def test_hidden_tabs_do_no_work_and_are_right_when_opened(app, bench, monkeypatch):
    looked_at = []
    monkeypatch.setattr(tables, "site_rows", lambda sites: looked_at.append("Sites") or site_rows(sites))
    monkeypatch.setattr(tables, "trace_lines", lambda *of: looked_at.append("Trace") or trace_lines(*of))
    monkeypatch.setattr(passes_tab, "changed_lines", lambda *of: looked_at.append("Passes") or [])
    site = legal(bench)
    bench.choose({site.id: "recompute"})
    assert looked_at == []
    look(app, "Trace")
    assert [line["text"] for line in app.trace.content["lines"]] == bench.plan.text().splitlines()
    look(app, "Sites")
    assert next(row for row in app.sites.content["rows"] if row["id"] == site.id)["choice"] == "recompute"
    look(app, "Trace")
    assert looked_at == ["Trace", "Sites"]
    bench.undo()
    assert looked_at == ["Trace", "Sites", "Trace"]


def test_a_click_computes_the_names_of_nodes_once(app, bench, monkeypatch):
    named = []
    monkeypatch.setattr(graph_view, "node_ids", lambda *of: named.append(of) or node_ids(*of))
    for title in app.places.titles:
        look(app, title)
    turn(app, legal(bench).id)
    assert len(named) == 1


def test_a_large_graph_is_sent_packed_unless_the_page_requests_it_plain():
    view = GraphView(on_turn=print, on_undo=print, on_redo=print)
    view.show(*llama(2))
    assert set(view.data) == {"strings", "sections", "height", "views", "tables"}
    graph, sites = llama(24)
    view.show(graph, sites)
    view._turn_fold("layers")
    assert set(view.data) == {"packed"}
    view._receive(view, {"type": "plain"}, [])
    assert len(view.data["strings"]) > 2000
    view.show(graph, sites)
    assert "packed" not in view.data


def test_no_full_garbage_collection_runs_while_a_click_is_planned_and_drawn(app, bench, monkeypatch):
    found = []
    monkeypatch.setattr(graph_view, "node_ids", lambda *of: found.append(gc.get_threshold()) or node_ids(*of))
    turn(app, legal(bench).id)
    bench.undo()
    App(bench).close()
    assert found == [gc_pause.THRESHOLDS] * 3


def test_the_arc_of_an_offloaded_value_ends_at_its_reload(app, bench):
    site = next(s for s in bench.sites("saved") if s.values and "offload" not in s.illegal)
    bench.choose({site.id: "offload"})
    arcs = app.graph.shown.layout.arcs
    arc = [bench.plan.sites[numbers[0]].id for numbers in arcs.sites].index(site.id)
    assert arcs.style[arc] == ArcStyle.OFFLOADED
    target = app.graph.shown.layout.nodes.statement[arcs.target[arc]]
    assert bench.plan.graph.statements.kind[target] == Kind.RELOAD
    assert "32.0 KiB" in figure(app, "offload")["text"]


@needs_nvfuser
def test_copies_and_fences_are_marks_on_their_statements():
    bench = wb.open("adam", device="planned", parameters=1)
    app = App(bench)
    shown = {bench.plan.sites[n].id: node for n, node in zip(*marks(app), strict=True)}
    assert set(shown) == {s.id for s in bench.sites("copies") if s.values}
    names = {id: bench.plan.graph.statements.name[app.graph.shown.layout.nodes.statement[n]] for id, n in shown.items()}
    assert {name for id, name in names.items() if id.endswith("!fence")} == {"update_aliases"}
    assert {name for id, name in names.items() if not id.endswith("!fence")} == {"copy_"}
    turn(app, "copies:adam/sub_")
    assert "sets −1" in app.controls.content["message"]["text"]
    bench.choose({"copies.fences": "drop"})
    assert not {n for n in app.graph.shown.layout.unplaced if bench.plan.sites[n].lever == "copies"}
    assert strip(app, "copies")[-1]["text"] == "0"
    app.close()


def marks(app: App) -> tuple:
    layout = app.graph.shown.layout.marks
    return layout.site, layout.node.tolist()


def test_a_slow_action_is_announced_while_it_runs(app):
    for last in (None, "found"):
        gate = threading.Event()

        def work(gate=gate, last=last) -> None:
            gate.wait(60)
            if last:
                app._say(last)

        app._in_background("fitting", work)
        assert app.controls.content["message"] == {"text": "Fitting…", "bad": False}
        gate.set()
        until(lambda: not app.controls.content["busy"])
        assert (app.controls.content["message"] or {}).get("text") == last


def test_each_tab_lists_its_actions(app):
    for title in app.places.titles:
        look(app, title)
        assert app.help.content["title"] == title
        assert all(app.help.content["lines"])


def test_an_option_shows_its_meaning(app, bench):
    app.graph.selected = legal(bench).id
    said = {one["name"]: one["means"] for one in app.inspector.content["sites"][0]["options"]}
    assert set(said) == {"save", "recompute", "offload"}
    assert all(said.values())


def test_a_default_that_was_chosen_by_hand_is_listed_and_can_be_released(app, bench):
    site = legal(bench)
    look(app, "Chosen")
    choose(app, site.id, "recompute")
    choose(app, site.id, "save")
    until(lambda: [(row["option"], row["default"]) for row in app.chosen.content["rows"]] == [("save", True)])
    assert bench.by_hand == {site.id}
    app._on_message({"type": "release", "sites": [site.id]})
    assert (app.chosen.content["rows"], bench.by_hand) == ([], frozenset())


def test_a_reverted_choice_is_not_a_default_chosen_by_hand(app, bench):
    site = legal(bench)
    look(app, "Chosen")
    choose(app, site.id, "recompute")
    (row,) = app.chosen.content["rows"]
    app._on_message({"type": "revert", "choices": row["revert"]})
    until(lambda: not bench.choices and not bench.by_hand)
    until(lambda: app.chosen.content["rows"] == [])


def test_a_choice_that_the_user_makes_right_after_a_revert_stays_by_hand(app, bench):
    site = legal(bench)
    choose(app, site.id, "recompute")
    asked = []

    def choose_again():
        if not bench.choices and not asked:
            asked.append(site.id)
            bench.choose({site.id: "recompute"})

    stop = bench.observe(choose_again)
    app._on_message({"type": "revert", "choices": {site.id: site.default}})
    until(lambda: asked and not app.choosing._working)
    stop()
    assert (bench.choices, bench.by_hand) == ({site.id: "recompute"}, {site.id})


def test_the_passes_show_the_change_of_each_step(app):
    look(app, "Passes")
    until(lambda: app.passes.content["names"])
    assert app.passes.content["names"][:2] == ["initial", "gradients"]
    first, second, *_ = app.passes.content["steps"]
    assert "as it was traced" in first["about"]
    assert int(second["left"].split()[0]) > int(first["left"].split()[0])
    assert all(step["about"] and step["took"].endswith("s") for step in (first, second))
    app.passes._receive({"type": "pass", "index": 1})
    until(lambda: app.passes.content["chosen"] == 1)
    assert {mark for mark, _ in app.passes.content["lines"]} == {" ", "+", "-"}


def test_live_values_at_the_predicted_peak_lead_to_nodes_of_the_graph(app, bench):
    assert app.alive.content["measured"] is None
    shown = app.alive.content["predicted"]
    assert shown["head"].endswith("predicted")
    assert shown["peak"]["id"] in app.graph.own_ids()
    rows = [row["id"] for row in shown["rows"] if row["id"]]
    assert rows
    assert set(rows) <= set(app.graph.own_ids())
    for id in (shown["peak"]["id"], rows[0], rows[-1]):
        app._on_message({"type": "unveil", "id": id})
        assert app.graph.selected == id


def test_the_bytes_of_live_values_at_the_predicted_peak_add_up_to_the_peak(app, bench):
    plan = bench.plan
    peak = plan.timeline.peak_statement
    alive = plan.graph.values.storage[alive_storages(plan.graph, peak)]
    parts = [*plan.graph.storages.bytes[alive].tolist(), int(plan.graph.statements.transient_bytes[peak])]
    assert sum(parts) == plan.peak_bytes
    shown = app.alive.content["predicted"]
    assert sorted(row["bytes"] for row in shown["rows"]) == sorted(human_bytes(part) for part in parts if part)
    assert f"{human_bytes(sum(parts))} in all" in shown["head"]


class Channel:
    """A stand-in for the thread in which ipykernel reads the shell channel. It records each message's subshell."""

    def __init__(self) -> None:
        self.asyncio_lock, self.manager, self.sent = asyncio.Lock(), self, []

    def __eq__(self, other: object) -> bool:
        return other is threading.current_thread()

    __hash__ = None

    def get_shell_channel_to_subshell_socket(self, subshell):
        self.sent.append(subshell)
        return SimpleNamespace(send_multipart=lambda msg, copy: None)


def subshells(to) -> list[str | None]:
    """Send a comm message that names the subshell `page`. Return the subshells to which the kernel passes it."""
    message = {"header": {"subshell_id": "page", "msg_type": "comm_msg"}, "content": {"comm_id": "", "data": {}}}
    session = SimpleNamespace(
        feed_identities=lambda msg, copy: ([], msg), deserialize=lambda msg, **_: msg, unpack=lambda content: content
    )
    channel = Channel()
    kernel = SimpleNamespace(
        shell_channel_thread=channel, session=session, comm_manager=SimpleNamespace(get_comm=lambda _: to), log=None
    )
    asyncio.run(Kernel.shell_channel_thread_main(kernel, message))
    return channel.sent


def test_messages_go_to_the_subshell_that_the_page_names_and_not_to_a_busy_subshell(monkeypatch):
    monkeypatch.setattr(comm, "create_comm", lambda **how: BaseComm(**how))
    monkeypatch.setattr(BaseComm, "publish_msg", lambda *args, **kwargs: None)
    graph = GraphView(on_turn=lambda sites: None, on_undo=lambda: None, on_redo=lambda: None)
    for widget in (Controls(), graph):
        widget.comm._reply_subshell_id = "busy"
        assert subshells(widget.comm) == ["page"]


@pytest.mark.skipif(not hasattr(BaseComm, "_reply_subshell_for"), reason="this ipykernel already obeys the page")
def test_the_kernel_sends_messages_of_a_plain_comm_to_the_busy_subshell(monkeypatch):
    monkeypatch.setattr(BaseComm, "publish_msg", lambda *args, **kwargs: None)
    plain = BaseComm(target_name="plain", primary=False)
    plain._reply_subshell_id = "busy"
    assert subshells(plain) == ["busy"]


def test_a_fusion_shows_its_source_on_request(tmp_path) -> None:
    app = App(wb.open("mlp", device="cpu", executor="torchcompile", layers=1))
    try:
        shown = app.graph.shown
        assert shown is not None
        fusion = next(row for row, kind in enumerate(shown.graph.statements.kind) if kind == Kind.FUSION)
        app.graph.selected = shown.node_ids[shown.layout.node_of[fusion]]
        name = shown.graph.statements.name[fusion]
        assert app.inspector.content["fusion"] == name
        assert "code" not in app.inspector.content
        app.inspector._handle_custom_msg({"type": "code", "fusion": name}, [])
        until(lambda: "code" in app.inspector.content)
        assert app.inspector.content["code"]["text"] == app.bench.plan.code(name).text
        assert "erf" in app.inspector.content["code"]["text"]
        # A fusion that reads a value stands for its members.
        statements, ids, checked = shown.graph.statements, shown.statement_ids, 0
        fusions = {statements.name[row]: row for row, kind in enumerate(statements.kind) if kind == Kind.FUSION}
        for id in dict.fromkeys(filter(None, ids)):
            app.graph.selected = id
            for value in app.inspector.content.get("outputs", []):
                for row in (fusions[end["label"]] for end in value["ends"] if end["label"] in fusions):
                    members = {ids[member] for member in range(len(statements)) if statements.parent[member] == row}
                    readers = {end["id"] for end in value["ends"] if end["label"] != statements.name[row]}
                    assert not members & readers
                    checked += 1
        assert checked
    finally:
        app.close()


def test_the_selection_is_marked_in_every_panel_that_shows_statements(app, bench):
    site = legal(bench)
    app.graph.selected = site.id
    marked = app.graph.marked_nodes(site.id)
    sides = [app.graph.shown.layout.nodes.side[app.graph.shown.node_of[id]] for id in marked]
    assert sides == [0, 1], "an arc must be marked at both ends"
    for panel in (app.memory, app.timeline, app.passes, app.trace):
        assert panel.marked == marked
    app.graph.selected = marked[0]
    assert app.trace.marked == [marked[0]]
    (row,) = app.memory.chosen
    assert app.memory._ids[row] == marked[0]


def test_a_click_on_the_memory_curve_or_on_a_pass_line_selects_in_the_graph(app, bench):
    last = int(np.frombuffer(app.memory.content["sources"]["predicted"]["x"])[-1])
    app.memory._answer({"type": "at", "x": last + 0.4})
    assert app.graph.selected == app.memory._ids[last] != ""
    app.memory._answer({"type": "at", "x": last + 0.6})
    assert app.graph.selected == app.memory._ids[last]
    app.passes._receive({"type": "value", "value": legal(bench).values[0]})
    assert app.graph.selected in app.graph.marked_nodes(legal(bench).id)


def test_a_selected_statement_shows_its_options_and_the_sites_of_its_inputs(app, bench):
    site = legal(bench)
    shown = app.graph.shown
    (value,) = site.values[:1]
    statement = next(s for s, outs in enumerate(bench.plan.graph.statements.outputs)
                     if value in [bench.plan.graph.values.name[v] for v in outs.tolist()])  # fmt: skip
    app.graph.selected = shown.statement_ids[statement]
    content = app.inspector.content
    assert [one["id"] for one in content["sites"]] == [site.id]
    assert content["outputs"][0]["name"] == value
    assert site.id not in [one["id"] for one in content["here"]]
    recompute = content_of(app, site.id, "recompute", "figures")
    assert recompute["figures"][0]["name"] == "peak, predicted"
    app._on_inspector({"type": "choose", "id": site.id, "option": "recompute"})
    settled(app)
    assert bench.site(site.id).choice == "recompute"
    assert app.inspector.content["outputs"][0]["name"] == value, "the statement is no longer shown after a choice"
    # A statement that only reads the value has a link to its site.
    reader = next(s for s, ins in enumerate(bench.plan.graph.statements.inputs)
                  if value in [bench.plan.graph.values.name[v] for v in ins.tolist()])  # fmt: skip
    app.graph.selected = app.graph.shown.statement_ids[reader]
    assert (site.id, "read") in [(one["id"], one["what"]) for one in app.inspector.content["here"]]


def test_a_choice_shows_all_changed_figures_and_the_reason_for_an_unchanged_peak(app, bench):
    moved = PlanDiff(
        peak_bytes=0, saved_bytes=0, saved_tensors=0, flops=7000, fusions=0, counts={}, changed=(), unique_fusions=2
    )
    said = words_of_change(
        "matmul", "recompute", ["saved:matmul"], "layers", moved, "H100", "Peak unchanged: it is inside sum."
    )
    assert said == "matmul set to recompute: operations +7 k, unique fusions +2. Peak unchanged: it is inside sum."
    several = [site for site in bench.sites("saved") if site.values and not site.illegal][:2]
    app._on_message({"type": "choose_all", "choices": {site.id: "recompute" for site in several}})
    settled(app)
    assert app.controls.content["message"]["text"].startswith("2 choices made: ")
    bench.undo()
    for site in bench.sites("saved"):
        if (
            site.values
            and not site.illegal
            and not bench.predict({site.id: "recompute"}).peak_bytes - bench.plan.peak_bytes
        ):
            choose(app, site.id, "recompute")
            assert "Peak unchanged: it is inside" in app.controls.content["message"]["text"]
            return
    raise AssertionError("every site changes the peak")


def test_the_timeline_of_ranks_is_marked_as_simulated():
    app = App(wb.open("tensor_parallel_mlp", layers=1, device="planned", executor="torch", ranks=2))
    assert "2 ranks is being simulated" in app.timeline.content["head"]
    app.places.open("Timeline")
    assert "A step simulated on 2 × " in app.timeline.content["head"]
    app.close()


@pytest.mark.slow
def test_the_timeline_lists_for_each_collective_how_long_compute_waits():
    bench = wb.open("fsdp_llama", layers=2, device="planned", executor="torch")
    app = App(bench)
    app.places.open("collectives")
    rows = app.timeline.content["collectives"]
    overlap = bench.overlap()
    assert len(rows) == len(overlap.order.distances) > 4
    assert sum(row["blocks_s"] for row in rows) == pytest.approx(overlap.simulation.exposed_communication_s)
    assert [row["kernels"] for row in rows] == list(overlap.order.distances)
    assert all(row["bytes"] > 0 < row["seconds"] for row in rows)
    shown = {*app.graph.shown.node_ids}
    assert {row["id"] for row in rows} & shown
    app.close()
    alone = App(wb.open("mlp", device="planned", executor="torch"))
    alone.places.open("Timeline")
    assert "collectives" not in alone.timeline.content
    alone.close()
