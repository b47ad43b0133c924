"""The best order of collectives among many, which are all simulated, under a limit on the bytes in flight."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workbench.analysis.cost.collective_overlap import Simulation
from workbench.analysis.cost.machines import Machine
from workbench.errors import PlanError

CLOSE = 1e-4
"""Steps that differ by less than this share count as equal; of two equal ones, the one with fewer bytes in flight
wins.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedOrder:
    """An order that was simulated.

    Attributes
    ----------
    choices : mapping of str to str
        That make it.
    step_s, exposed_communication_s, lower_bound_s : float
        The bound is the same for every order of these collectives.
    in_flight_peak_bytes : int
        Bytes of results that a statement reads later. Returned values do not count, because they are held in any case.
    """

    choices: Mapping[str, str]
    step_s: float
    exposed_communication_s: float
    in_flight_peak_bytes: int
    lower_bound_s: float

    def to_json(self) -> dict[str, Any]:
        """Return the same as plain data for JSON."""
        return {**dataclasses.asdict(self), "choices": dict(self.choices)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search:
    """Result of a search; every time is simulated.

    Attributes
    ----------
    best, now : SimulatedOrder
        The best order within the limit, and the current order.
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

    @property
    def choices(self) -> dict[str, str]:
        """The choices that give the best order, ready for `Workbench.choose`."""
        return dict(self.best.choices)

    @property
    def lower_bound_s(self) -> float:
        """Least number of seconds of any order of the best candidate's collectives."""
        return self.best.lower_bound_s

    @property
    def over_bound(self) -> float:
        """Relative distance of the best order from the bound: their ratio minus one."""
        return self.best.step_s / self.lower_bound_s - 1

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON data."""
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
    """Simulate every candidate and return the best within the limit.

    Parameters
    ----------
    candidates : iterable of mapping of str to str
        Sets of choices, each of which gives an order.
    simulate : callable
        Returns the simulation under given choices, and its lower bound in seconds.
    current : SimulatedOrder
        The order in force.
    machine : Machine
    limit_bytes : int, optional
        Limit for results in flight that a statement will read.

    Raises
    ------
    PlanError
        If no order is within the limit; the message names the least that an order needs.
    """
    tried = []
    for choices in candidates:
        found, bound_s = simulate(choices)
        tried.append(simulated_order(choices, found, bound_s))
    tried.sort(key=lambda one: (one.step_s, one.in_flight_peak_bytes))
    fitting = [one for one in tried if limit_bytes is None or one.in_flight_peak_bytes <= limit_bytes]
    if not fitting:
        least = min(one.in_flight_peak_bytes for one in tried)
        raise PlanError(f"no order keeps {limit_bytes} bytes in flight; the least that one needs is {least}")
    close = [one for one in fitting if one.step_s <= fitting[0].step_s * (1 + CLOSE)]
    best = min(close, key=lambda one: (one.in_flight_peak_bytes, one.step_s))
    return Search(best=best, now=current, tried=tuple(tried), machine=machine, limit_bytes=limit_bytes)


def simulated_order(choices: Mapping[str, str], simulation: Simulation, lower_bound_s: float) -> SimulatedOrder:
    """Return a simulation as a row of a search."""
    return SimulatedOrder(
        choices=choices,
        step_s=simulation.step_s,
        exposed_communication_s=simulation.exposed_communication_s,
        in_flight_peak_bytes=simulation.ahead_peak_bytes,
        lower_bound_s=lower_bound_s,
    )
