"""Write a bench as one HTML page, for example to attach to an issue, with the commands that plan and run it again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.bench.report.saved_plan import write_document
from workbench.programs import registry
from workbench.programs.files import is_file_name

if TYPE_CHECKING:
    from workbench.bench.session.workbench import Workbench

BEGIN = b"<!doctype html><!-- thunder-workbench report -->"
"""First bytes of every report."""
CONFIG_NAME = "choices.py"
"""File name under which a report offers the bench's config."""


def commands(bench: Workbench) -> list[str]:
    """Return command lines that plan the bench's program again and, unless its device is ``planned``, run it.

    The list is empty if the program has no name that the command line accepts. If the program was opened under modes of
    PyTorch, the commands read the config that the report contains as `CONFIG_NAME`.

    Examples
    --------
    >>> import workbench as wb
    >>> print(commands(wb.open("mlp", device="cpu", executor="torch", layers=1))[0])
    thunder-workbench plan mlp --device cpu --executor torch --set layers=1
    """
    config = bench.config
    name = str(config.program)
    if not is_file_name(name) and name not in {info.name for info in registry.describe()}:
        return []
    if config.modes.keys() - {"module"}:
        # No option sets a mode, such as `torch.no_grad`. The config has the modes, and all that the options set.
        return _plan_and_run([name, "--config", CONFIG_NAME], config.device)
    words = [name, "--device", config.device, "--executor", config.executor]
    words += ["--ranks", str(config.ranks)] if config.ranks > 1 else []
    words += ["--parallel", config.parallel] if config.parallel else []
    # Without the option, the command line tries Dynamo first.
    words += ["--capture", config.capture] if config.capture != "dynamo" else []
    for option, pairs in (("--set", config.settings), ("--choose", config.choices)):
        for key, value in pairs.items():
            words += [option, f"{key}={value}"]
    return _plan_and_run(words, config.device)


def _plan_and_run(words: Sequence[str], device: str) -> list[str]:
    given = shlex.join(words)
    runs = [] if device == "planned" else [f"thunder-workbench run {given} --against stock"]
    return [f"thunder-workbench plan {given}", *runs]


def write_report(bench: Workbench, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the page to `path` completely or not at all; see `Workbench.report`.

    Raises
    ------
    ConfigError
        If the page cannot be written; the message has the reason, and the old content stays.
    """

    def text() -> str:
        from workbench.ui.html_pages import report_page

        return BEGIN.decode() + report_page.bench_page(bench, commands(bench))

    return write_document(path, text, begin=BEGIN, kind="report", overwrite=overwrite)
