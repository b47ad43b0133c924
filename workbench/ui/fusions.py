"""The Fusions tab: the census, a row for each group of identical fusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from workbench.bench.cutting import BY_CUTS
from workbench.graph import BACKWARD, Kind
from workbench.summary import human_seconds
from workbench.ui.names import short_name
from workbench.ui.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.bench.cutting import Cut, Cuts
    from workbench.compiler.pipeline import Plan


class Fusions(Panel):
    """Groups of identical fusions, the largest first, and what other cuts come to.

    Content is as `fusions_content` makes it; ``cuts`` as `cuts_content`.

    Parameters
    ----------
    bench : Workbench
    in_background : callable
        Does what takes seconds; given what is being done, and the act.
    on_message : callable
        As for `Panel`: what is not of this tab.
    say : callable
        Shows one line.
    """

    _esm = esm("fusions.js")
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
        self._found: tuple[dict[str, str], Cuts] | None = None

    def show_plan(self, ids: Sequence[str], compiled_s: Mapping[str, float]) -> None:
        """The bench has another plan, or it is known what its fusions took to compile; as for `fusions_content`."""
        self.content = fusions_content(self._bench.plan, ids, compiled_s)
        if self._found is not None and self._found[0] != self._bench.pinned:
            self._found = None  # they are beside choices by hand
        self.cuts = cuts_content(self._found[1] if self._found is not None else None, self._bench.choices)

    def _receive(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "cuts":
            self._in_background("weighing cuts", self._find)
        elif kind == "cut" and self._found is not None and message["index"] in range(len(self._found[1].every)):
            choices = self._found[1].every[message["index"]].choices
            self._in_background("choosing cuts", lambda: self._choose(choices))
        else:
            self._on_message(message)

    def _find(self) -> None:
        pinned = self._bench.pinned
        found = self._bench.cuts()
        if self._bench.pinned != pinned:
            self._say("The choices changed while cuts were weighed: weigh them again")
            return
        self._found = pinned, found
        self.cuts = cuts_content(found, self._bench.choices)
        self._say(f"{found.planned} plans weighed: {len(found)} that nothing beats, beside Thunder's")

    def _choose(self, choices: Mapping[str, str]) -> None:
        self._bench.choose_found(choices)


def cuts_content(cuts: Cuts | None, choices: Mapping[str, str]) -> dict[str, Any]:
    """What the tab shows of cuts: columns, rows with what is in force marked, and whose rates the step rests on."""
    if cuts is None:
        return {"rows": [], "heads": [], "note": ""}
    return {
        "heads": list(cuts.heads),
        "rows": [
            {"cells": list(cells), "chosen": cut.choices.items() <= choices.items() and _only(cut, choices)}
            for cut, cells in zip(cuts.every, cuts.rows(), strict=True)
        ],
        "note": f"Predicted, identical fusions compiled once; steps by {cuts.machine}'s rates.",
    }


def _only(cut: Cut, choices: Mapping[str, str]) -> bool:
    """Whether no other cut is chosen."""
    return not any(id.startswith(BY_CUTS) and id not in cut.choices for id in choices)


def fusions_content(plan: Plan, ids: Sequence[str], compiled_s: Mapping[str, float]) -> dict[str, Any]:
    """What the tab shows.

    Parameters
    ----------
    plan : Plan
    ids : sequence of str
        Per statement of the plan's graph, the node that shows it, or an empty string.
    compiled_s : mapping of str to float
        Measured seconds of compilation by a fusion's name, as far as they are known.
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
                "ops": _counted(inside),
                "members": [{"id": ids[row], "name": statements.name[row]} for row in fusions],
                "compiled": human_seconds(sum(known)) if known else "",
            }
        )
    groups.sort(key=lambda group: (-group["count"] * group["size"], group["members"][0]["name"]))
    head = (
        "Nothing is fused by this executor. Opened with executor='torchcompile' a program is fused on a CPU, "
        "with 'nvfuser' on a GPU."
    )
    if census.count:
        compilations = plan.counts["compilations"]
        head = (
            f"{census.count} fusions, {census.unique} different ones: {census.forward_unique} in the forward, "
            f"{census.backward_unique} in the backward. {compilations} to compile."
        )
    return {"head": head, "groups": groups}


def _counted(names: list[str]) -> str:
    """Names with how often each occurs, in order of first appearance."""
    return ", ".join(name if count == 1 else f"{name} × {count}" for name, count in Counter(names).items())
