"""What is estimated while nobody asks for anything, what that costs, and how much it slows down a cell that begins.

`llama` at 32 layers of 7B shapes, planned with nvFuser, in an app that nobody touches: how many kinds of choices that
it shows are known in the end, in how many CPU seconds, and how much larger the process is. Then cells of pure Python
are run while it is at work, and the same cells where it is not.
``python -m benchmarks.bench_ahead [CELLS]``
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import workbench as wb
from benchmarks.size_point import SHAPES
from workbench.ui.app import App

LAYERS = 32
CELL = 2_000_000
"""Steps of the loop that a cell is."""


def resident_mb() -> float:
    """Megabytes of the process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def cell_s() -> float:
    """Seconds of wall time that a loop in the main thread takes."""
    begun, total = time.perf_counter(), 0
    for step in range(CELL):
        total += step & 1
    assert total
    return time.perf_counter() - begun


def waited(app: App, until_s: float = 600.0) -> bool:
    """Wait until there is nothing more to estimate."""
    end = time.monotonic() + until_s
    while app.choosing.ahead.working and time.monotonic() < end:
        time.sleep(0.2)
    return not app.choosing.ahead.working


def known(app: App) -> tuple[int, int, list[float]]:
    """Of what clicks would choose how much is known, of how many, and CPU milliseconds to say what it comes to."""
    kinds = list(app.choosing._likely())
    took: list[float] = []
    found = 0
    for choices in kinds:
        begun = time.thread_time()
        found += app.choosing.weigh(choices) is not None
        took.append(1e3 * (time.thread_time() - begun))
    return found, len(kinds), took


def main() -> None:
    """Tell what was estimated, then run cells."""
    cells = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    bench: Any = wb.open("llama", layers=LAYERS, device="planned", executor="nvfuser", **SHAPES)
    app = App(bench)
    time.sleep(0.5)
    before_mb = resident_mb()
    app.choosing._resting.join()
    ready_mb, begun = resident_mb(), time.process_time()
    assert waited(app)
    found, count, took = known(app)
    print(
        f"{found} of {count} kinds known after {time.process_time() - begun:.1f} CPU s (made ready before), "
        f"{resident_mb() - ready_mb:.0f} MB more (made ready: {ready_mb - before_mb:.0f}); "
        f"said in {statistics.median(took):.2f} CPU ms, at most {max(took):.1f}",
        flush=True,
    )
    alone = sorted(cell_s() for _ in range(cells))
    drawn, beside, at_work = random.Random(1), [], 0
    for _ in range(cells):
        # As if another plan were in force: all is estimated again.
        bench.few._known = (None, {})
        app.choosing.ahead._left_s = 60.0
        app.choosing.ahead.begin()
        time.sleep(2.2 + drawn.random())
        at_work += app.choosing.ahead.working
        beside.append(cell_s())
    beside.sort()
    app.close()
    print(
        f"cells of pure Python: {1e3 * statistics.median(alone):.0f} ms alone (at most {1e3 * alone[-1]:.0f}), "
        f"{1e3 * statistics.median(beside):.0f} (at most {1e3 * beside[-1]:.0f}) where something was estimated as they "
        f"began, {at_work} of {cells}"
    )


if __name__ == "__main__":
    main()
