"""In a browser, the top-level tab Memory gets only the points that it can show, and more after a zoom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, sync_playwright

import workbench
from tests.browser.chromium import find_chromium
from tests.ui.apps import legal
from tests.ui.memory_page import Shown
from workbench.ui.controls.figure_strip import Baseline
from workbench.ui.tabs.fit_tab import CurvePlot
from workbench.ui.tabs.memory_tab import MemoryTab
from workbench.ui.widgets.plotting import DARK

pytestmark = pytest.mark.browser

EVENTS = 60_000
LIVE = np.abs(np.cumsum(np.random.default_rng(2).integers(-(1 << 20), 1 << 20, EVENTS))).tolist()
TIMES_S = [1e-5 * number for number in range(EVENTS)]
CURVE = "measured over time"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shown(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    bench = workbench.open("mlp", device="cpu", executor="torch", layers=1)
    tab = MemoryTab()
    run = SimpleNamespace(statement_peak_bytes=[], timeline=(TIMES_S, LIVE))
    tab.show(bench.plan, Baseline("stock", None), run)  # type: ignore[arg-type]
    page = browser.new_page(viewport={"width": 960, "height": 500})
    page.set_default_timeout(30_000)
    return Shown(page, tab, tmp_path_factory.mktemp("memory"))


def within(start_ms: float, end_ms: float) -> list[list[float]]:
    return [[1e3 * t, b] for t, b in zip(TIMES_S, LIVE, strict=True) if start_ms <= 1e3 * t <= end_ms]


def test_a_zoomed_out_curve_has_as_many_points_as_pixels_and_a_zoomed_in_curve_has_all(shown):
    assert shown.tab.content["sampled"] == {"statements": False, "time": True}
    far = shown.drawn("time", CURVE)["points"]
    assert len(far) <= 4 * 1001
    assert max(y for _, y in far) == max(LIVE)
    shown.look("time", 200.0, 203.0)
    shown.page.wait_for_function(
        "[...Bokeh.index.roots][0].model.document.get_model_by_name('measured over time').data.x.length < 2000"
    )
    near = shown.drawn("time", CURVE)
    assert near["points"] == within(near["start"], near["end"])
    assert len(near["points"]) == 301

    # The page has loaded one screen on each side of the visible range, so a move by less than a screen sends no
    # request.
    asked = len(shown.sent_bytes)
    shown.look("time", 198.5, 200.5)
    shown.page.wait_for_timeout(250)
    moved = shown.drawn("time", CURVE)
    assert moved["points"] == within(198.5, 200.5)
    assert len(shown.sent_bytes) == asked

    # After zooming out, the plot has the points of the first view again.
    shown.look("time", 0.0, shown.tab.content["set"]["time"]["end"])
    shown.page.wait_for_function(
        f"[...Bokeh.index.roots][0].model.document.get_model_by_name('{CURVE}').data.x.length === {len(far)}"
    )
    assert shown.drawn("time", CURVE)["points"] == far
    assert len(shown.sent_bytes) == asked


def test_a_click_on_the_curve_requests_its_target(shown):
    box = shown.page.locator("#view").bounding_box()
    assert box is not None
    shown.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 150)
    shown.page.wait_for_function("window.messages.some(({ type }) => type === 'at')")


def test_the_tooltip_shows_bytes_as_text(shown):
    box = shown.page.locator("#view").bounding_box()
    assert box is not None
    shown.page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 150)
    shown.page.mouse.move(box["x"] + box["width"] / 3 + 3, box["y"] + 150)
    tip = shown.page.locator(".bk-tooltip-content").first
    tip.wait_for()
    kinds = r"transient:\s+\S+ KiB\s+gradients:\s+\S+ KiB\s+saved:\s+\S+ KiB\s+parameters and inputs:\s+\S+ KiB"
    told = rf"^torch\.\w+\s+predicted:\s+\d+ KiB\s+{kinds}\s+(forward|backward)"
    assert re.search(told, tip.inner_text().strip())


def test_marks_of_the_selection_are_at_the_axis_and_leave_the_curve_in_sight(shown: Shown) -> None:
    box = shown.page.locator("#view").bounding_box()
    assert box is not None
    # Only the left part: at its right end, a curve has other pixels each time it is drawn.
    upper: Any = {**box, "width": box["width"] / 2, "height": box["height"] / 2}
    lower = {**upper, "y": box["y"] + upper["height"]}
    shown.page.mouse.move(1, 1)
    shown.page.evaluate("model.set('chosen', [])")
    shown.page.wait_for_timeout(300)
    before = [shown.page.screenshot(clip=clip) for clip in (upper, lower)]
    shown.page.evaluate("model.set('chosen', Array.from({ length: 40 }, (_, at) => at))")
    shown.page.wait_for_timeout(300)
    after = [shown.page.screenshot(clip=clip) for clip in (upper, lower)]
    shown.page.evaluate("model.set('chosen', [])")
    assert [now == then for now, then in zip(after, before, strict=True)] == [True, False]


def test_a_plot_that_was_removed_while_it_loaded_is_drawn_when_it_is_back(shown):
    errors: list[str] = []
    shown.page.on("pageerror", lambda error: errors.append(str(error)))
    drawn = shown.page.evaluate("""async () => {
      const el = document.createElement("div"), before = new Set(Bokeh.index.roots), embed = Bokeh.embed.embed_item;
      const fresh = () => [...Bokeh.index.roots].find((root) => !before.has(root));
      document.body.append(el);
      // As if the cell ran again: the element is removed before Bokeh draws into it.
      let gone = 0;
      Bokeh.embed.embed_item = (...given) => { if (!gone++) el.remove(); return embed(...given); };
      const stop = window.mount(el), sleep = (ms) => new Promise((next) => setTimeout(next, ms));
      await sleep(500);
      document.body.append(el);
      for (let tries = 0; tries < 200 && !fresh()?.has_finished(); tries++) await sleep(50);
      const drawn = Boolean(fresh()?.has_finished());
      Bokeh.embed.embed_item = embed;
      (await stop)?.();
      el.remove();
      return [gone, drawn];
    }""")
    assert errors == []
    assert drawn == [2, True]


def test_the_legend_fits_a_narrow_cell_with_any_run_name(shown: Shown, tmp_path: Path) -> None:
    bench = workbench.open("mlp", device="cpu", executor="torch", layers=1)
    stock = bench.plan
    bench.choose({legal(bench).id: "recompute"})
    tab = MemoryTab()
    run = SimpleNamespace(statement_peak_bytes=[1 << 12] * 40, timeline=None)
    pinned = Baseline("pinned: 20261125-074213-Qwen3ForCausalLM", stock)
    tab.show(bench.plan, pinned, run, same_choices=False)  # type: ignore[arg-type]
    browser = shown.page.context.browser
    assert browser is not None
    page = browser.new_page(viewport={"width": 960, "height": 500})
    page.set_default_timeout(30_000)
    Shown(page, tab, tmp_path)
    labels, width, dash = page.evaluate(
        """() => {
          const views = [...[...Bokeh.index.roots][0].computed_renderer_views];
          const { model, bbox } = views.find(({ model }) => model.type === "Legend");
          const measured = views.find(({ model }) => model.name === "measured line");
          const labels = model.items.filter(({ visible }) => visible).map(({ label }) => label.value);
          return [labels, bbox.width, measured.model.glyph.line_dash];
        }"""
    )
    page.close()
    kinds = ["transient", "gradients", "saved", "parameters and inputs"]
    assert labels == ["pinned: 20261125-07…, predicted", "predicted", "measured, earlier plan", *kinds]
    # In a notebook cell of 1,000 pixels, the plot has 590 pixels, because the table of live values is beside it. The
    # curve needs more than half of them.
    assert width < 240
    assert dash, "a measured curve must not hide an equal predicted curve"


def test_the_key_stands_below_a_narrow_plot(shown: Shown) -> None:
    def key() -> list[str]:
        words: list[str] = shown.page.locator(".wb-plot-key:visible span").all_inner_texts()
        return words

    def legend() -> bool:
        visible: bool = shown.page.evaluate(
            "[...Bokeh.index.roots][0].model.right.find(({ type }) => type === 'Legend').visible"
        )
        return visible

    assert (key(), legend()) == ([], True)
    for width, narrow in (("360px", True), ("900px", False)):
        shown.page.locator("#view").evaluate("(el, width) => { el.style.width = width; }", width)
        shown.page.wait_for_function("narrow => document.querySelector('.wb-plot-key').hidden !== narrow", arg=narrow)
        assert legend() is not narrow
        assert ("saved" in key()) is narrow


def test_of_two_themes_in_a_row_the_last_is_drawn(shown: Shown) -> None:
    dark = MemoryTab()
    dark.paint(dark=True)
    drawn = shown.page.evaluate(
        """async ([dark, light]) => {
          const sleep = (ms) => new Promise((next) => setTimeout(next, ms));
          const here = () => [...document.querySelectorAll("#view .bk-Figure")];
          for (const plot of [light, dark]) model.set("plot", plot);
          // As long as the first drawing could still come back.
          await sleep(1500);
          const root = [...Bokeh.index.roots].at(-1);
          return [here().length, root.model.document.get_model_by_name("peak label").text_color.value];
        }""",
        [dark.plot, shown.tab.plot],
    )
    assert drawn == [1, DARK["predicted"]]


def test_the_label_of_the_peak_is_above_all_curves(shown: Shown) -> None:
    content = shown.tab.content
    (top,), end = content["sources"]["peak"]["top"], content["set"]["bytes"]["end"]
    low_end = content["low"]["bytes"]["end"]
    assert max(LIVE) <= top
    assert content["sources"]["peak"]["y"][0] <= top
    # The label has at least 20 pixels above the highest curve, also in a plot whose frame is only 85 pixels high.
    assert (low_end - top) / low_end * 85 >= 20
    # A plot that is high enough for the names of its axes leaves less of its height empty.
    assert (end - top) / end * 180 >= 20
    assert end < 1.2 * top


def test_nothing_stays_of_the_name_of_an_axis_when_a_plot_becomes_low(browser: Browser, tmp_path: Path) -> None:
    page = browser.new_page(viewport={"width": 960, "height": 500})
    plot = CurvePlot(lambda _source, _index: None)
    plot.show([], (1 << 24, 0.05), [], "H100", 1 << 24)
    shown = Shown(page, plot, tmp_path)
    above_the_axis = page.evaluate(
        """async () => {
          const view = document.querySelector("#view"), tab = document.createElement("div");
          tab.className = "widget-tab-contents";
          tab.style.cssText = "height: 156px; --wb-full: 1; overflow: hidden";
          view.parentElement.append(tab);
          tab.append(view);
          view.style.width = "700px";
          const [root] = [...Bokeh.index.roots];
          while (root.model.height > 150) await new Promise(requestAnimationFrame);
          await new Promise((next) => setTimeout(next, 500));
          const found = [];
          for (const canvas of root.canvas_view.el.shadowRoot.querySelectorAll("canvas")) {
            // No number of the axis is so close to the upper edge.
            const drawn = canvas.getContext("2d").getImageData(0, 0, 40, 4).data;
            found.push(drawn.filter((value, at) => at % 4 === 3 && value > 0).length);
          }
          return [root.model.document.get_model_by_name("step axis").axis_label, ...found];
        }"""
    )
    assert above_the_axis == [None, 0, 0]
    # A plot that is low from its first drawing never draws the names of its axes.
    shown.tab.paint(dark=True)
    texts = page.evaluate(
        """async (dark) => {
          const drawn = new Set(), [before] = [...Bokeh.index.roots];
          const of = CanvasRenderingContext2D.prototype, { fillText } = of;
          of.fillText = function (text, ...at) { drawn.add(text); fillText.call(this, text, ...at); };
          model.set("plot", dark);
          const fresh = () => [...Bokeh.index.roots].find((root) => root !== before && root.model.height < 150);
          while (!fresh()?.has_finished()) await new Promise(requestAnimationFrame);
          await new Promise((next) => setTimeout(next, 300));
          of.fillText = fillText;
          return [...drawn];
        }""",
        shown.tab.plot,
    )
    page.close()
    assert "vertical: step in ms; horizontal: predicted peak" in texts
    assert not [text for text in texts if text.startswith("predicted")]
