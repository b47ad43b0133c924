"""Measure how compile time grows with depth, for `residual_chain` with gradients and torch.compile on the CPU.

New processes compile the chain under four sets of choices. The benchmark prints a table and, for 64 layers, the three
slowest stages under each set. It writes the measurements to the folder ``WORKBENCH_DEPTH`` (by default a temporary
folder). A second call with the same folder makes only the missing measurements. All measurements take about 20 minutes
on 2 idle cores.

``python -m pytest benchmarks/runs/bench_depth.py -s``
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from workbench.runs.sweep.sweep import Sweep, SweepOutcome, SweepProgress, SweepResult, run

LAYERS = (1, 2, 4, 8, 16, 32, 64)
POLICIES: dict[str, dict[str, str]] = {
    "stock": {},
    "stock, shared": {"sharing.identical": "shared"},
    "weight 0": {"remat.weight": "0.0"},
    "weight 0, cut every 4, shared": {
        "remat.weight": "0.0",
        "remat.preset": "every=4",
        "sharing.identical": "shared",
    },
}


def slowest(point: SweepOutcome, count: int = 3) -> str:
    """Return the names and times of the stages that took the most compile time in a measurement."""
    stages = sorted(point.stages, key=lambda stage: -stage["seconds"])[:count]
    return ", ".join(f"{stage['name']} {stage['seconds']:.1f} s" for stage in stages)


def table(results: dict[str, SweepResult]) -> str:
    """Return the results as a Markdown table."""
    lines = [
        "| layers | " + " | ".join(f"{name}: compile s (unique of all fusions)" for name in results) + " |",
        "|---" * (len(results) + 1) + "|",
    ]
    for i, layers in enumerate(LAYERS):
        cells = []
        for result in results.values():
            figures = result.points[i].figures
            cells.append(f"{figures['compile_s']:.1f} ({figures['fusions_unique']:.0f} of {figures['fusions']:.0f})")
        lines.append(f"| {layers} | " + " | ".join(cells) + " |")
    exponents = [f"{next(iter(result.exponents().values())):.2f}" for result in results.values()]
    lines.append("| exponent from 8 on | " + " | ".join(exponents) + " |")
    lines += [f"\n{name}, {LAYERS[-1]} layers: {slowest(result.points[-1])}" for name, result in results.items()]
    return "\n".join(lines)


def told(progress: SweepProgress) -> None:
    """Print the latest measurement."""
    if progress.latest is not None:
        point = progress.latest
        print(f"{progress.done}/{progress.count} {point.settings} {point.choices} {point.figures} {point.error or ''}")


@pytest.mark.timeout(7200)
def test_with_cuts_and_sharing_compile_time_grows_slowly_with_depth(benchmark: Any, tmp_path: Path) -> None:
    folder = Path(os.environ.get("WORKBENCH_DEPTH", tmp_path))

    def measure() -> dict[str, SweepResult]:
        return {
            name: run(
                Sweep(
                    program="residual_chain",
                    settings={"layers": [str(n) for n in LAYERS], "grad": ["true"]},
                    choices={id: [option] for id, option in choices.items()},
                    executor="torchcompile",
                    timeout_s=1800,
                ),
                folder / name.replace(" ", "-").replace(",", ""),
                on_progress=told,
            )
            for name, choices in POLICIES.items()
        }

    results = benchmark.pedantic(measure, rounds=1)
    assert all(point.ok for result in results.values() for point in result.points)
    print("\n" + table(results))
    cut, shared = results["weight 0, cut every 4, shared"], results["stock, shared"]
    unique = [point.figures["fusions_unique"] for point in cut.points if int(point.settings["layers"]) >= 8]
    exponent = next(iter(cut.exponents().values()))
    ratio = cut.points[-1].figures["compile_s"] / shared.points[-1].figures["compile_s"]
    benchmark.extra_info.update(unique=unique, exponent=exponent, ratio=ratio)
    assert len(set(unique)) == 1
    assert exponent <= 1.2
    assert ratio <= 2
