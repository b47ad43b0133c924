"""Run points of a sweep on Dask's workers, and transfer the runs' folders from the workers as archives."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

from workbench.errors import RunError, one_line

CONNECT_S = 10
"""Time limit for an answer of the scheduler."""

_PREFIX, _HELD = "workbench-point-", ".held"


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Provide a temporary folder, and delete it afterwards.

    If this process is killed, the folder stays. The next call of this function on the same machine removes it.
    """
    _remove_orphans(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as made, (Path(made) / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Lock the file before renaming it. An unlocked file with the new name then proves that its process was killed.
        os.rename(lock.name, Path(made) / _HELD)
        yield Path(made)


def _remove_orphans(temporary: Path) -> None:
    for left in temporary.glob(f"{_PREFIX}*/{_HELD}"):
        # Another process may remove the folder meanwhile.
        with contextlib.suppress(OSError):
            if left.stat().st_uid != os.getuid():
                continue
            with left.open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left.parent, ignore_errors=True)


def pack(runs: Path) -> bytes:
    """Return the run folders in the folder `runs` as one compressed tar archive; other kinds of files are left out."""
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w:gz") as archive:
        for run in sorted(runs.iterdir()) if runs.is_dir() else ():
            archive.add(run, run.name, filter=lambda entry: entry if entry.isfile() or entry.isdir() else None)
    return text.getvalue()


def unpack(packed: bytes, runs: Path, run_dir: str) -> str:
    """Unpack an archive of `pack` into a new folder in `runs`.

    Parameters
    ----------
    packed : bytes
    runs : Path
        The folder is created if it is missing.
    run_dir : str
        The run's folder on the machine that executed the run; empty if the point failed before it had a run.

    Returns
    -------
    str
        The run's folder on this machine; empty if `run_dir` is empty.
    """
    if not run_dir:
        return ""
    runs.mkdir(parents=True, exist_ok=True)
    # Unpack into a folder of its own, because two workers may give their runs the same name.
    here = Path(tempfile.mkdtemp(prefix="point-", dir=runs))
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        archive.extractall(here, filter="data")
    return str(here / Path(run_dir).name)


@contextlib.contextmanager
def dask(address: str) -> Iterator[Executor]:
    """Provide the workers of a Dask cluster as an executor; afterwards, cancel pending work on the cluster.

    Dask itself repeats the work of a worker that has died.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as ``tcp://127.0.0.1:8786``.

    Raises
    ------
    RunError
        If Dask is not installed, if no scheduler answers at the address, or if the scheduler has no workers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise RunError("Dask is not installed: pip install 'thunder-workbench[dask]'") from error
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        given, reason = one_line(address), one_line(str(error))
        raise RunError(
            f"no Dask scheduler answers at {given} ({reason}): give the address that `dask scheduler` prints"
        ) from error
    with client:
        if not client.scheduler_info()["workers"]:
            raise RunError(f"the Dask scheduler at {address} has no workers: start some with `dask worker {address}`")
        with client.get_executor(pure=False) as executor:
            yield executor
