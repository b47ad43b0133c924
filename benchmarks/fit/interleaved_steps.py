"""Measure interleaved step times of the candidates of `beside_pytorch`, so that other load affects all equally.

All candidates of a model are compiled in one process, because step times from separate processes depend more on the
machine's load than on the candidate. In each turn, each candidate takes one step. The order is random in each turn: if
a candidate always followed similar ones, it could find their code in the processor's caches. The figure of a candidate
is the median CPU time of its step. To compare two candidates, the ratio of their times is computed for each turn; the
figures are the median and the quartiles of these ratios. Peaks are those that `beside_pytorch` measured.

``python -m benchmarks.fit.interleaved_steps FOLDER NAME [--turns 60] [--plot FILE.svg]``; FOLDER is the folder of
`beside_pytorch`. All step times are written to ``turns.json`` in this folder. The plot has a panel for each model in
``turns.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
import torch._functorch.config as functorch

import workbench
from benchmarks.fit.beside_pytorch import OURS, Rows, candidates, picture
from benchmarks.fit.measured_peaks import MODELS, built, step_s
from workbench.runs.measure.accuracy import Stepper

WARM = 4
"""Number of unmeasured steps of each candidate. PyTorch compiles in the first step and adds guards in later steps."""


def stepper_of(name: str, one: dict[str, Any]) -> Stepper:
    """Return a stepper of a candidate. The stepper's first step compiles."""
    model, args = built(name)
    if one["side"] == OURS:
        return Stepper(model, args, {}, workbench.load(one["config"]).jit(model))

    # This function gives each candidate its own code object. If all candidates shared one, Dynamo would search the
    # compiled code of all candidates in each call.
    def call(*args: Any) -> Any:
        return model(*args)

    own = FunctionType(
        call.__code__.replace(co_name=f"call_{one['number']}"), globals(), "call", None, call.__closure__
    )
    return Stepper(model, args, {}, torch.compile(own, dynamic=False))


def in_turn(steppers: list[Stepper], draw: random.Random) -> list[float]:
    """Take one step of each stepper in random order. Return the CPU seconds in the order of `steppers`."""
    order = list(range(len(steppers)))
    draw.shuffle(order)
    taken = {number: step_s(steppers[number]) for number in order}
    return [taken[number] for number in range(len(steppers))]


def main() -> int:
    """Measure all turns, and print the table. Return the exit status."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("folder", type=Path)
    asked.add_argument("name", choices=list(MODELS))
    asked.add_argument("--turns", type=int, default=60)
    asked.add_argument("--plot", type=Path)
    options = asked.parse_args()
    torch.set_num_threads(1)
    measured = Rows(options.folder / "measured.jsonl")
    plans = Rows(options.folder / f"{options.name}.plans.jsonl").of(name=options.name)
    points: list[dict[str, Any]] = []
    steppers: list[Stepper] = []
    budgets = 1 + max(row["number"] for row in measured.of(name=options.name, side="torch.compile"))
    for one in candidates(plans, budgets):
        rows = measured.of(name=options.name, side=one["side"], number=one["number"])
        peaks = [row["measured_bytes"] for row in rows if "measured_bytes" in row]
        if not peaks:
            continue
        # PyTorch reads the budget when the first step compiles.
        functorch.activation_memory_budget = one["budget"]
        stepper = stepper_of(options.name, one)
        for _ in range(WARM):
            step_s(stepper)
        points.append({**one, "measured_bytes": max(peaks)})
        steppers.append(stepper)
        print(f"{one['side']} {one['number']}: compiled", file=sys.stderr, flush=True)
    turns = [in_turn(steppers, random.Random(turn)) for turn in range(options.turns)]
    for point, samples in zip(points, zip(*turns, strict=True), strict=True):
        point |= {"cpu_s": statistics.median(samples), "least_cpu_s": min(samples), "samples_s": samples}
    print(f"{options.name}: {options.turns} turns, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| | peak MB | CPU ms of a step: median | least |\n|---|---|---|---|")
    for point in sorted(points, key=lambda point: point["measured_bytes"]):
        print(
            f"| {point['side']} {point['number']} | {point['measured_bytes'] / 1e6:.3f} | {1e3 * point['cpu_s']:.2f} "
            f"| {1e3 * point['least_cpu_s']:.2f} |"
        )
    ours = [point for point in points if point["side"] == OURS]
    theirs = [point for point in points if point["side"] != OURS]
    below = 0
    for our in ours:
        left = [their for their in theirs if their["measured_bytes"] < our["measured_bytes"]]
        quotients = {
            their["number"]: statistics.quantiles(
                [a / b for a, b in zip(our["samples_s"], their["samples_s"], strict=True)], n=4
            )
            for their in left
        }
        worst = max(quotients.items(), key=lambda each: each[1][1], default=None)
        if worst is None:
            continue
        number, (low, middle, high) = worst
        below += middle > 1
        print(
            f"our step at {our['measured_bytes'] / 1e6:.3f} MB takes {middle:.3f} ({low:.3f} to {high:.3f}) times as "
            f"long as the shortest step of PyTorch with a lower peak, number {number}"
        )
    print(f"{below} of our {len(ours)} points have a higher peak and a longer step than one of PyTorch's {len(theirs)}")
    kept = options.folder / "turns.json"
    results = {**(json.loads(kept.read_text()) if kept.exists() else {}), options.name: points}
    kept.write_text(json.dumps(results, indent=1) + "\n")
    if options.plot is not None:
        options.plot.write_text(picture(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
