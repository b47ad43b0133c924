"""Record how long each stage of planning or compilation takes, and stop planning if a newer choice is waiting."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from workbench.util.planning_lock import PLANNING, Superseded


@dataclasses.dataclass(frozen=True)
class StageTime:
    """Wall time of one stage of planning or compilation."""

    name: str
    seconds: float


class StageLog:
    """An `Observer` that records the time of each stage, and can stop planning at the end of a stage.

    Parameters
    ----------
    newer : callable, optional
        Returns whether a newer choice is waiting to be planned.
    """

    def __init__(self, newer: Callable[[], bool] | None = None) -> None:
        self.times: list[StageTime] = []
        self._newer = newer

    def stage(self, name: str, seconds: float) -> None:
        """Record the time of a stage that has ended. Interrupt planning in the background if a foreground thread waits.

        Raises
        ------
        Superseded
            If a newer choice is waiting to be planned. The time is then not recorded.
        """
        PLANNING.give_way()
        if self._newer is not None and self._newer():
            raise Superseded
        self.times.append(StageTime(name, seconds))

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        """Do nothing, because planning compiles no fusion."""

    def fusion_end(
        self, name: str, index: int, count: int, seconds: float, parts: Mapping[str, float], cached: bool
    ) -> None:
        """Do nothing, because planning compiles no fusion."""
