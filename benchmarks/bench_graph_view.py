"""How fast the graph view is at 10,000 statements: the layout in Python, and frames while panning in Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.chromium import find_chromium
from tests.ui.page import page as page_text
from tests.ui.synthetic import llama
from workbench.ui.layout import compute
from workbench.ui.payload import payload

LAYERS = 190
"""About 10,000 statements."""

_PAN = """
async () => {
  const view = document.getElementById("view").__workbench.view, between = [], drawing = [];
  let last = performance.now();
  for (let frame = 0; frame < 120; frame++) {
    view.top += 40;
    view.redraw();
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    between.push(now - last);
    drawing.push(view.drawn);
    last = now;
  }
  const middle = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
  return { frame_ms: middle(between), p95_ms: between[Math.floor(between.length * 0.95)], draw_ms: middle(drawing) };
}
"""


@pytest.mark.parametrize("unfolded", [(), ("layers",)], ids=["folded", "unfolded"])
def test_layout_of_ten_thousand_statements(benchmark, unfolded):
    graph, sites = llama(LAYERS)
    layout = benchmark(compute, graph, sites, unfolded=unfolded)
    benchmark.extra_info |= {"statements": len(graph.statements), "nodes": len(layout.nodes)}


@pytest.mark.browser
@pytest.mark.parametrize("zoom", [1.0, 0.05])
def test_frames_while_panning_ten_thousand_nodes(benchmark, tmp_path: Path, zoom):
    graph, sites = llama(LAYERS)
    data = payload(graph, compute(graph, sites, unfolded=["layers"]), sites)
    file = tmp_path / "view.html"
    file.write_text(page_text("graph_view.js", {"data": data, "selected": "", "height": 660, "dark": False}))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 900, "height": 720})
        page.goto(file.as_uri())
        page.wait_for_function("window.ready === true")
        page.evaluate(f"document.getElementById('view').__workbench.view.setZoom({zoom})")
        found = benchmark.pedantic(page.evaluate, args=(_PAN,), rounds=3, warmup_rounds=1)
        browser.close()
    benchmark.extra_info |= {"nodes": len(graph.statements), **found}
    print(f"zoom {zoom}: {found}")
