"""Symmetry reduction of a program of choices: merge equal choices of identical layers into one with a multiplicity.

Columns with equal entries in all rows except memory rows are merged into one column with a multiplicity. Equal rows are
added up. In a memory row, each layer has its own coefficients. A merged column of value k frees at most the sum of its
k largest coefficients there. Every constraint on single choices then holds for the merged values, so single choices
never cost less than this solution. A program of two thousand choices has a few hundred columns. Merged columns need not
be exactly equal: the least cost, and in each row the least coefficient, stand for all of them.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from workbench.analysis.graphs.sparse_rows import Rows, stack_rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearProgram:
    """Linear program: minimize ``costs @ x`` under ``matrix @ x <= limits`` and ``0 <= x <= upper``.

    Attributes
    ----------
    costs, upper : (columns,) float64
    matrix : (rows, columns)
    limits : (rows,) float64
    integral : (columns,) bool
        Which columns must be integers.
    """

    costs: NDArray[np.float64]
    upper: NDArray[np.float64]
    matrix: csr_array
    limits: NDArray[np.float64]
    integral: NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoldedProgram:
    """A program, folded.

    Attributes
    ----------
    program : LinearProgram
        Lower bound on the solutions of the program before folding.
    of : (columns,) int64
        For each column of the original program, the column here that contains it.
    """

    program: LinearProgram
    of: NDArray[np.int64]


def merge_equal_columns(program: LinearProgram, memory_row_count: int, sizes: NDArray[np.float64]) -> FoldedProgram:
    """Return the program with equal columns and rows merged.

    Parameters
    ----------
    program : LinearProgram
    memory_row_count : int
        Number of leading rows, the memory rows, in which equal columns may have different entries.
    sizes : (columns,) float64
        Sizes of the columns; only columns of the same size are merged.
    """
    columns, rows = _equal_columns(program, memory_row_count, sizes)
    count = int(columns.max(initial=-1)) + 1
    members = np.bincount(columns, minlength=count)
    costs, upper, integral = np.full(count, np.inf), np.zeros(count), np.zeros(count, bool)
    np.minimum.at(costs, columns, program.costs)
    np.add.at(upper, columns, program.upper)
    integral[columns] = program.integral
    added, limits = _sum_equal_rows(program, memory_row_count, columns, rows, members)
    memory, more = _memory_rows(program, memory_row_count, columns, members)
    width = count + len(more)
    added.resize(len(limits), width)
    return FoldedProgram(
        program=LinearProgram(
            costs=np.concatenate([costs, np.zeros(len(more))]),
            upper=np.concatenate([upper, more]),
            matrix=stack_rows([memory.matrix(width), added]),
            limits=np.concatenate([memory.limits, limits]),
            integral=np.concatenate([integral, np.zeros(len(more), bool)]),
        ),
        of=columns,
    )


def _equal_columns(
    program: LinearProgram, memory_row_count: int, sizes: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the classes of equal columns, and of equal rows after the first `memory_row_count`."""
    entries = program.matrix[memory_row_count:].tocoo()
    of_row, of_column, items = entries.row, entries.col, _rounded_keys(entries.data)
    limits = _rounded_keys(program.limits[memory_row_count:])
    columns = _hash_numbers(
        _rounded_keys(program.costs)
        + _hash_numbers(_rounded_keys(program.upper) + _hash_numbers(_rounded_keys(sizes) + program.integral))
    )
    kinds = -1
    while kinds != (kinds := len(np.unique(columns))):
        rows = limits.copy()
        np.add.at(rows, of_row, _hash_numbers(columns[of_column] + items))
        rows = _hash_numbers(rows)
        told = np.zeros(len(columns), np.uint64)
        np.add.at(told, of_column, _hash_numbers(rows[of_row] ^ items))
        columns = _hash_numbers(columns + _hash_numbers(told))
    return _number_classes(columns), _number_classes(rows)


def _rounded_keys(items: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return a number for each item; items that differ only by rounding have equal numbers."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(items), items, -1.0))
    digits = np.round(mantissa * 2.0**30).astype(np.int64).view(np.uint64)
    return _hash_numbers(_hash_numbers(digits) + exponent.astype(np.int64).view(np.uint64))


def _hash_numbers(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashes whose sums are equal only by chance if the summands differ (MurmurHash3's finalizer)."""
    numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return numbers ^ (numbers >> np.uint64(33))


def _number_classes(kinds: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the same classes, numbered from 0 in the order in which they first appear."""
    _, first, which = np.unique(kinds, return_index=True, return_inverse=True)
    numbers = np.empty(len(first), np.int64)
    numbers[np.argsort(first)] = np.arange(len(first))
    return numbers[which]


def _sum_equal_rows(
    program: LinearProgram,
    memory_row_count: int,
    columns: NDArray[np.int64],
    rows: NDArray[np.int64],
    members: NDArray[np.int64],
) -> tuple[csr_array, NDArray[np.float64]]:
    """Return the rows after the first `memory_row_count`, with equal ones added up, and their limits."""
    count, height = len(members), int(rows.max(initial=-1)) + 1
    entries = program.matrix[memory_row_count:].tocoo()
    each = csr_array(coo_array((entries.data, (rows[entries.row], entries.col)), shape=(height, len(columns)))).tocoo()
    cells, which, found = np.unique(
        each.row.astype(np.int64) * count + columns[each.col], return_inverse=True, return_counts=True
    )
    least = np.full(len(cells), np.inf)
    np.minimum.at(least, which, each.data)
    least = np.where(found < members[cells % count], np.minimum(least, 0.0), least)
    limits = np.zeros(height)
    np.add.at(limits, rows, program.limits[memory_row_count:])
    return csr_array(coo_array((least, (cells // count, cells % count)), shape=(height, count))), limits


def _memory_rows(
    program: LinearProgram, memory_row_count: int, columns: NDArray[np.int64], members: NDArray[np.int64]
) -> tuple[Rows, list[float]]:
    """Return the first rows, with bounds on their new columns, and then the rows that enforce these bounds."""
    starts, numbers, items = (
        program.matrix.indptr.tolist(),
        program.matrix.indices.tolist(),
        program.matrix.data.tolist(),
    )
    kinds, counts, upper = columns.tolist(), members.tolist(), program.upper.tolist()
    rows = Rows()
    # The bytes that some columns of a class free are a new column, shared by all rows with exactly these columns.
    parts: dict[tuple[int, ...], int] = {}
    most: list[float] = []
    for row in range(memory_row_count):
        of: dict[tuple[int, float], list[int]] = {}
        for at in range(starts[row], starts[row + 1]):
            of.setdefault((kinds[numbers[at]], items[at]), []).append(numbers[at])
        entries: dict[int, float] = {}
        for (kind, item), some in of.items():
            column = kind
            if len(some) < counts[kind]:
                column = parts.setdefault(tuple(sorted(some)), len(counts) + len(parts))
            if column == len(counts) + len(most):
                most.append(sum(upper[number] for number in some))
            entries[column] = entries.get(column, 0.0) + item
        rows.add(entries, float(program.limits[row]))
    for part, column in parts.items():
        rows.add({column: 1.0, kinds[part[0]]: -1.0}, 0.0)
    return rows, most
