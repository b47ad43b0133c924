"""Questions of `notebooks/lessons/6_memory.ipynb`: how recomputation changes the peak, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.core.graph import StatementFlag
from workbench.lessons.exercises import Exercise, Wrong
from workbench.lessons.plans import plan_choices
from workbench.lessons.predictions import Predict, PredictNumber
from workbench.summary import human_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workbench.bench import Workbench
    from workbench.compiler.api import Plan

GOAL = 0.6
"""Peak that the exercises require, as a share of the stock plan's peak."""


def everything(bench: Workbench) -> dict[str, str]:
    """Return choices that recompute every value that may be recomputed."""
    return {site.id: "recompute" for site in bench.sites("saved") if ":" in site.id and "recompute" not in site.illegal}


def kept(bench: Workbench, layers: int) -> PredictNumber:
    """Ask for the number of tensors that the forward keeps."""
    return PredictNumber(
        "How many tensors of 256 × 64 does the forward keep for the backward, arguments not counted?",
        lambda: len(bench.stock_plan.graph.saved_storages()),
        wrong=[
            Wrong(
                lambda given, answer: given == answer + 1,
                "Nearly: three in each layer. But the result of the last sine is only summed up, and the rule of a "
                "sum does not need its input.",
            ),
            Wrong(
                lambda given, answer: given in (layers, 2 * layers),
                "Go through a layer: what do the rules of tanh, exp and sin need, and what does the next product need?",
            ),
            Wrong(lambda given, answer: given < answer, "More: each operation's rule asks for something (lesson 2)."),
            Wrong(
                lambda given, answer: True,
                "Fewer: one rule may need a value as its result, and the next rule may need the same value as its "
                "input. The value is kept only once.",
            ),
        ],
        why="The forward keeps the results of tanh and exp in each layer, and the input of each product but the first.",
    )


def expensive(bench: Workbench) -> Predict:
    """Ask for the values whose recomputation repeats a matrix product, if each value is recomputed alone."""

    def answer() -> set[str]:
        found = set()
        for op in ("tanh", "exp", "sin"):
            (id,) = (site.id for site in bench.sites("saved") if site.id.endswith(f"/{op}.1"))
            if _products(bench.plan_under({id: "recompute"})):
                found.add(op)
        return found

    return Predict(
        "Each of these values alone can be computed again from the other kept values. For which of them does this "
        "take a matrix product?",
        {"tanh": "its result", "exp": "its result", "sin": "its result"},
        answer,
        wrong={
            "exp": "the result of tanh is kept, and from there it is one step.",
            "sin": "the result of exp is kept, and from there it is one step.",
        },
        missed={
            "tanh": "the nearest kept value is the input of the product, so the product has to be computed once more."
        },
    )


def peak_of_everything(bench: Workbench) -> Predict:
    """Ask for the change of the peak if everything is recomputed."""

    def answer() -> set[str]:
        part = bench.plan_under(everything(bench)).peak_bytes / bench.stock_plan.peak_bytes
        return {"falls by half or more" if part <= 0.5 else "falls by less" if part < 0.99 else "does not fall"}

    return Predict(
        "If *everything* is recomputed, nothing is kept for the backward. What happens to the peak?",
        ["falls by half or more", "falls by less", "does not fall"],
        answer,
        one=True,
        wrong={
            "falls by half or more": "true, nothing is saved when the backward begins. But which values does the "
            "first statement of the backward need, and from which values are these computed?",
            "falls by less": "true, nothing is saved when the backward begins. But which values does the first "
            "statement of the backward need, and from which values are these computed?",
            "does not fall": "",
        },
        why="The backward begins with the last layer. For the input of this layer, the whole forward is computed "
        "again, and all of its values are alive at that moment. The plan that saves least does not have the "
        "lowest peak.",
    )


def _products(plan: Plan) -> int:
    """Return the number of matrix products that a plan recomputes."""
    flags = plan.graph.statements.flags
    wanted = StatementFlag.CLONE | StatementFlag.MATMUL
    return int(((flags & wanted) == wanted).sum())


def _too_high(bench: Workbench, plan: Plan) -> bool:
    return plan.peak_bytes > GOAL * bench.stock_plan.peak_bytes


def _peak(bench: Workbench, plan: Plan) -> str:
    stock = bench.stock_plan.peak_bytes
    return f"The peak is {human_bytes(plan.peak_bytes)}, {plan.peak_bytes / stock:.0%} of {human_bytes(stock)}"


def _offloads(choices: Mapping[str, str], _: Any) -> bool:
    return "offload" in choices.values()


_OFFLOADED = (
    "`offload` moves values to the host's memory. That lowers the peak too, but this exercise is about recomputation."
)


def _all_again(choices: Mapping[str, str], plan: Plan) -> bool:
    return not len(plan.graph.saved_storages())


def lower(bench: Workbench) -> Exercise:
    """Ask for choices under which the peak is at most `GOAL` times the stock plan's peak."""
    return Exercise(
        f"Choose which values are recomputed, so that the peak is at most {GOAL:.0%} of the peak without choices.",
        lambda choices: plan_choices(bench, choices),
        [
            Wrong(_offloads, _OFFLOADED),
            Wrong(
                lambda choices, plan: _all_again(choices, plan) and _too_high(bench, plan),
                lambda choices, plan: (
                    f"{_peak(bench, plan)}, though nothing is saved: the backward computes the whole forward again "
                    "before it can begin. Keep some values to start from."
                ),
            ),
            Wrong(
                lambda choices, plan: _too_high(bench, plan),
                lambda choices, plan: (
                    f"{_peak(bench, plan)}, with {len(plan.graph.saved_storages())} tensors kept. Recompute "
                    "more of them."
                ),
            ),
        ],
        lambda choices, plan: (
            f"Right. {_peak(bench, plan)}; {_products(plan)} matrix products are computed a second time."
        ),
    )


def lower_and_cheap(bench: Workbench) -> Exercise:
    """Ask for choices under which the peak is as in `lower`, and no matrix product is recomputed."""
    return Exercise(
        f"Again reach at most {GOAL:.0%} of the peak without choices, but compute no matrix product a second time.",
        lambda choices: plan_choices(bench, choices),
        [
            Wrong(_offloads, _OFFLOADED),
            Wrong(
                lambda choices, plan: bool(_products(plan)),
                lambda choices, plan: (
                    f"{_peak(bench, plan)}, but {_products(plan)} matrix products run twice. Which recomputed "
                    "values need these products? Keep those values."
                ),
            ),
            Wrong(
                lambda choices, plan: _too_high(bench, plan),
                lambda choices, plan: (
                    f"No product runs twice, but the peak is still too high. {_peak(bench, plan)}. Which other "
                    "values are cheap to recompute?"
                ),
            ),
        ],
        lambda choices, plan: f"Right. {_peak(bench, plan)}, and only cheap operations are computed a second time.",
    )
