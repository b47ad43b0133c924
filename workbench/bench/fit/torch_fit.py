"""Fit for plain `torch.compile`: find choices whose predicted peak under `torch.compile` is within a limit.

The fit predicts the peaks of some sets of saved values, and returns the set within the limit that adds the least time.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.analysis.cost.machines import Machine
from workbench.analysis.fit.saved_sets import cheapest_sets
from workbench.bench.session.fit_request import peak_bytes
from workbench.bench.session.run_names import name_of_fit
from workbench.errors import PlanError
from workbench.summary import AT_LEAST, human_bytes, human_seconds
from workbench.util.planning_lock import PLANNING

if TYPE_CHECKING:
    from workbench.bench.session.workbench import Workbench
    from workbench.compiler.driver.torch_joint import JointStep
    from workbench.compiler.driver.torch_prediction import Candidate, JointPrediction, TorchPrediction
    from workbench.plain_torch.operators import Key
    from workbench.runs.process.follow_run import Run
    from workbench.runs.process.request import RunOptions


type GoOn = Callable[[str], None]
"""Called with a line about the progress of a fit. An exception from it ends the fit."""

_SAVED = "saved:"
_PREDICTED = 6
"""Number of sets whose predictions are made, in addition to PyTorch's own sets."""
_TOLD = 2
"""Number of kinds of tensors that an error names, if no set is within the limit."""
_ALIKE = 0.005
"""Two steps whose estimated times differ by at most this share count as equally long."""


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
        Estimated time of a step without the fit, and the estimated time that the fit adds. Both are computed from the
        kernels that Inductor generates. `added_s` is not negative.
    choices : mapping of Key to str
        Maps module path, operator and ordinal to ``save`` or ``recompute``. Choices that the user made are included.
    budget : float or None
        PyTorch's `activation_memory_budget` for tensors without a choice. None is PyTorch's setting.
    sites : mapping of Key to str
        Maps each key of `choices` that has a site to the site's id.
    unapplied : tuple of str
        Messages about choices that are not applied.
    peak_at_least : bool
        Whether the peaks are lower bounds, because a CPU kernel could not be measured.
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
    budget: float | None
    sites: Mapping[Key, str]
    unapplied: tuple[str, ...]
    peak_at_least: bool
    machine: str
    _asked: int | str = dataclasses.field(repr=False, compare=False)
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

        return compiled.compile(model, choices=self.choices, budget=self.budget, **options)

    def run(self, *, wait: bool = False, name: str = "", options: RunOptions | None = None) -> Run:
        """Compile and run with the choices by plain `torch.compile`, in a separate process; see `Workbench.run`."""
        from workbench.bench.session.prepare_run import prepare_torch

        bench = self._bench
        run_dir = prepare_torch(
            bench,
            self.choices,
            predicted_peak_bytes=self.peak_bytes,
            chosen=name_of_fit(self._asked, self.limit_bytes),
            budget=self.budget,
            name=name,
            options=options,
        )
        return bench.start(run_dir, wait=wait)

    def to_json(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON."""
        fields = (field.name for field in dataclasses.fields(self) if not field.name.startswith("_"))
        made = {name: getattr(self, name) for name in fields}
        choices = [
            {"module": path, "operator": operator, "ordinal": ordinal, "option": option}
            for (path, operator, ordinal), option in self.choices.items()
        ]
        del made["sites"]
        made["peak_is_lower_bound"] = made.pop("peak_at_least")
        return {**made, "choices": choices, "target": "torch", "predicted": True}

    def __repr__(self) -> str:
        counts = Counter(self.choices.values())
        parts = [f"{count} to {option}" for option, count in sorted(counts.items())]
        made = ", ".join(parts + [f"budget {self.budget:g} for all other tensors"] * (self.budget is not None))
        bound = AT_LEAST * self.peak_at_least
        peaks = f"{human_bytes(self.before_peak_bytes)} → {human_bytes(self.peak_bytes)}"
        return (
            f"Peak of torch.compile {bound}{peaks} (limit {human_bytes(self.limit_bytes)}), saved "
            f"{human_bytes(self.before_saved_bytes)} → {human_bytes(self.saved_bytes)}\n"
            f"{made or 'nothing to choose'}: +{human_seconds(self.added_s)} on a step of {human_seconds(self.step_s)} "
            f"({self.machine}'s rates)"
        )


@dataclasses.dataclass(frozen=True)
class _Point:
    """A set of saved values that can be asked of PyTorch, and its prediction."""

    choices: dict[Key, str]
    budget: float | None
    prediction: TorchPrediction
    step_s: float
    at_peak: tuple[tuple[int, str], ...]
    """Bytes and description of each tensor that the step has allocated and holds at the peak, the largest first."""

    def told_at_peak(self) -> str:
        """Describe the largest tensors at the peak, equal ones together."""
        largest = list(Counter(self.at_peak).items())[:_TOLD]
        return ", ".join(f"{number} x {what} ({human_bytes(size)} each)" for (size, what), number in largest)


class _UnknownError(Exception):
    """Ends a search for points at a set that is not predicted."""

    def __init__(self, choices: Mapping[Key, str], budget: float | None) -> None:
        super().__init__("not predicted")
        self.choices, self.budget = choices, budget


class TorchFitter:
    """Finds choices for one limit after another, among the same sets of saved values for all limits.

    The peaks and step times of these sets are predicted once: those of the sets that PyTorch saves under its own
    `activation_memory_budget`, and those of sets with the least recompute time for their bytes. Of these sets, each
    that has a higher peak than another one, but no shorter step, is left out. So a lower limit never gives a smaller
    `added_s`, and no budget of PyTorch has both a lower predicted peak and a shorter estimated step.

    One thread fits at a time. If a fit is interrupted, the next one uses the predictions that were made.

    Parameters
    ----------
    bench : Workbench
    machine : Machine
        Its rates give the times.

    Raises
    ------
    PlanError
        As in `Workbench.torch_choices`.
    """

    def __init__(self, bench: Workbench, machine: Machine) -> None:
        self._bench, self._machine = bench, machine
        found = bench.torch_choices()
        self._made, self._pinned, self._left_out = dict(bench.choices), found.choices, found.left_out
        self._known: dict[tuple[frozenset[tuple[Key, str]], float | None], _Point] = {}
        self._joint: tuple[JointStep, dict[float, tuple[str, ...]]] | None = None
        self._least_bytes = 0
        self._go_on: GoOn = lambda _: None
        self._one_at_a_time = threading.RLock()

    @property
    def before(self) -> TorchPrediction:
        """The prediction without the fit."""
        return self._before.prediction

    @functools.cached_property
    def _before(self) -> _Point:
        return self._predicted(lambda: self._point(self._pinned, None))

    @functools.cached_property
    def points(self) -> list[_Point]:
        """The sets that a fit chooses from, by falling peak and rising time of a step."""
        kept: list[_Point] = []
        for point in sorted(
            self._predicted(self._all_points), key=lambda point: (point.prediction.peak_bytes, point.step_s)
        ):
            if not kept or point.step_s * (1 + _ALIKE) < kept[-1].step_s:
                kept.append(point)
        return kept[::-1]

    @property
    def least_peak_bytes(self) -> int:
        """The lowest predicted peak of all sets: the lowest limit that a fit can meet."""
        return self.points[-1].prediction.peak_bytes

    def _limit_bytes(self, peak: int | str) -> int:
        """Return a limit as bytes, if it is not below what every step needs.

        Raises
        ------
        PlanError
            If it is below.
        """
        from workbench.compiler.driver.torch_prediction import held_bytes

        limit_bytes = peak_bytes(peak, lambda: self._point(self._pinned, None).prediction.peak_bytes)
        least = [(held_bytes(self._bench._captured), "parameters, buffers and inputs")]
        if self._least_bytes:
            least.append((self._least_bytes, "parameters, buffers, inputs, outputs and gradients"))
        for needed_bytes, what in least:
            if limit_bytes < needed_bytes:
                raise PlanError(
                    f"no choices lower the peak of torch.compile for {self._bench.program.name} to "
                    f"{human_bytes(limit_bytes)} or less: {what} alone have {needed_bytes:,} bytes"
                )
        return limit_bytes

    def _points_for(self, peak: int | str) -> list[_Point]:
        """Return the set without the fit. If its peak is above the limit, return all sets that a fit chooses from."""
        limit_bytes = self._limit_bytes(peak)
        before = self._point(self._pinned, None)
        return [before] if before.prediction.peak_bytes <= limit_bytes else self._all_points()

    def _all_points(self) -> list[_Point]:
        before = self._point(self._pinned, None)
        if self._joint is None:  # the prediction was made for a limit that needs no other sets
            raise _UnknownError(self._pinned, None)
        _, budgets = self._joint
        return [before, *(self._point(self._pinned, budget) for budget in budgets), *self._own_points()]

    def _own_points(self) -> list[_Point]:
        """Return sets with the least recompute time for their bytes; the peaks of neighbours are about as far apart."""
        from workbench.compiler.driver.torch_prediction import FUSED_BUDGET

        asked = self._asked
        points = {at: self._point(asked[at], FUSED_BUDGET) for at in sorted({0, len(asked) - 1}) if asked}
        while len(points) < min(_PREDICTED, len(asked)):
            gaps = [
                (abs(points[left].prediction.peak_bytes - points[right].prediction.peak_bytes), left, right)
                for left, right in itertools.pairwise(sorted(points))
                if right - left > 1
            ]
            _, left, right = max(gaps)
            middle = (left + right) // 2
            points[middle] = self._point(asked[middle], FUSED_BUDGET)
        return list(points.values())

    @functools.cached_property
    def _asked(self) -> list[dict[Key, str]]:
        """Choices for sets of saved tensors, by rising recompute time and falling bytes.

        The choices are the differences from the set with which PyTorch recomputes all operators that it can fuse.
        """
        from workbench.compiler.driver.torch_prediction import FUSED_BUDGET

        assert self._joint is not None
        step, budgets = self._joint
        base = step.saved_set(budgets.get(FUSED_BUDGET, self._before.prediction.saved))
        go_on = functools.partial(self._go_on, "searching for sets of saved tensors")
        pinned = {name: self._pinned.get(key) for name, key in step.made_by.items()}
        values = [
            dataclasses.replace(
                value,
                can_save=value.can_save and pinned.get(value.name) != "recompute",
                can_recompute=value.can_recompute and pinned.get(value.name) not in ("save", "offload"),
            )
            for value in step.values
        ]
        asked = [{**step.choices(one, base), **self._pinned} for one in cheapest_sets(values, base.bytes, go_on)]
        return [one for one, before in zip(asked, [None, *asked], strict=False) if one != before]

    def _point(self, choices: Mapping[Key, str], budget: float | None) -> _Point:
        """Return the prediction of a set, or end the search for points until the set is predicted."""
        key = frozenset(choices.items()), budget
        if key not in self._known:
            raise _UnknownError(choices, budget)
        return self._known[key]

    def _predicted[T](self, search: Callable[[], T]) -> T:
        """Return what a search finds. The search begins again after each prediction of a set that it asks for."""
        from workbench.compiler.driver.torch_prediction import predict_each

        wanted: Candidate | None = None

        def missing() -> Candidate | None:
            try:
                search()
            except _UnknownError as unknown:
                return unknown.choices, unknown.budget
            return None

        def next_wanted() -> Candidate | None:
            found = missing()
            if found is not None and self._joint is None:
                self._go_on("predicting torch.compile without the fit")
            elif found is not None and self._joint is not None:
                most = len(self._joint[1]) + _PREDICTED
                self._go_on(f"predicting set {len(self._known)} of at most {most}")
            return found

        def record(found: JointPrediction) -> Candidate | None:
            """Record a prediction, and return what to predict next. If other planning waits, return nothing."""
            nonlocal wanted
            assert wanted is not None
            choices, budget = wanted
            seconds = found.memory.seconds(self._machine)
            point = _Point(dict(choices), budget, found.prediction, seconds, found.memory.at_peak)
            self._known[frozenset(choices.items()), budget] = point
            if self._joint is None:
                self._least_bytes = found.least_bytes
                if missing() is not None:  # PyTorch takes long to find what it saves under its budgets
                    assert found.step is not None
                    self._joint = found.step, found.budgets()
            wanted = None if PLANNING.is_wanted else next_wanted()
            return wanted

        while first := next_wanted():
            wanted = first
            predict_each(self._bench._captured, first, None if self._joint else self._machine, record)
            PLANNING.let_others()
        return search()

    @functools.cached_property
    def _sites(self) -> dict[Key, str]:
        from workbench.compiler.driver.torch_keys import torch_keys

        ids = [site.id for site in self._bench.sites("saved")]
        keys, _ = torch_keys(self._bench._captured, [id.removeprefix(_SAVED) for id in ids if id.startswith(_SAVED)])
        return {key: _SAVED + place for place, key in keys.items()}

    def fit(self, peak: int | str, go_on: GoOn = lambda _: None) -> TorchFit:
        """Find choices for a limit: a size, or a share of the peak without the fit. See `Workbench.torch_fit`.

        Raises
        ------
        PlanError
            If the step cannot be predicted, or no set that was predicted is within the limit.
        """
        with self._one_at_a_time:
            self._go_on = go_on
            try:
                return self._fit(peak)
            finally:
                self._go_on = lambda _: None

    def _fit(self, peak: int | str) -> TorchFit:
        self._predicted(lambda: self._points_for(peak))
        limit_bytes = self._limit_bytes(peak)
        made = self._before
        if self.before.peak_bytes > limit_bytes:
            within = [point for point in self.points if point.prediction.peak_bytes <= limit_bytes]
            if not within:
                share = 100 * self.least_peak_bytes / self.before.peak_bytes
                raise PlanError(
                    f"no choices for {self._bench.program.name} were found that lower the peak of torch.compile to "
                    f"{human_bytes(limit_bytes)} or less; the lowest peak found is {self.least_peak_bytes:,} bytes, "
                    f"{share:.1f} % of the peak before the fit; besides parameters and inputs, the largest tensors "
                    f"at this peak are {self.points[-1].told_at_peak()}"
                )
            made = within[0]
        found = made.prediction
        return TorchFit(
            limit_bytes=limit_bytes,
            before_peak_bytes=self.before.peak_bytes,
            peak_bytes=found.peak_bytes,
            before_saved_bytes=self.before.saved_bytes,
            saved_bytes=found.saved_bytes,
            step_s=self._before.step_s,
            added_s=max(0.0, made.step_s - self._before.step_s),
            choices=made.choices,
            budget=made.budget,
            sites={key: site for key, site in self._sites.items() if key in made.choices},
            unapplied=found.unapplied,
            peak_at_least=self.before.peak_at_least or found.peak_at_least,
            machine=self._machine.name,
            _asked=peak,
            _bench=self._bench,
            _made=self._made,
            _left_out=self._left_out,
        )
