"""Compare the peak memory of a step in stock order and in the order of least peak memory.

The peak memory in each order is predicted, and measured on the CPU. The models are those that the command names.
Without names, they are `MODELS`: the built-in ``llama`` and ``torch_adam``, and models of ``tests/models/zoo.py``.
Nothing is fused. Each model is planned twice: with the stock choices, and with every saved value recomputed that can
legally be recomputed. Recomputation allows more orders. The exit status is 1 if a plan has a higher peak than in stock
order, or if the results of the step are not bitwise equal in the two orders.

``python -m benchmarks.memory.least_peak_order [NAME …] [--json FILE] | --planned | --adamw``
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import workbench
from benchmarks.fit import budgets
from tests.models import zoo
from workbench.bench import PartsBench, Workbench
from workbench.bench.session.multi_graph import Part
from workbench.programs import resolve
from workbench.runs.measure import accuracy, memory_meter

BUILTIN = ("llama_builtin", "torch_adam")
MODELS = (
    *BUILTIN, "gpt2", "vit", "llama", "mistral", "gemma2", "phi3", "gpt_neox", "opt", "bloom", "falcon", "mamba",
    "bert", "roberta", "electra", "distilbert", "t5", "bart", "dinov2", "hf_convnext", "torchvision_vit", "nanogpt",
    "clip", "pytorch_lstm",
)  # fmt: skip
ORDER = {"order.statements": "least peak"}


def built(name: str) -> accuracy.Parts:
    if name not in BUILTIN:
        return zoo.build(name)
    program = resolve(name.removesuffix("_builtin"))
    return program.callable, program.args, program.kwargs


def measured(name: str, bench: Workbench) -> tuple[int, dict[str, torch.Tensor | None]]:
    """Return the measured peak of a step in bytes, and the results of a first step. A missing gradient is None."""
    module, args, kwargs = built(name)
    stepper = accuracy.Stepper(module, args, kwargs, bench.config.jit(module))
    recorded = {tensor: one.value for tensor, one in accuracy.first_step(stepper, 0).items()}
    stepper.step()
    return memory_meter.measure_peak(stepper).measured_peak_bytes, recorded


def same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one, other)


def row(name: str, bench: Workbench, label: str) -> dict[str, Any]:
    stock_bytes, (stock_measured_bytes, stock) = bench.plan.peak_bytes, measured(name, bench)
    begun_s = time.process_time()
    bench.choose(ORDER)
    ordered_s = time.process_time() - begun_s
    peak_bytes, (measured_bytes, found) = bench.plan.peak_bytes, measured(name, bench)
    equal = stock.keys() == found.keys() and all(same(found[t], stock[t]) for t in stock)
    return {
        "name": name,
        "saved": label,
        "statements": bench.plan.statements,
        "moved_statements": bench.plan.counts["moved_statements"],
        "stock_peak_bytes": stock_bytes,
        "stock_measured_bytes": stock_measured_bytes,
        "peak_bytes": peak_bytes,
        "measured_bytes": measured_bytes,
        "bitwise": equal,
        "order_cpu_s": ordered_s,
    }


def rows(name: str) -> list[dict[str, Any]]:
    if name in BUILTIN:
        bench = workbench.open(name.removesuffix("_builtin"), device="cpu", executor="torch")
    else:
        module, args, kwargs = zoo.build(name)
        bench = workbench.open(module, *args, device="cpu", executor="torch", **kwargs)
    if isinstance(bench, PartsBench):
        raise SystemExit(f"{name} is captured in several parts")
    found = [row(name, bench, "as it is")]
    bench.choose({"order.statements": "stock"})
    again = {
        site.id: "recompute" for site in bench.sites("saved") if {"recompute"} <= {*site.options} - {*site.illegal}
    }
    if again:
        bench.choose(again)
        found.append(row(name, bench, "recomputed"))
    return found


def line(found: dict[str, Any]) -> str:
    kib = [
        f"{found[key] / 1024:,.1f}"
        for key in ("stock_peak_bytes", "stock_measured_bytes", "peak_bytes", "measured_bytes")
    ]
    less = 1 - found["peak_bytes"] / found["stock_peak_bytes"]
    bits = "equal" if found["bitwise"] else "**differ**"
    cells = (found["name"], found["saved"], found["statements"], found["moved_statements"], *kib, f"{less:.1%}", bits)
    return f"| {' | '.join(map(str, cells))} | {found['order_cpu_s']:.1f} |"


def planned() -> None:
    """Print the predicted peaks of the models of `benchmarks.fit.budgets`, planned without a GPU."""
    print("| model | statements | moved | stock, MiB | least peak, MiB | CPU s |")
    print("|---|---|---|---|---|---|")
    for make in (budgets.llama, budgets.gpt, budgets.vit):
        bench = make(2)
        stock_bytes, begun_s = bench.plan.peak_bytes, time.process_time()
        bench.choose(ORDER)
        taken_s, plan = time.process_time() - begun_s, bench.plan
        peaks = f"{stock_bytes / 2**20:,.3f} | {plan.peak_bytes / 2**20:,.3f}"
        print(f"| {make.__name__} | {plan.statements} | {plan.counts['moved_statements']} | {peaks} | {taken_s:.1f} |")


def adamw(*, foreach: bool) -> None:
    """Print the predicted peaks of the optimizer's part of a training step of three linear layers."""
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bench = workbench.open(step, torch.randn(8, 64), capture="parts", device="cpu", executor="torch")
    part = bench.parts[-1]
    assert isinstance(part, Part)
    peaks = [part.plan.peak_bytes]
    for choices in ({"order.updates": "at once"}, ORDER):
        part.choose(choices)
        peaks.append(part.plan.peak_bytes)
        part.undo()
    print(f"| {foreach} | {' | '.join(f'{peak / 1024:,.1f}' for peak in peaks)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="in tests/models/zoo.py, or llama_builtin, torch_adam")
    parser.add_argument(
        "--planned",
        action="store_true",
        help="print predicted peaks of GPT-2, ViT, and a Llama with the layer shapes of a 7B model",
    )
    parser.add_argument(
        "--adamw", action="store_true", help="print predicted peaks of the optimizer's part of a training step"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.planned:
        planned()
        return
    if given.adamw:
        print("| foreach | stock, KiB | updates at once, KiB | least peak, KiB |")
        print("|---|---|---|---|")
        for foreach in (True, False):
            adamw(foreach=foreach)
        return
    titles = ("model", "saved", "statements", "moved", "stock, KiB", "measured", "least peak, KiB", "measured", "less")
    print(f"| {' | '.join((*titles, 'bits', 'CPU s'))} |")
    print("|---" * (len(titles) + 2) + "|")
    found: list[dict[str, Any]] = []
    for name in given.names or MODELS:
        for each in rows(name):
            found.append(each)
            print(line(each), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    wrong = [each["name"] for each in found if each["peak_bytes"] > each["stock_peak_bytes"] or not each["bitwise"]]
    if wrong:
        sys.exit(f"the peak is higher than in stock order, or the results are not bitwise equal: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
