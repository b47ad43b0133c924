"""`AddedTime`: the seconds that recomputing and offloading storages add to a step.

An assignment sets each storage to an option: save, recompute or offload.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workbench.analysis.cost.offload_time import exposed_s, hidden_s
from workbench.analysis.fit.fusion_costs import RecomputeCost
from workbench.analysis.fit.option_costs import OptionRates
from workbench.analysis.memory.peak_by_statement import OFFLOAD, RECOMPUTE
from workbench.analysis.memory.recompute_set import Recomputer


class AddedTime:
    """Predicts the seconds that choices add to a step: those of repeated statements, and those of exposed transfers.

    Parameters
    ----------
    work : Recomputer
    rates : OptionRates
    choices : sequence of (int, str)
        The storages that a search may recompute or offload, each with the option.
    fixed : mapping of int to str
        Maps each storage whose option is fixed, and is not `SAVE`, to that option.
    dragged : collection of int
        Storages in `fixed` that are recomputed only if the recomputation of a chosen storage reads them.
    along, gather : bool
        See `JointGraphMemory`.
    """

    def __init__(
        self,
        work: Recomputer,
        rates: OptionRates,
        choices: Sequence[tuple[int, str]],
        fixed: Mapping[int, str],
        *,
        dragged: Collection[int],
        along: bool,
        gather: bool,
    ) -> None:
        self._work, self._rates, self._fixed, self._dragged = work, rates, fixed, frozenset(dragged)
        self._along, self._gather = along, gather
        self._bytes = work.graph.storages.bytes
        self._repeated = rates.again or RecomputeCost(seconds=rates.seconds)
        self._choices = choices
        self._rows = {storage: self._rows_of(storage) for storage, option in choices if option == RECOMPUTE}

    def of(self, options: Mapping[int, str]) -> float:
        """Return the seconds that an assignment adds."""
        return sum(self.parts(options))

    def parts(self, options: Mapping[int, str]) -> tuple[float, float]:
        """Return the seconds of repeated statements, and the seconds of transfers that do not overlap with compute."""
        chosen = {storage for storage, option in options.items() if option == RECOMPUTE}
        rows = self._work.rows_rerun(chosen, along=self._along, gather=self._gather)
        if self._dragged:
            rows = rows.union(*(self.rows(storage) for storage in chosen))
        repeated_s = float(self._repeated.seconds[sorted(rows)].sum()) + self._each_s(chosen)
        moved = sum(int(self._bytes[s]) for s, o in {**self._fixed, **options}.items() if o == OFFLOAD)
        return repeated_s, exposed_s(moved / self._rates.offload_bytes_per_s, self.hidden)

    def rows(self, storage: int) -> frozenset[int]:
        """Return the statements that run again to recompute only this storage."""
        # `_rows` contains only storages that the search may choose, but the current plan may recompute others.
        return self._rows[storage] if storage in self._rows else self._rows_of(storage)

    def alone_s(self, storage: int, option: str) -> float:
        """Return the seconds that a choice adds if it is the only choice, and if compute hides no transfer."""
        if option == RECOMPUTE:
            return float(self._repeated.seconds[sorted(self.rows(storage))].sum()) + self._each_s((storage,))
        return 2 * float(self._bytes[storage]) / self._rates.offload_bytes_per_s

    def of_recomputations(self) -> NDArray[np.float64]:
        """Return, for each choice, the seconds that it adds if it is the only recomputation; 0 for an offload."""
        found = [self.alone_s(storage, option) if option == RECOMPUTE else 0.0 for storage, option in self._choices]
        return np.asarray(found, float)

    def of_transfers(self) -> NDArray[np.float64]:
        """Return, for each choice, the seconds of its transfer in one direction; 0 for a recomputation."""
        seconds = [
            float(self._bytes[storage]) / self._rates.offload_bytes_per_s if option == OFFLOAD else 0.0
            for storage, option in self._choices
        ]
        return np.asarray(seconds, float)

    def of_choices(self) -> NDArray[np.float64]:
        """Return, for each choice, the seconds that it adds if it is the only choice; on a GPU, 0 for an offload."""
        return self.of_recomputations() + self.of_transfers() * (not self._rates.hides)

    @cached_property
    def hidden(self) -> tuple[float, float]:
        """Seconds of transfers that can overlap with compute, for the forward and for the backward."""
        return hidden_s(self._work.graph, self._rates.seconds, hides=self._rates.hides)

    def add_values_read(self, base_options: Mapping[int, str], candidates: Collection[int]) -> dict[int, str]:
        """Return `base_options`, and add RECOMPUTE for every candidate that a recomputed statement reads."""
        options = dict(base_options)
        while candidates:
            chosen = [storage for storage, option in options.items() if option == RECOMPUTE]
            rows = self._work.rows_rerun(chosen, along=self._along, gather=self._gather)
            if not (more := self._work.storages_read(rows) & set(candidates) - options.keys()):
                return options
            options |= dict.fromkeys(sorted(more), RECOMPUTE)
        return options

    def _rows_of(self, storage: int) -> frozenset[int]:
        options = self.add_values_read({storage: RECOMPUTE}, self._dragged)
        return frozenset(self._work.rows_rerun(options, along=self._along, gather=self._gather))

    def _each_s(self, chosen: Collection[int]) -> float:
        return sum(self._repeated.each_s.get(storage, 0.0) for storage in sorted(chosen))
