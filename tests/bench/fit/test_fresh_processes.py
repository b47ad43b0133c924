"""A fit has the same answer whenever and wherever it is asked for, and more room never makes a longer step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import workbench.analysis.fit.milp_process
from tests.bench.fit.test_fit import market_split
from workbench.analysis.fit.milp_process import solve_whole

SHARES = (0.92, 0.94, 0.98)
ASK = """
import json, sys
import workbench
import workbench.analysis.fit.milp_process
from workbench.bench.fit.fitter import Fitter

shares, here_s = json.loads(sys.argv[1])
workbench.analysis.fit.milp_process._HERE_S = here_s
found = {}
for share in shares:
    bench = workbench.open("llama", device="planned", executor="nvfuser", layers=2)
    fitter = Fitter(bench, bench._captured, bench.machine)
    point, plan = fitter.within(round(share * bench.plan.peak_bytes))
    found[share] = [plan.peak_bytes, point.added_s, sorted(fitter.choices(point).items())]
print(json.dumps(found))
"""


def asked(shares: tuple[float, ...], seed: str, here_s: float) -> dict[str, list[Any]]:
    """What a process that has asked nothing before finds, each share of the stock peak by a bench of its own."""
    command = [sys.executable, "-c", ASK, json.dumps([shares, here_s])]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True, timeout=300
    )
    found: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_fresh_benches_answer_the_same_and_more_room_makes_no_longer_step() -> None:
    # In another order, with other hashes, and with the solver's programs solved in processes of their own.
    once, again = asked(SHARES, "1", 5.0), asked(SHARES[::-1], "2", 0.2)
    assert once == again
    steps = [once[str(share)][1] for share in SHARES]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


@pytest.mark.slow
def test_a_program_of_the_solvers_ends_by_its_search_and_not_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for here_s in (60.0, 0.01):
        monkeypatch.setattr(workbench.analysis.fit.milp_process, "_HERE_S", here_s)
        found.append(solve_whole(lambda: None, [1.0] * 40, **market_split(), nodes=40))
    here, there = found
    assert here.mip_node_count == there.mip_node_count
    assert here.mip_dual_bound == there.mip_dual_bound
    assert here.status == there.status != workbench.analysis.fit.milp_process._TIME_IS_UP
