"""Lever `order`: when statements run.

Acts on the forward and backward traces after the split, so that fusions and what is saved stay as they are: whole
fusions move. What may pass what, and which order has the least predicted peak, `workbench.analysis.ordering` reads off
the plan's graph.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from workbench.analysis.ordering import Half, just_in_time, least_peak, order_of
from workbench.analysis.reordered import top_rows
from workbench.compiler import reorder
from workbench.compiler.names import is_statement
from workbench.compiler.reader import read_execution
from workbench.compiler.stage import Made, Stage
from workbench.compiler.thunder_api import TraceCtx, TraceTag
from workbench.graph import BACKWARD, FORWARD
from workbench.lever import Lever, Setting, register

STATEMENTS = "order.statements"
STOCK, LEAST_PEAK, JUST_IN_TIME = "stock", "least peak", "recompute just in time"

_WAYS: dict[str, Callable[[Half], list[int]]] = {LEAST_PEAK: least_peak, JUST_IN_TIME: just_in_time}


@register
class Order(Lever):
    """The order of statements."""

    name = "order"
    title = "Order of statements"

    def settings(self) -> tuple[Setting, ...]:
        """One choice for all statements."""
        return (
            Setting(
                name="statements",
                label="when statements run: as Thunder has them, so that the predicted peak is least, or what is "
                "recomputed right before its first reader; never with a higher predicted peak than stock",
                default=STOCK,
                options=(STOCK, LEAST_PEAK, JUST_IN_TIME),
                applies=_why_not,
            ),
        )

    def after_split(
        self, trace: TraceCtx, choices: Mapping[str, str], stage: Stage, made: Made
    ) -> tuple[TraceCtx, Made]:
        """Put the forward trace, then the backward trace, in order."""
        choice = choices.get(STATEMENTS, STOCK)
        if choice == STOCK:
            return trace, made
        backward = TraceTag.BACKWARD in trace.tags
        graph = read_execution(made.forward, trace, stage) if backward and made.forward else None
        if graph is None:
            graph = read_execution(trace, None, stage)
        side = BACKWARD if backward else FORWARD
        found = order_of(graph, _WAYS[choice], [side])
        if found.moved:
            top = top_rows(graph)
            first = int((graph.statements.side[top] < side).sum())
            place = {int(row): at for at, row in enumerate(top[first:])}
            statements = [b for b in trace.bound_symbols if is_statement(b)]
            wanted = [statements[place[int(row)]] for row in found.order[first:]]
            trace = reorder.in_order(trace, wanted, "Statements in another order")
        moved = made.moved_statements + found.moved
        return trace, dataclasses.replace(made, forward=made.forward or trace, moved_statements=moved)


def _why_not(stage: Stage) -> str:
    if reorder.has_collectives(stage.claimed):
        return "the program has collectives, and where they stand beside compute is what the lever waits decides"
    return ""
