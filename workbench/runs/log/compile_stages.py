"""Compile time by stage: `Recorder` collects a compilation's events; `attribute` assigns its time to stages."""

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
    """Receives events from the compiler while it works. ``Config.jit(fn, observer=...)`` takes one."""

    def stage(self, name: str, seconds: float) -> None:
        """A stage of compilation has ended now, after this many seconds of wall time."""

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        """A fusion, one of `count`, is about to be compiled."""

    def fusion_end(
        self, name: str, index: int, count: int, seconds: float, parts: Mapping[str, float], cached: bool
    ) -> None:
        """The fusion is compiled and has run once, with its seconds by part, and whether a disk cache had it."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """A named interval of time, in seconds on any one clock."""

    name: str
    start_s: float
    end_s: float


def intervals_of(event: Stage | FusionEnd) -> list[Interval]:
    """Return the intervals that an event reports; the parts of a fusion follow one another."""
    start_s = event.t_s - event.seconds
    if isinstance(event, Stage):
        return [Interval(event.name, start_s, event.t_s)]
    found = []
    for name, seconds in (event.parts or {"compilation": event.seconds}).items():
        found.append(Interval(f"fusions: {name}", start_s, start_s + seconds))
        start_s += seconds
    return found


class Recorder:
    """A `StageObserver` that writes the events it gets into a log, and keeps them as intervals.

    Parameters
    ----------
    log : EventLog
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.intervals: list[Interval] = []

    def stage(self, name: str, seconds: float) -> None:
        """Write that a stage has ended now."""
        now = self._log.now_s()
        self.intervals.append(Interval(name, now - seconds, now))
        self._log.write(Stage(t_s=now, name=name, seconds=seconds))

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        """Write that a fusion is about to be compiled."""
        self._log.write(FusionBegin(t_s=self._log.now_s(), name=name, index=index, count=count))

    def fusion_end(
        self, name: str, index: int, count: int, seconds: float, parts: Mapping[str, float], cached: bool
    ) -> None:
        """Write that a fusion is compiled."""
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
        """Write the time between two moments of the log's clock that no interval covers so far as a stage."""
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
        May nest.
    start_s, end_s : float
        The window.

    Returns
    -------
    stages : list of dict
        ``{"name", "seconds"}`` in order of first appearance, with equal names added up. If the window is finite, the
        last one is `UNATTRIBUTED`: the time that no interval covers.
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
            # The innermost interval is the one that began last; if several began together, the shortest.
            seconds[open_[-1].name] += after - moment
    total = end_s - start_s
    attributed = sum(seconds.values()) / total if total > 0 else 0.0
    if math.isfinite(total) and total > 0:
        seconds[UNATTRIBUTED] = max(0.0, total - sum(seconds.values()))
    return [{"name": name, "seconds": spent} for name, spent in seconds.items()], min(attributed, 1.0)
