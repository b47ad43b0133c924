"""Fit for plain `torch.compile`: find choices whose predicted peak under `torch.compile` is within a limit.

The fit predicts the peaks of some sets of saved values, and returns the set within the limit that adds the least time.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.cost.machines import Machine
from workbench.analysis.fit.saved_sets import SavedSet, cheapest_sets
from workbench.bench.session.fit_request import peak_bytes
from workbench.errors import PlanError
from workbench.summary import human_bytes, human_seconds

if TYPE_CHECKING:
    from workbench.bench.session.workbench import Workbench
    from workbench.compiler.driver.torch_prediction import TorchPrediction
    from workbench.plain_torch.operators import Key


_SAVED = "saved:"
_PARTS = 4
"""Number of parts into which the list of sets is divided at first."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TorchFit:
    """Choices for plain `torch.compile` that meet a limit. All figures are those of `torch.compile`, not of Thunder.

    Attributes
    ----------
    limit_bytes, before_peak_bytes, peak_bytes : int
        The limit, and the predicted peaks without the fit and with it.
    before_saved_bytes, saved_bytes : int
        Bytes that the forward saves, without the fit and with it.
    step_s, added_s : float
        Estimated time of a step without recomputation, and the estimated time that the fit adds. PyTorch recomputes
        fused operators even without a fit. `added_s` is the recompute time of the chosen set, minus the recompute time
        of the first or of the second set in `TorchFitter.sets`, whichever is shorter. It is 0 if the peak without the
        fit is within the limit.
    choices : mapping of Key to str
        Maps module path, operator and ordinal to ``save`` or ``recompute``. Choices that the user made are included.
    sites : mapping of Key to str
        Maps each key of `choices` that has a site to the site's id.
    unapplied : tuple of str
        Messages about choices that are not applied.
    machine : str
        Name of the machine model for the times.
    """

    limit_bytes: int
    before_peak_bytes: int
    peak_bytes: int
    before_saved_bytes: int
    saved_bytes: int
    step_s: float
    added_s: float
    choices: Mapping[Key, str]
    sites: Mapping[Key, str]
    unapplied: tuple[str, ...]
    machine: str
    _bench: Workbench = dataclasses.field(repr=False, compare=False)
    _made: Mapping[str, str] = dataclasses.field(repr=False, compare=False)
    _left_out: Mapping[str, str] = dataclasses.field(repr=False, compare=False)

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the choices as a module that needs nothing but PyTorch, like `Workbench.export` for ``torch``.

        Raises
        ------
        ConfigError
            If the file cannot be written.
        """
        from workbench.bench.report import torch_file

        return torch_file.write(self._bench, path, "torch", overwrite=overwrite, fit=self)

    def compile(self, model: Any, **options: Any) -> Any:
        """Return ``torch.compile(model, **options)`` with the choices."""
        from workbench.plain_torch import compiled

        return compiled.compile(model, choices=self.choices, **options)

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        fields = (field.name for field in dataclasses.fields(self) if not field.name.startswith("_"))
        made = {name: getattr(self, name) for name in fields}
        choices = [
            {"module": path, "operator": operator, "ordinal": ordinal, "option": option}
            for (path, operator, ordinal), option in self.choices.items()
        ]
        del made["sites"]
        return {**made, "choices": choices, "target": "torch", "predicted": True}

    def __repr__(self) -> str:
        counts = Counter(self.choices.values())
        made = ", ".join(f"{count} to {option}" for option, count in sorted(counts.items()))
        peaks = f"{human_bytes(self.before_peak_bytes)} → {human_bytes(self.peak_bytes)}"
        return (
            f"Peak of torch.compile {peaks} (limit {human_bytes(self.limit_bytes)}), saved "
            f"{human_bytes(self.before_saved_bytes)} → {human_bytes(self.saved_bytes)}\n"
            f"{made or 'nothing to choose'}: +{human_seconds(self.added_s)} on a step of {human_seconds(self.step_s)} "
            f"({self.machine}'s rates)"
        )


class TorchFitter:
    """Finds choices for one limit after another. Sets of saved values and their predictions are cached.

    The saved bytes fall from set to set. The time rises from the second set on. Peaks of a few sets are predicted
    first. A bisection then finds a set whose predicted peak is within the limit, while the set before it is not. The
    next set to predict depends only on which of the sets predicted so far are within the limit. So a lower limit gives
    the same set or a set later in the list, and never a smaller `added_s`.

    Parameters
    ----------
    bench : Workbench
    machine : Machine
        Its rates give the times.
    go_on : callable, optional
        Called before each prediction after the first, and during the search for sets. An exception from it ends the
        search.

    Raises
    ------
    PlanError
        As in `Workbench.torch_prediction`.
    """

    def __init__(self, bench: Workbench, machine: Machine, go_on: Callable[[], None] = lambda: None) -> None:
        from workbench.compiler.driver.torch_prediction import predict_and_read

        self._bench, self._machine, self._go_on = bench, machine, go_on
        found = bench.torch_choices()
        self._made, self._pinned, self._left_out = dict(bench.choices), found.choices, found.left_out
        self.before, step = predict_and_read(bench._captured, self._pinned, machine)
        assert step is not None
        self._step, self._stock = step, step.stock(self.before.saved)
        self._points: dict[int, tuple[dict[Key, str], TorchPrediction]] = {0: (dict(self._pinned), self.before)}

    @functools.cached_property
    def sets(self) -> list[SavedSet]:
        """The sets of saved values. The first set is what PyTorch saves without a fit."""
        pinned = {name: self._pinned.get(key) for name, key in self._step.made_by.items()}
        values = [
            dataclasses.replace(
                value,
                can_save=value.can_save and pinned.get(value.name) != "recompute",
                can_recompute=value.can_recompute and pinned.get(value.name) != "save",
            )
            for value in self._step.values
        ]
        return [self._stock, *cheapest_sets(values, self._stock.bytes, self._go_on)]

    @functools.cached_property
    def _grid(self) -> list[int]:
        """Indices of the sets that are predicted first, up to the set with the lowest peak.

        After this set, recomputation adds more memory than the smaller saved set frees, so the peak rises.
        """
        last = len(self.sets) - 1
        grid = sorted({round(last * part / _PARTS) for part in range(_PARTS + 1)})
        return grid[: 1 + min(range(len(grid)), key=lambda at: self._peak_bytes(grid[at]))]

    @functools.cached_property
    def _sites(self) -> dict[Key, str]:
        from workbench.compiler.driver.torch_keys import torch_keys

        ids = [site.id for site in self._bench.sites("saved")]
        keys, _ = torch_keys(self._bench._captured, [id.removeprefix(_SAVED) for id in ids if id.startswith(_SAVED)])
        return {key: _SAVED + place for place, key in keys.items()}

    def _peak_bytes(self, index: int) -> int:
        return self.point(index)[1].peak_bytes

    def point(self, index: int) -> tuple[dict[Key, str], TorchPrediction]:
        """Return the choices for a set, and their prediction."""
        from workbench.compiler.driver.torch_prediction import predict_torch

        if index not in self._points:
            self._go_on()
            choices = {**self._step.choices(self.sets[index], self._stock), **self._pinned}
            self._points[index] = choices, predict_torch(self._bench._captured, choices)
        return self._points[index]

    def fit(self, peak: int | str) -> TorchFit:
        """Find choices for a limit: a size, or a share of the peak without the fit.

        Raises
        ------
        PlanError
            If no set that was predicted is within the limit.
        """
        limit_bytes = peak_bytes(peak, lambda: self.before.peak_bytes)
        high = 0
        if self.before.peak_bytes > limit_bytes:
            least_bytes = self._peak_bytes(self._grid[-1])
            if least_bytes > limit_bytes:
                raise PlanError(
                    f"no choices for {self._bench.program.name} were found that lower the peak of torch.compile to "
                    f"{human_bytes(limit_bytes)} or less; the lowest peak found is {human_bytes(least_bytes)}"
                )
            at = next(at for at, index in enumerate(self._grid) if self._peak_bytes(index) <= limit_bytes)
            low, high = self._grid[at - 1], self._grid[at]
            while high - low > 1:
                middle = (low + high) // 2
                if self._peak_bytes(middle) <= limit_bytes:
                    high = middle
                else:
                    low = middle
        choices, found = self.point(high)
        return TorchFit(
            limit_bytes=limit_bytes,
            before_peak_bytes=self.before.peak_bytes,
            peak_bytes=found.peak_bytes,
            before_saved_bytes=self.before.saved_bytes,
            saved_bytes=found.saved_bytes,
            step_s=self._step.step_s,
            added_s=self.sets[high].seconds - min(one.seconds for one in self.sets[:2]) if high else 0.0,
            choices=choices,
            sites={key: site for key, site in self._sites.items() if key in choices},
            unapplied=found.unapplied,
            machine=self._machine.name,
            _bench=self._bench,
            _made=self._made,
            _left_out=self._left_out,
        )
