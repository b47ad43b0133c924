"""Try hundreds of damaged folders of runs and a hundred misbehaving programs, which take too long for `make test`."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.runs.broken_stores import break_stores
from tests.runs.hostile import run_hostile
from workbench.runs.process import run_store

STORES = int(os.environ.get("WORKBENCH_STORES", "500"))
PROGRAMS = int(os.environ.get("WORKBENCH_PROGRAMS", "100"))
SEED = int(os.environ.get("WORKBENCH_SEED", "0"))


@pytest.mark.timeout(3600)
def test_broken_stores_cause_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = time.monotonic()
    found = break_stores(tmp_path, STORES, SEED, lambda root: monkeypatch.setenv(run_store.ROOT_VARIABLE, str(root)))
    took_s = time.monotonic() - begun
    print(
        f"{found.stores} stores, {found.readable} runs read, {found.unreadable} marked unreadable, "
        f"{len(found.faults)} faults, {took_s:.0f} s",
        *found.faults,
        sep="\n",
    )
    assert found.stores == STORES
    assert found.faults == []


@pytest.mark.timeout(7200)
def test_hostile_programs_cause_no_fault(tmp_path: Path) -> None:
    begun = time.monotonic()
    states: Counter[str] = Counter()
    faults: list[str] = []
    with subprocess.Popen(["sleep", "36000"], start_new_session=True) as bystander:
        try:
            for seed in range(SEED, SEED + PROGRAMS):
                ended, found = run_hostile(tmp_path / str(seed), seed, bystander)
                states[ended.partition(": ")[2].partition(",")[0]] += 1
                print(f"{seed} {ended}", *found, sep="\n    ", flush=True)
                faults += [f"{seed} {ended}: {fault}" for fault in found]
        finally:
            bystander.kill()
    print(f"{PROGRAMS} programs, {dict(states)}, {len(faults)} faults, {time.monotonic() - begun:.0f} s")
    assert faults == []
