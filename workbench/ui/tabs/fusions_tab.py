"""The Fusions tab: the fusions of the plan, with a row for each group of identical fusions."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from workbench.bench.fit.cut_search import BY_CUTS, Cuts
from workbench.core.graph import BACKWARD, Kind
from workbench.summary import human_seconds
from workbench.ui.graph.node_names import short_name
from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.bench.fit.cut_search import Cut, Cuts
    from workbench.bench.fit.cut_search_task import CutSearchTask
    from workbench.compiler.api import Plan


class Fusions(Panel):
    """Groups of identical fusions, the largest group first, and the figures of different cuts.

    A cut is the set of values that one fusion passes to another.

    `fusions_content` makes `content`, and `cuts_content` makes `cuts`.

    Parameters
    ----------
    bench : Workbench
    in_background : callable
        Runs a slow action in the background; called with a description and the action.
    on_message : callable
        As in `Panel`; receives messages that are not for this tab.
    say : callable
        Shows one line of text.
    """

    _esm = esm("fusions_tab")
    selected = traitlets.Unicode("").tag(sync=True)
    cuts = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        bench: Workbench,
        in_background: Callable[[str, Callable[[], None]], None],
        on_message: Callable[[dict[str, Any]], None],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(self._receive)
        self._bench, self._in_background, self._on_message, self._say = bench, in_background, on_message, say
        self._weighing: CutSearchTask | None = None
        self._former: CutSearchTask | None = None
        """The last task that made a table. Its table is shown if a newer task fails before it has a table."""
        self._told: CutSearchTask | None = None
        self._lock = threading.RLock()

    def show_plan(self, ids: Sequence[str], compiled_s: Mapping[str, float]) -> None:
        """Update the tab after a new plan or new compile times; see `fusions_content` for the arguments."""
        self.content = fusions_content(self._bench.plan, ids, compiled_s)
        self._show_cuts()

    def close(self) -> None:
        """Cancel the current search for cuts."""
        if self._weighing is not None:
            self._weighing.cancel()

    def _receive(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "cuts":
            self._weigh()
        elif kind == "stop":
            self.close()
        elif kind == "cut":
            self._take(message["index"])
        else:
            self._on_message(message)

    def _weigh(self) -> None:
        """Make the table of cuts in the background; stop an earlier task."""
        with self._lock:
            self.close()
            if self._weighing is not None and self._weighing.table is not None:
                self._former = self._weighing
            self._weighing = weighing = self._bench.weigh_cuts()
        weighing.observe(lambda: self._go_on(weighing))
        self._go_on(weighing)

    def _go_on(self, weighing: CutSearchTask) -> None:
        """Show the progress of a task, and report its end."""
        with self._lock:
            if weighing is not self._weighing:
                return
            self._show_cuts()
            done = weighing is self._weighing and weighing.state == "done" and self._told is not weighing
            self._told = weighing if done else self._told
        if done and (table := weighing.table) is not None:
            head = f"{table.planned} plans weighed. The table shows the plan without choices"
            self._say(f"{head}, and the {len(table)} plans that no other plan beats")

    def _show_cuts(self) -> None:
        with self._lock:
            weighing = self._weighing
            bench = self._bench
            if weighing is not None and (weighing.pinned, weighing.by_hand) != (bench.pinned, bench.by_hand):
                # The table is for the former choices made by hand.
                weighing.cancel()
                self._weighing = self._former = None
                if weighing.state == "working":
                    self._say("The choices changed while cuts were weighed: weigh them again")
            self.cuts = cuts_content(self._weighing, self._bench.choices, self._table)

    @property
    def _table(self) -> Cuts | None:
        """The table of the latest task. If this task failed before it had a table, the table of `_former`."""
        weighing, former = self._weighing, self._former
        if weighing is not None and weighing.table is None and weighing.state == "failed" and former is not None:
            return former.table
        return weighing.table if weighing is not None else None

    def _take(self, index: int) -> None:
        with self._lock:
            table = self._table
        if table is not None and index in range(len(table.every)):
            choices = table.every[index].choices
            self._in_background("choosing cuts", lambda: self._choose(choices))

    def _choose(self, choices: Mapping[str, str]) -> None:
        self._bench.choose_found(choices, "cuts")


def cuts_content(
    weighing: CutSearchTask | None, choices: Mapping[str, str], table: Cuts | None = None
) -> dict[str, Any]:
    """Return the tab's data for cuts: progress, columns and rows. The row of the current choices is marked."""
    if weighing is None:
        return {"state": "", "done": 0, "most": 0, "said": "", "heads": [], "rows": []}
    state, table = weighing.state, table or weighing.table
    by = f"Predicted; identical fusions are compiled once. Step times are predicted for {weighing.machine.name}."
    said = {
        "working": f"best so far: {table.best}" if table is not None else "",
        "cancelled": f"Cancelled after {weighing.done} plans. {by}" if table is not None else "Cancelled.",
        "failed": f"{weighing.error}. {by}" if table is not None else str(weighing.error),
        "done": by,
    }
    shown = table if state != "working" else None
    return {
        "state": state,
        "done": weighing.done,
        "most": weighing.most,
        "said": said[state],
        "heads": list(Cuts.heads),
        "rows": [
            {"cells": list(cells), "chosen": cut.choices.items() <= choices.items() and _is_only_choice(cut, choices)}
            for cut, cells in zip(shown.every, shown.rows(), strict=True)
        ]
        if shown is not None
        else [],
    }


def _is_only_choice(cut: Cut, choices: Mapping[str, str]) -> bool:
    """Return whether all choices of cuts in `choices` belong to `cut`."""
    return not any(id.startswith(BY_CUTS) and id not in cut.choices for id in choices)


def fusions_content(plan: Plan, ids: Sequence[str], compiled_s: Mapping[str, float]) -> dict[str, Any]:
    """Return the tab's data: a headline, and the groups of identical fusions.

    Parameters
    ----------
    plan : Plan
    ids : sequence of str
        For each statement of the plan's graph, the id of its own node, even if the statement is in a folded layer.
    compiled_s : mapping of str to float
        Measured compile times in seconds, by the fusion's name, as far as they are known.
    """
    statements, census = plan.graph.statements, plan.census
    rows = np.flatnonzero(statements.kind == Kind.FUSION).tolist()
    members: dict[int, list[str]] = {}
    for row in np.flatnonzero(statements.parent >= 0).tolist():
        members.setdefault(int(statements.parent[row]), []).append(short_name(statements.name[row]))
    groups: list[dict[str, Any]] = []
    for group in census.groups:
        fusions = [rows[position] for position in group]
        sides = Counter("backward" if statements.side[row] == BACKWARD else "forward" for row in fusions)
        known = [compiled_s[statements.name[row]] for row in fusions if statements.name[row] in compiled_s]
        inside = members.get(fusions[0], [])
        groups.append(
            {
                "count": len(fusions),
                "size": len(inside),
                "sides": ", ".join(f"{count} {side}" for side, count in sides.items()),
                "ops": _count_names(inside),
                "members": [{"id": ids[row], "name": statements.name[row]} for row in fusions],
                "compiled": human_seconds(sum(known)) if known else "",
            }
        )
    groups.sort(key=lambda group: (-group["count"] * group["size"], group["members"][0]["name"]))
    head = (
        "This executor fuses nothing. To see fusions, open the program with executor='torchcompile' on a CPU, "
        "or with 'nvfuser' on a GPU."
    )
    if census.count:
        compilations = plan.counts["compilations"]
        why = ": equal fusions are compiled separately" if compilations > census.unique else ""
        head = (
            f"{census.unique} unique fusions of {census.count}: {census.forward_unique} in the forward, "
            f"{census.backward_unique} in the backward. {compilations} compilation{'s' * (compilations != 1)}{why}."
        )
    return {"head": head, "groups": groups}


def _count_names(names: list[str]) -> str:
    """Return a text with each name and the number of its occurrences, in the order of first occurrence."""
    return ", ".join(name if count == 1 else f"{name} × {count}" for name, count in Counter(names).items())
