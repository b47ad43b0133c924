"""Small functions for several parts of the screen: short names, stable node ids, the next option."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from workbench.core.graph import Graph, layer_of, operator_name
from workbench.core.lever import Site
from workbench.ui.graph.layout_arrays import GraphLayout


@functools.lru_cache(maxsize=1 << 14)
def short_name(name: str) -> str:
    """Return a statement's name as drawn: without its module, and without Thunder's prefixes and suffixes."""
    return operator_name(name.rpartition(".")[2]) or name


def node_ids(graph: Graph, layout: GraphLayout, sites: Sequence[Site]) -> list[str]:
    """Return node ids that stay the same when choices change, as far as possible.

    Returns
    -------
    list of str
        ``t:VALUE`` for the statement that makes a value, ``f:NAME`` for a fusion, ``g:SITE`` for a value that the
        forward no longer makes, ``s:INDEX`` for any other statement.
    """
    nodes, outputs = layout.nodes, graph.statements.outputs
    made = np.append(outputs.items, -1)[outputs.offsets[:-1]]
    made[np.diff(outputs.offsets) == 0] = -1
    value = np.where((nodes.statement >= 0) & ~nodes.heading, np.append(made, -1)[nodes.statement], -1)
    words = _value_ids(graph.values.name)
    ids = list(map(words.__getitem__, value.tolist()))
    rows = nodes.statement.tolist()
    for node in np.flatnonzero(value < 0).tolist():
        if rows[node] < 0:
            ids[node] = f"g:{sites[nodes.ghost[node]].id}"
        elif nodes.heading[node]:
            ids[node] = f"f:{graph.statements.name[rows[node]]}"
        else:
            ids[node] = f"s:{rows[node]}"
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        for node, id in enumerate(ids):
            ids[node] = f"s:{rows[node]}" if id in seen else id
            seen.add(ids[node])
    return ids


@functools.lru_cache(maxsize=4)
def _value_ids(names: tuple[str, ...]) -> list[str]:
    """Return, for each value, the id of the node that makes it. The last entry, for index -1, is empty."""
    return [*(f"t:{name}" for name in names), ""]


def short_label(site: Site) -> str:
    """Return a site's name for one line: its label. For a setting, return the id, because the label is a sentence."""
    return site.id if site.is_setting else site.label.partition(" (tie: ")[0]


def label_in_layers(site: Site) -> str:
    """Return a site's name for several layers that have such a site: its short label without the layer."""
    layer = layer_of(site.id.partition(":")[2].partition("/")[0])
    label = short_label(site)
    return label[len(layer) + 1 :] if layer and label.startswith((f"{layer}.", f"{layer}/")) else label


def next_option(site: Site) -> str | None:
    """Return the legal option that a double click on a site chooses; None if the site has only one legal option."""
    legal = [option for option in site.options if option not in site.illegal or option == site.choice]
    if len(legal) < 2:
        return None
    place = legal.index(site.choice) if site.choice in legal else -1
    return legal[(place + 1) % len(legal)]
