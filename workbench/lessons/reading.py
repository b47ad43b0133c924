"""Questions of `notebooks/lessons/1_reading_a_trace.ipynb`: statements, values, memory and deletions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.graph import FORWARD, Graph
from workbench.errors import LessonError, short_repr, suggest_names
from workbench.lessons.exercises import Exercise, Wrong
from workbench.lessons.plans import made_by, open_rewritten, operation, same_results, statement_rows
from workbench.lessons.predictions import Predict, PredictNumber

if TYPE_CHECKING:
    from workbench.bench import Workbench

NAMES = {"tanh": "h", "reshape": "r", "mul": "h * 2", "add": "z", "softmax": "softmax"}
"""Name of the value that each operation of the lesson's program makes."""


def _value(graph: Graph, name: str) -> int:
    """Return the value that the operation `name` makes."""
    rows = [row for row in statement_rows(graph, FORWARD) if operation(graph, row) == name]
    if len(rows) != 1:
        raise LessonError(f"this lesson needs a program with one {name}; this program has {len(rows)}")
    return int(graph.statements.outputs[rows[0]][0])


def statements(bench: Workbench) -> PredictNumber:
    """Ask for the number of statements that run."""
    graph = bench.plan.graph
    lines = len({origin.line for origin in graph.origins})
    return PredictNumber(
        "How many statements does the trace have, `del` and `return` not counted?",
        lambda: len(statement_rows(bench.plan.graph, FORWARD)),
        wrong=[
            Wrong(
                lambda given, answer: given == lines,
                "That is the number of lines. A statement of a trace carries out one operation: count the "
                "operations in each line.",
            ),
            Wrong(
                lambda given, answer: given < answer,
                "Some operations are easily overlooked: `@`, `*`, `+`, and a change of shape.",
            ),
            Wrong(
                lambda given, answer: True,
                "A softmax consists of exponentials, sums and a division. But PyTorch has one kernel for all of "
                "it, so the trace has one statement for it.",
            ),
        ],
    )


def shares_memory(bench: Workbench) -> Predict:
    """Ask for the values that share the memory of h."""

    def answer() -> set[str]:
        graph = bench.plan.graph
        own = graph.values.storage[_value(graph, "tanh")]
        return {
            name for made, name in NAMES.items() if made != "tanh" and graph.values.storage[_value(graph, made)] == own
        }

    return Predict(
        "Which of these share the memory of `h`?",
        {
            "r": "`h.reshape(-1)`",
            "h * 2": "the first half of the third line",
            "z": "`h * 2 + h`",
            "softmax": "the first result",
        },
        answer,
        wrong={
            "h * 2": "`h` is read once more, by the sum, so `h * 2` must not overwrite `h`. And Thunder gives "
            "every computed result memory of its own.",
            "z": "it is computed, and a computed result gets memory of its own, even if the inputs are not needed "
            "again.",
            "softmax": "it is computed, and a computed result gets memory of its own.",
        },
        missed={
            "r": "a `reshape` of a contiguous tensor moves nothing: `r` is a view of `h`, the same memory in "
            "another shape."
        },
    )


def given_back(bench: Workbench) -> Predict:
    """Ask for the operation after which the memory of h is free."""

    def answer() -> set[str]:
        graph = bench.plan.graph
        own = graph.values.storage[_value(graph, "tanh")]
        last = max(
            row
            for row in statement_rows(graph, FORWARD)
            if np.any(graph.values.storage[graph.statements.frees[row]] == own)
        )
        return {operation(graph, last)}

    return Predict(
        "After which operation is the memory of `h` freed?",
        {
            "tanh": "computes `h`",
            "reshape": "the second line",
            "add": "reads `h` for the last time",
            "softmax": "reads `z`",
            "sum": "reads `r`",
        },
        answer,
        one=True,
        wrong={
            "tanh": "`h` is only computed there.",
            "reshape": "the third line reads `h` again.",
            "add": "true, the name `h` is deleted there. But a name is not the memory: which other value uses the "
            "same memory?",
            "softmax": "it reads `z`, which has memory of its own.",
            "sum": "",
        },
        why="Memory stays allocated as long as any view of it exists. Therefore, the trace deletes each name as "
        "early as possible.",
    )


def holding(bench: Workbench) -> Exercise:
    """Ask for the name of z in the trace."""

    def attempt(name: Any) -> str:
        graph = bench.plan.graph
        if not isinstance(name, str):
            raise LessonError(f"a name is a text, such as 't0'; given {short_repr(name)}")
        if name not in graph.value_index:
            raise LessonError(
                f"the trace has no value {short_repr(name)}{suggest_names(name, list(graph.value_index))}"
            )
        return made_by(graph, graph.value_index[name])

    return Exercise(
        "Thunder gives values new names. What is the name of `z` in the trace?",
        attempt,
        [
            Wrong(
                lambda name, made: made == name,
                lambda name, made: f"`{name}` is an argument of the program.",
            ),
            Wrong(
                lambda name, made: made == "mul",
                lambda name, made: (
                    f"`{name}` holds `h * 2`: the third line is two statements, and `z` is the result of the second "
                    "one."
                ),
            ),
            Wrong(
                lambda name, made: made != "add",
                lambda name, made: (
                    f"`{name}` is made by `{made}`. Look for the last statement below the line that makes `z`."
                ),
            ),
        ],
        lambda name, made: f"Right: `{name}` is made by `{made}`.",
    )


def shorter(program: Callable[..., Any], example: tuple[Any, ...]) -> Exercise:
    """Ask the student to write the program with fewer statements and the same results.

    Parameters
    ----------
    program : callable
    example : tuple
        Inputs of the program.
    """

    def count(bench: Workbench) -> int:
        return len(statement_rows(bench.plan.graph, FORWARD))

    stock = open_rewritten(program, example)
    return Exercise(
        "Write the program with one statement fewer and the same two results.",
        lambda given: open_rewritten(given, example),
        [
            Wrong(
                lambda given, bench: not same_results(given, program, example),
                "The results differ: for any `x` and `w`, your program must return the same results as the given one.",
            ),
            Wrong(
                lambda given, bench: count(bench) == count(stock),
                "The results are right, but the number of statements is the same as before. Which two statements "
                "can become one?",
            ),
            Wrong(
                lambda given, bench: count(bench) > count(stock),
                lambda given, bench: (
                    f"The results are right, but there are now {count(bench)} statements instead of {count(stock)}."
                ),
            ),
        ],
        lambda given, bench: (
            f"Right: {count(bench)} statements instead of {count(stock)}. Thunder did not find this by itself."
        ),
    )
