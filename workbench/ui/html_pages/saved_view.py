"""The view of a saved plan: the strip of figures and the canvas's arrays, encoded as text for a JSON document."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.ui.controls.figure_strip import Baseline, figures
from workbench.ui.graph import layout as u_layout
from workbench.ui.graph.payload import payload

if TYPE_CHECKING:
    from workbench.analysis.cost.machines import Machine
    from workbench.compiler.api import Plan
    from workbench.core.graph import Graph
    from workbench.core.lever import Site

UNKNOWN = "–"
"""Text in the strip for a figure that was not measured."""


def view_content(plan: Plan, stock: Plan, machine: Machine) -> dict[str, Any]:
    """Return the data that ``extensions/trace-view`` draws.

    Parameters
    ----------
    plan, stock : Plan
        The saved plan, and the stock plan with which its figures are compared.
    machine : Machine
        Machine on which ranks are simulated.

    Returns
    -------
    dict
        ``figures`` as `Strip` shows them, without figures that only a run measures; ``graph`` from `encode_graph`.
    """
    against = Baseline("no choices", stock)
    shown = figures(plan, None, against, same_choices=True, machine=machine)
    for figure in shown:
        figure["values"] = [value for value in figure["values"] if value["text"] != UNKNOWN]
    return {"figures": [figure for figure in shown if figure["values"]], "graph": encode_graph(plan.graph, plan.sites)}


def encode_graph(graph: Graph, sites: Sequence[Site]) -> dict[str, Any]:
    """Return the data of `payload` for a graph, with the bytes of each column in base64."""
    found = payload(graph, u_layout.compute(graph, sites), sites, read_only=True)
    found["tables"] = {
        table: {name: [code, base64.b64encode(column).decode()] for name, (code, column) in columns.items()}
        for table, columns in found["tables"].items()
    }
    return found
