"""The tabs with lists: sites, settings of levers, and the trace with source lines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import traitlets

from workbench.core.graph import Graph
from workbench.core.lever import Site
from workbench.ui.widgets.panel import Panel, esm

_ASSIGNED = re.compile(r"^\s*[\[(]?([A-Za-z_]\w*)[^=]*=(?!=)")


@dataclasses.dataclass(frozen=True)
class Variant:
    """A variant that a run can time besides its own plan. Its `choices` are None for unmodified `thunder.jit`."""

    label: str
    choices: Mapping[str, str] | None


VARIANTS = {"stock": Variant("this executor without choices", {}), "thunder": Variant("unmodified thunder.jit", None)}
"""Variants by their names in the command line's ``--against``."""


@dataclasses.dataclass(frozen=True)
class RunsAsked:
    """Additional measurements that the user has requested for the next runs.

    Attributes
    ----------
    against : tuple of str
        Names of the variants in `VARIANTS` that a run also times.
    snapshot : bool
        Whether to record a step's allocations for memory_viz.
    """

    against: tuple[str, ...] = ()
    snapshot: bool = False


class SitesTable(Panel):
    """A searchable table of sites. In `content`, ``rows`` are from `site_rows`."""

    _esm = esm("sites")
    selected = traitlets.Unicode("").tag(sync=True)


class Settings(Panel):
    """Menus for the settings of levers, and boxes for additional measurements of runs.

    In `content`, ``rows`` are from `setting_rows`, and ``runs`` is from `runs_content`.
    """

    _esm = esm("settings")


class TraceText(Panel):
    """The trace as text. In `content`, ``lines`` are from `trace_lines`."""

    _esm = esm("trace")
    selected = traitlets.Unicode("").tag(sync=True)


def _options(site: Site) -> list[dict[str, str]]:
    return [{"name": o, "reason": "" if o == site.choice else site.illegal.get(o, "")} for o in site.options]


def site_rows(sites: Sequence[Site]) -> list[dict[str, Any]]:
    """Return a row for each site that is a place in the program, and not a setting of a lever."""
    return [
        {
            "id": site.id,
            "lever": site.lever,
            "label": site.label,
            "source": site.source,
            "bytes": site.bytes,
            "choice": site.choice,
            "outcome": site.outcome,
            "options": _options(site),
        }
        for site in sites
        if not site.is_setting
    ]


def setting_rows(sites: Sequence[Site]) -> list[dict[str, Any]]:
    """Return a row for each setting of a lever."""
    return [
        {
            "id": site.id,
            "label": site.label,
            "choice": site.choice,
            "default": site.default,
            "range": site.range,
            "options": _options(site),
        }
        for site in sites
        if site.is_setting
    ]


def runs_content(requested: RunsAsked, ranks: int, cannot_run: str = "") -> dict[str, Any]:
    """Return the additional measurements that runs can make, and whether each is requested.

    `cannot_run` is the reason why nothing can run here; empty if programs can run.
    """
    return {
        "cannot_run": cannot_run,
        "ways": [{"name": name, "label": way.label, "on": name in requested.against} for name, way in VARIANTS.items()],
        "snapshot": requested.snapshot,
        "no_snapshot": f"a memory snapshot is of one process, and {ranks} ranks share the program" if ranks > 1 else "",
    }


def trace_lines(
    text: str, graph: Graph, node_names: dict[str, str], own_ids: Sequence[str] = ()
) -> list[dict[str, str]]:
    """Return the lines of a trace, each with the user's source line and the id of its node.

    Parameters
    ----------
    text : str
        The trace as Thunder prints it.
    graph : Graph
    node_names : dict of str to str
        Node ids by the name of the value that the node makes.
    own_ids : sequence of str, optional
        For each statement, the id of its own node, even if the statement is in a folded layer. A line's ``own`` is this
        id.
    """
    lines = []
    for line in text.splitlines():
        match = _ASSIGNED.match(line)
        value = graph.value_index.get(match.group(1), -1) if match else -1
        producer = int(graph.values.producer[value]) if value >= 0 else -1
        origin = int(graph.statements.origin[producer]) if producer >= 0 else -1
        source = graph.origins[origin] if origin >= 0 else None
        where = f"{source.file}:{source.line}  {source.text.strip()}" if source is not None and source.file else ""
        id = node_names.get(match.group(1), "") if match else ""
        own = own_ids[producer] if own_ids and producer >= 0 else ""
        lines.append({"text": line, "source": where, "id": id, **({"own": own} if own else {})})
    return lines
