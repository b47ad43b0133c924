"""A run is followed to its end even if its log, its observers or its follower fail. No other process is ended."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import RunError
from workbench.runs.log import event_log, events, untrusted_files
from workbench.runs.log.events import Event, Failed, Finished, Phase
from workbench.runs.process import follow_run, reaper, request, run_store, start_run, worker_process
from workbench.runs.process.follow_run import Run
from workbench.runs.process.request import RunOptions

Start = Callable[..., subprocess.Popen[bytes]]


class Nothing:
    """A program that has only a description, because these tests never build it."""

    def dump(self, folder: Path) -> dict[str, Any]:
        return {"kind": "builtin", "name": "mlp", "settings": {}, "device": "cpu", "seed": 0}


class Acted:
    """A simulated worker. It ends when the test sets `ended`."""

    pid = os.getpid()
    is_child = True

    def __init__(self, status: int | None = 0) -> None:
        self.status = status
        self.ended = threading.Event()
        self.killed = False

    def wait(self, timeout_s: float) -> bool:
        return self.ended.wait(timeout_s)

    def kill(self) -> None:
        self.killed = True
        self.ended.set()

    def close(self) -> int | None:
        return -9 if self.killed else self.status

    def output(self) -> str:
        return "the last that was printed\n"


def prepared(folder: Path, *log: Event, options: RunOptions | None = None) -> Path:
    run_dir = request.prepare(folder / "run", Nothing(), name="run", options=options)
    for event in log:
        event_log.append(run_dir / event_log.LOG_FILE, event)
    return run_dir.resolve()


def live(run_dir: Path, status: int | None = 0) -> tuple[Run, Acted]:
    """Return a run that a thread follows, and the run's simulated worker."""
    run, worker = Run(run_dir), Acted(status)
    follow_run.follow_worker(run, worker)  # type: ignore[arg-type]
    return run, worker


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def tell(run: Run, event: Event) -> None:
    event_log.append(run.run_dir / event_log.LOG_FILE, event)


@pytest.mark.parametrize("error", [RecursionError("too deep"), MemoryError(), SystemExit(3), KeyboardInterrupt()])
def test_a_follower_that_breaks_ends_the_run_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def breaks(_: event_log.Tail) -> list[Event]:
        raise error

    run_dir = prepared(tmp_path, Phase(t_s=0.0, phase="build"))
    with monkeypatch.context() as patched:
        patched.setattr(event_log.Tail, "read", breaks)
        run, worker = live(run_dir)
        run.wait(120)
    assert worker.killed
    assert run.state == "failed"
    assert run.error is not None
    assert "could not be followed" in run.error
    assert type(error).__name__ in run.error


def test_a_temporary_lack_of_descriptors_does_not_end_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: Path) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    run_dir = prepared(tmp_path, Phase(t_s=0.0, phase="build"))
    run, worker = Run(run_dir), Acted()
    with monkeypatch.context() as patched:
        patched.setattr(event_log.untrusted_files, "open_regular", none_left)
        follow_run.follow_worker(run, worker)  # type: ignore[arg-type]
        until(lambda: run._unreadable != "")
    until(lambda: run.phase == "build")
    tell(run, Finished(t_s=1.0))
    worker.ended.set()
    assert run.wait(120).state == "done"
    assert not worker.killed


def test_a_log_that_is_a_folder_gives_one_clear_reason(tmp_path: Path) -> None:
    run_dir = prepared(tmp_path)
    run, worker = live(run_dir)
    (run_dir / event_log.LOG_FILE).mkdir()
    worker.ended.set()
    assert run.wait(120).error == "the event log cannot be read: it is a folder"
    assert run_store.open(run_dir).error == run.error


def test_damaged_lines_are_skipped_and_reported(tmp_path: Path) -> None:
    run_dir = prepared(tmp_path, Phase(t_s=0.0, phase="build"))
    run, worker = live(run_dir)
    with (run_dir / event_log.LOG_FILE).open("ab") as log:
        log.write(b"[" * 100_000 + b"\n\xff\n")
    tell(run, Finished(t_s=1.0))
    worker.ended.set()
    assert run.wait(120).state == "done"
    assert run.warnings == ("2 lines of the event log could not be read, and their content is missing",)
    assert run_store.open(run_dir).to_json()["warnings"] == list(run.warnings)


@pytest.mark.parametrize(
    ("status", "state"),
    [(0, "done"), (3, "failed"), (-11, "failed"), (None, "done")],
    ids=["0", "3", "SEGV", "unknown"],
)
def test_a_worker_that_reports_success_must_exit_with_success(tmp_path: Path, status: int | None, state: str) -> None:
    run_dir = prepared(tmp_path, Phase(t_s=0.0, phase="time"), Finished(t_s=1.0))
    run, worker = live(run_dir, status)
    worker.ended.set()
    assert run.wait(120).state == state
    assert (run_store.open(run_dir).state, run_store.open(run_dir).error) == (run.state, run.error)
    if status == 3:
        assert (
            run.error == "the worker reported that the run was done, but ended by itself with exit status 3 after that"
        )


def test_a_run_that_was_done_when_it_was_cancelled_stays_done(tmp_path: Path) -> None:
    run_dir = prepared(tmp_path, Phase(t_s=0.0, phase="time"), Finished(t_s=1.0))
    run, _ = live(run_dir)
    run.cancel()
    assert run.state == run_store.open(run_dir).state == "done"


@pytest.mark.parametrize("error", [ValueError("broken view"), SystemExit(3), KeyboardInterrupt()])
def test_an_observer_that_raises_does_not_affect_other_observers(
    tmp_path: Path, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(event: Event) -> None:
        raise error

    told: list[Event] = []
    run, worker = live(prepared(tmp_path, Phase(t_s=0.0, phase="build")))
    run.observe(broken)
    run.observe(told.append)
    tell(run, Finished(t_s=1.0))
    worker.ended.set()
    assert run.wait(120).state == "done"
    until(lambda: tuple(told) == run.events)
    assert "an observer of run run failed" in caplog.text


def test_an_observer_that_waits_for_the_run_does_not_block_the_run(tmp_path: Path) -> None:
    run, worker = live(prepared(tmp_path, Phase(t_s=0.0, phase="build")))
    waited: list[str] = []
    run.observe(lambda event: waited.append(run.wait(120).state))
    tell(run, Finished(t_s=1.0))
    worker.ended.set()
    until(lambda: waited[:1] == ["done"])


def test_observers_are_called_without_a_lock_of_the_run(tmp_path: Path) -> None:
    """An app holds its lock while it calls `observe`, and its callback takes the same lock. This must not deadlock."""
    run, worker = live(prepared(tmp_path, Phase(t_s=0.0, phase="build")))
    apps, called = threading.RLock(), threading.Event()

    def on_event(event: Event) -> None:
        called.set()
        with apps:
            pass

    def refresh() -> None:
        with apps:
            run.observe(on_event)
            # Meanwhile, another thread calls the callback, which waits for the app's lock.
            tell(run, Phase(t_s=0.5, phase="compile"))
            called.wait(120)
            run.observe(lambda event: None)

    refreshing = threading.Thread(target=refresh, daemon=True)
    refreshing.start()
    refreshing.join(120)
    assert not refreshing.is_alive()
    tell(run, Finished(t_s=1.0))
    worker.ended.set()
    run.wait(120)


def test_an_observer_that_has_ended_gets_no_more_events(tmp_path: Path) -> None:
    run, worker = live(prepared(tmp_path, Phase(t_s=0.0, phase="build")))
    told: list[Event] = []
    end = run.observe(told.append)
    until(lambda: len(told) == 1)
    end()
    tell(run, Finished(t_s=1.0))
    worker.ended.set()
    run.wait(120)
    last: list[Event] = []
    run.observe(last.append)
    until(lambda: len(last) == 2)
    assert len(told) == 1


def test_a_followed_run_knows_its_new_name(tmp_path: Path) -> None:
    run, worker = live(prepared(tmp_path))
    run_store.rename(run.run_dir, "better")
    assert run.name == "better"
    worker.ended.set()
    run.wait(120)
    run_store.rename(run.run_dir, "best")
    assert run.name == "best"


def test_a_passive_follower_gets_the_reason_written_by_the_starter(tmp_path: Path) -> None:
    """A kernel started the run. The runs panel, another process, may notice the worker's end before the kernel."""
    run_dir = prepared(tmp_path)
    run, worker = Run(run_dir), Acted(None)
    worker.is_child = False
    follow_run.follow_worker(run, worker)  # type: ignore[arg-type]
    worker.ended.set()
    time.sleep(10 * follow_run.FOLLOW_INTERVAL_S)
    tell(run, Failed(t_s=1.0, reason="the worker was killed by SIGKILL"))
    run.wait(120)
    assert run.error == "the worker was killed by SIGKILL"


# Processes.


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a sleeping process in a session and environment of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def sleeper(**environment: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(["sleep", "60"], env={**os.environ, **environment}, start_new_session=True)
        started.append(child)
        return child

    yield sleeper
    for child in started:
        child.kill()
        child.wait()


GREEDY = RunOptions(timeout_s=0.0, memory_limit_bytes=1)


def gone() -> int:
    """Return the id of a process that has ended."""
    child = subprocess.Popen(["true"])
    child.wait()
    return child.pid


def test_a_process_without_the_mark_of_the_run_is_not_ended(tmp_path: Path, start: Start) -> None:
    run_dir = prepared(tmp_path, Phase(t_s=0.0, phase="build"), options=GREEDY)
    unrelated = start(**{reaper.MARK: worker_process.new_mark(run_dir)})
    until(lambda: reaper.MARK.encode() in Path(f"/proc/{unrelated.pid}/environ").read_bytes())
    worker_process.Note.of(unrelated.pid, worker_process.new_mark(run_dir)).write(run_dir)
    assert [run.state for run in run_store.runs(tmp_path)] == ["failed"]
    time.sleep(0.2)
    assert unrelated.poll() is None


def test_only_the_starter_of_a_run_enforces_limits(tmp_path: Path, start: Start) -> None:
    run_dir = prepared(tmp_path, Phase(t_s=0.0, phase="build"), options=GREEDY)
    mark = worker_process.new_mark(run_dir)
    worker = start(**{reaper.MARK: mark})
    until(lambda: worker.pid in reaper.marked_processes(mark))
    worker_process.Note.of(worker.pid, mark).write(run_dir)
    (run,) = run_store.runs(tmp_path)
    time.sleep(0.2)
    assert run.state == "starting"
    assert worker.poll() is None
    run.cancel()
    assert worker.wait(120) == -9
    assert run.state == "cancelled"


def test_opening_the_run_of_a_killed_kernel_ends_processes_that_left_their_session(
    tmp_path: Path, start: Start
) -> None:
    run_dir = prepared(tmp_path, Phase(t_s=0.0, phase="build"))
    mark = worker_process.new_mark(run_dir)
    left = [start(**{reaper.MARK: mark}) for _ in range(2)]
    until(lambda: len(reaper.marked_processes(mark)) == 2)
    note = dataclasses.replace(worker_process.Note.of(os.getpid(), mark), pid=gone())
    note.write(run_dir)
    (run_dir / request.SCRATCH).mkdir()
    shutil.copytree(run_dir, tmp_path / "copy")
    assert run_store.open(tmp_path / "copy").state == "failed"
    assert [child.poll() for child in left] == [None, None]
    assert "it and the process that followed it were killed" in (run_store.open(run_dir).error or "")
    assert [child.wait(120) for child in left] == [-9, -9]
    assert not (run_dir / request.SCRATCH).exists()
    assert not (run_dir / worker_process.WORKER_FILE).exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "null",
        '{"pid": "1", "start_ticks": 0, "mark": "", "machine": ""}',
        '{"pid": -1, "start_ticks": 0, "mark": "", "machine": ""}',
        '{"pid": true, "start_ticks": 0, "mark": "", "machine": ""}',
    ],
)
def test_an_invalid_worker_note_ends_no_process(tmp_path: Path, text: str) -> None:
    run_dir = prepared(tmp_path, Phase(t_s=0.0, phase="build"))
    (run_dir / worker_process.WORKER_FILE).write_text(text)
    (run_dir / request.SCRATCH).mkdir()
    assert "cannot be found" in (run_store.open(run_dir).error or "")
    assert (run_dir / request.SCRATCH).exists()


def test_a_worker_of_another_machine_is_not_searched_for_on_this_machine(tmp_path: Path, start: Start) -> None:
    run_dir = prepared(tmp_path, Phase(t_s=0.0, phase="build"))
    mark = worker_process.new_mark(run_dir)
    worker = start(**{reaper.MARK: mark})
    until(lambda: worker.pid in reaper.marked_processes(mark))
    dataclasses.replace(worker_process.Note.of(worker.pid, mark), machine="another").write(run_dir)
    assert "on another machine" in (run_store.open(run_dir).error or "")
    assert worker.poll() is None


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_finished_run_holds_no_descriptor(tmp_path: Path) -> None:
    before = descriptors()
    held = []
    for index in range(3):
        (tmp_path / str(index)).mkdir()
        run_dir = prepared(tmp_path / str(index), Finished(t_s=1.0))
        pipe = subprocess.PIPE
        child = subprocess.Popen([sys.executable, "-c", ""], stdin=pipe, stdout=pipe, start_new_session=True)
        run = Run(run_dir)
        follow_run.follow_worker(
            run, worker_process.Worker(run_dir, child.pid, worker_process.new_mark(run_dir), child)
        )
        assert run.wait(120).state == "done"
        held.append(run)
    until(lambda: descriptors() == before)


def test_a_worker_that_cannot_be_followed_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(pid: int) -> int:
        started.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    started: list[int] = []
    before = descriptors()
    run_dir = prepared(tmp_path)
    monkeypatch.setattr(os, "pidfd_open", none_left)
    with pytest.raises(RunError, match=r"cannot be followed: .*Too many open files"):
        start_run.start(run_dir)
    assert not Path(f"/proc/{started[0]}").exists()
    assert descriptors() == before


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_at_the_end_loses_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, worker = live(prepared(tmp_path, Phase(t_s=0.0, phase="time")), status=event_log.EXIT_LOG_UNWRITABLE)
    monkeypatch.setattr(worker, "output", lambda: "the event log could not be written: No space left on device\n")
    monkeypatch.setattr(event_log, "append", full)
    monkeypatch.setattr(untrusted_files, "write", full)
    worker.ended.set()
    assert run.wait(120).error == "the event log could not be written: No space left on device"
    assert run.phase == "time"
    assert run_store.open(run.run_dir).phase == "time"


def test_a_full_disk_at_the_start_gives_one_clear_error_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = prepared(tmp_path)
    marks: list[str] = []
    monkeypatch.setattr(worker_process, "new_mark", lambda folder: marks.append(f"{'0' * 32}:{folder}") or marks[-1])
    monkeypatch.setattr(untrusted_files, "write", full)
    before = descriptors()
    with pytest.raises(RunError, match="cannot be written: No space left on device"):
        start_run.start(run_dir)
    assert reaper.marked_processes(marks[0]) == []
    assert not (run_dir / request.SCRATCH).exists()
    until(lambda: descriptors() == before)


def test_a_failure_reason_is_one_line_of_plain_text(tmp_path: Path) -> None:
    run_dir = prepared(tmp_path, Failed(t_s=1.0, reason="one\x1b[31m\ntwo\x00\x9b"))
    assert run_store.open(run_dir).error == "one [31m two"


def test_an_accuracy_check_without_its_tensors_is_reported(tmp_path: Path) -> None:
    run_dir = prepared(tmp_path, events.AccuracyChecked(t_s=1.0, ok=False, max_error=1.0, against="a", worst="w"))
    event_log.append(run_dir / event_log.LOG_FILE, Finished(t_s=2.0))
    run = run_store.open(run_dir)
    assert not run.ok
    assert "does not name the tensors" in (run.error or "")


def test_an_infinite_sum_is_not_reported_as_a_number(tmp_path: Path) -> None:
    parts = {"Dynamo": 1e308, "Inductor": 1e308}
    end = events.FusionEnd(t_s=1.5e308, name="F0", index=0, count=1, seconds=0.0, parts=parts)
    run_dir = prepared(tmp_path, end, Finished(t_s=2.0))
    told = json.dumps(run_store.open(run_dir).to_json(), allow_nan=False)
    assert json.loads(told)["stages"] == [{"name": "fusions: Dynamo", "seconds": None}]
