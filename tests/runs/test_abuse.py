"""Damaged folders and misbehaving programs cause no fault. `benchmarks/faults/bench_abuse_runs.py` tries many more."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.runs.broken_stores import break_stores
from tests.runs.hostile import BODIES, run_hostile
from workbench.runs.process import run_store

pytestmark = pytest.mark.slow


def test_broken_stores_cause_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = break_stores(tmp_path, 25, 10_000, lambda root: monkeypatch.setenv(run_store.ROOT_VARIABLE, str(root)))
    assert found.faults == []
    assert found.stores == 25
    assert found.readable >= 50
    assert found.unreadable > 0


@pytest.mark.parametrize("name", ["starts a daemon and is killed", "puts a pipe in the log's place", "forks a daemon"])
def test_hostile_programs_cause_no_fault(tmp_path: Path, name: str) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as bystander:
        ended, faults = run_hostile(tmp_path / "one", list(BODIES).index(name), bystander)
        bystander.kill()
    assert ended.startswith(f"{name}: failed, the worker ")
    assert faults == []
