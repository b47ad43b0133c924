"""The picture of the app in a notebook's file: figures, choices, graph and legend. It follows changes of the app."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.core.graph import Kind
from workbench.summary import text_summary
from workbench.ui.app.app import App
from workbench.ui.controls.messages import title_of_picture
from workbench.ui.graph import svg
from workbench.ui.graph.layout_arrays import ArcStyle

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.core.lever import Site

_LOGGER = logging.getLogger(__name__)

QUIET_S = 1.0
"""Time without a change after which the picture is updated. Users often make several choices within a short time."""
WIDTH = 900
MOST_CHOICES = 12
_LEAST_LINES = 6
_WIDE, _NARROW, _SMALL = 6.8, 6.0, 10
"""`_WIDE` and `_NARROW` are the maximum widths of a character in the monospaced and in the proportional font, in
pixels. With the font size `_SMALL`, the monospaced font is about as wide as the proportional font; `svg.wrap` assumes
the monospaced font.
"""
_LINE, _LEAST_CELL, _PAD = 15, 120, 12
_GOOD, _BAD = "#1a6b3c", "#b3261e"
_LEGEND = {
    "saved": (svg.arc_sample(ArcStyle.SAVED), "saved for the backward"),
    "recomputed": (svg.arc_sample(ArcStyle.RECOMPUTED), "recomputed in the backward"),
    "offloaded": (svg.arc_sample(ArcStyle.OFFLOADED), "on the CPU meanwhile"),
    "fusion": (svg.fusion_sample(), "fusion"),
    "between": (svg.between_sample(), "between fusions"),
    "ghost": (svg.ghost_sample(), "not made in the forward any more"),
    "collective": (svg.bar_sample(), "collective, from where it is issued to where it is waited for (filled)"),
}


def show_bench(bench: Workbench, place: str = "", *, tab: bool = False) -> None:
    """Display a bench in a notebook: the app, and a picture for pages without a kernel.

    The app opens at `place`. With `tab`, a page with tabs also opens the app in a tab.

    The picture is a separate output; ``style.css`` hides it while the app has a kernel. If one output had both the
    widget and the picture, JupyterLab would show the widget even without a kernel.
    """
    from IPython.core.getipython import get_ipython
    from IPython.display import display

    app = App(bench, tab=tab, place=place)
    display(_live_output(app), raw=True)
    kept = display(data_of(render_app(app)), raw=True, display_id=True)
    # Update the picture only in a notebook, because a terminal would print each update again.
    if kept is not None and hasattr(get_ipython(), "kernel"):
        NotebookPicture(app, lambda data: kept.update(data, raw=True))


def _live_output(app: App) -> dict[str, Any]:
    """Return the output with the app, and with a text for pages that show neither the app nor the picture."""
    return {**app.root._repr_mimebundle_(), "text/plain": text_summary(app.bench)}


def render_app(app: App) -> str:
    """Return a picture of the app in its present state, as self-contained SVG text."""
    bench = app.bench
    head = Head(WIDTH)
    head.figures(app.strip.content["figures"])
    head.choices([group for group in app.graph.groups() if group[0].choice != group[0].default])
    plan, title = bench.plan, title_of_picture(bench)
    some = {
        "between": plan.census.count > 0,
        "collective": bool((plan.graph.statements.kind == Kind.COLLECTIVE).any()),
    }
    head.legend(name for name in _LEGEND if some.get(name, True))
    return svg.render(plan.graph, plan.sites, title=title, width=WIDTH, views=False, head=head.parts, room=head.y)


class Head:
    """The area of the picture above the graph. It is drawn from the top down.

    Parameters
    ----------
    width : int
        Width in pixels.

    Attributes
    ----------
    parts : list of str
        SVG elements.
    y : float
        Total height in pixels.
    """

    def __init__(self, width: int) -> None:
        self.parts: list[str] = []
        self.y = 0.0
        self._width = width

    def figures(self, figures: Sequence[Mapping[str, Any]]) -> None:
        """Draw the strip of figures, from `workbench.ui.controls.figure_strip.figures`."""
        columns = max(1, min(len(figures), (self._width - 2 * _PAD) // _LEAST_CELL))
        wide = (self._width - 2 * _PAD) / columns
        cells = [
            [
                *([(0.0, title, "s", svg.MUTED)] for title in svg.wrap(figure["title"], wide - 12, _SMALL)),
                *(line for value in figure["values"] for line in _value_lines(value, wide - 12)),
            ]
            for figure in figures
        ]
        tall = _LINE * max(_LEAST_LINES, *map(len, cells)) + 11
        for number, lines in enumerate(cells):
            x, y = _PAD + wide * (number % columns), self.y + tall * (number // columns)
            self.parts.append(svg.rule(x, y, wide, tall))
            for row, line in enumerate(lines):
                self.parts += [svg.text(x + 8 + right, y + 13 + _LINE * row, *words) for right, *words in line]
        self.y += tall * -(-len(figures) // columns) + 8

    def choices(self, groups: Sequence[Sequence[Site]]) -> None:
        """List choices that differ from stock, with one line for sites that are set together."""
        shown = [
            f"{sites[0].choice}: {sites[0].id}" + (f"  × {len(sites)}" if len(sites) > 1 else "") for sites in groups
        ]
        heading = "Choices in force" if shown else "No choices"
        self._line(heading, "s b")
        for words in shown[:MOST_CHOICES]:
            self._line(words)
        if len(shown) > MOST_CHOICES:
            self._line(f"and {len(shown) - MOST_CHOICES} more", "s", svg.MUTED)
        self.y += 6

    def legend(self, names: Iterable[str]) -> None:
        """Draw the legend for the entries of `_LEGEND` called `names`, on as many lines as it needs."""
        x = float(_PAD)
        for sample, words in map(_LEGEND.__getitem__, names):
            # A character is at most 6.2 pixels wide.
            if x + 34 + 6.2 * len(words) > self._width + _PAD:
                x, self.y = float(_PAD), self.y + 18
            self.parts.append(f'<g transform="translate({x:g} {self.y + 8:g})">{sample}</g>')
            self.parts.append(svg.text(x + 34, self.y + 8, words, "s", svg.MUTED))
            x += 34 + 6.2 * len(words) + 16
        self.y += 24

    def _line(self, words: str, classes: str = "", fill: str = svg.INK) -> None:
        self.parts.append(svg.text(_PAD, self.y + 8, svg.shorten_words(words, self._width - 2 * _PAD), classes, fill))
        self.y += _LINE + 1


def _value_lines(value: Mapping[str, Any], width: float) -> list[list[tuple[float, str, str, str]]]:
    """Return the lines of text for a figure's value, kind and change.

    A line has several texts, each with its x position, words, CSS classes and colour.
    """
    ink = {"good": _GOOD, "bad": _BAD}
    number, kind = value["text"], value["kind"]
    first = [(0.0, svg.shorten_words(number, width), "b", ink.get(value.get("tone", ""), svg.INK))]
    beside = len(number) * _WIDE + 6
    what = [[(0.0, line, "s", svg.MUTED)] for line in svg.wrap(kind, width, _SMALL)]
    fits = beside + len(kind) * _NARROW <= width
    found = [[*first, (beside, kind, "s", svg.MUTED)]] if fits else [first, *what]
    if value.get("delta"):
        words = f"{value['delta']} {value.get('delta_vs', '')}".strip()
        tone = ink.get(value["delta_tone"], svg.MUTED)
        found += [[(0.0, line, "s", tone)] for line in svg.wrap(words, width, _SMALL)]
    return found


class NotebookPicture:
    """Updates the picture in a notebook to match the app.

    Parameters
    ----------
    app : App
    update : callable
        Called in a separate thread with the new picture as the data of a notebook's output.
    quiet_s : float
        Time without a change after which the picture is updated.
    """

    def __init__(self, app: App, update: Callable[[dict[str, str]], Any], quiet_s: float = QUIET_S) -> None:
        self._app, self._update, self._quiet_s = app, update, quiet_s
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._shown = ""
        app.strip.observe(lambda _: self._soon(), names="content")
        app.graph.observe(lambda _: self._soon(), names="data")

    def _soon(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(self._quiet_s, self._renew)
            self._timer.daemon = True
            self._timer.start()

    def _renew(self) -> None:
        if self._app.choosing.pending:
            # Wait for the plan, because the app shows only estimates until then.
            self._soon()
            return
        try:
            picture = render_app(self._app)
            if picture != self._shown:
                self._shown = picture
                self._update(data_of(picture))
        except Exception:
            _LOGGER.exception("the picture that the notebook keeps could not be made")


def data_of(picture: str) -> dict[str, str]:
    """Return the data of a notebook's output that shows a picture."""
    return {"image/svg+xml": picture, "text/plain": ""}
