"""Measure how long each part of a program in parts takes, and which share of a step's time the planned parts take."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from workbench.compiler.driver.part_timers import BACKWARD, FORWARD, PartTimers
from workbench.runs.log import events
from workbench.runs.measure import interleaved_timing
from workbench.runs.measure.statement_times import turns_of

if TYPE_CHECKING:
    from workbench.compiler.frontend.graph_breaks import CompiledParts
    from workbench.runs.measure.accuracy import Stepper


def measure(
    stepper: Stepper, parts: CompiledParts, names: Mapping[str, str], budget_s: float, t_s: Callable[[], float]
) -> events.PartTimes:
    """Run steps with timers around each part, and compute medians.

    Parameters
    ----------
    stepper : Stepper
        The program, which has been stepped before.
    parts : CompiledParts
        The stepper's parts.
    names : mapping of str to str
        Maps the key of a part to its name.
    budget_s : float
        Seconds after which no further step begins.
    t_s : callable
        The log's clock.
    """
    timers = PartTimers(parts, stepper.device.type)
    steps: list[tuple[float, dict[tuple[str, str], float]]] = []

    def step() -> float:
        found = interleaved_timing.time_step(stepper)
        steps.append((found.wall_s, timers.take()))
        return found.wall_s

    with timers.running():
        turns = turns_of(step(), budget_s)
        interleaved_timing.take_interleaved({"with timers": step}, turns, budget_s)
    keys = list(dict.fromkeys(key for _, taken in steps for key, _ in taken))

    def median(key: str, side: str) -> float:
        return statistics.median(taken.get((key, side), 0.0) for _, taken in steps)

    shares = [
        sum(seconds for (key, _), seconds in taken.items() if key not in parts.opaque) / step_s
        for step_s, taken in steps
    ]
    return events.PartTimes(
        t_s=t_s(),
        names=[names.get(key, key) for key in keys],
        opaque=[key in parts.opaque for key in keys],
        forward_s=[median(key, FORWARD) for key in keys],
        backward_s=[median(key, BACKWARD) for key in keys],
        step_s=statistics.median(step_s for step_s, _ in steps),
        # The parts' times have errors, and on a device they may overlap. Their sum can therefore be longer than the
        # step.
        planned_share=min(statistics.median(shares), 1.0),
    )
