"""Questions of `notebooks/lessons/3_fusion.ipynb`: statements that can be one kernel, and kernels that are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.core.graph import FORWARD, StatementFlag
from workbench.lessons.exercises import Exercise, Wrong
from workbench.lessons.plans import fusions, open_rewritten, plan_choices, statement_rows
from workbench.lessons.predictions import Predict, PredictNumber

if TYPE_CHECKING:
    from workbench.bench import Workbench


def count(bench: Workbench) -> PredictNumber:
    """Ask for the number of fusions of the program."""
    return PredictNumber(
        "How many fusions does Thunder make of this program?",
        lambda: bench.plan.census.count,
        wrong=[
            Wrong(
                lambda given, answer: given == 1,
                "The operations that read `m` cannot run in one kernel with the operations that `m` needs: the "
                "product stands between them.",
            ),
            Wrong(
                lambda given, answer: given > answer,
                "Operations that can run together are in one fusion, even if their lines stand apart in the program.",
            ),
            Wrong(lambda given, answer: True, "There is more than one operation on each side of the product."),
        ],
    )


def second(bench: Workbench) -> Predict:
    """Ask for the operations of the second fusion."""
    return Predict(
        "Which operations run in the second fusion?",
        {
            "sin": "`a`",
            "exp": "`b`",
            "matmul": "`m`",
            "cos": "`c`",
            "add": "`c + m`",
            "mul": "the last multiplication, by `x`",
        },
        lambda: set(fusions(bench.plan)[1].holds),
        wrong={
            "sin": "the product needs it, through `b`, and the second fusion needs the product.",
            "exp": "the product needs it, and the second fusion needs the product.",
            "matmul": "a matrix product has kernels of its own, which are better than a fusion's code. It stays "
            "outside.",
        },
        missed={
            "cos": "it needs only `x` and could run in either fusion. Its only reader is in the second fusion. If "
            "it runs there too, its result stays inside the fusion.",
            "add": "it needs `m`, so it runs after the product.",
            "mul": "it needs the sum, so it runs after the product. Its other input, `x`, is an argument.",
        },
    )


def alike(bench: Workbench) -> PredictNumber:
    """Ask for the number of distinct fusions of a program of equal blocks."""
    return PredictNumber(
        "How many *different* fusions are there?",
        lambda: bench.plan.census.unique,
        wrong=[
            Wrong(
                lambda given, answer: given == bench.plan.census.count,
                "That is how many there are in all. Many of them compute the same operations on other tensors.",
            ),
            Wrong(
                lambda given, answer: given < answer,
                "The blocks are equal, but fusions do not keep to blocks. Which operations come before the first "
                "product, and which after the last one?",
            ),
            Wrong(lambda given, answer: True, "The operations between two products are the same every time."),
        ],
        why="The end of one block and the start of the next are one fusion. The operations before the first "
        "product, and those after the last one, are other fusions.",
    )


def compiled_once(bench: Workbench) -> Exercise:
    """Ask for choices under which each distinct fusion is compiled only once."""

    def compilations(plan: Any) -> int:
        return int(plan.counts["compilations"])

    return Exercise(
        "Make choices with which each different fusion is compiled only once. Do not change the fusions.",
        lambda choices: plan_choices(bench, choices),
        [
            Wrong(
                lambda choices, plan: (
                    plan.census.count != bench.stock_plan.census.count
                    or plan.census.groups != bench.stock_plan.census.groups
                ),
                lambda choices, plan: (
                    f"This changes the fusions: there are {plan.census.count} now, {plan.census.unique} of them "
                    "different."
                ),
            ),
            Wrong(
                lambda choices, plan: compilations(plan) > plan.census.unique,
                lambda choices, plan: (
                    f"{compilations(plan)} compilations for {plan.census.unique} different fusions. Which lever is "
                    "about identical fusions? `bench.sites()` lists the sites of all levers."
                ),
            ),
        ],
        lambda choices, plan: f"Right: {compilations(plan)} compilations instead of {compilations(bench.stock_plan)}.",
    )


def one_fusion(example: tuple[Any, ...]) -> Exercise:
    """Ask the student to write a program with a matrix product and a single fusion.

    Parameters
    ----------
    example : tuple
        `x` and `w`.
    """

    def products(bench: Workbench) -> int:
        flags = bench.plan.graph.statements.flags
        return sum(bool(flags[row] & StatementFlag.MATMUL) for row in statement_rows(bench.plan.graph, FORWARD))

    return Exercise(
        "Write a function of `x` and `w` with one matrix product, at least three other operations, and a single "
        "fusion.",
        lambda program: open_rewritten(program, example, "torchcompile"),
        [
            Wrong(
                lambda program, bench: products(bench) != 1,
                lambda program, bench: f"This has {products(bench)} matrix products; it should have one.",
            ),
            Wrong(
                lambda program, bench: bench.plan.census.count > 1,
                lambda program, bench: (
                    f"There are operations before the product and after it: these are {bench.plan.census.count} "
                    "fusions. One side of the product must have no operations."
                ),
            ),
            Wrong(
                lambda program, bench: bench.plan.census.count == 0 or bench.plan.census.largest < 3,
                "The number of products is right, but no fusion holds at least three operations.",
            ),
        ],
        lambda program, bench: f"Right: one fusion of {bench.plan.census.largest} operations.",
    )
