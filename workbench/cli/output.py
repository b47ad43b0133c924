"""What is printed: tables for people, one JSON document for programs, and one line for what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from workbench.errors import ConfigWarning

_json_stream: TextIO | None = None


def seconds_text(value: float | None) -> str:
    """A duration, in the unit that suits it."""
    if value is None:
        return ""
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def rows_table(title: str, rows: dict[str, str]) -> Table:
    """A table of two columns: what, and how much."""
    table = new_table("", title)
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def new_table(*columns: str) -> Table:
    """An empty table, without lines."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def new_console() -> Console:
    """Standard output, as wide as it is."""
    # A pipe has no width of its own: lines are kept whole, for grep.
    return Console(width=None if sys.stdout.isatty() else 200)


@contextlib.contextmanager
def short_warnings() -> Iterator[None]:
    """Inside, warnings are one line each, and those that other packages raise about themselves are not shown."""
    with warnings.catch_warnings():
        warnings.showwarning = _warn
        warnings.filterwarnings("ignore", module=r"(thunder|torch|nvfuser_direct)\b")
        warnings.simplefilter("always", ConfigWarning)
        yield


@contextlib.contextmanager
def only_json() -> Iterator[None]:
    """Inside, only `print_json` writes to standard output: what programs and nvFuser print goes to standard error."""
    global _json_stream
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
        os.dup2(2, 1)
        _json_stream = stream
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield
        finally:
            sys.stdout.flush()
            stream.flush()
            os.dup2(stream.fileno(), 1)
            _json_stream = None


def print_json(document: dict[str, Any]) -> None:
    """Print the one document of ``--json``."""
    stream = _json_stream or sys.stdout
    stream.write(json.dumps(document, indent=2, ensure_ascii=False, default=str) + "\n")


def report(message: str, as_json: bool) -> None:
    """Say what is wrong, as a line or as the document of ``--json``."""
    if as_json:
        print_json({"ok": False, "error": message})
    else:
        complain(message)


def complain(message: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(f"thunder-workbench: {' '.join(message.split())}\n")


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    complain(f"warning: {message}")
