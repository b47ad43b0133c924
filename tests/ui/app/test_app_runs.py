"""The app without a browser page shows measurements, experiments and timelines with the choices of their run."""

from __future__ import annotations

import json
import shlex
import threading
from types import SimpleNamespace

import pytest
import torch
from typer.main import get_command

import workbench as wb
from tests.needs import needs_nvfuser
from tests.runs.sweep.test_compare import around, recorded
from tests.runs.test_run_observers import live
from tests.ui.apps import figure, legal, look, strip, until
from workbench.cli import entry
from workbench.errors import RunError
from workbench.runs.log import event_log, events
from workbench.runs.measure.memory_snapshot import SNAPSHOT_FILE
from workbench.runs.process import follow_run, request, run_store
from workbench.ui.app.app import TRACE_FILE, App
from workbench.ui.controls.messages import why_not_run
from workbench.ui.tabs.compile_tab import Waterfall
from workbench.ui.tabs.experiments import Experiments, run_row
from workbench.ui.tabs.peak_table import measured_content
from workbench.ui.tabs.tables import RunsAsked, runs_content
from workbench.ui.tabs.timeline_tab import timeline_content


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


def test_a_planned_program_shows_a_command_for_another_machine_and_no_button(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    app = App(wb.open("mlp", device="planned", executor="torch", layers=1))
    command = "thunder-workbench run mlp --device cuda --config mlp.choices.py"
    look(app, "Timeline")
    look(app, "Settings")
    until(lambda: not app.experiments.content["loading"])
    app._on_message({"type": "perfetto"})
    said = [
        app.compile.content["cannot_run"],
        app.experiments.content["cannot_run"],
        app.settings.content["runs"]["cannot_run"],
        app.timeline.content["head"],
        app.controls.content["message"]["text"],
    ]
    assert all(text.startswith(app.controls.content["cannot_run"]) and command in text for text in said), said
    assert len(set(said)) == 1
    parsed = get_command(entry.app).commands["run"].make_context("run", shlex.split(command)[2:])
    assert (parsed.params["program"], parsed.params["device"].value) == ("mlp", "cuda")
    with pytest.raises(RunError, match="nothing runs on the device planned"):
        app.bench.run()
    assert not list(tmp_path.iterdir()), "a refused run must leave no folder: it would be listed as a failed run"
    app.close()


def test_the_hint_for_a_users_planned_program_opens_the_program_on_a_machine_with_a_gpu():
    bench = wb.open(torch.nn.Linear(4, 4), torch.ones(2, 4), device="planned", executor="torch")
    assert "workbench.open(model, *inputs, device='cuda', config='Linear.choices.py').run()" in why_not_run(
        bench.program
    )


def test_a_runnable_program_names_the_button_to_press(app):
    assert app.controls.content["cannot_run"] == app.compile.content["cannot_run"] == ""
    look(app, "Timeline")
    assert "Compile & run" in app.timeline.content["head"]


def test_the_list_of_runs_follows_the_state_of_a_run(app, monkeypatch):
    run, listed = SimpleNamespace(state="starting"), []
    monkeypatch.setattr(app, "_runs", SimpleNamespace(latest=run, keep_measured=lambda: False))
    monkeypatch.setattr(app, "_show_figures", lambda: None)
    monkeypatch.setattr(app, "_redraw", lambda *titles: None)
    monkeypatch.setattr(app.experiments, "refresh", lambda: listed.append(run.state))
    for state in ("starting", "compiling", "compiling", "running", "running"):
        run.state = state
        app._on_news(run)
    assert listed == ["starting", "compiling", "running"]


def test_live_values_at_the_measured_peak_are_listed_separately(app, bench, tmp_path):
    folder = request.prepare(tmp_path / "run", bench.program, predicted_peak_bytes=100)
    by = {"statement": 3, "name": "torch_tanh_prim_impl", "outputs": ["t7"], "source": "mlp.py:19"}
    none = {"statement": -1, "name": "", "outputs": [], "source": ""}
    found = ((2048, "t7", by), (1024, "", by), (4, "", none))
    alive = [{"bytes": nbytes, "value": value, **made} for nbytes, value, made in found]
    log = event_log.EventLog(folder / event_log.LOG_FILE)
    peak = {"measured_peak_bytes": 7172, "baseline_bytes": 4096, "timeline_s": [0.0], "live_bytes": [4096]}
    log.write(events.PeakMeasured(t_s=1.0, **peak, method="allocation events", peak_statement=by, alive=alive))
    log.write(events.EagerPeakMeasured(t_s=1.2, measured_peak_bytes=8192))
    timed = {"t_s": 1.5, "samples_s": [1.0], "step_s": 1.0}
    log.write(events.VariantTimes(**timed, name="stock", ratio=1.3, ratio_low=1.2, ratio_high=1.4))
    log.write(events.VariantTimes(**timed, name="thunder", ratio=1.1, ratio_low=0.9, ratio_high=1.4))
    log.write(events.Finished(t_s=2.0))
    run = follow_run.follow(folder)
    assert run_row(run)["against"] == ["stock takes 1.30 × this time: slower", "thunder: within noise"]
    shown = measured_content(run, {"t7": "t:t7"})
    assert shown["head"] == "7.00 KiB in all, measured"
    assert shown["peak"] == {"id": "t:t7", "name": "tanh"}
    assert [(row["value"], row["statement"], row["bytes"], row["id"]) for row in shown["rows"]] == [
        ("", "parameters, buffers and inputs", "4.00 KiB", ""),
        ("t7", "tanh", "2.00 KiB", "t:t7"),
        ("transient", "tanh", "1.00 KiB", "t:t7"),
        ("", "autograd, between statements", "4 B", ""),
    ]
    assert measured_content(run, {})["head"].endswith("measured under other choices")
    bench._runs = (run,)
    app._refresh()
    app._on_news(run)
    assert app.alive.content["measured"]["rows"][1]["value"] == "t7"
    assert app.alive.content["predicted"]["head"].endswith("predicted")
    assert app.alive.content["eager"] == "Eager PyTorch: 8.00 KiB, measured"
    bench._runs = ()


def test_a_run_is_shown_as_measured_only_for_its_own_choices(bench, tmp_path):
    """The test makes a choice after the run and before it opens the app, so the run's figures are for other choices."""
    run_dir = bench.prepare(folder=tmp_path / "run")
    by = {"statement": 3, "name": "torch_tanh_prim_impl", "outputs": ["t7"], "source": "mlp.py:19"}
    peak = {"measured_peak_bytes": 7172, "baseline_bytes": 4096, "timeline_s": [0.0], "live_bytes": [4096]}
    for event in (
        events.PeakMeasured(t_s=1.0, **peak, method="allocation events", peak_statement=by, alive=[]),
        events.StepTimes(t_s=1.5, samples_s=[1.0], step_s=1.0),
        events.Finished(t_s=2.0),
    ):
        event_log.append(run_dir / event_log.LOG_FILE, event)
    bench._runs = (follow_run.follow(run_dir),)
    site = legal(bench)
    bench.choose({site.id: "recompute"})
    later = App(bench)
    try:
        later._on_news(bench.runs[0])
        assert strip(later, "peak")[1]["kind"] == "earlier plan"
        until(lambda: [value["kind"] for value in strip(later, "step")[:2]] == ["predicted", "earlier plan"])
        assert "measured under other choices" in later.alive.content["measured"]["head"]
        assert "other choices" in later.memory.content["set"]["time axis"]["axis_label"]
        assert "step 1.00 s, peak 7.00 KiB, measured, under other choices" in repr(bench)
        bench.undo()
        assert strip(later, "peak")[1]["kind"] == "measured"
        assert figure(later, "step")["kind"] == "measured"
        assert "other choices" not in later.alive.content["measured"]["head"]
        assert "other choices" not in later.memory.content["set"]["time axis"]["axis_label"]
        assert "other choices" not in repr(bench)
    finally:
        later.close()
        bench._runs = ()


def test_the_strip_compares_the_plan_with_the_pinned_run(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    site = legal(bench)
    bench.choose({site.id: "recompute"})
    request.prepare(tmp_path / "run", bench.program, config_text=bench.config.text({}), name="less")
    bench.undo()
    app = App(bench)
    until(lambda: app.experiments.content["rows"])
    row = app.experiments.content["rows"][0]
    assert (row["name"], row["choices"]) == ("less", [f"{site.id}: recompute"])
    assert "delta" not in figure(app, "saved")
    app.experiments._receive({"type": "pin", "folder": row["folder"], "pinned": True})
    until(lambda: "delta" in figure(app, "saved"))
    assert figure(app, "saved")["delta"] == "+32.0 KiB"
    changes = [value for figure in app.strip.content["figures"] for value in figure["values"] if "delta" in value]
    assert {value["delta_vs"] for value in changes} == {"vs pinned: less"}
    look(app, "Memory")
    legend = "pinned: less, predicted"
    until(lambda: app.memory.content["set"]["start legend"]["label"]["value"] == legend)
    app.experiments._receive({"type": "delete", "folder": row["folder"]})
    assert "pinned" in app.controls.content["message"]["text"]
    app.experiments._receive({"type": "pin", "folder": row["folder"], "pinned": False})
    until(lambda: "delta" not in figure(app, "saved"))
    app.experiments._receive({"type": "rename", "folder": row["folder"], "name": "lesser"})
    until(lambda: app.experiments.content["rows"][0]["name"] == "lesser")
    app.experiments._receive({"type": "note", "folder": row["folder"], "note": "one tensor less"})
    until(lambda: app.experiments.content["rows"][0]["note"] == "one tensor less")
    app.experiments._receive({"type": "delete", "folder": row["folder"]})
    until(lambda: not app.experiments.content["rows"])
    app.close()


def test_a_run_renamed_while_its_row_is_read_is_shown_with_its_new_name(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    folder = request.prepare(tmp_path / "run", bench.program, name="less")
    shown = Experiments(bench.program, on_pinned=lambda: None, act=lambda act: act())
    follow = follow_run.follow

    def read_and_then_rename(run_dir):
        run = follow(run_dir)
        monkeypatch.setattr(follow_run, "follow", follow)
        run_store.rename(folder, "lesser")
        return run

    monkeypatch.setattr(follow_run, "follow", read_and_then_rename)
    shown._load()
    shown._load()
    assert [row["name"] for row in shown.content["rows"]] == ["lesser"]


@pytest.mark.slow
@pytest.mark.long
def test_a_run_times_variants_and_takes_a_snapshot_if_the_settings_say_so(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    bench = wb.open("mlp", layers=1, device="cpu")
    app = App(bench)
    look(app, "Settings")
    assert not any(way["on"] for way in app.settings.content["runs"]["ways"])
    app.settings._handle_custom_msg({"type": "runs", "against": ["thunder", "stock"], "snapshot": True}, [])
    assert all(way["on"] for way in app.settings.content["runs"]["ways"])
    assert app.controls.content["in_turns"]
    app.controls._handle_custom_msg({"type": "run"}, [])
    run = bench.runs[-1]
    run.wait()
    assert run.error is None
    until(lambda: "memory_viz" in (app.controls.content.get("message") or {"text": ""})["text"])
    assert (run.run_dir / SNAPSHOT_FILE).exists()
    assert str(run.run_dir / SNAPSHOT_FILE) in app.controls.content["message"]["text"]
    until(lambda: strip(app, "step")[1]["kind"] == "predicted")
    kinds = [value["kind"] for value in strip(app, "step")]
    assert kinds[1:] == ["predicted", "95 % interval", "stock, measured", "thunder, measured"]
    app._on_message({"type": "perfetto"})
    assert json.loads((run.run_dir / TRACE_FILE).read_text())["traceEvents"]
    assert str(run.run_dir / TRACE_FILE) in app.controls.content["message"]["text"]
    assert figure(app, "step")["delta_vs"] == "vs no choices"
    assert "measured interleaved" in figure(app, "step")["delta_tip"]
    app.controls._handle_custom_msg({"type": "in_turns", "on": False}, [])
    assert [way["name"] for way in app.settings.content["runs"]["ways"] if way["on"]] == ["thunder"]
    app.settings._handle_custom_msg({"type": "runs", "against": [], "snapshot": False}, [])
    assert not any(way["on"] for way in app.settings.content["runs"]["ways"])
    app.close()


def test_ranks_take_no_snapshot_and_the_settings_give_the_reason():
    assert "2 ranks share the program" in runs_content(RunsAsked(), 2)["no_snapshot"]
    assert runs_content(RunsAsked(), 1)["no_snapshot"] == ""


def test_the_waterfall_shows_the_open_fusion_and_the_times_of_ended_stages():
    waterfall = Waterfall()
    assert waterfall.content()["state"] == "none"
    waterfall.take(events.Phase(t_s=2.0, phase="compile"))
    waterfall.take(events.Stage(t_s=3.0, name="interpret", seconds=1.0))
    waterfall.take(events.FusionBegin(t_s=3.0, name="nvFusion0", index=0, count=2))
    waterfall.take(events.MemorySample(t_s=4.0, rss_bytes=1))
    content = waterfall.content()
    assert content["state"] == "busy"
    assert content["open"] == {"name": "nvFusion0", "index": 0, "count": 2, "start_s": 1.0}
    assert content["seconds"] == 2.0
    parts = {"definition": 0.5, "first launch": 1.5}
    waterfall.take(events.FusionEnd(t_s=5.0, name="nvFusion0", index=0, count=2, seconds=2.0, parts=parts, cached=True))
    waterfall.take(events.Compiled(t_s=6.0, compile_s=4.0, attributed=0.99, stages=[]))
    content = waterfall.content()
    assert (content["state"], content["seconds"], content["cached"]) == ("done", 4.0, 1)
    assert [(row["name"], row["seconds"]) for row in content["rows"]] == [("interpret", 1.0), ("nvFusion0", 2.0)]
    assert [piece["end_s"] for piece in content["rows"][1]["pieces"]] == [1.5, 3.0]
    assert waterfall.seconds_of == {"nvFusion0": 2.0}


def statement_times(**others) -> events.StatementTimes:
    one = {"one_start_s": [0.0, 0.12], "one_seconds": [0.11, 0.2], "one_free_s": [0.0, 0.05], "one_step_s": 0.4}
    return events.StatementTimes(
        t_s=1.0, names=["torch.add", "nvFusion0"], sides=[0, 1], sources=["a.py:1", ""], outputs=[["t1"], ["t2"]],
        start_s=[0.0, 0.05], seconds=[0.1, 0.2], free_s=[0.0, 0.05], step_s=0.3,
        kernels=[{"name": "k", "stream": 7, "start_s": 0.05, "end_s": 0.2}], launch_bound=True,
        verdict="launch-bound", head_gap_s=0.05, bubbles_s=0.0, device_busy_s=0.15,
        **{"overhead": -0.061, "overhead_low": -0.2, "overhead_high": 0.1} | one | others,
    )  # fmt: skip


def test_the_timeline_separates_one_real_step_from_medians_over_steps():
    content = timeline_content(statement_times(), {"t1": "t:t1", "nvFusion0": "f:nvFusion0"}, step_s=0.25)
    assert [lane["name"] for lane in content["lanes"]] == ["host, forward", "host, backward", "stream 7, profiled"]
    assert [lane["bars"][0]["id"] for lane in content["lanes"]] == ["t:t1", "f:nvFusion0", ""]
    forward, backward = (lane["bars"] for lane in content["lanes"][:2])
    assert forward[-1]["end_s"] <= backward[0]["start_s"]
    assert [row["seconds"] for row in content["medians"]] == [0.1, 0.2]
    assert content["head"].startswith("A step takes 250 ms")
    assert "The device is idle for 50 ms before its first work" in content["head"]
    before = timeline_content(statement_times(one_start_s=[], one_seconds=[], one_free_s=[], one_step_s=0.0), {})
    assert [lane["name"] for lane in before["lanes"]] == ["stream 7, profiled"]
    assert len(before["medians"]) == 2


@pytest.mark.parametrize(
    ("one_step_s", "step_s", "words"),
    [
        (0.117, 0.00934, "the lanes show one instrumented step, 117 ms: 12.5 times the median, so not typical"),
        (0.004, 0.00934, "the lanes show one instrumented step, 4 ms: 0.43 times the median, so not typical"),
        (0.0101, 0.00934, "the lanes show one instrumented step, 10.1 ms. "),
        (0.9, None, "the lanes show one instrumented step, 900 ms: 3.0 times the median, so not typical"),
    ],
)
def test_the_timeline_says_whether_the_drawn_step_is_typical(one_step_s, step_s, words):
    head = timeline_content(statement_times(one_step_s=one_step_s), {}, step_s=step_s)["head"]
    assert words.lower() in head.lower()
    assert ("not typical" in words) == ("not typical" in head)


def test_the_overhead_of_clocks_is_shown_only_beyond_noise():
    assert "instrumentation adds is within noise" in timeline_content(statement_times(), {})["head"]
    assert "6.1" not in timeline_content(statement_times(), {})["head"]
    assert "(−20.0 % to +10.0 %)" in timeline_content(statement_times(), {})["head"]
    beyond = statement_times(overhead=0.06, overhead_low=0.01, overhead_high=0.1)
    assert "Instrumentation adds +6.0 % to a step" in timeline_content(beyond, {})["head"]


def test_a_timeline_without_a_run_is_empty():
    assert timeline_content(None, {})["lanes"] == []


def test_the_census_names_every_fusion_once(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    bench = wb.open("residual_chain", executor="torchcompile", grad=True, layers=3)
    app = App(bench)
    look(app, "Fusions")
    content = app.fusions.content
    members = [member["name"] for group in content["groups"] for member in group["members"]]
    assert len(members) == len(set(members)) == bench.plan.census.count
    assert len(content["groups"]) == bench.plan.census.unique
    app.graph.selected = content["groups"][0]["members"][0]["id"]
    assert app.inspector.content["eyebrow"].startswith("fusion")
    app.close()


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["torchcompile", pytest.param("nvfuser", marks=needs_nvfuser)])
def test_a_click_on_a_fusion_of_a_folded_layer_shows_this_fusion(executor: str):
    app = App(wb.open("llama", device="planned", layers=6, executor=executor))
    look(app, "Fusions")
    names = [member["name"] for group in app.fusions.content["groups"] for member in group["members"]]
    hidden = [name for name in names if f"f:{name}" not in app.graph.shown.node_of]
    assert hidden
    for name in (hidden[0], hidden[-1]):
        members = [member for group in app.fusions.content["groups"] for member in group["members"]]
        id = next(member["id"] for member in members if member["name"] == name)
        app.fusions._on_message({"type": "unveil", "id": id})
        assert app.inspector.content["title"] == name
        assert app.graph.selected == id
    assert any(section.count > 1 for section in app.graph.shown.layout.sections), "a click unfolds only one layer"
    app.close()


@pytest.mark.slow
def test_a_click_on_a_value_of_a_folded_layer_shows_this_value():
    app = App(wb.open("llama", device="cpu", layers=6, executor="torch"))
    look(app, "Trace")
    lines = [
        line for line in app.trace.content["lines"] if line.get("own") and line["own"] not in app.graph.shown.node_of
    ]
    app._on_message({"type": "unveil", "id": lines[-1]["own"]})
    assert app.graph.selected == lines[-1]["own"]
    look(app, "Memory")
    rows = [row for row in app.alive.content["predicted"]["rows"] if row["id"]]
    hidden = [row for row in rows if row["id"] not in app.graph.shown.node_of]
    assert hidden
    app._on_message({"type": "unveil", "id": hidden[0]["id"]})
    assert app.graph.selected == hidden[0]["id"]
    assert hidden[0]["value"] in str(app.inspector.content)
    app.close()


def test_an_observer_that_raises_affects_neither_choices_nor_other_observers(bench, caplog):
    def broken():
        raise SystemExit("broken view")

    told = []
    ends = [bench.observe(broken), bench.observe(lambda: told.append(bench.choices))]
    site = legal(bench)
    bench.choose({site.id: "recompute"})
    bench.undo()
    for end in ends:
        end()
    assert told == [{site.id: "recompute"}, {}]
    assert "broken view" in caplog.text


def test_an_unreadable_run_is_reported_and_hides_no_other_run(bench, tmp_path, monkeypatch):
    monkeypatch.setenv(run_store.ROOT_VARIABLE, str(tmp_path))
    for name in ("good", "torn", "folder", "no-log"):
        run_dir = request.prepare(tmp_path / name, bench.program)
        event_log.append(run_dir / event_log.LOG_FILE, events.Finished(t_s=1.0))
    (tmp_path / "torn" / request.REQUEST_FILE).write_text("{")
    (tmp_path / "folder" / request.REQUEST_FILE).unlink()
    (tmp_path / "folder" / request.REQUEST_FILE).mkdir()
    (tmp_path / "no-log" / event_log.LOG_FILE).unlink()
    (tmp_path / "no-log" / event_log.LOG_FILE).mkdir()
    experiments = Experiments(bench.program, on_pinned=lambda: None, act=lambda act: act())
    experiments._load()
    states = {row["name"]: (row["state"], row["error"]) for row in experiments.content["rows"]}
    assert states == {
        "good": ("done", ""),
        "no-log": ("failed", "the event log cannot be read: it is a folder"),
    }
    unreadable = {one["name"]: one["error"] for one in experiments.content["unreadable"]}
    assert set(unreadable) == {"torn", "folder"}
    assert all(request.REQUEST_FILE in error for error in unreadable.values())


def test_the_row_of_a_run_is_updated_after_the_run_has_written(bench, tmp_path, monkeypatch):
    monkeypatch.setenv(run_store.ROOT_VARIABLE, str(tmp_path))
    run_dir = request.prepare(tmp_path / "run", bench.program)
    experiments = Experiments(bench.program, on_pinned=lambda: None, act=lambda act: act())
    experiments._load()
    assert [row["state"] for row in experiments.content["rows"]] == ["failed"]
    event_log.append(run_dir / event_log.LOG_FILE, events.Finished(t_s=1.0))
    experiments._load()
    assert [row["state"] for row in experiments.content["rows"]] == ["done"]


def test_an_event_of_a_run_during_rendering_does_not_block_the_app(app, bench, tmp_path):
    """A thread that holds the app's lock calls `observe`. An event of the run needs the same lock."""
    run_dir = request.prepare(tmp_path / "run", bench.program)
    event_log.append(run_dir / event_log.LOG_FILE, events.Phase(t_s=0.0, phase="compile"))
    run, worker = live(run_dir)
    wanted = threading.Event()

    def on_event(event):
        wanted.set()
        app._on_news(run)

    def draw():
        with app._lock:
            run.observe(on_event)
            event_log.append(run_dir / event_log.LOG_FILE, events.Phase(t_s=1.0, phase="time"))
            wanted.wait(120)
            app.compile.follow(run)

    drawing = threading.Thread(target=draw, daemon=True)
    drawing.start()
    drawing.join(120)
    assert not drawing.is_alive()
    worker.ended.set()
    run.wait(120)


def test_runs_are_compared_with_the_pinned_run_in_the_app(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    for name, center in (("a", 1.0), ("b", 1.5)):
        recorded(tmp_path / name, around(center))
    app = App(bench)
    until(lambda: len(app.experiments.content["rows"]) == 2)
    app.experiments._receive({"type": "compare"})
    assert "no run is pinned" in app.controls.content["message"]["text"]
    app.experiments._receive({"type": "pin", "folder": str(tmp_path / "a"), "pinned": True})
    until(lambda: app.experiments.pinned is not None)
    app.experiments._receive({"type": "compare"})
    compared = app.experiments.content["compared"]
    assert "not measured interleaved" in compared["words"]
    step = next(row for row in compared["rows"] if row["figure"] == "step")
    assert (step["verdict"], step["tone"]) == ("slower", "bad")
    peak = next(row for row in compared["rows"] if row["figure"] == "peak, predicted")
    assert (peak["verdict"], peak["tone"]) == ("same", "")
    app.close()


def test_a_run_is_compared_with_plans_by_the_statements_of_its_own_choices(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("WORKBENCH_RUNS", str(tmp_path))
    recorded(tmp_path / "a", around(1.0))
    app = App(bench)
    until(lambda: len(app.experiments.content["rows"]) == 1)
    app.experiments._receive({"type": "keep"})
    kept = app.experiments.content["plans"][-1]["key"]
    app.experiments._receive({"type": "beside", "plans": ["stock", kept], "runs": [str(tmp_path / "a")]})
    until(lambda: app.experiments.content.get("beside") is not None)
    found = app.experiments.content["beside"]
    assert found["names"] == ["stock", kept, "a"]
    assert all(cell["place"] != "–" for row in found["steps"]["rows"] for cell in row["cells"])
    step = next(row for row in found["tables"][0]["rows"] if row["cells"][:2] == ["step", "measured"])
    assert step["cells"][2:4] == ["–", "–"]
    assert step["cells"][4] != "–"
    app.experiments._receive({"type": "write", "path": str(tmp_path / "page.html")})
    assert (tmp_path / "page.html").exists()
    assert app.experiments.content["written"] == str(tmp_path / "page.html")
    app.experiments.refresh()
    until(lambda: not app.experiments.content["loading"])
    assert app.experiments.content["beside"] == found, "reading the runs again must not remove the comparison"
    app.experiments._receive({"type": "beside", "plans": ["stock"], "runs": []})
    until(lambda: "two plans or runs" in (app.controls.content.get("message") or {}).get("text", ""))
    app.close()


def test_without_a_run_the_perfetto_button_reports_nothing_to_show(app):
    app._on_message({"type": "perfetto"})
    assert "Nothing was measured yet" in app.controls.content["message"]["text"]
