"""The U-shaped graph of a plan as a widget. One message sends the layout, as arrays and strings, to the canvas."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import traitlets

from workbench.core.graph import Graph, layer_of
from workbench.core.lever import Site
from workbench.ui.graph import collective_lanes
from workbench.ui.graph import layout as u_layout
from workbench.ui.graph.composite_rows import composite_key, waits_key
from workbench.ui.graph.counterparts import counterpart_key, counterparts, layers_named, number_of
from workbench.ui.graph.fold_layers import LOOP
from workbench.ui.graph.hide_views import views_of
from workbench.ui.graph.layout_arrays import GraphLayout
from workbench.ui.graph.module_labels import ModuleSpan, modules_of
from workbench.ui.graph.node_names import node_ids
from workbench.ui.graph.payload import pack, payload
from workbench.ui.graph.search_index import ids_of, search_index
from workbench.ui.graph.site_anchors import style_of
from workbench.ui.widgets.panel import Answering, esm
from workbench.util.last_call_cache import Remembered

type Scope = Literal["alike", "one", "all"]
"""What a choice applies to; see `GraphView.scope`."""


MOST_GROUPS = 5
"""Maximum number of groups of layers for which the effects of an option are computed one by one."""


@dataclasses.dataclass(frozen=True)
class DrawnGraph:
    """The graph that is drawn now, with its sites.

    Attributes
    ----------
    graph : Graph
    sites : tuple of Site
    layout : GraphLayout
    node_ids : list of str
        Id of each node; see `workbench.ui.graph.node_names.node_ids`.
    """

    graph: Graph
    sites: tuple[Site, ...]
    layout: GraphLayout
    node_ids: list[str]

    @functools.cached_property
    def node_of(self) -> dict[str, int]:
        """Index of each node that stands for a statement, by the node's id."""
        return {id: node for node, id in enumerate(self.node_ids) if self.layout.nodes.statement[node] >= 0}

    @functools.cached_property
    def counterparts(self) -> dict[str, list[Site]]:
        """Sites with the same place in different layers; see `workbench.ui.graph.counterparts`."""
        return counterparts(self.sites)

    @functools.cached_property
    def own_ids(self) -> list[str]:
        """For each statement, the id of its own node, even if the statement is in a folded layer."""
        return ids_of(self.graph, self.layout, self.node_ids)

    @functools.cached_property
    def statement_ids(self) -> list[str]:
        """For each statement, the id of the node that shows it; empty if none does.

        A statement of a folded layer is shown by the node of its counterpart in the shown layer.
        """
        layout, parents, ids = self.layout, self.graph.statements.parent, [*self.node_ids, ""]
        found = list(map(ids.__getitem__, layout.node_of.tolist()))
        headings = {int(layout.nodes.fusion[node]): ids[node] for node in np.flatnonzero(layout.nodes.heading).tolist()}
        members = np.flatnonzero((parents >= 0) & ~layout.hidden & (layout.node_of >= 0))
        fusions, first = np.unique(parents[members], return_index=True)
        nodes = layout.node_of[members[first]]
        for row, node, fusion in zip(
            fusions.tolist(), nodes.tolist(), layout.nodes.fusion[nodes].tolist(), strict=True
        ):
            found[row] = headings.get(fusion, ids[node])
        return found


class GraphView(Answering):
    """The U-shaped graph, drawn by ``graph_view.js``.

    Parameters
    ----------
    on_turn : callable
        Called with the sites that a double click or the space key changes: several sites if layers are folded.
    on_undo, on_redo : callable
        Called when the user presses ``u`` or ``r``.
    on_choose : callable, optional
        Called with the options that the user chose in the menu, by site: several sites if layers are folded.
    on_place : callable, optional
        Called when the user has moved an end of a collective's bar. The argument has, for each changed site, the
        statement before which the end now is. If layers are folded, there are several sites.
    on_preview : callable, optional
        Called with a message when the pointer enters or leaves a site. Only a message on entry has the site's ``id``.
    on_tab : callable, optional
        Called with the name of the tab in which the user wants to see the selection.
    height : int
        Height on the page in pixels.

    Attributes
    ----------
    scope : {'alike', 'one', 'all'}
        What a choice applies to: the shown layer and the folded layers that it stands for, only the shown layer, or
        all layers that have such a site.

    Examples
    --------
    >>> view = GraphView(on_turn=print, on_undo=print, on_redo=print)
    >>> view.show(plan.graph, plan.sites)
    """

    _esm = esm("graph")

    data = traitlets.Dict().tag(sync=True)
    selected = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(620).tag(sync=True)
    dark = traitlets.Bool(False).tag(sync=True)
    asked = traitlets.Dict().tag(sync=True)
    """Styles of arcs with pending choices, by site."""
    folds = traitlets.Int(0)
    """Number of folds and unfolds so far. After a fold or unfold, other nodes show the statements."""

    def __init__(
        self,
        *,
        on_turn: Callable[[list[Site]], None],
        on_undo: Callable[[], None],
        on_redo: Callable[[], None],
        on_choose: Callable[[dict[str, str]], None] | None = None,
        on_place: Callable[[dict[str, int]], None] | None = None,
        on_preview: Callable[[dict[str, Any]], None] | None = None,
        on_tab: Callable[[str], None] | None = None,
        **traits: Any,
    ) -> None:
        super().__init__(**traits)
        self._on_turn, self._on_undo, self._on_redo = on_turn, on_undo, on_redo
        self.scope: Scope = "alike"
        self._on_choose, self._on_place, self._on_preview, self._on_tab = on_choose, on_place, on_preview, on_tab
        self._unfolded: set[str] = set()
        self._views = False
        self._unpacks = True
        self._kept: dict[str, float] = {}
        self._remembered = Remembered()
        self.shown: DrawnGraph | None = None
        self.on_msg(self._receive)

    def show(self, graph: Graph, sites: Sequence[Site]) -> None:
        """Draw a graph and its sites. Scroll position, zoom and selection do not change."""
        sites = tuple(sites)
        layout = u_layout.compute(
            graph,
            sites,
            unfolded=self._unfolded,
            views=self._views,
            composites=True,
            earlier_heights=self._kept,
            remembered=self._remembered,
        )
        blocks = zip(layout.blocks.origin.tolist(), layout.blocks.height.tolist(), strict=True)
        # Keep the first heights, so that a block that grew for a choice has its former height after an undo.
        self._kept = {u_layout.block_key(graph, origin): height for origin, height in blocks} | self._kept
        self.shown = DrawnGraph(graph, sites, layout, node_ids(graph, layout, sites))
        drawn = payload(graph, layout, sites, self.shown.node_ids, remembered=self._remembered)
        self.data = pack(drawn) if self._unpacks else drawn

    def ask(self, options: Mapping[str, str]) -> None:
        """Draw the arcs of sites in the style of their requested options, until a plan with these options is shown."""
        of = {site.id: site for site in self.shown.sites} if self.shown is not None else {}
        replaced = {
            id: dataclasses.replace(of[id], choice=option, outcome="") for id, option in options.items() if id in of
        }
        self.asked = {id: int(style_of(site)) for id, site in replaced.items()}

    def reveal(self, id: str) -> None:
        """Select a site or a statement and scroll to it."""
        self.selected = id
        self.send({"type": "reveal", "id": id})

    def reveal_value(self, name: str) -> None:
        """Select the node of the statement that makes a value; do nothing if the graph lacks the value."""
        shown = self.shown
        value = -1 if shown is None else shown.graph.value_index.get(name, -1)
        if shown is not None and value >= 0 and (maker := int(shown.graph.values.producer[value])) >= 0:
            id = f"t:{name}" if f"t:{name}" in shown.node_of else shown.statement_ids[maker]
            if id:
                self.reveal(id)

    def statement_of(self, id: str) -> int | None:
        """Return the index of a node's statement, by the node's id; None if no node with a statement has this id."""
        shown = self.shown
        node = None if shown is None else shown.node_of.get(id)
        return None if node is None or shown is None else int(shown.layout.nodes.statement[node])

    def shown_ids(self) -> list[str]:
        """Return the node id of each statement; see `DrawnGraph.statement_ids`."""
        return [] if self.shown is None else self.shown.statement_ids

    def own_ids(self) -> list[str]:
        """Return, for each statement, the id of its own node, which `unveil` shows."""
        return [] if self.shown is None else self.shown.own_ids

    def peers(self, id: str) -> list[Site]:
        """Return all sites that a site's arc or mark stands for: the site and its counterparts in folded layers."""
        if self.shown is None:
            return []
        layout, sites = self.shown.layout, self.shown.sites
        for peers in layout.marks.peers:
            if id in (sites[n].id for n in peers):
                return [sites[n] for n in peers]
        for numbers, peers in zip(layout.arcs.sites, layout.arcs.peers, strict=True):
            if id in (sites[n].id for n in (numbers[0], *peers)):
                return [sites[n] for n in peers]
        return [site for site in sites if site.id == id]

    def everywhere(self, id: str) -> list[Site]:
        """Return the site and its counterparts in all layers, folded or not; only the site if it is in no layer."""
        if self.shown is None:
            return []
        found = self.shown.counterparts.get(counterpart_key(id)) or []
        return found or [site for site in self.shown.sites if site.id == id]

    def sites_turned(self, id: str, scope: Scope | None = None) -> list[Site]:
        """Return the sites to which a choice for a site applies, in a scope; by default in the scope of the view."""
        scope, found = scope or self.scope, self.peers(id)
        if scope == "one":
            return [site for site in found if site.id == id] or found
        if scope == "all" and self.kind_of_peers(id) == "layers" and len(every := self.everywhere(id)) > len(found):
            return sorted(every, key=lambda site: site.id != id)
        return found

    def choices_at(self, id: str, option: str, scope: Scope | None = None) -> dict[str, str]:
        """Return the choices that an option of a site makes. Sites of further layers that refuse it are left out."""
        sites, alike = self.sites_turned(id, scope), {site.id for site in self.peers(id)}
        return {
            site.id: option
            for site in sites
            if site.id in alike or (option in site.options and option not in site.illegal)
        }

    def groups_of_layers(self, id: str, option: str) -> dict[str, dict[str, str]]:
        """Return the choices of an option in all layers, and in each group of layers that is shown as one.

        Empty if the site's arc or mark stands for all layers. If there are more than `MOST_GROUPS` groups, only all
        layers are returned.
        """
        every = self.everywhere(id)
        if len(every) <= len(self.peers(id)) or self.kind_of_peers(id) != "layers":
            return {}
        legal = {site.id for site in every if option in site.options and option not in site.illegal}
        groups: dict[frozenset[str], list[str]] = {}
        for one in (site.id for site in every):
            groups.setdefault(frozenset(peer.id for peer in self.peers(one)), []).append(one)
        named = {f"all {len(every)} layers": [site.id for site in every]}
        if len(groups) <= MOST_GROUPS:
            named |= {layers_named([number_of(one) for one in ids]): ids for ids in groups.values()}
        return {name: dict.fromkeys([id for id in ids if id in legal], option) for name, ids in named.items()}

    def groups(self) -> list[list[Site]]:
        """Return all sites, grouped by the arc or mark that shows them."""
        if self.shown is None:
            return []
        layout, sites = self.shown.layout, self.shown.sites
        found = [list(peers) for peers in (*layout.arcs.peers, *layout.marks.peers)]
        grouped = {number for group in found for number in group}
        found += [[number] for number in range(len(sites)) if number not in grouped]
        return [[sites[number] for number in group] for group in sorted(found, key=min)]

    def kind_of_peers(self, id: str) -> str:
        """Return the kind of a site's `peers`: ``layers``, ``repeats`` of a loop, or adjacent ``waits``."""
        if self.shown is not None:
            layout, sites = self.shown.layout, self.shown.sites
            for peers, node in zip(layout.marks.peers, layout.marks.node.tolist(), strict=True):
                if layout.nodes.waits[node] > 1 and id in (sites[n].id for n in peers):
                    return "waits"
            loops = [section for section in layout.sections if section.stem.startswith(LOOP)]
            y = layout.nodes.y[self._place_of(id)] if loops else 0.0
            if any(one.y <= y < one.y + one.height for one in loops):
                return "repeats"
        return "layers"

    def _place_of(self, id: str) -> int:
        """Return the index of the node with a site's arc or mark; 0 if the site has neither."""
        assert self.shown is not None
        layout, sites = self.shown.layout, self.shown.sites
        places = (
            *zip(layout.arcs.peers, layout.arcs.source.tolist(), strict=True),
            *zip(layout.marks.peers, layout.marks.node.tolist(), strict=True),
        )
        return next((node for peers, node in places if id in (sites[n].id for n in peers)), 0)

    def marked_nodes(self, id: str) -> list[str]:
        """Return the ids of the nodes to highlight for a selected node, arc or mark. An arc has two nodes."""
        shown = self.shown
        if shown is None or not id:
            return []
        layout, numbers = shown.layout, {n for n, site in enumerate(shown.sites) if site.id == id}
        nodes = [shown.node_of[id]] if id in shown.node_of else []
        for arc, (sites, peers) in enumerate(zip(layout.arcs.sites, layout.arcs.peers, strict=True)):
            if numbers & {*sites, *peers}:
                nodes += [int(layout.arcs.source[arc]), int(layout.arcs.target[arc])]
        for peers, node in zip(layout.marks.peers, layout.marks.node.tolist(), strict=True):
            if numbers & {*peers}:
                nodes.append(node)
        return [shown.node_ids[node] for node in nodes if node >= 0]

    def arc_sites(self, id: str) -> tuple[int, ...]:
        """Return the indices of all sites that share a site's arc; empty if the site has no arc."""
        if self.shown is None:
            return ()
        for numbers in self.shown.layout.arcs.sites:
            if any(self.shown.sites[number].id == id for number in numbers):
                return numbers
        return ()

    def composite_of(self, id: str) -> int | None:
        """Return the node with this id if it is a composite's row, else None."""
        node = self.shown.node_of.get(id) if self.shown is not None else None
        return node if node is not None and self.shown is not None and self.shown.layout.nodes.parts[node] > 0 else None

    def module_of(self, id: str) -> ModuleSpan | None:
        """Return the first module with this id, ``module:SCOPE``; None if there is none."""
        kind, _, scope = id.partition(":")
        if kind != "module" or self.shown is None:
            return None
        return next((one for one in modules_of(self.shown.graph, self.shown.layout) if one.scope == scope), None)

    def fold(self, id: str) -> None:
        """Expand a composite's row into its statements, or collapse these again. `id` names a node of the composite."""
        shown = self.shown
        node = shown.node_of.get(id) if shown is not None else None
        if node is not None and shown is not None:
            self._turn_fold(composite_key(shown.graph, int(shown.layout.blocks.origin[shown.layout.nodes.block[node]])))

    def unveil(self, id: str) -> None:
        """Select a statement and scroll to it. If it is in a folded layer, or is a hidden view, show it first."""
        ids = self.own_ids()
        if self.shown is None or id not in ids:
            return
        row = ids.index(id)
        shown = self.shown if id in self.shown.node_of else self._open_around(self.shown, row)
        if id not in shown.node_of and (origin := int(shown.graph.statements.origin[row])) >= 0:
            # The statement is one of several that are shown as one row.
            self._unfolded.add(composite_key(shown.graph, origin))
            if (node := int(shown.layout.node_of[row])) >= 0 and shown.layout.nodes.waits[node] > 1:
                self._unfolded.add(waits_key(shown.graph, int(shown.layout.nodes.statement[node])))
            shown = self._show_again(shown)
        if found := id if id in shown.node_of else shown.statement_ids[row]:
            self.reveal(found)

    def _open_around(self, shown: DrawnGraph, row: int) -> DrawnGraph:
        """Unfold the layer of a statement, and show views if the statement is a view."""
        graph, layout = shown.graph, shown.layout
        origin = int(graph.statements.origin[row])
        if origin < 0:
            # A fusion is in the layer of its first member that has an origin.
            inside = graph.statements.origin[graph.statements.parent == row]
            origin = int(next(iter(inside[inside >= 0]), -1))
        layer = layer_of(graph.origins[origin].scope) if origin >= 0 else ""
        stem = layer.rpartition(".")[0] or layer
        if any(section.stem == stem and section.count > 1 for section in layout.sections):
            self._unfolded.add(layer)
        elif (node := shown.node_of.get(shown.statement_ids[row], -1)) >= 0:
            y = layout.nodes.y[node]
            self._unfolded |= {one.stem for one in layout.sections if one.count > 1 and one.y <= y < one.y + one.height}
        self._views = self._views or bool(views_of(graph)[row])
        return self._show_again(shown)

    def _show_again(self, shown: DrawnGraph) -> DrawnGraph:
        self._kept.clear()
        self.show(shown.graph, shown.sites)
        self.folds += 1
        assert self.shown is not None
        return self.shown

    def _turn_fold(self, stem: str, *, folded: bool = False) -> None:
        """Unfold a group, or fold it again. `folded` says whether the clicked row stands for several layers."""
        alone = {key for key in self._unfolded if key.rpartition(".")[0] == stem}
        if alone:
            # Single layers of the group are unfolded: unfold the others too, or fold all.
            self._unfolded -= alone
            self._unfolded |= {stem} if folded else set()
        else:
            self._unfolded ^= {stem}
        if self.shown is not None:
            self._show_again(self.shown)

    def _receive(self, _widget: Any, message: dict[str, Any], _buffers: Any) -> None:
        kind, shown = message.get("type"), self.shown
        if kind == "turn":
            self._on_turn(self.sites_turned(message["id"]))
        elif kind == "choose" and self._on_choose is not None:
            self._on_choose(self.choices_at(message["id"], message["option"], message.get("scope")))
        elif kind == "place" and self._on_place is not None and shown is not None:
            node = shown.node_of.get(message["node"])
            if node is not None:
                self._on_place(
                    collective_lanes.sites_moved(shown.graph, shown.layout, shown.sites, message["id"], node)
                )
        elif kind == "preview" and self._on_preview is not None:
            self._on_preview(message)
        elif kind == "tab" and self._on_tab is not None:
            self._on_tab(message["name"])
        elif kind == "undo":
            self._on_undo()
        elif kind == "redo":
            self._on_redo()
        elif kind == "fold" and "node" in message:
            self.fold(message["node"])
        elif kind == "fold":
            self._turn_fold(message["stem"], folded=bool(message.get("folded")))
        elif kind == "unveil":
            self.unveil(message["id"])
        elif kind == "index" and shown is not None:
            found = search_index(shown.graph, shown.layout, shown.node_ids)
            if self.shown is shown:  # the page asks again if it got another plan in the meantime
                self.send({"type": "index", **found})
        elif kind == "plain" and shown is not None:
            # This browser cannot unpack compressed data.
            self._unpacks = False
            self.show(shown.graph, shown.sites)
        elif kind == "relax" and shown is not None:
            self._kept.clear()
            self.show(shown.graph, shown.sites)
        elif kind == "views" and shown is not None:
            self._views = bool(message["shown"])
            self._kept.clear()
            self.show(shown.graph, shown.sites)
