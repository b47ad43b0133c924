"""The joint graph as a widget: one message with the layout as binary arrays, one string table, and a canvas."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import traitlets
from numpy.typing import NDArray

from workbench.graph import Graph, Kind, StatementFlag, ValueFlag
from workbench.lever import Site
from workbench.summary import human_bytes, human_shape
from workbench.ui import lanes
from workbench.ui import layout as u_layout
from workbench.ui.drawing import Layout, Style
from workbench.ui.ends import Index, style_of
from workbench.ui.hiding import views_of
from workbench.ui.names import next_option, node_ids, short_name
from workbench.ui.panel import Answering, esm

HERE = pathlib.Path(__file__).parent
MODULES = ("graph_scene.js", "graph_places.js", "graph_drawing.js", "graph_map.js", "graph_legend.js", "graph_view.js")
"""The page's side, each file building on those before it."""

HEADING, GHOST, RANDOM, CLONE, VIEW, COLLECTIVE, MOMENT = 1, 2, 4, 8, 16, 32, 64
"""Bits of a node's flags, as `graph_scene.js` names them."""
CHANGED, FIXED = 1, 2
"""Bits of a mark's state: chosen otherwise than stock, and with nothing else legal."""

_VERBS = {Style.SAVED: "saved for the backward", Style.RECOMPUTED: "recomputed in the backward"}
_VERBS[Style.OFFLOADED] = "kept on the CPU until the backward"


class Strings:
    """A table in which every text stands once."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """Index of `text`, entered when new."""
        return self.index.setdefault(text, len(self.index))

    def column(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Indices of `texts`."""
        return np.asarray([self(text) for text in texts], np.int32)


def payload(
    graph: Graph, layout: Layout, sites: Sequence[Site], ids: Sequence[str] | None = None, *, read_only: bool = False
) -> dict[str, Any]:
    """What the canvas draws: tables of ``[type code, bytes]`` columns and the strings that they point into.

    Parameters
    ----------
    graph : Graph
    layout : Layout
        Of the graph and its sites.
    sites : sequence of Site
    ids : sequence of str, optional
        The nodes' own, where they are worked out already.
    read_only : bool
        Whether nothing can be chosen there, so that no tooltip says what a click would do.
    """
    strings = Strings()
    acts = not read_only
    ids = node_ids(graph, layout, sites) if ids is None else ids
    blocks, lines, runs, arcs = layout.blocks, layout.lines, layout.runs, layout.arcs
    tables: dict[str, dict[str, NDArray[Any]]] = {
        "node": {"id": strings.column(ids), **_node_columns(graph, layout, sites, strings)},
        "block": {
            "y": blocks.y,
            "symbol": strings.column([_symbol(graph, origin) for origin in blocks.origin.tolist()]),
        },
        "line": {
            "block": lines.block,
            "count": lines.count,
            "y": lines.y,
            "height": lines.height,
            **_line_columns(graph, layout, strings),
        },
        "run": {
            "fusion": runs.fusion,
            "side": runs.side,
            "y": runs.y,
            "height": runs.height,
            "name": strings.column([short_name(graph.statements.name[row]) for row in runs.fusion.tolist()]),
        },
        "arc": {
            "source": arcs.source,
            "target": arcs.target,
            "side": arcs.side,
            "shape": arcs.shape,
            "style": arcs.style,
            "y0": arcs.y0,
            "y1": arcs.y1,
            "width": (1.0 + 3.0 * np.sqrt(arcs.bytes / arcs.bytes.max(initial=1))).astype(np.float32),
            "id": strings.column([sites[numbers[0]].id for numbers in arcs.sites]),
            "label": strings.column([_arc_label(layout, i) for i in range(len(arcs))]),
            "tip": strings.column([_arc_tip(graph, layout, sites, i, acts) for i in range(len(arcs))]),
        },
        "mark": {
            "node": layout.marks.node,
            "place": layout.marks.place,
            "id": strings.column([sites[number].id for number in layout.marks.site]),
            "text": strings.column([sites[n].outcome or sites[n].choice for n in layout.marks.site]),
            "tip": strings.column([_mark_tip(layout, sites, i, acts) for i in range(len(layout.marks))]),
            "state": np.asarray([_mark_state(sites[number]) for number in layout.marks.site], np.uint8),
        },
        "bar": _bar_columns(lanes.bars(graph, layout, sites), sites, graph.groups, strings, acts),
        "edge": _edges(graph, layout),
        "alias": _aliases(layout, sites, strings),
    }
    return {
        "strings": list(strings.index),
        "sections": [vars(section) for section in layout.sections],
        "height": layout.height,
        "views": {"count": int(views_of(graph, Index.of(graph)).sum()), "hidden": int(layout.hidden.sum())},
        "tables": {
            table: {name: [_code(column), column.tobytes()] for name, column in columns.items()}
            for table, columns in tables.items()
        },
    }


def _code(column: NDArray[Any]) -> str:
    return {"float32": "f", "float64": "d", "int32": "i", "int8": "b", "uint8": "b", "bool": "b"}[column.dtype.name]


def _symbol(graph: Graph, origin: int) -> str:
    return graph.origins[origin].symbol if origin >= 0 else ""


def _node_columns(graph: Graph, layout: Layout, sites: Sequence[Site], strings: Strings) -> dict[str, NDArray[Any]]:
    nodes, statements, values = layout.nodes, graph.statements, graph.values
    members = np.bincount(statements.parent[statements.parent >= 0], minlength=len(statements)).tolist()
    is_tensor, bytes_of = (values.flags & ValueFlag.TENSOR.value != 0).tolist(), values.bytes.tolist()
    headings, waits = nodes.heading.tolist(), nodes.waits.tolist()
    name, full, detail, shape, executor, about, size = [], [], [], [], [], [], []
    columns = zip(nodes.statement.tolist(), layout.blocks.origin[nodes.block].tolist(), strict=True)
    for node, (statement, origin) in enumerate(columns):
        source = graph.origins[origin] if origin >= 0 else None
        where = f"{source.scope}  {source.file}:{source.line}".strip() if source else ""
        about.append(f"{where}\n{source.text}" if source and source.text else where)
        if statement < 0:
            ghost = sites[nodes.ghost[node]]
            name.append(ghost.values[0])
            full.append(f"{ghost.label}: the forward does not make it any more")
            detail.append("not made here")
            shape.append("")
            executor.append("")
            size.append(0)
            continue
        tensors = [value for value in statements.outputs[statement].tolist() if is_tensor[value]]
        made = [f"{values.name[value]} {human_shape(values.shape[value])}" for value in tensors[:3]]
        more = f" and {len(tensors) - 3} more" if len(tensors) > 3 else ""
        size.append(sum(bytes_of[value] for value in tensors))
        shape.append(human_shape(values.shape[tensors[0]]) if tensors else "")
        short = short_name(statements.name[statement])
        name.append(f"{waits[node]} {short}s" if waits[node] > 1 else f"▾ {short}" if waits[node] else short)
        full.append(statements.name[statement])
        executor.append(statements.executor[statement])
        count = members[statement]
        if waits[node] > 1:
            detail.append(f"{waits[node]} waits of one moment: each is shown by another click, or Enter")
        elif waits[node] < 0:
            detail.append(
                f"{', '.join(made)}; {-waits[node]} waits of one moment: shown as one by another click, or Enter"
            )
        else:
            detail.append(f"{count} op{'s' * (count != 1)}" if headings[node] else ", ".join(made) + more)
    return {
        "y": nodes.y,
        "height": nodes.height,
        "side": nodes.side,
        "flags": _node_flags(graph, layout),
        "bytes": np.asarray(size, np.float64),
        "name": strings.column(name),
        "full": strings.column(full),
        "detail": strings.column(detail),
        "shape": strings.column(shape),
        "executor": strings.column(executor),
        "about": strings.column(about),
    }


def _node_flags(graph: Graph, layout: Layout) -> NDArray[np.uint8]:
    """Per node what the canvas marks it with."""
    nodes, statements = layout.nodes, graph.statements
    if not len(statements):
        return np.full(len(nodes), GHOST, np.uint8)
    bits, kind = statements.flags[nodes.statement], statements.kind[nodes.statement]
    marked = (
        (HEADING, nodes.heading),
        (RANDOM, bits & StatementFlag.RANDOM.value),
        (CLONE, bits & StatementFlag.CLONE.value),
        (VIEW, bits & StatementFlag.VIEW.value),
        (MOMENT, nodes.waits),
        (COLLECTIVE, np.isin(kind, (Kind.COLLECTIVE, Kind.WAIT))),
    )
    flags = sum((flag * (where != 0) for flag, where in marked), np.zeros(len(nodes), np.int64))
    return np.where(nodes.statement < 0, GHOST, flags).astype(np.uint8)


def _line_columns(graph: Graph, layout: Layout, strings: Strings) -> dict[str, NDArray[Any]]:
    text, place, short = [], [], []
    for block, count in zip(layout.lines.block.tolist(), layout.lines.count.tolist(), strict=True):
        origin = int(layout.blocks.origin[block])
        source = graph.origins[origin] if origin >= 0 else None
        symbols = [_symbol(graph, origin)] if count == 1 else []
        where = f"{source.file}:{source.line}" if source and source.file else ""
        text.append(source.text.strip() if source else "")
        short.append(where)
        scope = source.scope if source else ""
        place.append("  ·  ".join(part for part in (where, ", ".join(symbols), scope) if part))
    return {"text": strings.column(text), "place": strings.column(place), "short": strings.column(short)}


def _bar_columns(
    bars: lanes.Bars, sites: Sequence[Site], groups: Sequence[int], strings: Strings, acts: bool
) -> dict[str, NDArray[Any]]:
    return {
        "side": bars.side,
        "column": bars.column,
        "group": bars.group,
        "issue_node": bars.issue_node,
        "wait_node": bars.wait_node,
        "y0": bars.y0,
        "y1": bars.y1,
        "issue": strings.column([sites[number].id for number in bars.issue]),
        "wait": strings.column([sites[number].id for number in bars.wait]),
        "tip": strings.column([_bar_tip(bars, sites, groups, i, acts) for i in range(len(bars))]),
    }


def _bar_tip(bars: lanes.Bars, sites: Sequence[Site], groups: Sequence[int], bar: int, acts: bool) -> str:
    issue, wait = sites[bars.issue[bar]], sites[bars.wait[bar]]
    others = f" and {bars.count[bar] - 1} others at the same place" if bars.count[bar] > 1 else ""
    group = int(bars.group[bar])
    within = f"\nprocess group {group + 1} of {len(groups)}: {groups[group]} ranks" if group >= 0 else ""
    layers = len(bars.peers[bar])
    moved = f"that of {layers} layers" if layers > 1 else "this one" if others else "it"
    turning = f"\nDrag an end, or press [ and ] while it is selected, to move {moved}." if acts else ""
    return (
        f"{issue.label}{others}{within}\n{human_bytes(issue.bytes)}; "
        f"issued: {issue.outcome}, waited for: {wait.outcome}\n"
        f"legal: {issue.range}{turning}"
    )


def _arc_label(layout: Layout, arc: int) -> str:
    count = len(layout.arcs.peers[arc])
    return human_bytes(int(layout.arcs.bytes[arc])) + (f" × {count}" if count > 1 else "")


def _mark_state(site: Site) -> int:
    return CHANGED * (site.choice != site.default) | FIXED * (next_option(site) is None)


def _mark_tip(layout: Layout, sites: Sequence[Site], mark: int, acts: bool) -> str:
    site = sites[layout.marks.site[mark]]
    what = "waits" if layout.nodes.waits[layout.marks.node[mark]] > 1 else "layers"
    return "\n".join([site.label, *_told(site), *(_turning(site, len(layout.marks.peers[mark]), what) if acts else ())])


def _told(site: Site) -> list[str]:
    """A site's choice, what came of it, and what is refused there."""
    outcome = f" (now {site.outcome})" if site.outcome and site.outcome != site.choice else ""
    return [f"{site.lever}: {site.choice}{outcome}", *(f"{o} refused: {why}" for o, why in site.illegal.items())]


def _turning(site: Site, count: int, what: str = "layers") -> list[str]:
    """What a click would do."""
    turning = next_option(site)
    return [f"click: {turning}" + (f" in all {count} {what}" if count > 1 else "")] if turning else []


def _arc_tip(graph: Graph, layout: Layout, sites: Sequence[Site], arc: int, acts: bool) -> str:
    count = len(layout.arcs.peers[arc])
    first = sites[layout.arcs.sites[arc][0]]
    value = next((graph.value_index[name] for name in first.values if name in graph.value_index), None)
    shape = "" if value is None else f" {human_shape(graph.values.shape[value])}"
    rows = [f"{first.values[0]}{shape}, {_arc_label(layout, arc)}"]
    rows.append(_VERBS[Style(int(layout.arcs.style[arc]))])
    for number in layout.arcs.sites[arc]:
        rows.extend(_told(sites[number]))
    return "\n".join([*rows, *(_turning(first, count) if acts else ())])


def _edges(graph: Graph, layout: Layout) -> dict[str, NDArray[Any]]:
    """Pairs of nodes: who makes a value and who reads it."""
    inputs = graph.statements.inputs
    reader = np.repeat(np.arange(len(graph.statements)), np.diff(inputs.offsets))
    made = np.full(len(graph.values), -1, np.int32)
    outputs = graph.statements.outputs
    maker = np.repeat(np.arange(len(graph.statements)), np.diff(outputs.offsets))
    # From last to first, so that the first maker stays; members come after their fusion and take its place.
    fusions = np.zeros(len(graph.statements), bool)
    fusions[graph.statements.parent[graph.statements.parent >= 0]] = True
    order = np.argsort(fusions[maker], kind="stable")[::-1]
    made[outputs.items[order]] = maker[order]
    producer = made[inputs.items] if len(inputs.items) else np.zeros(0, np.int32)
    keep = (producer >= 0) & ~fusions[reader]
    source, target = layout.node_of[producer[keep]], layout.node_of[reader[keep]]
    drawn = (source >= 0) & (target >= 0) & (source != target)
    pairs = np.unique(np.stack([source[drawn], target[drawn]], axis=1), axis=0).astype(np.int32)
    return {"source": np.ascontiguousarray(pairs[:, 0]), "target": np.ascontiguousarray(pairs[:, 1])}


def _aliases(layout: Layout, sites: Sequence[Site], strings: Strings) -> dict[str, NDArray[Any]]:
    """Sites that an arc or a mark shows beside its first one: further levers' and those of layers folded into it."""
    ids, arcs, marks = [], [], []
    for arc, (numbers, peers) in enumerate(zip(layout.arcs.sites, layout.arcs.peers, strict=True)):
        for number in {*numbers[1:], *peers} - {numbers[0]}:
            ids.append(sites[number].id)
            arcs.append(arc)
            marks.append(-1)
    for mark, (first, peers) in enumerate(zip(layout.marks.site, layout.marks.peers, strict=True)):
        for number in {*peers} - {first}:
            ids.append(sites[number].id)
            arcs.append(-1)
            marks.append(mark)
    return {"id": strings.column(ids), "arc": np.asarray(arcs, np.int32), "mark": np.asarray(marks, np.int32)}


@dataclasses.dataclass(frozen=True)
class Shown:
    """A graph with its sites as it is drawn now; replaced as a whole.

    Attributes
    ----------
    graph : Graph
    sites : tuple of Site
    layout : Layout
    node_ids : list of str
        Per node; see `workbench.ui.names.node_ids`.
    """

    graph: Graph
    sites: tuple[Site, ...]
    layout: Layout
    node_ids: list[str]

    @functools.cached_property
    def node_of(self) -> dict[str, int]:
        """Nodes by their ids, those that stand for a statement."""
        return {id: node for node, id in enumerate(self.node_ids) if self.layout.nodes.statement[node] >= 0}

    @functools.cached_property
    def statement_ids(self) -> list[str]:
        """Per statement of the graph the node that shows it, in a folded layer its twin's; empty where none does."""
        layout, parents, ids = self.layout, self.graph.statements.parent, self.node_ids
        found = [ids[node] if node >= 0 else "" for node in layout.node_of.tolist()]
        headings = {int(layout.nodes.fusion[node]): ids[node] for node in np.flatnonzero(layout.nodes.heading).tolist()}
        for member in np.flatnonzero((parents >= 0) & ~layout.hidden).tolist()[::-1]:
            node = int(layout.node_of[member])
            if node >= 0:
                found[int(parents[member])] = headings.get(int(layout.nodes.fusion[node]), ids[node])
        return found


class GraphView(Answering):
    """The U-shaped graph, drawn by ``graph_view.js``.

    Parameters
    ----------
    on_turn : callable
        Called with the sites that a click or the space key is to turn (several for a folded layer).
    on_undo, on_redo : callable
        Called by the keys ``u`` and ``r``.
    on_place : callable, optional
        Called with the statement that the end of a collective was put before, by the id of its site: several for
        folded layers.
    height : int
        Pixels on the page.

    Attributes
    ----------
    alone : bool
        Whether a click chooses for the layer that is shown alone, and not for those that are folded into it.

    Examples
    --------
    >>> view = GraphView(on_turn=print, on_undo=print, on_redo=print)
    >>> view.show(plan.graph, plan.sites)
    """

    _esm = esm(*MODULES)
    _css = HERE / "style.css"

    data = traitlets.Dict().tag(sync=True)
    selected = traitlets.Unicode("").tag(sync=True)
    height = traitlets.Int(620).tag(sync=True)
    dark = traitlets.Bool(False).tag(sync=True)
    asked = traitlets.Dict().tag(sync=True)
    """Styles of arcs that were asked for and are not planned yet, by site."""

    def __init__(
        self,
        *,
        on_turn: Callable[[list[Site]], None],
        on_undo: Callable[[], None],
        on_redo: Callable[[], None],
        on_place: Callable[[dict[str, int]], None] | None = None,
        **traits: Any,
    ) -> None:
        super().__init__(**traits)
        self._on_turn, self._on_undo, self._on_redo = on_turn, on_undo, on_redo
        self.alone = False
        self._on_place = on_place
        self._unfolded: set[str] = set()
        self._views = False
        self._kept: dict[str, float] = {}
        self.shown: Shown | None = None
        self.on_msg(self._receive)

    def show(self, graph: Graph, sites: Sequence[Site]) -> None:
        """Draw a graph and its sites; scroll position, zoom and selection stay."""
        sites = tuple(sites)
        layout = u_layout.compute(graph, sites, unfolded=self._unfolded, views=self._views, kept=self._kept)
        blocks = zip(layout.blocks.origin.tolist(), layout.blocks.height.tolist(), strict=True)
        self._kept |= {u_layout.block_key(graph, origin): height for origin, height in blocks}
        self.shown = Shown(graph, sites, layout, node_ids(graph, layout, sites))
        self.data = payload(graph, layout, sites, self.shown.node_ids)

    def ask(self, options: Mapping[str, str]) -> None:
        """Draw arcs with the options that were asked for, by site, until the plan with them is shown."""
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
        """Select the statement that makes a value, or what stands for it; nothing where the graph lacks it."""
        shown = self.shown
        value = -1 if shown is None else shown.graph.value_index.get(name, -1)
        if shown is not None and value >= 0 and (maker := int(shown.graph.values.producer[value])) >= 0:
            id = f"t:{name}" if f"t:{name}" in shown.node_of else shown.statement_ids[maker]
            if id:
                self.reveal(id)

    @property
    def layout_shown(self) -> Layout | None:
        """Where everything is drawn; None before there is a graph."""
        return None if self.shown is None else self.shown.layout

    def statement_of(self, id: str) -> int | None:
        """Index of the statement that a node's name stands for, or None."""
        shown = self.shown
        node = None if shown is None else shown.node_of.get(id)
        return None if node is None or shown is None else int(shown.layout.nodes.statement[node])

    def shown_ids(self) -> list[str]:
        """Per statement of the graph the node that shows it, in a folded layer its twin's; empty where none does."""
        return [] if self.shown is None else self.shown.statement_ids

    def peers(self, id: str) -> list[Site]:
        """The site and those of the folded layers that its arc or its mark stands for."""
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

    def turned(self, id: str) -> list[Site]:
        """What a choice for a site is made for: it and its peers, or it alone."""
        found = self.peers(id)
        return [site for site in found if site.id == id] if self.alone and len(found) > 1 else found

    def groups(self) -> list[list[Site]]:
        """All sites, those together that an arc or a mark shows as one."""
        if self.shown is None:
            return []
        layout, sites = self.shown.layout, self.shown.sites
        found = [list(peers) for peers in (*layout.arcs.peers, *layout.marks.peers)]
        grouped = {number for group in found for number in group}
        found += [[number] for number in range(len(sites)) if number not in grouped]
        return [[sites[number] for number in group] for group in sorted(found, key=min)]

    def peers_are(self, id: str) -> str:
        """What `peers` of a site are: ``layers``, or ``waits`` of one moment."""
        if self.shown is not None:
            layout, sites = self.shown.layout, self.shown.sites
            for peers, node in zip(layout.marks.peers, layout.marks.node.tolist(), strict=True):
                if layout.nodes.waits[node] > 1 and id in (sites[n].id for n in peers):
                    return "waits"
        return "layers"

    def marked(self, id: str) -> list[str]:
        """The nodes that a node, an arc or a mark stands at: of an arc both ends."""
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
        """Indices of all sites that share the arc of a site; empty where it has no arc."""
        if self.shown is None:
            return ()
        for numbers in self.shown.layout.arcs.sites:
            if any(self.shown.sites[number].id == id for number in numbers):
                return numbers
        return ()

    def _receive(self, _widget: Any, message: dict[str, Any], _buffers: Any) -> None:
        kind, shown = message.get("type"), self.shown
        if kind == "turn":
            self._on_turn(self.turned(message["id"]))
        elif kind == "place" and self._on_place is not None and shown is not None:
            node = shown.node_of.get(message["node"])
            if node is not None:
                self._on_place(lanes.moved(shown.graph, shown.layout, shown.sites, message["id"], node))
        elif kind == "undo":
            self._on_undo()
        elif kind == "redo":
            self._on_redo()
        elif kind == "fold" and shown is not None:
            self._unfolded ^= {message["stem"]}
            self._kept.clear()
            self.show(shown.graph, shown.sites)
        elif kind == "relax" and shown is not None:
            self._kept.clear()
            self.show(shown.graph, shown.sites)
        elif kind == "views" and shown is not None:
            self._views = bool(message["shown"])
            self._kept.clear()
            self.show(shown.graph, shown.sites)
