"""Compare `torch_fit` with PyTorch's `activation_memory_budget`: measured peaks and CPU times of a step on the CPU.

Both sides are compiled by Inductor, in one process with one thread. Steps of all variants are timed in turn. The fits
are at shares of the stock peak; PyTorch's budgets are shares of the memory of activations, so their peaks differ. If no
choices reach a share, the fit is at the lowest peak that choices reach.

``python -m benchmarks.fit.torch_fit_budgets NAME [--layers 12] [--width 768] [--batch 4] [--tokens 512] [--vocab 0]
[--shares 90 80 70] [--budgets 0.9 0.8 0.7] [--rounds 7] [--csv FILE]``
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config as functorch
from torch._inductor.compile_fx import compile_fx

import workbench
from benchmarks.fit.measured_peaks import Loss
from workbench.bench.fit.torch_fit import TorchFit, TorchFitter
from workbench.bench.session.machine_choice import of_device
from workbench.errors import PlanError
from workbench.runs.measure.accuracy import Stepper
from workbench.runs.measure.memory_meter import measure_peak

type Built = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]


def gpt2(asked: argparse.Namespace) -> Built:
    from transformers import GPT2Config, GPT2LMHeadModel

    vocab = asked.vocab or 50257
    settings = GPT2Config(
        n_layer=asked.layers, n_embd=asked.width, n_head=asked.width // 64, n_positions=asked.tokens, vocab_size=vocab,
        use_cache=False, bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(settings)
    model.loss_type = "ForCausalLM"
    ids = torch.randint(vocab, (asked.batch, asked.tokens))
    return Loss(model), (ids, ids.clone())


def llama(asked: argparse.Namespace) -> Built:
    from transformers import LlamaConfig, LlamaForCausalLM

    vocab = asked.vocab or 32000
    settings = LlamaConfig(
        num_hidden_layers=asked.layers, hidden_size=asked.width, intermediate_size=asked.width * 8 // 3,
        num_attention_heads=asked.width // 64, vocab_size=vocab, use_cache=False,
    )  # fmt: skip
    ids = torch.randint(vocab, (asked.batch, asked.tokens))
    return Loss(LlamaForCausalLM(settings)), (ids, ids.clone())


def vit(asked: argparse.Namespace) -> Built:
    from transformers import ViTConfig, ViTForImageClassification

    settings = ViTConfig(
        num_hidden_layers=asked.layers, hidden_size=asked.width, num_attention_heads=asked.width // 64,
        intermediate_size=4 * asked.width, image_size=224, patch_size=16,
    )  # fmt: skip
    return (
        Loss(ViTForImageClassification(settings)),
        (torch.randn(asked.batch, 3, 224, 224), torch.zeros(asked.batch, dtype=torch.long)),
    )


MODELS: dict[str, Callable[[argparse.Namespace], Built]] = {"gpt2": gpt2, "llama": llama, "vit": vit}


def compiled_with(budget: float, built: Built) -> Stepper:
    """Return the stepper of a model that PyTorch compiles with a budget, after two steps."""

    # Each variant has a backend of its own. Otherwise, Dynamo would use the code of another variant.
    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        return compile_fx(graph, inputs)

    with functorch.patch(activation_memory_budget=budget):
        return warmed(Stepper(*built, {}, torch.compile(built[0], backend=backend, dynamic=False)))


def warmed(stepper: Stepper) -> Stepper:
    stepper.step()
    stepper.step()
    stepper.clear_grads()  # all variants are in memory at once
    return stepper


def step_s(stepper: Stepper) -> float:
    """Return the CPU seconds of one step."""
    stepper.clear_grads()
    begun_s = time.process_time()
    stepper.step()
    taken_s = time.process_time() - begun_s
    stepper.clear_grads()
    return taken_s


def main() -> None:
    """Fit, compile, measure, and print a row for each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=list(MODELS))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--vocab", type=int, default=0)
    parser.add_argument("--shares", type=int, nargs="*", default=[90, 80, 70])
    parser.add_argument("--budgets", type=float, nargs="*", default=[0.9, 0.8, 0.7])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 64

    def built() -> Built:
        torch.manual_seed(0)
        return MODELS[asked.name](asked)

    begun_s = time.process_time()
    model, args = built()
    bench = workbench.open(model, *args, device="cpu")
    fitter = TorchFitter(bench, of_device(bench, None))

    def report(line: str) -> None:
        print(f"{time.process_time() - begun_s:.0f} CPU s: {line}", flush=True)

    fits: dict[str, TorchFit] = {}
    for share in asked.shares:
        try:
            fits[f"{share}%"] = fitter.fit(f"{share}%", report)
        except PlanError as error:
            # Compare what can be had: the lowest peak that choices reach.
            print(error, flush=True)
            percent = 100 * fitter.least_peak_bytes / fitter.before.peak_bytes
            fits[f"least ({percent:.1f}%)"] = fitter.fit(fitter.least_peak_bytes)
    print(f"{asked.name}: {len(fits)} fits in {time.process_time() - begun_s:.0f} CPU s", flush=True)
    for point in fitter.points:
        found = point.prediction
        print(f"set: peak {found.peak_bytes:,}, saved {found.saved_bytes:,}, step {point.step_s:.3f} s, "
              f"{len(point.choices)} choices, budget {point.budget}", flush=True)  # fmt: skip
    for fit in fits.values():
        print(fit, flush=True)
    torch._dynamo.reset()
    variants: dict[tuple[str, str], Stepper] = {("PyTorch", "budget 1"): compiled_with(1.0, built())}
    predicted = {("PyTorch", "budget 1"): next(iter(fits.values())).before_peak_bytes}
    for share, fit in fits.items():
        model, args = built()
        variants["fit", share] = warmed(Stepper(model, args, {}, fit.compile(model, dynamic=False)))
        predicted["fit", share] = fit.peak_bytes
    for budget in asked.budgets:
        variants["PyTorch", f"budget {budget:g}"] = compiled_with(budget, built())
    peaks = {}
    for which, stepper in variants.items():
        stepper.clear_grads()
        peaks[which] = measure_peak(stepper).measured_peak_bytes
        stepper.clear_grads()
    samples: dict[tuple[str, str], list[float]] = {which: [] for which in variants}
    for turn in range(asked.rounds):
        # The order changes from round to round, so that no variant always follows the same other one.
        names = list(variants)
        for which in names[turn % len(names) :] + names[: turn % len(names)]:
            samples[which].append(step_s(variants[which]))
    size = f"{asked.layers} layers of {asked.width}, batch {asked.batch}"
    rows = [
        [asked.name, size, *which, predicted.get(which, ""), peaks[which],
         f"{statistics.median(samples[which]):.4f}", f"{min(samples[which]):.4f}", f"{max(samples[which]):.4f}"]
        for which in variants
    ]  # fmt: skip
    head = ["model", "size", "side", "asked", "predicted_bytes", "measured_bytes", "cpu_s", "least_cpu_s", "most_cpu_s"]
    for row in [head, *rows]:
        print(",".join(map(str, row)), flush=True)
    if asked.csv is not None:
        is_new = not asked.csv.exists()
        with asked.csv.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *rows] if is_new else rows)
    median = {which: statistics.median(samples[which]) for which in variants}
    for ours in (which for which in variants if which[0] == "fit"):
        for theirs in (which for which in variants if which[0] == "PyTorch"):
            if peaks[theirs] < peaks[ours] and median[theirs] < median[ours]:
                noise = "" if max(samples[theirs]) < min(samples[ours]) else ", within the noise"
                print(f"{' '.join(theirs)} has a lower peak and a shorter step than {' '.join(ours)}{noise}")


if __name__ == "__main__":
    main()
