"""`gpu-check`: run all checks and measurements that need a GPU."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console

from workbench.cli.options import JsonOption
from workbench.cli.output import add_row, new_table, print_json, print_line, print_table
from workbench.cli.statuses import DONE, FAILED


def gpu_check(
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", metavar="M", help="Time limit in minutes; by default 40.", min=0.1),
    ] = None,
    slot: Annotated[
        float | None,
        typer.Option(
            "--slot",
            metavar="MINUTES",
            help="Run only the checks of the queue that have no committed result, each for at most 90 seconds, in this "
            "many minutes from the start of the command.",
            min=0.1,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder for the results; steps with a result in it are not repeated."
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="PART", help="Run only this part; repeat for more.")
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Run all parts without a GPU: small programs on the CPU, or plans only.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Repeat steps that failed or gave wrong results.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Run all checks that need a GPU, the most useful ones first, until the time is up.

    The same command continues an unfinished check.
    """
    from workbench.errors import ChoiceError
    from workbench.gpu_check import suite
    from workbench.summary import human_seconds

    if slot is not None:
        if minutes is not None or only:
            raise ChoiceError("--slot MINUTES is given without --minutes and --only: it limits the time of the queue")
        return _ask_questions(slot, out, rehearse=rehearse, retry=retry, as_json=as_json)
    minutes = 40.0 if minutes is None else minutes
    parts = suite.choose_parts(only or [])
    folder = out or Path("gpu-check-rehearsal" if rehearse else "gpu-check")
    # The next line imports PyTorch. Share its bytecode with the processes that run the parts.
    with suite.share_bytecode():
        suite.conditions_of(folder, rehearse=rehearse)
        console = Console(stderr=True)
        if not as_json:
            elsewhere = suite.latest_recorded(rehearse=rehearse)
            table = new_table("part", "what it does", f"took elsewhere ({elsewhere.machine})" if elsewhere else "took")
            for part in parts:
                seconds = elsewhere.seconds.get(part.name) if elsewhere else None
                add_row(table, part.name, part.does, "not run yet" if seconds is None else human_seconds(seconds))
            print_table(table)
            print_line(
                f"{minutes:g} minutes at most; {folder} has the results of each step; to continue, repeat the command"
            )
        with console.status("starting") as status:
            result = suite.run_check(
                folder,
                minutes=minutes,
                only=only or [],
                rehearse=rehearse,
                retry=retry,
                on_progress=None if as_json else lambda progress: status.update(suite.progress_text(progress)),
            )
    right = suite.is_all_right(result)
    if as_json:
        print_json({"ok": right, "out": str(folder), **result})
        return DONE if right else FAILED
    table = new_table("part", "state", "steps", "not right", "took")
    for outcome in result["parts"].values():
        wrong = suite.count_wrong(outcome)
        took = human_seconds(outcome["seconds"]) if outcome["steps"] else ""
        add_row(table, outcome["title"], outcome["state"], str(len(outcome["steps"])), str(wrong), took)
    print_table(table)
    _print_wrong(result, folder)
    return DONE if right else FAILED


def _ask_questions(minutes: float, out: Path | None, *, rehearse: bool, retry: bool, as_json: bool) -> int:
    from workbench.gpu_check import suite
    from workbench.gpu_check.page import count_by_question, spent_text

    folder = out or Path("gpu-slot-rehearsal" if rehearse else "gpu-slot")
    with suite.share_bytecode(), Console(stderr=True).status("starting") as status:
        result = suite.run_slot(
            folder,
            minutes,
            rehearse=rehearse,
            retry=retry,
            # The slot began when this process started. Since then, imports have taken some seconds.
            begun_s=time.monotonic() - (time.time() - psutil.Process().create_time()),
            on_progress=None if as_json else lambda progress: status.update(suite.progress_text(progress)),
        )
    right = suite.is_all_right(result)
    if as_json:
        print_json({"ok": right, "out": str(folder), **result})
        return DONE if right else FAILED
    table = new_table("question", "steps answered", "not right", "left")
    for question, answered, wrong, left in count_by_question(result):
        add_row(table, question, str(answered), str(wrong), str(left))
    print_table(table)
    print_line(spent_text(result))
    _print_wrong(result, folder)
    return DONE if right else FAILED


def _print_wrong(result: dict[str, Any], folder: Path) -> None:
    from workbench.gpu_check import suite

    for outcome in result["parts"].values():
        for line in outcome["steps"]:
            if not suite.is_right(line):
                print_line(f"{outcome['title']}, {line['step']}: {line['error'] or line['figures'][suite.WRONG]}")
    print_line(f"page: {folder / suite.PAGE_FILE}")
