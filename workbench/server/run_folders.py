"""Find the folders of runs: the default folder, and folders of the server, of open notebooks and of kernels."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.runs.process import run_store

_RUNS = Path(".workbench") / "runs"


class RunFolders:
    """The folders that contain run folders.

    A folder stays in the list after it was found once, because its runs outlive the kernel that started them.

    Parameters
    ----------
    root : Path
        Folder whose files the server shows.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = dict.fromkeys([root / _RUNS, run_store.root()])

    def update(self, sessions: Iterable[dict[str, Any]], pids: Iterable[int]) -> list[Path]:
        """Add the folders of the notebooks and kernels that are open now, and return all folders found so far.

        Parameters
        ----------
        sessions : iterable of dict
            Jupyter's sessions. The ``path`` of each is the path of its notebook, relative to the root.
        pids : iterable of int
            Process ids of kernels on this machine. The working folders of these kernels are searched.
        """
        for session in sessions:
            folder = (self._root / str(session.get("path", "")).lstrip("/")).parent
            self._seen[folder / _RUNS] = None
        for pid in pids:
            try:
                self._seen[Path(os.readlink(f"/proc/{pid}/cwd")) / _RUNS] = None
            except OSError:  # the process is gone, or belongs to a different user
                continue
        return list(self._seen)
