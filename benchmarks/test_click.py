"""From a click to new figures, in the kernel: when the page is told what was asked for, and when that is planned.

CPU seconds of the process, of clicks one after the other on sites that were not chosen yet, beside the same choices
planned with nothing kept of earlier plans. What is held are ratios, which a busy machine does not change.

``python -m pytest benchmarks/test_click.py -s``
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import workbench as wb
from workbench.compiler import pipeline
from workbench.compiler.kept import Kept
from workbench.ui.app import App

CLICKS = 20
SCRATCH = 5
PROGRAMS = {
    "llama, 4 layers, torch": ("llama", {"layers": 4, "executor": "torch"}),
    "llama, 4 layers, torchcompile": ("llama", {"layers": 4, "executor": "torchcompile"}),
    "residual_chain, 32 layers, torchcompile": (
        "residual_chain",
        {"layers": 32, "grad": True, "executor": "torchcompile"},
    ),
}


def seconds_of(app: App, site: wb.Site) -> tuple[float, float]:
    """Until the page is told what was asked for, and until all that the plan changes is sent."""
    option = next(one for one in site.options if one != site.choice and one not in site.illegal)
    begun = time.process_time()
    app._on_message({"type": "choose", "id": site.id, "option": option})
    asked = time.process_time() - begun
    assert app.choosing.settle(60)
    assert app.bench.site(site.id).choice == option
    return asked, time.process_time() - begun


def from_scratch_s(bench: wb.Workbench, choices: dict[str, str]) -> float:
    """The same plan with nothing kept of others."""
    captured: Any = bench._captured
    alone = dataclasses.replace(captured, kept=Kept(), bases=OrderedDict(), _prover=None)
    begun = time.process_time()
    pipeline.plan(alone, choices)
    return time.process_time() - begun


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", PROGRAMS)
def test_from_click_to_figures(benchmark: Any, name: str) -> None:
    program, settings = PROGRAMS[name]
    bench = wb.open(program, device="cpu", **settings)
    app = App(bench)
    able = [s for s in bench.sites() if s.values and any(o != s.choice and o not in s.illegal for o in s.options)]
    chosen = random.Random(1).sample(able, CLICKS + 1)
    seconds_of(app, chosen.pop())
    found: list[tuple[float, float]] = []
    benchmark.pedantic(lambda: found.extend(seconds_of(app, site) for site in chosen), rounds=1)
    scratch_s = float(np.median([from_scratch_s(bench, bench.choices) for _ in range(SCRATCH)]))
    app.close()
    asked, planned = (np.percentile(column, (50, 95)) for column in zip(*found, strict=True))
    ratio = scratch_s / float(planned[0])
    benchmark.extra_info.update(asked_s=asked.tolist(), planned_s=planned.tolist(), scratch_s=scratch_s)
    print(
        f"\n{name}, {len(bench.plan.graph.statements)} statements: asked for on the page after {1e3 * asked[0]:.0f} ms "
        f"(p95 {1e3 * asked[1]:.0f}), planned and drawn after {1e3 * planned[0]:.0f} ms (p95 {1e3 * planned[1]:.0f}); "
        f"planned with nothing kept {1e3 * scratch_s:.0f} ms, {ratio:.1f} times as long"
    )
    assert ratio > 1
