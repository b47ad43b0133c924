"""A new process ends a run's processes and deletes its files. If it cannot start, or fails, the caller does both."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workbench.runs.process import reaper

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a sleeping process in a session and environment of its own."""
    started: list[subprocess.Popen[bytes]] = []

    def sleeper(**environment: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(["sleep", "60"], env={**os.environ, **environment}, start_new_session=True)
        started.append(child)
        while not Path(f"/proc/{child.pid}/environ").read_bytes():  # the new program has no environment yet
            time.sleep(0.01)
        return child

    yield sleeper
    for child in started:
        child.kill()
        child.wait()


@pytest.mark.parametrize("interpreter", [sys.executable, "/bin/false", "/no/such/program", ""])
def test_reaping_ends_every_process_with_the_mark_and_no_other(
    interpreter: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", interpreter)
    mark, scratch = uuid.uuid4().hex, tmp_path / "scratch"
    (scratch / "inductor").mkdir(parents=True)
    (scratch / "inductor" / "kernel.so").write_bytes(b"x")
    first, second, other = (
        start(**{reaper.MARK: mark}),
        start(**{reaper.MARK: mark}),
        start(**{reaper.MARK: mark + "0"}),
    )
    assert sorted(reaper.marked_processes(mark)) == sorted([first.pid, second.pid])
    assert reaper.reap(None, mark, scratch, 10.0)
    assert (first.wait(120), second.wait(120)) == (-9, -9)
    assert other.poll() is None
    assert reaper.marked_processes(mark) == []
    assert not scratch.exists()


def test_reaping_ends_a_process_group_even_if_no_process_has_the_mark(start: Start, tmp_path: Path) -> None:
    alone = start()
    reaper.reap(alone.pid, uuid.uuid4().hex, tmp_path / "scratch", 10.0)
    assert alone.wait(120) == -9


def test_a_process_group_that_has_ended_is_not_an_error(start: Start, tmp_path: Path) -> None:
    gone = start()
    gone.kill()
    gone.wait()
    reaper.reap(gone.pid, uuid.uuid4().hex, tmp_path / "scratch", 10.0)


def test_cleanup_without_descriptors_reports_that_processes_may_be_left(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    mark = uuid.uuid4().hex
    left = start(**{reaper.MARK: mark})
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", none_left)
        patched.setattr(os, "listdir", none_left)
        assert not reaper.reap(None, mark, tmp_path / "scratch", 0.2)
    assert reaper.reap(None, mark, tmp_path / "scratch", 10.0)
    assert left.wait(120) == -9
