"""`CheckPart` and `CheckStep`: the units of a check. Finished steps are not repeated, even if a process is killed."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

type Figures = dict[str, Any]
"""Figures as plain JSON data, by name, with units in the names. If there is a fault, ``wrong`` describes it."""

type Known = Mapping[str, Figures]
"""Figures of the finished steps of a part, by the step's id."""

WRONG = "wrong"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conditions:
    """The device, executor, size and folder of a check.

    Attributes
    ----------
    device, executor : str
        As in `workbench.open`.
    rehearse : bool
        Whether this is a rehearsal with small sizes and without a GPU. Programs then run on the CPU. Plans for a GPU
        are made if nvFuser is installed.
    folder : Path
        Folder of the check, with the files of its parts.
    machine : str
        Name of the GPU in `workbench.analysis.cost.machines.MACHINES`; empty for another GPU and for a rehearsal.
    """

    device: str
    executor: str
    rehearse: bool
    folder: Path
    machine: str = ""

    def size[T](self, real: T, rehearsed: T) -> T:
        """Return `rehearsed` in a rehearsal, and `real` on a GPU."""
        return rehearsed if self.rehearse else real


@dataclasses.dataclass(frozen=True)
class CheckStep:
    """One step of a part. It is executed once.

    Attributes
    ----------
    id : str
        Unique in the part, and the same in each process, so that no step is executed twice.
    act : callable
        Receives the figures of earlier steps, and returns the figures of this step.
    first : bool
        Whether this is one of the first steps. These are the most informative steps of each part, and run before the
        other steps of all parts.
    limit_s : float, optional
        Time limit of this step, instead of the part's `CheckPart.step_limit_s`.
    """

    id: str
    act: Callable[[Known], Figures]
    first: bool = False
    limit_s: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckTurn:
    """Which steps of a part are executed in one pass over all parts, and until when.

    Attributes
    ----------
    first : bool
        Whether to run only the steps with `CheckStep.first`.
    until_s : float
        Time after which no step begins, as returned by `time.monotonic`. All processes of a machine share this clock.
    """

    first: bool
    until_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckPart:
    """A group of checks that has its own processes.

    Attributes
    ----------
    name, title, does : str
        Name for the command line, heading, and description in one sentence.
    limit_s : float
        Time limit of a turn of the part; the turn with the first steps has `first_limit_s` instead. The remaining time
        is shared among parts in proportion to their limits.
    step_limit_s : float
        Time limit of a step. A step that takes longer has failed, and the next step begins.
    first_limit_s : float
        Time from the start of the turn with the first steps to the moment after which no step begins in this turn.
    in_slot : bool
        Whether a step begins only if at least the step's time limit is left, so that each step that begins also ends.
    module : str
        Module with ``steps(conditions)``; imported only if the part runs.
    """

    name: str
    title: str
    does: str
    limit_s: float
    module: str
    step_limit_s: float = 600.0
    first_limit_s: float = 90.0
    in_slot: bool = False

    def steps(self, conditions: Conditions) -> Iterable[CheckStep]:
        """Return the steps of the part, in order."""
        found: Iterable[CheckStep] = importlib.import_module(self.module).steps(conditions)
        return found
