"""The event log of a run, with its writer and its reader. Each line of the log is the JSON record of one event."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from workbench.runs.log import untrusted_files
from workbench.runs.log.events import TYPES, Event
from workbench.util.gc_pause import paused_gc

LOG_FILE = "events.jsonl"
"""Name of the log in a run's folder."""

EXIT_LOG_UNWRITABLE = 74
"""Exit status of a worker that can no longer write its log (``EX_IOERR`` of sysexits.h)."""

LINE_BYTES = 1 << 27
"""Maximum length of a line; the reader skips longer lines. The line for 100,000 statements is a tenth as long."""

_CHUNK_BYTES = 1 << 22


def encode(event: Event) -> bytes:
    """Return an event as one line of JSON in UTF-8, with its newline.

    Characters that UTF-8 cannot encode, for example in a file name, are replaced.
    """
    return _ENCODER.encode({"type": event.type, **vars(event)}).encode(errors="replace") + b"\n"


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=dataclasses.asdict, ensure_ascii=False)


def decode(line: bytes) -> Event | None:
    """Return the event in a line of a log; None if this version does not know the event's type.

    Raises
    ------
    ValueError
        If the line is incomplete, or is not a record in the form of its type.
    """
    readers = _readers()
    if line.startswith(_BEGIN):
        # `encode` writes the type first, so it can be found without parsing the whole line.
        kind = line[len(_BEGIN) : line.find(b'"', len(_BEGIN))]
        if kind in readers:
            return readers[kind](line)
    try:
        record = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        raise ValueError("not a record of an event")
    reader = readers.get(record["type"].encode())
    return reader(line) if reader is not None else None


_BEGIN = b'{"type":"'


@functools.cache
def _readers() -> dict[bytes, Callable[[bytes], Event]]:
    """Return a reader for each event type. The readers are built on first use, because a worker never needs them."""
    from pydantic import TypeAdapter

    return {kind.encode(): TypeAdapter(cls).validator.validate_json for kind, cls in TYPES.items()}


class Tail:
    """Reads a log while the log grows.

    Parameters
    ----------
    path : Path
        The log, which need not exist yet.
    keep_open : bool
        Keep the file open, once it exists, until `close`. `read` then still returns all events if the log is deleted,
        or if this process has no free file descriptor. Leave this False on a file system that several machines share:
        such a system may show new data only to a reader that opens the file again.

    Attributes
    ----------
    skipped : int
        Number of lines, so far, that could not be read as records.
    """

    def __init__(self, path: Path, *, keep_open: bool = False) -> None:
        self.path = path
        self.skipped = 0
        self._keep_open = keep_open
        self._file: int | None = None
        self._offset = 0
        self._began = b""
        self._too_long = False

    def read(self) -> list[Event]:
        """Return the events whose lines were completed since the last call. An incomplete last line is kept for later.

        Raises
        ------
        OSError
            If the log cannot be read.
        """
        try:
            if self._file is None:
                self._file = untrusted_files.open_regular(self.path)
            found: list[Event] = []
            # The garbage collector would take seconds to search millions of records, which have no cycles.
            with paused_gc() if os.fstat(self._file).st_size - self._offset > _CHUNK_BYTES else _NO_CONTEXT:
                while data := os.pread(self._file, _CHUNK_BYTES, self._offset):
                    self._offset += len(data)
                    found.extend(self._events(data))
            return found
        except FileNotFoundError:
            return []
        finally:
            if not self._keep_open:
                self.close()

    def close(self) -> None:
        """Close the file; a later `read` opens the file again and continues where the last `read` ended."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _events(self, data: bytes) -> list[Event]:
        *lines, began = data.split(b"\n")
        if lines:
            lines[0] = self._began + lines[0]
            self._began = began
            if self._too_long:
                self._too_long = False
                self.skipped += 1
                del lines[0]
        elif not self._too_long:
            self._began += began
        if len(self._began) > LINE_BYTES:
            self._began, self._too_long = b"", True
        found = []
        for line in lines:
            try:
                event = decode(line)
            except ValueError:
                self.skipped += 1
            else:
                if event is not None:
                    found.append(event)
        return found


_NO_CONTEXT = contextlib.nullcontext()


def read_events(run_dir: Path) -> list[Event]:
    """Return all events of a run's log, oldest first. An incomplete last line is left out."""
    return Tail(run_dir / LOG_FILE).read()


def append(path: Path, event: Event) -> None:
    """Add an event to a run's log from outside the worker, for example after the worker was killed.

    If the last line is incomplete, end that line first.

    Raises
    ------
    OSError
        If the log cannot be written.
    """
    append_line(path, encode(event))


def append_line(path: Path, line: bytes) -> None:
    """Add `line`, which ends with a newline, to a text file. First end an incomplete last line of the file.

    Raises
    ------
    OSError
        If the file cannot be written or is not a regular file.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    with open(file, "rb+", buffering=0) as lines:
        untrusted_files.check_regular(os.fstat(file).st_mode)
        size = os.fstat(file).st_size
        torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        lines.write((b"\n" if torn else b"") + line)


class EventLog:
    """Writes a log, from any thread of the worker.

    If the worker can no longer write its log, it prints the reason on standard error and ends at once, with status
    `EXIT_LOG_UNWRITABLE`. A forked copy of the worker that calls `write` ends with the same status, without a message.

    Parameters
    ----------
    path : Path
        The log, which is created; it must not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._start = time.perf_counter()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._is = _identity(self._file)

    @property
    def start_s(self) -> float:
        """Time at which the log was opened, by `time.perf_counter`."""
        return self._start

    @property
    def descriptor(self) -> int:
        """File descriptor of the log; each write appends one whole line."""
        return self._file

    def now_s(self) -> float:
        """Seconds since the log was opened."""
        return time.perf_counter() - self._start

    def since_s(self, perf_counter_s: float) -> float:
        """Convert a reading of `time.perf_counter` to the clock of the log."""
        return perf_counter_s - self._start

    def write(self, event: Event) -> None:
        """Write one event; when this returns, the event is in the file."""
        if os.getpid() != self._pid:
            os._exit(EXIT_LOG_UNWRITABLE)
        line = encode(event)
        with self._lock:
            try:
                self._be_the_log()
                written = os.write(self._file, line)
                while written < len(line):
                    written += os.write(self._file, line[written:])
            except OSError as error:
                with contextlib.suppress(OSError):  # standard error may be closed, too
                    os.write(2, f"\nthe event log could not be written: {error.strerror}\n".encode())
                os._exit(EXIT_LOG_UNWRITABLE)

    def _be_the_log(self) -> None:
        """Reopen the log if the program has closed the log's descriptor.

        A program that becomes a daemon closes all descriptors. A file that it opens later may get the log's descriptor
        number. Without this function, events would then go into that file.
        """
        try:
            if _identity(self._file) == self._is:
                return
        except OSError:  # the descriptor is closed, and no other file has its number yet
            pass
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        if _identity(self._file) != self._is:
            raise OSError(errno.ESTALE, "the program closed it and opened another file in its place")


def _identity(file: int) -> tuple[int, int]:
    found = os.fstat(file)
    return found.st_dev, found.st_ino
