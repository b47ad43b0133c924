"""`CheckPart` and `CheckStep`: the units of a check, each done once, even if processes are killed in between."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

type Figures = dict[str, Any]
"""Figures as plain JSON data, by name, with units in the names. ``wrong``, if present, says what is not as required."""

type Known = Mapping[str, Figures]
"""Figures of the finished steps of a part, by the step's id."""

WRONG = "wrong"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conditions:
    """The conditions of a check.

    Attributes
    ----------
    device, executor : str
        As in `workbench.open`.
    rehearse : bool
        Whether this is a rehearsal with small sizes and without a GPU. GPU results are then planned if possible, and
        the rest runs on the CPU.
    folder : Path
        Folder of the check, with the files of its parts.
    """

    device: str
    executor: str
    rehearse: bool
    folder: Path

    def size[T](self, real: T, rehearsed: T) -> T:
        """Return one of two sizes: the one for a GPU, or the one for a rehearsal."""
        return rehearsed if self.rehearse else real


@dataclasses.dataclass(frozen=True)
class CheckStep:
    """A piece of a part, which is executed once.

    Attributes
    ----------
    id : str
        Unique in the part, and the same in each process, so that no step is executed twice.
    act : callable
        Receives the figures of earlier steps, and returns the figures of this step.
    first : bool
        Whether this is one of the most informative steps of the part; these run before the other steps of all parts.
    """

    id: str
    act: Callable[[Known], Figures]
    first: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckTurn:
    """Steps of a part for one process.

    Attributes
    ----------
    first : bool
        Whether to run only the steps with `CheckStep.first`.
    until_s : float
        Time after which no step begins, by `time.monotonic`, which all processes of a machine share.
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
        Time limit of a turn of the part. The remaining time is shared among parts in proportion to their limits.
    step_limit_s : float
        Time limit of a step: a step that takes longer has failed, and the next one begins.
    first_limit_s : float
        Time after which no further first step begins.
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

    def steps(self, conditions: Conditions) -> Iterable[CheckStep]:
        """Return the steps of the part, in order."""
        found: Iterable[CheckStep] = importlib.import_module(self.module).steps(conditions)
        return found
