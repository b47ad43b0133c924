"""Questions of `notebooks/lessons/5_aliasing.ipynb`: views, in-place writes, and copies that must stay in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench.core.graph import FORWARD
from workbench.errors import LessonError, short_repr, suggest_names
from workbench.lessons.exercises import Exercise, Wrong
from workbench.lessons.plans import open_rewritten, operation, same_results, statement_rows
from workbench.lessons.predictions import Predict, PredictNumber

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.core.lever import Site

NAMES = {"reshape": "r", "clone": "c", "permute": "t", "add": "s"}
"""Name of the value that each operation of the first program makes."""


def sees_the_write(bench: Workbench) -> Predict:
    """Ask for the values that share the memory that the program writes."""

    def answer() -> set[str]:
        graph = bench.plan.graph
        written = graph.values.storage[graph.value_index["a"]]
        made = [(operation(graph, row), graph.statements.outputs[row]) for row in statement_rows(graph, FORWARD)]
        return {NAMES[op] for op, values in made if op in NAMES and written in graph.values.storage[values]}

    return Predict(
        "`a` is doubled in place. Which of these change with it?",
        {"r": "`a.reshape(-1)`", "c": "`a.clone()`", "t": "`a.t()`", "s": "`a + 1`"},
        answer,
        wrong={
            "c": "a clone has memory of its own: this is the purpose of a clone.",
            "s": "a sum is computed once, and its result has memory of its own.",
        },
        missed={
            "r": "a `reshape` of a contiguous tensor is a view: the same memory in another shape.",
            "t": "a transpose moves nothing: it is a view with exchanged strides.",
        },
    )


def ends_with(bench: Workbench) -> Predict:
    """Ask for the content of b after the swap. The answer is found by running the swap, compiled by Thunder."""

    def answer() -> set[str]:
        import torch

        before = [tensor.clone() for tensor in bench.program.build()[1]]
        after = [tensor.clone() for tensor in before]
        bench.config.jit(bench.program.callable)(*after)
        return {"what a held" if torch.equal(after[1], before[0]) else "what b held"}

    return Predict(
        "What does `b` hold after the swap?",
        ["what a held", "what b held"],
        answer,
        wrong={
            "what b held": "`t` is a value of its own: it was computed before `a` was overwritten.",
            "what a held": "Look again at the order of the lines.",
        },
        one=True,
        why="This is the result when Thunder compiles the swap for PyTorch's own operators. The next question is "
        "whether every compiler gives this result.",
    )


def inside(bench: Workbench) -> PredictNumber:
    """Ask how many copies may run inside torch.compile's region."""
    return PredictNumber(
        "The two copies could run in the same compiled region as the sum. How many of the two copies does the "
        "workbench allow in the region?",
        lambda: sum("in" not in site.illegal for site in _copies(bench)),
        wrong=[
            Wrong(
                lambda given, answer: given == 2,
                "Inside a region a compiler may drop a sum with zeros. Then `t` *is* `a`, and `a` has changed "
                "before it is copied to `b`.",
            ),
            Wrong(
                lambda given, answer: given == 0,
                "One of them overwrites a tensor whose old content is not read afterwards. What could go wrong "
                "with this copy inside the region?",
            ),
            Wrong(lambda given, answer: True, "There are two copies."),
        ],
    )


def _copies(bench: Workbench) -> list[Site]:
    return [site for site in bench.sites("copies") if ":" in site.id]


def kept_out(bench: Workbench) -> Exercise:
    """Ask the student to find the copy that must stay outside of the region."""

    def attempt(id: Any) -> Site:
        known = [site.id for site in _copies(bench)]
        if not isinstance(id, str):
            raise LessonError(f"a site's id is a text; given {short_repr(id)}")
        if id not in known:
            raise LessonError(
                f"{short_repr(id)} is not the id of a copy's site{suggest_names(id, known)}; the ids are "
                f"{', '.join(known)}"
            )
        return bench.site(id)

    return Exercise(
        "Give the id of the copy that must not run inside the region. `bench.sites('copies')` lists them.",
        attempt,
        [
            Wrong(
                lambda id, site: "in" not in site.illegal,
                lambda id, site: (
                    f"`{id}` may run inside: no later statement reads the old content of the tensor that it "
                    "overwrites. Look at `.illegal` of the sites."
                ),
            )
        ],
        lambda id, site: f"Right. The workbench's reason: {site.illegal['in']}.",
    )


def swapped(program: Callable[..., Any], example: tuple[Any, ...]) -> Exercise:
    """Ask the student to write the swap so that both copies may run inside the region.

    Parameters
    ----------
    program : callable
    example : tuple
        Two tensors of one shape.
    """

    def refusals(bench: Workbench) -> list[str]:
        return [site.illegal["in"] for site in _copies(bench) if "in" in site.illegal]

    return Exercise(
        "Write the swap so that both copies may run inside the region.",
        lambda given: open_rewritten(given, example, "torchcompile"),
        [
            Wrong(
                lambda given, bench: not same_results(given, program, example),
                "Afterwards `a` and `b` do not hold what the swap leaves in them.",
            ),
            Wrong(
                lambda given, bench: len(_copies(bench)) != 2,
                lambda given, bench: f"This program has {len(_copies(bench))} in-place copies; a swap has two.",
            ),
            Wrong(
                lambda given, bench: bool(refusals(bench)),
                lambda given, bench: (
                    f"One copy has to stay out: {refusals(bench)[0]}. Which operations must every compiler keep, "
                    "because they change the numbers?"
                ),
            ),
        ],
        "Right: the copied value is certainly the result of a computation, so it has memory of its own. It cannot "
        "be an alias of a tensor that was overwritten before the copy.",
    )
