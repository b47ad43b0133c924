"""`fit`: make choices so that peak memory, step time or the number of compilations stays within a limit."""

from __future__ import annotations

from pathlib import Path
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
    Target,
    TargetOption,
)
from workbench.cli.output import print_json, print_line
from workbench.cli.statuses import DONE
from workbench.errors import ChoiceError


def fit(
    program: ProgramArgument,
    peak: Annotated[
        str | None,
        typer.Option("--peak", metavar="SIZE", help="Highest peak, such as 24GiB, 512MB, or 80% of the stock peak."),
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="SECONDS", help="Longest step, instead of a peak.")
    ] = None,
    compilations: Annotated[
        int | None,
        typer.Option(
            "--compilations",
            metavar="NUMBER",
            help="Largest number of fusions to compile; alone, or with --peak or --step.",
        ),
    ] = None,
    reserved: Annotated[
        bool,
        typer.Option(
            "--reserved",
            help="With --peak: limit the memory that PyTorch's allocator reserves on a GPU, as simulated, instead of "
            "the allocated bytes.",
        ),
    ] = False,
    curve: Annotated[
        int | None,
        typer.Option(
            "--curve", metavar="POINTS", help="Print step time for POINTS peaks, from stock to the least possible."
        ),
    ] = None,
    using: Annotated[
        str | None,
        typer.Option(
            "--using",
            metavar="LIST",
            help="Kinds of choices to make, of recompute,offload,cuts,order,waits; by default recompute,offload, on "
            "a CPU recompute.",
        ),
    ] = None,
    each: Annotated[
        bool,
        typer.Option(
            "--each", help="With --curve: also print the curves for the first kind, the first two kinds, and so on."
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
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write the choices to this config file.")
    ] = None,
    target: TargetOption = Target.thunder,
    force: Annotated[bool, typer.Option("--force", help="Overwrite also a file that is not a config.")] = False,
    machine: Annotated[
        str | None,
        typer.Option("--machine", metavar="NAME", help="Machine whose rates are used to estimate the step time."),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Choose what to save, recompute, offload and move, for the least step time under a stated peak. Nothing runs.

    With --target torch, the peak is that of plain torch.compile.
    """
    check_program_name(program, settings)
    from workbench.bench.session.fit_request import (
        check_compilations,
        check_peak,
        check_points,
        check_using,
        step_seconds,
    )
    from workbench.runs.measure import measured_rates

    asked = (peak is not None) + (step is not None) + (curve is not None)
    if asked > 1 or (not asked and compilations is None):
        raise ChoiceError(
            "fit takes one of --peak SIZE, --step SECONDS and --curve POINTS. --compilations NUMBER is given alone, "
            "or with --peak or --step"
        )
    if curve is not None and compilations is not None:
        raise ChoiceError(
            "--compilations is given alone, or with --peak or --step; a curve does not limit compilations"
        )
    if reserved and peak is None:
        raise ChoiceError("--reserved needs --peak SIZE: it limits the reserved memory instead of the peak")
    if compilations is not None:
        check_compilations(compilations)
    if curve is not None and export is not None:
        raise ChoiceError("--curve makes many plans and --export writes one: give --peak or --step instead of --curve")
    if target is not Target.thunder and export is None:
        raise ChoiceError(f"--target {target.value} needs --export FILE, the file to write")
    if target is Target.torch and (peak is None or reserved or compilations is not None or using is not None):
        raise ChoiceError(
            "--target torch takes --peak SIZE, the peak of torch.compile; --step, --curve, --compilations, --reserved "
            "and --using are for Thunder"
        )
    if each and curve is None:
        raise ChoiceError("--each needs --curve")
    limit = None if peak is None else check_peak(peak)
    step_s = None if step is None else step_seconds(step)
    if machine is not None:
        measured_rates.check_machine(machine)
    points = None if curve is None else check_points(curve)
    may_use = None if using is None else check_using(tuple(name.strip() for name in using.split(",") if name.strip()))
    bench = open_bench(program, settings, choices, config, device, executor, ranks, parallel, capture=capture)
    if target is Target.torch and limit is not None and export is not None:
        for_torch = bench.torch_fit(limit, machine=machine)
        written = str(for_torch.export(export, overwrite=force))
        if as_json:
            print_json({**for_torch.to_json(), "exported": written})
        else:
            print_line(repr(for_torch))
            print_line(f"exported: {written}")
        return DONE
    if points is not None:
        line = bench.curve(points=points, using=may_use, each=each, machine=machine).wait()
        if as_json:
            print_json(line.to_json())
        else:
            print_line(repr(line))
        return DONE
    found = bench.fit(
        limit, step_s=step_s, compilations=compilations, reserved=reserved, using=may_use, machine=machine
    )
    document = found.to_json()
    if export is not None:
        document["exported"] = str(bench.export(export, target=target.value, overwrite=force))
    if as_json:
        print_json(document)
        return DONE
    print_line(repr(found))
    for chosen in found.why:
        print_line(f"{chosen.id}={chosen.option}  {chosen.reason}  {chosen.source}".rstrip())
    if export is not None:
        print_line(f"exported: {document['exported']}")
    return DONE
