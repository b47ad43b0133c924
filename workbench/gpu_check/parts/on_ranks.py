"""Part `ranks`: measured and simulated times of collectives on several GPUs. A rehearsal uses gloo on the CPU."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

import workbench
from workbench.gpu_check.parts import runs, time_spent
from workbench.gpu_check.parts.check_part import CheckStep, Conditions, Figures, Known
from workbench.runs.measure import measured_rates
from workbench.runs.process.request import RunOptions

ORDERS: Mapping[str, Mapping[str, str]] = {
    "stock": {},
    "consumer order, waits late": {"waits.issue": "consumer", "waits.wait": "late", "waits.gradients": "earliest"},
    "each waited for at once": {"waits.issue": "consumer", "waits.wait": "early", "waits.gradients": "earliest"},
}
_SETTINGS = {"layers": 4, "dim": 4096, "heads": 32, "hidden": 11008, "sequence": 2048, "batch": 1, "dtype": "bfloat16"}
_REHEARSED = {"layers": 1, "dim": 32, "vocab": 32, "sequence": 8}


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield a step for each order of collectives, on all GPUs of this machine."""
    ranks = 2 if conditions.rehearse else torch.cuda.device_count()
    if ranks < 2:
        yield CheckStep(
            "ranks", lambda _: {"ranks": ranks, "reason": "one GPU has no collectives to order"}, first=True
        )
        return
    for name, choices in conditions.size(ORDERS, {"stock": ORDERS["stock"]}).items():
        yield CheckStep(name, functools.partial(_order, conditions, ranks, choices), first=not choices)


def _order(conditions: Conditions, ranks: int, choices: Mapping[str, str], _: Known) -> Figures:
    settings: dict[str, Any] = conditions.size(dict(_SETTINGS), dict(_REHEARSED))
    machine = measured_rates.THIS_GPU if conditions.device == "cuda" else measured_rates.THIS_CPU
    with time_spent.timed(time_spent.OPENING):
        bench = workbench.open(
            "fsdp_llama",
            device=conditions.device,
            executor=conditions.executor,
            ranks=ranks,
            settings=settings,
            machine=measured_rates.machine_by_name(machine, ranks),
        )
        if choices:
            bench.choose(choices)
    run = runs.run_to_end(bench, RunOptions(samples=10))
    simulated = bench.overlap()
    return {
        "ranks": ranks,
        "step_s": run.step_s,
        "simulated_step_s": simulated.simulation.step_s if simulated is not None else None,
        "exposed, simulated_s": simulated.simulation.exposed_communication_s if simulated is not None else None,
        **runs.memory_of(run),
        **runs.fault_of(run, most_off_share=0.05),
    }
