"""Helpers of lessons: a plan's fusions and statements by operation, and checks of a student's choices and programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.core.graph import BACKWARD, FORWARD, Graph, Kind
from workbench.errors import LessonError, short_repr, suggest_names

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.compiler.api import Plan


@dataclasses.dataclass(frozen=True)
class PlanFusion:
    """A fusion of a plan.

    Attributes
    ----------
    name : str
    reads : tuple of str
        Producers of the values that the fusion reads; see `made_by`.
    holds : tuple of str
        Operations inside the fusion, in the order in which they run.
    """

    name: str
    reads: tuple[str, ...]
    holds: tuple[str, ...]


def made_by(graph: Graph, value: int) -> str:
    """Return the operation that makes a value, such as ``sin``. For an argument, return its name."""
    rows = [row for row, values in enumerate(graph.statements.outputs) if value in values]
    kinds = graph.statements.kind
    rows = [row for row in rows if kinds[row] not in (Kind.ARGUMENT, Kind.FUSION)]
    return operation(graph, rows[0]) if rows else graph.values.name[value]


def operation(graph: Graph, row: int) -> str:
    """Return the operation of a statement, without the name of its package."""
    return graph.statements.name[row].rpartition(".")[2]


def statement_rows(graph: Graph, side: int) -> list[int]:
    """Return the top-level statements of the forward or backward.

    A fusion is one statement. Statements for arguments, for the return, and for gradients of outputs are left out.
    """
    own = (graph.statements.parent < 0) & (graph.statements.side == side)
    kinds = graph.statements.kind
    return [int(row) for row in np.flatnonzero(own) if kinds[row] not in (Kind.ARGUMENT, Kind.RETURN, Kind.GET_GRAD)]


def fusions(plan: Plan, side: int | None = None) -> tuple[PlanFusion, ...]:
    """Return the fusions of a plan, in the order in which they run.

    Parameters
    ----------
    plan : Plan
    side : int, optional
        Only the fusions of this side: `workbench.core.graph.FORWARD` or `BACKWARD`. By default both sides.
    """
    graph = plan.graph
    statements = graph.statements
    sides = (FORWARD, BACKWARD) if side is None else (side,)
    return tuple(
        PlanFusion(
            name=statements.name[row],
            reads=tuple(made_by(graph, int(value)) for value in statements.inputs[row]),
            holds=tuple(operation(graph, int(member)) for member in np.flatnonzero(statements.parent == row)),
        )
        for chosen in sides
        for row in statement_rows(graph, chosen)
        if statements.kind[row] == Kind.FUSION
    )


def plan_choices(bench: Workbench, choices: Any) -> Plan:
    """Return the plan under a student's choices. The bench's choices do not change.

    Raises
    ------
    LessonError
        If `choices` is not a dict of site to option, or names a site that does not exist.
    ChoiceError
        If a choice is refused.
    """
    if not isinstance(choices, Mapping) or not all(isinstance(text, str) for pair in choices.items() for text in pair):
        raise LessonError(f"choices are a dict from a site's id to an option, both texts; given {short_repr(choices)}")
    for id in choices:
        if id not in bench.plan.site_of:
            raise LessonError(f"there is no site {short_repr(id)}{suggest_names(id, list(bench.plan.site_of))}")
    return bench.plan_under(choices)


def open_rewritten(program: Any, example: tuple[Any, ...], executor: str = "torch") -> Workbench:
    """Open a program that a student wrote.

    Raises
    ------
    LessonError
        If `program` is not a function.
    ProgramError
        If the program cannot be traced.
    """
    from workbench.bench import open as open_program

    if not callable(program):
        raise LessonError(f"the answer is a function of {len(example)} tensor(s); given {short_repr(program)}")
    return open_program(program, *example, executor=executor)


def same_results(program: Any, variant: Any, example: tuple[Any, ...]) -> bool:
    """Return whether two programs return equal values and write equal values into their inputs, up to rounding."""

    def call(fn: Any) -> list[Any]:
        given = [tensor.detach().clone() for tensor in example]
        returned = fn(*given)
        return [*(returned if isinstance(returned, tuple | list) else [returned]), *given]

    ours, theirs = call(program), call(variant)
    return len(ours) == len(theirs) and all(map(_is_close, ours, theirs))


def _is_close(first: Any, second: Any) -> bool:
    import torch

    if not (isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)):
        return first is second
    return first.shape == second.shape and torch.allclose(first, second, rtol=1e-4, atol=1e-5)
