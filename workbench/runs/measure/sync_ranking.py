"""Rank variants by time with synchronization, and show the wrong ranking of a benchmark without synchronization."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping

from workbench.runs.measure import interleaved_timing
from workbench.runs.measure.interleaved_timing import MedianEstimate

_WARMUP = 2
"""Number of calls of each variant before the first sample."""


@dataclasses.dataclass(frozen=True)
class VariantRanking:
    """Rankings of variants, the fastest first, and their times.

    Attributes
    ----------
    names : tuple of str
        Ranking by wall time.
    unsynced : tuple of str
        Ranking by the time until the call returns, as in a benchmark without synchronization.
    wall_s, host_s : mapping of str to MedianEstimate
        Seconds until the work is done, and seconds until the call returns.
    words : str
        Conclusion for the user.
    """

    names: tuple[str, ...]
    unsynced: tuple[str, ...]
    wall_s: Mapping[str, MedianEstimate]
    host_s: Mapping[str, MedianEstimate]
    words: str

    @property
    def deceives(self) -> bool:
        """Return whether a benchmark without synchronization would name a different variant as the fastest."""
        return self.names[0] != self.unsynced[0]


def rank(
    variants: Mapping[str, Callable[[], object]],
    synchronize: Callable[[], None],
    *,
    samples: int = 30,
    budget_s: float = 10.0,
    seed: int = 0,
) -> VariantRanking:
    """Rank variants by interleaved samples, in a new random order for each turn.

    The device is synchronized before and after each sample.

    Parameters
    ----------
    variants : mapping of str to callable
    synchronize : callable
        Waits for all work that a variant issued.
    samples, budget_s, seed
        As in `workbench.runs.measure.interleaved_timing.take_interleaved`.
    """

    def sample(work: Callable[[], object]) -> tuple[float, float]:
        synchronize()
        start = time.perf_counter()
        work()
        issued = time.perf_counter()
        synchronize()
        return issued - start, time.perf_counter() - start

    for work in variants.values():
        for _ in range(_WARMUP):
            sample(work)
    found = interleaved_timing.take_interleaved(
        {name: functools.partial(sample, work) for name, work in variants.items()}, samples, budget_s, seed=seed
    )
    host = {name: [each[0] for each in rows] for name, rows in found.items()}
    wall = {name: [each[1] for each in rows] for name, rows in found.items()}
    host_s = {name: interleaved_timing.estimate(times) for name, times in host.items()}
    wall_s = {name: interleaved_timing.estimate(times) for name, times in wall.items()}
    names = tuple(sorted(wall_s, key=lambda name: wall_s[name].median))
    unsynced = tuple(sorted(host_s, key=lambda name: host_s[name].median))
    if names[0] == unsynced[0]:
        words = f"{names[0]} is the fastest, with syncs and without"
    else:
        seeming = interleaved_timing.ratio(host[names[0]], host[unsynced[0]], paired=True)
        real = interleaved_timing.ratio(wall[unsynced[0]], wall[names[0]], paired=True)
        takes = f"takes {real.median:.3g} times as long ({real.low:.3g} to {real.high:.3g})"
        truth = f"its work {takes}, which is noise" if real.low <= 1 <= real.high else f"it {takes}"
        words = (
            f"without syncs {unsynced[0]} seems {seeming.median:.3g} times as fast as {names[0]}; {truth}: "
            "only issuing was timed"
        )
    return VariantRanking(names, unsynced, wall_s, host_s, words)
