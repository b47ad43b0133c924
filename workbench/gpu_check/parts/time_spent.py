"""Time of a step by kind: starting processes, imports, opening programs, compiling, and measuring."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from workbench.runs.log.events import Phase, Started

if TYPE_CHECKING:
    from workbench.runs.process.follow_run import Run

START, IMPORTS, OPENING, COMPILING, MEASURING, OTHER = "start", "imports", "opening", "compiling", "measuring", "other"
KINDS = (START, IMPORTS, OPENING, COMPILING, MEASURING, OTHER)
"""Kinds of time. The first step of a process is also charged with the start and the imports of this process. ``start``
is the time from the request of a process to its first statement; ``other`` is the rest.
"""
_OF_PHASE = {"build": OPENING, "compile": COMPILING}
"""Kinds of a run's phases; all other phases measure."""

_spent: dict[str, float] = {}


def add(kind: str, seconds: float) -> None:
    """Add seconds to the time of the current step."""
    _spent[kind] = _spent.get(kind, 0.0) + max(0.0, seconds)


@contextlib.contextmanager
def timed(kind: str) -> Iterator[None]:
    """Add the time of a block to the current step, even if the block raises an exception."""
    begun_s = time.perf_counter()
    try:
        yield
    finally:
        add(kind, time.perf_counter() - begun_s)


def add_run(run: Run) -> None:
    """Add the time of a run that has ended to the current step, by the phases in the run's log."""
    kind, since_s = START, None
    for event in run.events:
        if isinstance(event, Started):
            add(START, event.time_s + event.t_s - run.request.created_s)
            kind, since_s = IMPORTS, event.t_s
        elif since_s is not None:
            add(kind, event.t_s - since_s)
            since_s = max(since_s, event.t_s)
            if isinstance(event, Phase):
                kind = _OF_PHASE.get(event.phase, MEASURING)


def take(step_s: float) -> dict[str, float]:
    """Return the time of a step by kind, and begin the next step.

    Parameters
    ----------
    step_s : float
        Complete time of the step, with the start and the imports of its process.
    """
    found = {kind: _spent.get(kind, 0.0) for kind in KINDS}
    _spent.clear()
    found[OTHER] = max(0.0, step_s - sum(found.values()))
    return {kind: round(seconds, 3) for kind, seconds in found.items()}


def total(spent: Iterator[Mapping[str, float]]) -> dict[str, float]:
    """Add up the times of several steps, by kind, in seconds."""
    found = dict.fromkeys(KINDS, 0.0)
    for each in spent:
        for kind, seconds in each.items():
            found[kind] += seconds
    return {kind: round(seconds, 1) for kind, seconds in found.items()}
