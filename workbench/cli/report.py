"""`report`: write a plan as one HTML page, for example to attach to an issue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workbench.cli.opening import open_bench
from workbench.cli.options import (
    CaptureOption,
    ChooseOption,
    ConfigOption,
    DeviceOption,
    ExecutorOption,
    JsonOption,
    ParallelOption,
    ProgramArgument,
    RanksOption,
    SetOption,
)
from workbench.cli.output import print_json, print_line
from workbench.cli.statuses import DONE, FAILED
from workbench.errors import ChoiceError


def report(
    program: ProgramArgument,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where to write the page.")] = Path("report.html"),
    run: Annotated[
        bool,
        typer.Option(
            "--run", help="Compile and run the program first, interleaved with stock, so that figures are measured."
        ),
    ] = False,
    settings: SetOption = None,
    choices: ChooseOption = None,
    config: ConfigOption = None,
    device: DeviceOption = None,
    executor: ExecutorOption = None,
    ranks: RanksOption = None,
    parallel: ParallelOption = "",
    capture: CaptureOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite also a file that is not a report.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Write one HTML page that needs no network: graph, figures, plots, choices, and commands to plan and run again."""
    bench = open_bench(program, settings, choices, config, device, executor, ranks, parallel, capture=capture)
    from workbench.bench import PartsBench

    if isinstance(bench, PartsBench):
        raise ChoiceError(f"report needs a program with one plan; {bench.program.name} has {len(bench.parts)} parts")
    # Write the page even if the run failed, because it contains the plan and the error.
    made = bench.run(wait=True, against={"stock": {}}) if run else None
    written = bench.report(out, overwrite=force)
    error = made.error if made is not None else None
    if as_json:
        print_json({"report": str(written), "error": error})
    else:
        print_line(f"report: {written}{f'; the run failed: {error}' if error else ''}")
    return FAILED if error else DONE
