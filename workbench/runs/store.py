"""Runs on disk: listed, opened, named, pinned and deleted. A run is a folder; nothing else is kept anywhere."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import time
from pathlib import Path

from workbench.errors import RunError, UnknownRunError
from workbench.runs import jobs, request
from workbench.runs.jobs import Run

ROOT_VARIABLE = "WORKBENCH_RUNS"
"""Environment variable that says where runs are kept, instead of ``.workbench/runs`` in the working folder."""

_PIN_FILE = "pinned"


def root() -> Path:
    """The folder in which runs are kept; it need not exist yet."""
    return Path(os.environ.get(ROOT_VARIABLE) or Path(".workbench") / "runs").absolute()


def new_folder(name: str, within: Path | None = None) -> Path:
    """Make an empty folder for a run, named by the time and by what a person calls the run.

    Parameters
    ----------
    name : str
        Such as the program's name.
    within : Path, optional
        By default `root`.

    Raises
    ------
    RunError
        If it cannot be made.
    """
    within = within or root()
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-.') or 'run'}"
    try:
        for attempt in range(1, 1000):
            folder = within / (stem if attempt == 1 else f"{stem}-{attempt}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise RunError(f"no folder for a run can be made in {within}: {error.strerror}") from error
    raise RunError(f"{within} has a thousand runs called {stem}")


def open(run: Path | str, within: Path | None = None) -> Run:  # read as store.open
    """The run of a folder, rebuilt from its log; one whose process is alive is followed.

    Parameters
    ----------
    run : Path or str
        The folder, or its name in `within`, or the name that a person gave.
    within : Path, optional
        By default `root`.

    Raises
    ------
    RunError
        If there is no such run.
    """
    return jobs.follow(_find(run, within))


def runs(within: Path | None = None) -> list[Run]:
    """All runs in a folder, by default `root`, pinned ones first, then the latest first."""
    found = [jobs.follow(folder) for folder in _folders(within)]
    return sorted(found, key=lambda run: (not is_pinned(run.run_dir), -run.request.created_s))


def rename(run: Path | str, name: str, within: Path | None = None) -> None:
    """Give a run another name. Its folder stays where it is."""
    if not name.strip():
        raise RunError("a run's name must not be empty")
    folder = _find(run, within)
    request.write(folder, dataclasses.replace(request.read(folder), name=name))


def pin(run: Path | str, pinned: bool = True, within: Path | None = None) -> None:
    """Mark a run as one to compare with and to keep, or take the mark off."""
    mark = _find(run, within) / _PIN_FILE
    if pinned:
        mark.touch()
    else:
        mark.unlink(missing_ok=True)


def is_pinned(run_dir: Path) -> bool:
    """Whether the run of a folder is pinned."""
    return (run_dir / _PIN_FILE).exists()


def delete(run: Path | str, within: Path | None = None) -> None:
    """Remove a run and its folder.

    Raises
    ------
    RunError
        If it is pinned, or runs.
    """
    folder = _find(run, within)
    if is_pinned(folder):
        raise RunError(f"{folder.name} is pinned; take the pin off to delete it")
    state = jobs.follow(folder).state
    if state not in jobs.FINAL_STATES:
        raise RunError(f"{folder.name} is {state}; cancel it to delete it")
    shutil.rmtree(folder)


def _folders(within: Path | None) -> list[Path]:
    within = within or root()
    return sorted(path.parent for path in within.glob(f"*/{request.REQUEST_FILE}"))


def _find(run: Path | str, within: Path | None) -> Path:
    for folder in (Path(run), (within or root()) / run):
        if (folder / request.REQUEST_FILE).exists():
            return folder.absolute()
    named = [folder for folder in _folders(within) if request.read(folder).name == str(run)]
    if len(named) == 1:
        return named[0]
    if named:
        folders = ", ".join(folder.name for folder in named)
        raise UnknownRunError(f"{len(named)} runs are called {str(run)!r}; give a folder: {folders}")
    known = ", ".join(folder.name for folder in _folders(within)) or "there is none"
    raise UnknownRunError(f"there is no run {str(run)!r} in {within or root()}; there: {known}")
