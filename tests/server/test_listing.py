"""The server lists unreadable folders and the runs of all kernels. A page gets the changes since its last request."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import RunError
from workbench.runs.log import event_log, events
from workbench.runs.process import reaper, request, run_store, worker_process
from workbench.server import listing as room
from workbench.server.listing import Listing
from workbench.server.run_folders import RunFolders
from workbench.server.run_status import log_text


class Nothing:
    """A program that has only a description, because these tests never build it."""

    def dump(self, folder: Path) -> dict[str, Any]:
        return {"kind": "builtin", "name": "mlp", "settings": {}, "device": "cpu", "seed": 0}


def make(place: Path, name: str, *log: events.Event, created_s: float = 1.0) -> Path:
    folder = request.prepare(run_store.new_folder(name, place), Nothing(), name=name)
    request.write_request(folder, dataclasses.replace(request.read_request(folder), created_s=created_s))
    (folder / event_log.LOG_FILE).write_bytes(b"".join(event_log.encode(event) for event in log))
    return folder


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Listing:
    monkeypatch.setattr(room, "SCAN_INTERVAL_S", 0.0)
    return Listing()


COMPILED = events.Compiled(t_s=3.0, compile_s=2.5, attributed=1.0, stages=[])
DONE = events.Finished(t_s=4.0)


def test_runs_are_listed_once_with_their_figures_the_latest_first(tmp_path: Path, listing: Listing) -> None:
    make(tmp_path / "a", "old", COMPILED, DONE, created_s=1.0)
    make(tmp_path / "b", "new", events.Failed(t_s=2.0, reason="out of\nmemory"), created_s=2.0)
    (tmp_path / "again").symlink_to(tmp_path / "a")
    places = [tmp_path / "a", tmp_path / "b", tmp_path / "again", tmp_path / "none"]
    listing.scan(places)
    answer = listing.since(0)
    assert answer is not None
    runs = {run["id"]: run for run in answer["runs"]}
    assert [runs[id]["name"] for id in answer["ids"]] == ["new", "old"]
    new, old = (runs[id] for id in answer["ids"])
    assert (new["state"], new["error"]) == ("failed", "out of memory")
    assert (old["state"], old["compile_s"], old["elapsed_s"], old["program"]) == ("done", 2.5, 4.0, "mlp")
    assert json.loads(json.dumps(answer)) == json.loads(json.dumps(answer, allow_nan=False))
    assert listing.since(answer["version"]) is None


def test_a_deleted_run_is_not_listed(tmp_path: Path, listing: Listing) -> None:
    folder = make(tmp_path, "gone", DONE)
    listing.scan([tmp_path])
    before = listing.since(0)
    assert before is not None
    run_store.delete(folder)
    listing.scan([tmp_path])
    after = listing.since(before["version"])
    assert after is not None
    assert (after["ids"], after["runs"]) == ([], [])
    with pytest.raises(RunError, match="is listed; it may have been deleted"):
        listing.run(before["ids"][0])


def test_an_unreadable_folder_hides_no_other_run(tmp_path: Path, listing: Listing) -> None:
    make(tmp_path, "good", DONE)
    torn = make(tmp_path, "torn", DONE)
    (torn / request.REQUEST_FILE).write_text("{")
    listing.scan([tmp_path])
    answer = listing.since(0)
    assert answer is not None
    assert [run["name"] for run in answer["runs"]] == ["good"]
    assert list(answer["unreadable"]) == [str(torn)]


def test_a_version_from_an_earlier_server_counts_as_outdated(tmp_path: Path) -> None:
    earlier = Listing()
    time.sleep(0.005)
    later = Listing()
    make(tmp_path, "a", DONE)
    later.scan([tmp_path])
    assert later.since(earlier._version) is not None


@pytest.mark.slow
def test_a_live_run_is_followed_and_cancelled_without_its_starter(tmp_path: Path, listing: Listing) -> None:
    folder = make(tmp_path, "live", events.Phase(t_s=0.1, phase="compile"))
    mark = worker_process.new_mark(folder)
    child = subprocess.Popen(["sleep", "60"], env={**os.environ, reaper.MARK: mark}, start_new_session=True)
    try:
        worker_process.Note.of(child.pid, mark).write(folder)
        listing.scan([tmp_path])
        first = listing.since(0)
        assert first is not None
        (id,) = first["ids"]
        sampled = [
            events.FusionBegin(t_s=0.4, name="fusion", index=1, count=3),
            *(events.MemorySample(t_s=0.5 + n / 20, rss_bytes=100 + n) for n in range(3)),
        ]
        with (folder / event_log.LOG_FILE).open("ab") as log:
            log.write(b"".join(event_log.encode(event) for event in sampled))
        run = until(listing, lambda run: run["memory_bytes"] == 102)
        assert (run["state"], run["doing"], run["fusion"]) == ("running", "Compiling", "fusion")
        assert (run["fusions_done"], run["fusions"], run["most_bytes"]) == (1, 3, 102)
        assert [size for _, size in run["samples"]] == [100, 101, 102]
        assert "phase=compile" in log_text(listing.run(id))

        listing.run(id).cancel()
        assert until(listing, lambda run: run["state"] == "cancelled")["fusion"] == ""
        assert child.wait(120) != 0
    finally:
        child.kill()
        child.wait()


@pytest.mark.slow
def test_samples_of_three_live_runs_are_listed_at_20_hz(tmp_path: Path, listing: Listing) -> None:
    count, seconds = 40, 2.0
    children, folders = [], []
    try:
        for name in ("one", "two", "three"):
            folder = make(tmp_path, name, events.Phase(t_s=0.1, phase="compile"))
            mark = worker_process.new_mark(folder)
            environment = {**os.environ, reaper.MARK: mark}
            children.append(subprocess.Popen(["sleep", "60"], env=environment, start_new_session=True))
            worker_process.Note.of(children[-1].pid, mark).write(folder)
            folders.append(folder)
        listing.scan([tmp_path])

        def write() -> None:
            for n in range(count):
                for folder in folders:
                    with (folder / event_log.LOG_FILE).open("ab") as log:
                        log.write(event_log.encode(events.MemorySample(t_s=1.0 + n / 20, rss_bytes=1000 + n)))
                time.sleep(seconds / count)

        writer = threading.Thread(target=write)
        writer.start()
        version, answers, came = 0, 0, dict.fromkeys(("one", "two", "three"), ())
        give_up = time.monotonic() + 30
        while any(len(samples) < count for samples in came.values()) and time.monotonic() < give_up:
            answer = listing.since(version)
            if answer is not None:
                version, answers = answer["version"], answers + 1
                for run in answer["runs"]:
                    came[run["name"]] += tuple(size for _, size in run["samples"])
            time.sleep(0.02)
        writer.join()
        # Each sample of each run was listed once and in order. The many answers show that samples were listed soon
        # after they were written, and not only at the end.
        assert set(came.values()) == {tuple(range(1000, 1000 + count))}
        assert answers >= 10
    finally:
        for child in children:
            child.kill()
            child.wait()


def until(listing: Listing, there: Any, timeout_s: float = 10) -> dict[str, Any]:
    """Wait until the condition `there` is true for the only listed run. Return the run."""
    give_up = time.monotonic() + timeout_s
    while True:
        answer = listing.since(0)
        assert answer is not None
        (run,) = answer["runs"]
        if there(run):
            return dict(run)
        assert time.monotonic() < give_up, run
        time.sleep(0.02)


def test_runs_are_searched_in_the_folders_of_notebooks_and_of_kernels(tmp_path: Path) -> None:
    places = RunFolders(tmp_path)
    found = places.update([{"path": "deep/er/a.ipynb"}], [os.getpid()])
    assert tmp_path / ".workbench" / "runs" in found
    assert tmp_path / "deep" / "er" / ".workbench" / "runs" in found
    assert Path.cwd() / ".workbench" / "runs" in found
    assert places.update([], []) == found, "the runs of a kernel must stay listed after its end"


@pytest.mark.slow
def test_following_runs_imports_no_pytorch() -> None:
    code = "import sys, workbench.server.listing; print('torch' in sys.modules, 'ipywidgets' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "False"]
