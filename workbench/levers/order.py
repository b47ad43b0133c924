"""Lever `order`: the order in which statements run.

The lever edits the forward and backward traces after the split. Therefore, it changes neither fusions nor saved
storages, and all statements of a fusion move together. `workbench.analysis.order.min_peak_order` finds in the plan's
graph which statements must stay in order, and searches for the order with the least predicted peak memory. Collectives
do not move, and no statement moves past a collective, so all ranks issue collectives in the same order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from workbench.analysis.graphs.reorder_graph import top_rows
from workbench.analysis.order import order_groups
from workbench.analysis.order.min_peak_order import (
    HalfStep,
    are_already_late,
    first_successors,
    just_in_time,
    least_peak,
    order_early,
    order_late,
    reorder_sides,
    rows_of_side,
    unchanged_order,
)
from workbench.compiler.interop.thunder_api import TraceCtx, TraceTag
from workbench.compiler.memory.graph_builder import read_execution
from workbench.compiler.pipeline.lever_context import LeverContext, LeverOutcome
from workbench.compiler.trace.stable_ids import is_statement
from workbench.compiler.trace.statement_order import apply_order
from workbench.core.graph import BACKWARD, FORWARD, Graph, StatementFlag
from workbench.core.lever import Lever, Setting, Site, register

STATEMENTS, FORWARDS, BACKWARDS = "order.statements", "order.forward", "order.backward"
GRADIENTS, UPDATES, RECOMPUTED = "order.gradients", "order.updates", "order:recomputed/"
INHERIT, STOCK, LEAST_PEAK, JUST_IN_TIME, AT_ONCE = (
    "inherit",
    "stock",
    "least peak",
    "recompute just in time",
    "at once",
)

_WAYS: dict[str, Callable[[HalfStep], list[int]]] = {
    STOCK: unchanged_order,
    LEAST_PEAK: least_peak,
    JUST_IN_TIME: just_in_time,
}


@register
class Order(Lever):
    """Decides the order of statements."""

    name = "order"
    title = "Order of statements"

    def settings(self) -> tuple[Setting, ...]:
        """Return five settings: for all statements, the forward, the backward, gradients, and in-place updates."""
        return (
            Setting(
                name="statements",
                label="order of all statements: stock, least predicted peak, or each recomputation right before its "
                "first reader; the predicted peak is never higher than in stock order",
                default=STOCK,
                options=(STOCK, LEAST_PEAK, JUST_IN_TIME),
            ),
            Setting(
                name="forward",
                label="order of the forward: inherited from all statements, stock, or least predicted peak",
                default=INHERIT,
                options=(INHERIT, STOCK, LEAST_PEAK),
            ),
            Setting(
                name="backward",
                label="order of the backward: inherited from all statements, stock, least predicted peak, or each "
                "recomputation right before its first reader",
                default=INHERIT,
                options=(INHERIT, STOCK, LEAST_PEAK, JUST_IN_TIME),
                applies=_only_with_backward,
            ),
            Setting(
                name="gradients",
                label="statements that finish a gradient: in the order of the backward, or as soon as their inputs "
                "exist",
                default=STOCK,
                options=(STOCK, AT_ONCE),
                applies=_only_with_backward,
            ),
            Setting(
                name="updates",
                label="statements that write parameters, an optimizer's state or buffers: in the order of the forward "
                "or backward, or each as soon as its inputs exist",
                default=STOCK,
                options=(STOCK, AT_ONCE),
                applies=_only_with_updates,
            ),
        )

    def sites(self, context: LeverContext, choices: Mapping[str, str], outcome: LeverOutcome) -> list[Site]:
        """Return a site for each layer that has recomputed statements."""
        graph = outcome.execution
        if graph is None:
            # A replayed config has no execution graph. Use the sites that `after_split` has recorded.
            return [_site(id, choices, order) for id, order in outcome.ordered.items()]
        if not (graph.statements.flags & StatementFlag.CLONE).any():
            return []
        first, way = first_successors(graph, BACKWARD), _order_of_side(choices, BACKWARD)
        again = order_groups.recomputed_by_layer(graph, rows_of_side(graph, BACKWARD))
        found = []
        for layer, members in again.items():
            id = RECOMPUTED + layer
            choice = choices.get(id, INHERIT)
            order = outcome.ordered.get(id, STOCK)
            illegal: dict[str, str] = {}
            if way == LEAST_PEAK:
                why_not = f"{BACKWARDS} is {LEAST_PEAK}, which determines the position of these statements"
                illegal = dict.fromkeys((STOCK, JUST_IN_TIME), why_not)
            elif order == STOCK and are_already_late(first, members):
                illegal = {JUST_IN_TIME: "each of these statements is already right before its first reader"}
            illegal.pop(choice, None)
            found.append(dataclasses.replace(_site(id, choices, order), illegal=illegal))
        return found

    def after_split(
        self, trace: TraceCtx, choices: Mapping[str, str], context: LeverContext, outcome: LeverOutcome
    ) -> tuple[TraceCtx, LeverOutcome]:
        """Return a split trace in the chosen order, and the outcome with the order in effect at each site."""
        if not any(id.startswith(("order.", "order:")) for id in choices):
            return trace, outcome
        backward = TraceTag.BACKWARD in trace.tags
        graph = read_execution(outcome.forward, trace, context) if backward and outcome.forward else None
        if graph is None:
            graph = read_execution(trace, None, context)
        side = BACKWARD if backward else FORWARD
        outcomes: dict[str, str] = {}
        found = reorder_sides(graph, lambda half: _arrange(graph, half, side, choices, outcomes), [side])
        if found.refused:
            outcomes = dict.fromkeys(outcomes, STOCK)
        if found.moved:
            top = top_rows(graph)
            first = int((graph.statements.side[top] < side).sum())
            place = {int(row): at for at, row in enumerate(top[first:])}
            statements = [b for b in trace.bound_symbols if is_statement(b)]
            wanted = [statements[place[int(row)]] for row in found.order[first:]]
            trace = apply_order(trace, wanted, "Statements in another order")
        outcome = dataclasses.replace(
            outcome,
            forward=outcome.forward or trace,
            moved_statements=outcome.moved_statements + found.moved,
            ordered={**outcome.ordered, **outcomes},
        )
        return trace, outcome


def _site(id: str, choices: Mapping[str, str], outcome: str) -> Site:
    choice, way = choices.get(id, INHERIT), _order_of_side(choices, BACKWARD)
    stays = outcome == STOCK and JUST_IN_TIME in (choice, way if choice == INHERIT else "")
    return Site(
        id=id,
        lever=Order.name,
        label=f"{id.removeprefix(RECOMPUTED)}: when to recompute"
        + ("; not moved, because the peak would be higher" if stays else ""),
        options=(INHERIT, STOCK, JUST_IN_TIME),
        choice=choice,
        default=INHERIT,
        outcome=outcome,
    )


def _order_of_side(choices: Mapping[str, str], side: int) -> str:
    """Return the option for the statements of a side, from its own setting or from the setting of all statements."""
    of_all = choices.get(STATEMENTS, STOCK)
    asked = choices.get(BACKWARDS if side == BACKWARD else FORWARDS, INHERIT)
    return of_all if asked == INHERIT else asked


def _arrange(
    graph: Graph, half: HalfStep, side: int, choices: Mapping[str, str], outcomes: dict[str, str]
) -> list[int]:
    """Return the positions of a side's statements in the chosen order. Store the option in effect at each site.

    The options are stored in `outcomes`. A move is not made if it would increase the predicted peak memory.
    """
    way = _order_of_side(choices, side)
    order = _WAYS[STOCK if way == JUST_IN_TIME else way](half)
    for id, move, members in _moves(graph, half, side, choices, outcomes):
        moved = move(half, order, set(members))
        lower = half.peak_bytes(moved) <= half.peak_bytes(order)
        if id.startswith(RECOMPUTED):
            outcomes[id] = JUST_IN_TIME if lower else STOCK
        order = moved if lower else order
    return order


type _Move = Callable[[HalfStep, Sequence[int], Collection[int]], list[int]]


def _moves(
    graph: Graph, half: HalfStep, side: int, choices: Mapping[str, str], outcomes: dict[str, str]
) -> Iterator[tuple[str, _Move, Sequence[int]]]:
    way = _order_of_side(choices, side)
    again = order_groups.recomputed_by_layer(graph, half.rows)
    groups = {RECOMPUTED + layer: members for layer, members in again.items()}
    if way == LEAST_PEAK:
        outcomes.update(dict.fromkeys(groups, LEAST_PEAK))
    elif side == BACKWARD:
        default = JUST_IN_TIME if way == JUST_IN_TIME else STOCK
        asked = {id: choices.get(id, INHERIT) for id in groups}
        outcomes.update(dict.fromkeys(groups, STOCK))
        late_ids = [id for id, option in asked.items() if (default if option == INHERIT else option) == JUST_IN_TIME]
        # First try to move the recomputed statements of all layers together: a recomputed statement of one layer may
        # read values that another layer recomputes.
        yield "", order_late, [place for id in late_ids for place in groups[id]]
        for id in late_ids:
            yield id, order_late, groups[id]
    if side == BACKWARD and choices.get(GRADIENTS, STOCK) == AT_ONCE:
        yield GRADIENTS, order_early, order_groups.gradient_statements(graph, half)
    if choices.get(UPDATES, STOCK) == AT_ONCE:
        yield UPDATES, order_early, order_groups.update_statements(graph, half)


def _only_with_backward(context: LeverContext) -> str:
    return "" if context.has_backward else "the program has no backward"


def _only_with_updates(context: LeverContext) -> str:
    if (context.graph.statements.flags & StatementFlag.INPLACE).any():
        return ""
    return (
        "no statement writes in place. An optimizer's updates are in a separate program, which runs after backward() "
        "has returned all gradients. No order moves statements between programs, so choose this in the optimizer's "
        "program"
    )
