"""Symmetry reduction of a linear program: merge equal choices of equal layers into one column.

A column is a choice, such as to recompute one storage. The merged column has the sum of the merged variables as its
value. Columns are merged if they have equal costs and bounds, and equal entries in equal rows. Memory rows are not
compared. A memory row limits the bytes at one statement. In a memory row, the columns of different layers may have
different coefficients. If a merged column has the value k, at most k of the variables with equal coefficients count.
Equal rows are added up.

Each solution of the original program gives a solution of the merged program whose cost is not higher. Therefore, the
least cost of the merged program is a lower bound. A program of two thousand choices has a few hundred merged columns.
Columns that differ only by rounding errors are merged, too. The merged column then has their smallest cost and, in each
row, their smallest coefficient.
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
        Whether the variable of each column must be an integer.
    """

    costs: NDArray[np.float64]
    upper: NDArray[np.float64]
    matrix: csr_array
    limits: NDArray[np.float64]
    integral: NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoldedProgram:
    """A linear program after equal columns and equal rows were merged.

    Attributes
    ----------
    program : LinearProgram
        The merged program. Its least cost is a lower bound on the least cost of the original program.
    of : (columns,) int64
        For each column of the original program, the merged column that contains it.
    """

    program: LinearProgram
    of: NDArray[np.int64]


def merge_equal_columns(program: LinearProgram, memory_row_count: int, sizes: NDArray[np.float64]) -> FoldedProgram:
    """Merge the equal columns and the equal rows of a program.

    Parameters
    ----------
    program : LinearProgram
    memory_row_count : int
        Number of memory rows. They are the first rows. Columns count as equal even if they differ in these rows.
    sizes : (columns,) float64
        Bytes of the storage of each column's choice. Only columns of equal size are merged.
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
    """Return the class of each column, and the class of each row after the memory rows.

    Equal columns have equal classes, and equal rows have equal classes. Columns start in one class if their costs,
    bounds, sizes and values of `integral` are equal. Then classes of rows and classes of columns are computed
    alternately: a class is split if its columns have entries in rows of different classes. The computation ends when
    the number of column classes stays the same. During the computation, a hash represents each class.
    """
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
    """Return a hash of each item. Items that differ only by rounding errors mostly have equal hashes."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(items), items, -1.0))
    digits = np.round(mantissa * 2.0**30).astype(np.int64).view(np.uint64)
    return _hash_numbers(_hash_numbers(digits) + exponent.astype(np.int64).view(np.uint64))


def _hash_numbers(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashes of numbers, by the finalizer of MurmurHash3. Sums of such hashes are equal only by chance."""
    numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return numbers ^ (numbers >> np.uint64(33))


def _number_classes(kinds: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Replace each class by a number from 0. Classes are numbered in the order in which they first appear."""
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
    """Return the rows after the memory rows, with merged columns and with equal rows added up, and their limits."""
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
    """Return the memory rows with merged columns, and the upper bounds of additional columns.

    If only some members of a merged column have an entry in a row, an additional column counts these members. Further
    rows keep the value of the additional column at or below the value of the merged column.
    """
    starts, numbers, items = (
        program.matrix.indptr.tolist(),
        program.matrix.indices.tolist(),
        program.matrix.data.tolist(),
    )
    kinds, counts, upper = columns.tolist(), members.tolist(), program.upper.tolist()
    rows = Rows()
    # Maps the members that have an entry in a row to their additional column. Rows with the same members share a
    # column.
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
