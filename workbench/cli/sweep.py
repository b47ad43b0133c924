"""`sweep`: compile and run a program with several values of settings and choices."""

from __future__ import annotations

import contextlib
import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from workbench.cli.opening import check_named, parse_lists, refuse_unwritable
from workbench.cli.options import DeviceOption, ExecutorOption, JsonOption, ProgramArgument
from workbench.cli.output import add_row, new_table, print_json, print_line, print_table, seconds_text
from workbench.cli.statuses import DONE, FAILED
from workbench.errors import ChoiceError, DeviceError, ProgramError, RunError
from workbench.util import paths

if TYPE_CHECKING:
    from workbench.runs.sweep.sweep import SweepProgress, SweepResult


def sweep(
    program: ProgramArgument,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=V1,V2,…", help="Values of a setting; repeat for more.")
    ] = None,
    choices: Annotated[
        list[str] | None, typer.Option("--choose", metavar="ID=O1,O2,…", help="Options of a site; repeat for more.")
    ] = None,
    device: DeviceOption = None,
    executor: ExecutorOption = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Seconds allowed for each combination.", min=1.0)
    ] = 3600.0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for outcomes; outcomes in it are not computed again."),
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the table to this file.")] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE.html", help="Write a plot of compile time.")
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            "--dask", metavar="ADDRESS", help="Address of a Dask scheduler; its workers run the combinations."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Compile and run a program with every combination of given values; each combination runs in a new process."""
    values, options = parse_lists("--set", settings, ProgramError), parse_lists("--choose", choices, ChoiceError)
    check_named(program, [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())])
    for path in (csv, plot):
        refuse_unwritable(path)

    from workbench.compiler.interop import devices
    from workbench.runs.process import run_store
    from workbench.runs.sweep import dask_runs
    from workbench.runs.sweep import sweep as sweeps

    device_name = device.value if device else "cpu"
    if device_name == "planned":
        raise DeviceError("nothing runs on the device planned; legal: cpu, or cuda if a GPU is attached")
    wanted = sweeps.Sweep(
        program=program,
        settings=values,
        choices=options,
        device=device_name,
        executor=executor or devices.default_executor(device_name),
        timeout_s=timeout_s,
    )
    sweeps.check_sweep(wanted)
    folder = out or run_store.new_folder(f"sweep-{program}")
    workers = contextlib.nullcontext() if dask is None else dask_runs.dask(dask)
    try:
        with Console(stderr=True).status("starting") as status, workers as pool:
            found = sweeps.run(
                wanted, folder, on_progress=lambda progress: status.update(_progress_text(progress)), executor=pool
            )
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(
            f"to run the remaining combinations, repeat the command with --out {shlex.quote(str(folder))}"
        ) from error
    if csv is not None:
        try:
            paths.write(csv, found.csv().encode())
        except OSError as error:
            raise RunError(f"the table {csv} cannot be written: {paths.reason_of(error)}") from error
    if plot is not None:
        from workbench.ui.html_pages import sweep_plot

        sweep_plot.write_plot(found, plot)
    document = {**found.to_json(), "out": str(folder)}
    if as_json:
        print_json(document)
    else:
        _print_sweep(found, folder)
    return DONE if document["ok"] else FAILED


def _progress_text(progress: SweepProgress) -> str:
    left = f", {progress.left_s:.0f} s left" if progress.left_s is not None else ""
    return f"{progress.done} of {progress.count} combinations done{left}"


def _cell(name: str, value: object) -> str:
    """Format a figure, with a unit if its name ends in ``_bytes`` or ``_s``."""
    from workbench.summary import human_bytes

    if isinstance(value, int | float) and not isinstance(value, bool):
        if name.endswith("_bytes"):
            return human_bytes(value)
        if name.endswith("_s"):
            return seconds_text(value)
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _print_sweep(result: SweepResult, folder: Path) -> None:
    rows = result.rows()
    table = new_table(*(rows[0] if rows else ()))
    for row in rows:
        add_row(table, *(_cell(name, value) for name, value in row.items()))
    print_table(table)
    for label, exponent in result.exponents().items():
        print_line(f"compile time grows with exponent {exponent:.2f}: {label}")
    print_line(f"sweep: {folder}")
