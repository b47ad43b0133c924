"""Small answers that several parts of the screen need: short names, ids of nodes that last, the next option."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from workbench.graph import Graph
from workbench.lever import Site
from workbench.ui.drawing import Layout


@functools.lru_cache(maxsize=1 << 14)
def short_name(name: str) -> str:
    """A statement's name as drawn: without module, and without what all of Thunder's wrappers have in common."""
    short = name.rpartition(".")[2]
    short = short.removeprefix("torch_").removeprefix("prims_").removesuffix("_impl").removesuffix("_prim")
    return short or name


def node_ids(graph: Graph, layout: Layout, sites: Sequence[Site]) -> list[str]:
    """Names of the nodes that last while choices change: by the value made, for statements have no names.

    Returns
    -------
    list of str
        ``t:VALUE`` for the statement that makes a value, ``f:NAME`` for a fusion, ``g:SITE`` for a value that the
        forward no longer makes, ``s:INDEX`` for statements that make nothing new.
    """
    ids, seen = [], set()
    named, outputs = graph.values.name, graph.statements.outputs
    starts, made = outputs.offsets.tolist(), outputs.items.tolist()
    for statement, ghost, heading in zip(
        layout.nodes.statement.tolist(), layout.nodes.ghost.tolist(), layout.nodes.heading.tolist(), strict=True
    ):
        if statement < 0:
            id = f"g:{sites[ghost].id}"
        elif heading:
            id = f"f:{graph.statements.name[statement]}"
        else:
            start = starts[statement]
            id = f"t:{named[made[start]]}" if start < starts[statement + 1] else ""
        if not id or id in seen:
            id = f"s:{statement}"
        seen.add(id)
        ids.append(id)
    return ids


def next_option(site: Site) -> str | None:
    """The legal option that a click turns a site to, or None where there is no other."""
    legal = [option for option in site.options if option not in site.illegal or option == site.choice]
    if len(legal) < 2:
        return None
    place = legal.index(site.choice) if site.choice in legal else -1
    return legal[(place + 1) % len(legal)]
