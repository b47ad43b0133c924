"""A part as a process: it executes the part's steps one after another, and stores the results of each step.

``python -m workbench.gpu_check.execute_steps PART CONDITIONS TURN``, started by `workbench.gpu_check.suite`.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.gpu_check.log import Log, record_of
from workbench.gpu_check.part import CheckPart, CheckStep, CheckTurn, Conditions, Figures
from workbench.runs.log import untrusted_files
from workbench.runs.process.worker_process import die_with_parent

AGAIN = 75
"""Exit status if this process can no longer use the device, so that the next step needs a new process."""

LEFT = 76
"""Exit status if the turn has done all of its steps, and the part has more."""

LATE = 77
"""Exit status if the turn has no time for the next step."""

_LOST = ("CUDA error", "CUDA driver error", "device-side assert", "INTERNAL ASSERT")


def execute_turn(part: CheckPart, conditions: Conditions, turn: CheckTurn) -> int:
    """Execute the steps of a turn that are not done yet; return the exit status for the process."""
    log = Log(conditions.folder, part.name)
    known: dict[str, Figures] = {line["step"]: line["figures"] for line in log.lines()}
    left = False
    for step in part.steps(conditions):
        if step.id in known:
            continue
        if time.monotonic() >= turn.until_s:
            return LATE
        if turn.first and not step.first:
            left = True
            continue
        log.begin(step.id)
        line, lost = _execute_step(step, known)
        log.append(line)
        known[step.id] = line["figures"]
        if lost:
            return AGAIN
    return LEFT if left else 0


def _execute_step(step: CheckStep, results: dict[str, Figures]) -> tuple[dict[str, Any], bool]:
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
        step.id, seconds=seconds, timestamp=at, figures=figures, error=untrusted_files.one_line(error)
    ), lost


def main(part: str, conditions: str, turn: str) -> None:
    """Execute a turn of a part, then end the process."""
    die_with_parent()
    given = json.loads(conditions)
    status = execute_turn(
        CheckPart(**json.loads(part)),
        Conditions(**{**given, "folder": Path(given["folder"])}),
        CheckTurn(**json.loads(turn)),
    )
    # Skip the libraries' cleanup at exit, because all results are stored.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
