"""Predict the time of a step from measured times of statements. A roofline gives the times of unmeasured statements.

A roofline is a model with two rates, operations and bytes per second. It is fitted to the measured statements.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.cost.machines import Machine
from workbench.core.graph import Graph, Kind, StatementFlag

_CLEARLY = 1.1
"""The rate of operations is fitted to a statement only if its operations take longer than its bytes by this factor.

With a factor of 1, many statements whose two times are nearly equal would determine the rate.
"""


@dataclasses.dataclass(frozen=True)
class Rates:
    """Rates of a machine, fitted to measured statements.

    Attributes
    ----------
    flops_per_s : float
        Operations of all statements whose operations take longer than their bytes, divided by the time of these
        statements.
    bytes_per_s : float
        Bytes of all other statements, divided by their time.
    launch_s : float
        Seconds of a statement that computes and moves nothing.
    """

    flops_per_s: float
    bytes_per_s: float
    launch_s: float

    def seconds(self, flops: float, nbytes: float) -> float:
        """Return a statement's seconds: the launch time, plus the longer of the times for operations and for bytes."""
        return self.launch_s + max(flops / self.flops_per_s, nbytes / self.bytes_per_s)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Measured times of statements on a machine.

    Attributes
    ----------
    seconds : mapping of str to float
        Maps a `signature` to the mean time of the statements with this signature.
    rates : Rates
        Rates for statements that were not measured.
    other_s : float
        Time of a step that is not spent in statements, but in the code that calls the traces, and in autograd.
    """

    seconds: Mapping[str, float]
    rates: Rates
    other_s: float


@dataclasses.dataclass(frozen=True)
class StepPrediction:
    """Predicted time of a step.

    Attributes
    ----------
    step_s : float
    seconds : (statements,) float64
        Time of each statement of the graph. The time of a member of a fusion is 0, because the fusion contains it.
    measured_share : float
        Share of `step_s` that was measured: the times of measured statements, and `Calibration.other_s`.
    """

    step_s: float
    seconds: NDArray[np.float64]
    measured_share: float


def signature(graph: Graph, row: int) -> str:
    """Return a key for the measured time of a statement. Statements with equal keys are assumed to take the same time.

    The key contains the symbol, the number of operations, and the shapes and data types of inputs and outputs. For a
    fusion, the key contains the symbols of the members.

    Parameters
    ----------
    graph : Graph
    row : int
        A statement that is not a member of a fusion.

    Returns
    -------
    str
        16 hexadecimal digits.
    """
    statements, values = graph.statements, graph.values

    def shapes_and_dtypes(indices: NDArray[np.int32]) -> list[tuple[tuple[int, ...], str]]:
        return [(values.shape[value], values.dtype[value]) for value in indices.tolist()]

    # Identify a fusion by its members, because the number in its name has no meaning.
    members = np.flatnonzero(statements.parent == row).tolist()
    name = [statements.name[member] for member in members] if members else statements.name[row]
    parts = (
        name,
        int(statements.flops[row]),
        shapes_and_dtypes(statements.inputs[row]),
        shapes_and_dtypes(statements.outputs[row]),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def calibrate(graph: Graph, names: Sequence[str], seconds: Sequence[float], step_s: float) -> Calibration:
    """Return the calibration that follows from one measured step.

    Parameters
    ----------
    graph : Graph
        The execution graph of the plan that ran.
    names : sequence of str
        Names of the measured statements: all statements of the graph except members of fusions, in order.
    seconds : sequence of float
        Time of each statement, including the deletions after it.
    step_s : float
        Time of the complete step.

    Raises
    ------
    ValueError
        If `names` are not the names in the graph.
    """
    statements = graph.statements
    rows = np.flatnonzero(statements.parent < 0).tolist()
    if [statements.name[row] for row in rows] != list(names):
        raise ValueError(f"the {len(names)} measured statements are not the graph's {len(rows)} statements")
    grouped: dict[str, list[float]] = {}
    for row, spent in zip(rows, seconds, strict=True):
        grouped.setdefault(signature(graph, row), []).append(spent)
    return Calibration(
        seconds={key: float(np.mean(spent)) for key, spent in grouped.items()},
        rates=_rates(graph, rows, np.asarray(seconds)),
        other_s=max(0.0, step_s - float(np.sum(seconds))),
    )


def predict_step(graph: Graph, calibration: Calibration) -> StepPrediction:
    """Predict the time of a step of a plan on the calibrated machine. The plan may be of a program that did not run.

    The prediction assumes that one statement runs at a time, as on a CPU or on a single CUDA stream.
    """
    statements = graph.statements
    seconds = np.zeros(len(statements))
    measured_s = calibration.other_s
    for row in np.flatnonzero(statements.parent < 0).tolist():
        known = calibration.seconds.get(signature(graph, row))
        if known is None:
            known = calibration.rates.seconds(float(statements.flops[row]), _touched_bytes(graph, row))
        else:
            measured_s += known
        seconds[row] = known
    step_s = float(seconds.sum()) + calibration.other_s
    return StepPrediction(step_s, seconds, measured_s / step_s if step_s > 0 else 0.0)


def _touched_bytes(graph: Graph, row: int) -> int:
    """Return the bytes that a statement reads and writes; 0 for a view."""
    statements = graph.statements
    if statements.flags[row] & StatementFlag.VIEW:
        return 0
    touched = np.unique(np.concatenate((statements.inputs[row], statements.outputs[row])))
    return int(graph.values.bytes[touched].sum())


def moved_bytes(graph: Graph, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the bytes that each kernel reads and writes.

    An expanded value counts only with the bytes of its storage. If a fusion that writes nothing in place returns a view
    of an input, the view does not count.

    Parameters
    ----------
    graph : Graph
    rows : (kernels,) int
        Rows of the kernels in the graph.

    Returns
    -------
    (kernels,) float64
    """
    statements, values = graph.statements, graph.values
    (by, read), (made_by, made) = statements.inputs.pairs(rows), statements.outputs.pairs(rows)
    apart = (statements.kind[rows] == Kind.FUSION) & ((statements.flags[rows] & StatementFlag.INPLACE) == 0)
    lives = values.storage[made]
    # An output is `viewed` if the statement that makes it also reads from the same storage. A key stands for a pair of
    # statement and storage.
    viewed = np.isin(_keys(made_by, lives, len(graph.storages)), _keys(by, values.storage[read], len(graph.storages)))
    kept = ~apart[made_by] | ~viewed | (lives < 0)
    touched = np.unique(_keys(np.append(by, made_by[kept]), np.append(read, made[kept]), len(values)))
    which, value = np.divmod(touched, len(values) + 1)
    lives = values.storage[value]
    room = np.where(lives >= 0, graph.storages.bytes[lives], values.bytes[value])
    return np.bincount(which, np.minimum(values.bytes[value], room), minlength=len(rows)).astype(float)


def _keys(rows: NDArray[np.intp], items: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """Return a unique number for each pair of a row and an item; items are from -1 to `count` - 1."""
    found: NDArray[np.int64] = rows.astype(np.int64) * (count + 1) + items
    return found


def operations_s(graph: Graph, rows: NDArray[np.intp], machine: Machine) -> NDArray[np.float64]:
    """Return the seconds that each statement's operations take at the machine's peak rate.

    Parameters
    ----------
    graph : Graph
    rows : (kernels,) int
    machine : Machine

    Returns
    -------
    (kernels,) float64
    """
    statements, values = graph.statements, graph.values
    slowest = min(machine.flops_per_s.values())
    # Thunder's name of a data type contains a module, such as `thunder.dtypes.float32`.
    rate_of = {dtype: machine.flops_per_s.get(dtype.rpartition(".")[2], slowest) for dtype in set(values.dtype)}
    rates = np.full(len(rows), slowest)
    by, made = statements.outputs.pairs(rows)
    dtypes = [values.dtype[value] for value in made.tolist()]
    known = [(row, rate_of[dtype]) for row, dtype in zip(by.tolist(), dtypes, strict=True) if dtype]
    # The data type of the first tensor output determines the rate. Assign this rate last, so that it stays.
    for row, rate in reversed(known):
        rates[row] = rate
    found: NDArray[np.float64] = statements.flops[rows] / rates
    return found


def _rates(graph: Graph, rows: Sequence[int], seconds: NDArray[np.float64]) -> Rates:
    statements = graph.statements
    views = np.asarray([bool(statements.flags[row] & StatementFlag.VIEW) for row in rows], bool)
    flops = statements.flops[list(rows)].astype(float)
    touched = np.asarray([_touched_bytes(graph, row) for row in rows], float)
    # The launch time is the median time of the views or, if there are no views, the time of the fastest statement.
    nothing = seconds[views] if views.any() else np.sort(seconds)[:1]
    launch_s = float(np.median(nothing)) if len(nothing) else 0.0
    working = np.maximum(seconds - launch_s, 1e-9)

    def fitted(products: NDArray[np.bool_]) -> Rates:
        moving = ~products & (touched > 0)
        # Divide sums, so that the rates predict the total time of the measured statements. A percentile of the
        # statements' rates would not, because statements with small operands reach lower rates. A rate is infinite if
        # no statement was measured for it.
        return Rates(
            flops_per_s=float(flops[products].sum() / working[products].sum()) if products.any() else np.inf,
            bytes_per_s=float(touched[moving].sum() / working[moving].sum()) if moving.any() else np.inf,
            launch_s=launch_s,
        )

    # An elementwise operator computes at most one operation per byte, because an element takes at least one byte.
    # Fusions of such operators, and products of narrow matrices, compute more operations per byte, but their bytes can
    # still take longer than their operations. Remove such statements from `products` and fit again, until none is found
    # or no statement would remain.
    products = flops > touched
    rates = fitted(products)
    while True:
        bound = products & (flops / rates.flops_per_s > _CLEARLY * touched / rates.bytes_per_s)
        if bound.sum() in (0, products.sum()):
            return rates
        products, rates = bound, fitted(bound)
