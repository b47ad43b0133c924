"""The Chosen tab: the choices in force, in groups of layers, each with a button that reverts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import traitlets

from workbench.core.lever import lever_named
from workbench.ui.graph.counterparts import counterpart_key, layers_named, number_of
from workbench.ui.graph.node_names import label_in_layers, short_label
from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.core.lever import Site


class Chosen(Panel):
    """A table of the choices in force. In `content`, ``rows`` are from `chosen_rows`."""

    _esm = esm("chosen")
    selected = traitlets.Unicode("").tag(sync=True)


def chosen_rows(
    choices: Mapping[str, str], by_hand: Mapping[str, str], site_of: Mapping[str, Site]
) -> list[dict[str, Any]]:
    """Return a row for each group of equal choices at counterparts in several layers, in the order of the sites.

    Parameters
    ----------
    choices : mapping of str to str
        The choices in force, by site.
    by_hand : mapping of str to str
        The choices that the user made, and not a search.
    site_of : mapping of str to Site
        Sites of the plan by id.
    """
    groups: dict[tuple[str, str, bool], list[Site]] = {}
    for id, site in site_of.items():
        if id in choices:
            groups.setdefault((counterpart_key(id) or id, choices[id], id in by_hand), []).append(site)
    return [
        {
            "id": sites[0].id,
            "ids": [site.id for site in sites],
            "lever": lever_named(sites[0].lever).title,
            "label": label_in_layers(sites[0]) if len(sites) > 1 else short_label(sites[0]),
            "where": layers_named([number_of(site.id) for site in sites]) if len(sites) > 1 else "",
            "source": sites[0].source,
            "bytes": sum(site.bytes for site in sites),
            "option": option,
            # The outcome in the plan, if it differs.
            "outcome": ", ".join(dict.fromkeys(site.outcome for site in sites if site.outcome not in ("", option))),
            "by": "by hand" if hand else "automatically",
            "revert": {site.id: site.default for site in sites},
        }
        for (_, option, hand), sites in groups.items()
    ]
