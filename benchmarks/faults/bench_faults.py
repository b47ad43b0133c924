"""Test runs with a full disk, a gigabyte of output, and 200 killed workers, which takes too long for `make test`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runs.test_faults import kill_at_random, prints
from tests.runs.test_run_processes import assert_nothing_left, begin

FILLS_THE_DISK = """
def make():
    try:
        with open(os.path.join(os.environ["TMPDIR"], "large"), "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))
    except OSError:
        time.sleep(60)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of one megabyte, and yield its folder. Skip the test without the permission to mount."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_if_a_program_fills_the_disk_the_run_says_so_and_leaves_no_process(benchmark, small_disk: Path) -> None:
    def fill() -> None:
        run = begin(small_disk, FILLS_THE_DISK).wait(250)
        assert run.error == "the event log could not be written: No space left on device"
        assert run.events[0].type == "started"
        assert_nothing_left(run)

    benchmark.pedantic(fill, rounds=1)


def test_a_program_may_print_a_gigabyte(benchmark, tmp_path: Path) -> None:
    benchmark.pedantic(prints, args=(tmp_path, 1024), rounds=1)


@pytest.mark.timeout(7200)
def test_workers_killed_at_two_hundred_random_times_leave_readable_runs(benchmark, tmp_path: Path) -> None:
    phases = benchmark.pedantic(kill_at_random, args=(tmp_path, 200), kwargs={"together": 4}, rounds=1)
    benchmark.extra_info.update(phases)
    print(benchmark.extra_info)
    # Some workers must have been killed before their first phase, and some in each long phase.
    assert {"begin", "build", "compile", "time"} <= set(phases)
