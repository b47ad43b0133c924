"""Divide the CPU time of a step with fused regions into regions, PyTorch's ops between them, and the rest.

A region is a fusion that torch.compile compiles. The benchmark measures a model of `measured_peaks` on one thread,
under the stock plan of an executor with regions. Clocks at each statement give the times of regions and ops. Steps of
the plan alternate with steps of the model under `torch.compile`, for comparison.

``python -m benchmarks.fit.region_calls [NAME] [--executor torchcompile_aten] [--scale 1] [--steps 60] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch

import workbench
from benchmarks.fit.measured_peaks import MODELS, built, step_s
from workbench.compiler.driver.statement_timers import StatementClocks
from workbench.runs.measure.accuracy import Stepper


def of_statements(stepper: Stepper, steps: int) -> dict[str, float]:
    """Return the median CPU seconds, over `steps` steps, of the regions of a step and of its other statements."""
    clocks = StatementClocks(stepper.run, time.thread_time_ns)
    clocks.start()
    samples: dict[str, list[float]] = {"regions": [], "other statements": []}
    for _ in range(steps):
        stepper.clear_grads()
        clocks.clear()
        stepper.step()
        sums = dict.fromkeys(samples, 0.0)
        for tick, before, after in zip(clocks.ticks[1:], clocks.times_ns, clocks.times_ns[1:], strict=False):
            if tick.statement >= 0:
                name = clocks.statements[tick.statement].name
                sums["regions" if name.startswith("TorchCompile") else "other statements"] += (after - before) / 1e9
        for kind, seconds in sums.items():
            samples[kind].append(seconds)
    clocks.stop()
    return {kind: statistics.median(each) for kind, each in samples.items()}


def main() -> int:
    """Measure the steps, and print the table. Return the exit status."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("name", nargs="?", choices=list(MODELS), default="llama")
    asked.add_argument("--executor", choices=("torchcompile", "torchcompile_aten"), default="torchcompile")
    asked.add_argument("--scale", type=int, default=1, help="factor of the width and of the sequence length")
    asked.add_argument("--steps", type=int, default=60)
    asked.add_argument("--json", type=Path)
    options = asked.parse_args()
    torch.set_num_threads(1)
    model, args = built(options.name, options.scale)
    config = workbench.open(model, *args, device="cpu", executor=options.executor).config
    model, args = built(options.name, options.scale)
    ours = Stepper(model, args, {}, config.jit(model))
    model, args = built(options.name, options.scale)
    theirs = Stepper(model, args, {}, torch.compile(model, dynamic=False))
    for _ in range(4):
        ours.step()
        theirs.step()
    samples: dict[str, list[float]] = {"ours": [], "torch.compile": []}
    for _ in range(options.steps):
        samples["ours"].append(step_s(ours))
        samples["torch.compile"].append(step_s(theirs))
    steps = {name: statistics.median(each) for name, each in samples.items()}
    statements = of_statements(ours, options.steps)
    rest = steps["ours"] - sum(statements.values())
    found = {"model": options.name, "step_s": steps, "statement_s": statements, "rest_s": rest}
    print(f"{options.name}: CPU ms of a step, the median of {options.steps}")
    for name, seconds in steps.items():
        print(f"  {name:18} {1e3 * seconds:7.2f}")
    print("our step: regions, PyTorch's ops between them, and the rest outside of both traces")
    for name, seconds in (*statements.items(), ("the rest", rest)):
        print(f"  {name:18} {1e3 * seconds:7.2f}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
