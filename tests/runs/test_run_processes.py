"""Runs in separate processes report measurements. A failed run has one reason. No run leaves a process."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.trial_counts import beyond
from workbench import programs
from workbench.core.config import Config
from workbench.errors import ProgramError, RunError
from workbench.runs.log import event_log, events
from workbench.runs.measure import statement_times
from workbench.runs.process import (
    failure_reason,
    follow_run,
    reaper,
    request,
    run_store,
    start_run,
    switch_interval,
    worker_process,
)
from workbench.runs.process.follow_run import Run
from workbench.runs.process.request import RunOptions

pytestmark = pytest.mark.slow

QUICK = RunOptions(samples=3, measure_peak=False, clocks=False, check_accuracy=False, threads=2)


@dataclasses.dataclass
class File:
    """A program from source text, which is written to a file."""

    source: str

    def dump(self, folder: Path) -> dict[str, Any]:
        path = folder.parent / f"{folder.name}-program.py"
        path.write_text(f"import os, signal, sys, time\nimport torch\n\n{self.source}\n")
        return {"kind": "file", "name": f"{path}:make", "settings": {}, "device": "cpu", "seed": 0}


def begin(folder: Path, source: str, options: RunOptions = QUICK) -> Run:
    return start_run.start(request.prepare(folder / "run", File(source), options=options))


def until(run: Run, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert run.state not in follow_run.FINAL_STATES, (run.error, run.detail)
        assert time.monotonic() < deadline, run.state
        time.sleep(0.005)


def assert_nothing_left(run: Run) -> None:
    """Assert that the run left no process and no temporary file, and that its log gives the same state and events."""
    assert run._worker is not None
    assert reaper.marked_processes(run._worker.mark) == []
    assert not psutil.pid_exists(run._worker.pid)
    assert not (run.run_dir / request.SCRATCH).exists()
    assert {path.name for path in run.run_dir.iterdir()} <= {
        "request.json", "events.jsonl", "output.log", "program.pkl", "config.py"
    }  # fmt: skip
    again = run_store.open(run.run_dir)
    assert again is not run
    assert (again.state, again.error, again.events) == (run.state, run.error, run.events)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a finished run with all measurements. It has no choices, so unmodified Thunder compiles the module."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.BatchNorm1d(32))
    program = programs.resolve(model, torch.randn(8, 16, requires_grad=True))
    folder = request.prepare(
        tmp_path_factory.mktemp("runs") / "first",
        program,
        predicted_peak_bytes=12345,
        options=RunOptions(samples=5, threads=2),
    )
    return start_run.start(folder).wait(120)


def test_a_run_reports_its_measurements(finished: Run) -> None:
    assert finished.ok, (finished.error, finished.detail)
    told = json.loads(json.dumps(finished.to_json(), allow_nan=False))
    assert list(told) == [
        "ok", "error", "warnings", "compile_s", "compile_attributed", "proven", "rules", "stages", "step_s", "times",
        "beside_load",
        "clocks", "coverage", "parts", "against", "memory", "accuracy", "run_dir"
    ]  # fmt: skip
    assert told["proven"] is None, "without choices there must be no proof, because unmodified Thunder runs"
    assert told["compile_attributed"] > 0.95
    assert sum(stage["seconds"] for stage in told["stages"]) == pytest.approx(told["compile_s"])
    assert told["stages"][-1] == {
        "name": "unattributed",
        "seconds": pytest.approx(told["compile_s"] * (1 - told["compile_attributed"])),
    }
    assert told["memory"]["predicted_peak_bytes"] == 12345
    assert told["memory"]["measured_peak_bytes"] > told["memory"]["baseline_bytes"] > 0
    assert told["accuracy"] == {
        "ok": True,
        "bitwise": True,
        "changed_kernels": [],
        "relative_tolerance": {"float32": 0.0},
        "words": "every bit equals unmodified Thunder's result",
        "max_error": told["accuracy"]["max_error"],
        "against": "thunder.jit and eager",
        "why": "",
        "worst": told["accuracy"]["worst"],
        "worst_float64": told["accuracy"]["worst_float64"],
    }
    assert 0 < told["accuracy"]["worst_float64"]["max_rel_error"] < 1e-4
    assert told["step_s"] > 0


def test_a_run_leaves_only_its_folder(finished: Run) -> None:
    assert_nothing_left(finished)


def test_the_statements_of_a_step_are_timed(finished: Run) -> None:
    clocked = finished.statements
    assert clocked is not None
    assert clocked.sides == sorted(clocked.sides)
    assert set(clocked.sides) == {0, 1}
    rows = (clocked.names, clocked.sources, clocked.outputs, clocked.start_s, clocked.seconds, clocked.free_s)
    assert {len(of) for of in rows} == {len(clocked.sides)}
    assert all(seconds > 0 for seconds in clocked.seconds)
    forward = [name for name, side in zip(clocked.names, clocked.sides, strict=True) if side == 0]
    of_model = [next(at for at, name in enumerate(forward) if part in name) for part in ("linear", "tanh", "rsqrt")]
    assert of_model == sorted(of_model)
    for side in (0, 1):  # the forward and the backward are timed in separate steps
        starts = [start_s for start_s, of in zip(clocked.start_s, clocked.sides, strict=True) if of == side]
        assert starts == sorted(starts)
    assert clocked.launch_bound is None
    assert "without a GPU" in clocked.verdict


def test_one_step_is_recorded_as_it_happened(finished: Run) -> None:
    clocked = finished.statements
    assert clocked is not None
    starts, seconds, frees = clocked.one_step_or_medians
    ends = [start + spent + free for start, spent, free in zip(starts, seconds, frees, strict=True)]
    assert clocked.one_start_s
    assert starts == sorted(starts)
    assert all(end <= following + 1e-9 for end, following in zip(ends, starts[1:], strict=False))
    assert ends[-1] <= clocked.one_step_s + 1e-6
    forward_ends = max(end for end, side in zip(ends, clocked.sides, strict=True) if not side)
    assert forward_ends <= min(start for start, side in zip(starts, clocked.sides, strict=True) if side)


def test_the_measured_peak_is_at_one_statement(finished: Run) -> None:
    peak = events.last_of(finished.events, events.PeakMeasured)
    assert finished.statements is not None
    assert peak is not None
    assert len(peak.statement_peak_bytes) == len(peak.statement_live_bytes) == len(finished.statements.names)
    alive = finished.to_json()["memory"]["alive_at_peak"]
    assert sum(each["bytes"] for each in alive) == peak.measured_peak_bytes - peak.baseline_bytes
    assert {"bytes", "value", "statement", "name", "outputs", "source"} == set(alive[0])
    assert finished.statements.names[peak.peak_statement["statement"]] == peak.peak_statement["name"]
    for each in alive:
        assert each["value"] in ("", *each["outputs"])
    # At the peak, at least one value of the forward is alive and has a name.
    assert any(each["value"] and finished.statements.sides[each["statement"]] == 0 for each in alive)
    # The step's peak may be higher than each statement's peak: between forward and backward, autograd allocates too,
    # for example gradients of outputs.
    assert peak.baseline_bytes < max(peak.statement_peak_bytes) <= peak.measured_peak_bytes


def test_the_peak_of_eager_pytorch_is_measured_too(finished: Run) -> None:
    baseline_bytes = finished.memory["baseline_bytes"]
    assert baseline_bytes is not None
    assert finished.eager_peak_bytes is not None
    # Eager PyTorch starts from the same parameters and inputs, and the step allocates further memory.
    assert finished.eager_peak_bytes > baseline_bytes
    assert finished.to_json()["memory"]["eager_peak_bytes"] == finished.eager_peak_bytes


def test_a_run_is_a_trace_for_perfetto(finished: Run, tmp_path: Path) -> None:
    written = json.loads(statement_times.write_chrome_trace(finished, tmp_path / "trace.json").read_text())
    spans = [event for event in written["traceEvents"] if event["ph"] == "X"]
    assert {span["tid"] for span in spans} >= {"stages", "host, forward", "host, backward"}
    assert all(span["dur"] >= 0 for span in spans)
    with pytest.raises(RunError, match="cannot be written"):
        statement_times.write_chrome_trace(finished, tmp_path / "missing" / "trace.json")


def test_memory_is_sampled_during_compilation(finished: Run) -> None:
    told = [event for event in finished.events if isinstance(event, events.Phase | events.MemorySample)]
    begun = next(i for i, event in enumerate(told) if isinstance(event, events.Phase) and event.phase == "compile")
    # After `compile` begins, samples follow each other. `benchmarks/runs/test_readouts.py` measures their rate.
    assert all(isinstance(event, events.MemorySample) for event in told[begun + 1 : begun + 11])


def test_an_observer_of_a_finished_run_gets_all_events(finished: Run) -> None:
    told: list[events.Event] = []
    finished.observe(told.append)
    deadline = time.monotonic() + 120
    while len(told) < len(finished.events) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tuple(told) == finished.events


def test_a_run_is_rebuilt_from_its_folder_alone(finished: Run) -> None:
    again = run_store.open(finished.run_dir)
    assert again.to_json() == finished.to_json()
    assert again.accuracy == finished.accuracy
    assert again.timeline == finished.timeline


def test_a_folder_cannot_be_run_twice(finished: Run) -> None:
    with pytest.raises(RunError, match="contains an earlier run"):
        start_run.start(finished.run_dir)


def test_cancelling_a_finished_run_changes_nothing(finished: Run) -> None:
    finished.cancel()
    assert finished.state == "done"


SLEEPS = "def make():\n    time.sleep(60)"


def test_a_run_of_another_user_is_not_cancelled_and_its_log_has_no_cancelled_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(tmp_path, SLEEPS)
    with monkeypatch.context() as patch:
        patch.setattr(worker_process.Worker, "is_child", False)
        patch.setattr(worker_process, "may_signal", lambda pid: False)
        with pytest.raises(RunError, match="belongs to another user"):
            run.cancel()
    assert run.state not in follow_run.FINAL_STATES
    assert not [event for event in event_log.read_events(run.run_dir) if isinstance(event, events.Cancelled)]
    run.cancel()
    assert run.state == "cancelled"


def test_a_cancel_that_fails_keeps_the_reason_for_which_the_run_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(tmp_path, SLEEPS)
    earlier = events.Failed(t_s=0.0, reason="over the limit")
    run._stop = earlier

    def refuse(worker: worker_process.Worker) -> None:
        raise RunError("it lives on")

    with monkeypatch.context() as patch:
        patch.setattr(worker_process.Worker, "kill", refuse)
        with pytest.raises(RunError, match="cannot be cancelled: it lives on"):
            run.cancel()
    assert run._stop is earlier
    run.cancel()
    assert (run.state, run.error) == ("failed", "over the limit")


def test_a_run_that_could_not_be_started_can_be_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def make():\n    return torch.nn.Linear(2, 2), (torch.ones(2, 2),)"
    folder = request.prepare(tmp_path / "run", File(source), options=QUICK)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(start_run.subprocess, "Popen", refuse)
        with pytest.raises(RunError, match="cannot be started: Resource temporarily unavailable"):
            start_run.start(folder)
    assert start_run.start(folder).wait(120).ok


def test_a_run_compiles_under_its_config(tmp_path: Path) -> None:
    config = Config(program="mlp", executor="torch", device="cpu")
    program = programs.resolve("mlp", device="cpu", settings={"layers": 2})
    options = dataclasses.replace(QUICK, check_accuracy=True)
    run = start_run.start(request.prepare(tmp_path / "run", program, config_text=config.text(), options=options)).wait(
        120
    )
    assert run.ok, (run.error, run.detail)
    assert {"interpret", "grad", "claim", "split", "generate code", "first forward", "first backward"} <= {
        stage["name"] for stage in run.stages
    }
    assert run.to_json()["accuracy"]["max_error"] < 1e-4
    assert run.accuracy is not None
    assert (run.accuracy.bitwise, run.accuracy.changed_kernels) == (True, ())
    assert_nothing_left(run)


def test_a_config_that_holds_code_fails_the_run_and_is_not_executed(tmp_path: Path) -> None:
    text = f"open({str(tmp_path / 'executed')!r}, 'w')"
    run = start_run.start(request.prepare(tmp_path / "run", File(SLOW_BUILD), config_text=text, options=QUICK)).wait(
        120
    )
    assert run.state == "failed"
    assert "config.py" in (run.error or "")
    assert not (tmp_path / "executed").exists()


SLOW_BUILD = "def make():\n    print('building', flush=True)\n    time.sleep(60)"

HELPERS = """
def make():
    import subprocess
    subprocess.Popen(["sleep", "60"])
    subprocess.Popen(["sleep", "61"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
    open(os.path.join(os.environ["TMPDIR"], "left"), "w").write("x" * 1000)
    print('building', flush=True)
    time.sleep(60)
"""

TRACED_FOR = """
class Slow(torch.nn.Module):
    def forward(self, x):
        time.sleep({seconds})
        return torch.tanh(x)

def make():
    return Slow(), (torch.ones(4),)
"""
"""Source of a program that sleeps while it is traced, but not while its steps run."""

SLOW_TRACE = TRACED_FOR.format(seconds=60)

MANY_STEPS = "def make():\n    return torch.tanh, (torch.ones(4),)"


def cancel(run: Run) -> None:
    run.cancel()
    assert run.state == "cancelled"
    assert run.wait(0.1).error == "cancelled"
    assert_nothing_left(run)


def test_a_run_is_cancelled_before_its_worker_has_begun(tmp_path: Path) -> None:
    run = begin(tmp_path, SLOW_BUILD)
    assert run.state == "starting"
    with pytest.raises(RunError, match="is not done after"):
        run.wait(0.01)
    cancel(run)


def test_a_cancel_during_the_build_kills_helper_processes_too(tmp_path: Path) -> None:
    run = begin(tmp_path, HELPERS)
    until(run, lambda: "building" in run.output)
    assert run._worker is not None
    assert len(reaper.marked_processes(run._worker.mark)) == 4
    cancel(run)


def test_a_run_is_cancelled_during_compilation(tmp_path: Path) -> None:
    run = begin(tmp_path, SLOW_TRACE)
    until(run, lambda: run.state == "compiling")
    cancel(run)


def test_a_run_is_cancelled_during_its_steps(tmp_path: Path) -> None:
    run = begin(tmp_path, MANY_STEPS, dataclasses.replace(QUICK, samples=10**9, sampling_s=60.0))
    until(run, lambda: run.phase == "time")
    assert follow_run.follow(run.run_dir) is run
    cancel(run)


def test_threads_request_the_interpreter_lock_sooner_while_a_run_is_followed(tmp_path: Path) -> None:
    before_s = sys.getswitchinterval()
    for run in [begin(tmp_path / name, SLOW_BUILD) for name in ("first", "second")]:
        until(run, lambda: sys.getswitchinterval() == pytest.approx(switch_interval.SWITCH_INTERVAL_S))
        cancel(run)
    deadline = time.monotonic() + 120
    while sys.getswitchinterval() != before_s:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_switch_interval_that_others_set_during_a_run_is_not_reset() -> None:
    before_s = sys.getswitchinterval()
    try:
        with switch_interval.SHORT_SWITCH_INTERVAL, switch_interval.SHORT_SWITCH_INTERVAL:
            sys.setswitchinterval(0.002)
        assert sys.getswitchinterval() == 0.002
        with switch_interval.SHORT_SWITCH_INTERVAL:
            assert sys.getswitchinterval() == pytest.approx(switch_interval.SWITCH_INTERVAL_S)
        assert sys.getswitchinterval() == 0.002
    finally:
        sys.setswitchinterval(before_s)


FAULTS = {
    "exits as if all were well": ("def make():\n    os._exit(0)", "ended by itself with exit status 0"),
    "is killed": ("def make():\n    os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
    "asks for too much memory": ("def make():\n    torch.empty(1 << 60)", "out of memory"),
    "forks and both go on": ("def make():\n    os.fork()\n    raise ValueError('both')", "both"),
    "has no space for the log": (
        "import resource\ndef make():\n    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n    time.sleep(60)",
        "the event log could not be written: File too large",
    ),
}


def assert_failed(run: Run, reason: str) -> None:
    """Assert that the run failed with a one-line reason, and left no process and no temporary file."""
    assert run.state == "failed"
    assert run.error is not None
    assert reason in run.error
    assert "\n" not in run.error
    assert not run.ok
    assert run.to_json()["ok"] is False
    assert [type(event) for event in run.events if isinstance(event, events.FINAL)] == [events.Failed]
    assert_nothing_left(run)


@pytest.mark.parametrize("fault", beyond(2, FAULTS))
def test_a_run_that_fails_reports_the_reason(tmp_path: Path, fault: str) -> None:
    source, reason = FAULTS[fault]
    assert_failed(begin(tmp_path, source).wait(120), reason)


WARNS_FORKS_AND_RAISES = """
import warnings
from workbench.errors import ConfigWarning

def make():
    warnings.warn(ConfigWarning("one"))
    if os.fork() == 0:
        while True:
            time.sleep(1)
    raise ValueError("no such layer")
"""


def test_an_exception_reaches_all_observers_and_ends_the_child_processes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[events.Event] = []

    def broken(event: events.Event) -> None:
        raise ValueError("broken view")

    run = begin(tmp_path, WARNS_FORKS_AND_RAISES)
    # An error in one observer must not affect other observers.
    run.observe(broken)
    run.observe(told.append)
    assert_failed(run.wait(120), "no such layer")
    assert run.warnings == ("one",)
    deadline = time.monotonic() + 120
    while len(told) < len(run.events) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert tuple(told) == run.events
    assert "broken view" in caplog.text


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (-signal.SIGSEGV, "the worker was killed by SIGSEGV"),
        (-signal.SIGRTMIN - 1, "the worker was killed by signal 35"),
        (3, "the worker ended by itself with exit status 3 before the run was done"),
        (
            None,
            "the worker ended and no reason was written: the notebook or script that started the worker was shut down, "
            "or was killed together with the worker",
        ),
        (event_log.EXIT_LOG_UNWRITABLE, "last line"),
    ],
)
def test_a_workers_exit_status_becomes_text(status: int | None, reason: str) -> None:
    assert follow_run._reason(status, "first line\nlast line\n\n") == reason


def explained(error: BaseException, cause: BaseException | None = None) -> str:
    error.__cause__ = cause
    return failure_reason.explain(error)


def test_an_error_becomes_one_line() -> None:
    assert explained(ValueError("one\ntwo")) == "ValueError: one"
    assert explained(ValueError()) == "ValueError"
    assert explained(ProgramError("there is no program 'x'")) == "there is no program 'x'"
    assert explained(SystemExit(3)) == "the program ended the process: sys.exit(3)"
    assert explained(KeyboardInterrupt()) == "interrupted"
    assert explained(MemoryError()) == "out of memory"
    assert explained(torch.OutOfMemoryError("CUDA out of memory. Tried")) == "out of memory: CUDA out of memory. Tried"
    assert explained(ProgramError("failed"), MemoryError()) == "out of memory: failed"


def test_a_program_that_hangs_fails_after_its_time_limit(tmp_path: Path) -> None:
    run = begin(tmp_path, SLOW_BUILD, dataclasses.replace(QUICK, timeout_s=0.5)).wait(120)
    assert run.error == "timeout: not done after 0.5 s"
    assert_nothing_left(run)


def test_a_program_above_its_memory_limit_fails(tmp_path: Path) -> None:
    source = "def make():\n    held = []\n    while True:\n        held.append(torch.ones(1 << 20)); time.sleep(0.01)"
    limited = dataclasses.replace(QUICK, memory_limit_bytes=1 << 30)
    run = begin(tmp_path, source, limited).wait(120)
    assert run.error is not None
    assert run.error.startswith("out of memory: ")
    assert_nothing_left(run)


def test_only_the_end_of_a_long_output_is_stored(tmp_path: Path) -> None:
    source = "def make():\n    for i in range(3000):\n        print(f'{i:9}' * 1000)\n    raise ValueError('printed')"
    run = begin(tmp_path, source).wait(120)
    assert run.error is not None
    assert "printed" in run.error
    assert "2999" in run.output
    assert len(run.output) < 2 * request.OUTPUT_BYTES
    assert_nothing_left(run)


def test_a_worker_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    folder = request.prepare(tmp_path / "run", File(SLOW_BUILD), options=QUICK)
    script = (
        "import sys, time; from pathlib import Path; from workbench.runs.process import start_run; "
        "start_run.start(Path(sys.argv[1])); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(folder)])
    try:
        deadline = time.monotonic() + 120
        while not any(isinstance(event, events.Phase) for event in event_log.read_events(folder)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        run = run_store.open(folder)
        assert run.state == "starting"
        os.kill(parent.pid, signal.SIGKILL)
        run.wait(120)
    finally:
        parent.kill()
        parent.wait()
    assert run.state == "failed"
    assert run._worker is not None
    assert reaper.marked_processes(run._worker.mark) == []
    assert not (folder / request.SCRATCH).exists()
    assert "without a terminal event" in (run_store.open(folder).error or "")


def test_another_process_can_cancel_a_run(tmp_path: Path) -> None:
    run = begin(tmp_path, SLOW_BUILD)
    until(run, lambda: "building" in run.output)
    script = "import sys; from workbench.runs.process import run_store; run_store.open(sys.argv[1]).cancel()"
    subprocess.run([sys.executable, "-c", script, str(run.run_dir)], check=True)
    assert run.wait(120).state == "cancelled"
    assert_nothing_left(run)


def test_a_planned_device_runs_nothing(tmp_path: Path) -> None:
    program = programs.resolve("mlp", device="planned")
    with pytest.raises(RunError, match="the device planned"):
        start_run.start(request.prepare(tmp_path / "run", program))
