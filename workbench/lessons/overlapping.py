"""Questions of `notebooks/lessons/7_overlap.ipynb`: collectives, waits, and communication hidden behind compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.core.graph import FORWARD, Kind
from workbench.errors import LessonError
from workbench.lessons.exercises import Exercise, Wrong
from workbench.lessons.plans import plan_choices
from workbench.lessons.predictions import Predict
from workbench.summary import human_bytes, human_seconds

if TYPE_CHECKING:
    from workbench.analysis.cost.collective_overlap import Overlap, Simulation
    from workbench.bench import Workbench

LAYERS = ("up", "mix", "down")
"""The lesson's layers in the order in which they run."""
EXPOSED = 1 / 3
"""Share of the stock plan's exposed communication that may stay exposed in a right answer."""
SHORTER = 0.99
"""Ratio of new to old step time below which a step counts as shorter. Smaller differences are not significant."""

LATE, CONSUMER, EARLIEST = {"waits.wait": "late"}, {"waits.issue": "consumer"}, {"waits.gradients": "earliest"}
_WAYS = {"late": LATE, "consumer": CONSUMER, "both": {**LATE, **CONSUMER}, "gradients": EARLIEST}


def _overlap(bench: Workbench, choices: Mapping[str, str]) -> Overlap:
    found = bench.overlap(bench.plan_under(choices))
    if found is None:
        raise LessonError(
            "this lesson needs a program that several ranks run together; this program has no collectives"
        )
    return found


def issued_first(bench: Workbench) -> Predict:
    """Ask for the weight that is gathered first in the stock plan."""

    def answer() -> set[str]:
        graph = bench.stock_plan.graph
        statements = graph.statements
        first = next(
            row
            for row in range(len(statements))
            if statements.kind[row] == Kind.COLLECTIVE and statements.side[row] == FORWARD
        )
        name = graph.values.name[statements.inputs[first][0]]
        return {layer for layer in LAYERS if layer in name}

    return Predict(
        "The forward needs the weights of `up`, `mix` and `down`, in this order. Which does Thunder gather first?",
        LAYERS,
        answer,
        one=True,
        wrong={
            "up": "it is needed first, so it should be gathered first. But if gathers depend on nothing, Thunder sorts "
            "them by the names of their parameters.",
            "mix": "it is neither needed first nor first by name.",
            "down": "",
        },
        why="The first layer then waits until all three weights have arrived.",
    )


def what_helps(bench: Workbench) -> Predict:
    """Ask for the changes that make the simulated step shorter."""

    def answer() -> set[str]:
        stock = _overlap(bench, {}).simulation.step_s
        return {name for name, choices in _WAYS.items() if _overlap(bench, choices).simulation.step_s < SHORTER * stock}

    return Predict(
        "Which of these make the step shorter?",
        {
            "late": "each wait right before the first statement that needs its result",
            "consumer": "gathers issued in the order in which layers need them",
            "both": "`late` and `consumer` together",
            "gradients": "each gradient sent as soon as it is computed",
        },
        answer,
        wrong={
            "late": "the first layer's weight is gathered last. Even a late wait for this weight ends only when "
            "all weights have arrived.",
            "consumer": "the order is right, but all waits still stand before the first layer. The first layer "
            "therefore waits for all weights.",
        },
        missed={
            "both": "the first layer then waits only for its own weight, and the other weights arrive while it "
            "computes.",
            "gradients": "without this change, all gradients are sent at the end of the backward. Nothing is left "
            "to compute then, so the communication is exposed.",
        },
        why="Neither `late` nor `consumer` gains anything alone. If you try them one at a time, you may discard both.",
    )


class _Outcome(NamedTuple):
    now: Overlap
    stock: Overlap


def _simulate_choices(bench: Workbench, choices: Any) -> _Outcome:
    plan_choices(bench, choices)
    return _Outcome(_overlap(bench, choices), _overlap(bench, {}))


def _exposed_s(simulation: Simulation) -> str:
    return human_seconds(simulation.exposed_communication_s)


def hidden(bench: Workbench) -> Exercise:
    """Ask for choices with which little of the communication is exposed."""
    return Exercise(
        "Make choices that reduce the simulated exposed communication to at most a third of stock's.",
        lambda choices: _simulate_choices(bench, choices),
        [
            Wrong(
                lambda choices, tried: tried.now.order.inversions > 0,
                "The gathers are still not issued in the order in which their weights are needed. Which setting "
                "controls this order?",
            ),
            Wrong(
                lambda choices, tried: tried.now.simulation.stall_s[0] > 0.5 * tried.stock.simulation.stall_s[0],
                "The order of the gathers is right, but the first layer waits as long as before. Where do the waits "
                "stand?",
            ),
            Wrong(
                lambda choices, tried: tried.now.simulation.stall_s[1] > 0.5 * tried.stock.simulation.stall_s[1],
                "The forward is right, but all gradients are still sent at the end of the backward.",
            ),
            Wrong(
                lambda choices, tried: (
                    tried.now.simulation.exposed_communication_s
                    > EXPOSED * tried.stock.simulation.exposed_communication_s
                ),
                lambda choices, tried: (
                    f"{_exposed_s(tried.now.simulation)} of {_exposed_s(tried.stock.simulation)} are still exposed. "
                    "Your choices limit the gathers in flight, so compute waits a little for each. Allow more in "
                    "flight."
                ),
            ),
        ],
        lambda choices, tried: (
            f"Right: {_exposed_s(tried.now.simulation)} of {_exposed_s(tried.stock.simulation)} stay exposed, and a "
            f"step takes {human_seconds(tried.now.simulation.step_s)} instead of "
            f"{human_seconds(tried.stock.simulation.step_s)}. All of these times are simulated."
        ),
    )


def few_in_flight(bench: Workbench) -> Exercise:
    """Ask for choices with an equally short simulated step, but with only one gathered weight in flight at a time."""

    def one_weight() -> int:
        return _overlap(bench, {"waits.issue": "just_in_time"}).simulation.ahead_peak_bytes

    def best() -> float:
        return _overlap(bench, {**LATE, **CONSUMER, **EARLIEST}).simulation.step_s

    return Exercise(
        "A gathered weight takes memory as soon as its gather is issued. Make choices with which at most one "
        "weight is in flight at any time, and the step is no longer than with `late`, `consumer` and `earliest` "
        "together.",
        lambda choices: _simulate_choices(bench, choices),
        [
            Wrong(
                lambda choices, tried: tried.now.simulation.ahead_peak_bytes > one_weight(),
                lambda choices, tried: (
                    f"Up to {human_bytes(tried.now.simulation.ahead_peak_bytes)} are in flight at once; one weight "
                    f"has {human_bytes(one_weight())}. Which option of `waits.issue` limits the number of gathers "
                    "in flight?"
                ),
            ),
            Wrong(
                lambda choices, tried: tried.now.simulation.step_s * SHORTER > best(),
                lambda choices, tried: (
                    f"One at a time, but the step takes {human_seconds(tried.now.simulation.step_s)}, and "
                    f"{human_seconds(best())} are possible. A gather that is issued only when its weight is "
                    "needed cannot hide behind compute."
                ),
            ),
        ],
        lambda choices, tried: (
            f"Right: {human_bytes(tried.now.simulation.ahead_peak_bytes)} in flight instead of "
            f"{human_bytes(tried.stock.simulation.ahead_peak_bytes)}, and a step of "
            f"{human_seconds(tried.now.simulation.step_s)}, simulated."
        ),
    )
