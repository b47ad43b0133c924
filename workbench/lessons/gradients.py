"""Questions of `notebooks/lessons/2_gradients.ipynb`: the statements of a backward, and the values that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.core.graph import BACKWARD, FORWARD, Graph
from workbench.lessons.exercises import Exercise, Wrong
from workbench.lessons.plans import made_by, open_rewritten, operation, same_results, statement_rows
from workbench.lessons.predictions import Predict, PredictNumber

if TYPE_CHECKING:
    from workbench.bench import Workbench

NAMES = {"x": "x", "w": "w", "sin": "a", "tanh": "b", "add": "c"}
"""Name of the value that each operation of the lesson's program makes, and of each argument."""


def _saved_producers(graph: Graph) -> list[str]:
    """Return the producer of each value passed from forward to backward: an operation, or an argument's name."""
    return [made_by(graph, int(value)) for value in graph.saved()]


def saved(bench: Workbench) -> Predict:
    """Ask for the values that the forward passes to the backward."""
    return Predict(
        "Which of these does the forward save for the backward?",
        {"x": "an argument", "w": "an argument", "a": "`torch.sin(x)`", "b": "`torch.tanh(a)`", "c": "`b + a`"},
        lambda: {NAMES[made] for made in _saved_producers(bench.stock_plan.graph) if made in NAMES},
        wrong={
            "a": "who would need it? The derivative of tanh is `1 - b * b`, so it needs only the result `b`. The "
            "gradient of a sum needs neither of the sum's inputs."
        },
        missed={
            "x": "the derivative of the sine is the cosine of the sine's *input*.",
            "w": "the gradient of a product needs the other factor: `w` for the gradient of `c`.",
            "b": "the derivative of tanh is `1 - b * b`: Thunder saves the result and not the input.",
            "c": "the gradient of a product needs the other factor: `c` for the gradient of `w`.",
        },
        why="Each operation's rule decides which values are saved. The size and the cost of a value play no role.",
    )


def sums(bench: Workbench) -> PredictNumber:
    """Ask for the number of sums of two tensors in the backward."""

    def count() -> int:
        graph = bench.stock_plan.graph
        return sum(operation(graph, row) == "add" for row in statement_rows(graph, BACKWARD))

    return PredictNumber(
        "The forward has one `add`. How many does the backward have?",
        count,
        wrong=[
            Wrong(
                lambda given, answer: given == 0,
                "True, the gradient of `b + a` is passed on unchanged. But `a` is read twice, by tanh and by the "
                "sum. The gradients from these two readers have to meet somewhere.",
            ),
            Wrong(
                lambda given, answer: True,
                "Look for values that the forward reads more than once. The backward has one sum for each reader "
                "but the first.",
            ),
        ],
        why="If the forward reads a value several times, the backward adds up the gradients from its readers.",
    )


def nothing_saved(example: tuple[Any, ...]) -> Exercise:
    """Ask the student to write a program whose backward needs no values except arguments.

    Parameters
    ----------
    example : tuple
        One tensor that requires a gradient.
    """

    def operations(bench: Workbench) -> int:
        return len(statement_rows(bench.plan.graph, FORWARD))

    def saved_text(bench: Workbench) -> str:
        graph = bench.plan.graph
        return ", ".join(f"`{name}`" for name in _saved_producers(graph) if name not in graph.values.name)

    return Exercise(
        "Write a function of `x` with at least three operations, whose backward needs no intermediate values.",
        lambda program: open_rewritten(program, example),
        [
            Wrong(
                lambda program, bench: not statement_rows(bench.plan.graph, BACKWARD),
                "This function has no backward at all: its result has to depend on `x`.",
            ),
            Wrong(
                lambda program, bench: operations(bench) < 3,
                lambda program, bench: f"Thunder makes only {operations(bench)} operation(s) of this function.",
            ),
            Wrong(
                lambda program, bench: len(bench.plan.graph.saved_storages()) > 0,
                lambda program, bench: f"The backward needs the result of {saved_text(bench)}. Whose rule asks for it?",
            ),
        ],
        "Right: if an operation's rule needs no values, the operation has the same derivative everywhere.",
    )


def saved_less(program: Callable[..., Any], example: tuple[Any, ...]) -> Exercise:
    """Ask the student to rewrite a program so that the forward saves only one tensor besides its arguments.

    Parameters
    ----------
    program : callable
    example : tuple
        One tensor that requires a gradient.
    """

    def saved_text(bench: Workbench) -> str:
        graph = bench.plan.graph
        makers = [name for name in _saved_producers(graph) if name not in graph.values.name]
        return f"The forward saves {len(graph.saved_storages())} tensors, the results of {', '.join(makers)}."

    return Exercise(
        "Write `logistic` so that the forward saves only one tensor besides its arguments.",
        lambda given: open_rewritten(given, example),
        [
            Wrong(
                lambda given, bench: not same_results(given, program, example),
                "The result differs: for any `x`, your function must return the result of `logistic`.",
            ),
            Wrong(
                lambda given, bench: len(bench.plan.graph.saved_storages()) > 1,
                lambda given, bench: (
                    f"The result is right. {saved_text(bench)} Which operation has nearly the same curve, and a "
                    "rule that needs only the operation's own result?"
                ),
            ),
        ],
        "Right. Automatic differentiation treats each operation separately. Therefore, the operations of which you "
        "build a function decide which values are saved.",
    )
