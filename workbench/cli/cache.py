"""`cache`: captured programs and reference steps that are stored for later processes."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from workbench.cli.options import JsonOption
from workbench.cli.output import print_json, print_line
from workbench.cli.statuses import DONE
from workbench.errors import ConfigError
from workbench.summary import human_bytes
from workbench.util.disk_cache import CAPTURES, REFERENCES, Contents, DiskCache
from workbench.util.paths import reason_of


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove the stored files.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Print the number and size of stored captured programs and reference steps, or remove the stored files.

    A stored captured program opens without tracing. Later runs of a program are compared with the stored reference
    step of unmodified Thunder. An entry is used only if the program, its functions, its settings and all versions are
    unchanged. THUNDER_WORKBENCH_CACHE and THUNDER_WORKBENCH_REFERENCES set the two folders; the value off stores
    nothing.
    """
    found = {}
    for kept in (CAPTURES, REFERENCES):
        try:
            found[kept.name] = kept.clear() if clear else kept.contents()
        except OSError as error:
            raise ConfigError(f"{error.filename or kept.folder()} cannot be removed: {reason_of(error)}") from error
    if as_json:
        captures = _as_json(CAPTURES, found[CAPTURES.name])
        print_json({**captures, "cleared": clear, "references": _as_json(REFERENCES, found[REFERENCES.name])})
        return DONE
    for kept, noun, without in (
        (CAPTURES, "program", "every program is traced when it is opened"),
        (REFERENCES, "reference", "every run computes its own reference"),
    ):
        contents = found[kept.name]
        if contents.folder is None:
            print_line(f"{kept.variable} is off: {without}")
            continue
        count = f"{contents.files} {noun}{'' if contents.files == 1 else 's'}"
        size = f"{human_bytes(contents.total_bytes)} of at most {human_bytes(kept.most_bytes)}"
        print_line(f"{'removed ' if clear else ''}{count}, {size}, in {contents.folder}")
    return DONE


def _as_json(disk_cache: DiskCache, contents: Contents) -> dict[str, Any]:
    folder = None if contents.folder is None else str(contents.folder)
    return {**dataclasses.asdict(contents), "folder": folder, "most_bytes": disk_cache.most_bytes}
