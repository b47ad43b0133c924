"""How planning grows to real size: Llama with the shapes of a 7B model, planned for a GPU with nvFuser.

CPU seconds, each point in a process of its own, beside what ``thunder.jit`` as shipped takes for the same program on
the same machine. What is held are ratios, which a busy machine does not change.

``python -m pytest benchmarks/test_size.py -s``
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
AT_LEAST = {"open": 1.0, "choice": 8.0}
"""Times as fast as ``thunder.jit``; less would be a step back."""


def measured(layers: int, what: str) -> dict[str, Any]:
    """A point, measured in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.size_point", str(layers), what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("layers", [2, 8, 32])
def test_opening_and_choosing_at_7b(benchmark: Any, layers: int) -> None:
    ours = benchmark.pedantic(measured, args=(layers, "workbench"), rounds=1)
    stock = measured(layers, "stock")
    ratios = {"open": stock["open_s"] / ours["open_s"], "choice": stock["open_s"] / ours["choice_s"]}
    benchmark.extra_info.update(ours=ours, stock=stock, ratios=ratios)
    print(
        f"\n{layers} layers, {ours['statements']} statements: thunder.jit {stock['open_s']:.1f} s; opened "
        f"{ours['open_s']:.1f} s ({ratios['open']:.1f} times as fast), one choice {ours['choice_s']:.2f} s "
        f"({ratios['choice']:.0f} times), peak {ours['peak_rss_bytes'] / 1e9:.2f} GB\n{json.dumps(ours['stages'])}"
    )
    assert ratios["open"] > AT_LEAST["open"]
    assert ratios["choice"] > AT_LEAST["choice"]
    assert ours["peak_rss_bytes"] <= 2e9
