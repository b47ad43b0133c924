"""`DiskCache`: a folder of files that processes store under keys for later processes. Its total size is limited."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from platformdirs import user_cache_dir

from workbench.util import paths


@dataclasses.dataclass(frozen=True)
class Contents:
    """Number and size of the files in a folder.

    Attributes
    ----------
    folder : Path or None
        The folder; None if the environment variable of the cache is ``off``.
    files : int
    total_bytes : int
    """

    folder: Path | None
    files: int
    total_bytes: int


@dataclasses.dataclass
class DiskCache:
    """A folder of files that are looked up by key.

    Attributes
    ----------
    variable : str
        Name of the environment variable that contains the folder, or ``off``.
    name : str
        Name of a folder inside the user's cache folder. This folder is used if the variable is not set.
    suffix : str
        Suffix of the files.
    most_bytes : int
        Largest total size of the files. If the total is larger, the least recently used files are removed.
    """

    variable: str
    name: str
    suffix: str
    most_bytes: int

    def folder(self) -> Path | None:
        """Return the folder of the files; None if the environment variable is ``off``."""
        given = os.environ.get(self.variable, "")
        if given.lower() == "off":
            return None
        return Path(given).expanduser() if given else Path(user_cache_dir("thunder-workbench"), self.name)

    def _own_folder(self) -> Path | None:
        """Return the folder if it exists, belongs to this user, and no other user can write to it; else None.

        The check is necessary because readers trust the content of the files.
        """
        place = self.folder()
        try:
            there = place.stat() if place is not None else None
        except OSError:
            return None
        if there is None or not stat.S_ISDIR(there.st_mode) or there.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return None
        return place if there.st_uid == os.getuid() else None

    def _files(self) -> list[tuple[float, int, Path]]:
        """Return the time of last use, the size and the path of each file, least recently used first."""
        found: list[tuple[float, int, Path]] = []
        for path in place.glob(f"*{self.suffix}") if (place := self._own_folder()) else ():
            try:
                there = path.lstat()
            except OSError:  # another process has removed it
                continue
            found.append((there.st_mtime, there.st_size, path))
        return sorted(found)

    def contents(self) -> Contents:
        """Return the folder, and the number and size of its files."""
        sizes = [size for _, size, _ in self._files()]
        return Contents(self.folder(), len(sizes), sum(sizes))

    def files_under(self, key: str) -> Iterator[Path]:
        """Return an iterator over the files with this key, most recently used first."""
        return (path for _, _, path in reversed(self._files()) if path.name.startswith(f"{key}-"))

    def read(self, path: Path) -> bytes:
        """Return the content of a file, and mark it as used.

        Raises
        ------
        OSError
            If the file cannot be read, if it is damaged, or if another user may have written it.
        """
        if not _is_own(path):
            raise PermissionError(errno.EACCES, "it belongs to another user, or other users may write into it")
        written = paths.read(path, self.most_bytes + _CHECK_BYTES)
        content = written[_CHECK_BYTES:]
        if written[:_CHECK_BYTES] != _checksum(content):
            raise OSError(errno.EIO, "its content has changed since it was written")
        with contextlib.suppress(OSError):  # on a read-only disk
            os.utime(path)
        return content

    def forget(self, path: Path) -> None:
        """Remove a file; do nothing if this is not possible."""
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)

    def store(self, key: str, part: str, content: bytes) -> None:
        """Write a file for `key` and `part`. Then remove the least recently used files if the total size is too large.

        Nothing is written if the cache is off, or if `content` is larger than `most_bytes`.

        Raises
        ------
        OSError
            If the file cannot be written, or if the folder belongs to another user or other users can write to it.
        """
        place = self.folder()
        if place is None or len(content) > self.most_bytes:
            return
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._own_folder() is None:
            raise PermissionError(f"{place} belongs to another user, or other users may write into it")
        target = place / f"{key}-{part}{self.suffix}"
        if os.path.lexists(target) and not _is_own(target):
            target.unlink()
        paths.write(target, _checksum(content) + content, mode=0o600)
        left = self.most_bytes
        for _, size, path in reversed(self._files()):
            left -= size
            if left < 0:
                self.forget(path)
        for path in _unfinished_files(place):
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > _ABANDONED_S:
                    path.unlink()

    def clear(self) -> Contents:
        """Remove all files, and return the contents that the folder had before."""
        before = self.contents()
        for _, _, path in self._files():
            path.unlink(missing_ok=True)
        for path in _unfinished_files(place) if (place := self._own_folder()) else ():
            path.unlink(missing_ok=True)
        return before


CAPTURES = DiskCache("THUNDER_WORKBENCH_CACHE", "captures", ".capture", 512 << 20)
"""Cache of captured programs."""

REFERENCES = DiskCache("THUNDER_WORKBENCH_REFERENCES", "references", ".reference", 2 << 30)
"""Cache of results of unmodified Thunder's first steps. Runs are compared with these results."""

_CHECK_BYTES = 4

_ABANDONED_S = 3600.0
"""Age in seconds at which an unfinished file is removed, because its writer must have ended."""


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECK_BYTES, "little")


def _is_own(path: Path) -> bool:
    """Return whether a file is a regular file that belongs to this user and that no other user can write."""
    there = path.lstat()
    others_write = there.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(there.st_mode) and there.st_uid == os.getuid() and not others_write


def _unfinished_files(folder: Path) -> Iterator[Path]:
    return folder.glob(f".workbench-*{paths.UNFINISHED}")
