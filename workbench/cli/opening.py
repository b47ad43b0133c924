"""Open a bench from command-line arguments, after checks of these arguments."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.cli.options import CaptureMethod, Device
from workbench.errors import ChoiceError, ProgramError, RunError, WorkbenchError, short_repr, suggest_names
from workbench.programs import files, registry
from workbench.programs.files import is_file_name
from workbench.util import paths

if TYPE_CHECKING:
    from workbench.bench import Workbench


def open_bench(
    program: str,
    settings: list[str] | None,
    choices: list[str] | None,
    config_path: Path | None,
    device: Device | None,
    executor: str | None,
    ranks: int | None = None,
    parallel: str = "",
    machine: str = "H100",
    capture: CaptureMethod | None = None,
) -> Workbench:
    """Open a bench from the options of a command."""
    import workbench as wb

    check_program_name(program, settings)
    config = wb.load(config_path) if config_path is not None else None
    chosen = parse_pairs("--choose", choices, ChoiceError)
    # Keep the working folder, even if the program changes it: files on the command line are relative to it.
    with keep_folder():
        bench = wb.open(
            program,
            device=device.value if device else None,
            executor=executor,
            config=config,
            ranks=ranks,
            parallel=parallel,
            machine=machine,
            capture=capture.value if capture else None,
            settings=parse_pairs("--set", settings, ProgramError),
        )
        if chosen:
            bench.choose(chosen)
    return bench


def check_program_name(program: str, settings: list[str] | None) -> None:
    """Refuse an unknown program or unknown settings, without the imports of PyTorch and Thunder, which take seconds."""
    check_named(program, [parse_pairs("--set", settings, ProgramError)])


def check_named(program: str, all_given: Iterable[Mapping[str, str]]) -> None:
    """Check a program as `check_program_name` does, with several sets of settings."""
    if is_file_name(program):
        files.check_file(program)
        return
    for given in all_given:
        registry.check_built_in(program, given)


@contextlib.contextmanager
def keep_folder() -> Iterator[None]:
    """Context that restores the working folder at its end, because a program may change it."""
    # Use a descriptor, which works even if the folder is moved or deleted.
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def parse_pairs(option: str, texts: list[str] | None, error: type[WorkbenchError]) -> dict[str, str]:
    """Parse ``NAME=VALUE`` of a repeated option into a dict."""
    pairs: dict[str, str] = {}
    for pair in texts or []:
        name, equals, value = _split(pair) if option == "--choose" else pair.partition("=")
        if not equals or not name:
            form = "ID=OPTION" if option == "--choose" else "NAME=VALUE"
            raise error(f"{option} {short_repr(pair)[1:-1]}: the form is {option} {form}")
        if name in pairs:
            raise error(f"{option} {short_repr(pair)[1:-1]}: {short_repr(name)[1:-1]} is given twice")
        pairs[name] = value
    return pairs


def _split(pair: str) -> tuple[str, str, str]:
    """Split ``ID=OPTION`` at the last ``=`` if the id has a colon, and at the first ``=`` if it has none.

    An id with a colon names a place in the program, and may contain ``=``. An id without a colon is the name of a
    setting, whose option may contain ``=``.
    """
    is_place = ":" in pair.partition("=")[0]
    return pair.rpartition("=") if is_place else pair.partition("=")


def parse_lists(option: str, texts: list[str] | None, error: type[WorkbenchError]) -> dict[str, list[str]]:
    """Parse ``NAME=ONE,ANOTHER`` of a repeated option into a dict of lists."""
    pairs = parse_pairs(option, texts, error)
    found = {name: [value for value in values.split(",") if value] for name, values in pairs.items()}
    empty = next((name for name, values in found.items() if not values), None)
    if empty is not None:
        raise error(f"{option} {empty}=: no value is given; the form is {option} {empty}=ONE,ANOTHER")
    return found


def check_lever(name: str) -> None:
    """Refuse the name of an unknown lever."""
    from workbench.core.lever import all_levers

    known = [lever.name for lever in all_levers()]
    if name not in known:
        raise ChoiceError(
            f"--sites {short_repr(name)[1:-1]}: unknown lever; legal: {', '.join(known)}{suggest_names(name, known)}"
        )


def refuse_unwritable(path: Path | None) -> None:
    """Refuse a file that cannot be written, before hours are spent on its content."""
    try:
        if path is not None:
            paths.check_writable(path)
    except OSError as error:
        raise RunError(f"{short_repr(str(path))[1:-1]} cannot be written: {paths.reason_of(error)}") from error
