"""The Chosen tab: the choices in force and the defaults chosen by hand, in groups of layers, with buttons to revert."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import traitlets

from workbench.core.lever import lever_named
from workbench.ui.graph.counterparts import counterpart_key, layers_named, number_of
from workbench.ui.graph.node_names import label_in_layers, short_label
from workbench.ui.widgets.panel import Panel, esm

if TYPE_CHECKING:
    from workbench.core.lever import Site


class Chosen(Panel):
    """A table of the choices in force, and defaults by hand; ``rows`` of `content` are from `chosen_rows`."""

    _esm = esm("chosen")
    selected = traitlets.Unicode("").tag(sync=True)


def chosen_rows(
    choices: Mapping[str, str], by_hand: Collection[str], site_of: Mapping[str, Site]
) -> list[dict[str, Any]]:
    """Return a row for each group of equal choices at counterparts in several layers, in the order of the sites.

    Parameters
    ----------
    choices : mapping of str to str
        The choices in force, by site.
    by_hand : collection of str
        The sites whose options the user chose, and not a search. They include sites with their default option.
    site_of : mapping of str to Site
        Sites of the plan by id.
    """
    groups: dict[tuple[str, str, bool], list[Site]] = {}
    for id, site in site_of.items():
        if id in choices or id in by_hand:
            option = choices.get(id, site.default)
            groups.setdefault((counterpart_key(id) or id, option, id in by_hand), []).append(site)
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
            "default": sites[0].id not in choices,
            "revert": {site.id: site.default for site in sites},
        }
        for (_, option, hand), sites in groups.items()
    ]
