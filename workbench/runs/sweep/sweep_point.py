"""One point of a sweep as a process: opens the program, makes the choices, runs it, and prints one line of JSON.

`workbench.runs.sweep.sweep` executes ``python -m workbench.runs.sweep.sweep_point SPEC``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from workbench.errors import WorkbenchError
from workbench.runs.process import worker_process


def main(spec: dict[str, Any]) -> None:
    """Run the point that `spec` describes, and print its outcome as a line of JSON."""
    worker_process.die_with_parent()
    # Send the output of programs and compilers to standard error, because the parent reads the result from standard
    # output.
    report_fd = os.dup(1)
    os.dup2(2, 1)
    try:
        outcome = _outcome(spec)
    except WorkbenchError as error:
        outcome = {"error": str(error)}
    os.write(report_fd, json.dumps(outcome).encode() + b"\n")


def _outcome(spec: dict[str, Any]) -> dict[str, Any]:
    import workbench as wb
    from workbench.runs.process.request import RunOptions

    bench = wb.open(spec["program"], device=spec["device"], executor=spec["executor"], settings=spec["settings"])
    if spec["choices"]:
        bench.choose(spec["choices"])
    options = RunOptions(samples=10, sampling_s=5.0, clocks=False, check_accuracy=False, cold=True)
    run = bench.run(wait=True, options=options)
    figures = {
        "compile_s": run.compile_s,
        "step_s": run.step_s,
        "measured_peak_bytes": run.memory["measured_peak_bytes"],
        "fusions": bench.plan.census.count,
        "fusions_unique": bench.plan.census.unique,
    }
    return {
        "error": run.error,
        "figures": {name: value for name, value in figures.items() if value is not None},
        "stages": run.stages,
        "run_dir": str(run.run_dir),
    }


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
