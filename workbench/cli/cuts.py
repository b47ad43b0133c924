"""`cuts`: print the compilations, memory and step time under different cuts between fusions."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.opening import check_program_name, open_bench
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
from workbench.cli.statuses import DONE


def cuts(
    program: ProgramArgument,
    settings: SetOption = None,
    choices: ChooseOption = None,
    config: ConfigOption = None,
    device: DeviceOption = None,
    executor: ExecutorOption = None,
    ranks: RanksOption = None,
    parallel: ParallelOption = "",
    capture: CaptureOption = None,
    machine: Annotated[
        str | None, typer.Option("--machine", metavar="NAME", help="Machine whose rates are used to estimate the step.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Compare cuts between fusions by compilations, peak memory, saved bytes and step time. Nothing runs."""
    check_program_name(program, settings)
    from workbench.runs.measure import measured_rates

    if machine is not None:
        measured_rates.check_machine(machine)
    bench = open_bench(program, settings, choices, config, device, executor, ranks, parallel, capture=capture)
    table = bench.cuts(machine=machine)
    if as_json:
        print_json(table.to_json())
    else:
        print_line(repr(table))
    return DONE
