"""Read and write files whose names come from the user. Only regular files are read or written.

A file that is larger than a limit is not read. A file is written completely or not at all. All failures raise
`OSError`; `reason_of` returns the reason as text.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
UNFINISHED = ".tmp"
"""Suffix of a file that is being written. If its writer is killed, a file with this suffix remains."""
_ODD = "~ names a user that this machine does not have"


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Return `path` with ``~`` expanded.

    Raises
    ------
    OSError
        If `path` is empty, or cannot be the path of a file.
    """
    text = os.fspath(path)
    # Refuse an empty name, because `Path("")` means the current folder.
    if not text or text == ".":
        raise OSError(errno.EINVAL, "no file name is given")
    try:
        os.fsencode(text)
        if "\0" in text:
            raise OSError(errno.EINVAL, "a file name cannot contain the character NUL")
        return Path(text).expanduser()
    except UnicodeError:
        raise OSError(errno.EINVAL, "a file name cannot contain half of a surrogate pair") from None
    except RuntimeError:
        raise OSError(errno.EINVAL, _ODD) from None


def reason_of(error: OSError) -> str:
    """Return the reason of an error as text that can follow a colon: its first letter is lowercase."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def read(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """Return the content of a regular file.

    Raises
    ------
    OSError
        If the file cannot be read, is not a regular file, or is larger than `most_bytes`.
    """
    target = expand_home(path)
    # Check the kind of the file before opening it, because opening a device may have an effect, and opening a pipe
    # waits.
    _check_regular(target.stat())
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        _check_regular(os.fstat(descriptor))
        parts, left = [], most_bytes + 1
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    if left <= 0:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes")
    return b"".join(parts)


def regular_file(path: str | os.PathLike[str]) -> Path:
    """Return `path` with ``~`` expanded, after a check that it is a regular file.

    Raises
    ------
    OSError
        If `path` is not a regular file.
    """
    target = expand_home(path)
    _check_regular(target.stat())
    return target


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Return the path that `write` would create or replace. For a link, this is the target of the link.

    The file is not opened.

    Raises
    ------
    OSError
        If the file exists and is not a regular file, if it is not writable, or if its folder does not exist.
    """
    given = expand_home(path)
    target = Path(os.path.realpath(given)) if given.is_symlink() else given
    try:
        there = given.stat()
    except FileNotFoundError:
        # The file does not exist, but `write` can create it if its folder exists.
        if not stat.S_ISDIR(target.parent.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        return target
    _check_regular(there)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return target


def write(
    path: str | os.PathLike[str],
    content: bytes,
    *,
    may_replace: Callable[[Path], str] | None = None,
    mode: int = 0o666,
) -> Path:
    """Replace or create a file in one step, and return its path. If writing fails, the old content is unchanged.

    An existing file keeps its mode, owner and attributes. If `path` is a link, the target is written.

    Parameters
    ----------
    path : path
    content : bytes
    may_replace : callable, optional
        Returns why an existing file must not be replaced, or an empty string. Its argument is the path of the file.
    mode : int
        Permissions of a new file, before the process's umask is applied.

    Returns
    -------
    Path
        The file that was written, with ``~`` expanded and links followed.

    Raises
    ------
    OSError
        If the file cannot be written, or if `may_replace` returns a reason.
    """
    target = check_writable(path)
    there = target.exists()
    if there and may_replace is not None and (why_not := may_replace(target)):
        raise OSError(errno.EEXIST, why_not)
    beside = target.with_name(f".workbench-{secrets.token_hex(8)}{UNFINISHED}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if there:
                _copy_attributes(target, beside)
            os.fsync(file.fileno())
        beside.replace(target)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
    return target


def _copy_attributes(target: Path, copy: Path) -> None:
    """Set the owner, mode and attributes of `copy` to those of `target`."""
    was, now = target.stat(), copy.stat()
    # Set the owner before the mode, because a change of the owner clears special bits of the mode.
    if (was.st_uid, was.st_gid) != (now.st_uid, now.st_gid):
        try:
            os.chown(copy, was.st_uid, was.st_gid)
        except PermissionError:
            raise PermissionError(
                errno.EPERM, "it belongs to another user or group, and its owner cannot be kept"
            ) from None
    shutil.copystat(target, copy)
    os.utime(copy)


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file")
