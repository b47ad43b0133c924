"""Faults by the gigabyte and by the hundred: too long for every test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.test_faults import kill_at_random, prints


def test_a_program_that_prints_a_gigabyte(benchmark, tmp_path: Path) -> None:
    benchmark.pedantic(prints, args=(tmp_path, 1024), rounds=1)


@pytest.mark.timeout(3600)
def test_a_worker_killed_at_two_hundred_random_times(benchmark, tmp_path: Path) -> None:
    benchmark.pedantic(kill_at_random, args=(tmp_path, 200), rounds=1)
