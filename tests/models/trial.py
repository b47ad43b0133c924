"""The trial of a model: open it, make choices, replay them, and check accuracy and memory."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from pathlib import Path

import workbench
from tests.models import zoo
from workbench.errors import ChoiceError
from workbench.runs.measure import accuracy, memory_meter


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """Results for a model that opened.

    Attributes
    ----------
    capture : str
        The front end.
    statements, sites, choices : int
        Statements and sites of the stock plan, and choices made.
    open_s : float
        CPU time that opening takes.
    predicted_bytes, measured_bytes : int
        Predicted and measured peak under the choices.
    replayed : bool
        Whether the exported config gives the same plan.
    accurate : bool
        Whether the first step equals the step of unmodified Thunder and of eager PyTorch, and is as close to double
        precision as eager PyTorch.
    against : str
        The references of the comparison.
    compared : int
        Number of compared tensors.
    worst : str
        The tensor that is nearest to its tolerance, or farthest beyond it.
    """

    capture: str
    statements: int
    sites: int
    choices: int
    open_s: float
    predicted_bytes: int
    measured_bytes: int
    replayed: bool
    accurate: bool
    against: str
    compared: int
    worst: str


def chosen(bench: workbench.Workbench, seed: int, count: int) -> None:
    """Make a few random legal choices; drop each choice that another choice makes illegal."""
    draw = random.Random(seed)
    free = [(site.id, o) for site in bench.sites() for o in site.options if o != site.choice and o not in site.illegal]
    drawn = draw.sample(free, min(count, len(free)))
    try:
        bench.choose(dict(drawn))
    except ChoiceError:
        for id, option in drawn:
            with contextlib.suppress(ChoiceError):
                bench.choose({id: option})


def run(name: str, folder: Path, choices: int) -> Outcome:
    """Try a model of the zoo on the CPU with `choices` random choices."""

    def build() -> accuracy.Parts:
        return zoo.build(name)

    module, args, kwargs = build()
    begun_s = time.process_time()
    bench = workbench.open(module, *args, device="cpu", **kwargs)
    open_s = time.process_time() - begun_s
    statements, sites = bench.plan.statements, len(bench.sites())
    chosen(bench, len(name), choices)
    config = workbench.load(bench.export(folder / f"{name}.py"))
    module, args, kwargs = build()
    again = workbench.open(module, *args, config=config, **kwargs)
    replayed = again.plan.text() == bench.plan.text() and again.choices == bench.choices
    stepper = accuracy.Stepper(module, args, kwargs, config.jit(module))
    checked = accuracy.check_first_step(accuracy.first_step(stepper, 0), build, capture=config.capture)
    stepper.step()  # the first call of some models changes their configuration, so the second call is captured again
    return Outcome(
        capture=bench.capture,
        statements=statements,
        sites=sites,
        choices=len(bench.choices),
        open_s=open_s,
        predicted_bytes=bench.plan.peak_bytes,
        measured_bytes=memory_meter.measure_peak(stepper).measured_peak_bytes,
        replayed=replayed,
        accurate=checked.ok,
        against=checked.against,
        compared=len(checked.tensors),
        worst=str(checked.worst),
    )
