"""Questions of `notebooks/lessons/4_rematerialization.ipynb`: the values between two fusions are a minimum cut."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from workbench.errors import LessonError, short_repr
from workbench.lessons.exercises import Exercise, Wrong
from workbench.lessons.plans import PlanFusion, fusions, plan_choices
from workbench.lessons.predictions import Predict, PredictNumber

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.compiler.api import Plan

NAMES = {"x": "x", "y": "y", "add": "s", "sin": "a", "cos": "b", "tanh": "t"}
"""Variable that each operation of the lesson's program makes, and name of each argument."""
_WHAT = {
    "x": "an argument of the program",
    "y": "an argument of the program",
    "s": "`x + y`",
    "a": "`torch.sin(s)`",
    "b": "`torch.cos(s)`",
    "t": "`torch.tanh(s)`",
}
_TIE = (
    "`x` and `y` together are enough too, and cost as much as `s` alone. If two cuts cost the same, Thunder takes the "
    "one nearer to the reader."
)
_TWO = (
    "the second half of the program reads these two, but then two values are written and read. Is there one value "
    "from which both can be computed again?"
)


def _pair(plan: Plan) -> tuple[PlanFusion, PlanFusion]:
    found = fusions(plan)
    if len(found) != 2:
        raise LessonError(f"this lesson needs a program with two fusions; this program has {len(found)}")
    return found[0], found[1]


def _variables_read(plan: Plan) -> set[str]:
    """Return the variables that the second fusion of a plan reads, except the matmul's result."""
    return {NAMES[name] for name in _pair(plan)[1].reads if name in NAMES}


def handed_over(bench: Workbench) -> Predict:
    """Ask for the variables that the second fusion reads in the stock plan."""
    return Predict(
        "Which of these does the second fusion read, besides `m`?",
        _WHAT,
        lambda: _variables_read(bench.stock_plan),
        wrong={
            "x": _TIE,
            "y": _TIE,
            "a": _TWO,
            "b": _TWO,
            "t": "only the matmul reads `t`, and the matmul is not in a fusion. Which values does the last line need?",
        },
        missed={
            "s": "`a` and `b` are cheap to compute from `s`. One value is handed over instead of two, and the "
            "second fusion computes the sine and the cosine itself."
        },
        why="The first fusion hands over the values in the cut. The second fusion recomputes the other values that "
        "it needs.",
    )


def cost_without(bench: Workbench) -> PredictNumber:
    """Ask for the cost of the cut through `a` and `b` according to Thunder's measure."""

    def cost() -> int:
        plan = bench.plan_under({"remat.preset": "off"})
        graph = plan.graph
        first, second = (graph.statements.name.index(fusion.name) for fusion in _pair(plan))
        crossing = set(graph.statements.outputs[first].tolist()) & set(graph.statements.inputs[second].tolist())
        return sum(int(graph.values.bytes[v]) // max(1, _numel(graph.values.shape[v])) for v in crossing)

    return PredictNumber(
        "What does the cut `{a, b}` cost, if each variable costs the number of bytes of one of its elements?",
        cost,
        wrong=[
            Wrong(lambda given, cost: given == cost / 2, "That is one variable; the cut goes through two."),
            Wrong(lambda given, cost: given == 8 * cost, "That is in bits."),
            Wrong(
                lambda given, cost: given > 100,
                "That is the memory of whole tensors. Thunder's measure ignores shapes: a variable costs the bytes "
                "of one element.",
            ),
            Wrong(lambda given, cost: True, "Both are float32. How many bytes has one element?"),
        ],
    )


def _numel(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def small_arguments(bench: Workbench) -> Predict:
    """Ask for the cut if the arguments are a column and a row, which are much smaller than their sum."""
    return Predict(
        "`x` is now a column of 64 numbers, `y` a row of 64, and `s` still a matrix of 4096. With `remat.weight` at "
        "0.6, what does the second fusion read?",
        {"x and y": "128 numbers in all", "s": "4096 numbers", "a and b": "8192 numbers"},
        lambda: {" and ".join(sorted(_variables_read(bench.plan_under({"remat.weight": "0.6"}))))},
        wrong={
            "x and y": "this would be the better choice by far. But Thunder's measure ignores shapes: at 0.6 the "
            "two arguments cost 2 × 4 × 0.6, and `s` costs 4.",
            "a and b": "two variables cost more than one, whatever their shapes.",
            "s": "look at what an argument costs at this weight.",
        },
        one=True,
        why="A cut is only as good as its measure. Here, a person who knows the shapes can do better than Thunder.",
    )


def tipping_point(bench: Workbench) -> Exercise:
    """Ask for the largest argument weight, in hundredths, at which the second fusion reads the arguments."""

    def attempt(weight: Any) -> tuple[set[str], set[str]]:
        if not isinstance(weight, int | float | str):
            raise LessonError(f"a weight is a number, such as 0.25; given {short_repr(weight)}")
        here = bench.plan_under({"remat.weight": str(weight)})
        if (exact := float(weight)) != round(exact, 2):
            raise LessonError(f"give the weight as a whole number of hundredths, such as 0.25; given {weight}")
        above = min(1.0, round(exact + 0.01, 2))
        return _variables_read(here), _variables_read(bench.plan_under({"remat.weight": str(above)}))

    return Exercise(
        "Give the largest weight of an argument, in hundredths, at which the second fusion reads `x` and `y`.",
        attempt,
        [
            Wrong(
                lambda given, taken: taken[0] != {"x", "y"},
                lambda given, taken: (
                    f"At {given} the second fusion reads {' and '.join(sorted(taken[0]))}: its two arguments cost "
                    f"2 × 4 × {given}, and `s` costs 4. Make arguments cheaper."
                ),
            ),
            Wrong(
                lambda given, taken: taken[1] == {"x", "y"},
                lambda given, taken: (
                    f"At {given} the second fusion reads `x` and `y`, and at a hundredth more it "
                    "still does. Try a larger weight."
                ),
            ),
        ],
        "Right: at one hundredth more, the two cuts cost the same, and Thunder takes the one nearer to the reader.",
    )


def as_written(bench: Workbench) -> Exercise:
    """Ask for choices at sites of single variables that make the second fusion read `a` and `b`, as in the program."""

    def recomputed_names(plan: Plan) -> Collection[str]:
        first, second = _pair(plan)
        return set(first.holds) & set(second.holds) - {"add", "mul"}

    return Exercise(
        "Make choices with which the first fusion hands over `a` and `b`, and nothing is computed twice. Do not "
        "use sites whose ids begin with `remat.`, because these are settings of the whole lever.",
        lambda choices: plan_choices(bench, choices),
        [
            Wrong(
                lambda choices, plan: any(id.startswith("remat.") for id in choices),
                "A site whose id begins with `remat.` is a setting of the whole lever: it changes every pair of "
                "fusions in a program. `bench.sites('remat')` also lists the sites of single variables: "
                "`remat:…`.",
            ),
            Wrong(
                lambda choices, plan: any(option == "recompute" for option in choices.values()),
                "`recompute` is what Thunder does already. Which option makes the first fusion write a variable?",
            ),
            Wrong(
                lambda choices, plan: _variables_read(plan) == {"s"},
                "The second fusion still reads `s` alone: choose an option for a variable that this fusion recomputes.",
            ),
            Wrong(
                lambda choices, plan: _variables_read(plan) != {"a", "b"} or bool(recomputed_names(plan)),
                lambda choices, plan: (
                    f"The second fusion now reads {', '.join(sorted(_variables_read(plan)))}. It should be a and b."
                ),
            ),
        ],
        "Right: more memory traffic, less arithmetic. Only a run can show which of the two plans is faster.",
    )


def refused(example: tuple[Any, ...]) -> Exercise:
    """Ask the student for a program in which a sine crosses from one fusion to another and cannot be recomputed.

    Parameters
    ----------
    example : tuple
        Example inputs of the program.
    """
    from workbench.bench import open as open_program

    def attempt(program: Callable[..., Any]) -> Workbench:
        if not callable(program):
            raise LessonError(f"the answer is a function of {len(example)} tensors; given {short_repr(program)}")
        return open_program(program, *example, executor="torchcompile")

    def sines(bench: Workbench) -> list[Any]:
        return [site for site in bench.sites("remat") if site.id.startswith("remat:") and "/sin" in site.id]

    return Exercise(
        "Change the program so that `a` still crosses from the first fusion to the second, but its site "
        "refuses `recompute`. Keep both fusions and the sine.",
        attempt,
        [
            Wrong(
                lambda program, bench: len(fusions(bench.plan)) < 2,
                lambda program, bench: (
                    f"This program has {len(fusions(bench.plan))} fusion(s): keep the matmul between the two halves."
                ),
            ),
            Wrong(
                lambda program, bench: not sines(bench),
                "No sine crosses from one fusion to another here: the second half has to read `a`.",
            ),
            Wrong(
                lambda program, bench: all("recompute" not in site.illegal for site in sines(bench)),
                "`a` may still be computed again. Who else could need `a` in memory, so that recomputing `a` saves "
                "nothing?",
            ),
        ],
        lambda program, bench: f"Right. The workbench's reason: {sines(bench)[0].illegal['recompute']}.",
    )
