"""Compare the time to open each model of the zoo with its first step under ``torch.compile(backend="aot_eager")``.

Times are CPU seconds of one thread. A new process makes each measurement, without imports that each process needs.
Each process begins with an empty cache of captured programs. The result is one row per model and, at the end, the
distribution of the ratios. A row also has the number of graphs that Dynamo makes. A step without graphs compiles
nothing, and is as fast as in eager PyTorch.

``python -m benchmarks.opening.zoo_beside_compile [--only NAME ...] [--recurrent] [--csv FILE]``
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters

import workbench
from tests.models import zoo
from tests.models.table import KIND_OF
from workbench.runs.measure import accuracy
from workbench.util.disk_cache import CAPTURES

LIMIT_S = 600
"""Limit of a measurement in elapsed seconds."""
WAYS = ("workbench", "aot_eager")
IMPORTED = [
    *("tests.models.zoo", "transformers", "torchvision"),
    *("torch._inductor.pattern_matcher", "torch.export._trace", "torch._dynamo.repro.after_dynamo"),
    *("workbench.compiler.api", "workbench.bench.open_bench", "workbench.levers.saved", "workbench.levers.waits.lever"),
]
"""Modules that are imported before the measurement: libraries, and the modules that each way imports at first use."""


def _measure(name: str, way: str, path: Path, recurrent: bool) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ[CAPTURES.variable] = "off"
    program, args, kwargs = zoo.build(name)
    begun_s = time.process_time()
    try:
        if way == "workbench":
            workbench.open(program, *args, device="cpu", **kwargs)
        else:
            torch._dynamo.config.allow_rnn = recurrent
            compiled = torch.compile(program, backend="aot_eager")
            accuracy.Stepper(program, args, kwargs, compiled).step()
    except Exception as error:  # noqa: BLE001 - an error is the result for this model
        path.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}))
    else:
        cpu_s = time.process_time() - begun_s
        path.write_text(json.dumps({"cpu_s": cpu_s, "graphs": counters["stats"]["unique_graphs"]}))


def measured(name: str, way: str, recurrent: bool) -> dict[str, Any]:
    """Measure one model in a new process. Return its CPU seconds, or the error."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "point.json"
        process = context.Process(target=_measure, args=(name, way, path, recurrent))
        process.start()
        process.join(LIMIT_S)
        if process.is_alive():
            process.kill()
        process.join()
        return json.loads(path.read_text()) if path.exists() else {"error": f"ended with {process.exitcode}"}


def main() -> None:
    """Measure the models in turns, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(zoo.MODELS), metavar="NAME", help="models to measure")
    parser.add_argument("--recurrent", action="store_true", help="let Dynamo capture layers such as torch.nn.LSTM")
    parser.add_argument("--csv", type=Path, help="where to write the rows")
    asked = parser.parse_args()
    rows, ratios, graphless = [], [], 0
    for name in asked.only:
        points = {way: measured(name, way, asked.recurrent) for way in WAYS}
        times = [points[way].get("cpu_s") for way in WAYS]
        ratio = times[0] / times[1] if all(times) else None
        errors = "; ".join(f"{way}: {points[way]['error']}" for way in WAYS if "error" in points[way])
        graphs = points["aot_eager"].get("graphs")
        shown = [number and round(number, 3) for number in (*times, ratio)]
        rows.append([name, KIND_OF[name], *shown, graphs, errors])
        graphless += graphs == 0
        if ratio and graphs:
            ratios.append(ratio)
        print(*rows[-1], flush=True)
    if len(ratios) > 1:
        above = sum(ratio > 1.5 for ratio in ratios)
        tenths = [round(cut, 2) for cut in statistics.quantiles(ratios, n=10)]
        middle = statistics.median(ratios)
        print(f"{len(ratios)} models with graphs: median {middle:.2f}, tenths {tenths}, {above} above 1.5")
    print(f"{graphless} models without a graph, which this step does not compile")
    if asked.csv:
        with asked.csv.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["model", "kind", "workbench_cpu_s", "aot_eager_cpu_s", "ratio", "graphs", "error"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
