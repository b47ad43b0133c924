"""Runs on disk: listed, found, named, pinned and deleted."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import RunError
from workbench.runs import events, jobs, logs, request, store


class Nothing:
    """A program that is never built."""

    def dump(self, folder: Path) -> dict[str, Any]:
        return {"kind": "builtin", "name": "mlp", "settings": {}, "device": "cpu", "seed": 0}


@pytest.fixture(autouse=True)
def _root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store.ROOT_VARIABLE, str(tmp_path / "runs"))


def make(name: str, *log: events.Event, created_s: float = 0.0) -> Path:
    folder = request.prepare(store.new_folder(name), Nothing(), name=name)
    request.write(folder, dataclasses.replace(request.read(folder), created_s=created_s))
    (folder / logs.LOG_FILE).write_bytes(b"".join(logs.encode(event) for event in log))
    return folder


DONE = events.Finished(t_s=1.0)


def test_there_are_no_runs_at_first() -> None:
    assert store.runs() == []


def test_without_being_told_runs_are_kept_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(store.ROOT_VARIABLE)
    monkeypatch.chdir(tmp_path)
    assert store.root() == tmp_path / ".workbench" / "runs"


def test_runs_are_listed_pinned_first_then_latest_first() -> None:
    for name, created_s in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        make(name, DONE, created_s=created_s)
    store.pin("a")
    assert [run.name for run in store.runs()] == ["a", "c", "b"]
    store.pin("a", False)
    assert [run.name for run in store.runs()] == ["c", "b", "a"]


def test_folders_of_one_name_and_second_differ() -> None:
    assert len({store.new_folder("a/b c") for _ in range(3)}) == 3


def test_a_run_is_found_by_its_name_and_its_folder() -> None:
    folder = make("a", DONE)
    assert store.open("a").run_dir == store.open(folder).run_dir == store.open(folder.name).run_dir == folder


def test_a_run_can_be_named_anew() -> None:
    folder = make("a", DONE)
    store.rename("a", "better")
    assert store.open("better").run_dir == folder
    with pytest.raises(RunError, match="must not be empty"):
        store.rename("better", " ")


def test_a_name_of_two_runs_is_asked_back() -> None:
    make("a", DONE)
    make("a", DONE)
    with pytest.raises(RunError, match="2 runs are called 'a'"):
        store.open("a")


def test_an_unknown_run_is_answered_with_those_there_are() -> None:
    folder = make("a", DONE)
    with pytest.raises(RunError, match=f"no run 'z'.*{folder.name}"):
        store.open("z")


def test_a_deleted_run_is_gone_and_a_pinned_one_stays() -> None:
    folder = make("a", DONE)
    store.pin("a")
    with pytest.raises(RunError, match="is pinned"):
        store.delete("a")
    store.pin("a", False)
    store.delete("a")
    assert not folder.exists()
    assert store.runs() == []


def test_a_run_without_a_last_word_has_failed() -> None:
    folder = make("a", events.Phase(t_s=1.0, phase="compile"))
    assert store.open(folder).state == "failed"
    assert "without a last word" in (store.open(folder).error or "")


def test_a_run_that_never_began_has_failed() -> None:
    folder = make("a")
    assert "never started" in (store.open(folder).error or "")


def test_temporary_files_of_a_run_that_no_one_followed_to_its_end_are_removed() -> None:
    folder = make("a", events.Phase(t_s=1.0, phase="compile"))
    (folder / jobs.WORKER_FILE).write_text('{"pid": 1, "process_created_s": 0.0, "mark": "m"}')
    (folder / jobs.SCRATCH).mkdir()
    (folder / jobs.SCRATCH / "left").touch()
    store.open(folder)
    assert not (folder / jobs.SCRATCH).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format_version": 99}', '{"format_version": 1, "name": 3}'])
def test_a_broken_request_is_one_clear_error(text: str) -> None:
    folder = make("a", DONE)
    (folder / request.REQUEST_FILE).write_text(text)
    with pytest.raises(RunError, match=request.REQUEST_FILE):
        store.open(folder)


def test_a_folder_in_use_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(RunError, match="is not empty"):
        request.prepare(tmp_path / "mine", Nothing())
