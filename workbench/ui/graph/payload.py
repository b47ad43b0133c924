"""The canvas's data for a graph: tables of ``[type code, bytes]`` columns, and the strings to which columns refer."""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workbench.core.graph import BACKWARD, FORWARD, Graph, Kind, Ragged, StatementFlag, ValueFlag
from workbench.core.lever import Site, lever_named
from workbench.summary import human_bytes, human_shape
from workbench.ui.graph import collective_lanes
from workbench.ui.graph.composite_rows import parts_of
from workbench.ui.graph.counterparts import counterpart_key, counterparts
from workbench.ui.graph.hide_views import views_of
from workbench.ui.graph.layout_arrays import ArcStyle, GraphLayout
from workbench.ui.graph.module_labels import ModuleSpan, modules_of
from workbench.ui.graph.node_names import next_option, node_ids, short_name
from workbench.util.last_call_cache import Remembered

HEADING, GHOST, RANDOM, CLONE, VIEW, COLLECTIVE, MOMENT, COMPOSITE = 1, 2, 4, 8, 16, 32, 64, 128
"""Bits of a node's flags. ``graph_scene.js`` uses the same names."""
CHANGED, FIXED = 1, 2
"""Bits of a mark's state: the choice differs from stock; the site has no other legal option."""

_VERBS = {ArcStyle.SAVED: "saved for the backward", ArcStyle.RECOMPUTED: "recomputed in the backward"}
_VERBS[ArcStyle.OFFLOADED] = "kept on the CPU until the backward"


class Strings(dict[str, int]):
    """A table of distinct texts. A look-up returns the index of a text, and adds a text that is new."""

    def column(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Return the index of each text in `texts`, and add new texts."""
        for text in dict.fromkeys(texts):
            self.setdefault(text, len(self))
        return np.asarray(list(map(self.__getitem__, texts)), np.int32)


def payload(
    graph: Graph,
    layout: GraphLayout,
    sites: Sequence[Site],
    ids: Sequence[str] | None = None,
    *,
    read_only: bool = False,
    remembered: Remembered | None = None,
) -> dict[str, Any]:
    """Return the canvas's data: tables with columns ``[type code, bytes]``, and the strings to which columns refer.

    Parameters
    ----------
    graph : Graph
    layout : GraphLayout
        Layout of the graph and its sites.
    sites : sequence of Site
    ids : sequence of str, optional
        Node ids, if the caller has computed them.
    read_only : bool
        Whether the user cannot choose anything. Tooltips then do not describe clicks, and menus have no options.
    remembered : Remembered, optional
        Cache with unchanged parts of an earlier drawing. It does not change the result.
    """
    strings, remembered = Strings(), remembered or Remembered()
    acts = not read_only
    ids = node_ids(graph, layout, sites) if ids is None else ids
    blocks, lines, runs, arcs = layout.blocks, layout.lines, layout.runs, layout.arcs
    tables: dict[str, dict[str, NDArray[Any]]] = {
        "node": {"id": strings.column(ids), **_node_columns(graph, layout, sites, strings, remembered)},
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
            "tip": strings.column(_arc_tips(graph, layout, sites, remembered, acts=acts)),
        },
        "mark": {
            "node": layout.marks.node,
            "place": layout.marks.place,
            "id": strings.column([sites[number].id for number in layout.marks.site]),
            "text": strings.column([sites[n].outcome or sites[n].choice for n in layout.marks.site]),
            "tip": strings.column([_mark_tip(layout, sites, i, acts) for i in range(len(layout.marks))]),
            "state": np.asarray([_mark_state(sites[number]) for number in layout.marks.site], np.uint8),
        },
        "bar": _bar_columns(collective_lanes.bars(graph, layout, sites), sites, graph.groups, strings, acts),
        "edge": _edges(graph, layout),
        "module": _module_columns(modules_of(graph, layout), strings),
        "alias": _aliases(layout, sites, strings),
        "choice": _choices(layout, sites if acts else (), strings, remembered),
    }
    return {
        "strings": list(strings),
        "sections": [vars(section) for section in layout.sections],
        "height": layout.height,
        "views": {"count": int(views_of(graph).sum()), "hidden": int(layout.hidden.sum())},
        "tables": {
            table: {name: [_code(column), column.tobytes()] for name, column in columns.items()}
            for table, columns in tables.items()
        },
    }


PACKED_FROM = 100_000
"""Data of at least this many bytes are compressed before they are sent to the page."""


def pack(picture: dict[str, Any]) -> dict[str, Any]:
    """Compress the result of `payload` for ``graph_scene.js``.

    Returns
    -------
    dict
        ``packed``: compressed bytes. They contain the length of a JSON document in four bytes, the document, the
        strings and the columns. The document has the lengths of the strings and columns. The strings are joined by a
        character that no string contains, because the page splits such a text faster than it reads a JSON list. A small
        `picture` is returned unchanged.
    """
    columns = [column for table in picture["tables"].values() for column in table.values()]
    if sum(len(content) for _, content in columns) + sum(map(len, picture["strings"])) < PACKED_FROM:
        return picture
    small = {
        name: {column: _narrow_column(code, content) for column, (code, content) in table.items()}
        for name, table in picture["tables"].items()
    }
    lengths = {
        name: {column: [code, len(content)] for column, (code, content) in table.items()}
        for name, table in small.items()
    }
    texts = _SEPARATOR.join([text.replace(_SEPARATOR, "") for text in picture["strings"]]).encode()
    head = json.dumps({**picture, "strings": len(texts), "tables": lengths}, separators=(",", ":")).encode()
    behind = (content for table in small.values() for _, content in table.values())
    content = b"".join([len(head).to_bytes(4, "little"), head, texts, *behind])
    return {"packed": zlib.compress(content, _LEVEL)}


def _narrow_column(code: str, content: bytes) -> tuple[str, bytes]:
    """Convert an int32 column to uint16 if all its numbers fit; return any other column unchanged."""
    if code == "i":
        numbers = np.frombuffer(content, np.int32)
        if len(numbers) and numbers.min() >= 0 and numbers.max() < 1 << 16:
            return "h", numbers.astype(np.uint16).tobytes()
    return code, content


_SEPARATOR = "\0"
_LEVEL = 1
"""Compression level. Higher levels take several times as long and save only a tenth of the size."""


def _module_columns(modules: Sequence[ModuleSpan], strings: Strings) -> dict[str, NDArray[Any]]:
    return {
        "y": np.asarray([module.y for module in modules], np.float32),
        "height": np.asarray([module.height for module in modules], np.float32),
        "depth": np.asarray([module.depth for module in modules], np.int32),
        "forward": np.asarray([module.forward for module in modules], np.int32),
        "backward": np.asarray([module.backward for module in modules], np.int32),
        "scope": strings.column([module.scope for module in modules]),
        "name": strings.column([module.name for module in modules]),
        "short": strings.column([module.short for module in modules]),
        "forward_ops": strings.column([module.operations[FORWARD] for module in modules]),
        "backward_ops": strings.column([module.operations[BACKWARD] for module in modules]),
        "saved": strings.column([human_bytes(m.saved_bytes) if m.saved_bytes else "" for m in modules]),
    }


def _code(column: NDArray[Any]) -> str:
    return {"float32": "f", "float64": "d", "int32": "i", "int8": "b", "uint8": "b", "bool": "b"}[column.dtype.name]


def _symbol(graph: Graph, origin: int) -> str:
    return graph.origins[origin].symbol if origin >= 0 else ""


def _value_words(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> list[tuple[str, str]]:
    """Return, for each value, its shape and its name with the shape. The last entry, for index -1, is empty."""
    shape_of = functools.cache(human_shape)
    return [*((at, f"{name} {at}") for name, at in zip(names, map(shape_of, shapes), strict=True)), ("", "")]


def _node_columns(
    graph: Graph, layout: GraphLayout, sites: Sequence[Site], strings: Strings, remembered: Remembered
) -> dict[str, NDArray[Any]]:
    nodes, statements, values = layout.nodes, graph.statements, graph.values
    rows, waits, parts = nodes.statement.tolist(), nodes.waits.tolist(), nodes.parts.tolist()
    made = _tensors_made(graph)
    count, start = np.diff(made.offsets), made.offsets[:-1]
    is_ghost = nodes.statement < 0
    taken = count[nodes.statement] * ~is_ghost if len(statements) else np.zeros(len(nodes), np.int64)
    has = taken > 0
    first = np.full(len(nodes), -1, np.intp)
    first[has] = made.items[start[nodes.statement[has]]]
    totals = np.concatenate([[0], np.cumsum(values.bytes[made.items])])
    size = np.zeros(len(nodes), np.float64)
    size[has] = (totals[made.offsets[1:]] - totals[start])[nodes.statement[has]]
    size[nodes.parts > 0] = 0
    names, executors = statements.name, statements.executor
    words = remembered.result_of(_value_words, values.name, values.shape)
    # Most nodes make one tensor. Use the texts of the first tensor here; the loop below replaces them where needed.
    shape, detail = map(list, zip(*map(words.__getitem__, first.tolist()), strict=True)) if len(nodes) else ([], [])
    full = [names[row] if row >= 0 else "" for row in rows]
    short_of = {name: short_name(name) for name in set(full)}
    name = list(map(short_of.__getitem__, full))
    executor = [executors[row] if row >= 0 else "" for row in rows]
    abouts = [_place_in_program(graph, origin) for origin in layout.blocks.origin.tolist()]
    about = list(map(abouts.__getitem__, nodes.block.tolist()))

    def tensors_text(row: int) -> str:
        tensors = made[row].tolist()
        listed = ", ".join(words[value][1] for value in tensors[:3])
        return f"{listed} and {len(tensors) - 3} more" if len(tensors) > 3 else listed

    members = np.bincount(statements.parent[statements.parent >= 0], minlength=len(statements))
    others = is_ghost | nodes.heading | (nodes.waits != 0) | (nodes.parts != 0) | (taken > 1)
    for node in np.flatnonzero(others).tolist():
        row, origin = rows[node], int(layout.blocks.origin[nodes.block[node]])
        if row < 0:
            ghost = sites[nodes.ghost[node]]
            name[node] = ghost.values[0]
            full[node] = f"{ghost.label}: the forward does not make it any more"
            detail[node] = "not in the forward"
        elif parts[node] > 0 and origin >= 0:
            within = parts_of(graph, layout, node)
            symbol = _symbol(graph, origin)
            name[node] = f"▸ {symbol}"
            full[node] = f"{symbol}: {len(within)} statements shown as one"
            listed = ", ".join(short_name(names[one]) for one in within)
            detail[node] = f"{listed}: double-click, or press Enter, to show each"
            shape[node] = f"{len(within)} statements"
            executor[node] = ""
        elif nodes.heading[node]:
            detail[node] = f"{members[row]} op{'s' * (int(members[row]) != 1)}"
        elif waits[node] > 1:
            name[node] = f"{waits[node]} {name[node]}s"
            detail[node] = f"{waits[node]} adjacent waits: double-click, or press Enter, to show each"
        elif waits[node] < 0:
            name[node] = f"▾ {name[node]}"
            one = f"{-waits[node]} adjacent waits: double-click, or press Enter, to show them as one"
            detail[node] = f"{tensors_text(row)}; {one}"
        elif parts[node]:
            name[node] = f"▾ {name[node]}"
            one = f"{-parts[node]} statements of {_symbol(graph, origin)}: double-click, or press Enter, to show one"
            detail[node] = f"{tensors_text(row)}; {one}"
        else:
            detail[node] = tensors_text(row)
    return {
        "y": nodes.y,
        "height": nodes.height,
        "side": nodes.side,
        "flags": _node_flags(graph, layout),
        "bytes": size,
        "name": strings.column(name),
        "full": strings.column(full),
        "detail": strings.column(detail),
        "shape": strings.column(shape),
        "executor": strings.column(executor),
        "about": strings.column(about),
    }


def _tensors_made(graph: Graph) -> Ragged:
    """Return, for each statement, the tensors that it makes."""
    outputs = graph.statements.outputs
    tensor = graph.values.flags[outputs.items] & ValueFlag.TENSOR.value != 0
    before = np.concatenate([[0], np.cumsum(tensor)])
    return Ragged(before[outputs.offsets].astype(np.int32), outputs.items[tensor])


def _place_in_program(graph: Graph, origin: int) -> str:
    """Describe the place of a block in the program: module, file, line and source text."""
    if origin < 0:
        return ""
    source = graph.origins[origin]
    where = f"{source.scope}  {source.file}:{source.line}".strip()
    return f"{where}\n{source.text}" if source.text else where


def _node_flags(graph: Graph, layout: GraphLayout) -> NDArray[np.uint8]:
    """Return the canvas's flags for each node."""
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
        (COMPOSITE, nodes.parts),
        (COLLECTIVE, np.isin(kind, (Kind.COLLECTIVE, Kind.WAIT))),
    )
    flags = sum((flag * (where != 0) for flag, where in marked), np.zeros(len(nodes), np.int64))
    # A composite counts as recomputed only if all its statements are recomputed.
    whole = {node: parts_of(graph, layout, node) for node in np.flatnonzero(nodes.parts > 0).tolist()}
    partly = [n for n, rows in whole.items() if not (statements.flags[rows] & StatementFlag.CLONE.value).all()]
    flags[partly] &= ~CLONE
    return np.where(nodes.statement < 0, GHOST, flags).astype(np.uint8)


def _line_columns(graph: Graph, layout: GraphLayout, strings: Strings) -> dict[str, NDArray[Any]]:
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
    bars: collective_lanes.Bars, sites: Sequence[Site], groups: Sequence[int], strings: Strings, acts: bool
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


def _bar_tip(bars: collective_lanes.Bars, sites: Sequence[Site], groups: Sequence[int], bar: int, acts: bool) -> str:
    issue, wait = sites[bars.issue[bar]], sites[bars.wait[bar]]
    others = f" and {bars.count[bar] - 1} others at the same place" if bars.count[bar] > 1 else ""
    group = int(bars.group[bar])
    within = f"\nprocess group {group + 1} of {len(groups)}: {groups[group]} ranks" if group >= 0 else ""
    layers = len(bars.peers[bar])
    moved = f"this collective in {layers} layers" if layers > 1 else "this collective"
    turning = f"\nDrag an end, or press [ and ] while it is selected, to move {moved}." if acts else ""
    return (
        f"{issue.label}{others}{within}\n{human_bytes(issue.bytes)}; "
        f"issued: {issue.outcome}, waited for: {wait.outcome}\n"
        f"legal: {issue.range}{turning}"
    )


def _arc_label(layout: GraphLayout, arc: int) -> str:
    count = len(layout.arcs.peers[arc])
    return human_bytes(int(layout.arcs.bytes[arc])) + (f" × {count}" if count > 1 else "")


def _mark_state(site: Site) -> int:
    return CHANGED * (site.choice != site.default) | FIXED * (next_option(site) is None)


def _mark_tip(layout: GraphLayout, sites: Sequence[Site], mark: int, acts: bool) -> str:
    site = sites[layout.marks.site[mark]]
    what = "waits" if layout.nodes.waits[layout.marks.node[mark]] > 1 else "layers"
    return "\n".join(
        [site.label, *_site_state(site), *(_click_text(site, len(layout.marks.peers[mark]), what) if acts else ())]
    )


def _site_state(site: Site) -> list[str]:
    """Return a site's choice, its outcome, and the refused options."""
    differs = site.outcome and site.outcome != site.choice
    state = f"{site.choice}, in effect: {site.outcome}" if differs else site.choice
    return [f"{site.lever}, set to: {state}", *(f"{o} refused: {why}" for o, why in site.illegal.items())]


def _click_text(site: Site, count: int, noun: str = "layers") -> list[str]:
    """Describe the effect of a double click on a site."""
    turning = next_option(site)
    return [f"double click: {turning}" + (f" in all {count} {noun}" if count > 1 else "")] if turning else []


def _arc_tips(
    graph: Graph, layout: GraphLayout, sites: Sequence[Site], remembered: Remembered, *, acts: bool
) -> list[str]:
    """Return the tooltip of each arc: its value, the outcome, the choice and the options."""
    arcs = layout.arcs
    numbers = [number for of_arc in arcs.sites for number in of_arc]
    told = iter(remembered.results_of_each(_site_state, [sites[number] for number in numbers]))
    words = remembered.result_of(_value_words, graph.values.name, graph.values.shape)
    tips = []
    for arc, (of_arc, style) in enumerate(zip(arcs.sites, arcs.style.tolist(), strict=True)):
        first = sites[of_arc[0]]
        value = next((graph.value_index[name] for name in first.values if name in graph.value_index), None)
        shape = "" if value is None else f" {words[value][0]}"
        rows = [f"{first.values[0]}{shape}, {_arc_label(layout, arc)}", _VERBS[ArcStyle(style)]]
        for _ in of_arc:
            rows.extend(next(told))
        tips.append("\n".join([*rows, *(_click_text(first, len(arcs.peers[arc])) if acts else ())]))
    return tips


def _edges(graph: Graph, layout: GraphLayout) -> dict[str, NDArray[Any]]:
    """Return all pairs of nodes in which the first node produces a value that the second node reads."""
    inputs = graph.statements.inputs
    reader = np.repeat(np.arange(len(graph.statements)), np.diff(inputs.offsets))
    made = np.full(len(graph.values), -1, np.int32)
    outputs = graph.statements.outputs
    maker = np.repeat(np.arange(len(graph.statements)), np.diff(outputs.offsets))
    # The last assignment to an entry wins. Assign fusions before other statements, and later statements before earlier
    # statements: a member then replaces its fusion, and the first producer replaces all others.
    fusions = np.zeros(len(graph.statements), bool)
    fusions[graph.statements.parent[graph.statements.parent >= 0]] = True
    order = np.argsort(fusions[maker], kind="stable")[::-1]
    made[outputs.items[order]] = maker[order]
    producer = made[inputs.items] if len(inputs.items) else np.zeros(0, np.int32)
    keep = (producer >= 0) & ~fusions[reader]
    source, target = layout.node_of[producer[keep]], layout.node_of[reader[keep]]
    drawn = (source >= 0) & (target >= 0) & (source != target)
    # Sort by source, then by target.
    pairs = np.unique(source[drawn].astype(np.int64) * len(layout.nodes) + target[drawn])
    source, target = np.divmod(pairs, max(len(layout.nodes), 1))
    return {"source": source.astype(np.int32), "target": target.astype(np.int32)}


def _choices(
    layout: GraphLayout, sites: Sequence[Site], strings: Strings, remembered: Remembered
) -> dict[str, NDArray[Any]]:
    """Return the sites of arcs and marks at which another option is legal, with these options, for the menu.

    ``count`` is the number of sites that the arc or mark stands for, ``layers`` the number of layers with such a site.
    """
    places = [(arc, -1, number) for arc, numbers in enumerate(layout.arcs.sites) for number in numbers]
    places += [(-1, mark, number) for mark, number in enumerate(layout.marks.site)]
    shown = [sites[number] for *_, number in places] if sites else []
    told = remembered.results_of_each(_other_options, shown)
    found = [(place, site, others) for place, site, others in zip(places, shown, told, strict=False) if others]
    titles = {name: lever_named(name).title for name in {site.lever for _, site, _ in found}}
    alike = [*layout.arcs.peers, *layout.marks.peers]
    drawn = [len(alike[arc if arc >= 0 else len(layout.arcs) + mark]) for (arc, mark, _), *_ in found]
    layers = counterparts(sites)
    return {
        "arc": np.asarray([arc for (arc, *_), *_ in found], np.int32),
        "mark": np.asarray([mark for (_, mark, _), *_ in found], np.int32),
        "id": strings.column([site.id for _, site, _ in found]),
        "lever": strings.column([titles[site.lever] for _, site, _ in found]),
        "now": strings.column([site.choice for _, site, _ in found]),
        "others": strings.column([others for *_, others in found]),
        "count": np.asarray(drawn, np.int32),
        "layers": np.asarray([len(layers.get(counterpart_key(site.id), ())) for _, site, _ in found], np.int32),
    }


def _other_options(site: Site) -> str:
    """Return the legal options of a site that are not chosen, each on its own line."""
    return "\n".join(option for option in site.options if option not in site.illegal and option != site.choice)


def _aliases(layout: GraphLayout, sites: Sequence[Site], strings: Strings) -> dict[str, NDArray[Any]]:
    """Return the further sites of each arc and mark, after the first: sites of other levers, and of folded layers."""
    numbers: list[int] = []
    counts = []
    for of_arc, peers in zip(layout.arcs.sites, layout.arcs.peers, strict=True):
        others = {*of_arc[1:], *peers} - {of_arc[0]}
        numbers += others
        counts.append(len(others))
    of_arcs = len(numbers)
    for first, peers in zip(layout.marks.site, layout.marks.peers, strict=True):
        others = {*peers} - {first}
        numbers += others
        counts.append(len(others))
    owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    rest = len(numbers) - of_arcs
    return {
        "id": strings.column([sites[number].id for number in numbers]),
        "arc": np.append(owner[:of_arcs], np.full(rest, -1, np.int32)),
        "mark": np.append(np.full(of_arcs, -1, np.int32), owner[of_arcs:] - np.int32(len(layout.arcs))),
    }
