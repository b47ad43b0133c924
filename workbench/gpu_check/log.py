"""Files of a check: for each part, a line for each finished step; and one file that describes the check."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.errors import RunError
from workbench.gpu_check.parts.check_part import WRONG, Figures
from workbench.gpu_check.parts.time_spent import OTHER
from workbench.runs.log import event_log, untrusted_files

NOTE_FILE = "check.json"
LOCK_FILE = "lock"


def record_of(
    step: str,
    *,
    seconds: float,
    timestamp: str,
    figures: Figures | None = None,
    error: str = "",
    spent: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return the record of one step. If the step failed, `error` is the reason, and there are no figures.

    `spent` has the seconds of each kind, see `workbench.gpu_check.parts.time_spent`. By default all seconds are of the
    kind ``other``.
    """
    return {
        "step": step,
        "seconds": round(seconds, 3),
        "at": timestamp,
        "error": error,
        "figures": figures or {},
        "spent": dict(spent or {OTHER: round(seconds, 3)}),
    }


def is_right(line: dict[str, Any]) -> bool:
    """Return whether a step succeeded and its results are as required."""
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
        self._queue = folder / f"{part}.queue"
        self._answers = folder / f"{part}.answers"

    def lines(self) -> list[dict[str, Any]]:
        """Return the complete records, in order. An incomplete record is ignored, so that its step runs again."""
        if not untrusted_files.exists(self.path):
            return []
        found: dict[str, dict[str, Any]] = {}
        for text in untrusted_files.read(self.path).splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                line = json.loads(text)
                if isinstance(line["figures"], dict) and isinstance(line["error"], str) and line["seconds"] >= 0:
                    # Earlier versions did not record where the time went.
                    line.setdefault("spent", {OTHER: line["seconds"]})
                    found.setdefault(str(line["step"]), line)
        return list(found.values())

    def append(self, line: dict[str, Any]) -> None:
        """Store a record. The step is then done."""
        event_log.append_line(self.path, json.dumps(line, allow_nan=False).encode() + b"\n")
        self._begun.unlink(missing_ok=True)

    def forget_wrong(self) -> None:
        """Drop the records of steps that failed or are wrong, so that these steps run again."""
        self._first.unlink(missing_ok=True)
        if wrong := [line for line in self.lines() if not is_right(line)]:
            kept = [line for line in self.lines() if line not in wrong]
            untrusted_files.write(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def is_first_done(self) -> bool:
        """Return whether the note of `note_first_done` exists.

        Without this note, a new process would need seconds to find out that all first steps are done.
        """
        return untrusted_files.exists(self._first)

    def note_first_done(self) -> None:
        """Note in the check's folder that all steps with `CheckStep.first` are done."""
        untrusted_files.write(self._first, "")

    def begin(self, step: str, limit_s: float) -> None:
        """Record that a step has begun, and its time limit, so that both are known if the step ends its process."""
        untrusted_files.write(self._begun, json.dumps([step, limit_s]))

    def step_in_progress(self) -> tuple[str, float]:
        """Return the step in progress and its limit in seconds; an empty text if no step is in progress.

        If the process has ended during a step, this step counts as being in progress.
        """
        try:
            step, limit_s = json.loads(untrusted_files.read(self._begun))
        except (FileNotFoundError, ValueError, TypeError):
            # No step is in progress, or the step has just ended, and its process has removed the record.
            return "", float("inf")
        return str(step), float(limit_s)

    def note_queue(self, steps: Sequence[str]) -> None:
        """Store the ids of all steps of the part, so that the result can name the steps that are not done."""
        untrusted_files.write(self._queue, json.dumps(list(steps)))

    def queue(self) -> list[str]:
        """Return the ids of steps that `note_queue` stored."""
        return [str(step) for step in self._read_json(self._queue, [])]

    def note_answers(self, answers: Mapping[str, Figures]) -> None:
        """Store the figures of steps that earlier checks executed. These steps are not executed again."""
        untrusted_files.write(self._answers, json.dumps(dict(answers)))

    def answers(self) -> dict[str, Figures]:
        """Return the figures that `note_answers` stored, by the step's id."""
        return dict(self._read_json(self._answers, {}))

    @staticmethod
    def _read_json(path: Path, otherwise: Any) -> Any:
        return json.loads(untrusted_files.read(path)) if untrusted_files.exists(path) else otherwise

    def forget_begun(self) -> None:
        """Remove the record of a begun step, which an earlier, killed check may have left behind."""
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
