"""Write predictions for a GPU to a file, before the GPU is measured.

``python -m benchmarks.gpu.predictions [QUESTION …]`` replaces the rows of these questions in
``benchmarks/results/gpu_predictions.csv``, and their choices in ``gpu_choices.json``. The commit of a row is older than
the measurements with which the row is compared. Programs are planned for an H100 with nvFuser's fusions, and do not
run.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import workbench
from workbench.analysis.cost.collective_overlap import costs
from workbench.analysis.cost.machines import H100, Machine
from workbench.analysis.cost.offload_time import exposed_s, hidden_s
from workbench.analysis.memory.reserved_memory import predict_reserved
from workbench.bench import Workbench
from workbench.compiler.api import Plan
from workbench.compiler.interop.devices import copy_bandwidth
from workbench.core.graph import Graph
from workbench.gpu_check.parts import large_layers, launches, optimizers
from workbench.gpu_check.parts.check_part import Figures
from workbench.gpu_check.parts.large_layers import LLAMA_7B
from workbench.gpu_check.parts.launches import CHUNKS, HIDDEN, ROWS, WIDTH
from workbench.gpu_check.parts.questions import CHOICES, LONG_TOKENS, PREDICTIONS, SUBJECTS

HEADS = ("question", "subject", "figure", "predicted", "step", "compared_with", "commit")
"""Columns. ``step`` names the step of `workbench.gpu_check.parts.questions` that measures the figure.

``compared_with`` is the name of the measured figure. Both are empty if the figure is not measured.
"""
_MEMORY = {"peak_bytes": "measured_peak_bytes", "reserved_bytes": "reserved_bytes"}
MEASURED: dict[str, dict[str, str]] = {
    "1": _MEMORY,
    "2": {**_MEMORY, "fits": "trains"},
    "3": {**_MEMORY, "step_s": "step_s"},
    "4": {},
    "5": {},
    "7": {"peak_bytes": "measured_peak_bytes", "hidden_share": "hidden_share"},
}
"""Names of measured figures, by question and by name of the predicted figure.

Question 6 is not in the table: all its figures are measured under their predicted names. For the other questions,
figures that are not in the table are not measured.
"""
CARD_BYTES = 79 << 30
"""Approximate bytes of memory that PyTorch can use on an H100 with 80 GB."""

_LAUNCHES = 6
"""Calls of PyTorch for each chunk of the ranked product."""
_HOST_S, _KERNEL_S = 37e-6, 3.1e-6
"""Host time for each statement, and time of the shortest kernel, in seconds. Both were measured on an H100 on
2026-11-26 (``benchmarks/results``), for `mlp` with 67 statements and widths of 64 and 256.
"""

type Row = tuple[str, str, str, float]
type ChoicesOf = tuple[str, dict[str, str]]
"""A subject and its choices."""


def planned(program: Any, *args: Any, **settings: Any) -> Workbench:
    return workbench.open(program, *args, device="planned", executor="nvfuser", **settings)


def llama_7b(layers: int, sequence: int) -> Workbench:
    return planned("llama", layers=layers, sequence=sequence, **LLAMA_7B)


def open_subject(subject: str) -> Workbench:
    """Plan a program of question 1."""
    program, settings = SUBJECTS[subject]
    return planned(program, **settings)


def memory(question: str, subject: str, bench: Workbench) -> Iterator[Row]:
    plan = bench.plan
    assert plan.reserved is not None, "a planned device is a GPU"
    yield question, subject, "peak_bytes", plan.peak_bytes
    yield question, subject, "reserved_bytes", plan.reserved.reserved_bytes
    yield question, subject, "saved_bytes", plan.saved_bytes


def peaks() -> Iterator[Row]:
    for subject in SUBJECTS:
        yield from memory("1", subject, open_subject(subject))


def beyond_the_card() -> Iterator[Row | ChoicesOf]:
    """Yield rows for two Llamas: the deepest that fits the GPU without choices, and one that is 1.5 times as deep.

    The deeper one has the choices that `Workbench.fit` finds.
    """
    one, two = llama_7b(1, LONG_TOKENS).plan.peak_bytes, llama_7b(2, LONG_TOKENS).plan.peak_bytes
    layers = 1 + (CARD_BYTES - one) // (two - one)
    while not predict_reserved((bench := llama_7b(layers, LONG_TOKENS)).plan.graph, CARD_BYTES).fits:
        layers -= 1
    yield "2", "7B shapes, 16384 tokens, without choices", "layers", layers
    yield from memory("2", f"7B shapes, 16384 tokens, {layers} layers", bench)
    deeper = layers * 3 // 2
    bench = llama_7b(deeper, LONG_TOKENS)
    subject = f"7B shapes, 16384 tokens, {deeper} layers"
    yield "2", f"{subject}, without choices", "peak_bytes", bench.plan.peak_bytes
    found = bench.fit(CARD_BYTES * 95 // 100, reserved=True)
    subject = f"{subject}, reserved memory fit to 95 %"
    yield subject, dict(found.choices)
    yield from memory("2", subject, bench)
    yield "2", subject, "added_s", found.added_s
    for expandable in (False, True):
        fits = predict_reserved(bench.plan.graph, CARD_BYTES, expandable_segments=expandable).fits
        yield "2", subject, f"fits{' with expandable segments' if expandable else ''}", int(fits)


def curve() -> Iterator[Row | ChoicesOf]:
    """Yield the five points of each of three curves of step time over peak: by recomputing, by offloading, by both."""
    for using in (("recompute",), ("offload",), ("recompute", "offload")):
        bench = llama_7b(2, LONG_TOKENS)
        found = bench.curve(points=5, using=using).wait()
        for index, point in enumerate(found.points):
            subject = f"7B shapes, 2 layers, 16384 tokens, {' and '.join(using)}, point {index}"
            yield "3", subject, "peak_bytes", point.peak_bytes
            yield "3", subject, "step_s", point.step_s
            yield subject, dict(point.choices)


def compared(question: str, subject: str, figure: str) -> tuple[str, str]:
    """Return the step that measures a figure, and the measured figure's name. Both are empty if no step measures it."""
    measured = MEASURED[question].get(figure, "") if question in MEASURED else figure
    return (f"{question}: {subject}", measured) if measured else ("", "")


def predict_ranking(machine: Machine) -> Figures:
    """Predict the times of the two variants from a GPU's rates. The result uses the names of the measured figures."""
    product_s = 2 * CHUNKS * ROWS * WIDTH * HIDDEN / machine.flops_per_s["float32"]
    gather_s, copy_s = (2 * 4 * CHUNKS * ROWS * columns / machine.bytes_per_s for columns in (WIDTH, HIDDEN))
    whole_s = gather_s + product_s + 3 * machine.launch_s
    issue_s = CHUNKS * _LAUNCHES * machine.launch_s
    chunked_s = max(issue_s, gather_s, product_s + copy_s)
    return {
        "whole, with syncs_s": whole_s,
        "chunked, with syncs_s": chunked_s,
        # `whole` reads a number of the result, and therefore always waits for the device.
        "whole, without_s": whole_s,
        "chunked, without_s": issue_s,
        "flips": (whole_s < chunked_s) != (whole_s < issue_s),
    }


def predict_size(graph: Graph, machine: Machine) -> Figures:
    """Predict the times of a step. The result uses the names of the measured figures."""
    kernels_s = costs(graph, machine, 1).compute_s
    busy_s = float(np.maximum(kernels_s[kernels_s > 0], _KERNEL_S).sum())
    host_s = int((graph.statements.parent < 0).sum()) * _HOST_S
    return {
        "host_s": host_s,
        "kernels_busy_s": busy_s,
        "step_s": max(host_s, busy_s),
        "launch bound": host_s >= busy_s,
        "as one CUDA graph_s": busy_s,
    }


def predict_hidden(plan: Plan, machine: Machine) -> Figures:
    """Predict the share of transfers that compute hides. The result uses the name of the measured figure.

    If `saved.ahead` is 0, a transfer back to the device starts right before the use of its storage. No compute then
    hides this transfer.
    """
    way_s = plan.counts.get("offloaded_bytes", 0) / copy_bandwidth(plan.device)
    forward_s, backward_s = hidden_s(plan.graph, costs(plan.graph, machine, 1).compute_s, hides=True)
    ahead = int(plan.site_of["saved.ahead"].choice)
    exposed = exposed_s(way_s, (forward_s, backward_s if ahead else 0.0))
    return {"hidden_share": 1 - exposed / (2 * way_s) if way_s else None}


def launch_times() -> Iterator[Row]:
    """Yield rows of host, device and CUDA-graph times by size, and of a ranking of variants with and without syncs."""
    for figure, value in predict_ranking(H100).items():
        yield "6", launches.RANKING, figure, float(value)
    for width in launches.WIDTHS:
        bench = planned("mlp", **launches.settings_of(width))
        for figure, value in predict_size(bench.plan.graph, H100).items():
            yield "6", f"mlp, width {width}", figure, float(value)


def transfers() -> Iterator[Row]:
    """Yield, for two layers with offloaded storages, the peak and the share of transfers that compute hides."""
    for sequence in (4096, LONG_TOKENS):
        for ahead in ("0", "8"):
            bench = large_layers.open_offloaded(llama_7b(2, sequence), ahead)
            subject = f"2 layers, {sequence} tokens, offloaded, {ahead} ahead"
            yield "7", subject, "peak_bytes", bench.plan.peak_bytes
            for figure, value in predict_hidden(bench.plan, H100).items():
                yield "7", subject, figure, value


def depth() -> Iterator[Row]:
    """Yield the number of unique fusions of `residual_chain` for several depths."""
    for layers in (8, 32, 64, 128):
        bench = planned("residual_chain", layers=layers, grad=True)
        yield "4", f"residual_chain, {layers} layers, stock", "unique_fusions", bench.plan.census.unique
        bench.choose({"remat.weight": "0.0"})
        yield "4", f"residual_chain, {layers} layers, weight 0", "unique_fusions", bench.plan.census.unique


def sets() -> Iterator[Row]:
    """Yield the numbers of `set` nodes, fences and compilations of PyTorch's Adam under each policy."""
    bench = planned("torch_adam", **optimizers.SETTINGS)
    for fences in optimizers.FENCES:
        for policy in optimizers.POLICIES:
            plan = bench.plan_under({"copies.policy": policy, "copies.fences": fences})
            for name in ("sets", "fences", "compilations"):
                yield "5", f"torch_adam, {policy}, fences {fences}", name, plan.counts[name]


QUESTIONS = {"1": peaks, "2": beyond_the_card, "3": curve, "4": depth, "5": sets, "6": launch_times, "7": transfers}


def read() -> list[dict[str, str]]:
    with PREDICTIONS.open() as file:
        return list(csv.DictReader(file))


def main(asked: list[str]) -> None:
    """Replace the rows of the named questions. If none is named, replace all rows."""
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    for question in asked or list(QUESTIONS):
        rows, choices = [], {}
        for found in QUESTIONS[question]():
            if len(found) == 2:
                choices[found[0]] = found[1]
            else:
                print(*found, sep=", ", flush=True)
                rows.append((*map(str, found), *compared(*found[:3]), commit))
        store(question, rows, choices)


def store(question: str, rows: list[tuple[str, ...]], choices: dict[str, dict[str, str]]) -> None:
    """Replace the rows and the choices of a question in the files."""
    kept = [tuple(row.values()) for row in read() if row["question"] != question] if PREDICTIONS.exists() else []
    with PREDICTIONS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADS, *sorted([*kept, *rows], key=lambda row: int(row[0]))])
    made = json.loads(CHOICES.read_text()) if CHOICES.exists() else {}
    made = {number: its for number, its in made.items() if number != question} | (
        {question: choices} if choices else {}
    )
    CHOICES.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
