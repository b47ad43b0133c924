"""A comparison of runs reports a difference of step times only if it exceeds the noise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from workbench.errors import RunError
from workbench.runs.log import event_log, events
from workbench.runs.log.event_log import EventLog
from workbench.runs.process import request, run_store
from workbench.runs.process.follow_run import Run
from workbench.runs.sweep.compare import Difference, compare_runs


class Anything:
    """A stand-in for a program: a run needs only its description."""

    def dump(self, folder: Path) -> dict[str, object]:
        return {"kind": "builtin", "name": "mlp", "settings": {}, "device": "cpu", "seed": 0}


def recorded(
    folder: Path,
    samples_s: list[float],
    *more: events.Event,
    noise: float = 0.01,
    peak_bytes: int = 1000,
    yardstick_s: float = 50e-6,
) -> Run:
    """Return a finished run. Its log has these step times and the events `more`."""
    request.prepare(folder, Anything(), predicted_peak_bytes=1000)
    log = EventLog(folder / event_log.LOG_FILE)
    step_s = float(np.median(samples_s))
    times = {"step_s": step_s, "samples_s": samples_s, "noise": noise, "yardstick_s": yardstick_s}
    log.write(events.StepTimes(t_s=1.0, **times))
    log.write(
        events.PeakMeasured(
            t_s=1.0, measured_peak_bytes=peak_bytes, baseline_bytes=0, timeline_s=[], live_bytes=[], method=""
        )
    )
    for event in (*more, events.Finished(t_s=2.0)):
        log.write(event)
    return run_store.open(folder)


def around(center: float, count: int = 30) -> list[float]:
    return np.random.default_rng(round(center * 100)).normal(center, 0.03, count).tolist()


def of(run: Run, base: Run, figure: str) -> Difference:
    return next(d for d in compare_runs(base, run).differences if d.figure == figure)


@pytest.mark.parametrize(("center", "verdict"), [(1.0, "noise"), (1.2, "slower"), (0.8, "faster")])
def test_a_run_is_slower_or_faster_or_the_difference_is_noise(tmp_path: Path, center: float, verdict: str) -> None:
    found = of(recorded(tmp_path / "b", around(center)), recorded(tmp_path / "a", around(1.005)), "step_s")
    assert found.verdict == verdict
    assert found.low is not None
    assert found.high is not None
    assert found.low < center < found.high


def test_a_difference_within_the_machines_noise_is_noise(tmp_path: Path) -> None:
    base = recorded(tmp_path / "a", around(1.0), noise=0.5)
    assert of(recorded(tmp_path / "b", around(1.2)), base, "step_s").verdict == "noise"


def test_a_run_is_slower_only_if_the_difference_exceeds_the_drift_between_runs(tmp_path: Path) -> None:
    base = recorded(tmp_path / "a", around(1.0))
    slow = recorded(tmp_path / "b", around(1.2), yardstick_s=60e-6)
    assert of(slow, base, "step_s").drift == pytest.approx(0.2)
    assert of(slow, base, "step_s").verdict == "noise"
    assert of(recorded(tmp_path / "c", around(1.5), yardstick_s=60e-6), base, "step_s").verdict == "slower"


def test_a_difference_is_noise_if_the_intervals_of_the_two_runs_overlap(tmp_path: Path) -> None:
    wide = [0.5, 0.6, 0.7, 1.5, 1.6, 1.7]
    base = recorded(tmp_path / "a", [*wide, 1.0], noise=0.0)
    assert of(recorded(tmp_path / "b", [*wide, 1.49], noise=0.0), base, "step_s").verdict == "noise"


def test_comparing_runs_from_before_drift_was_recorded_gives_no_verdict_but_a_warning(tmp_path: Path) -> None:
    base = recorded(tmp_path / "a", around(1.0), yardstick_s=0.0)
    found = compare_runs(base, recorded(tmp_path / "b", around(2.0)))
    assert next(d for d in found.differences if d.figure == "step_s").verdict == "unknown"
    assert any("run a was recorded before" in warning for warning in found.warnings)


def test_a_comparison_states_that_the_runs_were_not_interleaved(tmp_path: Path) -> None:
    found = compare_runs(
        recorded(tmp_path / "a", around(1.0)), recorded(tmp_path / "b", around(1.1), yardstick_s=51e-6)
    )
    assert found.words.startswith("not measured interleaved")
    assert "drifted by 2.0%" in found.words
    assert "during them it varied by 1.0%" in found.words


def test_a_comparison_without_step_times_states_no_variation(tmp_path: Path) -> None:
    for name in "ab":
        request.prepare(tmp_path / name, Anything(), predicted_peak_bytes=1000)
        EventLog(tmp_path / name / event_log.LOG_FILE).write(events.Finished(t_s=2.0))
    found = compare_runs(*(run_store.open(tmp_path / name) for name in "ab"))
    assert found.noise is None
    assert "by an unknown share" in found.words
    assert "no run has step times" in found.words


def test_bytes_are_compared_exactly(tmp_path: Path) -> None:
    base = recorded(tmp_path / "a", around(1.0))
    less = recorded(tmp_path / "b", around(1.0), peak_bytes=999)
    assert of(less, base, "measured_peak_bytes").verdict == "less"
    assert of(less, base, "predicted_peak_bytes").verdict == "same"


def test_a_single_sample_gives_no_verdict(tmp_path: Path) -> None:
    one = recorded(tmp_path / "a", [1.0])
    assert of(recorded(tmp_path / "b", [2.0]), one, "step_s").verdict == "unknown"


def test_a_comparison_is_plain_json(tmp_path: Path) -> None:
    found = compare_runs(recorded(tmp_path / "a", around(1.0)), recorded(tmp_path / "b", around(1.1))).to_json()
    assert json.loads(json.dumps(found, allow_nan=False))["base"] == "a"


def test_one_run_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="at least two runs"):
        compare_runs(recorded(tmp_path / "a", [1.0]))
