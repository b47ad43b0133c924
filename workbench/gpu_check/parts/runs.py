"""Common code of the parts: run a program under choices and return figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import workbench
from workbench.errors import RunError
from workbench.gpu_check.parts import time_spent
from workbench.gpu_check.parts.check_part import WRONG, Conditions, Figures
from workbench.runs.process.request import RunOptions

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.runs.process.follow_run import Run

MOST_OFF_SHARE = 0.03
"""Maximum relative error of a predicted peak."""
LEAST_ATTRIBUTED_SHARE = 0.95
"""Minimum share of the compile time that must be attributed to stages and fusions."""

QUICK = RunOptions(samples=10, sampling_s=5.0, clocks=False, check_accuracy=False)


def open_program(
    conditions: Conditions, program: str, choices: Mapping[str, str] | None = None, **settings: Any
) -> Workbench:
    """Open a program on the device of the check, under choices."""
    return _open(program, conditions.device, conditions.executor, choices, settings)


def _open(
    program: str, device: str, executor: str, choices: Mapping[str, str] | None, settings: Mapping[str, Any]
) -> Workbench:
    with time_spent.timed(time_spent.OPENING):
        bench = workbench.open(program, device=device, executor=executor, settings=settings)
        if choices:
            bench.choose(choices)
    return bench


def open_planned(
    conditions: Conditions, program: str, choices: Mapping[str, str] | None = None, **settings: Any
) -> Workbench | None:
    """Open a program on the check's device or, in a rehearsal, for a planned GPU with nvFuser.

    Return None in a rehearsal if nvFuser is not installed.
    """
    from workbench.core.executor import why_no_nvfuser

    if not conditions.rehearse:
        return open_program(conditions, program, choices, **settings)
    if why_no_nvfuser():
        return None
    return _open(program, "planned", "nvfuser", choices, settings)


def run_to_end(bench: Workbench, options: RunOptions, variants: Mapping[str, Any] | None = None) -> Run:
    """Run a program and return the run after its end.

    Raises
    ------
    RunError
        If the run failed.
    """
    run = finish_run(bench, options, variants)
    if run.state != "done":
        raise RunError(f"{run.error}; {run.run_dir}")
    return run


def finish_run(bench: Workbench, options: RunOptions, variants: Mapping[str, Any] | None = None) -> Run:
    """Run a program and return the run after its end, whether it is done or has failed."""
    run = bench.run(wait=True, options=options, against=variants)
    time_spent.add_run(run)
    return run


def memory_of(run: Run) -> Figures:
    """Return the predicted and measured peak, and the relative error of the prediction."""
    predicted, measured = run.memory["predicted_peak_bytes"], run.memory["measured_peak_bytes"]
    off = None if not predicted or not measured else predicted / measured - 1
    return {"predicted_peak_bytes": predicted, "measured_peak_bytes": measured, "off_share": off}


def fault_of(run: Run, *, most_off_share: float = MOST_OFF_SHARE) -> Figures:
    """Return an entry ``wrong`` with reasons if the results, the peak or attributed compile times are not as required.

    If all of them are as required, return an empty dict.
    """
    found = []
    if not run.ok:
        found.append(str(run.error))
    off = memory_of(run)["off_share"]
    if off is not None and abs(off) > most_off_share:
        found.append(f"the predicted peak is {off:+.1%} off, {most_off_share:.0%} allowed")
    if run.compile_attributed is not None and run.compile_attributed < LEAST_ATTRIBUTED_SHARE:
        found.append(
            f"{run.compile_attributed:.1%} of the compile time is attributed, {LEAST_ATTRIBUTED_SHARE:.0%} wanted"
        )
    return {WRONG: "; ".join(found)} if found else {}
