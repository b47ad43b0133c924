"""Measure, for each program, the share of compile time that is attributed to stages, and the predicted peak's error.

`python -m pytest benchmarks/runs/bench_stage_times.py -s` prints the figures of `runs_attribution.csv`. With `-k
torch-`, it takes one or two minutes. With `-k torchcompile-`, it takes much longer, because Inductor compiles all
programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workbench.programs import describe, parallel_of

UNSEEN = f"{Path(__file__).with_name('unseen.py')}:mixer"
"""A model that no test in `tests/` uses."""

SETTINGS = {"residual_chain": ["--set", "grad=true"]}

PROGRAMS = [*(info.name for info in describe() if not parallel_of(info.name)), UNSEEN]

LEAST_ATTRIBUTED = 0.95
MOST_OFF = {"torch": 0.01, "torchcompile": 0.05}


def run(program: str, executor: str, folder: Path) -> dict[str, Any]:
    """Run a program by the command line. Return the JSON report."""
    command = [sys.executable, "-m", "workbench.cli", "run", program, *SETTINGS.get(program, [])]
    done = subprocess.run(
        [*command, "--device", "cpu", "--executor", executor, "--samples", "3", "--json"],
        env={**os.environ, "WORKBENCH_RUNS": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.rpartition(":")[2])
@pytest.mark.parametrize("executor", MOST_OFF)
def test_compile_time_is_attributed_and_the_peak_is_predicted(
    benchmark: Any, program: str, executor: str, tmp_path: Path
) -> None:
    found = benchmark.pedantic(run, args=(program, executor, tmp_path), rounds=1)
    assert found["ok"], found["error"]
    predicted, measured = (found["memory"][f"{kind}_peak_bytes"] for kind in ("predicted", "measured"))
    attributed, off = found["compile_attributed"], predicted / measured - 1
    compiled = f"compiled in {found['compile_s']:7.2f} s, {attributed:8.3%} attributed"
    peak = f"peak {predicted:,} B predicted, {measured:,} B measured, {off:+.3%}"
    print(f"\n{executor:12} {program.rpartition(':')[2]:20} {compiled}; {peak}")
    benchmark.extra_info |= {"attributed": attributed, "predicted_bytes": predicted, "measured_bytes": measured}
    assert attributed >= LEAST_ATTRIBUTED
    assert abs(off) <= MOST_OFF[executor]
