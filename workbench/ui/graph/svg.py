"""Draw the graph as SVG text with the layout of the graph view, for saved notebooks and pages without a kernel."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape

from workbench.core.graph import Graph
from workbench.core.lever import Site
from workbench.summary import human_bytes, human_shape
from workbench.ui.graph import collective_lanes
from workbench.ui.graph import layout as u_layout
from workbench.ui.graph.fold_layers import LOOP
from workbench.ui.graph.layout_arrays import HEADER, SECTION, ArcShape, ArcStyle, Columns, GraphLayout
from workbench.ui.graph.node_names import short_name

MAX_HEIGHT = 2400
"""Maximum height of the picture in pixels, so that saved notebooks stay small. A higher picture is cut, with a note."""

_CHARACTER = 0.61
"""Width of a character of the monospaced font, as a share of the font size. It is slightly more than in usual fonts."""
_FILL, _STROKE, _INK, _SOFT = (
    ("#e9f1fb", "#fcefe6"),
    ("#bfd3ec", "#eccfb9"),
    ("#16406f", "#703510"),
    ("#4a6484", "#855a3d"),
)
_ARC = {ArcStyle.SAVED: "#267044", ArcStyle.RECOMPUTED: "#b04a00", ArcStyle.OFFLOADED: "#0b6b85"}
_DASH = {
    ArcStyle.SAVED: "",
    ArcStyle.RECOMPUTED: ' stroke-dasharray="6 4"',
    ArcStyle.OFFLOADED: ' stroke-dasharray="1.5 4"',
}
_OF_GROUP = ("", ' stroke-dasharray="6 3"', ' stroke-dasharray="2 3"', ' stroke-dasharray="9 3 2 3"')
_FUSION = "#8b6fd0"
INK, MUTED, _HAIR, _RULE = "#1f2328", "#59636e", "#e6e9ed", "#d0d7de"
_STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;dominant-baseline:central}"
    ".s{font-family:system-ui,'Segoe UI',Roboto,Arial,sans-serif}.b{font-weight:600}"
    ".e{text-anchor:end}.m{text-anchor:middle}"
)


def render(
    graph: Graph,
    sites: Sequence[Site],
    *,
    title: str = "",
    width: int = 900,
    max_height: int = MAX_HEIGHT,
    views: bool = True,
    head: Sequence[str] = (),
    room: float = 0.0,
) -> str:
    """Draw a graph with its sites as SVG. Identical layers are folded.

    Parameters
    ----------
    graph : Graph
    sites : sequence of Site
        Sites of values are drawn as arcs. Sites of collectives are drawn as bars beside the columns.
    title : str
        Text above the picture, also for screen readers.
    width, max_height : int
        Size in pixels.
    views : bool
        Whether to draw views, which are statements that own no memory.
    head : sequence of str
        SVG elements between title and graph.
    room : float
        Height of `head`, in pixels.

    Returns
    -------
    str
        A self-contained ``<svg>`` element.
    """
    layout = u_layout.compute(graph, sites, views=views)
    bars = collective_lanes.bars(graph, layout, sites)
    columns = Columns.fit(width, collective_lanes.LANE if len(bars) else 0.0)
    top = 30.0 if title else 0.0
    height = min(layout.height, max_height)
    parts = [
        *_lines(graph, layout, columns, height),
        *_sections(layout, columns, height),
        *_runs(layout, columns, height),
        *_arcs(layout, columns, height),
        *_bars(bars, columns, height),
        *_nodes(graph, sites, layout, columns, height),
        *_heads(columns),
    ]
    if height < layout.height:
        rest = "The rest is in the app."
        parts.append(f'<rect y="{height - 28:g}" width="{columns.width:g}" height="28" fill="#ffffff"/>')
        parts.append(text(columns.label[0], height - 14, rest, "s", MUTED))
    first = text(columns.label[0], 16, shorten_words(title, columns.width - 24, 12), "s b", INK) if title else ""
    above = f'<g transform="translate(0 {top:g})">{"".join(head)}</g>' if head else ""
    top += room
    return (
        f'<svg class="wb-picture" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns.width:g} {height + top:g}" '
        f'width="{columns.width:g}" height="{height + top:g}" style="max-width:100%;height:auto" role="img" '
        f'aria-label="{escape(title, quote=True)}">'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#ffffff"/>{first}{above}'
        f'<g transform="translate(0 {top:g})">{"".join(parts)}</g></svg>'
    )


def text(x: float, y: float, words: str, classes: str = "", fill: str = INK) -> str:
    """Return an SVG text with its middle at height `y`; return an empty string if there are no words."""
    named = f' class="{classes}"' if classes else ""
    return f'<text x="{x:g}" y="{y:g}"{named} fill="{fill}">{escape(words)}</text>' if words else ""


def shorten_words(words: str, width: float, size: float = 11) -> str:
    """Shorten `words` to a width of `width` pixels in the monospaced font."""
    room = int(width / (size * _CHARACTER))
    return words if len(words) <= room else f"{words[: max(0, room - 1)].rstrip()}…" if room > 1 else ""


def wrap(words: str, width: float, size: float = 11) -> list[str]:
    """Split `words` into lines of at most `width` pixels in the monospaced font. Longer words are shortened."""
    lines = textwrap.wrap(
        words, max(1, int(width / (size * _CHARACTER))), break_long_words=False, break_on_hyphens=False
    )
    return [shorten_words(line, width, size) for line in lines]


def rule(x: float, y: float, width: float, height: float) -> str:
    """Draw a box with only its border visible."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="none" stroke="{_HAIR}"/>'


def arc_sample(style: ArcStyle) -> str:
    """Draw a sample line in an arc style, 28 pixels long."""
    return f'<path d="M0 0H28" fill="none" stroke="{_ARC[style]}" stroke-width="2.5"{_DASH[style]}/>'


def fusion_sample() -> str:
    """Draw a sample box in the style of fusions."""
    return f'<rect y="-6" width="28" height="12" rx="3" fill="{_FUSION}" fill-opacity="0.08" stroke="{_FUSION}"/>'


def between_sample() -> str:
    """Draw a sample line in the style of arcs between fusions."""
    return f'<path d="M0 0H28" fill="none" stroke="{_FUSION}" stroke-width="1.25"/>'


def ghost_sample() -> str:
    """Draw a sample box for a value that the forward no longer makes."""
    ink = _ARC[ArcStyle.RECOMPUTED]
    return f'<rect y="-6" width="28" height="12" rx="3" fill="none" stroke="{ink}" stroke-dasharray="4 3"/>'


def bar_sample() -> str:
    """Draw a sample bar of a collective: the end at the wait is filled."""
    return _bar((4.0, 0.0), (24.0, 0.0), 0)


def _bar(issue: tuple[float, float], wait: tuple[float, float], group: int) -> str:
    ink, (x0, y0), (x1, y1) = _ARC[ArcStyle.OFFLOADED], issue, wait
    dash = _OF_GROUP[max(group, 0) % len(_OF_GROUP)]
    end = f'r="3.5" stroke="{ink}" stroke-width="1.5"'
    return (
        f'<path d="M{x0:g} {y0:g}L{x1:g} {y1:g}" stroke="{ink}" stroke-width="2.5"{dash}/>'
        f'<circle cx="{x0:g}" cy="{y0:g}" fill="#ffffff" {end}/><circle cx="{x1:g}" cy="{y1:g}" fill="{ink}" {end}/>'
    )


def _bars(bars: collective_lanes.Bars, columns: Columns, limit: float) -> list[str]:
    """Draw the bars of collectives beside the columns."""
    parts = []
    each = (column.tolist() for column in (bars.side, bars.column, bars.group, bars.y0, bars.y1))
    for side, column, group, y0, y1 in zip(*each, strict=True):
        if min(y0, y1) > limit:
            continue
        out = collective_lanes.FIRST + collective_lanes.STEP * column
        x = columns.forward[0] - out if side == 0 else columns.backward[1] + out
        # Keep the ends of bars below the column headings, which would cover them.
        parts.append(_bar((x, max(y0, HEADER + 6)), (x, max(y1, HEADER + 6)), group))
    return parts


def _heads(columns: Columns) -> list[str]:
    left, right = columns.forward[1], columns.backward[0]
    return [
        f'<rect width="{columns.width:g}" height="{HEADER - 1:g}" fill="#ffffff"/>',
        f'<rect y="{HEADER - 1:g}" width="{columns.width:g}" height="1" fill="{_RULE}"/>',
        text(columns.label[0], HEADER / 2, "program", "s b", MUTED),
        text(columns.forward[0], HEADER / 2, "forward ↓", "s b", _INK[0]),
        text((left + right) / 2, HEADER / 2, "saved for backward" if right - left > 140 else "saved", "s b m", MUTED),
        text(columns.backward[0], HEADER / 2, "↑ backward", "s b", _INK[1]),
    ]


def _lines(graph: Graph, layout: GraphLayout, columns: Columns, limit: float) -> list[str]:
    parts = []
    left, right = columns.label
    for block, y, height in zip(
        layout.lines.block.tolist(), layout.lines.y.tolist(), layout.lines.height.tolist(), strict=True
    ):
        if y > limit:
            break
        parts.append(f'<rect x="{left:g}" y="{y:g}" width="{columns.width - left:g}" height="1" fill="{_HAIR}"/>')
        origin = int(layout.blocks.origin[block])
        if origin < 0:
            continue
        source = graph.origins[origin]
        place = f"{source.file}:{source.line}" if source.file else ""
        parts.append(text(left, y + 11, shorten_words(source.text.strip() or source.symbol, right - left)))
        if height >= 34:
            place = "  ·  ".join(part for part in (place, source.scope) if part)
            parts.append(text(left, y + 26, shorten_words(place, right - left), "s", MUTED))
    return parts


def _sections(layout: GraphLayout, columns: Columns, limit: float) -> list[str]:
    parts = []
    for section in layout.sections:
        if section.y > limit:
            break
        parts.append(f'<rect y="{section.y:g}" width="{columns.width:g}" height="{SECTION:g}" fill="#f6f8fa"/>')
        what = "repeats" if section.stem.startswith(LOOP) else "layers"
        name = (
            section.first
            if section.count == 1
            else f"{section.first} … {section.last}, {section.count} identical {what}"
        )
        parts.append(text(columns.label[0], section.y + SECTION / 2, name, "s b"))
    return parts


def _runs(layout: GraphLayout, columns: Columns, limit: float) -> list[str]:
    parts = []
    sides = (columns.forward, columns.backward)
    for side, y, height in zip(
        layout.runs.side.tolist(), layout.runs.y.tolist(), layout.runs.height.tolist(), strict=True
    ):
        if y > limit:
            continue
        left, right = sides[side]
        parts.append(
            f'<rect x="{left - 4:g}" y="{y - 2:g}" width="{right - left + 8:g}" height="{height + 4:g}" rx="5" '
            f'fill="{_FUSION}" fill-opacity="0.08" stroke="{_FUSION}"/>'
        )
    return parts


def _arcs(layout: GraphLayout, columns: Columns, limit: float) -> list[str]:
    arcs = layout.arcs
    curves, labels = [], []
    most = float(arcs.bytes.max(initial=1))
    for i in range(len(arcs)):
        y0, y1, style = float(arcs.y0[i]), float(arcs.y1[i]), ArcStyle(int(arcs.style[i]))
        if min(y0, y1) > limit:
            continue
        color, thick = _ARC[style], 1 + 3 * (float(arcs.bytes[i]) / most) ** 0.5
        x0, x1 = columns.forward[1], columns.backward[0]
        if arcs.shape[i] == ArcShape.SIDE:
            forward = arcs.side[i] == 0
            x = x0 if forward else x1
            out = x + min(46.0, 20 + abs(y1 - y0) * 0.12) * (1 if forward else -1)
            path, thick = f"M{x:g} {y0:g}C{out:g} {y0:g} {out:g} {y1:g} {x:g} {y1:g}", 1.25
            color = _FUSION if style is ArcStyle.SAVED else color
        else:
            middle = (x0 + x1) / 2
            path = f"M{x0:g} {y0:g}C{middle:g} {y0:g} {middle:g} {y1:g} {x1:g} {y1:g}"
            count = len(arcs.peers[i])
            size = human_bytes(int(arcs.bytes[i])) + (f" × {count}" if count > 1 else "")
            labels.append(
                f'<rect x="{x0 + 6:g}" y="{y0 - 7:g}" width="{len(size) * 6.75 + 10:g}" height="14" rx="7" '
                f'fill="#ffffff" stroke="{color}" stroke-opacity="0.55"/>' + text(x0 + 11, y0, size, "", color)
            )
        curves.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{thick:.2f}"{_DASH[style]}/>')
    return curves + labels


def _nodes(graph: Graph, sites: Sequence[Site], layout: GraphLayout, columns: Columns, limit: float) -> list[str]:
    parts = []
    nodes, sides = layout.nodes, (columns.forward, columns.backward)
    for i, statement in enumerate(nodes.statement.tolist()):
        y, height, side = float(nodes.y[i]), float(nodes.height[i]), int(nodes.side[i])
        if y > limit:
            continue
        left, right = sides[side]
        middle = y + height / 2
        if statement < 0:
            name = sites[int(nodes.ghost[i])].values[0]
            box = f'fill="none" stroke="{_ARC[ArcStyle.RECOMPUTED]}" stroke-dasharray="4 3"'
            ink, detail = _ARC[ArcStyle.RECOMPUTED], ""
        else:
            name = short_name(graph.statements.name[statement])
            if nodes.heading[i]:
                parts.append(text(left + 4, middle, shorten_words(name, right - left - 8), "s b", "#5b3aa8"))
                continue
            box = f'fill="{_FILL[side]}" stroke="{_STROKE[side]}"'
            outputs = graph.statements.outputs[statement]
            shape = human_shape(graph.values.shape[int(outputs[0])]) if len(outputs) else ""
            ink, detail = _INK[side], shape
        name = shorten_words(name, right - left - 14)
        parts.append(f'<rect x="{left:g}" y="{y:g}" width="{right - left:g}" height="{height:g}" rx="3.5" {box}/>')
        parts.append(text(left + 7, middle, name, "", ink))
        if (len(name) + len(detail) + 2) * 11 * _CHARACTER < right - left - 14:
            parts.append(text(right - 7, middle, detail, "e", _SOFT[side]))
    return parts
