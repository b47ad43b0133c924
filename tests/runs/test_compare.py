"""Comparisons: what differs is told from what is noise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from workbench.errors import RunError
from workbench.runs import events, logs, request, store
from workbench.runs.compare import Difference, compare
from workbench.runs.jobs import Run
from workbench.runs.logs import EventLog


class Anything:
    """In the place of a program."""

    def dump(self, folder: Path) -> dict[str, object]:
        return {"kind": "builtin", "name": "mlp", "settings": {}, "device": "cpu", "seed": 0}


def recorded(folder: Path, samples_s: list[float], *, noise: float = 0.01, peak_bytes: int = 1000) -> Run:
    """A finished run with these step times."""
    request.prepare(folder, Anything(), predicted_peak_bytes=1000)
    log = EventLog(folder / logs.LOG_FILE)
    step_s = float(np.median(samples_s))
    log.write(events.StepTimes(t_s=1.0, step_s=step_s, samples_s=samples_s, noise=noise))
    log.write(
        events.PeakMeasured(
            t_s=1.0, measured_peak_bytes=peak_bytes, baseline_bytes=0, timeline_s=[], live_bytes=[], method=""
        )
    )
    log.write(events.Finished(t_s=2.0))
    return store.open(folder)


def around(center: float, count: int = 30) -> list[float]:
    return np.random.default_rng(round(center * 100)).normal(center, 0.03, count).tolist()


def of(run: Run, base: Run, figure: str) -> Difference:
    return next(d for d in compare(base, run).differences if d.figure == figure)


@pytest.mark.parametrize(("center", "verdict"), [(1.0, "noise"), (1.2, "slower"), (0.8, "faster")])
def test_step_times_differ_or_are_noise(tmp_path: Path, center: float, verdict: str) -> None:
    found = of(recorded(tmp_path / "b", around(center)), recorded(tmp_path / "a", around(1.005)), "step_s")
    assert found.verdict == verdict
    assert found.low is not None
    assert found.high is not None
    assert found.low < center < found.high


def test_a_difference_within_the_machines_noise_is_noise(tmp_path: Path) -> None:
    base = recorded(tmp_path / "a", around(1.0), noise=0.5)
    assert of(recorded(tmp_path / "b", around(1.2)), base, "step_s").verdict == "noise"


def test_bytes_are_counted_and_not_sampled(tmp_path: Path) -> None:
    base = recorded(tmp_path / "a", around(1.0))
    less = recorded(tmp_path / "b", around(1.0), peak_bytes=999)
    assert of(less, base, "measured_peak_bytes").verdict == "less"
    assert of(less, base, "predicted_peak_bytes").verdict == "same"


def test_what_has_one_sample_has_no_verdict(tmp_path: Path) -> None:
    one = recorded(tmp_path / "a", [1.0])
    assert of(recorded(tmp_path / "b", [2.0]), one, "step_s").verdict == "unknown"


def test_a_comparison_is_plain_json(tmp_path: Path) -> None:
    found = compare(recorded(tmp_path / "a", around(1.0)), recorded(tmp_path / "b", around(1.1))).to_json()
    assert json.loads(json.dumps(found, allow_nan=False))["base"] == "a"


def test_one_run_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="two runs or more"):
        compare(recorded(tmp_path / "a", [1.0]))
