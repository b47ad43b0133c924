"""What no choice of what to save can beat: a linear program that is wrong on one side only.

Every byte that a choice could free is counted, nothing that it adds; a statement that several choices repeat is run
once. With fractions of choices it is solved in milliseconds; with whole ones it takes longer and says more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, linprog, milp
from scipy.sparse import coo_array, csr_array

from workbench.analysis.solve import solve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """What no options can beat.

    Attributes
    ----------
    added_s : float
        Seconds that any options within the limit add at least.
    s_per_byte : float
        By which that falls when the limit rises by a byte.
    """

    added_s: float
    s_per_byte: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """Least ``costs @ x`` under ``matrix @ x <= limits`` and ``0 <= x <= upper``.

    Attributes
    ----------
    costs, upper : (variables,) float64
        Costs in seconds.
    matrix : (rows, variables) sparse float64
        The first `places` rows are of memory, in units of `unit_bytes`.
    limits : (rows,) float64
    choices : int
        Variables that are choices, which come first.
    places : int
    unit_bytes : float
    """

    costs: NDArray[np.float64]
    upper: NDArray[np.float64]
    matrix: csr_array
    limits: NDArray[np.float64]
    choices: int
    places: int
    unit_bytes: float


def problem(
    freed: NDArray[np.float64],
    needed: NDArray[np.float64],
    chains: Sequence[Collection[int]],
    seconds: NDArray[np.float64],
    transfers: NDArray[np.float64],
    hidden: tuple[float, float],
    pairs: Sequence[Sequence[int]],
) -> Problem:
    """The program for one limit.

    Parameters
    ----------
    freed : (choices, places) float64
        The most bytes that each choice could free at each place.
    needed : (places,) float64
        Bytes to be freed there.
    chains : sequence of collection of int
        Statements that each choice runs again; none of one that moves a storage away.
    seconds : (statements,) float64
    transfers : (choices,) float64
        Seconds one way.
    hidden : tuple of float
        Of them hidden in the forward, and in the backward.
    pairs : sequence of sequence of int
        Choices of which only one can be made.
    """
    count = len(chains)
    unit = max(1.0, float(needed.max(initial=0.0)))
    # Of places that the same choices help at, only the one with the most to free can bind.
    kept: dict[bytes, int] = {}
    for place in range(len(needed)):
        key = freed[:, place].tobytes()
        if key not in kept or needed[place] > needed[kept[key]]:
            kept[key] = place
    picked = list(kept.values())
    costs = np.zeros(count)
    users: dict[int, list[int]] = {}
    for number, chain in enumerate(chains):
        for row in chain:
            users.setdefault(row, []).append(number)
    together: dict[tuple[int, ...], float] = {}
    for row, numbers in users.items():
        if len(numbers) == 1:
            costs[numbers[0]] += seconds[row]
        else:
            together[tuple(numbers)] = together.get(tuple(numbers), 0.0) + float(seconds[row])
    rows: list[int] = []
    columns: list[int] = []
    items: list[float] = []
    limits: list[float] = []

    def add(entries: Mapping[int, float], limit: float) -> None:
        rows.extend([len(limits)] * len(entries))
        columns.extend(entries)
        items.extend(entries.values())
        limits.append(limit)

    for place in picked:
        helps = np.flatnonzero(freed[:, place]).tolist()
        add({number: -float(freed[number, place]) / unit for number in helps}, -float(needed[place]) / unit)
    for way, hides in enumerate(hidden):
        moved = {number: float(transfers[number]) for number in np.flatnonzero(transfers).tolist()}
        add({**moved, count + way: -1.0}, hides)
    for pair in pairs:
        add(dict.fromkeys(pair, 1.0), 1.0)
    # Of what several choices run again: it is run as soon as one of them is made.
    for shared, group in enumerate(together):
        for number in group:
            add({number: 1.0, count + 2 + shared: -1.0}, 0.0)
    width = count + 2 + len(together)
    return Problem(
        costs=np.concatenate([costs, [1.0, 1.0], list(together.values())]),
        upper=np.concatenate([np.ones(count), [np.inf, np.inf], np.ones(len(together))]),
        matrix=csr_array(coo_array((items, (rows, columns)), shape=(len(limits), width))),
        limits=np.asarray(limits, float),
        choices=count,
        places=len(picked),
        unit_bytes=unit,
    )


def fractions(given: Problem, go_on: Callable[[], None] = lambda: None) -> Bound:
    """The bound if choices may be fractions; nothing where there is nothing to free.

    Parameters
    ----------
    given : Problem
    go_on : callable, optional
        Called while it is solved; what it raises ends the work.
    """
    if not given.places or not given.choices:
        return Bound(added_s=0.0, s_per_byte=0.0)
    scale = _scale(given)
    costs = given.costs / scale
    solved: Any = solve(
        go_on,
        linprog,
        costs,
        A_ub=given.matrix,
        b_ub=given.limits,
        bounds=np.column_stack([np.zeros(len(costs)), given.upper]),
        method="highs",
    )
    if solved.x is None:
        return Bound(added_s=0.0, s_per_byte=0.0)
    price = max(0.0, -float(solved.ineqlin.marginals[: given.places].sum()) / given.unit_bytes)
    return Bound(added_s=max(0.0, float(solved.fun)) * scale, s_per_byte=price * scale)


def whole(given: Problem, limit_s: float) -> float:
    """Seconds that choices add at least, if each is made or not, as far as that is proven within a time.

    Parameters
    ----------
    given : Problem
    limit_s : float
        Of the solver; what it has proven by then counts.
    """
    if not given.places or not given.choices:
        return 0.0
    scale = _scale(given)
    solved: Any = milp(
        given.costs / scale,
        constraints=LinearConstraint(given.matrix, -np.inf, given.limits),
        integrality=np.arange(len(given.costs)) < given.choices,
        bounds=(0, given.upper),
        options={"time_limit": limit_s, "mip_rel_gap": 1e-4},
    )
    proven = solved.mip_dual_bound
    return max(0.0, float(proven)) * scale if proven is not None and np.isfinite(proven) else 0.0


def _scale(given: Problem) -> float:
    """Seconds in which costs are at most about one, so that the solver's tolerances mean the same for each program."""
    dear = float(given.costs[: given.choices].sum() + given.costs[given.choices + 2 :].sum())
    return max(dear, 1e-6)
