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
        "Which of these does the forward keep for the backward?",
        {"x": "an argument", "w": "an argument", "a": "`torch.sin(x)`", "b": "`torch.tanh(a)`", "c": "`b + a`"},
        lambda: {NAMES[made] for made in _saved_producers(bench.stock_plan.graph) if made in NAMES},
        wrong={
            "a": "who would need it? The gradient of tanh can be had from its result, `1 - b * b`, and that of a sum "
            "needs neither of its inputs."
        },
        missed={
            "x": "the derivative of the sine is the cosine, of the sine's *input*.",
            "w": "the gradient of a product needs the other factor: `w` for that of `c`.",
            "b": "the derivative of tanh is `1 - b * b`: Thunder keeps the result and not the input.",
            "c": "the gradient of a product needs the other factor: `c` for that of `w`.",
        },
        why="Each operation's rule decides, and not how large or how expensive a value is.",
    )


def sums(bench: Workbench) -> PredictNumber:
    """Ask for the number of sums of two tensors in the backward."""

    def count() -> int:
        graph = bench.stock_plan.graph
        return sum(operation(graph, row) == "add" for row in statement_rows(graph, BACKWARD))

    return PredictNumber(
        "The forward has one `add`. How many has the backward?",
        count,
        wrong=[
            Wrong(
                lambda given, answer: given == 0,
                "The gradient of `b + a` is passed on as it is, that is true. But `a` is read twice, by tanh and by "
                "the "
                "sum: what comes back from both has to meet somewhere.",
            ),
            Wrong(
                lambda given, answer: True,
                "Look for values that are read more than once in the forward: for each reader but the first, one sum.",
            ),
        ],
        why="Where a value fans out in the forward, gradients are added up in the backward.",
    )


def nothing_kept(example: tuple[Any, ...]) -> Exercise:
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
        "Write a function of `x` of at least three operations, whose backward needs none of the values in between.",
        lambda program: open_rewritten(program, example),
        [
            Wrong(
                lambda program, bench: not statement_rows(bench.plan.graph, BACKWARD),
                "This has no backward at all: what is returned has to depend on `x`.",
            ),
            Wrong(
                lambda program, bench: operations(bench) < 3,
                lambda program, bench: (
                    f"The backward needs nothing; but Thunder makes {operations(bench)} operation(s) of it."
                ),
            ),
            Wrong(
                lambda program, bench: len(bench.plan.graph.saved_storages()) > 0,
                lambda program, bench: f"The backward needs what {saved_text(bench)} makes. Whose rule asks for it?",
            ),
        ],
        "Right: a rule that needs no values has a derivative that is the same everywhere.",
    )


def kept_less(program: Callable[..., Any], example: tuple[Any, ...]) -> Exercise:
    """Ask the student to rewrite a program so that the forward keeps only one tensor besides its arguments.

    Parameters
    ----------
    program : callable
    example : tuple
        One tensor that requires a gradient.
    """

    def saved_text(bench: Workbench) -> str:
        graph = bench.plan.graph
        makers = [name for name in _saved_producers(graph) if name not in graph.values.name]
        return f"The forward keeps {len(graph.saved_storages())} tensors: what {', '.join(makers)} make."

    return Exercise(
        "Write `logistic` so that the forward keeps a single tensor beside its arguments.",
        lambda given: open_rewritten(given, example),
        [
            Wrong(
                lambda given, bench: not same_results(given, program, example),
                "The result is another one: it has to be what `logistic` gives, for any `x`.",
            ),
            Wrong(
                lambda given, bench: len(bench.plan.graph.saved_storages()) > 1,
                lambda given, bench: (
                    f"The result is right. {saved_text(bench)} Which operation has a rule that needs its own result "
                    "alone, and nearly the same curve?"
                ),
            ),
        ],
        "Right. Automatic differentiation takes each operation as it stands: how a function is written decides what "
        "is kept.",
    )
