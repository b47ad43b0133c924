"""Step timing: three numbers per step, variants in random order, medians with intervals, the machine's own noise."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import psutil
import torch
from numpy.typing import NDArray

from workbench.runs.measure.accuracy import Stepper

CONFIDENCE = 0.95
RESAMPLES = 1999
LEAST_SAMPLES = 3

_YARDSTICK_SIZE = 5000
"""How many numbers to add up; this takes about 50 µs."""


@dataclasses.dataclass(frozen=True)
class StepTime:
    """One step, started after the device has finished earlier work.

    Attributes
    ----------
    host_s : float
        Time until the last work was submitted to the device, which a benchmark without synchronization would show.
    wall_s : float
        Time until the device was done.
    device_s : float
        Time from the device's first to its last work; `wall_s` if the host is the device.
    yardstick_s : float
        Time of a fixed small computation right before the step; it depends only on the machine.
    """

    host_s: float
    wall_s: float
    device_s: float
    yardstick_s: float


@dataclasses.dataclass(frozen=True)
class MedianEstimate:
    """A median with its confidence interval.

    Attributes
    ----------
    median, low, high : float
        In 95 % of all cases, the interval contains the median of many more samples (bootstrap, percentile).
    samples : int
    """

    median: float
    low: float
    high: float
    samples: int


def time_step(stepper: Stepper) -> StepTime:
    """Time one step; gradients are cleared before it, outside of the measured time."""
    stepper.clear_grads()
    yardstick_s = _yardstick()
    stepper.synchronize()
    cuda = stepper.device.type == "cuda"
    begin = end = None
    if cuda:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
    start = time.perf_counter()
    outputs = stepper.step()
    issued = time.perf_counter()
    if end is not None:
        end.record()
    stepper.synchronize()
    done = time.perf_counter()
    del outputs
    device_s = done - start if begin is None or end is None else begin.elapsed_time(end) / 1e3
    return StepTime(issued - start, done - start, device_s, yardstick_s)


def take_interleaved[T](
    variants: Mapping[str, Callable[[], T]],
    count: int,
    budget_s: float,
    *,
    seed: int = 0,
    on_sample: Callable[[str, T], None] | None = None,
) -> dict[str, list[T]]:
    """Take interleaved samples of several variants, in a new random order for each turn.

    Changes during the measurement, such as in the machine's clock rate and load, then affect all variants equally.

    Parameters
    ----------
    variants : mapping of str to callable
        Each takes one sample.
    count : int
        Turns.
    budget_s : float
        No further turn begins after this time, but at least three are taken.
    seed : int
        For the order.
    on_sample : callable, optional
        Called between samples, with the variant and its sample.

    Returns
    -------
    dict of str to list
        Samples of each variant; samples with the same index are of the same turn.
    """
    order = random.Random(seed)
    found: dict[str, list[T]] = {name: [] for name in variants}
    deadline = time.perf_counter() + budget_s
    for turn in range(count):
        if turn >= LEAST_SAMPLES and time.perf_counter() >= deadline:
            break
        names = list(variants)
        order.shuffle(names)
        for name in names:
            sample = variants[name]()
            found[name].append(sample)
            if on_sample is not None:
                on_sample(name, sample)
    return found


def estimate(samples: Sequence[float]) -> MedianEstimate:
    """Return median and bootstrap interval; the range if there are too few samples to resample."""
    values = np.asarray(samples, float)
    if len(values) < LEAST_SAMPLES or np.ptp(values) == 0:
        return MedianEstimate(float(np.median(values)), float(values.min()), float(values.max()), len(values))
    low, high = _interval(np.median(np.random.default_rng(0).choice(values, (RESAMPLES, len(values))), axis=1))
    return MedianEstimate(float(np.median(values)), low, high, len(values))


def ratio(numerator: Sequence[float], denominator: Sequence[float], *, paired: bool = False) -> MedianEstimate:
    """Return the ratio of the median of `numerator` to the median of `denominator`.

    Parameters
    ----------
    numerator, denominator : sequence of float
    paired : bool
        Samples with the same index are of the same turn and are resampled together.
    """
    above, below = np.asarray(numerator, float), np.asarray(denominator, float)
    middle = float(np.median(above) / np.median(below))
    samples = min(len(above), len(below))
    if samples < LEAST_SAMPLES:
        return MedianEstimate(middle, float(above.min() / below.max()), float(above.max() / below.min()), samples)
    draw = np.random.default_rng(0)
    if paired:
        rows = draw.integers(0, samples, (RESAMPLES, samples))
        found = np.median(above[rows], axis=1) / np.median(below[rows], axis=1)
    else:
        found = np.median(draw.choice(above, (RESAMPLES, len(above))), axis=1) / np.median(
            draw.choice(below, (RESAMPLES, len(below))), axis=1
        )
    return MedianEstimate(middle, *_interval(found), samples)


def _interval(resampled: NDArray[np.float64]) -> tuple[float, float]:
    """Return the middle of the resampled values, by percentile.

    `scipy.stats.bootstrap` would take seconds to import.
    """
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(resampled, (tail, 100 - tail))
    return float(low), float(high)


def noise(yardsticks_s: Sequence[float]) -> float:
    """Return the variation of the machine's speed: half the interquartile range over the median of the yardstick."""
    if not len(yardsticks_s):
        return 0.0
    low, middle, high = np.percentile(np.asarray(yardsticks_s, float), (25, 50, 75))
    return float((high - low) / 2 / middle)


class LoadWatch:
    """CPU time that other processes use from now on, in cores, that is, seconds of CPU time per second."""

    LEAST_S = 0.25
    """Minimum duration of a measurement, because systems count CPU time in hundredths of a second."""

    def __init__(self) -> None:
        self._begun = self._read_load()

    @staticmethod
    def _read_load() -> tuple[float, float]:
        times = psutil.cpu_times()
        # The system counts guest time as part of user time.
        idle_s = times.idle + getattr(times, "iowait", 0.0) + getattr(times, "guest", 0.0)
        busy_s = sum(times) - idle_s - getattr(times, "guest_nice", 0.0)
        return time.perf_counter(), busy_s - time.process_time()

    def busy_cores(self) -> float:
        """Return the number of cores that other processes have used since then."""
        begun_s, before_s = self._begun
        time.sleep(max(0.0, self.LEAST_S - (time.perf_counter() - begun_s)))
        now_s, busy_s = self._read_load()
        return max(0.0, (busy_s - before_s) / (now_s - begun_s))


def _yardstick() -> float:
    """Plain Python on one core, because a computation with threads would also vary with their scheduling."""
    start = time.perf_counter()
    sum(range(_YARDSTICK_SIZE))
    return time.perf_counter() - start
