"""`check`: a regression check for CI. It fails if a figure grew by more than allowed, or a choice no longer fits."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from workbench.cli.opening import keep_folder
from workbench.cli.options import JsonOption
from workbench.cli.output import print_json, print_line
from workbench.cli.statuses import DONE, FAILED
from workbench.errors import Advice, ConfigError, ConfigWarning, short_repr


def _growth(figure: str, quantity: str) -> Any:
    return typer.Option(f"--{figure}-growth", metavar="HOW", help=f"Allowed growth of {quantity}, such as 5%.")


def check(
    config: Annotated[Path, typer.Argument(help="A config file, written by `plan --export` or `bench.export`.")],
    program: Annotated[
        str | None,
        typer.Option(
            "--program", metavar="PROGRAM", help="file.py:factory, if the config is not for a built-in program."
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline", metavar="FILE", help="Baseline file; by default CONFIG with .baseline.json instead of .py."
        ),
    ] = None,
    write: Annotated[bool, typer.Option("--write", help="Write the present figures as the baseline.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite also a file that is not a baseline.")] = False,
    peak_growth: Annotated[str, _growth("peak", "peak memory")] = "0%",
    saved_growth: Annotated[str, _growth("saved", "memory saved for the backward")] = "0%",
    fusions_growth: Annotated[str, _growth("fusions", "the number of unique fusions")] = "0",
    inversions_growth: Annotated[str, _growth("inversions", "the number of inversions of collectives")] = "0",
    as_json: JsonOption = False,
) -> int:
    """Compare predicted figures with a baseline. Exit with status 1 if a figure grew by more than allowed.

    The exit status is also 1 if a choice of the config no longer fits the program.
    """
    import workbench as wb
    from workbench.bench.report import regression_check
    from workbench.programs import describe

    given = (peak_growth, saved_growth, fusions_growth, inversions_growth)
    allowed = {
        figure.name: regression_check.Growth.parse(text, figure)
        for figure, text in zip(regression_check.FIGURES, given, strict=True)
    }
    path = baseline if baseline is not None else config.with_suffix(".baseline.json")
    kept = None if write else regression_check.read_baseline(path)
    chosen = wb.load(config)
    name = program or chosen.program
    if ":" not in name and name not in {info.name for info in describe()}:
        raise ConfigError(
            f"{config} is for {short_repr(name)}, which is not a built-in program",
            advice=Advice(
                "open the program and use workbench.bench.report.regression_check",
                "name its file with --program file.py:factory",
            ),
        )
    with keep_folder(), warnings.catch_warnings():
        # Choices that do not fit are reported below, together with the figures.
        warnings.simplefilter("ignore", ConfigWarning)
        bench = wb.open(name, config=chosen, settings=chosen.settings)
    left_out = [f"{id} no longer fits: {reason}" for id, reason in sorted(bench.unmatched.items())]
    if kept is None:
        if left_out:
            raise ConfigError(
                f"no baseline is written, because choices of the config do not fit: {'; '.join(left_out)}"
            )
        written = regression_check.write_baseline(bench, path, overwrite=force)
        if as_json:
            print_json({"ok": True, "baseline": str(written), "figures": regression_check.figures_of_plan(bench)})
            return DONE
        for figure in regression_check.FIGURES:
            value = regression_check.figures_of_plan(bench)[figure.name]
            print_line(f"kept  {figure.title:<25}  {'none' if value is None else figure.text(value)}")
        print_line(f"baseline: {written}")
        return DONE
    held = regression_check.compare_with_baseline(bench, kept, allowed)
    changed = regression_check.differences(bench, kept)
    ok = not left_out and all(each.ok for each in held)
    if as_json:
        rows = [each.to_json() for each in held]
        unfit = {"choices_left_out": left_out, "differences": changed}
        print_json({"ok": ok, "baseline": str(path), "figures": rows, **unfit})
        return DONE if ok else FAILED
    for each in held:
        print_line(each.line(), style="" if each.ok else "red")
    for text in left_out:
        print_line(f"GONE  {text}", style="red")
    for text in changed:
        print_line(f"note  {text}")
    if not ok:
        print_line(f"If this change is intended: thunder-workbench check {config} --write")
    return DONE if ok else FAILED
