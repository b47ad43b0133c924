"""Find the compile time of each stage: `Recorder` logs a compilation's events, and `attribute` divides the time."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from workbench.runs.log.event_log import EventLog
from workbench.runs.log.events import FusionBegin, FusionEnd, Stage

UNATTRIBUTED = "unattributed"
"""Label of the time that belongs to no stage."""


class StageObserver(Protocol):
    """Receives the compiler's events during a compilation; passed as ``Config.jit(fn, observer=...)``."""

    def stage(self, name: str, seconds: float) -> None:
        """Receive the name and the wall time of a compilation stage that has just ended."""

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        """Receive the name of a fusion whose compilation begins: fusion number `index` (from 0) of `count` fusions."""

    def fusion_end(
        self, name: str, index: int, count: int, seconds: float, parts: Mapping[str, float], cached: bool
    ) -> None:
        """Receive the times of a fusion that was compiled and has run once.

        `parts` maps each part of the compilation to its seconds. `cached` says whether a disk cache contained the
        compiled fusion.
        """


@dataclasses.dataclass(frozen=True)
class Interval:
    """A named interval of time; its start and its end are seconds on the same clock."""

    name: str
    start_s: float
    end_s: float


def intervals_of(event: Stage | FusionEnd) -> list[Interval]:
    """Return the intervals that an event reports: one for a stage, or one for each part of a fusion's compilation.

    The parts of a fusion follow one another without gaps, and the last part ends when the event is written.
    """
    start_s = event.t_s - event.seconds
    if isinstance(event, Stage):
        return [Interval(event.name, start_s, event.t_s)]
    found = []
    for name, seconds in (event.parts or {"compilation": event.seconds}).items():
        found.append(Interval(f"fusions: {name}", start_s, start_s + seconds))
        start_s += seconds
    return found


class Recorder:
    """A `StageObserver` that writes each event into a log, and collects the intervals that the events report.

    Parameters
    ----------
    log : EventLog
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.intervals: list[Interval] = []

    def stage(self, name: str, seconds: float) -> None:
        """Write the record of a stage that has just ended."""
        now = self._log.now_s()
        self.intervals.append(Interval(name, now - seconds, now))
        self._log.write(Stage(t_s=now, name=name, seconds=seconds))

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        """Write the record of a fusion whose compilation begins."""
        self._log.write(FusionBegin(t_s=self._log.now_s(), name=name, index=index, count=count))

    def fusion_end(
        self, name: str, index: int, count: int, seconds: float, parts: Mapping[str, float], cached: bool
    ) -> None:
        """Write the record of a fusion that was compiled and has run once."""
        event = FusionEnd(
            t_s=self._log.now_s(),
            name=name,
            index=index,
            count=count,
            seconds=seconds,
            parts=dict(parts),
            cached=cached,
        )
        self.intervals.extend(intervals_of(event))
        self._log.write(event)

    def rest_of(self, name: str, start_s: float, end_s: float) -> None:
        """Write each gap between the collected intervals as a stage called `name`.

        Only gaps between `start_s` and `end_s` are written. Both times are on the log's clock.
        """
        at = start_s
        gaps: list[Interval] = []
        for interval in sorted(self.intervals, key=lambda i: i.start_s):
            if interval.end_s <= at or interval.start_s >= end_s:
                continue
            if interval.start_s > at:
                gaps.append(Interval(name, at, interval.start_s))
            at = max(at, interval.end_s)
        if at < end_s:
            gaps.append(Interval(name, at, end_s))
        self.intervals.extend(gaps)
        for gap in gaps:
            self._log.write(Stage(t_s=gap.end_s, name=name, seconds=gap.end_s - gap.start_s))


def attribute(intervals: Iterable[Interval], start_s: float, end_s: float) -> tuple[list[dict[str, Any]], float]:
    """Divide a window of time among the intervals in it; each moment belongs to the innermost interval.

    Parameters
    ----------
    intervals : iterable of Interval
        Intervals, which may be nested.
    start_s, end_s : float
        The window.

    Returns
    -------
    stages : list of dict
        ``{"name", "seconds"}`` for each name, in order of first appearance. ``seconds`` is the sum over the intervals
        of this name. If the window is finite, the last entry is `UNATTRIBUTED`: the time that no interval covers.
    attributed : float
        Share of the window that intervals cover, 0 to 1.
    """
    clipped = [Interval(i.name, max(i.start_s, start_s), min(i.end_s, end_s)) for i in intervals]
    clipped = sorted((i for i in clipped if i.end_s > i.start_s), key=lambda i: (i.start_s, -i.end_s))
    seconds: dict[str, float] = {i.name: 0.0 for i in clipped}
    moments = sorted({m for i in clipped for m in (i.start_s, i.end_s)})
    open_: list[Interval] = []
    upcoming = iter([*clipped, None])
    following = next(upcoming)
    for moment, after in itertools.pairwise(moments):
        while following is not None and following.start_s <= moment:
            open_.append(following)
            following = next(upcoming)
        open_ = [i for i in open_ if i.end_s > moment]
        if open_:
            # The innermost interval began last; if several intervals began together, it is the shortest.
            seconds[open_[-1].name] += after - moment
    total = end_s - start_s
    attributed = sum(seconds.values()) / total if total > 0 else 0.0
    if math.isfinite(total) and total > 0:
        seconds[UNATTRIBUTED] = max(0.0, total - sum(seconds.values()))
    return [{"name": name, "seconds": spent} for name, spent in seconds.items()], min(attributed, 1.0)
