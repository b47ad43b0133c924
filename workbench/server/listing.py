"""`Listing`: the runs in several folders, kept up to date, and the changes since an earlier request."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from workbench.errors import RunError, UnknownRunError
from workbench.runs.log import event_log, untrusted_files
from workbench.runs.log.events import Event, MemorySample
from workbench.runs.process import follow_run, request, run_store
from workbench.runs.process.follow_run import Run
from workbench.server.run_status import RunStatus

MOST_LISTED = 60
"""Maximum number of listed runs. If there are more, the latest runs are listed."""
SCAN_INTERVAL_S = 1.0
"""Interval between searches for new folders."""
_SAMPLES_KEPT = 2400
"""Number of memory samples that are kept for each run, for pages that request the run later: about two minutes."""


class _ListedRun:
    """A run in the list, with its status, its latest memory samples, and the version of its latest change."""

    def __init__(self, readout: RunStatus, modified_times: tuple[int, ...]) -> None:
        self.readout = readout
        self.written = modified_times
        self.version = 0
        self.samples: deque[tuple[int, float, int]] = deque(maxlen=_SAMPLES_KEPT)
        self.end: Callable[[], None] | None = None


class Listing:
    """Runs with opaque ids. An id says nothing about a run's folder, so a client can name only listed runs."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._scanning = threading.Lock()
        self._scanned_s = -SCAN_INTERVAL_S
        self._entries: dict[str, _ListedRun] = {}
        self._unreadable: dict[str, str] = {}
        # The version increases with each change, and begins with the time. A version that a page got from an earlier
        # server is therefore less than all versions of this server.
        self._version = int(time.time() * 1000)
        self._listed = self._version

    def scan(self, parents: Iterable[Path]) -> None:
        """Search for runs in these folders. Do nothing if the last search was less than `SCAN_INTERVAL_S` ago."""
        with self._scanning:
            if time.monotonic() - self._scanned_s < SCAN_INTERVAL_S:
                return
            # Resolve the folders, because two paths may lead to the same folder.
            folders = {folder.resolve() for place in parents for folder in run_store.folders(place)}
            # A folder's name begins with the time of its creation.
            latest = sorted(folders, key=lambda folder: folder.name)[-MOST_LISTED:]
            for folder in latest:
                self._look(folder)
            self._drop({_id(folder) for folder in latest})
            self._scanned_s = time.monotonic()

    def _look(self, folder: Path) -> None:
        id, written = _id(folder), untrusted_files.modified_times(folder, (request.REQUEST_FILE, event_log.LOG_FILE))
        with self._lock:
            known = self._entries.get(id)
            if known is not None and (not known.readout.over or known.written == written):
                return
        try:
            run = follow_run.follow(folder)
            entry = _ListedRun(RunStatus.of(run), written)
            if run.state in follow_run.FINAL_STATES:
                for event in run.events:
                    entry.readout.take(event)
        except RunError as error:
            with self._lock:
                reason = untrusted_files.one_line(str(error))
                if self._unreadable.get(str(folder)) != reason:
                    self._unreadable[str(folder)] = reason
                    self._changed_list()
            return
        with self._lock:
            self._unreadable.pop(str(folder), None)
            self._entries[id] = entry
            self._changed_list()
            self._touch(entry)
        if not entry.readout.over:
            entry.end = run.observe(lambda event: self._take(entry, event))

    def _drop(self, present: set[str]) -> None:
        with self._lock:
            for id in set(self._entries) - present:
                entry = self._entries.pop(id)
                if entry.end is not None:
                    entry.end()
                self._changed_list()
            for folder in [folder for folder in self._unreadable if _id(Path(folder)) not in present]:
                del self._unreadable[folder]
                self._changed_list()

    def _take(self, entry: _ListedRun, event: Event) -> None:
        with self._lock:
            entry.readout.take(event)
            self._touch(entry)
            if isinstance(event, MemorySample):
                entry.samples.append((entry.version, event.t_s, entry.readout.memory_bytes))

    def _touch(self, entry: _ListedRun) -> None:
        self._version += 1
        entry.version = self._version

    def _changed_list(self) -> None:
        self._version += 1
        self._listed = self._version

    def since(self, version: int) -> dict[str, Any] | None:
        """Return the changes after a version; None if there are none.

        Parameters
        ----------
        version : int
            The version of an earlier answer, or 0.

        Returns
        -------
        dict
            ``version``, and ``runs`` with the changed runs. A run has the result of `RunStatus.to_json`, the ``id``,
            and ``samples``, which are pairs of seconds and bytes. If runs were added or removed, the answer also has
            ``ids``, the latest run first, and ``unreadable``, the reason for each folder that cannot be read.
        """
        with self._lock:
            if self._version <= version:
                return None
            runs = []
            for id, entry in self._entries.items():
                if entry.version > version:
                    samples = [(t_s, size) for at, t_s, size in entry.samples if at > version]
                    runs.append({**entry.readout.to_json(), "id": id, "samples": samples})
            answer: dict[str, Any] = {"version": self._version, "runs": runs}
            if self._listed > version:
                order = sorted(self._entries.items(), key=lambda item: -item[1].readout.created_s)
                answer |= {"ids": [id for id, _ in order], "unreadable": dict(self._unreadable)}
            return answer

    def run(self, id: str) -> Run:
        """Return the run with an id.

        Raises
        ------
        RunError
            If no listed run has this id, or the run can no longer be read.
        """
        with self._lock:
            entry = self._entries.get(id)
        if entry is None:
            raise UnknownRunError(f"no run {id!r} is listed; it may have been deleted")
        return follow_run.follow(entry.readout.run_dir)


def _id(folder: Path) -> str:
    return hashlib.sha256(str(folder).encode(errors="surrogateescape")).hexdigest()[:16]
