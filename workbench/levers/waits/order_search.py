"""Simulate many orders of collectives, and find the best order within a limit of the bytes in flight.

Bytes in flight are the bytes of results of collectives that are issued and not yet waited for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workbench.analysis.cost.collective_overlap import Simulation
from workbench.analysis.cost.machines import Machine
from workbench.errors import PlanError

CLOSE = 1e-4
"""Step times that differ by less than this share count as equal.

If two orders have equal step times, the order with fewer bytes in flight is better.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedOrder:
    """An order of collectives, with the figures of its simulation.

    Attributes
    ----------
    choices : mapping of str to str
        The choices that give this order.
    step_s, exposed_communication_s, lower_bound_s : float
        Simulated step time, simulated exposed communication, and a lower bound of the step time for all orders of these
        collectives.
    in_flight_peak_bytes : int
        Most bytes in flight at once. Only results that a statement reads later count. Returned values do not count,
        because they stay alive in every order.
    """

    choices: Mapping[str, str]
    step_s: float
    exposed_communication_s: float
    in_flight_peak_bytes: int
    lower_bound_s: float

    def to_json(self) -> dict[str, Any]:
        """Return the order as plain data for JSON."""
        return {**dataclasses.asdict(self), "choices": dict(self.choices)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Result of a search. All times are simulated.

    Attributes
    ----------
    best, now : SimulatedOrder
        The best order within the limit, and the order before the search.
    tried : tuple of SimulatedOrder
        All orders that were simulated, fastest first.
    machine : Machine
    limit_bytes : int or None
    """

    best: SimulatedOrder
    now: SimulatedOrder
    tried: tuple[SimulatedOrder, ...]
    machine: Machine
    limit_bytes: int | None

    def __repr__(self) -> str:
        from workbench.summary import human_seconds

        step = f"{human_seconds(self.now.step_s)} → {human_seconds(self.best.step_s)}"
        bound = f"lower bound {human_seconds(self.lower_bound_s)}"
        made = ", ".join(f"{id}={option}" for id, option in self.choices.items()) or "none"
        orders = "1 order" if len(self.tried) == 1 else f"{len(self.tried)} orders"
        return f"Best of {orders}, simulated on {self.machine.name}: step {step}, {bound}. Choices: {made}"

    @property
    def choices(self) -> dict[str, str]:
        """The choices that lead to the best order, as an argument for `Workbench.choose`."""
        return dict(self.best.choices)

    @property
    def lower_bound_s(self) -> float:
        """Lower bound of the step time for all orders of the collectives in `best`."""
        return self.best.lower_bound_s

    @property
    def over_bound(self) -> float:
        """Share by which the step time of the best order exceeds the lower bound; 0 if they are equal."""
        return self.best.step_s / self.lower_bound_s - 1

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return {
            "best": self.best.to_json(),
            "now": self.now.to_json(),
            "tried": [tried.to_json() for tried in self.tried],
            "machine": self.machine.name,
            "limit_bytes": self.limit_bytes,
            "over_bound": self.over_bound,
            "simulated": True,
        }


def search_orders(
    candidates: Iterable[Mapping[str, str]],
    simulate: Callable[[Mapping[str, str]], tuple[Simulation, float]],
    current: SimulatedOrder,
    machine: Machine,
    limit_bytes: int | None = None,
) -> Search:
    """Simulate all candidates, and find the best one within the limit.

    Parameters
    ----------
    candidates : iterable of mapping of str to str
        Sets of choices. Each set leads to one order.
    simulate : callable
        Takes a set of choices, and returns the simulation and the lower bound of the step time in seconds.
    current : SimulatedOrder
        The order before the search.
    machine : Machine
    limit_bytes : int, optional
        Limit of `SimulatedOrder.in_flight_peak_bytes`.

    Raises
    ------
    PlanError
        If no order is within the limit; the message contains the smallest number of bytes that an order needs.
    """
    tried = []
    for choices in candidates:
        found, bound_s = simulate(choices)
        tried.append(simulated_order(choices, found, bound_s))
    tried.sort(key=lambda one: (one.step_s, one.in_flight_peak_bytes))
    fitting = [one for one in tried if limit_bytes is None or one.in_flight_peak_bytes <= limit_bytes]
    if not fitting:
        least = min(one.in_flight_peak_bytes for one in tried)
        raise PlanError(f"no order has at most {limit_bytes} bytes in flight; the least of all orders is {least}")
    close = [one for one in fitting if one.step_s <= fitting[0].step_s * (1 + CLOSE)]
    best = min(close, key=lambda one: (one.in_flight_peak_bytes, one.step_s))
    return Search(best=best, now=current, tried=tuple(tried), machine=machine, limit_bytes=limit_bytes)


def simulated_order(choices: Mapping[str, str], simulation: Simulation, lower_bound_s: float) -> SimulatedOrder:
    """Return the `SimulatedOrder` with the figures of a simulation."""
    return SimulatedOrder(
        choices=choices,
        step_s=simulation.step_s,
        exposed_communication_s=simulation.exposed_communication_s,
        in_flight_peak_bytes=simulation.ahead_peak_bytes,
        lower_bound_s=lower_bound_s,
    )
