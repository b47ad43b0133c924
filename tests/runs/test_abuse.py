"""A sample of the abuse in benchmarks/bench_abuse_runs.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.broken_stores import break_stores
from workbench.runs import store

pytestmark = pytest.mark.slow


def test_broken_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = break_stores(tmp_path, 25, 10_000, lambda root: monkeypatch.setenv(store.ROOT_VARIABLE, str(root)))
    assert found.faults == []
    assert found.stores == 25
    assert found.readable >= 50
    assert found.unreadable > 0
