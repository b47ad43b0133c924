"""Measure what live readouts cost a compilation. The app shows at least 20 samples of the memory a second.

A turn has two runs in random order. The app shows one of them. The other has no observer and no memory samples. The
figure is the CPU seconds that readouts take per elapsed second of compilation: in the kernel, and in all threads of the
worker except the compiling one. On the same core, readouts slow a compilation by this share. Elapsed time is used,
because readouts continue while a compilation waits for a busy core. The benchmark also reports the ratios of both runs'
CPU seconds and elapsed times, but these vary between compilations by more than the readouts could add.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.runs.kernels import Kernel, kernel
from workbench.runs.log import event_log, events
from workbench.runs.measure import interleaved_timing

TURNS = int(os.environ.get("WORKBENCH_TURNS", "12"))

MOST_SHARE = 0.03

LEAST_HZ = 20.0

SETUP = """
import workbench as wb
from workbench.runs.process import start_run
from workbench.runs.process.request import RunOptions
from workbench.ui.app.app import App

bench = wb.open("llama", device="cpu", executor="torch")
app = App(bench)
display(app.root)
print("told", app.controls.comm.comm_id)
"""

SHOWN = "run = bench.run(folder={folder!r}, options=RunOptions(threads=1))"

ALONE = (
    "run = start_run.start(bench.prepare(folder={folder!r}, options=RunOptions(threads=1, memory_interval_s=3600.0)))"
)
"""Code that starts a run that neither the bench nor the app observes."""

WAIT_S = 240.0


class Watched:
    """Figures of the compilation of a run, which is followed to its end.

    Attributes
    ----------
    worker_cpu_s, beside_cpu_s, kernel_cpu_s : float
        CPU seconds during the compilation: of the worker process, of the worker's threads except the compiling one, and
        of the kernel.
    compile_s : float
        Elapsed seconds of the compilation.
    readouts : int
        Number of messages with memory samples that the page received during the compilation.
    """

    def __init__(self, notebook: Kernel, run_dir: Path, controls: str) -> None:
        self.readouts = 0
        tail = event_log.Tail(run_dir / event_log.LOG_FILE)
        seen: list[events.Event] = []
        worker: psutil.Process | None = None
        kernel_process = psutil.Process(notebook.pid)
        give_up = time.monotonic() + WAIT_S
        while (compiled := events.last_of(seen, events.Compiled)) is None:
            assert time.monotonic() < give_up, seen[-3:]
            new = tail.read()
            seen += new
            assert not any(isinstance(event, events.FINAL) for event in new), new[-1]
            if worker is None and any(isinstance(event, events.Phase) and event.phase == "compile" for event in new):
                worker = psutil.Process(next(event.pid for event in seen if isinstance(event, events.Started)))
                before_s = cpu_seconds(worker), beside_seconds(worker), cpu_seconds(kernel_process)
            for message in notebook.messages():
                data = message["content"].get("data", {})
                samples = data.get("method") == "custom" and data["content"].get("type") == "samples"
                self.readouts += worker is not None and samples and message["content"]["comm_id"] == controls
            time.sleep(0.002)
        assert worker is not None
        self.worker_cpu_s = cpu_seconds(worker) - before_s[0]
        self.beside_cpu_s = beside_seconds(worker) - before_s[1]
        self.kernel_cpu_s = cpu_seconds(kernel_process) - before_s[2]
        self.compile_s = compiled.compile_s


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and of those of its child processes that have ended."""
    return sum(process.cpu_times()[:4])


def beside_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process's threads except the first."""
    return sum(thread.user_time + thread.system_time for thread in process.threads() if thread.id != process.pid)


def readouts_share(shown: Watched, alone: Watched) -> float:
    """Return the CPU seconds that readouts take in kernel and worker, per second of compilation."""
    with_s, without_s = (each.beside_cpu_s + each.kernel_cpu_s for each in (shown, alone))
    return with_s / shown.compile_s - without_s / alone.compile_s


@pytest.mark.timeout(3600)
def test_readouts_add_less_than_three_percent_to_a_compilation(benchmark: Any, tmp_path: Path) -> None:
    def measure() -> dict[str, list[Watched]]:
        with kernel(tmp_path / "kernel") as notebook:
            (controls,) = notebook.told(notebook.execute(SETUP))
            count = 0

            def compile_once(start: str) -> Watched:
                nonlocal count
                count += 1
                folder = notebook.runs / str(count)
                notebook.execute(start.format(folder=str(folder)))
                found = Watched(notebook, folder, controls)
                notebook.execute("run.cancel()")
                return found

            ways = {"shown": lambda: compile_once(SHOWN), "alone": lambda: compile_once(ALONE)}

            def tell(name: str, found: Watched) -> None:
                worker = f"{found.worker_cpu_s:.2f} CPU s, {found.beside_cpu_s:.2f} beside"
                rest = f"the kernel {found.kernel_cpu_s:.2f}, in {found.compile_s:.2f} s, {found.readouts} readouts"
                print(f"{name}: {worker}, {rest}", flush=True)

            return interleaved_timing.take_interleaved(ways, TURNS, float("inf"), on_sample=tell)

    found = benchmark.pedantic(measure, rounds=1)
    shown, alone = found["shown"], found["alone"]
    share = interleaved_timing.estimate([readouts_share(*turn) for turn in zip(shown, alone, strict=True)])
    cpu = interleaved_timing.ratio(
        [each.worker_cpu_s for each in shown], [each.worker_cpu_s for each in alone], paired=True
    )
    wall = interleaved_timing.ratio([each.compile_s for each in shown], [each.compile_s for each in alone], paired=True)
    hertz = statistics.median(each.readouts / each.compile_s for each in shown)
    benchmark.extra_info.update(
        slower=share.median,
        slower_low=share.low,
        slower_high=share.high,
        kernel_share=statistics.median(each.kernel_cpu_s / each.compile_s for each in shown),
        slower_cpu=cpu.median - 1,
        slower_cpu_low=cpu.low - 1,
        slower_cpu_high=cpu.high - 1,
        slower_wall=wall.median - 1,
        slower_wall_low=wall.low - 1,
        slower_wall_high=wall.high - 1,
        readouts_a_second=hertz,
        compile_cpu_s=statistics.median(each.worker_cpu_s for each in alone),
        turns=share.samples,
    )
    print(benchmark.extra_info)
    assert sum(each.readouts for each in alone) == 0
    assert hertz > LEAST_HZ
    assert share.median < MOST_SHARE
