"""Results of a check so far: one line for each step, and a file in the folder that says what is checked."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.errors import RunError
from workbench.gpu_check.part import WRONG, Figures
from workbench.runs.log import event_log, untrusted_files

NOTE_FILE = "check.json"
LOCK_FILE = "lock"


def record_of(
    step: str, *, seconds: float, timestamp: str, figures: Figures | None = None, error: str = ""
) -> dict[str, Any]:
    """Return the record of one step; `error` is the reason if the step has no figures."""
    return {"step": step, "seconds": round(seconds, 3), "at": timestamp, "error": error, "figures": figures or {}}


def is_right(line: dict[str, Any]) -> bool:
    """Return whether a step was executed and its results are as required."""
    return not line["error"] and not line["figures"].get(WRONG)


class Log:
    """The records of one part.

    Parameters
    ----------
    folder : Path
        Folder of the check.
    part : str
    """

    def __init__(self, folder: Path, part: str) -> None:
        self.path = folder / f"{part}.jsonl"
        self._begun = folder / f"{part}.begun"
        self._first = folder / f"{part}.first"

    def lines(self) -> list[dict[str, Any]]:
        """Return the complete records, in order. An incomplete record is ignored, so that its step runs again."""
        if not untrusted_files.exists(self.path):
            return []
        found: dict[str, dict[str, Any]] = {}
        for text in untrusted_files.read(self.path).splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                line = json.loads(text)
                if isinstance(line["figures"], dict) and isinstance(line["error"], str) and line["seconds"] >= 0:
                    found.setdefault(str(line["step"]), line)
        return list(found.values())

    def append(self, line: dict[str, Any]) -> None:
        """Store a record; its step then counts as done."""
        event_log.append_line(self.path, json.dumps(line, allow_nan=False).encode() + b"\n")
        self._begun.unlink(missing_ok=True)

    def forget_wrong(self) -> None:
        """Drop the records of steps that failed or are wrong, so that they run again."""
        self._first.unlink(missing_ok=True)
        if wrong := [line for line in self.lines() if not is_right(line)]:
            kept = [line for line in self.lines() if line not in wrong]
            untrusted_files.write(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def is_first_done(self) -> bool:
        """Return whether the log says that all first steps are done.

        Without this note, a new process would need seconds to find that out.
        """
        return untrusted_files.exists(self._first)

    def note_first_done(self) -> None:
        """Note in the log that all first steps are done."""
        untrusted_files.write(self._first, "")

    def begin(self, step: str) -> None:
        """Record that a step has begun, so that the step is known if it ends its process."""
        untrusted_files.write(self._begun, step)

    def step_in_progress(self) -> str:
        """Return the step that is in progress, or that was in progress when the process ended; empty if none was."""
        try:
            return untrusted_files.read(self._begun).decode(errors="replace")
        except FileNotFoundError:
            # No step is in progress, or the step has just ended: the process that executes a step removes the record.
            return ""

    def forget_begun(self) -> None:
        """Remove the record of a begun step, so that the step of a killed check begins again."""
        self._begun.unlink(missing_ok=True)


@contextlib.contextmanager
def claim_folder(folder: Path, note: dict[str, Any]) -> Iterator[None]:
    """Lock a folder for the check that `note` describes.

    Raises
    ------
    RunError
        If the folder cannot be written, is in use, or contains a different check.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise RunError(f"the check's folder {folder} cannot be written: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"another check is running in {folder}: wait, or give another folder") from None
        _check_note(folder, note)
        yield
    finally:
        os.close(lock)


def _check_note(folder: Path, note: dict[str, Any]) -> None:
    path = folder / NOTE_FILE
    if not untrusted_files.exists(path):
        if any(each.suffix == ".jsonl" for each in folder.iterdir()):
            raise RunError(f"{folder} has results, but does not say of which check: give another folder")
        untrusted_files.write(path, json.dumps(note, indent=1) + "\n")
        return
    try:
        other = json.loads(untrusted_files.read(path))
    except ValueError:
        raise RunError(f"{path} is damaged: give another folder") from None
    if not isinstance(other, dict):
        raise RunError(f"{path} is damaged: give another folder")
    differ = [f"{name} {other.get(name)!r}, now {value!r}" for name, value in note.items() if other.get(name) != value]
    if differ:
        raise RunError(f"{folder} has results of another check ({'; '.join(differ)}): give another folder")
