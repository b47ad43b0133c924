"""Write trace files, for example of a simulated step. Perfetto and ``chrome://tracing`` can show them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from workbench.analysis.cost.collective_overlap import HOST, Overlap
from workbench.core.graph import Graph
from workbench.errors import RunError
from workbench.util import paths

_US = 1e6
_BEGIN = b'{"traceEvents"'
"""First bytes of every trace file that this module writes."""


def span(process: str, thread: str, name: str, start_s: float, seconds: float, **more: Any) -> dict[str, Any]:
    """Return an event with a duration. The viewer shows `more` as the event's details."""
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": name,
        "ts": start_s * _US,
        "dur": seconds * _US,
        "args": more,
    }


def counter(process: str, name: str, at_s: float, nbytes: int) -> dict[str, Any]:
    """Return an event that sets a counter to `nbytes` at the time `at_s`."""
    return {"ph": "C", "pid": process, "name": name, "ts": at_s * _US, "args": {"bytes": nbytes}}


def trace_document(events: Iterable[dict[str, Any]], **about: Any) -> dict[str, Any]:
    """Return the content of a trace file with `events`, and with `about` as metadata."""
    return {"traceEvents": list(events), "displayTimeUnit": "ms", "otherData": about}


def simulated_step(graph: Graph, overlap: Overlap) -> dict[str, Any]:
    """Return the content of a trace file that shows a simulated step: the work of each stream, and the bytes in flight.

    Bytes in flight are the bytes of results of collectives that are issued and not yet waited for.

    Parameters
    ----------
    graph : Graph
        The execution graph that was simulated.
    overlap : Overlap
        The simulation of this graph. The name of every track says that it is simulated.
    """
    statements, process = graph.statements, f"rank 0 of {overlap.ranks} on {overlap.machine.name}, simulated"
    events, launched = [], []
    for bar in overlap.simulation.bars:
        origin = int(statements.origin[bar.row])
        place = graph.origins[origin] if origin >= 0 else None
        events.append(
            span(
                process,
                f"{bar.stream}, simulated",
                statements.name[bar.row],
                bar.start_s,
                bar.end_s - bar.start_s,
                side="backward" if statements.side[bar.row] else "forward",
                makes=", ".join(graph.values.name[value] for value in statements.outputs[bar.row].tolist()),
                source=f"{place.file}:{place.line}" if place is not None and place.file else "",
            )
        )
        if bar.stream == HOST:
            launched.append(bar.start_s)
    for at_s, nbytes in zip(launched, overlap.simulation.in_flight_bytes.tolist(), strict=True):
        events.append(counter(process, "bytes in flight, simulated", at_s, nbytes))
    return trace_document(events, **overlap.to_json())


def write_trace(content: dict[str, Any], path: str | Path) -> Path:
    """Write a trace file.

    Raises
    ------
    RunError
        If the file cannot be written, or if it exists and is neither empty nor a trace file of this module.
    """
    try:
        return paths.write(path, json.dumps(content).encode(), may_replace=_why_not)
    except OSError as error:
        raise RunError(f"the trace {path} cannot be written: {paths.reason_of(error)}") from error


def _why_not(target: Path) -> str:
    with target.open("rb") as file:
        begin = file.read(len(_BEGIN))
    return "" if begin in (b"", _BEGIN) else "the file exists and is not a trace: give another name"
