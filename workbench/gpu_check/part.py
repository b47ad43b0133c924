"""`CheckPart` and `CheckStep`: the units of a check, each done once, even if processes are killed in between."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

type Figures = dict[str, Any]
"""Plain JSON data by name, units in the names; ``wrong``, where it is there, says what is not as it has to be."""

type Known = Mapping[str, Figures]
"""The figures of the steps of a part that are done."""

WRONG = "wrong"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conditions:
    """Under which a check is carried out.

    Attributes
    ----------
    device, executor : str
        As `workbench.open` takes them.
    rehearse : bool
        Small, and without a GPU: GPU results are planned where possible, and the rest runs on the CPU.
    folder : Path
        Folder of the check, with the files of its parts.
    """

    device: str
    executor: str
    rehearse: bool
    folder: Path

    def size[T](self, real: T, rehearsed: T) -> T:
        """One of two sizes: the one for a GPU, or the one for a rehearsal."""
        return rehearsed if self.rehearse else real


@dataclasses.dataclass(frozen=True)
class CheckStep:
    """A piece of a part.

    Attributes
    ----------
    id : str
        Unique in its part, and the same in each process: a step that is done is not done again.
    act : callable
        Takes the figures of the steps before it, and gives its own.
    first : bool
        Whether it is of those that tell the most of its part: they are carried out before the rest of any part.
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
        Only the steps that come before the rest of any part.
    until_s : float
        No step is begun from then on, by `time.monotonic`, which all processes of a machine share.
    """

    first: bool
    until_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckPart:
    """A group of checks, run by processes of its own.

    Attributes
    ----------
    name, title, does : str
        For the command line, for a heading, and in one sentence.
    limit_s : float
        Time limit of a turn of the part, and its weight for a share of the remaining time.
    step_limit_s : float
        A step that takes longer has failed, and the next one begins.
    first_limit_s : float
        No further first step begins after this time.
    module : str
        Has ``steps(conditions)``; imported only where the part is carried out.
    """

    name: str
    title: str
    does: str
    limit_s: float
    module: str
    step_limit_s: float = 600.0
    first_limit_s: float = 90.0

    def steps(self, conditions: Conditions) -> Iterable[CheckStep]:
        """Its steps, in order."""
        found: Iterable[CheckStep] = importlib.import_module(self.module).steps(conditions)
        return found
