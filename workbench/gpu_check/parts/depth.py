"""Part `depth`: how compile time grows with the number of layers, for several policies of cuts between fusions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import numpy as np

from workbench.gpu_check.parts import runs
from workbench.gpu_check.parts.check_part import CheckStep, Conditions, Figures, Known
from workbench.runs.sweep.sweep import FIT_FROM

LAYERS = (8, 32, 16, 64, 4, 2, 1, 128)
"""Numbers of layers, in the order of measurement. The most informative come first, and the slowest comes last."""
_FIRST = 8
_REHEARSED = (8,)
POLICIES: Mapping[str, Mapping[str, str]] = {
    "stock": {},
    "weight 0": {"remat.weight": "0.0"},
    "weight 0, cut every 4, shared": {
        "remat.weight": "0.0",
        "remat.preset": "every=4",
        "sharing.identical": "shared",
    },
}
_REHEARSED_POLICIES = ("stock", "weight 0, cut every 4, shared")


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield a step for each depth under each policy, and then a step for each policy.

    The step for a policy computes the exponent with which the policy's compile time grows with depth.
    """
    layers = conditions.size(LAYERS, _REHEARSED)
    for count in layers:
        for name in conditions.size(tuple(POLICIES), _REHEARSED_POLICIES):
            act = functools.partial(_point, conditions, count, POLICIES[name])
            yield CheckStep(f"{count} layers, {name}", act, first=count == _FIRST)
    for name in conditions.size(tuple(POLICIES), _REHEARSED_POLICIES[:1]):
        yield CheckStep(f"exponent, {name}", functools.partial(_exponent, layers, name))


def _point(conditions: Conditions, layers: int, choices: Mapping[str, str], _: Known) -> Figures:
    planned = runs.open_planned(conditions, "residual_chain", choices, layers=layers, grad=True)
    census = planned.plan.census if planned is not None else None
    fusions = {
        "fusions": census.count if census is not None else None,
        "unique": census.unique if census is not None else None,
    }
    if planned is not None and not conditions.rehearse:
        bench = planned
    elif choices:
        # A rehearsal runs only the stock plan, because on a CPU nothing is fused and there are no cuts to choose.
        return fusions
    else:
        bench = runs.open_program(conditions, "residual_chain", layers=layers, grad=True)
    run = runs.run_to_end(bench, runs.QUICK)
    slowest = sorted(run.stages, key=lambda stage: -stage["seconds"])[:3]
    return {
        **fusions,
        "compile_s": run.compile_s,
        "attributed_share": run.compile_attributed,
        "step_s": run.step_s,
        **runs.memory_of(run),
        "most of it": ", ".join(f"{stage['name']} {stage['seconds']:.2f} s" for stage in slowest),
        **runs.fault_of(run),
    }


def _exponent(layers: tuple[int, ...], policy: str, results: Known) -> Figures:
    points = [(count, results.get(f"{count} layers, {policy}", {}).get("compile_s")) for count in layers]
    fitted = [(count, seconds) for count, seconds in points if seconds and count >= FIT_FROM]
    if len(fitted) < 2:
        return {"exponent": None, "points": len(fitted)}
    x, y = np.log(np.asarray(fitted, dtype=float)).T
    return {"exponent": float(np.polyfit(x, y, 1)[0]), "points": len(fitted)}
