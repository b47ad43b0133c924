"""Measure how memory of kernel and page grows in hundreds of random toggles, undos and redos, and the time of a click.

``python -m benchmarks.screen.soak_app --steps 500 --layers 4`` prints one JSON document. Growth is measured from the
end of the first fifth of the steps, so that one-time costs (caches, compiled code) are left out. At the end, the plan
is compared with the plan of a newly opened program under the same choices.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import CDPSession, sync_playwright

from tests.browser.app import open_program
from tests.browser.harness import Lab, LabServer, launch_browser

TURN, UNDO, REDO = "turn", "undo", "redo"
WEIGHTS = {TURN: 0.55, UNDO: 0.3, REDO: 0.15}
ANSWER_MS = 120_000

_PREPARE = """
() => {
  const { view } = document.querySelector(".wb-graph").__workbench, said = document.querySelector(".wb-message");
  window.soak = (what, id) => new Promise((resolve, reject) => {
    const began = performance.now();
    const late = setTimeout(() => reject(new Error(`no answer to ${what} ${id}`)), %d);
    const done = () => {
      // While a choice is planned, the message begins with "Planning ".
      if (what === "turn" && said.textContent.startsWith("Planning ")) return;
      clearTimeout(late);
      watch.disconnect();
      view.model.off("change:data", done);
      requestAnimationFrame(() => resolve(performance.now() - began));
    };
    // After a choice the message changes last, after graph and figures. Undo and redo show no message.
    const watch = new MutationObserver(done);
    if (what === "turn") watch.observe(said, { childList: true, subtree: true, characterData: true });
    else view.model.on("change:data", done);
    view.model.send(what === "turn" ? { type: what, id } : { type: what });
  });
}
"""


def soak(lab: Lab, cdp: CDPSession, steps: int, seed: int) -> dict[str, Any]:
    """Do `steps` random actions of a user. Return the growth of memory and the times of clicks."""
    chance = random.Random(seed)
    kernel = psutil.Process(int(lab.kernel_eval("import os\nos.getpid()")))
    legal = "[s.id for s in bench.sites() if s.values and sum(o not in s.illegal for o in s.options) > 1]"
    sites = set(json.loads(lab.kernel_eval(f"import json\nprint(json.dumps({legal}))")))
    lab.page.evaluate(_PREPARE % ANSWER_MS)
    done, undone, first = 0, 0, {}
    wall_ms: list[float] = []
    cpu_s: list[float] = []
    counts = dict.fromkeys(WEIGHTS, 0)
    for step in range(steps):
        if step == steps // 5:
            first = memory(cdp, kernel)
        what = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if (what == UNDO and not done) or (what == REDO and not undone):
            what = TURN
        counts[what] += 1
        id = ""
        if what == TURN:
            arcs = lab.page.evaluate("document.querySelector('.wb-graph').__workbench.state().arcs.map(({ id }) => id)")
            id = chance.choice(sorted(sites & set(arcs)))
        before = sum(kernel.cpu_times()[:2])
        took = lab.page.evaluate("([what, id]) => window.soak(what, id)", [what, id])
        if what == TURN:
            wall_ms.append(took)
            cpu_s.append(sum(kernel.cpu_times()[:2]) - before)
        done, undone = {
            TURN: (done + 1, 0),
            UNDO: (done - 1, undone + 1),
            REDO: (done + 1, undone - 1),
        }[what]
        if step % 50 == 0:
            print(f"{step} of {steps}", file=sys.stderr, flush=True)
    last = memory(cdp, kernel)
    return {
        "steps": steps,
        "seed": seed,
        **counts,
        **{f"{name}_bytes": [first[name], last[name]] for name in last},
        **{f"{name}_growth_percent": round(100 * (last[name] / first[name] - 1), 2) for name in last},
        "click_to_figures_ms": quantiles(wall_ms),
        "kernel_cpu_ms": quantiles([1e3 * s for s in cpu_s]),
    }


def memory(cdp: CDPSession, kernel: psutil.Process) -> dict[str, float]:
    """Wait two seconds, collect the page's garbage, and return the bytes of the kernel and of the page."""
    time.sleep(2)
    cdp.send("HeapProfiler.collectGarbage")
    metrics = {one["name"]: one["value"] for one in cdp.send("Performance.getMetrics")["metrics"]}
    return {"kernel_rss": float(kernel.memory_info().rss), "page_heap": float(metrics["JSHeapUsedSize"])}


def quantiles(values: list[float]) -> dict[str, float]:
    """Return the median and the 95th percentile."""
    return {
        "median": round(statistics.median(values), 1),
        "p95": round(statistics.quantiles(values, n=20, method="inclusive")[-1], 1),
    }


def same_as_fresh(lab: Lab, program: str) -> bool:
    """Return whether the bench's plan equals the plan of a newly opened program under the same choices."""
    code = (
        f"fresh = wb.open({program})\nfresh.choose(dict(bench.choices)) if bench.choices else None\n"
        "a, b = bench.plan, fresh.plan\n"
        "print((a.text(), a.peak_bytes, a.saved_bytes) == (b.text(), b.peak_bytes, b.saved_bytes))"
    )
    return lab.kernel_eval(code, timeout_s=300).splitlines()[-1] == "True"


def main() -> None:
    """Run the actions, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    program = f"'llama', device='cpu', layers={given.layers}"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = LabServer(Path(folder) / "lab")
        try:
            context = launch_browser(playwright, Path(folder) / "profile")
            lab = Lab(server, context, "soak", Path(folder))
            open_program(lab, program)
            cdp = context.new_cdp_session(lab.page)
            cdp.send("Performance.enable")
            found = soak(lab, cdp, given.steps, given.seed)
            found["plan_equals_a_fresh_one"] = same_as_fresh(lab, program)
            print(json.dumps({"program": program, **found}, indent=2))
            lab.close()
            context.close()
        finally:
            server.stop()


if __name__ == "__main__":
    main()
