"""Reorder the collectives of a plan in milliseconds, and search for the fastest order by simulation."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.cost.collective_overlap import Simulation, simulate
from workbench.analysis.cost.machines import Machine
from workbench.analysis.equivalence.commutes import commutes
from workbench.analysis.graphs.reorder_graph import reorder_graph, top_rows, with_members
from workbench.analysis.memory.liveness import timeline
from workbench.compiler.driver.capture import Capture
from workbench.compiler.interop.thunder_api import TraceCtx
from workbench.compiler.pipeline.collective_schedule import CollectiveSchedule
from workbench.compiler.pipeline.stage_log import StageTime
from workbench.compiler.planner.plan import UNPROVEN, Plan, SplitTraces, unmatched_choices
from workbench.compiler.planner.planner import base_of
from workbench.compiler.trace.stable_ids import is_statement
from workbench.compiler.trace.validate import validate, validate_order
from workbench.core.graph import Kind
from workbench.core.lever import Setting, lever_named
from workbench.errors import PlanError
from workbench.levers.waits import constraints, positions
from workbench.levers.waits.order_search import Search, simulated_order
from workbench.levers.waits.order_search import search_orders as find_order


@dataclasses.dataclass(frozen=True)
class Orders:
    """A replanner that only reorders the collectives of a plan.

    Statements move but do not change. Therefore, this replanner takes only milliseconds: it reorders the plan's graph,
    and reads no trace.

    Attributes
    ----------
    base : Plan
        The plan under all choices except those that only reorder collectives.
    communication : mapping of str to CollectiveSchedule
        For ``forward`` and ``backward``, the schedule: it says which statements may move, and how far.
    settings : tuple of Setting
        The settings of the lever `waits`.
    """

    base: Plan
    communication: Mapping[str, CollectiveSchedule]
    settings: tuple[Setting, ...]

    @cached_property
    def rows(self) -> dict[str, NDArray[np.intp]]:
        """Maps ``forward`` and ``backward`` to the rows of their statements in the plan's graph.

        The rows are in the order of the schedule. A forward or backward without collectives has no schedule; its rows
        are in the order of the graph.
        """
        graph, split = self.base.graph, self.base.split
        top = top_rows(graph)
        first_backward = int(np.searchsorted(top, graph.first_backward))
        found = {"forward": top[:first_backward], "backward": top[first_backward:]}
        for side, trace in (("forward", split.forward), ("backward", split.backward)):
            schedule = self.communication.get(side)
            if schedule is not None and trace is not None:
                found[side] = found[side][_positions(trace, schedule)]
        return found

    def orders(self, choices: Mapping[str, str]) -> dict[str, list[int]]:
        """Return the order of each schedule under `choices`, as indices of the schedule's statements."""
        schedules = self.communication
        return {side: schedule.arrange(positions.sort_keys(schedule, choices)) for side, schedule in schedules.items()}

    def in_order(self, orders: Mapping[str, list[int]]) -> NDArray[np.intp]:
        """Convert the result of `orders` to rows of the plan's graph. Members of fusions are not included."""
        return np.concatenate([rows[orders[side]] if side in orders else rows for side, rows in self.rows.items()])

    def simulate(self, choices: Mapping[str, str], machine: Machine) -> tuple[Simulation, float]:
        """Simulate a step under `choices`.

        Return the simulation, and a lower bound of the step time in seconds, which holds for all orders.
        """
        known = self.base.overlap_on(machine)
        assert known is not None
        order = self.in_order(self.orders(choices))
        return simulate(self.base.graph, known.cost, order, known.links), known.lower_bound_s

    def weigh(self, choices: Mapping[str, str], machine: Machine) -> tuple[Simulation, int]:
        """Simulate a step under `choices`. Return the simulation, and the predicted peak memory in bytes."""
        rows = with_members(self.base.graph, self.in_order(self.orders(choices)))
        return self.simulate(choices, machine)[0], timeline(reorder_graph(self.base.graph, rows)).peak_bytes

    def plan(self, choices: Mapping[str, str], begun: float) -> Plan:
        """Return the plan under all `choices`. `begun` is the `time.perf_counter` at the start of planning."""
        schedules, split = self.communication, self.base.split
        sites = positions.sites_under(self.base.sites, self.communication, choices, self.settings)
        orders = self.orders(choices)
        arranged = time.perf_counter()
        order = self.in_order(orders)
        rows = with_members(self.base.graph, order)
        graph = reorder_graph(self.base.graph, rows)
        validate_order(graph)
        read = time.perf_counter()

        def traces() -> tuple[TraceCtx, TraceCtx | None]:
            edited = {
                side: _reorder(trace, schedules[side], orders[side]) if side in schedules else trace
                for side, trace in (("forward", split.forward), ("backward", split.backward))
                if trace is not None
            }
            validate(edited["forward"], edited.get("backward"))
            return edited["forward"], edited.get("backward")

        line = timeline(graph)
        fusions = np.flatnonzero(self.base.graph.statements.kind == Kind.FUSION)
        moved = np.searchsorted(fusions, rows[graph.statements.kind == Kind.FUSION])
        return dataclasses.replace(
            self.base,
            graph=graph,
            timeline=line,
            census=self.base.census.reorder(moved.tolist()),
            sites=sites,
            split=SplitTraces(traces),
            unmatched=unmatched_choices(choices, sites),
            stages=(
                StageTime("order", arranged - begun),
                StageTime("read", read - arranged),
                StageTime("predict", time.perf_counter() - read),
            ),
            unordered=self.base,
            rows=rows,
            # If `commutes` cannot decide that the results stay equal, the plan is proven like any other plan.
            proof=self.base.proof if commutes(self.base.graph, rows) else UNPROVEN,
        )


def _positions(trace: TraceCtx, schedule: CollectiveSchedule) -> list[int]:
    """Return the position in a plan's trace of each statement of a schedule.

    The plan's fusions may have other numbers in their names, but they have the same arguments and output.
    """
    place = {(id(b.args), id(b.output)): at for at, b in enumerate(filter(is_statement, trace.bound_symbols))}
    return [place[id(b.args), id(b.output)] for b in schedule.statements]


def _reorder(trace: TraceCtx, schedule: CollectiveSchedule, order: Sequence[int]) -> TraceCtx:
    own, at = tuple(filter(is_statement, trace.bound_symbols)), _positions(trace, schedule)
    return constraints.reorder(trace, dataclasses.replace(schedule, statements=tuple(own[i] for i in at)), order)


def search_best_order(
    captured: Capture,
    choices: Mapping[str, str],
    machine: Machine,
    limit_bytes: int | None = None,
    buckets: Sequence[str] = (),
) -> Search:
    """Search for the best order of collectives by simulation. Choices that do not affect the order stay as they are.

    Parameters
    ----------
    captured : Capture
    choices : mapping of str to str
        The current choices.
    machine : Machine
    limit_bytes : int, optional
        Limit of the bytes in flight: the results of collectives that are issued and not yet waited for. Only results
        that a statement reads count.
    buckets : sequence of str
        Options of ``waits.bucket`` to try; by default, only the current option. Each option needs a plan of its own.

    Raises
    ------
    PlanError
        If the program has no collectives, or if no order is within the limit.
    """
    if not _orders(captured, choices).communication:
        raise PlanError(f"{captured.program.name} has no collectives to order")
    kept = {id: option for id, option in positions.drop_order(choices).items() if not id.startswith("waits:")}
    followed = {id: positions.POLICY for id in choices if id.startswith("waits:")}
    if positions.STAGE in choices:
        # Let the settings act after fusion. Before fusion, each order would need a plan of its own.
        followed[positions.STAGE] = positions.AFTER_FUSION

    def simulate(change: Mapping[str, str]) -> tuple[Simulation, float]:
        made = {id: option for id, option in change.items() if option not in _DEFAULTS}
        wanted = {**{id: option for id, option in kept.items() if id not in change}, **made}
        return _orders(captured, wanted).simulate(wanted, machine)

    bucketed: list[dict[str, str]] = [{positions.BUCKET: option} for option in dict.fromkeys(buckets)] or [{}]
    candidates = [{**followed, **each, **order} for each in bucketed for order in positions.orders_to_try(limit_bytes)]
    now = simulated_order(choices, *_orders(captured, choices).simulate(choices, machine))
    return find_order(candidates, simulate, now, machine, limit_bytes)


FEW: Sequence[Mapping[str, str]] = [
    {"waits.issue": issue, "waits.wait": positions.LATE, "waits.gradients": gradients}
    for issue in (positions.JUST_IN_TIME, *(f"in_flight({k})" for k in (1, 2, 4, 8)), positions.CONSUMER)
    for gradients in (positions.EARLIEST, positions.STOCK)
]
"""The orders of collectives that a fit tries, for each set of its other choices.

`search_best_order` tries more orders, because it has only one set of other choices.
"""


def weigh(captured: Capture, choices: Mapping[str, str], machine: Machine) -> tuple[Simulation, int]:
    """Simulate a step under `choices`. Return the simulation, and the predicted peak memory in bytes.

    A plan is computed only if no plan under the other choices is cached: choices that only reorder collectives need no
    new plan.

    Raises
    ------
    PlanError, ChoiceError
        In the same cases as in `workbench.compiler.planner.planner.plan`.
    """
    return _orders(captured, choices).weigh(choices, machine)


_DEFAULTS = (positions.POLICY, positions.NONE, positions.AFTER_FUSION)


def _orders(captured: Capture, choices: Mapping[str, str]) -> Orders:
    """Return the `Orders` of the plan under all choices except those that only reorder collectives."""
    found = base_of(captured, positions.drop_order(choices)).replanner(lever_named(positions.WAITS))
    assert isinstance(found, Orders)
    return found
