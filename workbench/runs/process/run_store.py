"""Runs on disk: list, open, rename, pin and delete them. A run is a folder; nothing is stored anywhere else."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from workbench.core.config import load
from workbench.errors import RunError, UnknownRunError, WorkbenchError
from workbench.runs.log import untrusted_files
from workbench.runs.process import follow_run, request
from workbench.runs.process.follow_run import Run
from workbench.runs.process.record import FINAL_STATES

ROOT_VARIABLE = "WORKBENCH_RUNS"
"""Environment variable that names the folder of runs, instead of ``.workbench/runs`` in the working folder."""

_PIN_FILE = "pinned"
_NOTE_FILE = "note.txt"
MOST_NOTE = 2000
"""Maximum number of characters of a note."""


def root() -> Path:
    """Return the folder of runs; it need not exist yet."""
    return Path(os.environ.get(ROOT_VARIABLE) or Path(".workbench") / "runs").absolute()


def new_folder(name: str, parent: Path | None = None) -> Path:
    """Make an empty folder for a run, named after the time and the user's name for the run.

    Parameters
    ----------
    name : str
        User's name for the run, such as the program's name.
    parent : Path, optional
        Folder in which the new folder is made; `root` by default.

    Raises
    ------
    RunError
        If the folder cannot be made.
    """
    parent = parent or root()
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('-.') or 'run'}"
    try:
        for attempt in range(1, 1000):
            folder = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise RunError(f"no folder for a run can be made in {parent}: {error.strerror}") from error
    raise RunError(f"{parent} has a thousand runs called {stem}")


def open(run: Path | str, parent: Path | None = None) -> Run:  # callers write `run_store.open`
    """Return the run of a folder, rebuilt from its log; if the run's process is alive, follow the process.

    Parameters
    ----------
    run : Path or str
        The folder, the folder's name in `parent`, or the name that the user gave to the run.
    parent : Path, optional
        By default `root`.

    Raises
    ------
    RunError
        If the run does not exist or cannot be read.
    """
    return follow_run.follow(_find(run, parent))


def runs(parent: Path | None = None) -> list[Run]:
    """Return all readable runs in a folder: pinned runs first, then unpinned runs; in both groups, the latest first.

    `listing` also names the runs that cannot be read.

    Parameters
    ----------
    parent : Path, optional
        By default `root`.
    """
    return listing(parent)[0]


def listing(parent: Path | None = None) -> tuple[list[Run], dict[Path, str]]:
    """Return the readable runs in a folder, and the reason for each run that cannot be read.

    Parameters
    ----------
    parent : Path, optional
        By default `root`.

    Returns
    -------
    runs : list of Run
        The readable runs: pinned runs first, then unpinned runs; in both groups, the latest first.
    unreadable : dict of Path to str
        Maps the folder of each unreadable run to the reason, in one line. For example, the request is damaged, or it
        was written by a later version, or it belongs to another user.
    """
    found: list[Run] = []
    unreadable: dict[Path, str] = {}
    for folder in folders(parent):
        try:
            found.append(follow_run.follow(folder))
        except RunError as error:
            unreadable[folder] = untrusted_files.one_line(str(error))
    return sorted(found, key=lambda run: (not is_pinned(run.run_dir), -run.request.created_s)), unreadable


def rename(run: Path | str, name: str) -> None:
    """Rename a run. The folder's name does not change.

    Raises
    ------
    RunError
        If the name is invalid, or the run cannot be written.
    """
    if not name.strip():
        raise RunError("a run's name must not be empty")
    if not name.isprintable():
        raise RunError(f"a run's name must be plain text on one line, given {name!r}")
    folder = _find(run)
    with _writing(folder):
        request.write_request(folder, dataclasses.replace(request.read_request(folder), name=name))
    follow_run.reload_names(folder)


def annotate(run: Path | str, note: str) -> None:
    """Store a note on a run in the run's folder; an empty note removes the stored note.

    Raises
    ------
    RunError
        If the note is too long, or the run's folder cannot be written.
    """
    if len(note) > MOST_NOTE:
        raise RunError(f"a note has {MOST_NOTE} characters at most, given {len(note)}")
    folder = _find(run)
    with _writing(folder):
        if note.strip():
            untrusted_files.write(folder / _NOTE_FILE, note.strip())
        else:
            (folder / _NOTE_FILE).unlink(missing_ok=True)


def note_of(run_dir: Path) -> str:
    """Return the note on a run as one line; an empty text if the run has no note, or the note cannot be read."""
    return untrusted_files.one_line(untrusted_files.read_end(run_dir / _NOTE_FILE, 4 * MOST_NOTE))


def pin(run: Path | str, pinned: bool = True) -> None:
    """Pin a run or unpin it. `delete` refuses a pinned run.

    Raises
    ------
    RunError
        If the run's folder cannot be written.
    """
    folder = _find(run)
    with _writing(folder):
        if not pinned:
            (folder / _PIN_FILE).unlink(missing_ok=True)
        elif not is_pinned(folder):
            untrusted_files.write(folder / _PIN_FILE, "")


def is_pinned(run_dir: Path) -> bool:
    """Return whether the run of a folder is pinned."""
    return untrusted_files.exists(run_dir / _PIN_FILE)


def delete(run: Path | str) -> None:
    """Remove a run and its folder.

    Raises
    ------
    RunError
        If the run is pinned, has not ended, or cannot be removed.
    """
    folder = _find(run)
    if is_pinned(folder):
        raise RunError(f"{folder.name} is pinned; unpin it to delete it")
    state = follow_run.follow(folder).state
    if state not in FINAL_STATES:
        raise RunError(f"{folder.name} is {state}; cancel it to delete it")
    with _writing(folder):
        shutil.rmtree(folder)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunError(f"{folder} cannot be changed: {(error.strerror or str(error)).lower()}") from error


def folders(parent: Path | None = None) -> list[Path]:
    """Return the folders of runs, readable or not, sorted by name.

    Parameters
    ----------
    parent : Path, optional
        By default `root`.
    """
    parent = parent or root()
    try:
        with os.scandir(parent) as found:
            names = sorted(entry.name for entry in found)
    except OSError:  # the folder of runs is not created yet
        return []
    return [parent / name for name in names if _is_run(parent / name)]


def _is_run(folder: Path) -> bool:
    try:
        os.lstat(folder / request.REQUEST_FILE)
    except PermissionError:  # a run of another user: `listing` reports it as unreadable
        return True
    except (OSError, ValueError):
        return False
    return True


def _find(run: Path | str, parent: Path | None = None) -> Path:
    for folder in (Path(run), (parent or root()) / run):
        if untrusted_files.exists(folder / request.REQUEST_FILE):
            return folder.absolute()
    named = [folder for folder in folders(parent) if _name(folder) == str(run)]
    if len(named) == 1:
        return named[0]
    if named:
        names = ", ".join(folder.name for folder in named)
        raise UnknownRunError(f"{len(named)} runs are called {str(run)!r}; give a folder: {names}")
    known = ", ".join(folder.name for folder in folders(parent)) or "none"
    raise UnknownRunError(f"there is no run {str(run)!r} in {parent or root()}; existing runs: {known}")


def _name(folder: Path) -> str | None:
    try:
        return request.read_request(folder).name
    except RunError:
        return None


def choices_of(run: Run) -> dict[str, str] | None:
    """Return the choices in a run's config.

    Return an empty dict for unmodified Thunder. Return None if the config is unreadable, and for a run of plain
    `torch.compile`, which has no choices of sites.
    """
    if run.request.torch is not None:
        return None
    path = run.run_dir / request.CONFIG_FILE
    try:
        return dict(load(path).choices) if path.exists() else {}
    except WorkbenchError:
        return None
