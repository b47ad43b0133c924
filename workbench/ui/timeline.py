"""The Timeline tab: when each statement of a measured step ran on the host, and what the device did meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from workbench.summary import human_seconds
from workbench.ui.names import short_name
from workbench.ui.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.runs.events import StatementTimes


class TimelineTab(Panel):
    """Lanes of bars over the time of one step; content as `timeline_content` makes it."""

    _esm = esm("timeline.js")


def timeline_content(times: StatementTimes | None, named: Mapping[str, str]) -> dict[str, Any]:
    """What the tab shows.

    Parameters
    ----------
    times : StatementTimes, optional
        Of the run that is shown.
    named : mapping of str to str
        Node by the name of a value that it makes, or of the fusion that it is; empty where the plan is another one.
    """
    if times is None:
        return {"head": "Nothing was measured yet. Compile & run shows here when each statement runs.", "lanes": []}
    lanes: list[dict[str, Any]] = [
        {"name": "host, forward", "kind": "forward", "bars": []},
        {"name": "host, backward", "kind": "backward", "bars": []},
    ]
    columns = zip(
        times.names, times.sides, times.sources, times.outputs, times.start_s, times.seconds, times.free_s, strict=True
    )
    for name, side, source, outputs, start_s, seconds, free_s in columns:
        id = next((named[known] for known in (name, *outputs) if known in named), "")
        bar = {"name": short_name(name), "tip": source, "id": id, "start_s": start_s, "end_s": start_s + seconds}
        lanes[1 if side else 0]["bars"].append({**bar, "free_s": free_s})
    streams: dict[int, list[dict[str, Any]]] = {}
    for work in times.kernels:
        bar = {"name": work["name"], "tip": "", "id": "", "start_s": work["start_s"], "end_s": work["end_s"]}
        streams.setdefault(work["stream"], []).append({**bar, "free_s": 0.0})
    lanes += [{"name": f"stream {n}", "kind": "device", "bars": bars} for n, bars in sorted(streams.items())]
    facts = [times.verdict]
    if times.kernels:
        gaps = [f"{human_seconds(times.head_gap_s)} before its first work", f"{human_seconds(times.bubbles_s)} between"]
        facts.append(f"the device is idle for {' and '.join(gaps)}")
    facts.append(f"clocks add {times.overhead:+.1%} to a step")
    return {"head": ". ".join(facts), "step_s": times.step_s, "lanes": [lane for lane in lanes if lane["bars"]]}
