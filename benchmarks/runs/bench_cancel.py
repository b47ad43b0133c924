"""Measure how long a press of Cancel takes, for a hundred runs in each of several cases, in a real kernel.

The time starts with the message that JupyterLab sends. The time ends when the run's process and temporary files are
gone and the log has the reason. The kernel is idle, or a cell keeps it busy. Several versions of ipykernel are tried,
because they route the messages of widgets differently. `WORKBENCH_CANCELS` sets the number of runs in each case.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.runs.kernels import Kernel, install, kernel
from workbench.runs.log import event_log, events
from workbench.runs.process import reaper, request, worker_process

VERSIONS = ("7.3.0", "7.4.0")

TIMES = int(os.environ.get("WORKBENCH_CANCELS", "100"))

CANCEL_S = {"idle": 0.5, "busy": 1.0}

STAGES = ("starting", "building", "compiling", "compiling fusions", "running")

LINGER_S = 0.5
"""Longest random delay in seconds between the start of a stage and the cancel."""

REACH_S = 240.0

SETUP = """
import os, pathlib, time
import ipykernel
import workbench as wb
from workbench.runs.process.request import RunOptions
from workbench.ui.app.app import App

opened = {
    "fused": wb.open("residual_chain", layers=4, device="cpu", executor="torchcompile"),
    "plain": wb.open("mlp", device="cpu", executor="torch"),
}
apps = {name: App(bench) for name, bench in opened.items()}
options = RunOptions(samples=10**9, sampling_s=600.0, measure_peak=False)
for app in apps.values():
    display(app.root)
print("told", ipykernel.__version__, *(app.controls.comm.comm_id for app in apps.values()))
"""

START = """
run = opened[{bench!r}].run(folder={folder!r}, options=options)
go_on = pathlib.Path({go_on!r})
while {busy} and not go_on.exists():
    sum(range(100_000))
"""

AFTERWARDS = """
until = time.monotonic() + 5
while apps[{bench!r}].controls.content["run"]["state"] != "cancelled" and time.monotonic() < until:
    time.sleep(0.01)
print("told", run.state, apps[{bench!r}].controls.content["run"]["state"])
"""


def reach(run_dir: Path, stage: str) -> None:
    """Wait until the log of a run shows that it has reached a stage."""
    tail = event_log.Tail(run_dir / event_log.LOG_FILE)
    seen: list[events.Event] = []
    give_up = time.monotonic() + REACH_S

    def there() -> bool:
        if stage == "starting":
            return (run_dir / worker_process.WORKER_FILE).exists()
        phases = [event.phase for event in seen if isinstance(event, events.Phase)]
        if stage == "building":
            return bool(phases)
        if stage == "compiling":
            return "compile" in phases
        if stage == "compiling fusions":
            return any(isinstance(event, events.FusionBegin) for event in seen)
        return "time" in phases

    while not there():
        assert time.monotonic() < give_up, (stage, seen[-3:])
        seen += tail.read()
        assert not any(isinstance(event, events.FINAL) for event in seen), seen[-1]
        time.sleep(0.002)


def is_gone(run_dir: Path, pid: int) -> bool:
    """Return whether a run has ended and has left neither its process nor temporary files."""
    if psutil.pid_exists(pid) or (run_dir / request.SCRATCH).exists():
        return False
    return any(isinstance(event, events.FINAL) for event in event_log.read_events(run_dir))


def cancel_at(notebook: Kernel, comms: dict[str, str], subshell: str, stage: str, index: int, busy: bool) -> float:
    """Start a run and cancel it at a stage. Return the seconds from the cancel until `is_gone` is true."""
    bench = "plain" if stage == "running" else "fused"
    run_dir, go_on = notebook.runs / str(index), notebook.runs.parent / f"go-on-{index}"
    cell = notebook.start(START.format(bench=bench, folder=str(run_dir), busy=busy, go_on=str(go_on)))
    reach(run_dir, stage)
    if not busy:
        notebook.finish(cell)
    time.sleep(random.Random(index).uniform(0.0, LINGER_S))
    worker: dict[str, Any] = json.loads((run_dir / worker_process.WORKER_FILE).read_text())
    begun = time.perf_counter()
    notebook.press(comms[bench], subshell, {"type": "cancel"})
    give_up = begun + 20
    while not is_gone(run_dir, worker["pid"]):
        assert time.perf_counter() < give_up, f"{stage}: not cancelled after 20 s"
        time.sleep(0.002)
    took_s = time.perf_counter() - begun
    assert reaper.marked_processes(worker["mark"]) == []
    assert isinstance(event_log.read_events(run_dir)[-1], events.Cancelled)
    if busy:
        go_on.touch()
        notebook.finish(cell)
        go_on.unlink()
    assert notebook.told(notebook.execute(AFTERWARDS.format(bench=bench))) == ["cancelled", "cancelled"]
    assert {path.name for path in run_dir.iterdir()} <= {
        "request.json", "events.jsonl", "output.log", "config.py"
    }  # fmt: skip
    return took_s


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("main_shell", ["idle", "busy"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_cancel_in_a_kernel_ends_the_run_in_time(
    benchmark: Any, tmp_path: Path, version: str, main_shell: str
) -> None:
    found: dict[str, list[float]] = {stage: [] for stage in STAGES}

    def measure() -> None:
        with kernel(tmp_path / "kernel", install(tmp_path, version)) as notebook:
            used, *ids = notebook.told(notebook.execute(SETUP))
            assert used == version
            comms = dict(zip(("fused", "plain"), ids, strict=True))
            subshell = notebook.subshell()
            process = psutil.Process(notebook.pid)
            before, before_threads = sorted(notebook.temporary.rglob("*")), 0
            for index in range(TIMES):
                stage = STAGES[index % len(STAGES)]
                found[stage].append(cancel_at(notebook, comms, subshell, stage, index, main_shell == "busy"))
                if index == 4:
                    before_threads = process.num_threads()
            assert sorted(notebook.temporary.rglob("*")) == before
            assert process.children(recursive=True) == []
            assert process.num_threads() <= before_threads + 5
            benchmark.extra_info["nudges"] = notebook.nudges

    benchmark.pedantic(measure, rounds=1)
    every = [seconds for times in found.values() for seconds in times]
    benchmark.extra_info.update(
        times=len(every),
        slowest_s=max(every),
        median_s=statistics.median(every),
        slowest_by_stage_s={stage: max(times) for stage, times in found.items() if times},
    )
    print(benchmark.extra_info)
    assert max(every) < CANCEL_S[main_shell]
