"""`compare`: compare plans and runs with one of them, the base."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from workbench.cli.options import JsonOption
from workbench.cli.output import add_row, complain, new_table, print_json, print_line, print_table, seconds_text
from workbench.cli.statuses import DONE

if TYPE_CHECKING:
    from workbench.bench.report.comparison import SideBySide
    from workbench.runs.sweep.compare import Comparison


def compare(
    subjects: Annotated[
        list[str],
        typer.Argument(
            metavar="SUBJECT...", help="Run folders or names of runs, saved plans (NAME.plan.json), configs (NAME.py)."
        ),
    ],
    base: Annotated[
        str,
        typer.Option(
            "--base", metavar="NAME", help="Subject with which all other subjects are compared; by default the first."
        ),
    ] = "",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write one HTML page with the statements aligned.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite also a file that is not a comparison.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Compare runs, saved plans and configs with one of them: figures, sites and statements that differ.

    Each difference between runs is printed with a verdict, such as faster or noise, and its interval if there is one.
    """
    from workbench.runs.process import run_store

    if not base and html is None and not any(_is_plan(subject) for subject in subjects):
        opened = [run_store.open(run) for run in subjects]
        from workbench.runs.sweep.compare import compare_runs as compare_runs

        runs = compare_runs(*opened)
        if as_json:
            print_json(runs.to_json())
        else:
            _print_runs(runs)
        return DONE
    from workbench.bench.open_comparison import compare as compare_all

    found = compare_all(*subjects, base=base)
    written = found.write(html, overwrite=force) if html is not None else None
    if as_json:
        runs_json = found.runs.to_json() if found.runs is not None else None
        page = {"html": str(written)} if written is not None else {}
        print_json({**found.to_json(), "runs": runs_json, **page})
        return DONE
    _print_comparison(found)
    if found.runs is not None:
        _print_runs(found.runs)
    if written is not None:
        print_line(f"page: {written}")
    return DONE


def _is_plan(subject: str) -> bool:
    return subject.endswith((".plan.json", ".py"))


def _print_comparison(comparison: SideBySide) -> None:
    for title, (heads, *rows) in comparison.tables().items():
        print_line(title)
        table = new_table(*heads)
        for row in rows:
            add_row(table, *row)
        print_table(table)
    for note in comparison.notes:
        complain(f"warning: {note}")


def _print_runs(comparison: Comparison) -> None:
    from workbench.summary import human_bytes

    table = new_table("run", "figure", "value", f"of {comparison.base}", "ratio", "95 % interval", "verdict")
    for each in comparison.differences:
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
    print_line(comparison.words)
    for warning in comparison.warnings:
        complain(f"warning: {warning}")
