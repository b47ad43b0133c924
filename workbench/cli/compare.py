"""`compare`: runs beside the first of them."""

from __future__ import annotations

from typing import Annotated

import typer

from workbench.cli.options import JsonOption
from workbench.cli.output import add_row, complain, new_table, print_json, print_line, print_table, seconds_text
from workbench.cli.statuses import DONE


def compare(
    runs: Annotated[list[str], typer.Argument(help="Run folders, or names of runs; the first is compared with.")],
    as_json: JsonOption = False,
) -> int:
    """Compare runs with the first: each difference with its interval, and which of them are noise."""
    from workbench.runs import store
    from workbench.runs.compare import compare as compare_runs
    from workbench.summary import human_bytes

    found = compare_runs(*(store.open(run) for run in runs))
    if as_json:
        print_json(found.to_json())
        return DONE
    table = new_table("run", "figure", "value", f"of {found.base}", "ratio", "95 % interval", "verdict")
    for each in found.differences:
        show = human_bytes if each.figure.endswith("_bytes") else seconds_text
        interval = f"{each.low:.3f} to {each.high:.3f}" if each.low is not None and each.low != each.high else ""
        add_row(
            table,
            each.run,
            each.figure,
            show(each.value) if each.value is not None else "",
            show(each.base) if each.base is not None else "",
            f"{each.ratio:.3f}" if each.ratio is not None else "",
            interval,
            each.verdict,
        )
    print_table(table)
    print_line(found.words)
    for warning in found.warnings:
        complain(f"warning: {warning}")
    return DONE
