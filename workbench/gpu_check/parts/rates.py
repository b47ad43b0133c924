"""Part `calibration`: measure this machine's rates, and compare predicted with measured step times."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from workbench.analysis.cost import collective_overlap
from workbench.analysis.cost.roofline import predict_step
from workbench.gpu_check.parts import runs
from workbench.gpu_check.parts.check_part import WRONG, CheckStep, Conditions, Figures, Known
from workbench.runs.measure import measured_rates
from workbench.runs.measure.statement_times import calibration
from workbench.runs.process.request import RunOptions

_MOST_OFF_SHARE = 0.10
_VARIANT = "recomputed"
_PROGRAMS: dict[str, dict[str, Any]] = {
    "llama": {"layers": 2, "dim": 1024, "heads": 16, "batch": 4, "sequence": 1024},
    "mlp": {"layers": 4, "width": 2048, "hidden": 8192, "batch": 4096},
    "dropout_mlp": {"layers": 4, "width": 2048, "batch": 4096},
    "residual_chain": {"layers": 8, "size": 2048, "grad": True},
}
_FIRST = "mlp"
"""Program with gradients that compiles in a few seconds."""
_REHEARSED: dict[str, dict[str, Any]] = {"mlp": {"layers": 1, "width": 256, "hidden": 512, "batch": 256}}


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield a step that measures the machine's rates, then a step for each of several programs with gradients.

    A check step for a program predicts twice how long one step of the program takes: without choices, from the
    machine's rates alone; and with choices, from a run without choices.
    """
    yield CheckStep("rates", lambda _: _rates(conditions), first=True)
    for program, settings in conditions.size(_PROGRAMS, _REHEARSED).items():
        act = functools.partial(_program, conditions, program, settings)
        yield CheckStep(program, act, first=program == _FIRST)


def _rates(conditions: Conditions) -> Figures:
    machine = measured_rates.machine_by_name(_name(conditions))
    found = dataclasses.asdict(machine)
    return {"machine": found.pop("name"), **{name: value for name, value in found.items() if name != "source"}}


def _name(conditions: Conditions) -> str:
    return measured_rates.THIS_GPU if conditions.device == "cuda" else measured_rates.THIS_CPU


def _program(conditions: Conditions, program: str, settings: dict[str, Any], _: Known) -> Figures:
    bench = runs.open_program(conditions, program, **settings)
    stock = bench.plan
    legal = [
        site.id for site in bench.sites("saved") if "recompute" in site.options and "recompute" not in site.illegal
    ]
    recomputed = dict.fromkeys(legal[:3], "recompute")
    other = bench.plan_under(recomputed)
    options = RunOptions(samples=conditions.size(20, 5), measure_peak=False, check_accuracy=False)
    run = runs.run_to_end(bench, options, {_VARIANT: recomputed})
    machine = measured_rates.machine_by_name(_name(conditions))
    simulated_s = collective_overlap.simulate(stock.graph, collective_overlap.costs(stock.graph, machine, 1)).step_s
    replanned = predict_step(other.graph, calibration(run, stock.graph))
    measured_s, variant_s = run.step_s, run.against[_VARIANT]["step_s"]
    off = replanned.step_s / variant_s - 1
    wrong = "" if conditions.rehearse or abs(off) <= _MOST_OFF_SHARE else f"a re-planned step is {off:+.1%} off"
    return {
        "step_s": measured_s,
        "from rates_s": simulated_s,
        "off_from_rates_share": None if measured_s is None else simulated_s / measured_s - 1,
        "replanned_step_s": variant_s,
        "replanned, from a run_s": replanned.step_s,
        "off_from_run_share": off,
        "noise_share": (run.times or {}).get("noise"),
        **({WRONG: wrong} if wrong else {}),
    }
