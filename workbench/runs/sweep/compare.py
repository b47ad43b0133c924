"""`compare_runs`: compare the figures of runs, with intervals, and tell differences of step times from noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from workbench.errors import RunError
from workbench.runs.log import events
from workbench.runs.measure import interleaved_timing
from workbench.runs.process.follow_run import Run

type Verdict = Literal["faster", "slower", "less", "more", "same", "noise", "unknown"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One figure of a run, compared with the same figure of the first run.

    Attributes
    ----------
    run : str
        The run's name.
    figure : str
        Name of the figure, such as ``step_s`` or ``measured_peak_bytes``.
    value, base : float, optional
        Values of this run and of the first run; None if a value was not measured.
    ratio, low, high : float, optional
        `value` divided by `base`, with its 95 % interval if there are samples.
    verdict : str
        For step times ``faster``, ``slower``, ``noise`` or ``unknown``. A run is ``faster`` or ``slower`` if the
        intervals of the two runs do not overlap and the difference exceeds the sum of the machine's drift and noise.
        The verdict is ``unknown`` if there are too few samples or the drift is not known, and ``noise`` in all other
        cases. For bytes ``less``, ``more``, ``same`` or ``unknown``. For other figures ``unknown``, because each run
        measures them only once.
    drift : float, optional
        Change of the machine's own speed between the two runs, as a share. None if a log lacks the machine's speed, and
        for figures that are not step times.
    """

    run: str
    figure: str
    value: float | None
    base: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    drift: float | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Result of a comparison of several runs with the first one.

    Attributes
    ----------
    base : str
        Name of the first run.
    noise : float, optional
        Variation of the machine's own speed during the noisiest run; None if no run has step times.
    drift : float, optional
        Largest change of the machine's own speed between the first run and any other run; None if it is not known.
    differences : tuple of Difference
        Differences of each run from the first run, in the order of the runs.
    warnings : tuple of str
        Reasons why the runs are hard to compare.
    """

    base: str
    noise: float | None
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]
    drift: float | None = None

    @property
    def words(self) -> str:
        """Conclusion about the times, in a sentence or two."""
        by = (
            "by an unknown share (the log of a run lacks the machine's speed)"
            if self.drift is None
            else f"by {self.drift:.1%}"
        )
        during = "no run has step times" if self.noise is None else f"during them it varied by {self.noise:.1%}"
        return (
            "not measured interleaved: between the runs, the machine's own speed "
            f"drifted {by}; {during}. `run --against` measures interleaved."
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return dataclasses.asdict(self)


def compare_runs(*runs: Run) -> Comparison:
    """Compare runs with the first one.

    Separate runs are not interleaved, so changes of the machine add to the differences between their times. A run
    therefore counts as faster or slower only under two conditions: the intervals of the two runs do not overlap, and
    the difference exceeds the change of the machine's own speed between and during the runs.

    Parameters
    ----------
    *runs : Run
        Two or more runs. A failed run is compared by the figures that it measured before it failed.

    Returns
    -------
    Comparison

    Raises
    ------
    RunError
        If there are fewer than two runs.
    """
    if len(runs) < 2:
        raise RunError(f"a comparison needs at least two runs, given {len(runs)}")
    base, *others = runs
    noise = max((times["noise"] for run in runs if (times := run.times) is not None), default=None)
    found: list[Difference] = []
    for run in others:
        found.append(_step_times(run, base, noise or 0.0))
        found.append(_compare_single(run, base, "compile_s", run.compile_s, base.compile_s))
        found.extend(_bytes(run, base, figure) for figure in ("measured_peak_bytes", "predicted_peak_bytes"))
    drifts = [each.drift for each in found if each.drift is not None]
    return Comparison(base.name, noise, tuple(found), tuple(_warnings(runs)), max(drifts, default=None))


def step_times(run: Run, base: Run) -> Difference:
    """Compare the step times of two separate runs; see `Difference`."""
    noise = max((times["noise"] for each in (run, base) if (times := each.times) is not None), default=0.0)
    return _step_times(run, base, noise)


def _step_times(run: Run, base: Run, noise: float) -> Difference:
    now, then = (events.last_of(each.events, events.StepTimes) for each in (run, base))
    if now is None or then is None or not now.samples_s or not then.samples_s:
        return _compare_single(run, base, "step_s", run.step_s, base.step_s)
    ratio = interleaved_timing.ratio(now.samples_s, then.samples_s)
    drift = None
    if now.yardstick_s > 0 and then.yardstick_s > 0:
        drift = abs(now.yardstick_s / then.yardstick_s - 1)
    verdict: Verdict = "noise"
    if ratio.samples < interleaved_timing.LEAST_SAMPLES or drift is None:
        verdict = "unknown"
    elif _intervals_disjoint(now.samples_s, then.samples_s) and abs(ratio.median - 1) > drift + noise:
        verdict = "faster" if ratio.median < 1 else "slower"
    return Difference(
        run=run.name,
        figure="step_s",
        value=run.step_s,
        base=base.step_s,
        ratio=ratio.median,
        low=ratio.low,
        high=ratio.high,
        verdict=verdict,
        drift=drift,
    )


def _intervals_disjoint(samples: Sequence[float], base_samples: Sequence[float]) -> bool:
    """Return whether the intervals of two runs' median times do not overlap."""
    first, second = interleaved_timing.estimate(samples), interleaved_timing.estimate(base_samples)
    return first.high < second.low or second.high < first.low


def _compare_single(run: Run, base: Run, figure: str, value: float | None, of_base: float | None) -> Difference:
    """Return the difference in a figure that each run measures once; it has no interval, and its verdict is unknown."""
    ratio = value / of_base if value is not None and of_base else None
    return Difference(
        run=run.name, figure=figure, value=value, base=of_base, ratio=ratio, low=None, high=None, verdict="unknown"
    )


def _bytes(run: Run, base: Run, figure: str) -> Difference:
    """Return the difference in a figure in bytes. Bytes are counted and not sampled, so any difference is real."""
    value, of_base = run.memory[figure], base.memory[figure]
    verdict: Verdict = "unknown"
    if value is not None and of_base is not None:
        verdict = "same" if value == of_base else "less" if value < of_base else "more"
    ratio = value / of_base if value is not None and of_base else None
    return Difference(
        run=run.name, figure=figure, value=value, base=of_base, ratio=ratio, low=ratio, high=ratio, verdict=verdict
    )


def _warnings(runs: Sequence[Run]) -> list[str]:
    found = []
    for run in runs:
        if run.error:
            found.append(f"{run.name}: {run.error}")
        found += [f"{run.name}: {warning}" for warning in run.warnings]
        if run.beside_load:
            found.append(f"{run.name} was {run.beside_load}")
        if run.times is None:
            found.append(f"{run.name} has no step times")
        elif not getattr(events.last_of(run.events, events.StepTimes), "yardstick_s", 0.0):
            found.append(
                f"run {run.name} was recorded before the machine's speed was measured: its times have no verdict"
            )
    for name in ("versions", "machine"):
        kinds = {
            str(sorted(getattr(environment, name).items()))
            for run in runs
            if (environment := events.last_of(run.events, events.Environment)) is not None
        }
        if len(kinds) > 1:
            found.append(f"the runs' {name} differ")
    programs = {(run.request.program["name"], str(run.request.program.get("settings"))) for run in runs}
    if len(programs) > 1:
        found.append("the runs have different programs or settings")
    return found
