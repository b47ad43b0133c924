"""`Explanation`: why a fit does not save each storage, and which further choices are the cheapest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from workbench.analysis.fit.budget_solver import Chooser
from workbench.analysis.fit.option_costs import OptionCost
from workbench.analysis.memory.peak_by_statement import SAVE, ExactMemory
from workbench.bench.fit.fit_result import NextChoice, UnsavedStorage

if TYPE_CHECKING:
    from workbench.core.lever import Site

_TRIES_PLANNED = 4
"""Number of storages that are tried if each evaluation needs a plan."""
_TIGHTER = 16


class Explanation:
    """Gives the reasons for the choices of one point, and the cheapest next choices.

    Parameters
    ----------
    point : OptionCost
    chooser : Chooser
    site_of : mapping of int to Site
        The site of each storage.
    memory : callable
        Predicts the memory under options of storages, without a plan.
    fuses : bool
        Whether statements are fused. If they are, each evaluation by `chooser` needs a plan.
    """

    def __init__(
        self,
        point: OptionCost,
        chooser: Chooser,
        site_of: Mapping[int, Site],
        memory: Callable[[Mapping[int, str]], ExactMemory],
        *,
        fuses: bool,
    ) -> None:
        self._point, self._chooser, self._site_of, self._fuses = point, chooser, site_of, fuses
        self._memory, self._at_point = memory, memory(point.options)
        self._added_s = chooser.added_s(point.options)

    @cached_property
    def _saved_again(self) -> dict[int, NextChoice]:
        """For each storage that is not saved, the choice to save it, too."""
        return {storage: self._step(storage, SAVE) for storage in self._point.options}

    def reasons(self) -> tuple[UnsavedStorage, ...]:
        """Return the storages that are not saved, with their effects.

        The storage that takes the most time to recompute or offload comes first.
        """
        return tuple(sorted(self._unsaved(), key=lambda chosen: (-chosen.seconds, -chosen.bytes)))

    def _unsaved(self) -> Iterator[UnsavedStorage]:
        for storage, option in self._point.options.items():
            step = self._saved_again[storage]
            yield UnsavedStorage(
                id=step.id,
                option=option,
                source=step.source,
                bytes=self._chooser.bytes_of(storage),
                seconds=self._chooser.alone_s(storage, option),
                peak_bytes=step.peak_bytes,
                saves_s=0.0 - step.step_s,  # not -0.0
            )

    def best_to_save(self) -> NextChoice | None:
        """Find the storage that gains the most time per byte of peak memory if it is saved, too.

        If statements are fused, a plan is computed to check the gain. Return None if no storage gains time.
        """
        options, steps = self._point.options, self._saved_again
        gains = [storage for storage, step in steps.items() if step.step_s < 0]
        gains.sort(key=lambda storage: steps[storage].step_s / max(1, steps[storage].peak_bytes))
        for storage in gains if not self._fuses else gains[:_TRIES_PLANNED]:
            planned = self._chooser.point({s: o for s, o in options.items() if s != storage})
            if planned.added_s < self._point.added_s:
                return steps[storage]
        return None

    def best_to_release(self) -> NextChoice | None:
        """Find the storage that costs the least time per byte of peak memory if it is recomputed or offloaded, too.

        Return None if none of the tried storages lowers the peak memory.
        """
        at = int(np.argmax(self._at_point.peaks))
        steps = [self._step(*tried) for tried in self._chooser.helpful_choices(self._point, at)[:_TIGHTER]]
        lower = [step for step in steps if step.peak_bytes < 0]
        return min(lower, key=lambda step: (step.step_s / -step.peak_bytes, step.peak_bytes), default=None)

    def _step(self, storage: int, option: str) -> NextChoice:
        options = {s: o for s, o in self._point.options.items() if s != storage}
        if option != SAVE:
            options[storage] = option
        site = self._site_of[storage]
        return NextChoice(
            id=site.id,
            option=option,
            source=site.source,
            peak_bytes=self._memory(options).peak_bytes - self._at_point.peak_bytes,
            step_s=self._chooser.added_s(options) - self._added_s,
        )
