"""The logs of ranks are merged into one run. It has the figures of all ranks, and names the rank that failed first."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from workbench.errors import RunError
from workbench.runs.log import event_log, events
from workbench.runs.log.events import Event
from workbench.runs.process import rank_launcher, request, run_store
from workbench.runs.worker.rank_worker import random_rows

LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:8447"


def tell(run_dir: Path, rank: int, *told: Event, begun_s: float = 100.0) -> None:
    """Write the log of a rank: a `Started` event at `begun_s`, then the given events."""
    folder = rank_launcher.folder_of(run_dir, rank)
    folder.mkdir()
    path = folder / event_log.LOG_FILE
    for event in (events.Started(t_s=0.0, pid=1, time_s=begun_s), *told):
        event_log.append(path, event)


def gathered(run_dir: Path, count: int, statuses: dict[int, int] | None = None) -> list[Event]:
    """Merge the logs of ranks into the log of a run that started at 90 s. Return its events."""
    found: list[Event] = []
    end = rank_launcher.RankLogMerger(run_dir, count, found.append, 90.0).finish(60.0, statuses)
    return [*found, end]


def peak(rank_bytes: int) -> events.PeakMeasured:
    return events.PeakMeasured(
        t_s=2.0, measured_peak_bytes=rank_bytes, baseline_bytes=1, timeline_s=[], live_bytes=[], method="m"
    )


def checked(ok: bool, error: float) -> events.AccuracyChecked:
    return events.AccuracyChecked(t_s=3.0, ok=ok, max_error=error, against="eager", worst="grad(w)")


def bits(bitwise: bool | None, changed: list[str] | None) -> events.AccuracyChecked:
    return dataclasses.replace(checked(True, 0.0), bitwise=bitwise, changed_kernels=changed)


@pytest.mark.parametrize(
    ("ranks_say", "told"),
    [
        ([(True, []), (True, [])], (True, [])),
        ([(True, ["a"]), (False, ["b", "a"])], (False, ["a", "b"])),
        ([(True, []), (None, None)], (None, None)),
    ],
)
def test_bits_are_combined_over_all_ranks(tmp_path: Path, ranks_say: list[Any], told: Any) -> None:
    for rank, said in enumerate(ranks_say):
        tell(tmp_path, rank, bits(*said), events.Finished(t_s=4.0))
    (accuracy,) = (event for event in gathered(tmp_path, 2) if isinstance(event, events.AccuracyChecked))
    assert (accuracy.bitwise, accuracy.changed_kernels) == told


def tensor(name: str) -> events.TensorChecked:
    return events.TensorChecked(
        t_s=2.5, name=name, against="eager", dtype="float32", max_abs_error=0, max_rel_error=0, tolerance=1, ok=True
    )


def test_the_peak_is_the_largest_of_all_ranks_and_accuracy_covers_all_ranks(tmp_path: Path) -> None:
    done = events.Finished(t_s=4.0)
    tell(tmp_path, 0, events.Phase(t_s=1.0, phase="build"), peak(5), checked(True, 0.5), done)
    tell(tmp_path, 1, events.Phase(t_s=1.0, phase="build"), peak(7), checked(False, 0.25), done, begun_s=110.0)
    phase, most, accuracy, *ended, last = gathered(tmp_path, 2)
    assert phase == events.Phase(t_s=11.0, phase="build")
    assert isinstance(most, events.PeakMeasured)
    assert (most.measured_peak_bytes, most.t_s) == (7, 22.0)
    assert isinstance(accuracy, events.AccuracyChecked)
    assert (accuracy.ok, accuracy.worst) == (False, "rank 1: grad(w)")
    assert [event.measured_peak_bytes for event in ended if isinstance(event, events.RankEnded)] == [5, 7]
    assert isinstance(last, events.Finished)


def test_tensors_are_in_the_order_of_ranks_and_not_of_reports(tmp_path: Path) -> None:
    found: list[Event] = []
    for rank in range(3):
        tell(tmp_path, rank)
    gathering = rank_launcher.RankLogMerger(tmp_path, 3, found.append, 90.0)
    first, second, third = (rank_launcher.folder_of(tmp_path, rank) / event_log.LOG_FILE for rank in range(3))
    for path, event in ((second, tensor("b")), (second, checked(True, 0.5)), (first, tensor("a"))):
        event_log.append(path, event)
        gathering.read()
    event_log.append(third, tensor("c"))
    for path in (third, first):
        event_log.append(path, checked(True, 0.25))
        gathering.read()
    *tensors, accuracy = found
    assert isinstance(accuracy, events.AccuracyChecked)
    told = [event.name for event in tensors if isinstance(event, events.TensorChecked)]
    assert told == ["rank 0: a", "rank 1: b", "rank 2: c"]


def test_tensors_of_a_rank_with_an_interrupted_check_are_kept(tmp_path: Path) -> None:
    tell(tmp_path, 0, tensor("w"), events.Failed(t_s=3.0, reason="ValueError: no"))
    kept, *_, last = gathered(tmp_path, 1)
    assert isinstance(kept, events.TensorChecked)
    assert kept.name == "rank 0: w"
    assert isinstance(last, events.Failed)


def test_a_rank_that_lost_its_connection_is_not_blamed_for_the_failure(tmp_path: Path) -> None:
    tell(tmp_path, 0, events.Failed(t_s=1.0, reason=LOST))
    tell(tmp_path, 1, events.Failed(t_s=2.0, reason="ValueError: no", detail="the traceback"))
    tell(tmp_path, 2)
    *_, last = gathered(tmp_path, 3, {2: -signal.SIGTERM})
    assert isinstance(last, events.Failed)
    assert (last.reason, last.detail) == ("rank 1: ValueError: no", "the traceback")


def test_a_killed_rank_is_blamed_and_not_a_rank_that_lost_its_connection(tmp_path: Path) -> None:
    tell(tmp_path, 0, events.Failed(t_s=1.0, reason=LOST))
    tell(tmp_path, 1)
    (rank_launcher.folder_of(tmp_path, 1) / "output.log").write_text("its last line\n")
    *_, first, second, last = gathered(tmp_path, 2, {0: 1, 1: -signal.SIGKILL})
    assert isinstance(first, events.RankEnded)
    assert isinstance(second, events.RankEnded)
    assert isinstance(last, events.Failed)
    assert first.reason == LOST
    assert second.detail == "its last line\n"
    assert last.reason == "rank 1: was killed by SIGKILL, by hand or by the system when memory ran out"
    assert last.detail == "its last line\n"


def test_if_external_ranks_are_cancelled_the_run_is_cancelled(tmp_path: Path) -> None:
    for rank in range(2):
        tell(tmp_path, rank, events.Cancelled(t_s=1.0))
    log = rank_launcher.ExternallyLaunched(tmp_path, 2)
    assert log.is_going_on
    assert isinstance(log.read()[-1], events.Cancelled)
    assert log.over
    assert not log.is_going_on
    assert log.read() == []


def test_a_run_whose_external_ranks_are_silent_for_an_hour_is_not_followed(tmp_path: Path) -> None:
    program = SimpleNamespace(dump=lambda folder: {"kind": "builtin", "name": "mlp", "device": "cpu", "seed": 0})
    run_dir = request.prepare(tmp_path / "run", program, ranks=2, parallel="ddp")
    for rank in range(2):
        tell(run_dir, rank, events.Phase(t_s=1.0, phase="build"))
        os.utime(rank_launcher.folder_of(run_dir, rank) / event_log.LOG_FILE, (0, 0))
    run = run_store.open(run_dir)
    assert run.error == "the ranks wrote nothing for an hour, and did not report how they ended"
    assert run.phase == "build"


def test_a_rank_whose_log_is_not_a_file_is_named(tmp_path: Path) -> None:
    tell(tmp_path, 0, events.Finished(t_s=1.0))
    (rank_launcher.folder_of(tmp_path, 1) / event_log.LOG_FILE).mkdir(parents=True)
    *_, last = gathered(tmp_path, 2)
    assert isinstance(last, events.Failed)
    assert last.reason == "rank 1: its log cannot be read: it is a folder"


def test_an_external_rank_that_falls_silent_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(rank_launcher, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    sample = events.MemorySample(t_s=2.0, rss_bytes=1)
    tell(tmp_path, 0, sample)
    tell(tmp_path, 1, sample)
    tell(tmp_path, 2, events.Phase(t_s=1.0, phase="build"))  # still importing or waiting, so without samples
    tell(tmp_path, 3, sample, events.Finished(t_s=3.0))
    log = rank_launcher.ExternallyLaunched(tmp_path, 4)
    assert not any(isinstance(event, events.Warned) for event in log.read())
    clock[0] += rank_launcher.SILENT_S - 1
    event_log.append(rank_launcher.folder_of(tmp_path, 0) / event_log.LOG_FILE, sample)
    assert not any(isinstance(event, events.Warned) for event in log.read())
    clock[0] += 2
    (warned,) = log.read()
    assert isinstance(warned, events.Warned)
    assert warned.message.startswith("rank 1 has reported nothing for 120 s (last report 2.0 s after the run began): ")
    assert log.read() == []
    event_log.append(rank_launcher.folder_of(tmp_path, 1) / event_log.LOG_FILE, sample)
    log.read()
    clock[0] += rank_launcher.SILENT_S + 1
    again = [event.message[:7] for event in log.read() if isinstance(event, events.Warned)]
    assert again == ["rank 0 ", "rank 1 "]
    assert not log.over


@pytest.mark.parametrize(
    ("limit", "does", "told"),
    [
        (
            "memory_limit_bytes=1 << 29",
            "held = b'x' * (1 << 29)",
            r"out of memory: \d+ bytes in use, over the limit of 536870912",
        ),
        ("timeout_s=0.5", "", "timeout: not done after 0.5 s"),
    ],
)
def test_an_external_rank_enforces_its_own_limits(limit: str, does: str, told: str, tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, threading, time\n"
        "from workbench.runs.worker.rank_worker import keep_limits\n"
        "from workbench.runs.process.request import RunOptions\n"
        f"watch = threading.Thread(target=keep_limits, args=(pathlib.Path(sys.argv[1]), RunOptions({limit})))\n"
        "watch.start(); time.sleep(0.2); assert watch.is_alive()\n"
        f"{does}\ntime.sleep(60)"
    )
    tell(tmp_path, 0)
    folder = rank_launcher.folder_of(tmp_path, 0)
    assert subprocess.run([sys.executable, "-c", script, str(folder)], timeout=100).returncode == 1
    (last,) = (event for event in event_log.read_events(folder) if isinstance(event, events.Failed))
    assert re.fullmatch(told, last.reason)


def test_other_ranks_get_rows_of_the_same_data() -> None:
    x, y = torch.arange(8.0).view(4, 2), torch.arange(4)
    (own_x, own_y), kwargs = random_rows(((x, y), {"scale": torch.ones(2), "flag": True}), seed=1)
    assert own_x.shape == x.shape
    assert not torch.equal(own_x, x)
    assert torch.equal(own_x, x[own_y])
    assert torch.equal(kwargs["scale"], torch.ones(2))
    assert kwargs["flag"] is True


def test_ranks_are_divided_equally_among_machines(tmp_path: Path) -> None:
    assert rank_launcher.torchrun_arguments(tmp_path, 8, machines=2, host="one")[:4] == [
        "--nnodes", "2", "--nproc-per-node", "4"
    ]  # fmt: skip
    with pytest.raises(RunError, match="8 ranks cannot be divided equally among 3 machines"):
        rank_launcher.torchrun_arguments(tmp_path, 8, machines=3, host="one")
