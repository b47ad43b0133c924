"""Put a plan into other orders of its collectives in milliseconds, and find the best one by simulation."""

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
from workbench.analysis.order.collective_order_search import Search, simulated_order
from workbench.analysis.order.collective_order_search import search_orders as find_order
from workbench.compiler.driver.capture import Capture
from workbench.compiler.interop.thunder_api import TraceCtx
from workbench.compiler.pipeline import collective_constraints
from workbench.compiler.pipeline.collective_constraints import CollectiveSchedule
from workbench.compiler.pipeline.stage_log import StageTime
from workbench.compiler.planner.plan import UNPROVEN, Plan, SplitTraces, unmatched_choices
from workbench.compiler.planner.planner import base_of
from workbench.compiler.trace.stable_ids import is_statement
from workbench.compiler.trace.validate import validate, validate_order
from workbench.core.graph import Kind
from workbench.core.lever import Setting, lever_named
from workbench.errors import PlanError
from workbench.levers import collectives


@dataclasses.dataclass(frozen=True)
class Orders:
    """A plan that can be put into other orders in milliseconds. No statement changes, so no trace is read again.

    Attributes
    ----------
    base : Plan
        Made without choices that order collectives.
    communication : mapping of str to CollectiveSchedule
        What may move in the plan, by side.
    settings : tuple of Setting
        The lever's.
    """

    base: Plan
    communication: Mapping[str, CollectiveSchedule]
    settings: tuple[Setting, ...]

    @cached_property
    def rows(self) -> dict[str, NDArray[np.intp]]:
        """For each statement of a schedule, its row in the plan's graph, by side; rows of other sides are unchanged."""
        graph, split = self.base.graph, self.base.split
        top = top_rows(graph)
        first_backward = int(np.searchsorted(top, graph.first_backward))
        found = {"forward": top[:first_backward], "backward": top[first_backward:]}
        for side, trace in (("forward", split.forward), ("backward", split.backward)):
            schedule = self.communication.get(side)
            if schedule is not None and trace is not None:
                place = {id(bsym): at for at, bsym in enumerate(filter(is_statement, trace.bound_symbols))}
                found[side] = found[side][[place[id(bsym)] for bsym in schedule.statements]]
        return found

    def orders(self, choices: Mapping[str, str]) -> dict[str, list[int]]:
        """Return the statements of each schedule in their order under `choices`."""
        schedules = self.communication
        return {
            side: schedule.arrange(collectives.sort_keys(schedule, choices)) for side, schedule in schedules.items()
        }

    def in_order(self, orders: Mapping[str, list[int]]) -> NDArray[np.intp]:
        """Return the top-level rows of the plan's graph in their order under `orders`."""
        return np.concatenate([rows[orders[side]] if side in orders else rows for side, rows in self.rows.items()])

    def simulate(self, choices: Mapping[str, str], machine: Machine) -> tuple[Simulation, float]:
        """Return a step under `choices`, and its lower bound for any order, without making a plan."""
        known = self.base.overlap_on(machine)
        assert known is not None
        order = self.in_order(self.orders(choices))
        return simulate(self.base.graph, known.cost, order, known.links), known.lower_bound_s

    def weigh(self, choices: Mapping[str, str], machine: Machine) -> tuple[Simulation, int]:
        """Return a step under `choices`, and its peak in bytes, without making a plan."""
        rows = with_members(self.base.graph, self.in_order(self.orders(choices)))
        return self.simulate(choices, machine)[0], timeline(reorder_graph(self.base.graph, rows)).peak_bytes

    def plan(self, choices: Mapping[str, str], begun: float) -> Plan:
        """Return the plan under all `choices`; planning began at `begun`, by `time.perf_counter`."""
        schedules, split = self.communication, self.base.split
        sites = collectives.sites_under(self.base.sites, self.communication, choices, self.settings)
        orders = self.orders(choices)
        arranged = time.perf_counter()
        order = self.in_order(orders)
        rows = with_members(self.base.graph, order)
        graph = reorder_graph(self.base.graph, rows)
        validate_order(graph)
        read = time.perf_counter()

        def traces() -> tuple[TraceCtx, TraceCtx | None]:
            edited = {
                side: collective_constraints.reorder(trace, schedules[side], orders[side])
                if side in schedules
                else trace
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
            # Otherwise it is proven by its values, as any plan is.
            proof=self.base.proof if commutes(self.base.graph, rows) else UNPROVEN,
        )


def search_best_order(
    captured: Capture,
    choices: Mapping[str, str],
    machine: Machine,
    limit_bytes: int | None = None,
    buckets: Sequence[str] = (),
) -> Search:
    """Find the best order of collectives by simulation, in addition to the other choices.

    Parameters
    ----------
    captured : Capture
    choices : mapping of str to str
        In force.
    machine : Machine
    limit_bytes : int, optional
        Limit for results in flight that a statement will read.
    buckets : sequence of str
        Options of ``waits.bucket`` to try; by default the current one. Each needs a separate plan.

    Raises
    ------
    PlanError
        If there are no collectives, or no order is within the limit.
    """
    if not _orders(captured, choices).communication:
        raise PlanError(f"{captured.program.name} has no collectives to order")
    kept = {id: option for id, option in collectives.drop_order(choices).items() if not id.startswith("waits:")}
    followed = {id: collectives.POLICY for id in choices if id.startswith("waits:")}
    if collectives.STAGE in choices:
        # Before fusion, each order needs a separate plan.
        followed[collectives.STAGE] = collectives.AFTER_FUSION

    def simulate(change: Mapping[str, str]) -> tuple[Simulation, float]:
        made = {id: option for id, option in change.items() if option not in _DEFAULTS}
        wanted = {**{id: option for id, option in kept.items() if id not in change}, **made}
        return _orders(captured, wanted).simulate(wanted, machine)

    bucketed: list[dict[str, str]] = [{collectives.BUCKET: option} for option in dict.fromkeys(buckets)] or [{}]
    candidates = [
        {**followed, **each, **order} for each in bucketed for order in collectives.orders_to_try(limit_bytes)
    ]
    now = simulated_order(choices, *_orders(captured, choices).simulate(choices, machine))
    return find_order(candidates, simulate, now, machine, limit_bytes)


FEW: Sequence[Mapping[str, str]] = [
    {"waits.issue": issue, "waits.wait": collectives.LATE, "waits.gradients": gradients}
    for issue in (collectives.JUST_IN_TIME, *(f"in_flight({k})" for k in (1, 2, 4, 8)), collectives.CONSUMER)
    for gradients in (collectives.EARLIEST, collectives.STOCK)
]
"""Orders that a fit tries with each set of its other choices. `search_best_order` tries more, for one set."""


def weigh(captured: Capture, choices: Mapping[str, str], machine: Machine) -> tuple[Simulation, int]:
    """Return a step under choices, some of which order collectives, and its peak in bytes; this needs at most one plan.

    Raises
    ------
    PlanError, ChoiceError
        As `workbench.compiler.planner.planner.plan`.
    """
    return _orders(captured, choices).weigh(choices, machine)


_DEFAULTS = (collectives.POLICY, collectives.NONE, collectives.AFTER_FUSION)


def _orders(captured: Capture, choices: Mapping[str, str]) -> Orders:
    """Return the plan under the choices that do more than order collectives; it can then be reordered."""
    found = base_of(captured, collectives.drop_order(choices)).replanner(lever_named(collectives.WAITS))
    assert isinstance(found, Orders)
    return found
