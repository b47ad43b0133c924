"""Train without a bench: under an exported config in plain Python, and under torch.compile with a memory budget."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from workbench.gpu_check.parts.check_part import WRONG, Figures
from workbench.interop.torch_private import functorch_config
from workbench.runs.measure import interleaved_timing, memory_meter
from workbench.runs.measure.accuracy import Parts, Stepper

STEPS = 3
SAMPLES = 7
LEARNING_RATE = 1e-2
MOST_OFF_LOSS_SHARE = 0.01
"""Maximum relative difference of a loss from eager's loss. A bfloat16 loss has a resolution of 0.4 to 0.8 %."""


def train(config: Path, build: Callable[[], Parts], predicted_peak_bytes: int, most_off_share: float) -> Figures:
    """Load a config and train for three steps of SGD, as a training script does.

    Eager PyTorch trains the same model, with each layer checkpointed. The step is wrong if a loss differs too much from
    eager's loss, or the peak from its prediction.
    """
    import workbench

    function, args, kwargs = build()
    stepper = Stepper(function, args, kwargs, workbench.load(config).jit(function))
    figures = measure(stepper)
    losses = _train(stepper)
    del function, args, kwargs, stepper
    torch.cuda.empty_cache()
    eager_losses = _train(Stepper(*_checkpointed(build)))
    off = predicted_peak_bytes / figures["measured_peak_bytes"] - 1
    faults = []
    if not all(
        abs(loss - eager) <= MOST_OFF_LOSS_SHARE * abs(eager) for loss, eager in zip(losses, eager_losses, strict=True)
    ):
        faults.append(f"losses {_text(losses)}, eager's {_text(eager_losses)}")
    if abs(off) > most_off_share:
        faults.append(f"the predicted peak is {off:+.1%} off, {most_off_share:.0%} allowed")
    return {
        "predicted_peak_bytes": predicted_peak_bytes,
        "off_share": off,
        **figures,
        **{f"loss {number + 1}": loss for number, loss in enumerate(losses)},
        **{f"eager loss {number + 1}": loss for number, loss in enumerate(eager_losses)},
        **({WRONG: "; ".join(faults)} if faults else {}),
    }


def _train(stepper: Stepper) -> list[float]:
    optimizer = torch.optim.SGD(stepper.parameters.values(), lr=LEARNING_RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = stepper.run(*stepper.args, **stepper.kwargs)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    optimizer.zero_grad()
    return losses


def _checkpointed(build: Callable[[], Parts]) -> Parts:
    """Return a program whose layers recompute in the backward, so that eager PyTorch has enough memory."""
    function, args, kwargs = build()
    for module in function.modules() if isinstance(function, nn.Module) else ():
        for layer in module if isinstance(module, nn.ModuleList) else ():
            layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
    return function, args, kwargs


def _text(losses: list[float]) -> str:
    return ", ".join(f"{loss:.6g}" for loss in losses)


def run_with_budget(budget: float, build: Callable[[], Parts]) -> Figures:
    """Compile a program with torch.compile and PyTorch's `activation_memory_budget`; return its peak and step time."""
    function, args, kwargs = build()
    run: Any = torch.compile(function, dynamic=False)
    try:
        with functorch_config.patch(activation_memory_budget=budget):
            return measure(Stepper(function, args, kwargs, run))
    finally:
        torch.compiler.reset()
        torch.cuda.empty_cache()


def measure(stepper: Stepper) -> Figures:
    """Return the measured peak and the median time of a step. The first step, which compiles, is not measured."""
    stepper.clear_grads()
    stepper.step()
    peak = memory_meter.measure_peak(stepper)
    samples = [interleaved_timing.time_step(stepper).wall_s for _ in range(SAMPLES)]
    return {"measured_peak_bytes": peak.measured_peak_bytes, "step_s": interleaved_timing.estimate(samples).median}
