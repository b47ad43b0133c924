"""Collect the constraints ``row @ x <= limit`` of a linear program, and return them as a sparse matrix."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import coo_array, csr_array


class Rows:
    """A growing list of rows of a sparse matrix, each with its upper limit."""

    def __init__(self) -> None:
        self._rows, self._columns, self._items = array("i"), array("i"), array("d")
        self.limits: list[float] = []

    def copy(self) -> Rows:
        """Return a copy. Rows that are added to the copy do not change this object."""
        other = Rows()
        other._rows, other._columns, other._items = self._rows[:], self._columns[:], self._items[:]
        other.limits = list(self.limits)
        return other

    def add(self, entries: Mapping[int, float], limit: float) -> None:
        """Add a row with an upper limit. `entries` maps a column to its coefficient."""
        self._rows.extend(array("i", [len(self.limits)]) * len(entries))
        self._columns.extend(entries)
        self._items.extend(entries.values())
        self.limits.append(limit)

    def matrix(self, width: int) -> csr_array:
        """Return all rows as a matrix with `width` columns."""
        items, rows, columns = (np.array(column) for column in (self._items, self._rows, self._columns))
        return csr_array(coo_array((items, (rows, columns)), shape=(len(self.limits), width)))


def stack_rows(parts: Sequence[csr_array]) -> csr_array:
    """Return a matrix with the rows of all `parts`, one part after the other."""
    starts = np.cumsum([0, *(part.nnz for part in parts)])
    offsets = [part.indptr[1:] + start for part, start in zip(parts, starts, strict=False)]
    return csr_array(
        (
            np.concatenate([part.data for part in parts]),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([[0], *offsets]),
        ),
        shape=(sum(part.shape[0] for part in parts), parts[0].shape[1]),
    )
