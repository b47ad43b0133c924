"""The "Single choices" tab: further choices with their effect on the plan's figures, computed in the background."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import traitlets

from workbench.bench.fit.choice_ranking import Gain, options_of
from workbench.errors import WorkbenchError
from workbench.ui.graph.node_names import short_label
from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.bench.fit.choice_ranking import Worth
    from workbench.compiler.api import Plan
    from workbench.core.lever import Site

_LOGGER = logging.getLogger(__name__)

TITLE = "Single choices"
"""Title of the tab."""
QUIET_S = 0.3
"""Time after the last choice before a ranking starts."""
INTERVAL_S = 0.4
"""Interval between updates of the rows on the page."""
MOST_PLANS = 24
"""Number of plans that a ranking makes unasked: for settings first, then for choices that free most bytes.

Further plans are made for the rows to which the user scrolls.
"""


class WorthTab(Panel):
    """A table of choices. The keys of `content` are ``rows left machine``, with rows from `row_of`.

    Parameters
    ----------
    bench : Workbench
    groups : callable
        Returns groups of sites that are set together, in the order of the program.
    on_message : callable
        As in `Panel`.
    learn : callable
        Called with the arguments of `Preview.learn` for each gain that was computed with a plan.
    """

    _esm = esm("ranking_tab")
    selected = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        bench: Workbench,
        groups: Callable[[], list[list[Site]]],
        on_message: Callable[[dict[str, Any]], None],
        learn: Callable[[Plan, Mapping[str, str], Gain, str], None],
    ) -> None:
        super().__init__(self._receive, content={"rows": [], "left": 0, "machine": ""})
        self._bench, self._groups, self._learn, self._on_message = bench, groups, learn, on_message
        self._lock, self._working = threading.Lock(), threading.Lock()
        self._ranking: RankingTask | None = None
        self._turn = 0
        self._open = self._stale = False

    def look(self, is_open: bool) -> None:
        """Record whether the tab is open. No ranking runs while the tab is closed."""
        with self._lock:
            self._open = is_open
            if not is_open:
                # An unfinished ranking starts again when the tab is opened.
                self._stale, self._turn = self._stale or self.content["left"] > 0, self._turn + 1
        self._begin()

    def show_plan(self) -> None:
        """Rank again, because the bench has a new plan."""
        with self._lock:
            self._stale, self._turn = True, self._turn + 1
        self._begin()

    def _receive(self, message: dict[str, Any]) -> None:
        if message.get("type") != "compute":
            self._on_message(message)
            return
        ranking, turn = self._ranking, self._turn
        if ranking is not None and ranking.plan is self._bench.plan:
            ranking.ask([(row["id"], row["option"]) for row in message["rows"]])
            self.in_thread("worth", lambda: self._go_on(turn, ranking))

    def _begin(self) -> None:
        with self._lock:
            if not (self._open and self._stale):
                return
            self._stale = False
            turn = self._turn
        self.in_thread("worth", lambda: self._work(turn))

    def _work(self, turn: int) -> None:
        time.sleep(QUIET_S)
        if turn != self._turn:
            return
        worth = self._bench.worth()
        self._ranking = ranking = RankingTask(
            worth, self._groups(), lambda gain: self._learn(worth.plan, gain.choices, gain, TITLE)
        )
        self._go_on(turn, ranking)

    def _go_on(self, turn: int, ranking: RankingTask) -> None:
        """Compute the rows that a ranking has still to compute, and show them."""
        from workbench.util.planning_lock import Superseded

        # One thread at a time works on a ranking; the next thread computes what was asked for meanwhile.
        with self._working:
            shown_at = 0.0
            try:
                while turn == self._turn and ranking.step():
                    if time.monotonic() - shown_at > INTERVAL_S:
                        self._set_content(turn, ranking.content())
                        shown_at = time.monotonic()
                self._set_content(turn, ranking.content())
            except Superseded:
                # The user made a choice. A ranking for the new plan will follow.
                return

    def _set_content(self, turn: int, content: dict[str, Any]) -> None:
        with self._lock:
            if turn == self._turn:
                self.content = content


class RankingTask:
    """The rows of the table for one plan. Each call of `step` works on one row: first without plans, then with plans.

    `ask` may be called by another thread than `step`.

    Parameters
    ----------
    worth : Worth
    groups : sequence of list of Site
        Groups of sites that are set together.
    on_gain : callable, optional
        Called with each gain that was computed by a plan.

    Attributes
    ----------
    plan : Plan
    """

    def __init__(
        self, worth: Worth, groups: Sequence[list[Site]], on_gain: Callable[[Gain], None] = lambda gain: None
    ) -> None:
        self.plan = worth.plan
        self._worth, self._found = worth, on_gain
        self._rows = [(group, choices) for group in groups for choices in options_of(group)]
        self._gains: dict[int, Gain] = {}
        self._refused: dict[int, str] = {}
        self._quick = list(range(len(self._rows)))[::-1]
        self._by_plan: list[int] | None = None
        self._asked: deque[int] = deque()
        """Rows that the user scrolled to, and that `step` has not yet put into `_by_plan`."""

    def step(self) -> bool:
        """Compute the gain of one more row; return False if there is no row left to compute."""
        if self._quick:
            number = self._quick.pop()
            gain = self._worth.quick(self._rows[number][1])
            if gain is not None:
                self._gains[number] = gain
            return True
        if self._by_plan is None:
            self._by_plan = sorted(self._is_inexact(), key=self._promise)[:MOST_PLANS][::-1]
        while self._asked:
            # The last row is computed first.
            self._by_plan = [n for n in self._by_plan if n != self._asked[0]] + self._still_open([self._asked[0]])
            self._asked.popleft()
        if not self._by_plan:
            return False
        number = self._by_plan[-1]
        try:
            self._gains[number] = gain = self._worth.exact(self._rows[number][1])
            self._found(gain)
        except WorkbenchError as error:
            self._refused[number] = str(error)
        self._by_plan.pop()
        return True

    def ask(self, rows: Sequence[tuple[str, str]]) -> None:
        """Compute these rows next: each is named by the id of its first site, and by its option."""
        numbers = {(group[0].id, choices[group[0].id]): n for n, (group, choices) in enumerate(self._rows)}
        self._asked.extend(numbers[row] for row in reversed(rows) if row in numbers)

    def _still_open(self, rows: Sequence[int]) -> list[int]:
        inexact = set(self._is_inexact())
        return [n for n in rows if n in inexact and n not in self._refused]

    def content(self) -> dict[str, Any]:
        """Return the page's data, with the number of rows that are not computed yet."""
        rows = [
            row_of(group, choices, self._gains.get(number), self._refused.get(number, ""))
            for number, (group, choices) in enumerate(self._rows)
        ]
        # Before plans begin, a row may need both an estimate and a plan: count it once.
        begun = self._by_plan is not None
        waiting = {*(self._by_plan or ()), *self._still_open(list(self._asked))}
        left = len(waiting) if begun else min(len(self._is_inexact()), len(self._quick) + MOST_PLANS)
        return {"rows": rows, "left": left, "machine": self._worth.machine.name}

    def _is_inexact(self) -> list[int]:
        return [n for n in range(len(self._rows)) if n not in self._gains or self._gains[n].estimated]

    def _promise(self, number: int) -> tuple[int, int]:
        """Return the sort key of a row that needs a plan: settings come first, then the rows that free most bytes."""
        group, gain = self._rows[number][0], self._gains.get(number)
        if group[0].is_setting:
            return (0, 0)
        freed = gain.peak_bytes if gain is not None else -sum(site.bytes for site in group)
        return (1, freed)


def row_of(group: Sequence[Site], choices: dict[str, str], gain: Gain | None, refused: str = "") -> dict[str, Any]:
    """Return the table's row for a choice."""
    site = group[0]
    row: dict[str, Any] = {
        "choices": choices,
        "id": site.id,
        "label": short_label(site),
        "about": site.label,
        "lever": site.lever,
        "source": site.source,
        "count": len(group),
        "option": choices[site.id],
        "state": "refused" if refused else "open",
        "why": refused,
    }
    if gain is not None:
        row |= {
            "peak_bytes": gain.peak_bytes,
            "saved_bytes": gain.saved_bytes,
            "step_s": gain.step_s,
            "state": "estimated" if gain.estimated else "exact",
            "why": gain.why,
        }
    note = site.notes.get(row["option"], "")
    if note and not refused:
        # Such as that a CPU only imitates offloading: the row must not look like a saving of that machine.
        row["why"] = "; ".join(filter(None, (row["why"], note)))
    return row
