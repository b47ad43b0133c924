"""`compare`: runs side by side, each difference with its interval, and which of them are noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

from workbench.errors import RunError
from workbench.runs import events, timing
from workbench.runs.jobs import Run

type Verdict = Literal["faster", "slower", "less", "more", "same", "noise", "unknown"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One figure of a run beside the first run's.

    Attributes
    ----------
    run : str
        The run's name.
    figure : str
        Such as ``step_s`` or ``measured_peak_bytes``.
    value, base : float, optional
        This run's and the first run's; None where it was not measured.
    ratio, low, high : float, optional
        Value over base, with its 95 % interval where there are samples.
    verdict : str
        ``noise`` where the interval holds 1, or the difference is within the noise of the machine; ``unknown`` where
        there is but one sample, or none.
    """

    run: str
    figure: str
    value: float | None
    base: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Verdict


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Runs compared with the first of them.

    Attributes
    ----------
    base : str
        Name of the first run.
    noise : float
        How much the machine's own speed varied during the noisiest of the runs.
    differences : tuple of Difference
        Run by run.
    warnings : tuple of str
        What makes the runs hard to compare.
    """

    base: str
    noise: float
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON data."""
        return dataclasses.asdict(self)


def compare(*runs: Run) -> Comparison:
    """Compare runs with the first one.

    Runs of different processes were not measured interleaved: beyond the samples' intervals, they differ by what the
    machine did meanwhile, so a difference within its noise counts as noise, too.

    Parameters
    ----------
    *runs : Run
        Two or more; those that failed have what they measured before.

    Returns
    -------
    Comparison

    Raises
    ------
    RunError
        If there are fewer than two.
    """
    if len(runs) < 2:
        raise RunError(f"comparing needs two runs or more, given {len(runs)}")
    base, *others = runs
    noise = max((times["noise"] for run in runs if (times := run.times) is not None), default=0.0)
    found: list[Difference] = []
    for run in others:
        found.append(_step_times(run, base, noise))
        found.append(_single(run, base, "compile_s", run.compile_s, base.compile_s))
        found.extend(_bytes(run, base, figure) for figure in ("measured_peak_bytes", "predicted_peak_bytes"))
    return Comparison(base.name, noise, tuple(found), tuple(_warnings(runs)))


def _samples(run: Run) -> list[float]:
    times = events.last_of(run.events, events.StepTimes)
    return times.samples_s if times is not None else []


def _step_times(run: Run, base: Run, noise: float) -> Difference:
    one, other = _samples(run), _samples(base)
    if not one or not other:
        return _single(run, base, "step_s", run.step_s, base.step_s)
    ratio = timing.ratio(one, other)
    verdict: Verdict = "faster" if ratio.median < 1 else "slower"
    if ratio.low <= 1 <= ratio.high or abs(ratio.median - 1) <= noise:
        verdict = "noise"
    if ratio.samples < timing.LEAST_SAMPLES:
        verdict = "unknown"
    return Difference(
        run=run.name,
        figure="step_s",
        value=run.step_s,
        base=base.step_s,
        ratio=ratio.median,
        low=ratio.low,
        high=ratio.high,
        verdict=verdict,
    )


def _single(run: Run, base: Run, figure: str, value: float | None, of_base: float | None) -> Difference:
    """A figure of which each run has one sample: no interval, and no verdict."""
    ratio = value / of_base if value is not None and of_base else None
    return Difference(
        run=run.name, figure=figure, value=value, base=of_base, ratio=ratio, low=None, high=None, verdict="unknown"
    )


def _bytes(run: Run, base: Run, figure: str) -> Difference:
    """Bytes are counted, not sampled: any difference is one."""
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
        if run.times is None:
            found.append(f"{run.name} has no step times")
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
        found.append("the runs are of different programs or settings")
    return found
