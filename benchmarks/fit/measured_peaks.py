"""Measure plans of `fit` for a Llama, a GPT-2 and a ViT on the CPU, and compare them with their predictions.

Budgets (limits on the peak) range from the least peak to the stock peak. For each budget, the benchmark prints the
stated, predicted and measured peak, the step time, and the largest error of outputs and gradients. A new process
measures each plan. PyTorch's own ops run, without fusions.

``python -m benchmarks.fit.measured_peaks [--budgets 17] [--only NAME] [--json FILE]``
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import workbench
from workbench.bench import Workbench
from workbench.bench.fit.fitter import Fitter
from workbench.bench.session.machine_choice import of_device
from workbench.runs.measure import interleaved_timing, memory_meter
from workbench.runs.measure.accuracy import Stepper, first_step

WITHIN = 0.02
"""Largest share of the stated peak by which the measured peak may exceed the stated peak."""
TOLERANCE = 1e-4
"""Largest allowed error of a float32 output or gradient: the norm of its difference from eager's / eager's norm."""
AS_EAGER = 2.0
"""A result is right if its distance from float64 is at most this multiple of eager's distance from float64.

Without this rule, a gradient that is zero except for rounding errors would count as wrong."""
SAMPLES = 7
LIMIT_S = 300.0
"""Time limit of one measurement, in seconds of elapsed time."""


class Loss(nn.Module):
    """A Hugging Face model that returns only its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.model(given, labels=labels).loss
        return loss


def llama(scale: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from workbench.programs.builtin.llama import llama as build

    return build(layers=2, dim=64 * scale, heads=4, vocab=256, batch=max(1, 4 // scale), sequence=128 * scale)


def gpt2(scale: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    settings = GPT2Config(
        n_layer=2, n_embd=64 * scale, n_head=4, n_positions=128 * scale, vocab_size=256, use_cache=False,
        bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    ids = torch.randint(256, (max(1, 4 // scale), 128 * scale))
    return Loss(GPT2LMHeadModel(settings)), (ids, ids.clone())


def vit(scale: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    from transformers import ViTConfig, ViTForImageClassification

    width, image, batch = 64 * scale, 64 * math.isqrt(scale), max(1, 8 // scale)
    settings = ViTConfig(
        num_hidden_layers=2, hidden_size=width, num_attention_heads=4, intermediate_size=4 * width, image_size=image,
        patch_size=8,
    )  # fmt: skip
    return (
        Loss(ViTForImageClassification(settings)),
        (torch.randn(batch, 3, image, image), torch.zeros(batch, dtype=torch.long)),
    )


type Built = tuple[nn.Module, tuple[torch.Tensor, ...]]

MODELS: dict[str, Callable[[int], Built]] = {"llama": llama, "gpt2": gpt2, "vit": vit}


def built(name: str, scale: int = 1) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a model of `MODELS` and its inputs. Each call gives equal parameters and equal inputs."""
    torch.manual_seed(0)
    return MODELS[name](scale)


def step_s(stepper: Stepper) -> float:
    """Return the CPU seconds of one step."""
    stepper.clear_grads()
    start = time.process_time()
    stepper.step()
    return time.process_time() - start


def measure(name: str, config: str | None, budget: float, scale: int, connection: Any) -> None:
    """Measure a model under a config or torch.compile. Send its peak, step times and errors through `connection`.

    Parameters
    ----------
    name : str
        A name in `MODELS`.
    config : str or None
        Path of a config; if None, torch.compile compiles the model.
    budget : float
        PyTorch's `activation_memory_budget`, 0 to 1.
    scale : int
        Factor of the width and of the sequence length. Scales 1 and 4 have the same number of tokens.
    connection
        Pipe that receives the results.
    """
    torch.set_num_threads(1)
    started = time.process_time()
    eager = first_step(Stepper(*built(name, scale), {}), 0)
    model, args = built(name, scale)
    doubles = tuple(one.double() if one.is_floating_point() else one for one in args)
    exact = first_step(Stepper(model.double(), doubles, {}), 0)
    model, args = built(name, scale)
    if config is not None:
        run = workbench.load(config).jit(model)
    else:
        import torch._functorch.config as functorch

        functorch.activation_memory_budget = budget
        run = torch.compile(model, dynamic=False)
    stepper = Stepper(model, args, {}, run)
    # Remove the name of torch.compile's wrapper module from the names of parameters.
    found = {path.replace("_orig_mod.", ""): each for path, each in first_step(stepper, 0).items()}
    digest = hashlib.sha256()
    worst = 0.0
    for path in sorted(found):
        got, wanted, best = found[path].value, eager[path].value, exact[path].value
        assert got is not None, path
        assert wanted is not None, path
        assert best is not None, path
        digest.update(got.detach().contiguous().numpy().tobytes())
        got, wanted, best = got.double(), wanted.double(), best.double()
        if (got - best).norm() > AS_EAGER * (wanted - best).norm():
            worst = max(worst, float((got - wanted).norm() / wanted.norm()))
    stepper.step()
    peak = memory_meter.measure_peak(stepper)
    samples, cpu_samples = [], []
    for _ in range(SAMPLES + 2):
        before_s = time.process_time()
        samples.append(interleaved_timing.time_step(stepper).wall_s)
        cpu_samples.append(time.process_time() - before_s)
    step, cpu_step = interleaved_timing.estimate(samples[2:]), interleaved_timing.estimate(cpu_samples[2:])
    connection.send(
        {
            "measured_bytes": peak.measured_peak_bytes,
            "baseline_bytes": peak.baseline_bytes,
            "step_s": step.median,
            "step_low_s": step.low,
            "step_high_s": step.high,
            "cpu_step_s": cpu_step.median,
            "cpu_samples_s": cpu_samples[2:],
            "worst": worst,
            "digest": digest.hexdigest(),
            "cpu_s": time.process_time() - started,
        }
    )


def measured(
    name: str, config: str | None, budget: float = 1.0, limit_s: float = LIMIT_S, scale: int = 1
) -> dict[str, Any]:
    """Run `measure` in a new process. Return its result. If it crashed or took too long, return only `error`."""
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(name, config, budget, scale, theirs))
    process.start()
    theirs.close()
    try:
        if not ours.poll(limit_s):
            return {"error": f"took over {limit_s:.0f} s"}
        found: dict[str, Any] = ours.recv()
        return found
    except EOFError:
        process.join(5)
        return {"error": f"the process ended with status {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def fitted(bench: Workbench, budgets: int, folder: Path) -> list[dict[str, Any]]:
    """Fit `budgets` limits from the least to the stock peak. Write each plan's config, and return a row for each."""
    rows: list[dict[str, Any]] = []
    fitter = Fitter(bench, bench._captured, of_device(bench))
    least, stock = fitter.lowest_peak()[1].peak_bytes, bench.plan.peak_bytes
    for number in range(budgets):
        limit = least + round((stock - least) * number / (budgets - 1))
        point, plan = fitter.fit_peak(limit)
        bench.choose_found(fitter.choices(point))
        options = list(point.options.values())
        rows.append(
            {
                "stated_bytes": limit,
                "predicted_bytes": plan.peak_bytes,
                "recomputed": options.count("recompute"),
                "offloaded": options.count("offload"),
                "proven": bool(bench.plan.proof.proven),
                "config": str(bench.export(folder / f"{number}.py", overwrite=True)),
            }
        )
    return rows


def broken(rows: list[dict[str, Any]]) -> list[str]:
    """Return a message for each broken promise."""
    said = []
    for row in rows:
        if not row["proven"]:
            said.append(f"the plan under {row['stated_bytes']} bytes is not proven right")
        if row["worst"] > TOLERANCE:
            said.append(f"outputs or gradients under {row['stated_bytes']} bytes are off by {row['worst']:.1e}")
        if row["measured_bytes"] > row["stated_bytes"] * (1 + WITHIN):
            said.append(f"{row['measured_bytes']} bytes measured under a stated peak of {row['stated_bytes']} bytes")
    return said


def shown(name: str, rows: list[dict[str, Any]], stock_digest: str) -> None:
    """Print a table with a row for each budget."""
    print(
        f"\n{name}\n| stated MB | predicted MB | measured MB | measured / stated | step ms | not saved | worst error |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['stated_bytes'] / 1e6:.3f} | {row['predicted_bytes'] / 1e6:.3f} "
            f"| {row['measured_bytes'] / 1e6:.3f} "
            f"| {row['measured_bytes'] / row['stated_bytes'] - 1:+.2%} "
            f"| {1e3 * row['step_s']:.2f} ({1e3 * row['step_low_s']:.2f} to {1e3 * row['step_high_s']:.2f}) "
            f"| {row['recomputed']} recomputed, {row['offloaded']} offloaded "
            f"| {row['worst']:.1e}{', stock bit for bit' if row['digest'] == stock_digest else ''} |",
            flush=True,
        )


def main() -> int:
    """Print a table for each model. Return the exit status."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("--budgets", type=int, default=17)
    asked.add_argument("--only", choices=list(MODELS))
    asked.add_argument("--json", type=Path)
    options = asked.parse_args()
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["thunder", "transformers", "workbench.runs.measure.memory_meter"]
    )
    results: dict[str, Any] = {}
    failed = 0
    for name in [options.only] if options.only else MODELS:
        started = time.process_time()
        model, args = built(name)
        bench = workbench.open(model, *args, device="cpu", executor="torch")
        with tempfile.TemporaryDirectory() as folder:
            stock = {"config": str(bench.export(Path(folder) / "stock.py"))}
            rows = fitted(bench, options.budgets, Path(folder))
            planned_s = time.process_time() - started
            stock.update(measured(name, stock["config"]))
            for row in rows:
                row.update(measured(name, row.pop("config")))
        lost = [row for row in (stock, *rows) if "error" in row]
        for row in lost:
            print(f"BROKEN: {name} under {row.get('stated_bytes', 'stock')} bytes: {row['error']}", flush=True)
        failed += bool(lost)
        results[name] = {"stock": stock, "ours": rows}
        if options.json is not None:
            options.json.write_text(json.dumps(results, indent=1))
        rows = [row for row in rows if "error" not in row]
        if "error" in stock or not rows:
            continue
        shown(f"{name}, stock step {1e3 * stock['step_s']:.2f} ms", rows, stock["digest"])
        told = broken(rows)
        off = max(abs(row["predicted_bytes"] / row["measured_bytes"] - 1) for row in rows)
        cpu_s = sum(row["cpu_s"] for row in [stock, *rows])
        print(
            f"\n{len(rows)} plans, predicted peaks at most {off:.2%} off; CPU s: plan {planned_s:.0f}, run {cpu_s:.0f}"
        )
        for line in told:
            print(f"BROKEN: {line}", flush=True)
        failed += bool(told)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
