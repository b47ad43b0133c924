"""Measure the time to open models with two layers: a built-in Llama, and models of Hugging Face.

The built-in Llama is opened by Dynamo and by Thunder's interpreter. Times are CPU seconds. A new process opens each
model. The assertion is about a ratio of times, which does not depend on the machine's load.

``python -m pytest benchmarks/opening/test_two_layers.py -s`` (with the extra ``[models]``)
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.opening.two_layers_point import BUILT_IN, KINDS, SHIPPED

ROOT = Path(__file__).parents[2]
ROUNDS = 3
AT_LEAST = {"interpreter": 1.0, SHIPPED: 6.0}
"""Required speed of Dynamo, as a multiple of the interpreter's speed: with, and without, the workbench's patches."""


def opened(kind: str, way: str) -> dict[str, Any]:
    """Open a model in a new process. Return the figures."""
    command = [sys.executable, "-m", "benchmarks.opening.two_layers_point", kind, way]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.timeout(900)
def test_dynamo_opens_a_program_faster_than_the_interpreter(benchmark: Any) -> None:
    ways = ("dynamo", "interpreter", SHIPPED)
    points: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}

    def in_turns() -> None:
        for way in ways:
            points[way].append(opened(BUILT_IN, way))

    benchmark.pedantic(in_turns, rounds=ROUNDS)
    open_s = {way: statistics.median(point["open_s"] for point in points[way]) for way in ways}
    ratios = {way: open_s[way] / open_s["dynamo"] for way in AT_LEAST}
    benchmark.extra_info.update(points=points, ratios=ratios)
    told = ", ".join(f"{way} {open_s[way]:.1f} s ({ratio:.1f} times as long)" for way, ratio in ratios.items())
    print(f"\n{BUILT_IN}, 2 layers: {open_s['dynamo']:.1f} CPU s; interpreter: {told}")
    assert {point["way"] for point in points["dynamo"]} == {"dynamo"}
    assert all(ratio >= AT_LEAST[way] for way, ratio in ratios.items()), ratios


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_two_layers_opens(benchmark: Any, kind: str) -> None:
    ours = benchmark.pedantic(opened, args=(kind, "auto"), rounds=1)
    benchmark.extra_info.update(ours)
    print(f"\n{kind}, 2 layers: {ours['open_s']:.1f} CPU s, {ours['statements']} statements, {ours['way']}")
    assert ours["statements"] > 0
