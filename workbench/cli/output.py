"""Output: tables for users, one JSON document for programs, and one line for an error."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import select
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from workbench.errors import WorkbenchWarning, printable
from workbench.util import paths

_MOST_CHARACTERS = 2000
"""Maximum length of an error line."""
_PIPE_COLUMNS = 200

_json_descriptor: int | None = None
_stream: TextIO | None = None
_said: list[str] = []
"""The workbench's own warnings so far, for the document of ``--json``."""


class OutputError(Exception):
    """Standard output cannot be written.

    Attributes
    ----------
    unread : bool
        Whether the reader of standard output has closed the pipe.
    """

    def __init__(self, error: Exception) -> None:
        why = paths.reason_of(error) if isinstance(error, OSError) else str(error)
        super().__init__(f"standard output cannot be written: {why}")
        self.unread = isinstance(error, OSError) and error.errno == errno.EPIPE


def seconds_text(value: float | None) -> str:
    """Format a duration in seconds or milliseconds."""
    if value is None:
        return ""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def new_table(*columns: str) -> Table:
    """Return an empty table without rules between its cells."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of literal texts. They are not parsed as markup, and cannot control the terminal."""
    table.add_row(*(Text(printable(cell)) for cell in cells))


def rows_table(title: str, rows: dict[str, str]) -> Table:
    """Return a table of two columns: name and value."""
    table = new_table("", title)
    for name, value in rows.items():
        add_row(table, name, value)
    return table


def print_table(table: Table) -> None:
    """Print a table."""
    _print(table, soft_wrap=False)


def print_line(text: str, style: str = "") -> None:
    """Print a line of literal text, without parsing markup."""
    _print(Text(printable(text), style=style), soft_wrap=True)


def _print(renderable: RenderableType, *, soft_wrap: bool) -> None:
    # A pipe has no width of its own. Use a large width for it, so that grep finds whole lines.
    on_terminal = _on_terminal()
    # Render to memory first, because rich ends the process if it cannot write to its file.
    rendered = io.StringIO()
    console = Console(file=rendered, force_terminal=on_terminal, width=None if on_terminal else _PIPE_COLUMNS)
    console.print(renderable, soft_wrap=soft_wrap)
    _write(rendered.getvalue())


def _on_terminal() -> bool:
    try:
        return (_stream or sys.stdout).isatty()
    except ValueError:  # closed by the program
        return False


def print_json(document: dict[str, Any]) -> None:
    """Print the single document of ``--json``, with the warnings that were issued so far."""
    if _said:
        document = {**document, "warnings": [*document.get("warnings", ()), *_said]}
    text = json.dumps(document, indent=2, ensure_ascii=False, default=str)
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)
    _write(text + "\n")


def _escape(character: str) -> str:
    units = memoryview(character.encode("utf-16-be", "surrogatepass"))
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


def report(message: str, as_json: bool) -> None:
    """Report an error: as a line on standard error or, with ``--json``, as the document."""
    if as_json:
        print_json({"ok": False, "error": message})
    else:
        complain(message)


def complain(message: str) -> None:
    """Write one line to standard error."""
    message = printable(" ".join(message.split()))
    if len(message) > _MOST_CHARACTERS:
        message = f"{message[: _MOST_CHARACTERS // 2]} … {message[-_MOST_CHARACTERS // 2 :]}"
    # If standard error cannot be written, drop the line; the exit status still reports an error.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"thunder-workbench: {message}\n")
        sys.stderr.flush()


def flush() -> None:
    """Flush standard output.

    Raises
    ------
    OutputError
        If standard output cannot be written.
    """
    _write("")


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Context that prints each warning as one line, and hides warnings raised in Thunder, PyTorch and nvFuser."""
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        warnings.filterwarnings("ignore", module=r"(thunder|torch|nvfuser_direct)\b")
        warnings.simplefilter("always", WorkbenchWarning)
        _said.clear()
        yield


def _warn(message: Warning | str, category: type[Warning] = UserWarning, *_: Any, **__: Any) -> None:
    complain(f"warning: {message}")
    if issubclass(category, WorkbenchWarning):
        _said.append(str(message))


@contextlib.contextmanager
def own_output(as_json: bool) -> Iterator[None]:
    """Context that sends this module's output to the standard output of this moment.

    The destination stays the same even if a program replaces `sys.stdout`.

    With `as_json`, only this module writes to standard output. Output of programs and of nvFuser goes to standard
    error.
    """
    global _json_descriptor, _stream
    _stream = sys.stdout
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks must not stop the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if not as_json:
        try:
            yield
        finally:
            _stream = None
        return
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    _json_descriptor = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        with contextlib.suppress(OSError):
            os.dup2(_json_descriptor, 1)
            os.close(_json_descriptor)
        _json_descriptor = _stream = None


def _write(text: str) -> None:
    try:
        if _json_descriptor is not None:
            _write_all(_json_descriptor, text.encode())
        else:
            stream = _stream or sys.stdout
            stream.write(text)
            stream.flush()
    except (OSError, ValueError) as error:
        raise OutputError(error) from error


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
