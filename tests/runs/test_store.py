"""Runs in the folder of runs can be listed, found, named, pinned and deleted, even if one of them is broken."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runs.test_events import NO_FILES
from workbench.errors import RunError
from workbench.runs.log import event_log, events
from workbench.runs.process import follow_run, request, run_store, worker_process


class Nothing:
    """A program that has only a description, because these tests never build it."""

    def dump(self, folder: Path) -> dict[str, Any]:
        return {"kind": "builtin", "name": "mlp", "settings": {}, "device": "cpu", "seed": 0}


@pytest.fixture(autouse=True)
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_store.ROOT_VARIABLE, str(tmp_path / "runs"))


def make(name: str, *log: events.Event, created_s: float = 0.0) -> Path:
    folder = request.prepare(run_store.new_folder(name), Nothing(), name=name)
    request.write_request(folder, dataclasses.replace(request.read_request(folder), created_s=created_s))
    (folder / event_log.LOG_FILE).write_bytes(b"".join(event_log.encode(event) for event in log))
    return folder


DONE = events.Finished(t_s=1.0)


def test_a_new_store_has_no_runs() -> None:
    assert run_store.runs() == []


def test_runs_are_stored_in_the_working_folder_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(run_store.ROOT_VARIABLE)
    monkeypatch.chdir(tmp_path)
    assert run_store.root() == tmp_path / ".workbench" / "runs"


def test_runs_are_listed_pinned_first_then_latest_first() -> None:
    for name, created_s in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        make(name, DONE, created_s=created_s)
    run_store.pin("a")
    assert [run.name for run in run_store.runs()] == ["a", "c", "b"]
    run_store.pin("a", False)
    assert [run.name for run in run_store.runs()] == ["c", "b", "a"]


def test_folders_for_the_same_name_in_the_same_second_differ() -> None:
    assert len({run_store.new_folder("a/b c") for _ in range(3)}) == 3


def test_a_run_is_found_by_its_name_and_its_folder() -> None:
    folder = make("a", DONE)
    assert (
        run_store.open("a").run_dir == run_store.open(folder).run_dir == run_store.open(folder.name).run_dir == folder
    )


def test_a_run_can_be_renamed() -> None:
    folder = make("a", DONE)
    run_store.rename("a", "better")
    assert run_store.open("better").run_dir == folder
    with pytest.raises(RunError, match="must not be empty"):
        run_store.rename("better", " ")


def test_a_note_is_stored_with_a_run() -> None:
    folder = make("a", DONE)
    assert run_store.note_of(folder) == ""
    run_store.annotate("a", "  the one with\nevery second layer ")
    assert run_store.note_of(folder) == "the one with every second layer"
    with pytest.raises(RunError, match="2000 characters at most, given 2001"):
        run_store.annotate("a", "x" * 2001)
    run_store.annotate("a", " ")
    assert run_store.note_of(folder) == ""
    assert not list(folder.glob("note*"))


def test_a_damaged_note_can_be_read_but_a_folder_in_its_place_is_not_replaced() -> None:
    folder = make("a", DONE)
    (folder / "note.txt").write_bytes(b"\xff one")
    assert run_store.note_of(folder).endswith(" one")
    (folder / "note.txt").unlink()
    (folder / "note.txt").mkdir()
    assert run_store.note_of(folder) == ""
    with pytest.raises(RunError, match="note"):
        run_store.annotate("a", "two")


def test_a_name_that_two_runs_have_is_refused() -> None:
    make("a", DONE)
    make("a", DONE)
    with pytest.raises(RunError, match="2 runs are called 'a'"):
        run_store.open("a")


def test_an_unknown_run_is_refused_and_known_runs_are_listed() -> None:
    folder = make("a", DONE)
    with pytest.raises(RunError, match=f"no run 'z'.*{folder.name}"):
        run_store.open("z")


def test_a_run_is_deleted_unless_it_is_pinned() -> None:
    folder = make("a", DONE)
    run_store.pin("a")
    with pytest.raises(RunError, match="is pinned"):
        run_store.delete("a")
    run_store.pin("a", False)
    run_store.delete("a")
    assert not folder.exists()
    assert run_store.runs() == []


def test_a_run_without_a_terminal_event_has_failed() -> None:
    folder = make("a", events.Phase(t_s=1.0, phase="compile"))
    assert run_store.open(folder).state == "failed"
    assert "without a terminal event" in (run_store.open(folder).error or "")


def test_a_run_that_never_began_has_failed() -> None:
    folder = make("a")
    assert "never started" in (run_store.open(folder).error or "")


def test_temporary_files_of_an_abandoned_run_are_removed() -> None:
    folder = make("a", events.Phase(t_s=1.0, phase="compile"))
    worker_process.Note.of(os.getpid(), worker_process.new_mark(folder)).write(folder)
    (folder / request.SCRATCH).mkdir()
    (folder / request.SCRATCH / "left").touch()
    run_store.open(folder)
    assert not (folder / request.SCRATCH).exists()


WHOLE = {
    "format_version": 1,
    "name": "n",
    "program": {"kind": "builtin", "name": "mlp", "settings": {}, "device": "cpu", "seed": 0},
    "created_s": 1.0,
    "options": {},
}

BROKEN_REQUESTS = {
    "empty": "",
    "torn": "{",
    "a list": "[]",
    "nested deeply": "[" * 100_000,
    "not UTF-8": b"\xff\xfe\x00",
    "of a later version": json.dumps({**WHOLE, "format_version": 99}),
    "without a version": json.dumps({"name": 3}),
    "with a number for a name": json.dumps({**WHOLE, "name": 3}),
    "with a text for a time": json.dumps({**WHOLE, "created_s": "now"}),
    "with NaN for a time": json.dumps({**WHOLE, "created_s": float("nan")}),
    "with a time beyond all calendars": json.dumps({**WHOLE, "created_s": 1e300}),
    "with a program that is a list": json.dumps({**WHOLE, "program": []}),
    "with a program without a name": json.dumps({**WHOLE, "program": {}}),
    "with a billion ranks": json.dumps({**WHOLE, "ranks": 10**9}),
    "with a text for a number of threads": json.dumps({**WHOLE, "options": {"threads": "2"}}),
    "with an option of a later version": json.dumps({**WHOLE, "options": {"later": 2}}),
}


@pytest.mark.parametrize("text", BROKEN_REQUESTS.values(), ids=BROKEN_REQUESTS)
def test_a_broken_request_gives_one_clear_error_and_hides_no_other_run(text: str | bytes) -> None:
    good, bad = make("a", DONE), make("b", DONE)
    (bad / request.REQUEST_FILE).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(RunError, match=request.REQUEST_FILE) as raised:
        run_store.open(bad)
    assert "\n" not in str(raised.value)
    assert [run.run_dir for run in run_store.runs()] == [good]
    assert run_store.listing()[1] == {bad: str(raised.value)}
    assert run_store.open("a").run_dir == good
    with pytest.raises(RunError, match="there is no run 'b'"):
        run_store.open("b")


@pytest.mark.parametrize("make_other", NO_FILES)
def test_a_request_that_is_not_a_file_gives_one_clear_error(make_other: Callable[[Path], None]) -> None:
    good, bad = make("a", DONE), make("b", DONE)
    (bad / request.REQUEST_FILE).unlink()
    make_other(bad / request.REQUEST_FILE)
    with pytest.raises(RunError, match=request.REQUEST_FILE):
        run_store.open(bad)
    runs, unreadable = run_store.listing()
    assert ([run.run_dir for run in runs], list(unreadable)) == ([good], [bad])


def test_a_run_of_another_user_is_listed_as_unreadable_and_hides_no_other_run() -> None:
    good, bad = make("a", DONE), make("b", DONE)
    child = os.fork()
    if child == 0:
        # Become a user without permission to read the folder.
        bad.chmod(0o700)
        for folder in (good, *good.parents):
            if folder.is_relative_to(Path("/tmp")) and folder != Path("/tmp"):
                folder.chmod(0o755)
        if os.geteuid() == 0:
            os.seteuid(65534)
        else:
            bad.chmod(0)
        runs, unreadable = run_store.listing()
        fine = [run.run_dir for run in runs] == [good] and "permission denied" in unreadable[bad]
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    bad.chmod(0o755)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "~nosuchuser", "\udcff", "", ".."])
def test_an_impossible_name_is_refused_like_an_unknown_name(name: str) -> None:
    with pytest.raises(RunError, match="there is no run"):
        run_store.open(name)


def test_a_folder_that_links_to_itself_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(RunError, match="there is no run"):
        run_store.open(tmp_path / "loop")
    with pytest.raises(RunError, match="is not a run"):
        follow_run.follow(tmp_path / "loop")


def test_the_target_of_a_link_is_not_written(tmp_path: Path) -> None:
    folder = make("a", DONE)
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("all of it")
    (folder / request.REQUEST_FILE).rename(tmp_path / "request")
    (folder / request.REQUEST_FILE).symlink_to(tmp_path / "request")
    before = (tmp_path / "request").read_text()
    for name in (".request.json.new", "output.log", "worker.json"):
        (folder / name).symlink_to(thesis)
    run_store.rename(folder, "better")
    run_store.pin(folder)
    run_store.pin(folder, False)
    assert run_store.open("better").name == "better"
    assert thesis.read_text() == "all of it"
    assert (tmp_path / "request").read_text() == before


def test_deleting_a_link_to_a_run_is_refused(tmp_path: Path) -> None:
    folder = make("a", DONE)
    link = folder.parent / "link"
    link.symlink_to(folder)
    with pytest.raises(RunError, match="cannot be changed"):
        run_store.delete(link)
    assert (folder / request.REQUEST_FILE).exists()


@pytest.mark.parametrize("name", ["one\ntwo", "\x1b[31m", "\udcff"])
def test_a_name_that_is_not_plain_text_is_refused(name: str) -> None:
    folder = make("a", DONE)
    with pytest.raises(RunError, match="plain text"):
        run_store.rename(folder, name)


def test_a_folder_with_other_files_is_refused_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(RunError, match="is not empty"):
        request.prepare(tmp_path / "mine", Nothing())
