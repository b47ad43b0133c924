"""After a fault at any time, a run has failed with one reason, and keeps all earlier events. No process is left."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.runs.test_run_processes import QUICK, TRACED_FOR, assert_nothing_left, begin, until
from workbench.runs.log import events
from workbench.runs.process import request, run_store
from workbench.runs.process.follow_run import Run

pytestmark = pytest.mark.slow

LONG = dataclasses.replace(QUICK, samples=10**9, sampling_s=600.0)

PRINTS = """
def make():
    block = b"x" * (1 << 20)
    for _ in range({megabytes}):
        os.write(1, block)
    print("the last line", flush=True)
    os._exit(7)
"""

EXITS_WHILE_IT_RUNS = """
def make():
    import threading

    def leave():
        while "time" not in open(sys.argv[1] + "/events.jsonl").read().rpartition('"phase":"')[2][:6]:
            time.sleep(0.01)
        os._exit(0)

    threading.Thread(target=leave, daemon=True).start()
    return torch.tanh, (torch.ones(4),)
"""

HOLDS_THE_INTERPRETER = "def make():\n    while True:\n        pass"


def prints(folder: Path, megabytes: int) -> None:
    run = begin(folder, PRINTS.format(megabytes=megabytes)).wait(250)
    assert run.error == "the worker ended by itself with exit status 7 before the run was done"
    assert run.output.rstrip().endswith("the last line")
    assert len(run.output) <= 2 * request.OUTPUT_BYTES
    assert sum(path.stat().st_size for path in run.run_dir.iterdir()) < 4 * request.OUTPUT_BYTES
    assert_nothing_left(run)


def test_a_program_may_print_a_hundred_megabytes(tmp_path: Path) -> None:
    prints(tmp_path, 100)


def test_a_program_that_exits_during_timing_keeps_its_measurements(tmp_path: Path) -> None:
    run = begin(tmp_path, EXITS_WHILE_IT_RUNS, LONG).wait(120)
    assert run.error == "the worker ended by itself with exit status 0 before the run was done"
    assert run.compile_s is not None
    assert any(isinstance(event, events.Step) for event in run.events)
    assert_nothing_left(run)


def test_a_program_that_never_releases_the_interpreter_lock_is_ended_in_time(tmp_path: Path) -> None:
    begun = time.monotonic()
    run = begin(tmp_path, HOLDS_THE_INTERPRETER, dataclasses.replace(LONG, timeout_s=8.0)).wait(120)
    assert run.error == "timeout: not done after 8 s"
    assert time.monotonic() - begun < 60
    assert_nothing_left(run)


def kill_at_random(folder: Path, times: int, together: int) -> Counter[str]:
    """Start workers in groups of `together`, and kill each worker. Return the number of kills by phase.

    The workers of the first group are killed after all of them time steps. All other workers are killed at random
    moments, within 1.1 times the seconds after which the first group timed steps. Each worker compiles for at least
    2 s, so that some workers are killed during compilation.
    """
    draw = random.Random(0)
    phases: Counter[str] = Counter()
    life_s = 0.0
    for first in range(0, times, together):
        begun = time.monotonic()
        runs = []
        for index in range(first, min(first + together, times)):
            (folder / str(index)).mkdir()
            runs.append(begin(folder / str(index), TRACED_FOR.format(seconds=2), LONG))
        if first == 0:
            for run in runs:
                until(run, lambda run=run: run.phase == "time", 240.0)
            life_s = 1.1 * (time.monotonic() - begun)
        moments = sorted(draw.uniform(0.0, life_s) for _ in runs)
        for run, moment_s in zip(runs, moments, strict=True):
            time.sleep(max(0.0, begun + moment_s - time.monotonic()))
            kill(run)
            phases[run.phase or "begin"] += 1
    return phases


def kill(run: Run) -> None:
    assert run._worker is not None
    os.kill(run._worker.pid, signal.SIGKILL)
    run.wait(120)
    assert run.state == "failed"
    assert run.error is not None
    assert run.error.startswith("the worker was killed by SIGKILL")
    # All complete lines are read, even if the kill cut off the last line. One thread of the worker writes samples, and
    # another writes all other events. Each writes in order of time.
    *lived, end = run_store.open(run.run_dir).events
    assert isinstance(end, events.Failed)
    for wrote in (True, False):
        moments = [event.t_s for event in lived if isinstance(event, events.MemorySample) is wrote]
        assert moments == sorted(moments)
    assert_nothing_left(run)


@pytest.mark.long
def test_workers_killed_at_random_times_leave_readable_runs(tmp_path: Path) -> None:
    assert kill_at_random(tmp_path, 4, together=2)["time"] >= 2
