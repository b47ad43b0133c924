"""Preset orders of statements and of collectives. A fit may choose them in addition to options of storages."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from workbench.analysis.fit.option_costs import OptionCost
from workbench.bench.session.fit_request import ORDER, WAITS

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.compiler.api import Capture, Plan

_AT_ONCE = ("order.gradients", "order.updates")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PresetPlan(OptionCost):
    """Options of storages and choices for other sites, with the memory and time of their plan.

    Attributes
    ----------
    beside : mapping of str to str
        Choices for sites other than storages: the order of statements, the order of collectives, and cuts between
        fusions.
    planned_bytes : int
        Peak memory of the plan, or its reserved memory if the fit limits reserved memory. The peak memory equals
        `peak_bytes` if nothing is fused and `beside` is empty.
    waiting_s : float
        Simulated seconds of a step in which compute is idle: it waits for collectives, or for the host to launch the
        next statement. Zero without collectives.
    compilations : int
        Number of fusions to compile.
    """

    beside: Mapping[str, str]
    planned_bytes: int = 0
    waiting_s: float = 0.0
    compilations: int = 0

    @property
    def whole_s(self) -> float:
        """Seconds by which a step is longer than the compute time of a step that saves everything."""
        return self.added_s + self.waiting_s


def orders_to_try(plan: Plan, using: Collection[str], pinned: Collection[str]) -> tuple[dict[str, str], ...]:
    """Return the orders of statements that a fit tries. Each order is a set of choices.

    If the fit may move collectives, the first set is empty, so the present order of statements is also tried. If the
    user has made a choice for the order of statements, no other order is tried.
    """
    found: list[dict[str, str]] = [{}] if may_move_waits(plan, using, pinned) else []
    if ORDER in using and not any(id.startswith(("order.", "order:")) for id in pinned):
        known = plan.site_of
        early = {id: "at once" for id in _AT_ONCE if id in known and "at once" not in known[id].illegal}
        found += [{"order.statements": "recompute just in time", **early}, {"order.statements": "least peak"}]
    return tuple(found)


def may_share(plan: Plan, pinned: Collection[str]) -> bool:
    """Return whether a search may choose that identical fusions are compiled once."""
    return "sharing.identical" in plan.site_of and "sharing.identical" not in pinned


def may_move_waits(plan: Plan, using: Collection[str], pinned: Collection[str]) -> bool:
    """Return whether the plan has collectives, and a fit may move them."""
    by_hand = any(id.startswith(("waits.", "waits:")) for id in pinned)
    return WAITS in using and not by_hand and plan.overlap is not None


def wait_orders(
    captured: Capture, choices: Mapping[str, str], machine: Machine
) -> Iterator[tuple[dict[str, str], int, float]]:
    """For each preset order of collectives, yield its choices, the peak memory, and the time in which compute waits.

    The peak is in bytes. The time is in seconds, from a simulated step. All other choices stay the same.
    """
    from workbench.levers.waits import replanner as known

    for made in known.FEW:
        simulation, peak_bytes = known.weigh(captured, {**choices, **made}, machine)
        yield dict(made), peak_bytes, simulation.idle_compute_s
