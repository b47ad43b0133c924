"""Compare the predicted peak memory of plain ``torch.compile`` with the measured peak, for models of the zoo.

Each model is measured without choices, and with random choices of what is saved. Peaks are those of a step after the
first, on the CPU.

``python -m benchmarks.memory.torch_compile_peaks [NAME ...]``
"""

from __future__ import annotations

import argparse
import contextlib
import random
import time

import torch

import workbench
from tests.models import zoo
from workbench.errors import ChoiceError
from workbench.plain_torch import compiled
from workbench.runs.measure import accuracy, memory_meter

MODELS = ("bert", "llama", "resnet", "t5", "mixtral", "vit")
CHOICES = 10


def choose(bench: workbench.Workbench) -> None:
    """Choose to save or recompute a few storages at random. Leave out choices that others make illegal."""
    free = [
        (site.id, option)
        for site in bench.sites("saved")
        for option in ("save", "recompute")
        if option in site.options and option != site.choice and option not in site.illegal
    ]
    for id, option in random.Random(1).sample(free, min(CHOICES, len(free))):
        with contextlib.suppress(ChoiceError):
            bench.choose({id: option})


def main() -> None:
    """Print the peaks of each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=MODELS, metavar="NAME", help="models of tests/models/zoo.py")
    for name in parser.parse_args().names:
        module, args, kwargs = zoo.build(name)
        bench = workbench.open(module, *args, device="cpu", **kwargs)
        for with_choices in (False, True):
            if with_choices:
                choose(bench)
            choices = bench.torch_choices().choices
            torch._dynamo.reset()
            begun_s = time.process_time()
            predicted = bench.torch_prediction()
            took_s = time.process_time() - begun_s
            torch._dynamo.reset()
            module, args, kwargs = zoo.build(name)
            stepper = accuracy.Stepper(module, args, kwargs, compiled.compile(module, choices=choices))
            stepper.step()
            stepper.step()
            measured = memory_meter.measure_peak(stepper).measured_peak_bytes
            off = 100 * (measured / predicted.peak_bytes - 1)
            print(
                f"{name}, {len(choices)} choices: predicted {predicted.peak_bytes} B in {took_s:.1f} CPU s, "
                f"measured {measured} B ({off:+.3f} %)",
                flush=True,
            )


if __name__ == "__main__":
    main()
