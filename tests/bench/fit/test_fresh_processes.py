"""A fit returns the same choices in every process and in any sequence of fits. A higher limit never adds time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.bench.fit.test_fit import market_split
from workbench.analysis.fit.milp_process import solve_whole

SHARES = (0.92, 0.94, 0.98)
ASK = """
import json, sys
import workbench
from workbench.bench.fit.fitter import Fitter

shares = json.loads(sys.argv[1])
found = {}
for share in shares:
    bench = workbench.open("llama", device="planned", executor="nvfuser", layers=2)
    fitter = Fitter(bench, bench._captured, bench.machine)
    point, plan = fitter.fit_peak(round(share * bench.plan.peak_bytes))
    found[share] = [plan.peak_bytes, point.added_s, sorted(fitter.choices(point).items())]
print(json.dumps(found))
"""


def asked(shares: tuple[float, ...], seed: str) -> dict[str, list[Any]]:
    """In a new process, fit a new bench to each share of stock peak memory. Return choices and figures by share."""
    command = [sys.executable, "-c", ASK, json.dumps(shares)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True, timeout=300
    )
    found: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.long
def test_fresh_benches_agree_and_a_higher_limit_never_makes_a_longer_step() -> None:
    # The second process fits in another order, with another hash seed.
    once, again = asked(SHARES, "1"), asked(SHARES[::-1], "2")
    assert once == again
    steps = [once[str(share)][1] for share in SHARES]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


@pytest.mark.slow
def test_a_solver_is_limited_by_nodes_and_not_by_time() -> None:
    found = solve_whole(lambda: None, [1.0] * 40, **market_split(), nodes=40)
    assert "Solution limit reached" in found.message
