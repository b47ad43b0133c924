"""The Fit tab meets a stated peak memory, applies a point of the curve, and shows the state of the bench."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

import workbench as wb
from workbench.bench.fit.fit_with_cuts import FitterWithCuts
from workbench.errors import DefectError, WorkbenchError
from workbench.runs.process import run_store
from workbench.ui.app.app import App
from workbench.ui.tabs.fit_tab import CurvePlot, FitTab


@pytest.fixture(scope="module")
def opened() -> wb.Workbench:
    return wb.open("mlp", device="cpu", layers=3)


@pytest.fixture
def bench(opened: wb.Workbench) -> Iterator[wb.Workbench]:
    yield opened
    while opened.can_undo:
        opened.undo()


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def tab_of(bench: wb.Workbench) -> tuple[FitTab, list[str]]:
    said: list[str] = []
    tab = FitTab(bench, lambda _busy, act: act(), lambda message: said.append(message["type"]), said.append)
    tab.look(True)
    until(lambda: tab.panel.content["state"] == "done")
    return tab, said


@pytest.mark.slow
def test_a_stated_peak_is_met_and_explained(bench: wb.Workbench) -> None:
    tab, said = tab_of(bench)
    content = tab.panel.content
    assert content["least_bytes"] < content["stock_bytes"] == bench.stock_plan.peak_bytes
    assert content["fit"] is None
    limit = (content["least_bytes"] + content["stock_bytes"]) // 2
    tab.panel._handle_custom_msg({"type": "fit", "peak": str(limit)}, [])
    assert bench.plan.peak_bytes <= limit
    assert said[0].startswith("Peak ")
    shown = tab.panel.content["fit"]
    assert {row["id"]: row["option"] for row in shown["rows"]} == bench.choices
    assert all(row["reason"] for row in shown["rows"])
    assert tab.plot.content["sources"]["now"]["x"] == [bench.plan.peak_bytes]
    bench.undo()
    tab.show_plan()
    until(lambda: tab.panel.content["fit"] is None)
    until(lambda: tab.plot.content["sources"]["now"]["x"] == [bench.plan.peak_bytes])
    # The tab says why a peak is refused, below the field, until another peak is stated.
    with pytest.raises(WorkbenchError):
        tab._receive({"type": "fit", "peak": "200%"})
    assert "at most 100" in tab.panel.content["wrong"]
    tab._receive({"type": "fit", "peak": str(limit)})
    assert tab.panel.content["wrong"] == ""
    bench.undo()


def test_the_tab_names_the_peak_that_is_being_fitted(bench: wb.Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    tab, _ = tab_of(bench)
    find, seen = FitterWithCuts.fit_peak, []

    def noted(fitter: FitterWithCuts, limit_bytes: int) -> object:
        seen.append(tab.panel.content["fitting"])
        return find(fitter, limit_bytes)

    monkeypatch.setattr(FitterWithCuts, "fit_peak", noted)
    tab._receive({"type": "fit", "peak": "97%"})
    assert (seen, tab.panel.content["fitting"]) == (["97%"], "")
    with pytest.raises(WorkbenchError):
        tab._receive({"type": "fit", "peak": "1 KiB"})
    assert (seen, tab.panel.content["fitting"]) == (["97%", "1 KiB"], "")


def test_a_line_without_points_has_no_name_above_the_curve(bench: wb.Workbench) -> None:
    tab = FitTab(bench, lambda _busy, act: act(), lambda _message: None, lambda _text: None)
    tab.plot.show((), None, [], "this CPU", 1)
    named = tab.plot.content["set"]
    assert not [name for name in named if name.endswith("legend") and named[name]["visible"]]
    tab.close()


@pytest.mark.slow
def test_a_clicked_point_is_chosen(bench: wb.Workbench) -> None:
    tab, _ = tab_of(bench)
    points = tab.plot.content["sources"]["points"]
    assert tab.plot.content["set"]["points legend"]["visible"]
    assert len(points["x"]) > 1
    tab.plot._handle_custom_msg({"type": "pick", "source": "points", "index": 0}, [])
    assert bench.plan.peak_bytes == points["x"][0]
    assert bench.pinned == {}
    assert tab.plot.content["sources"]["now"]["y"] == [points["y"][0]]
    tab.plot._handle_custom_msg({"type": "pick", "source": "points", "index": 99}, [])
    assert bench.plan.peak_bytes == points["x"][0]


@pytest.mark.slow
def test_each_kind_of_choice_has_a_line_that_can_be_clicked() -> None:
    bench = wb.open("mlp", device="cpu", layers=1)
    tab, _ = tab_of(bench)
    # On a CPU, an offloaded storage stays in the same memory, so the tab does not draw a curve with offloading.
    assert tab.panel.content["each"] == ["recompute", "order"]
    assert tab.plot.content["sources"]["recompute"]["x"] == []
    tab.panel._handle_custom_msg({"type": "each"}, [])
    until(lambda: tab.panel.content["state"] == "done")
    sources, named = tab.plot.content["sources"], tab.plot.content["set"]
    assert [named[f"{name} legend"]["visible"] for name in ("recompute", "offload", "order")] == [True, False, False]
    assert named["points legend"]["label"]["value"] == "with order"
    assert sources["points"]["x"][0] < sources["recompute"]["x"][0]
    assert "order.statements=" in sources["points"]["why"][0]
    for source in ("recompute", "points"):
        tab.plot._handle_custom_msg({"type": "pick", "source": source, "index": 0}, [])
        assert bench.plan.peak_bytes == sources[source]["x"][0]
    assert bench.choices["order.statements"] == "least peak"
    assert bench.pinned == {}


def failing(*_: object) -> None:
    raise KeyError((81, "offload"))


def test_a_curve_that_fails_reports_the_reason_and_leaves_the_earlier_curve(
    opened: wb.Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tab, _ = tab_of(opened)
    points = tab.plot.content["sources"]["points"]
    monkeypatch.setattr(FitterWithCuts, "lowest_peak", failing)
    tab.panel._handle_custom_msg({"type": "each"}, [])
    until(lambda: tab.panel.content["state"] == "failed")
    assert "KeyError: (81, 'offload')" in tab.panel.content["error"]
    assert "please report it" in tab.panel.content["error"]
    assert tab.panel.content["least_bytes"] == points["x"][0]
    monkeypatch.undo()
    tab.show_plan()
    until(lambda: tab.plot.content["sources"]["points"] == points)
    tab.plot._handle_custom_msg({"type": "pick", "source": "points", "index": 0}, [])
    assert opened.plan.peak_bytes == points["x"][0]
    while opened.can_undo:
        opened.undo()


def test_a_curve_that_fails_after_some_points_keeps_the_points(
    opened: wb.Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    within = FitterWithCuts.fit_peak

    def some(among: FitterWithCuts, limit_bytes: int) -> object:
        return failing() if len(seen) == 3 else (seen.append(limit_bytes), within(among, limit_bytes))[1]

    seen: list[int] = []
    monkeypatch.setattr(FitterWithCuts, "fit_peak", some)
    curve = opened.curve(points=6)
    with pytest.raises(DefectError, match=r"KeyError: \(81, 'offload'\) \(test_fit_tab.py:"):
        curve.wait(60)
    assert curve.state == "failed"
    assert curve.points
    assert "failed" in repr(curve)
    assert isinstance(curve.error.__cause__, KeyError)


def test_an_observer_that_fails_does_not_end_a_curve(opened: wb.Workbench, caplog: pytest.LogCaptureFixture) -> None:
    curve, called = opened.curve(points=4), []
    curve.observe(failing)
    curve.observe(lambda: called.append(curve.state))
    assert curve.wait(60).state == "done"
    assert len(curve.points) > 1
    assert called[-1] == "done"
    assert "an observer of workbench-curve failed" in caplog.text


def test_a_curve_cancelled_while_an_observer_queries_it_ends_as_cancelled(opened: wb.Workbench) -> None:
    curve = opened.curve(points=24)
    curve.observe(lambda: (curve.cancel(), curve.step_s({}), curve.explain({}))[0])
    assert curve.wait(60).state == "cancelled"
    assert curve.error is None


@pytest.mark.parametrize("panel", ["worth", "outline", "passes", "experiments"])
def test_an_unexpected_error_in_the_background_is_shown(
    opened: wb.Workbench, monkeypatch: pytest.MonkeyPatch, panel: str
) -> None:
    app = App(opened)
    until(lambda: not app.experiments.content["loading"])
    app.controls.update(message=None)
    target = getattr(app, panel)
    if panel == "worth":
        monkeypatch.setattr(wb.Workbench, "worth", failing)
        target.show_plan()
        target.look(True)
    elif panel == "outline":
        monkeypatch.setattr(wb.Workbench, "worth", failing)
        target.show_plan()
    elif panel == "passes":
        monkeypatch.setattr(type(opened.plan), "passes", property(failing))
        target.show_plan(opened.plan)
    else:
        monkeypatch.setattr(run_store, "folders", failing)
        target.refresh()
    until(lambda: app.controls.content.get("message") is not None)
    assert app.controls.content["message"] == {"text": "KeyError: (81, 'offload')", "bad": True}
    app.close()


def test_a_choice_by_hand_starts_another_curve(bench: wb.Workbench) -> None:
    tab, _ = tab_of(bench)
    first = tab._curve
    site = next(site for site in bench.sites("saved") if site.values)
    bench.choose({site.id: "offload"})
    tab.show_plan()
    assert tab._curve is not first
    assert tab._curve is not None
    assert tab._curve.pinned == {site.id: "offload"}
    tab.look(False)
    until(lambda: not any(thread.name == "workbench-curve" for thread in threading.enumerate()))


def test_without_a_backward_the_tab_shows_a_note() -> None:
    bench = wb.open(torch.sin, torch.ones(3), device="cpu", executor="torch", capture="interpreter")
    tab = FitTab(bench, lambda _busy, act: act(), lambda _message: None, lambda _text: None)
    tab.look(True)
    assert tab.panel.content["state"] == "failed"
    assert "has no backward" in tab.panel.content["error"]


def test_opening_the_tab_finds_the_curve(bench: wb.Workbench) -> None:
    app = App(bench)
    assert app.fit._curve is None
    app.places.open("Fit")
    until(lambda: app.fit.panel.content["state"] == "done")
    app.fit.panel._handle_custom_msg({"type": "fit", "peak": "no size"}, [])
    until(lambda: "a peak is a number of bytes" in str(app.controls.content.get("message")))
    app.close()


def test_a_run_with_a_long_step_leaves_the_curve_visible_and_is_reported() -> None:
    plot = CurvePlot(lambda _source, _index: None)
    plot.show((), None, [], "this CPU", 4096)
    empty = plot.content["set"]
    assert empty["step axis"]["major_label_text_alpha"] == 0.0
    assert empty["peak"]["start"] <= 0 < 4096 <= empty["peak"]["end"]
    near, far = ("one", 2048, 2.5e-3), ("other", 3000, 1.2)
    plot.show((), (2048, 1e-3), [near, far], "this CPU", 4096)
    shown = plot.content["set"]
    assert shown["step axis"]["major_label_text_alpha"] == 1.0
    assert shown["step"]["start"] < 1.0 < 2.5 < shown["step"]["end"] < 10
    assert shown["peak axis"]["axis_label"].endswith("\nmeasured steps above the plot: 1; the longest takes 1.20 s")
    assert plot.content["sources"]["measured"]["y"] == [2.5, 1200.0]
