"""Places of runs: next to the files that the server shows, and in the working folders of its kernels."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.runs.process import run_store

_RUNS = Path(".workbench") / "runs"


class RunFolders:
    """The folders that contain run folders.

    Once found, a folder stays in the list, because its runs outlive the kernel that started them.

    Parameters
    ----------
    root : Path
        Folder whose files the server shows.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen = dict.fromkeys([root / _RUNS, run_store.root()])

    def update(self, sessions: Iterable[dict[str, Any]], pids: Iterable[int]) -> list[Path]:
        """Return all folders found so far, including those of the notebooks that are open now.

        Parameters
        ----------
        sessions : iterable of dict
            Jupyter's sessions. Of each session, the ``path`` of its notebook from the root is used.
        pids : iterable of int
            Process ids of kernels on this machine, whose working folders are searched.
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
