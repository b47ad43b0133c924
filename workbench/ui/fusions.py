"""The Fusions tab: the census, a row for each group of identical fusions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from workbench.graph import BACKWARD, Kind
from workbench.summary import human_seconds
from workbench.ui.names import short_name
from workbench.ui.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.compiler.pipeline import Plan


class Fusions(Panel):
    """Groups of identical fusions, the largest first; content as `fusions_content` makes it."""

    _esm = esm("fusions.js")
    selected = traitlets.Unicode("").tag(sync=True)


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
