"""The process of a part: execute the part's steps one after another, and store the results of each step.

`workbench.gpu_check.suite` starts it as ``python -m workbench.gpu_check.execute_steps PART CONDITIONS TURN
REQUESTED_S``. REQUESTED_S is the time of this start, by `time.monotonic`.
"""

from __future__ import annotations

import time

_STARTED_S = time.monotonic()

import datetime  # noqa: E402  # the imports below are timed
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Iterable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from workbench.errors import WorkbenchError  # noqa: E402
from workbench.gpu_check.log import Log, record_of  # noqa: E402
from workbench.gpu_check.parts import time_spent  # noqa: E402
from workbench.gpu_check.parts.check_part import CheckPart, CheckStep, CheckTurn, Conditions, Figures  # noqa: E402
from workbench.runs.log import untrusted_files  # noqa: E402
from workbench.runs.process.worker_process import die_with_parent  # noqa: E402

AGAIN = 75
"""Exit status if this process can no longer use the device, so that the next step needs a new process."""

LEFT = 76
"""Exit status if all steps of the turn are done, but the part has further steps."""

LATE = 77
"""Exit status if the turn's time was over, or too short for the time limit of a step that is not done."""

_LOST = ("CUDA error", "CUDA driver error", "device-side assert", "INTERNAL ASSERT")


def execute_turn(part: CheckPart, conditions: Conditions, turn: CheckTurn, requested_s: float) -> int:
    """Execute the steps of a turn that are not done yet; return the exit status for the process.

    The process was requested at `requested_s`, by `time.monotonic`.
    """
    log = Log(conditions.folder, part.name)
    known: dict[str, Figures] = {**log.answers(), **{line["step"]: line["figures"] for line in log.lines()}}
    steps: Iterable[CheckStep] = part.steps(conditions)
    if part.in_slot:
        steps = list(steps)
        log.note_queue([step.id for step in steps])
    left = late = False
    # The first step of a process is also charged with the time since the process was requested.
    since_s: float | None = requested_s
    time_spent.add(time_spent.START, _STARTED_S - requested_s)
    for step in steps:
        if step.id in known:
            continue
        limit_s = part.step_limit_s if step.limit_s is None else step.limit_s
        if part.in_slot and time.monotonic() + limit_s > turn.until_s:
            # Go on, because a later step may have a shorter limit.
            late = True
            continue
        if time.monotonic() >= turn.until_s:
            return LATE
        if turn.first and not step.first:
            left = True
            continue
        if since_s is None:
            since_s = time.monotonic()
        else:
            time_spent.add(time_spent.IMPORTS, time.monotonic() - _STARTED_S)
        log.begin(step.id, limit_s)
        line, lost = _execute_step(step, known, since_s)
        log.append(line)
        known[step.id] = line["figures"]
        since_s = None
        if lost:
            return AGAIN
    return LATE if late else LEFT if left else 0


def _execute_step(step: CheckStep, results: dict[str, Figures], since_s: float) -> tuple[dict[str, Any], bool]:
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    begun_s = time.perf_counter()
    figures: Figures = {}
    error, lost = "", False
    try:
        figures = untrusted_files.finite(step.act(results))
    except WorkbenchError as refusal:
        error = str(refusal)
    except Exception as failure:  # noqa: BLE001 - every error of a step on a new machine is a result
        error = f"{type(failure).__name__}: {failure}"
        lost = any(sign in error for sign in _LOST)
        traceback.print_exc()
    seconds = time.perf_counter() - begun_s
    return record_of(
        step.id,
        seconds=seconds,
        timestamp=at,
        figures=figures,
        error=untrusted_files.one_line(error),
        spent=time_spent.take(time.monotonic() - since_s),
    ), lost


def main(part: str, conditions: str, turn: str, requested_s: str) -> None:
    """Execute a turn of a part, then end the process."""
    die_with_parent()
    given = json.loads(conditions)
    status = execute_turn(
        CheckPart(**json.loads(part)),
        Conditions(**{**given, "folder": Path(given["folder"])}),
        CheckTurn(**json.loads(turn)),
        float(requested_s),
    )
    # Skip the libraries' cleanup at exit, because all results are stored.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
