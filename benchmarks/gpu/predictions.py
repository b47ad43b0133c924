"""Write predictions for a GPU to a file, before the GPU is measured.

``python -m benchmarks.gpu.predictions [--machine H100] [QUESTION …]`` replaces the rows of these questions in
``benchmarks/results/gpu_predictions.csv``, and their choices in ``gpu_choices.json``. The date of a row is older than
the measurements with which the row is compared. Programs are planned with nvFuser's fusions, and do not run. The
questions of `PER_MACHINE` use the memory and rates of one GPU. The rows of the other questions hold for each GPU of its
compute capability.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

import workbench
from workbench.analysis.cost.collective_overlap import costs
from workbench.analysis.cost.machines import MACHINES, Machine
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
from workbench.gpu_check.parts.questions import CARD_BYTES, CHOICES, EVERY_GPU, LONG_TOKENS, PREDICTIONS, SUBJECTS

HEADS = ("question", "machine", "subject", "figure", "predicted", "step", "compared_with", "date")
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
_LAUNCHES = 6
"""Calls of PyTorch for each chunk of the ranked product."""
_HOST_S, _KERNEL_S = 37e-6, 3.1e-6
"""Host time for each statement, and time of the shortest kernel, in seconds. Both were measured on an H100 on
2026-11-26 (``benchmarks/results``), for `mlp` with 67 statements and widths of 64 and 256.
"""

type Row = tuple[str, str, str, float]
type ChoicesOf = tuple[str, dict[str, str]]
"""A subject and its choices."""


def planned(program: Any, *args: Any, machine: Machine | None = None, **settings: Any) -> Workbench:
    rates = {} if machine is None else {"machine": machine.name}
    return workbench.open(program, *args, device="planned", executor="nvfuser", **rates, **settings)


def llama_7b(layers: int, sequence: int, machine: Machine) -> Workbench:
    return planned("llama", machine=machine, layers=layers, sequence=sequence, **LLAMA_7B)


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


def peaks(_: Machine) -> Iterator[Row]:
    for subject in SUBJECTS:
        yield from memory("1", subject, open_subject(subject))


def beyond_the_card(machine: Machine) -> Iterator[Row | ChoicesOf]:
    """Yield rows for two Llamas: the deepest that fits the GPU without choices, and one that is 1.5 times as deep.

    The deeper one has the choices that `Workbench.fit` finds.
    """
    card_bytes = CARD_BYTES[machine.name]
    one, two = (llama_7b(layers, LONG_TOKENS, machine).plan.peak_bytes for layers in (1, 2))
    layers = 1 + (card_bytes - one) // (two - one)
    while not predict_reserved((bench := llama_7b(layers, LONG_TOKENS, machine)).plan.graph, card_bytes).fits:
        layers -= 1
    yield "2", "7B shapes, 16384 tokens, without choices", "layers", layers
    yield from memory("2", f"7B shapes, 16384 tokens, {layers} layers", bench)
    deeper = layers * 3 // 2
    bench = llama_7b(deeper, LONG_TOKENS, machine)
    subject = f"7B shapes, 16384 tokens, {deeper} layers"
    yield "2", f"{subject}, without choices", "peak_bytes", bench.plan.peak_bytes
    found = bench.fit(card_bytes * 95 // 100, reserved=True)
    subject = f"{subject}, reserved memory fit to 95 %"
    yield subject, dict(found.choices)
    yield from memory("2", subject, bench)
    yield "2", subject, "added_s", found.added_s
    for expandable in (False, True):
        fits = predict_reserved(bench.plan.graph, card_bytes, expandable_segments=expandable).fits
        yield "2", subject, f"fits{' with expandable segments' if expandable else ''}", int(fits)


def curve(machine: Machine) -> Iterator[Row | ChoicesOf]:
    """Yield the five points of each of three curves of step time over peak: by recomputing, by offloading, by both."""
    for using in (("recompute",), ("offload",), ("recompute", "offload")):
        bench = llama_7b(2, LONG_TOKENS, machine)
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


def launch_times(machine: Machine) -> Iterator[Row]:
    """Yield rows of host, device and CUDA-graph times by size, and of a ranking of variants with and without syncs."""
    for figure, value in predict_ranking(machine).items():
        yield "6", launches.RANKING, figure, float(value)
    for width in launches.WIDTHS:
        bench = planned("mlp", **launches.settings_of(width))
        for figure, value in predict_size(bench.plan.graph, machine).items():
            yield "6", f"mlp, width {width}", figure, float(value)


def transfers(machine: Machine) -> Iterator[Row]:
    """Yield, for two layers with offloaded storages, the peak and the share of transfers that compute hides."""
    for sequence in (4096, LONG_TOKENS):
        for ahead in ("0", "8"):
            bench = large_layers.open_offloaded(llama_7b(2, sequence, machine), ahead)
            subject = f"2 layers, {sequence} tokens, offloaded, {ahead} ahead"
            yield "7", subject, "peak_bytes", bench.plan.peak_bytes
            for figure, value in predict_hidden(bench.plan, machine).items():
                yield "7", subject, figure, value


def depth(_: Machine) -> Iterator[Row]:
    """Yield the number of unique fusions of `residual_chain` for several depths."""
    for layers in (8, 32, 64, 128):
        bench = planned("residual_chain", layers=layers, grad=True)
        yield "4", f"residual_chain, {layers} layers, stock", "unique_fusions", bench.plan.census.unique
        bench.choose({"remat.weight": "0.0"})
        yield "4", f"residual_chain, {layers} layers, weight 0", "unique_fusions", bench.plan.census.unique


def sets(_: Machine) -> Iterator[Row]:
    """Yield the numbers of `set` nodes, fences and compilations of PyTorch's Adam under each policy."""
    bench = planned("torch_adam", **optimizers.SETTINGS)
    for fences in optimizers.FENCES:
        for policy in optimizers.POLICIES:
            plan = bench.plan_under({"copies.policy": policy, "copies.fences": fences})
            for name in ("sets", "fences", "compilations"):
                yield "5", f"torch_adam, {policy}, fences {fences}", name, plan.counts[name]


QUESTIONS = {"1": peaks, "2": beyond_the_card, "3": curve, "4": depth, "5": sets, "6": launch_times, "7": transfers}


PER_MACHINE = ("2", "3", "6", "7")


def read() -> list[dict[str, str]]:
    with PREDICTIONS.open() as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Replace the rows of the named questions for a machine. If none is named, replace the rows of all questions."""
    parser = argparse.ArgumentParser(description="Write predictions for a GPU to a file, before the GPU is measured.")
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"by default all: {', '.join(QUESTIONS)}")
    parser.add_argument("--machine", choices=CARD_BYTES, default="H100")
    given = parser.parse_args()
    unknown = [question for question in given.questions if question not in QUESTIONS]
    if unknown:
        parser.error(f"there is no question {unknown[0]}; legal: {', '.join(QUESTIONS)}")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    for question in given.questions or list(QUESTIONS):
        machine = given.machine if question in PER_MACHINE else EVERY_GPU
        rows, choices = [], {}
        for found in QUESTIONS[question](MACHINES[given.machine]):
            if len(found) == 2:
                choices[found[0]] = found[1]
            else:
                print(*found, sep=", ", flush=True)
                number, *row = map(str, found)
                rows.append((number, machine, *row, *compared(*found[:3]), today))
        store(question, machine, rows, choices)


def store(question: str, machine: str, rows: list[tuple[str, ...]], choices: dict[str, dict[str, str]]) -> None:
    """Replace the rows and the choices of a question and machine in the files."""
    before = read() if PREDICTIONS.exists() else []
    kept = [tuple(row.values()) for row in before if (row["question"], row["machine"]) != (question, machine)]
    with PREDICTIONS.open("w", newline="") as file:
        ordered = sorted([*kept, *rows], key=lambda row: (int(row[0]), row[1]))
        csv.writer(file, lineterminator="\n").writerows([HEADS, *ordered])
    made = json.loads(CHOICES.read_text()) if CHOICES.exists() else {}
    of_question = {name: its for name, its in made.get(question, {}).items() if name != machine}
    if choices:
        of_question[machine] = choices
    made = {**made, question: of_question} if of_question else {k: v for k, v in made.items() if k != question}
    CHOICES.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
