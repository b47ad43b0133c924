"""Search for the assignment with the least peak memory, however long the step.

An assignment sets each storage to an option: save, recompute or offload.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint
from scipy.sparse import csr_array

from workbench.analysis.fit.evaluations import Evaluations
from workbench.analysis.fit.fit_problem import FitProblem
from workbench.analysis.fit.lp_bound import Relaxation
from workbench.analysis.fit.milp_process import solve_whole
from workbench.analysis.fit.option_costs import OptionCost, lowest_first
from workbench.analysis.memory.peak_by_statement import OFFLOAD

_ROUNDS = 40
_CUTS_PER_ROUND = 40


def search_lowest_peak(
    problem: FitProblem,
    evaluations: Evaluations,
    relaxation: Relaxation,
    frees: Callable[[int], NDArray[np.float64]],
) -> None:
    """Search for the assignment with the least peak memory. Afterwards, `evaluations` contains it.

    Each round solves a linear program. The rounds end if the lower bound of peak memory is reached, or if the program's
    least peak is not below the lowest known peak. If evaluations need no plan, single changes then lower the peak.

    Parameters
    ----------
    problem : FitProblem
    evaluations : Evaluations
    relaxation : Relaxation
    frees : callable
        See `Rounding`.
    """
    best, x = evaluations.stock, np.zeros(len(problem.choices))
    rows, limits = [], []
    for _ in range(_ROUNDS):
        if evaluations.lowest().peak_bytes <= relaxation.floor_bytes:
            return
        point, peaks = evaluations.evaluate(relaxation.options(np.flatnonzero(x > 0.5).tolist()))
        best = min(best, point, key=lowest_first)
        for place in _highest(peaks, int(0.98 * point.peak_bytes)):
            freed = frees(place)
            rows.append(freed)
            limits.append(float(peaks[place]) + float(freed @ x))
        # Minimize the peak z. At each position with a row, the bytes minus the freed bytes must be at most z.
        count = len(problem.choices)
        if not count:
            break
        scale = max(1.0, float(evaluations.stock.peak_bytes))
        matrix = np.vstack([*(np.append(row / scale, 1.0) for row in rows)])
        solved = solve_whole(
            problem.go_on,
            np.append(problem.time.of_recomputations() * 1e-6, 1.0),
            constraints=[
                LinearConstraint(csr_array(matrix), np.asarray(limits) / scale, np.inf),
                *_one_option_each(problem),
            ],
            integrality=np.append(np.ones(count), 0),
            bounds=(0, np.append(np.ones(count), np.inf)),
            nodes=problem.nodes,
        )
        if solved.x is None or np.array_equal(np.round(solved.x[:-1]), x):
            break
        if solved.x[-1] * scale >= evaluations.lowest().peak_bytes:
            break  # the least peak memory of the linear program is not below the lowest known peak memory
        x = np.round(solved.x[:-1])
    if problem.quick:
        away = evaluations.point({storage: OFFLOAD for storage, option in problem.choices if option == OFFLOAD})
        _lower_by_changes(problem, evaluations, relaxation, best)
        _lower_by_changes(problem, evaluations, relaxation, away)


def _lower_by_changes(problem: FitProblem, evaluations: Evaluations, relaxation: Relaxation, point: OptionCost) -> None:
    """Change the option of one storage at a time. Always make the best change, until none lowers the peak memory.

    The search also ends after `FitProblem.change_budget` evaluations. It finds improvements that the linear program
    misses, because the linear program does not model how choices interact.
    """
    left = problem.change_budget
    while left > 0:
        place = int(np.argmax(evaluations.peaks(point.options)))
        turns: list[dict[int, str]] = []
        helps = relaxation.most_bytes_freed(place)
        # A large program has too many choices to try all. Begin with the choices that may free the most bytes at the
        # peak.
        for number in np.argsort(-helps, kind="stable").tolist():
            storage, option = problem.choices[number]
            if len(turns) == left:
                break
            if point.options.get(storage) == option:
                turns.append({s: o for s, o in point.options.items() if s != storage})
            elif storage in point.options or helps[number]:
                turns.append({**point.options, storage: option})
        left -= len(turns)
        lower = min((evaluations.point(options) for options in turns), key=lowest_first, default=point)
        if lower.peak_bytes >= point.peak_bytes:
            break
        point = lower


def _one_option_each(problem: FitProblem) -> list[LinearConstraint]:
    """Return the constraint that a storage is not both recomputed and offloaded. The last variable is the peak."""
    numbers: dict[int, list[int]] = {}
    for number, (storage, _) in enumerate(problem.choices):
        numbers.setdefault(storage, []).append(number)
    pairs = [both for both in numbers.values() if len(both) > 1]
    matrix = np.zeros((len(pairs), len(problem.choices) + 1))
    for row, both in enumerate(pairs):
        matrix[row, both] = 1
    return [LinearConstraint(matrix, -np.inf, 1)] if pairs else []


def _highest(peaks: NDArray[np.int64], limit_bytes: int) -> list[int]:
    """Return the positions that exceed a limit, highest first; at most `_CUTS_PER_ROUND`."""
    over = np.flatnonzero(peaks > limit_bytes)
    highest: list[int] = over[np.argsort(-peaks[over], kind="stable")][:_CUTS_PER_ROUND].tolist()
    return highest
