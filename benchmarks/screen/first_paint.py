"""Measure the seconds from a plan in the kernel to the first paint of its graph in JupyterLab.

``python -m benchmarks.screen.first_paint`` opens a program several times, in a cell and in a tab. The clock starts in
the kernel, when `wb.open` has returned and so the plan is ready. It stops in the page, after the frame that shows the
graph. Kernel and page use the clock of the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import CDPSession, sync_playwright

from tests.browser.harness import Lab, LabServer, launch_browser

WINDOW = {"width": 1440, "height": 900}
OPEN = """
import time
import workbench as wb
bench = wb.open("llama", device="cpu", executor="torch", layers={layers})
print("ready", time.time(), time.thread_time())
"""
SHOWN = {"cell": "bench", "tab": "bench.show(tab=True)"}
"""The last line of the cell, and the part of JupyterLab in which it shows the app."""

_PAINTED = """
(where) => {
  const graph = () => {
    const found = Array.from(document.querySelectorAll(".wb-graph"));
    return found.find((el) => Boolean(el.closest(".wb-tab")) === (where === "tab") && el.__workbench);
  };
  const old = graph();
  window.painted = (async () => {
    for (;;) {
      const view = graph() === old ? null : graph()?.__workbench.view;
      if (view?.places.scene && view.drawn) break;
      await new Promise(requestAnimationFrame);
    }
    await new Promise(requestAnimationFrame);
    await new Promise((done) => setTimeout(done));
    return Date.now() / 1000;
  })();
}
"""
"""Script that waits for a graph that is not there yet, and for the frame after it is drawn."""


def seconds_to_paint(lab: Lab, where: str, notebook: str, metrics: CDPSession) -> tuple[float, float, float]:
    """Run the notebook's cell. Return the seconds from its plan to the first paint, and CPU seconds.

    The CPU seconds are those of the kernel's main thread from the plan on, and those of the page's main thread from the
    cell's start.
    """
    before_s = page_cpu_s(metrics)
    lab.page.evaluate(_PAINTED, where)
    lab.run_all()
    painted_s = float(lab.page.evaluate("window.painted"))
    page_s = page_cpu_s(metrics) - before_s
    if where == "tab":
        lab.page.evaluate("jupyterapp.shell.currentWidget.close()")
    lab.page.evaluate("id => jupyterapp.shell.activateById(id)", notebook)
    kernel_s = float(lab.kernel_eval("time.thread_time()"))
    texts = lab.page.evaluate("Array.from(document.querySelectorAll('.jp-OutputArea-output'), (el) => el.textContent)")
    ready_s, kernel_ready_s = max(tuple(map(float, text.split()[1:3])) for text in texts if text.startswith("ready "))
    return painted_s - ready_s, kernel_s - kernel_ready_s, page_s


def page_cpu_s(metrics: CDPSession) -> float:
    """Return the CPU seconds of the page's main thread so far."""
    found = metrics.send("Performance.getMetrics")["metrics"]
    return next(float(metric["value"]) for metric in found if metric["name"] == "ThreadTime")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = LabServer(Path(folder) / "home")
        try:
            context = launch_browser(playwright, Path(folder) / "profile")
            for where, last in SHOWN.items():
                lab = Lab(server, context, where, Path(folder))
                lab.page.set_viewport_size(WINDOW)
                lab.write_notebook("app.ipynb", [OPEN.format(layers=given.layers) + last])
                lab.open_notebook("app.ipynb")
                notebook = lab.page.evaluate("jupyterapp.shell.currentWidget.id")
                metrics = context.new_cdp_session(lab.page)
                metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
                rounds = []
                for _ in range(given.rounds):
                    rounds.append(seconds_to_paint(lab, where, notebook, metrics))
                    # The best single choices are computed after the first paint. They must not delay the next round.
                    lab.page.wait_for_function("!document.querySelector('.wb-best.wb-waiting')", timeout=120_000)
                    lab.page.wait_for_timeout(500)
                took_s, kernel_s, page_s = zip(*rounds, strict=True)
                result = {
                    "where": where,
                    "layers": given.layers,
                    "first_s": round(took_s[0], 2),
                    "least_s": round(min(took_s), 2),
                    "median_s": round(statistics.median(took_s), 2),
                    "most_s": round(max(took_s), 2),
                    "kernel_cpu_s": round(statistics.median(kernel_s), 2),
                    "page_cpu_s": round(statistics.median(page_s), 2),
                    "load": round(os.getloadavg()[0], 1),
                }
                print(json.dumps(result), flush=True)
                lab.close()
            context.close()
        finally:
            server.stop()


if __name__ == "__main__":
    main()
