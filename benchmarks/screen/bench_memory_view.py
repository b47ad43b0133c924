"""Measure a memory timeline of a million events in Chromium: bytes sent, first paint, frames of a pan and a zoom.

``python -m pytest benchmarks/screen/bench_memory_view.py -s``
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

import workbench as wb
from tests.browser.chromium import find_chromium
from tests.ui.memory_page import Shown
from workbench.ui.controls.figure_strip import Baseline
from workbench.ui.tabs.memory_tab import MemoryTab

EVENTS = 1_000_000
MOST_BYTES = 400_000
FIRST_PAINT_MS = 500

# Script that pans or zooms for 130 frames. It returns the median, the 95th percentile and the maximum of the
# milliseconds between two frames.
_MOVE = """
async ([axis, from, span, by, zoom]) => {
  const range = [...Bokeh.index.roots][0].model.document.get_model_by_name(axis);
  const between = [];
  let last = 0, start = from, width = span;
  for (let frame = 0; frame < 130; frame++) {
    start += by * width;
    width *= zoom;
    range.setv({ start, end: start + width });
    const now = await new Promise(requestAnimationFrame);
    if (frame > 9) between.push(now - last);
    last = now;
  }
  between.sort((a, b) => a - b);
  return { median_ms: between[60], p95_ms: between[113], longest_ms: between.at(-1) };
}
"""


def sent_bytes(content: dict[str, Any]) -> int:
    """Return the size of a message to the page: its text and its binary columns."""
    columns: list[bytes] = []

    def beside(column: bytes) -> str:
        columns.append(column)
        return ""

    return len(json.dumps(content, default=beside)) + sum(map(len, columns))


@pytest.mark.browser
def test_a_memory_timeline_of_a_million_events_is_painted_in_time(benchmark: Any, tmp_path: Path) -> None:
    bench = wb.open("mlp", device="cpu", executor="torch", layers=2)
    draw = np.random.default_rng(0)
    live = np.abs(np.cumsum(draw.integers(-(1 << 20), (1 << 20) + 1, EVENTS))).tolist()
    times = np.cumsum(draw.exponential(1e-6, EVENTS)).tolist()
    run = SimpleNamespace(statement_peak_bytes=[], timeline=(times, live))
    tab = MemoryTab()
    benchmark.pedantic(tab.show, args=(bench.plan, Baseline("stock", None), run), rounds=3, warmup_rounds=1)
    sent = sent_bytes(tab.content)
    end_ms = 1e3 * times[-1]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 960, "height": 500})
        page.set_default_timeout(30_000)
        shown = Shown(page, tab, tmp_path)
        page.wait_for_timeout(500)
        painted = sorted(shown.painted_ms() for _ in range(5))[2]
        moved = page.evaluate(_MOVE, ["time", 0.2 * end_ms, 0.1 * end_ms, 0.01, 1.0])
        zoomed = page.evaluate(_MOVE, ["time", 0.4 * end_ms, 0.4 * end_ms, 0.0, 0.93])
        page.wait_for_timeout(500)
        drawn = shown.drawn("time", "measured over time")
        page.screenshot(path=tmp_path / "memory.png")
        browser.close()
    exact = [[1e3 * t, b] for t, b in zip(times, live, strict=True) if drawn["start"] <= 1e3 * t <= drawn["end"]]
    frames = " and ".join(
        f"{name} {found['median_ms']:.1f} ms (p95 {found['p95_ms']:.1f})"
        for name, found in (("moved", moved), ("zoomed", zoomed))
    )
    print(
        f"\n{EVENTS:,} events: {sent / 1e3:.0f} KB at first, at most {max(shown.sent_bytes) / 1e3:.0f} KB for each "
        f"zoomed part; first paint {painted:.0f} ms; frames {frames}; {len(exact)} events visible in the end, "
        f"{len(drawn['points'])} of them drawn"
    )
    benchmark.extra_info.update(sent_bytes=sent, painted_ms=painted, moved=moved, zoomed=zoomed)
    assert sent <= MOST_BYTES
    assert painted <= FIRST_PAINT_MS
    assert len(exact) > 10
    assert drawn["points"] == exact
