"""Measure the kernel's time from a click until the page gets the choice, and until the page gets the plan.

Times are CPU seconds of the process. In the first test, each click changes another site. For comparison, the same
choices are also planned without the caches of earlier plans; the ratio of both times does not depend on the machine's
load. In the second test, each click moves the same wait to a later statement, with the same
comparison.

``python -m pytest benchmarks/choices/test_click.py -s``
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import random
import time
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import workbench as wb
from benchmarks.opening.real_size_point import SHAPES
from workbench.compiler import api
from workbench.compiler.trace.bsym_memo import PlanMemo
from workbench.ui.app.app import App

CLICKS = 20
MOVES = 12
SCRATCH = 5
PLANNED: dict[str, Any] = {"device": "planned", "executor": "nvfuser", **SHAPES}
"""Settings for the shapes of a 7B model on a planned GPU."""
PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, 4 layers, torch": ("llama", {"layers": 4, "device": "cpu", "executor": "torch"}),
    "llama, 4 layers, torchcompile": ("llama", {"layers": 4, "device": "cpu", "executor": "torchcompile"}),
    "residual_chain, 32 layers, torchcompile": (
        "residual_chain",
        {"layers": 32, "grad": True, "device": "cpu", "executor": "torchcompile"},
    ),
    "llama of 7B, 32 layers, nvfuser": ("llama", {"layers": 32, **PLANNED}),
}


class Clicked:
    """An app whose clicks are timed.

    Attributes
    ----------
    drawing_s : float
        CPU seconds that the app took after the plan of the last click was ready.
    """

    def __init__(self, bench: wb.Workbench) -> None:
        self.app, self.drawing_s = App(bench), 0.0
        gc.collect()
        self.app._forget()
        self.app._forget = bench.observe(self._refresh)

    def _refresh(self) -> None:
        begun = time.thread_time()
        self.app._refresh()
        self.drawing_s = time.thread_time() - begun

    def choose(self, id: str, option: str) -> tuple[float, float, float]:
        """Do what a click on an option does, and wait for its plan. Return three times in CPU seconds.

        Returns
        -------
        float
            Time from the click until the page gets the choice.
        float
            Time for drawing the plan.
        float
            Time from the click until everything is sent to the page.
        """
        begun = time.process_time()
        self.app._on_message({"type": "choose", "id": id, "option": option})
        asked = time.process_time() - begun
        assert self.app.choosing.settle(60)
        assert self.app.bench.site(id).choice == option
        took = time.process_time() - begun
        return asked, self.drawing_s, took


def another(site: wb.Site) -> str:
    """Return a legal option of a site that is not the current one."""
    return next(one for one in site.options if one != site.choice and one not in site.illegal)


def from_scratch_s(bench: wb.Workbench, choices: dict[str, str]) -> float:
    """Return the CPU seconds to make a plan without caches of other plans."""
    captured: Any = bench._captured
    planned = dataclasses.replace(captured.planned, bases=OrderedDict(), prover=None)
    alone = dataclasses.replace(captured, kept=PlanMemo(), planned=planned)
    begun = time.process_time()
    api.plan(alone, choices)
    return time.process_time() - begun


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_click_is_planned_faster_with_the_caches_of_other_plans(benchmark: Any, name: str) -> None:
    program, settings = PROGRAMS[name]
    bench = wb.open(program, **settings)
    clicked = Clicked(bench)
    able = [s for s in bench.sites() if s.values and any(o != s.choice and o not in s.illegal for o in s.options)]
    chosen = random.Random(1).sample(able, CLICKS + 1)
    clicked.choose(chosen[-1].id, another(chosen.pop()))
    found: list[tuple[float, float, float]] = []
    benchmark.pedantic(
        lambda: found.extend(clicked.choose(each.id, another(bench.site(each.id))) for each in chosen), rounds=1
    )
    scratch_s = float(np.median([from_scratch_s(bench, bench.choices) for _ in range(SCRATCH)]))
    clicked.app.close()
    asked, drawn, planned = (np.percentile(column, (50, 95)) for column in zip(*found, strict=True))
    ratio = scratch_s / float(planned[0])
    benchmark.extra_info.update(asked_s=asked.tolist(), planned_s=planned.tolist(), scratch_s=scratch_s)
    print(
        f"\n{name}, {len(bench.plan.graph.statements)} statements: asked for on the page after {1e3 * asked[0]:.0f} ms "
        f"(p95 {1e3 * asked[1]:.0f}), planned and drawn after {1e3 * planned[0]:.0f} ms (p95 {1e3 * planned[1]:.0f}), "
        f"of which drawing {1e3 * drawn[0]:.0f} ms (p95 {1e3 * drawn[1]:.0f}); "
        f"planned without caches {1e3 * scratch_s:.0f} ms, {ratio:.1f} times as long"
    )
    assert ratio > 1


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("layers", [2, 32])
def test_a_moved_wait_is_planned_and_drawn(benchmark: Any, layers: int) -> None:
    bench = wb.open("fsdp_llama", layers=layers, ranks=64, **PLANNED)
    clicked = Clicked(bench)
    schedule = bench._captured.planned.bases[()].outcome.value.communication["forward"]
    collective = schedule.collectives[layers + 1]
    places = itertools.count(schedule.low[collective.issue])

    def move() -> tuple[float, float, float]:
        return clicked.choose(f"waits:{collective.place}!wait", f"at({schedule.names[next(places)]})")

    move()
    found: list[tuple[float, float, float]] = []
    benchmark.pedantic(lambda: found.extend(move() for _ in range(MOVES)), rounds=1)
    scratch_s = float(np.median([from_scratch_s(bench, bench.choices) for _ in range(SCRATCH)]))
    clicked.app.close()
    asked, drawn, planned = (np.percentile(column, (50, 95)) for column in zip(*found, strict=True))
    print(
        f"\nfsdp_llama of 7B, {layers} layers, {len(bench.plan.graph.statements)} statements: asked for on the page "
        f"after {1e3 * asked[0]:.0f} ms, planned and drawn after {1e3 * planned[0]:.0f} (p95 {1e3 * planned[1]:.0f}) "
        f"ms, of which drawing {1e3 * drawn[0]:.0f} ms; planned without caches {1e3 * scratch_s:.0f} ms"
    )
    assert planned[0] < scratch_s
