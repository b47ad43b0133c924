"""Write down what is predicted for a GPU before anything is measured on it.

``python -m benchmarks.gpu_predictions [QUESTION …]`` rewrites these questions' rows of
``benchmarks/results/gpu_predictions.csv``. The commit of a row is older than any measurement that it is compared with.
Programs are planned for an H100 with nvFuser's fusions; nothing runs.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import workbench
from workbench.analysis.memory.reserved_memory import predict_reserved
from workbench.bench import Workbench
from workbench.gpu_check.large_layers import LLAMA_7B

PATH = Path(__file__).parent / "results" / "gpu_predictions.csv"
HEADS = ("question", "subject", "figure", "predicted", "commit")
CARD_BYTES = 79 << 30
"""Memory of an H100 of 80 GB that is free for PyTorch, about."""

type Row = tuple[str, str, str, float]


def planned(program: Any, *args: Any, **settings: Any) -> Workbench:
    return workbench.open(program, *args, device="planned", executor="nvfuser", **settings)


def llama_7b(layers: int, sequence: int) -> Workbench:
    return planned("llama", layers=layers, sequence=sequence, **LLAMA_7B)


PEAKS: dict[str, Callable[[], Workbench]] = {
    "mlp": lambda: planned("mlp"),
    **{
        f"residual_chain, {layers} layers": lambda layers=layers: planned("residual_chain", layers=layers, grad=True)
        for layers in (1, 2, 3, 4)
    },
    "llama": lambda: planned("llama"),
    "7B shapes, 1 layer, 4096 tokens": lambda: llama_7b(1, 4096),
    "7B shapes, 2 layers, 4096 tokens": lambda: llama_7b(2, 4096),
    "GPT-2, 2 layers": lambda: planned(f"{__file__}:gpt2"),
    "ResNet-18": lambda: planned(f"{__file__}:resnet18"),
}


def gpt2() -> Any:
    """Hugging Face's GPT-2 in its published width, with two layers."""
    import torch
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=2)).train()
    ids = torch.randint(0, 50257, (4, 512))
    return model, (), {"input_ids": ids, "labels": ids}


def resnet18() -> Any:
    """torchvision's ResNet-18 with random weights, and a loss."""
    import torch
    import torchvision

    model = torch.nn.Sequential(torchvision.models.resnet18(), torch.nn.LogSoftmax(-1))
    return model.train(), (torch.randn(16, 3, 224, 224),)


def memory(question: str, subject: str, bench: Workbench) -> Iterator[Row]:
    plan = bench.plan
    assert plan.reserved is not None, "a planned device is a GPU"
    yield question, subject, "peak_bytes", plan.peak_bytes
    yield question, subject, "reserved_bytes", plan.reserved.reserved_bytes
    yield question, subject, "saved_bytes", plan.saved_bytes


def peaks() -> Iterator[Row]:
    for subject, opened in PEAKS.items():
        yield from memory("1", subject, opened())


def beyond_the_card() -> Iterator[Row]:
    """The deepest stack that fits without choices, and the choices for one that is half as deep again."""
    one, two = llama_7b(1, 16384).plan.peak_bytes, llama_7b(2, 16384).plan.peak_bytes
    layers = 1 + (CARD_BYTES - one) // (two - one)
    while not predict_reserved((bench := llama_7b(layers, 16384)).plan.graph, CARD_BYTES).fits:
        layers -= 1
    yield "2", "7B shapes, 16384 tokens, without choices", "layers", layers
    yield from memory("2", f"7B shapes, 16384 tokens, {layers} layers", bench)
    deeper = layers * 3 // 2
    bench = llama_7b(deeper, 16384)
    subject = f"7B shapes, 16384 tokens, {deeper} layers"
    yield "2", f"{subject}, without choices", "peak_bytes", bench.plan.peak_bytes
    found = bench.fit(CARD_BYTES * 95 // 100)
    bench.choose(found.choices)
    yield from memory("2", f"{subject}, fit to 95 %", bench)
    yield "2", f"{subject}, fit to 95 %", "added_s", found.added_s
    for expandable in (False, True):
        fits = predict_reserved(bench.plan.graph, CARD_BYTES, expandable_segments=expandable).fits
        yield "2", f"{subject}, fit to 95 %", f"fits{' with expandable segments' if expandable else ''}", int(fits)


def curve() -> Iterator[Row]:
    """Five points of step time against peak for each set of levers."""
    for using in (("recompute",), ("offload",), ("recompute", "offload")):
        bench = llama_7b(2, 16384)
        found = bench.curve(points=5, using=using).wait()
        for index, point in enumerate(found.points):
            subject = f"7B shapes, 2 layers, 16384 tokens, {' and '.join(using)}, point {index}"
            yield "3", subject, "peak_bytes", point.peak_bytes
            yield "3", subject, "step_s", point.step_s


def depth() -> Iterator[Row]:
    """Unique fusions of `residual_chain` by depth."""
    for layers in (8, 32, 64, 128):
        bench = planned("residual_chain", layers=layers, grad=True)
        yield "4", f"residual_chain, {layers} layers, stock", "unique_fusions", bench.plan.census.unique
        bench.choose({"remat.weight": "0.0"})
        yield "4", f"residual_chain, {layers} layers, weight 0", "unique_fusions", bench.plan.census.unique


def sets() -> Iterator[Row]:
    """Sets and fences of Adam's step under each policy."""
    for policy in next(site for site in planned("adam").sites("copies") if site.id == "copies.policy").options:
        bench = planned("adam")
        bench.choose({"copies.policy": policy})
        for name in ("sets", "fences", "compilations"):
            yield "5", f"adam, policy {policy}", name, bench.plan.counts[name]


QUESTIONS = {"1": peaks, "2": beyond_the_card, "3": curve, "4": depth, "5": sets}


def read() -> list[dict[str, str]]:
    with PATH.open() as file:
        return list(csv.DictReader(file))


def main(asked: list[str]) -> None:
    """Replace the rows of these questions; of all, if none is named."""
    wanted = asked or list(QUESTIONS)
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    rows = [tuple(row.values()) for row in read() if row["question"] not in wanted] if PATH.exists() else []
    for question in wanted:
        for row in QUESTIONS[question]():
            print(*row, sep=", ", flush=True)
            rows.append((*map(str, row), commit))
    with PATH.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADS, *sorted(rows, key=lambda row: row[0])])


if __name__ == "__main__":
    main(sys.argv[1:])
