"""Find and describe the first difference between a plan and the stock plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.core.graph import Graph, Kind

if TYPE_CHECKING:
    from workbench.analysis.equivalence.value_numbering import Numbered

_CARRIERS = (Kind.FUSION, Kind.OFFLOAD, Kind.RELOAD)
"""Kinds of statements that only contain other statements or move values. An equal plan need not contain them."""


def source_of(graph: Graph, row: int) -> str:
    """Return the line of the user's code that a statement comes from; empty if the statement has no known origin.

    If the statement has no origin, use the origin of a statement that made one of its inputs. If the line of the origin
    is unknown, return the origin's id.
    """
    origin, asked = int(graph.statements.origin[row]), {row}
    while origin < 0:
        makers = (int(graph.values.producer[value]) for value in graph.statements.inputs[row])
        row = next((maker for maker in makers if maker >= 0 and maker not in asked), -1)
        if row < 0:
            return ""
        asked.add(row)
        origin = int(graph.statements.origin[row])
    found = graph.origins[origin]
    return f"{found.file}:{found.line}  {found.text}" if found.line else found.id


def first_difference(
    stock: Graph, stock_numbers: Numbered, plan: Graph, plan_numbers: Numbered, end: str
) -> tuple[int, str, str]:
    """Return three facts on the first difference: a row of `plan`, the user's line, and a description.

    The row is -1 if no statement of the plan differs, for example if the plan lacks a statement.

    Parameters
    ----------
    stock, plan : Graph
    stock_numbers, plan_numbers : Numbered
        The value numbers of both graphs. Values with equal numbers have equal content.
    end : str
        Name of the result that differs; see `Numbered.differing_result`.
    """
    numbers = {number for row in stock_numbers.rows for number in row} | {number for _, number in stock_numbers.writes}
    written = dict(plan_numbers.writes)
    statements = plan.statements
    for row in range(len(statements)):
        carries = statements.kind[row] in _CARRIERS or statements.name[row].startswith("bucket_")
        if carries or (row in written and written[row] not in numbers and not plan.statements.computes[row]):
            continue
        made = (*plan_numbers.rows[row], *(() if row not in written else (written[row],)))
        if any(number not in numbers for number in made) and _stands_alone(plan, row):
            return row, source_of(plan, row), _describe_difference(stock, stock_numbers, plan, plan_numbers, row)
    here = {number for row in plan_numbers.rows for number in row} | {number for _, number in plan_numbers.writes}
    for row, number in stock_numbers.writes:
        if number not in here:
            name = stock.statements.name[row]
            return (
                -1,
                source_of(stock, row),
                f"{name} writes in place in the stock plan, but no statement of this plan does",
            )
    if end == "draws":
        drawn = next(
            (row for row, made in enumerate(stock_numbers.rows) if set(made) & set(stock_numbers.draws) - here), -1
        )
        source = source_of(stock, drawn) if drawn >= 0 else ""
        return (
            -1,
            source,
            f"this plan draws random numbers {len(plan_numbers.draws)} times; "
            f"the stock plan draws {len(stock_numbers.draws)} times",
        )
    return _difference_at_end(stock, stock_numbers, plan, plan_numbers, end)


def _stands_alone(graph: Graph, row: int) -> bool:
    """Return whether an equal plan must contain a statement with the same results as the statement at `row`.

    Return False for a collective on a bucket, and for its wait: a plan without buckets has several collectives instead.
    """
    while row >= 0 and graph.statements.kind[row] in (Kind.COLLECTIVE, Kind.WAIT):
        row = int(graph.values.producer[graph.statements.inputs[row][0]])
    return row < 0 or not graph.statements.name[row].startswith("bucket_")


def _difference_at_end(
    stock: Graph, stock_numbers: Numbered, plan: Graph, plan_numbers: Numbered, end: str
) -> tuple[int, str, str]:
    if end == "left":
        return _unwaited_difference(stock, stock_numbers, plan, plan_numbers)
    if end in ("written", "written_forward"):
        ours, theirs = getattr(plan_numbers, end), getattr(stock_numbers, end)
        name = next(name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name))
        when = "after the forward" if end == "written_forward" else "after the step"
        return -1, "", f"the content of {name} {when} differs from the stock plan"
    ours, theirs = getattr(plan_numbers, end), getattr(stock_numbers, end)
    if len(ours) != len(theirs):
        return -1, "", f"there are {len(ours)} {end}; the stock plan has {len(theirs)}"
    place = next(i for i, (one, other) in enumerate(zip(ours, theirs, strict=True)) if one != other)
    what = "output" if end == "outputs" else "gradient"
    row = next((row for row, made in enumerate(plan_numbers.rows) if ours[place] in made), -1)
    if row < 0:
        return -1, "", f"{what} {place} differs from the stock plan"
    return (
        row,
        source_of(plan, row),
        f"{plan.statements.name[row]} computes {what} {place}, but does not in the stock plan",
    )


def _unwaited_difference(
    stock: Graph, stock_numbers: Numbered, plan: Graph, plan_numbers: Numbered
) -> tuple[int, str, str]:
    here, there = set(plan_numbers.left), set(stock_numbers.left)
    row = _row_that_makes(plan_numbers, here - there)
    if row >= 0:
        return row, source_of(plan, row), "a collective is sent, but never waited for"
    row = _row_that_makes(plan_numbers, there - here)
    if row >= 0:
        return row, source_of(plan, row), "a collective is waited for, but never in the stock plan"
    row = _row_that_makes(stock_numbers, there - here)
    if row >= 0:
        return -1, source_of(stock, row), "the stock plan sends a collective that this plan does not send"
    return -1, "", "the collectives that are never waited for are sent in another order than in the stock plan"


def _row_that_makes(numbers: Numbered, wanted: set[int]) -> int:
    return next((row for row, made in enumerate(numbers.rows) if not wanted.isdisjoint(made)), -1)


def _names(graph: Graph, row: int) -> list[str]:
    return [graph.values.name[value] for value in graph.statements.outputs[row]]


def _names_read(graph: Graph, row: int) -> list[str]:
    """Return the names of the values that the first line of a statement's text reads, in order, with repetitions."""
    taken = graph.statements.inputs[row]
    fields = graph.statements.computes[row].split("\n")[0].split("\t")
    return [graph.values.name[taken[int(at)]] for at in fields[1].split()] if len(fields) > 1 else []


def _counterparts(stock: Graph, plan: Graph, row: int) -> Iterator[int]:
    """Yield the rows of `stock` that may correspond to `row` of `plan`, most likely first."""
    made = {name.removeprefix("re_") for name in _names(plan, row)}
    by_name = [other for other in range(len(stock.statements)) if made & set(_names(stock, other))]
    yield from (other for other in by_name if stock.statements.kind[other] != Kind.FUSION)
    one = plan.statements
    for other in range(len(stock.statements)):
        same = (stock.statements.origin[other], stock.statements.side[other], stock.statements.name[other])
        if same == (one.origin[row], one.side[row], one.name[row]):
            yield other


def _describe_difference(stock: Graph, stock_numbers: Numbered, plan: Graph, plan_numbers: Numbered, row: int) -> str:
    name = plan.statements.name[row]
    other = next(_counterparts(stock, plan, row), -1)
    if other < 0:
        return f"{name} computes a value that no statement of the stock plan computes"
    ours, theirs = plan.statements.computes[row], stock.statements.computes[other]
    if ours.partition("\t")[0] != theirs.partition("\t")[0]:
        return (
            f"{name} computes {ours.partition(chr(9))[0]}; in the stock plan it computes {theirs.partition(chr(9))[0]}"
        )
    here, there = _names_read(plan, row), _names_read(stock, other)
    for at, (one, another) in enumerate(zip(here, there, strict=False)):
        if one.removeprefix("re_") != another.removeprefix("re_"):
            return f"{name} reads {one}, but the stock plan reads {another}"
        if plan_numbers.reads[row][at : at + 1] != stock_numbers.reads[other][at : at + 1]:
            return f"{name} reads {one}, whose content then differs from the stock plan"
    return f"{name} differs from the stock plan in its position among random draws or writes"
