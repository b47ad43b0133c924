"""The Timeline tab: host and device times of each statement, measured or simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.analysis.cost.collective_overlap import COMMUNICATION, HOST
from workbench.summary import human_seconds, human_share
from workbench.ui.graph.node_names import short_name
from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.analysis.cost.collective_overlap import Overlap
    from workbench.core.graph import Graph
    from workbench.runs.log.events import StatementTimes


_TYPICAL = 1.25
"""A step is typical if the ratio of its duration to the median, or the inverse of the ratio, is at most this number."""


class TimelineTab(Panel):
    """Lanes of bars over the time of one step. `timeline_content` makes its `content`."""

    _esm = esm("timeline_tab")


def simulated_lanes(graph: Graph, overlap: Overlap, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the lanes of a simulated step.

    Parameters
    ----------
    graph : Graph
    overlap : Overlap
        Simulation of the graph.
    ids : sequence of str
        For each statement of the graph, the id of its node.
    """
    lanes: dict[str, list[dict[str, Any]]] = {}
    for bar in overlap.simulation.bars:
        statement = graph.statements
        origin = int(statement.origin[bar.row])
        place = graph.origins[origin] if origin >= 0 else None
        lanes.setdefault(bar.stream, []).append(
            {
                "name": short_name(statement.name[bar.row]),
                "tip": f"{place.file}:{place.line}  {place.text}" if place is not None and place.file else "",
                "id": ids[bar.row] if bar.row < len(ids) else "",
                "start_s": bar.start_s,
                "end_s": bar.end_s,
                "free_s": 0.0,
                "kind": "device"
                if bar.stream.startswith(COMMUNICATION)
                else "backward"
                if statement.side[bar.row]
                else "forward",
            }
        )
    # The order of lanes does not depend on which stream starts first in a plan.
    order = sorted(lanes, key=lambda stream: (stream != HOST, stream))
    return [{"name": f"{stream}, sim.", "kind": "device", "bars": lanes[stream]} for stream in order]


def collective_rows(graph: Graph, overlap: Overlap, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the collectives of a simulated step as rows of a table, in the order in which they are issued."""
    found, statements = overlap.links, graph.statements
    kernels = iter(overlap.order.distances)
    simulated = overlap.simulation
    rows = []
    for issue, wait, nbytes in zip(found.issue.tolist(), found.wait.tolist(), found.bytes.tolist(), strict=True):
        _, start_s, end_s = simulated.busy.get(issue, ("", 0.0, 0.0))
        origin = int(statements.origin[issue])
        place = graph.origins[origin] if origin >= 0 else None
        rows.append(
            {
                "id": ids[issue] if issue < len(ids) else "",
                "name": short_name(statements.name[issue]),
                "value": next((graph.values.name[value] for value in statements.outputs[issue].tolist()), ""),
                "place": place.scope if place is not None else "",
                "side": "backward" if statements.side[issue] else "forward",
                "bytes": nbytes,
                "seconds": end_s - start_s,
                "kernels": next(kernels) if wait >= 0 else None,
                "blocks_s": simulated.blocked_s.get(wait, 0.0),
            }
        )
    return rows


def timeline_content(
    times: StatementTimes | None,
    named: Mapping[str, str],
    simulated: Sequence[dict[str, Any]] = (),
    overlap: Overlap | None = None,
    *,
    same_choices: bool = True,
    step_s: float | None = None,
    cannot_run: str = "",
) -> dict[str, Any]:
    """Return the tab's data: one measured step, and the medians of all steps as a table.

    Parameters
    ----------
    times : StatementTimes, optional
        Times of the shown run.
    named : mapping of str to str
        Node ids, by the name of a value that the node makes or by the name of a fusion. Empty if the run had a plan
        other than the shown plan.
    simulated : sequence of dict
        Result of `simulated_lanes`. These lanes are shown above the measured lanes.
    overlap : Overlap, optional
        The simulation from which the simulated lanes come.
    same_choices : bool
        Whether the run has the current choices.
    step_s : float, optional
        The run's step time, measured without instrumentation.
    cannot_run : str
        Reason why nothing can be measured here, and what to do.
    """
    simulated_text = _simulated_words(overlap) if overlap is not None else ""
    if times is None:
        nothing = cannot_run or "Nothing was measured yet. Compile & run shows here when each statement runs."
        head = simulated_text or nothing
        whole = {} if overlap is None else {"step_s": overlap.simulation.step_s}
        return {"head": head, "says": "Simulated", "lanes": list(simulated), **whole}
    lanes: list[dict[str, Any]] = [
        {"name": "host, forward", "kind": "forward", "bars": []},
        {"name": "host, backward", "kind": "backward", "bars": []},
    ]
    rows: list[dict[str, Any]] = []
    columns = zip(
        times.names,
        times.sides,
        times.sources,
        times.outputs,
        times.seconds,
        times.free_s,
        *times.one_step_or_medians,
        strict=True,
    )
    for name, side, source, outputs, median_s, median_free_s, start_s, seconds, free_s in columns:
        id = next((named[known] for known in (name, *outputs) if known in named), "")
        bar = {"name": short_name(name), "tip": source, "id": id, "start_s": start_s, "end_s": start_s + seconds}
        if times.one_start_s:
            lanes[1 if side else 0]["bars"].append({**bar, "free_s": free_s})
        rows.append({**bar, "side": "backward" if side else "forward", "seconds": median_s, "free_s": median_free_s})
    streams: dict[int, list[dict[str, Any]]] = {}
    for work in times.kernels:
        bar = {"name": work["name"], "tip": "", "id": "", "start_s": work["start_s"], "end_s": work["end_s"]}
        streams.setdefault(work["stream"], []).append({**bar, "free_s": 0.0})
    lanes += [{"name": f"stream {n}, profiled", "kind": "device", "bars": bars} for n, bars in sorted(streams.items())]
    facts = [simulated_text] if simulated_text else []
    if step_s is not None:
        facts.append(f"a step takes {human_seconds(step_s)} (median)")
    if times.one_start_s:
        facts.append(_one_step_words(times.one_step_s, times.step_s if step_s is None else step_s))
    else:
        facts.append("this run has no instrumented step to show, only medians in the table")
    facts += [times.verdict] if same_choices else ["measured under other choices", times.verdict]
    if times.kernels:
        gaps = [f"{human_seconds(times.head_gap_s)} before its first work", f"{human_seconds(times.bubbles_s)} between"]
        facts.append(f"the device is idle for {' and '.join(gaps)}")
    facts.append(clocks_words(times))
    return {
        "head": ". ".join(fact[:1].upper() + fact[1:] for fact in facts),
        "says": ("Simulated above, measured below" if simulated else "Measured")
        + ("" if same_choices else " under other choices"),
        "medians": rows,
        "step_s": max(times.one_step_s, overlap.simulation.step_s if overlap is not None else 0.0),
        "lanes": [*simulated, *(lane for lane in lanes if lane["bars"])],
    }


def first_content(ranks: int, cannot_run: str) -> dict[str, Any]:
    """Return the tab's data at the start. If ranks share the program, the headline says that a step is simulated."""
    simulating = {"head": f"A step of {ranks} ranks is being simulated…"} if ranks > 1 else {}
    return timeline_content(None, {}, cannot_run=cannot_run) | simulating


def _one_step_words(one_step_s: float, median_s: float) -> str:
    """Describe the drawn step. If its duration is far from the median, say that it is not typical, and by how much."""
    words = f"the lanes show one instrumented step, {human_seconds(one_step_s)}"
    ratio = one_step_s / median_s if median_s > 0 else 1.0
    if 1 / _TYPICAL <= ratio <= _TYPICAL:
        return words
    return f"{words}: {ratio:,.{1 if ratio >= 1 else 2}f} times the median, so not typical"


def clocks_words(times: StatementTimes) -> str:
    """Describe how much time the clocks between statements add to a step, or say that this time is within noise."""
    interval = f"{human_share(times.overhead_low)} to {human_share(times.overhead_high)}"
    if times.overhead_low <= 0 <= times.overhead_high:
        return f"the time that instrumentation adds is within noise ({interval})"
    return f"instrumentation adds {human_share(times.overhead)} to a step ({interval})"


def _simulated_words(overlap: Overlap) -> str:
    found = overlap.simulation
    return (
        f"A step simulated on {overlap.ranks} × {overlap.machine.name} takes "
        f"{human_seconds(found.step_s)}, {human_seconds(found.exposed_communication_s)} of it waiting for "
        f"communication; no order of the collectives takes less than {human_seconds(overlap.lower_bound_s)}"
    )
