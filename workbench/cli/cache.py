"""`cache`: captured programs that are kept between processes."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from workbench.cli.options import JsonOption
from workbench.cli.output import print_json, print_line
from workbench.cli.statuses import DONE
from workbench.errors import ConfigError
from workbench.summary import human_bytes
from workbench.util import capture_store
from workbench.util.paths import reason


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Take all of them away.")] = False, as_json: JsonOption = False
) -> int:
    """Say where captured programs are kept, so that opening one again costs no tracing, or take them away.

    THUNDER_WORKBENCH_CACHE is the folder, or off. A program is taken from there only where the program, its functions,
    its settings and all versions are as they were.
    """
    try:
        found = capture_store.clear() if clear else capture_store.contents()
    except OSError as error:
        raise ConfigError(
            f"{error.filename or capture_store.folder()} cannot be taken away: {reason(error)}"
        ) from error
    if as_json:
        folder = None if found.folder is None else str(found.folder)
        print_json(
            {**dataclasses.asdict(found), "folder": folder, "most_bytes": capture_store.MOST_BYTES, "cleared": clear}
        )
    elif found.folder is None:
        print_line(f"{capture_store.VARIABLE} is off: every program is traced when it is opened")
    else:
        programs = "1 program" if found.files == 1 else f"{found.files} programs"
        size = f"{human_bytes(found.total_bytes)} of at most {human_bytes(capture_store.MOST_BYTES)}"
        print_line(f"{'took away ' if clear else ''}{programs}, {size}, in {found.folder}")
    return DONE
