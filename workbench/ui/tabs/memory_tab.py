"""The tab *Curve and peak*: predicted and measured memory over the statements of a step, in Bokeh.

The area below the predicted curve is divided among parameters, saved storages, gradients and transient memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import bokeh
import numpy as np
import traitlets
from bokeh.embed import json_item
from bokeh.models import (
    AdaptiveTicker,
    CustomJSHover,
    CustomJSTickFormatter,
    HoverTool,
    LinearAxis,
    Range1d,
    Stack,
)
from bokeh.models.annotations import LegendItem
from numpy.typing import NDArray

from workbench.analysis.memory.bytes_by_kind import KINDS, bytes_by_kind
from workbench.core.graph import BACKWARD
from workbench.summary import human_bytes, peak_text
from workbench.ui.widgets.downsample import SampledCurve, points_in_sight
from workbench.ui.widgets.panel import Panel, esm
from workbench.ui.widgets.plotting import (
    BYTE_TICKS,
    BYTES_IN_WORDS,
    DARK,
    LIBRARY,
    LIGHT,
    empty_plot,
    paint,
    put_legend_beside,
)

if TYPE_CHECKING:
    from workbench.compiler.api import Plan
    from workbench.runs.process.follow_run import Run
    from workbench.ui.controls.figure_strip import Baseline

_HEADROOM, _LOW_HEADROOM = 1.15, 1.35
"""Height of the plot, and of a low plot, as a multiple of the highest curve. The peak's label is above all curves."""

_PIXELS = 1000
"""Width of the plot in pixels that is assumed for the first drawing."""

_AROUND = 1
"""Number of screens of points that are sent on each side of the visible part, so that the user can pan."""

_CURVES = {"statements": ("predicted", "start", "measured"), "time": ("measured over time",)}
"""For each axis, the curves that are drawn along it."""

_STATEMENTS = "statements, forward then backward"
_NAME = 20
"""Maximum number of characters of a run's name in the legend."""


type _Columns = dict[str, NDArray[Any] | str | float]


class MemoryTab(Panel):
    """Curves of bytes over statements. A run without measurements by statement has a separate time axis at the top.

    The page receives about as many points as it has pixels. When the user pans or zooms, the page requests more points.

    BokehJS is sent once over the widget's channel, and is never saved in the notebook file.
    """

    _esm = esm("plot")

    plot = traitlets.Dict().tag(sync=True)
    chosen = traitlets.List(traitlets.Int()).tag(sync=True)
    """Indices, on the predicted curve, of the statements to highlight. The nodes in `marked` show these statements."""

    def __init__(self, on_message: Callable[[dict[str, Any]], None] | None = None, **traits: Any) -> None:
        super().__init__(self._answer, plot=_plot(dark=False), **traits)
        self._on_message = on_message
        self._curves: dict[str, SampledCurve] = {}
        self._kinds: list[SampledCurve] = []
        self._names: list[str] = []
        self._first_backward = 0
        self._ids: list[str] = []
        self.observe(lambda _: self._mark(), names="marked")

    def _answer(self, message: dict[str, Any]) -> None:
        if message.get("type") == "library":
            self.send({"type": "library"}, [LIBRARY.read_bytes()])
        elif message.get("type") == "range":
            self._send_near(message)
        elif message.get("type") == "at":
            row, by = round(message["x"]), int(message.get("by", 0))
            # Arrow keys skip statements that the graph does not show.
            while by and 0 <= row < len(self._ids) and not self._ids[row]:
                row += by
            if 0 <= row < len(self._ids) and self._ids[row] and self._on_message is not None:
                self._on_message({"type": "go", "id": self._ids[row]})
        elif self._on_message is not None:
            self._on_message(message)

    def paint(self, *, dark: bool) -> None:
        """Use the colours of the page's theme."""
        self.plot = _plot(dark=dark)

    def show(
        self,
        plan: Plan,
        baseline: Baseline,
        run: Run | None,
        *,
        same_choices: bool = True,
        ids: Sequence[str] = (),
    ) -> None:
        """Draw a plan's predicted curve over the baseline's, and a run's measured curve, if there is one.

        Parameters
        ----------
        plan : Plan
        baseline : Baseline
            The baseline with which figures are compared.
        run : Run, optional
        same_choices : bool
            Whether the run has the current choices.
        ids : sequence of str
            For each statement, the id of the node that shows it in the graph. A click on the curve selects this node.
        """
        start = baseline.plan or plan
        rows, predicted = _curve(plan)
        kinds = bytes_by_kind(plan.graph)[:, rows]
        before = np.zeros(0, np.int64) if start is plan else _curve(start)[1]
        sides, names = plan.graph.statements.side, plan.graph.statements.name
        self._names = [names[row] for row in rows.tolist()]
        self._ids = [ids[row] for row in rows.tolist()] if ids else []
        backward = np.flatnonzero(sides[rows] == BACKWARD)
        self._first_backward = int(backward[0]) if len(backward) else 0
        end = max(1, len(rows) - 1)
        inside = np.asarray(run.statement_peak_bytes if run is not None else [], np.int64)
        times, bytes_then = ([], []) if run is None or len(inside) else run.timeline or ([], [])
        curve = np.asarray(bytes_then, np.int64)
        milliseconds = 1e3 * np.asarray(times, np.float64)
        # Curves of other plans have other statements. Stretch these curves to the width of this plan's curve.
        self._curves = {
            "predicted": SampledCurve(np.arange(len(rows)), predicted),
            "start": SampledCurve(_stretch_points(len(before), end), before),
            "measured": SampledCurve(_stretch_points(len(inside), end), inside),
            "measured over time": SampledCurve(milliseconds, curve),
        }
        self._kinds = [SampledCurve(np.arange(len(rows)), kind) for kind in kinds]
        other = len(inside) > 0 and not same_choices
        name = f"measured{', earlier plan' if other else ''}"
        time_end = float(milliseconds.max(initial=0.0)) or 1.0
        at_peak = int(np.argmax(predicted)) if len(predicted) else 0
        late = at_peak > 0.6 * end
        first = self._first_backward
        top = max(plan.peak_bytes, start.peak_bytes, 1, int(curve.max(initial=0)), int(inside.max(initial=0)))
        sources: dict[str, dict[str, Any]] = {
            "boundary": {"x": [first - 0.5], "y": [0], "label": ["backward →"]}
            if first
            else {"x": [], "y": [], "label": []},
            "peak": {
                "x": [at_peak],
                "y": [plan.peak_bytes],
                "top": [top],
                "label": [f"{peak_text(plan)} predicted peak"],
            },
        }
        settings: dict[str, dict[str, Any]] = {
            "start legend": {
                "visible": len(before) > 0,
                "label": {"value": f"{_shorten_name(baseline.name)}, predicted"},
            },
            "statements": {"start": 0, "end": end},
            "statements axis": {"axis_label": f"{_STATEMENTS}{'; the measured curve is stretched' if other else ''}"},
            "peak label": {"text_align": "right" if late else "left", "x_offset": 4 if late else -4},
            "time": {"start": 0, "end": time_end},
            "time axis": {
                "visible": len(times) > 0,
                "axis_label": f"measured{'' if same_choices else ' under other choices'}: ms of one step",
            },
            "measured line": {"visible": len(inside) > 0},
            "measured legend": {"visible": len(inside) > 0, "label": {"value": name}},
            "measured over time line": {"visible": len(times) > 0},
            "measured over time legend": {"visible": len(times) > 0},
            "bytes": {"start": 0, "end": _HEADROOM * top},
        }
        low: dict[str, dict[str, Any]] = {
            "statements axis": {"axis_label": None},
            "bytes": {"end": _LOW_HEADROOM * top},
        }
        sampled = {}
        for axis, edge in (("statements", end), ("time", time_end)):
            points, whole = self._points(axis, 0, edge, _PIXELS)
            sources |= {name: _pack_columns(columns) for name, columns in points.items()}
            sampled[axis] = not whole
        where = f" inside {self._names[at_peak]}" if self._names else ""
        most = max(int(curve.max(initial=0)), int(inside.max(initial=0)))
        measured = f"; {name}: {human_bytes(most)} at most" if most else ""
        says = (
            f"Memory along the statements: predicted peak {peak_text(plan)}{where}{measured}. "
            "Arrow keys go from statement to statement."
        )
        self.content = {"sources": sources, "set": settings, "low": low, "sampled": sampled, "says": says}
        self._mark()

    def _points(self, axis: str, start: float, end: float, pixels: int) -> tuple[dict[str, _Columns], bool]:
        """Return the points to draw in a range of an axis, and whether these are all of the curves' points there."""
        sources: dict[str, _Columns] = {}
        all_whole = True
        for name in _CURVES[axis]:
            curve = self._curves[name]
            rows, whole = points_in_sight(curve, start, end, pixels)
            if name == "predicted" and not whole:
                # Each kind needs the points at which its own area changes.
                rows = functools.reduce(
                    np.union1d, (points_in_sight(kind, start, end, pixels)[0] for kind in self._kinds), rows
                )
            all_whole &= whole
            sources[name] = {"x": curve.x[rows], "y": curve.y[rows]}
            if name == "predicted":
                sources[name] |= {kind: of.y[rows] for kind, of in zip(KINDS, self._kinds, strict=True)}
                # Names of the points, and the first point of the backward.
                sources[name]["lines"] = "\n".join([self._names[row] for row in rows.tolist()])
                sources[name]["backward_from"] = self._first_backward or len(self._names)
        return sources, all_whole

    def _send_near(self, request: Mapping[str, Any]) -> None:
        """Send a requested part of the curves to the page that requested it. Other pages may show other parts."""
        if not self._curves or request["axis"] not in _CURVES:
            return
        span = request["end"] - request["start"]
        start, end = request["start"] - _AROUND * span, request["end"] + _AROUND * span
        pixels = max(1, min(int(request["pixels"]), 4 * _PIXELS)) * (1 + 2 * _AROUND)
        sources, whole = self._points(request["axis"], start, end, pixels)
        near = {"axis": request["axis"], "start": start, "end": end, "span": span, "whole": whole}
        listed = {name: _list_columns(columns) for name, columns in sources.items()}
        self.send({"type": "points", "view": request["view"], **near, "sources": listed})

    def _mark(self) -> None:
        wanted = set(self.marked)
        self.chosen = [row for row, id in enumerate(self._ids) if id in wanted] if wanted else []


def _pack_columns(columns: _Columns) -> dict[str, Any]:
    """Convert arrays to bytes, because a widget inspects each number of a list before it sends the list."""
    return {
        name: column.astype(np.float64).tobytes() if isinstance(column, np.ndarray) else column
        for name, column in columns.items()
    }


def _list_columns(columns: _Columns) -> dict[str, Any]:
    """Convert arrays to lists, for messages that cannot carry bytes."""
    return {name: column.tolist() if isinstance(column, np.ndarray) else column for name, column in columns.items()}


def _shorten_name(name: str) -> str:
    """Return a run's name, shortened to fit the legend."""
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def _stretch_points(points: int, end: int) -> NDArray[np.float64]:
    """Return x positions that spread `points` points evenly from 0 to `end`."""
    return np.linspace(0, end, points)


def _curve(plan: Plan) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Return the top-level statements of a plan, and the peak memory inside each statement."""
    rows = np.flatnonzero(plan.graph.statements.parent < 0)
    return rows, plan.timeline.statement_peak_bytes[rows]


@functools.cache
def _plot(*, dark: bool) -> dict[str, Any]:
    """Return the plot without data, in the colours of a theme. Models that change later have names.

    The plot is made once for all apps of a process, because making it takes longer than planning a choice.
    """
    colors = DARK if dark else LIGHT
    plot, sources = empty_plot(
        "statements",
        "bytes",
        {
            "predicted": "x y",
            "chosen": "x",
            "boundary": "x y label",
            "start": "x y",
            "measured": "x y",
            "measured over time": "x y",
            "peak": "x y top label",
        },
    )
    plot.extra_x_ranges = {"time": Range1d(name="time", start=0, end=1)}
    plot.xaxis.update(name="statements axis")
    time_axis = LinearAxis(name="time axis", x_range_name="time", visible=False)
    plot.add_layout(time_axis, "above")
    # Ticks at numbers that are round in binary units.
    plot.yaxis.ticker = AdaptiveTicker(base=2, mantissas=[1], desired_num_ticks=5, num_minor_ticks=0)
    plot.yaxis.formatter = CustomJSTickFormatter(code=BYTE_TICKS)
    plot.step("x", "y", source=sources["start"], mode="center", line_color=colors["start"], line_dash="4 3",
              legend_label="without choices")  # fmt: skip
    # At the axis: in a program of many layers, lines at all selected statements would cover the curve.
    plot.scatter("x", 0, source=sources["chosen"], marker="triangle", size=12, color=colors["chosen"])
    plot.vspan("x", source=sources["boundary"], line_color=colors["ink"], line_width=1, line_dash="2 3")
    plot.text(
        "x", "y", "label", source=sources["boundary"], x_offset=4, y_offset=-2, text_font_size="11px",
        text_color=colors["ink"], text_baseline="bottom",
    )  # fmt: skip
    # BokehJS 3.9 hangs when it draws an area without points.
    sources["predicted"].data = {
        **{column: ["", ""] for column in ("statement", "side")},
        "x": [0, 1],
        **{column: [0, 0] for column in ("y", *KINDS)},
    }
    areas = [
        plot.varea_step(
            x="x",
            y1={"expr": Stack(fields=list(KINDS[:number]))} if number else 0,
            y2={"expr": Stack(fields=list(KINDS[: number + 1]))},
            source=sources["predicted"],
            step_mode="center",
            fill_color=colors[kind],
            fill_alpha=0.4,
        )
        for number, kind in enumerate(KINDS)
    ]
    plot.step(
        "x",
        "y",
        source=sources["predicted"],
        mode="center",
        line_color=colors["predicted"],
        legend_label="predicted",
        line_width=1.75,
    )
    # Both curves are often equal. Between the dashes, the predicted curve stays in sight.
    plot.step(
        "x", "y", source=sources["measured"], mode="center", line_color=colors["measured"],
        legend_label="measured", name="measured line", visible=False, line_width=1.75, line_dash="7 4",
    )  # fmt: skip
    plot.step(
        "x", "y", source=sources["measured over time"], x_range_name="time", mode="after", visible=False,
        line_color=colors["measured"], legend_label="measured, over time", name="measured over time line",
        line_width=1.75,
    )  # fmt: skip
    # BokehJS does not find steps under the pointer: use lines without a colour for hit testing.
    predicted, measured, timed = (
        plot.line("x", "y", source=sources[name], line_color=None, **along)
        for name, along in (("predicted", {}), ("measured", {}), ("measured over time", {"x_range_name": "time"}))
    )
    plot.scatter(
        "x", "y", source=sources["peak"], size=9, line_width=2, fill_color=None, line_color=colors["predicted"]
    )
    label = plot.text(
        "x", "top", "label", source=sources["peak"], y_offset=-6, text_font_size="12px", text_color=colors["predicted"]
    )
    label.glyph.update(
        name="peak label", background_fill_color=colors["paper"], background_fill_alpha=0.85, padding=(2, 2)
    )
    in_words: Any = {"@y": CustomJSHover(code=BYTES_IN_WORDS)}
    plot.add_tools(
        HoverTool(
            renderers=[predicted],
            mode="vline",
            line_policy="nearest",
            tooltips=[
                ("", "@statement"),
                ("predicted", "@y{custom}"),
                *((kind, f"@{{{kind}}}{{custom}}") for kind in reversed(KINDS)),
                ("", "@side"),
            ],
            formatters={f"@{name}": in_words["@y"] for name in ("y", *(f"{{{kind}}}" for kind in KINDS))},
        ),
        HoverTool(
            renderers=[measured],
            mode="vline",
            line_policy="nearest",
            tooltips=[("measured", "@y{custom}")],
            formatters=in_words,
        ),
        HoverTool(
            renderers=[timed],
            mode="vline",
            line_policy="nearest",
            tooltips=[("measured", "@y{custom}"), ("at", "@x{0.00} ms")],
            formatters=in_words,
        ),
    )
    # The legend does not show a series without points.
    start_item, _, measured_item, timed_item = plot.legend[0].items
    start_item.update(name="start legend", visible=False)
    measured_item.update(name="measured legend", visible=False)
    timed_item.update(name="measured over time legend", visible=False)
    plot.legend[0].items += [
        LegendItem(label=kind, renderers=[area]) for kind, area in reversed([*zip(KINDS, areas, strict=True)])
    ]
    paint(plot, colors)
    put_legend_beside(plot)
    return {"item": json_item(plot), "version": bokeh.__version__}
