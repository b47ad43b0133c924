"""Compare `fit` with PyTorch's `activation_memory_budget` by measured peaks and CPU times of modules on the CPU.

For each model of `measured_peaks`, `fit` makes plans with limits from the least peak to the stock peak. torch.compile
compiles their fusions. PyTorch compiles the same module with budgets from 0 to 1. Plans do not offload, because the
measurement would leave out offloaded memory. Each measurement runs in a new process with one thread, and is ended after
``--limit`` seconds. A round measures each plan and each budget once, in random order, so that other load of the machine
affects `fit` and PyTorch equally. The compared figure is the median CPU time of a step over all rounds.

Each row is written as soon as it is measured. The same command with the same folder measures only missing rows. A
folder is for one executor and one scale. ``--scale`` multiplies the width and the sequence length. Scales 1 and 4 have
the same number of tokens.

``python -m benchmarks.fit.beside_pytorch FOLDER [--executor torchcompile_aten] [--scale 1] [--budgets 8] [--rounds 3]
[--limit 300] [--only NAME] [--plan-s 600] [--json FILE] [--plot FILE.svg]``
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import workbench
from benchmarks.fit.measured_peaks import LIMIT_S, MODELS, TOLERANCE, built, measured
from workbench.bench.fit.fitter import Fitter
from workbench.bench.session.machine_choice import of_device
from workbench.errors import PlanError
from workbench.runs.measure import interleaved_timing
from workbench.ui.html_pages.notebook_tables import LinePlot

OURS, THEIRS = "fit", "torch.compile"
STOCK = "stock"
PREPARED = ["thunder", "transformers", "torch._dynamo", "workbench.runs.measure.memory_meter"]


class PlanTimeUp(Exception):
    """Making plans has reached its time limit."""


class Rows:
    """The rows of a JSON Lines file. Added rows are written to the file.

    Parameters
    ----------
    path : Path
        The file. Lines that are not JSON, such as a last line that was cut off, are skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.all: list[dict[str, Any]] = []
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                self.all.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        path.write_text("".join(f"{json.dumps(row)}\n" for row in self.all))

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row, and return after it has been written to disk."""
        self.all.append(dict(row))
        with self._path.open("a") as file:
            file.write(f"{json.dumps(row)}\n")
            file.flush()
            os.fsync(file.fileno())

    def of(self, **wanted: Any) -> list[dict[str, Any]]:
        """Return the rows that have all the wanted entries."""
        return [row for row in self.all if all(row.get(key) == value for key, value in wanted.items())]


def planned(name: str, budgets: int, folder: Path, limit_s: float, executor: str, scale: int) -> list[dict[str, Any]]:
    """Make the stock plan of a model, and fit `budgets` - 1 limits below the stock peak. Return a row for each plan.

    Each plan's config is written to `folder`.
    """
    rows = Rows(folder / f"{name}.plans.jsonl")
    if rows.of(name="end"):
        return rows.of(name=name)
    ends = time.monotonic() + limit_s

    def go_on() -> None:
        if time.monotonic() > ends:
            raise PlanTimeUp

    bench = workbench.open(*_split(built(name, scale)), device="cpu", executor=executor)
    fitter = Fitter(bench, bench._captured, of_device(bench), go_on, using=("recompute",))
    if not rows.of(name=name, number=STOCK):
        config = str(bench.export(folder / f"{name}-stock.py", overwrite=True))
        row = {"name": name, "number": STOCK, "stated_bytes": bench.plan.peak_bytes, "recomputed": 0, "config": config}
        rows.add({**row, "predicted_bytes": bench.plan.peak_bytes, "proven": bool(bench.plan.proof.proven)})
    try:
        least, stock = fitter.lowest_peak()[1].peak_bytes, bench.plan.peak_bytes
        for number in range(budgets - 1):
            if rows.of(name=name, number=number):
                continue
            limit = least + round((stock - least) * number / (budgets - 1))
            point, plan = fitter.fit_peak(limit)
            bench.choose_found(fitter.choices(point))
            config = str(bench.export(folder / f"{name}-{number}.py", overwrite=True))
            row = {"name": name, "number": number, "stated_bytes": limit, "recomputed": len(point.options)}
            row |= {"predicted_bytes": plan.peak_bytes, "proven": bool(bench.plan.proof.proven)}
            rows.add({**row, "config": config})
            print(f"{name}: limit {limit / 1e6:.3f} MB, peak {plan.peak_bytes / 1e6:.3f} MB", flush=True)
    except (PlanTimeUp, PlanError) as error:
        print(f"{name}: no further plans: {str(error) or f'they took over {limit_s:.0f} s'}", flush=True)
    rows.add({"name": "end"})
    return rows.of(name=name)


def _split(given: tuple[Any, tuple[Any, ...]]) -> tuple[Any, ...]:
    return given[0], *given[1]


def candidates(plans: Iterable[Mapping[str, Any]], budgets: int) -> Iterator[dict[str, Any]]:
    """Yield the candidates for one model: the plans of `fit`, and the budgets of PyTorch."""
    for plan in plans:
        yield {"side": OURS, "number": plan["number"], "config": plan["config"], "budget": 1.0}
    for number in range(budgets):
        yield {"side": THEIRS, "number": number, "config": None, "budget": number / (budgets - 1)}


def summed(rows: Rows, name: str, plans: Iterable[Mapping[str, Any]], budgets: int) -> list[dict[str, Any]]:
    """Return a point for each measured candidate: peak, median CPU time and its interval, and largest error."""
    of_plan = {plan["number"]: plan for plan in plans}
    points = []
    for asked in candidates(of_plan.values(), budgets):
        found = [row for row in rows.of(name=name, side=asked["side"], number=asked["number"]) if "error" not in row]
        if not found:
            continue
        step = interleaved_timing.estimate([sample for row in found for sample in row["cpu_samples_s"]])
        point = {
            "side": asked["side"], "number": asked["number"], "rounds": len(found),
            "measured_bytes": max(row["measured_bytes"] for row in found), "samples": step.samples,
            "cpu_s": step.median, "cpu_low_s": step.low, "cpu_high_s": step.high,
            "worst": max(row["worst"] for row in found),
        }  # fmt: skip
        if asked["side"] == OURS:
            plan = of_plan[asked["number"]]
            point |= {key: plan[key] for key in ("stated_bytes", "predicted_bytes", "recomputed", "proven")}
        else:
            point["budget"] = asked["budget"]
        points.append(point)
    return sorted(points, key=lambda point: point["measured_bytes"])


def beaten(points: Iterable[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], Mapping[str, Any], bool]]:
    """Return a tuple for each pair of points in which PyTorch's peak is lower and its step shorter than those of `fit`.

    A tuple has PyTorch's point, the point of `fit`, and whether the intervals of their step times are disjoint.
    """
    points = list(points)
    return [
        (their, our, their["cpu_high_s"] < our["cpu_low_s"])
        for their in points
        for our in points
        if (their["side"], our["side"]) == (THEIRS, OURS)
        and their["measured_bytes"] < our["measured_bytes"]
        and their["cpu_s"] < our["cpu_s"]
    ]


def table(name: str, points: Iterable[Mapping[str, Any]]) -> str:
    """Return a Markdown table of a model's points, sorted from the lowest peak."""
    lines = [
        f"\n{name}",
        "| | stated | measured MB | CPU ms of a step | samples | worst error |",
        "|---|---|---|---|---|---|",
    ]
    for point in points:
        stated = (
            f"{point['stated_bytes'] / 1e6:.3f} MB, {point['recomputed']} recomputed"
            if point["side"] == OURS
            else f"budget {point['budget']:.2f}"
        )
        lines.append(
            f"| {point['side']} | {stated} | {point['measured_bytes'] / 1e6:.3f} | {1e3 * point['cpu_s']:.2f} "
            f"({1e3 * point['cpu_low_s']:.2f} to {1e3 * point['cpu_high_s']:.2f}) | {point['samples']} "
            f"| {point['worst']:.1e} |"
        )
    return "\n".join(lines)


def picture(results: Mapping[str, list[dict[str, Any]]]) -> str:
    """Return an SVG plot of CPU time of a step over measured peak, with a panel for each model."""
    panels = []
    for name, points in results.items():
        lines = {
            side: {p["measured_bytes"] / 1e6: 1e3 * p["cpu_s"] for p in points if p["side"] == side}
            for side in (OURS, THEIRS)
        }
        panels.append(LinePlot(lines, title=f"{name}, measured on the CPU", x="peak, MB", y="CPU time of a step, ms"))
    width, height = panels[0].width, panels[0].height
    inner = "".join(
        re.sub(r"^<svg ", f'<svg y="{number * height}" ', panel._repr_svg_()) for number, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height * len(panels)}" width="{width}" '
        f'height="{height * len(panels)}">{inner}</svg>\n'
    )


def main() -> int:
    """Measure missing rows, and print a table for each model. Return the exit status."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("folder", type=Path)
    asked.add_argument("--budgets", type=int, default=8)
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--limit", type=float, default=LIMIT_S)
    asked.add_argument("--plan-s", type=float, default=600.0)
    asked.add_argument("--only", choices=list(MODELS))
    asked.add_argument("--executor", choices=("torchcompile", "torchcompile_aten"), default="torchcompile_aten")
    asked.add_argument("--scale", type=int, default=1)
    asked.add_argument("--json", type=Path)
    asked.add_argument("--plot", type=Path)
    options = asked.parse_args()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    multiprocessing.get_context("forkserver").set_forkserver_preload(PREPARED)
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = Rows(options.folder / "measured.jsonl")
    names = [options.only] if options.only else list(MODELS)
    how = (options.budgets, options.folder, options.plan_s, options.executor, options.scale)
    plans = {name: planned(name, *how) for name in names}
    for turn in range(options.rounds):
        left = [(name, one) for name in names for one in candidates(plans[name], options.budgets)]
        random.Random(turn).shuffle(left)
        for name, one in left:
            which = {"name": name, "side": one["side"], "number": one["number"], "round": turn}
            if rows.of(**which):
                continue
            found = measured(name, one["config"], one["budget"], options.limit, options.scale)
            rows.add({**which, **found})
            told = found.get("error") or f"{found['measured_bytes'] / 1e6:.3f} MB, {1e3 * found['cpu_step_s']:.2f} ms"
            print(f"round {turn}, {name}, {one['side']} {one['number']}: {told}", flush=True)
    results = {name: summed(rows, name, plans[name], options.budgets) for name in names}
    wrong = 0
    for name, points in results.items():
        print(table(name, points))
        for their, our, clear in beaten(points):
            print(
                f"PyTorch's point at budget {their['budget']:.2f} has a lower peak and a shorter step than ours at "
                f"{our['measured_bytes'] / 1e6:.3f} MB{'' if clear else ', within the noise'}"
            )
        wrong += sum(point["worst"] > TOLERANCE for point in points if point["side"] == OURS)
    for row in (row for row in rows.all if "error" in row):
        print(f"NOT MEASURED: {row['name']}, {row['side']} {row['number']}, round {row['round']}: {row['error']}")
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    if options.plot is not None:
        options.plot.write_text(picture(results))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
