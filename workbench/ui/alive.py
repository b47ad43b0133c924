"""What is alive at the predicted peak, beside the memory plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.analysis.memory import alive_at
from workbench.summary import human_bytes
from workbench.ui.names import short_name
from workbench.ui.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.compiler.pipeline import Plan

_MOST = 200


class Alive(Panel):
    """A list of values, the largest first; content as `alive_content` makes it."""

    _esm = esm("alive.js")


def alive_content(plan: Plan, ids: Sequence[str]) -> dict[str, Any]:
    """What the list shows.

    Parameters
    ----------
    plan : Plan
    ids : sequence of str
        Per statement of the plan's graph, the node that shows it, or an empty string.
    """
    peak = plan.timeline.peak_statement
    if peak < 0:
        return {"head": "No statement takes memory.", "rows": []}
    found = alive_at(plan.graph, peak)
    statements = plan.graph.statements
    rows = [
        {
            "value": one.name,
            "statement": short_name(statements.name[one.producer]) if one.producer >= 0 else "argument",
            "source": one.source,
            "bytes": human_bytes(one.bytes),
            "id": ids[one.producer] if one.producer >= 0 else "",
        }
        for one in found[:_MOST]
    ]
    transient = int(statements.transient_bytes[peak])
    if transient:
        passing = {"value": "in passing", "source": "", "bytes": human_bytes(transient), "id": ids[peak]}
        rows.insert(0, {**passing, "statement": short_name(statements.name[peak])})
    more = f"; the largest {_MOST} are listed" if len(found) > _MOST else ""
    return {
        "head": f"{len(found)} storages, {human_bytes(plan.peak_bytes)} in all, predicted{more}",
        "peak": {"id": ids[peak], "name": short_name(statements.name[peak])},
        "rows": rows,
    }
