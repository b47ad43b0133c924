"""Read and write files of untrusted run folders safely: only regular files, of limited size, without blocking."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RECORD_BYTES = 1 << 26
"""Maximum size of a request or another small file of a run; larger files are refused."""


def open_regular(path: Path) -> int:
    """Open a regular file and return its descriptor.

    Other kinds of files are refused, because opening, for example, a named pipe may block forever.

    Raises
    ------
    OSError
        If `path` is not a regular file, or cannot be read; the message says which of the two.
    """
    try:
        # Check before opening, because opening a device may already have an effect.
        check_regular(os.stat(path).st_mode)
        # Open without blocking, because another kind of file may have taken the file's place after the check.
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    try:
        check_regular(os.fstat(file).st_mode)
    except BaseException:
        os.close(file)
        raise
    return file


def check_regular(mode: int) -> None:
    """Check that the mode of a file (``st_mode``) is the mode of a regular file.

    Raises
    ------
    OSError
        If the file is not a regular file; the message says whether it is a folder.
    """
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def read(path: Path, most_bytes: int = RECORD_BYTES) -> bytes:
    """Return the bytes of a file.

    Raises
    ------
    OSError
        If the file cannot be read, is not a regular file, or is larger than `most_bytes`.
    """
    file = open_regular(path)
    with open(file, "rb", buffering=0) as opened:
        if os.fstat(file).st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes")
        return opened.readall()


def read_end(path: Path, most_bytes: int) -> str:
    """Return the last `most_bytes` bytes of a text file, decoded; an empty text if the file cannot be read."""
    try:
        with open(open_regular(path), "rb", buffering=0) as opened:
            opened.seek(max(0, os.fstat(opened.fileno()).st_size - most_bytes))
            return opened.read(most_bytes).decode(errors="replace")
    except OSError:
        return ""


def write(path: Path, text: str) -> None:
    """Write a text file completely or not at all. If `path` is a link, replace the link and not its target.

    Raises
    ------
    OSError
        If the file cannot be written; the old content stays.
    """
    file, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(file, "w", encoding="utf-8", errors="replace") as opened:
            os.fchmod(file, 0o644)
            opened.write(text)
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise


def exists(path: Path) -> bool:
    """Return whether a file, folder or link exists at `path`, even a link without a target."""
    try:
        os.lstat(path)
    except (OSError, ValueError):  # also for invalid names: too long, or with a NUL
        return False
    return True


def one_line(text: str, most: int = 2000) -> str:
    """Return untrusted text as one line without control characters, cut off after `most` characters."""
    kept = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split())
    return kept if len(kept) <= most else f"{kept[:most]}…"


def modified_times(folder: Path, names: Sequence[str]) -> tuple[int, ...]:
    """Return numbers that change when one of the files `names` in `folder` is written, replaced or deleted."""
    found: list[int] = []
    for name in names:
        try:
            file = (folder / name).stat()
        except OSError:
            found += (-1, -1, -1)
        else:
            found += (file.st_mtime_ns, file.st_ino, file.st_size)
    return tuple(found)


def finite(value: Any) -> Any:
    """Return plain data with None in place of infinities and NaN, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, list | tuple) else value
