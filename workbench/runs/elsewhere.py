"""A run's folder on its way back from another machine, as bytes."""

from __future__ import annotations

import contextlib
import io
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="workbench-point-") as made:
        yield Path(made)


def pack(runs: Path) -> bytes:
    """The folders of runs, compressed; nothing where there are none."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w:gz") as archive:
        for run in sorted(runs.iterdir()) if runs.is_dir() else ():
            archive.add(run, run.name, filter=lambda entry: entry if entry.isfile() or entry.isdir() else None)
    return text.getvalue()


def unpack(packed: bytes, runs: Path, run_dir: str) -> str:
    """Put what was packed into a folder of its own in `runs`.

    Parameters
    ----------
    packed : bytes
    runs : Path
        Made where it is missing.
    run_dir : str
        The run's folder, as it was where it ran; empty where there is none.

    Returns
    -------
    str
        The run's folder here.
    """
    if not run_dir:
        return ""
    runs.mkdir(parents=True, exist_ok=True)
    # Two workers may give their runs one name.
    here = Path(tempfile.mkdtemp(prefix="point-", dir=runs))
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        archive.extractall(here, filter="data")
    return str(here / Path(run_dir).name)
