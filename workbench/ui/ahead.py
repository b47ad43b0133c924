"""What is likely to be clicked next, estimated while nobody asks for anything and the kernel does nothing else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from workbench.runs.record import FINAL_STATES

if TYPE_CHECKING:
    from workbench.bench import Workbench

_LOGGER = logging.getLogger(__name__)

QUIET_S = 1.0
"""The kernel did nothing for as long before anything is estimated, and after each time that it was found at work."""
MOST_S = 3.0
"""CPU seconds on top of one plan: what is left of more would have Python look through all objects, which stops all."""
MOST_IN_ALL_S = 60.0
"""CPU seconds of one app."""
_IDLE_S, _IDLE_SHARE = 0.002, 0.03
"""So many CPU seconds, and such a share of the time, the other threads of a kernel take that does nothing."""


class Ahead:
    """Estimates on a thread of its own, one at a time, by plans of few layers.

    It ends within a stage of such a plan once anything else takes CPU time in the process: a cell, a choice, what is
    pointed at, a plan. What it finds are figures; the plans that it makes are gone with the next few.

    Parameters
    ----------
    bench : Workbench
    likely : callable
        Gives choices on top of the plan in force, those that are the likeliest first.
    known : callable
        Whether it is known already what choices come to.
    asked : callable
        Whether anything is asked for that is not done.
    """

    def __init__(
        self,
        bench: Workbench,
        likely: Callable[[], Iterable[Mapping[str, str]]],
        known: Callable[[Mapping[str, str]], bool],
        asked: Callable[[], bool],
    ) -> None:
        self._bench, self._likely, self._known, self._asked = bench, likely, known, asked
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._again = False
        self._closed = threading.Event()
        self._others_s = self._since_s = 0.0
        self._left_s = MOST_IN_ALL_S

    def begin(self) -> None:
        """Estimate on top of the plan in force, once nothing else was done for a while."""
        with self._lock:
            self._again = True
            if self._worker is None and not self._closed.is_set():
                self._worker = threading.Thread(target=self._work, name="workbench-ahead", daemon=True)
                self._worker.start()

    def close(self) -> None:
        """Estimate no more."""
        self._closed.set()

    @property
    def working(self) -> bool:
        """Whether there is more to estimate."""
        return self._worker is not None

    def _work(self) -> None:
        while self._goes_on():
            begun_s = time.thread_time()
            try:
                self._estimate(min(MOST_S, self._left_s))
            except Exception:
                _LOGGER.exception("what is likely to be chosen next could not be estimated")
            self._left_s -= time.thread_time() - begun_s

    def _goes_on(self) -> bool:
        with self._lock:
            again, self._again = self._again, False
            if not again or self._closed.is_set() or self._left_s <= 0:
                self._worker = None
            return self._worker is not None

    def _estimate(self, most_s: float) -> None:
        """Estimate what is likely on top of the plan in force, for so many CPU seconds, until there is another plan."""
        bench, begun_s = self._bench, time.thread_time()
        if not bench.plan.census.count or not self._rested() or not bench.few.worth:
            return
        plan = bench.plan
        for choices in self._likely():
            while not (self._known(choices) or self._estimated(choices)):
                if not self._rested():
                    return
            if bench.plan is not plan or time.thread_time() - begun_s > most_s:
                return

    def _estimated(self, choices: Mapping[str, str]) -> bool:
        """Estimate what choices come to; whether nothing came in between."""
        from workbench.compiler.hooks import Superseded

        bench = self._bench
        plan, in_force = bench.plan, bench.choices
        self._look()
        try:
            bench.few.estimate(plan, in_force, choices, self._disturbed, waited_for=False)
        except Superseded:
            return False
        return True

    def _disturbed(self) -> bool:
        return self._closed.is_set() or self._bench.few.awaited or self._asked() or self._others_work()

    def _others_work(self) -> bool:
        """Whether other threads took more CPU time since `_look` than those of a kernel that does nothing."""
        took_s = time.process_time() - time.thread_time() - self._others_s
        return took_s > _IDLE_S + _IDLE_SHARE * (time.monotonic() - self._since_s)

    def _look(self) -> None:
        self._others_s, self._since_s = time.process_time() - time.thread_time(), time.monotonic()

    def _rested(self) -> bool:
        """Wait until nothing was done for a while; False once there is nothing to wait for."""
        while True:
            self._look()
            if self._closed.wait(QUIET_S):
                return False
            runs = any(run.state not in FINAL_STATES for run in self._bench.runs)
            if not (runs or self._disturbed()):
                return True
