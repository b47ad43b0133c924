"""Time steps of variants in random order; compute medians with intervals, and the noise and load of the machine."""

from __future__ import annotations

import dataclasses
import math
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
"""Number of integers that the yardstick adds up, in about 50 µs. The yardstick measures the speed of the machine."""


@dataclasses.dataclass(frozen=True)
class StepTime:
    """Times of one step, which is started after the device has finished earlier work.

    Attributes
    ----------
    host_s : float
        Time until the host has submitted the step's last work; a benchmark without synchronization measures this time.
    wall_s : float
        Time until the device has finished the step's last work.
    device_s : float
        Time, on the device's clock, between events before the step's first work and after its last work; `wall_s` if
        the host is the device.
    yardstick_s : float
        Time of a fixed small computation right before the step. This time depends on the machine, not on the program.
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
        The median, and the ends of its 95 % interval (bootstrap, percentile). With fewer than `LEAST_SAMPLES` samples,
        the interval is the range of the samples.
    samples : int
    """

    median: float
    low: float
    high: float
    samples: int


def time_step(stepper: Stepper) -> StepTime:
    """Time one step. Gradients are cleared before the measured time begins."""
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
    on_progress: Callable[[int, int, float], None] | None = None,
) -> dict[str, list[T]]:
    """Take interleaved samples of several variants, in a new random order for each turn.

    Changes of the machine during the measurement, such as of its clock rate or load, then affect all variants equally.

    Parameters
    ----------
    variants : mapping of str to callable
        Each callable takes one sample.
    count : int
        Maximum number of turns; each turn takes one sample of each variant.
    budget_s : float
        Seconds after which no further turn begins. The first `LEAST_SAMPLES` turns run in any case.
    seed : int
        Seed for the order of the variants.
    on_sample : callable, optional
        Called after each sample, with the variant's name and the sample.
    on_progress : callable, optional
        Called after each sample, with the number of samples so far, their expected number, and the expected seconds
        until the last one.

    Returns
    -------
    dict of str to list
        Samples of each variant; samples with the same index come from the same turn.
    """
    order = random.Random(seed)
    found: dict[str, list[T]] = {name: [] for name in variants}
    begun = time.perf_counter()
    deadline = begun + budget_s
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
            if on_progress is not None:
                done = sum(map(len, found.values()))
                each_s = (time.perf_counter() - begun) / done
                fit = budget_s / (each_s * len(variants)) if each_s else math.inf
                turns = count if fit >= count else max(min(count, LEAST_SAMPLES), math.ceil(fit))
                most = max(turns * len(variants), done)
                on_progress(done, most, each_s * (most - done))
    return found


def estimate(samples: Sequence[float]) -> MedianEstimate:
    """Return the median and its bootstrap interval; with fewer than `LEAST_SAMPLES` samples, their range."""
    values = np.asarray(samples, float)
    if len(values) < LEAST_SAMPLES or np.ptp(values) == 0:
        return MedianEstimate(float(np.median(values)), float(values.min()), float(values.max()), len(values))
    low, high = _interval(np.median(np.random.default_rng(0).choice(values, (RESAMPLES, len(values))), axis=1))
    return MedianEstimate(float(np.median(values)), low, high, len(values))


def ratio(numerator: Sequence[float], denominator: Sequence[float], *, paired: bool = False) -> MedianEstimate:
    """Return the ratio of the median of `numerator` to the median of `denominator`, with its interval.

    With fewer than `LEAST_SAMPLES` samples, the interval contains the ratios of all pairs of samples.

    Parameters
    ----------
    numerator, denominator : sequence of float
    paired : bool
        Whether samples with the same index come from the same turn; they are then resampled together.
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
    """Return the interval that contains the middle 95 % of the resampled values.

    `scipy.stats.bootstrap` would take seconds to import.
    """
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(resampled, (tail, 100 - tail))
    return float(low), float(high)


def noise(yardsticks_s: Sequence[float]) -> float:
    """Return the variation of the machine's speed.

    The variation is half the interquartile range of the yardstick's times, divided by the median of these times. It is
    0 without times.
    """
    if not len(yardsticks_s):
        return 0.0
    low, middle, high = np.percentile(np.asarray(yardsticks_s, float), (25, 50, 75))
    return float((high - low) / 2 / middle)


class LoadWatch:
    """Measures how many cores other processes use from now on, as their CPU seconds per second of wall time."""

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
        """Return how many cores other processes have used on average since this object was made."""
        begun_s, before_s = self._begun
        time.sleep(max(0.0, self.LEAST_S - (time.perf_counter() - begun_s)))
        now_s, busy_s = self._read_load()
        return max(0.0, (busy_s - before_s) / (now_s - begun_s))


def _yardstick() -> float:
    """Return the seconds that a fixed computation takes.

    The computation is plain Python on one core, because the scheduling of several threads would vary.
    """
    start = time.perf_counter()
    sum(range(_YARDSTICK_SIZE))
    return time.perf_counter() - start
