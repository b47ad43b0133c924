"""The Memory tab: predicted and measured memory over the statements of a step, in Bokeh."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import bokeh
import numpy as np
import traitlets
from bokeh.embed import json_item
from bokeh.models import AdaptiveTicker, ColumnDataSource, CustomJSTickFormatter, HoverTool, LinearAxis, Range1d
from bokeh.plotting import figure
from numpy.typing import NDArray

from workbench.graph import BACKWARD
from workbench.summary import human_bytes
from workbench.ui.panel import Panel, esm
from workbench.ui.plotting import BYTE_TICKS, DARK, LIBRARY, LIGHT, paint

if TYPE_CHECKING:
    from workbench.compiler.pipeline import Plan
    from workbench.runs.jobs import Run
    from workbench.ui.figures import Against

_HEADROOM = 1.6
"""Room for the peak's label above the curves."""


class MemoryTab(Panel):
    """Curves on one axis of bytes and one of statements; a run whose statements are not known has its own time above.

    BokehJS travels once over the widget's own channel, and never lands in the notebook's file.
    """

    _esm = esm("plot.js")

    plot = traitlets.Dict().tag(sync=True)

    def __init__(self, on_message: Callable[[dict[str, Any]], None] | None = None, **traits: Any) -> None:
        super().__init__(self._answer, plot=_plot(dark=False), **traits)
        self._on_message = on_message

    def _answer(self, message: dict[str, Any]) -> None:
        if message.get("type") == "library":
            self.send({"type": "library"}, [LIBRARY.read_bytes()])
        elif self._on_message is not None:
            self._on_message(message)

    def paint(self, *, dark: bool) -> None:
        """Take the colours of the page's theme."""
        self.plot = _plot(dark=dark)

    def show(
        self,
        plan: Plan,
        against: Against,
        run: Run | None,
        *,
        same_choices: bool = True,
        ids: Sequence[str] = (),
    ) -> None:
        """Draw what a plan predicts, over what the baseline would take, and what a run measured, if one has.

        Parameters
        ----------
        plan : Plan
        against : Against
            The baseline of the figures.
        run : Run, optional
        same_choices : bool
            Whether the run has the choices in force.
        ids : sequence of str
            Per statement the node of the graph that shows it: a click on the curve leads there.
        """
        start = against.plan or plan
        sources, settings = _predicted(plan, start, against.name)
        sources["predicted"]["id"] = (
            [ids[row] for row in _curve(plan)[0]] if ids else [""] * len(sources["predicted"]["x"])
        )
        end = settings["statements"]["end"]
        inside = run.statement_peak_bytes if run is not None else []
        times, curve = ([], []) if run is None or inside else run.timeline or ([], [])
        milliseconds = [1e3 * second for second in times]
        # Under other choices the statements are others: that curve is stretched to the width of the plan's.
        at = list(range(len(inside))) if len(inside) == end + 1 else np.linspace(0, end, len(inside)).tolist()
        name = f"measured, inside each statement{'' if same_choices else ' under other choices, stretched'}"
        sources["measured"] = {"x": at, "y": inside, "bytes": [human_bytes(value) for value in inside]}
        sources["measured over time"] = {"x": milliseconds, "y": curve, "bytes": [human_bytes(b) for b in curve]}
        settings |= {
            "time": {"start": 0, "end": max(milliseconds, default=1.0) or 1.0},
            "time axis": {
                "visible": bool(times),
                "axis_label": f"measured{'' if same_choices else ' under other choices'}: ms of one step",
            },
            "measured line": {"visible": bool(inside)},
            "measured legend": {"visible": bool(inside), "label": {"value": name}},
            "measured over time line": {"visible": bool(times)},
            "measured over time legend": {"visible": bool(times)},
            "bytes": {"start": 0, "end": _HEADROOM * max(plan.peak_bytes, start.peak_bytes, 1, *curve, *inside)},
        }
        self.content = {"sources": sources, "set": settings}


def _predicted(
    plan: Plan, start: Plan, start_name: str
) -> tuple[dict[str, dict[str, list[Any]]], dict[str, dict[str, Any]]]:
    """The curves of a plan and of its baseline: data by its source, and settings by the model's name."""
    rows, curve = _curve(plan)
    names, sides = plan.graph.statements.name, plan.graph.statements.side
    peak = int(np.argmax(curve)) if len(curve) else 0
    # Curves of different plans have different statements: the other one is stretched to the same width.
    before = np.zeros(0, np.int64) if start is plan else _curve(start)[1]
    end = max(1, len(rows) - 1)
    late = peak > 0.6 * end
    first = next((place for place, row in enumerate(rows) if sides[row] == BACKWARD), 0)
    sources: dict[str, dict[str, list[Any]]] = {
        "predicted": {
            "x": list(range(len(rows))),
            "y": curve.tolist(),
            "statement": [names[row] for row in rows],
            "bytes": [human_bytes(value) for value in curve.tolist()],
            "side": ["backward" if sides[row] == BACKWARD else "forward" for row in rows],
        },
        "boundary": {"x": [first - 0.5], "y": [0], "label": ["backward →"]}
        if first
        else {"x": [], "y": [], "label": []},
        "start": {"x": np.linspace(0, end, len(before)).tolist(), "y": before.tolist()},
        "peak": {"x": [peak], "y": [plan.peak_bytes], "label": [f"{human_bytes(plan.peak_bytes)} predicted peak"]},
    }
    return sources, {
        "start legend": {"visible": len(before) > 0, "label": {"value": f"{start_name}, predicted"}},
        "statements": {"start": 0, "end": end},
        "peak label": {"text_align": "right" if late else "left", "x_offset": -10 if late else 10},
    }


def _curve(plan: Plan) -> tuple[list[int], NDArray[np.int64]]:
    """Top-level statements, and the most memory inside each."""
    rows = np.flatnonzero(plan.graph.statements.parent < 0)
    return rows.tolist(), plan.timeline.statement_peak_bytes[rows]


@functools.cache
def _plot(*, dark: bool) -> dict[str, Any]:
    """The plot without data, in the colours of a theme; models that change later have names.

    Made once for all apps of a process: Bokeh takes longer for it than a choice takes.
    """
    colors = DARK if dark else LIGHT
    plot: Any = figure(
        height=300,
        sizing_mode="stretch_width",
        tools="xpan,xwheel_zoom,xbox_zoom,reset",
        active_scroll=None,
        x_range=Range1d(name="statements", start=0, end=1),
        y_range=Range1d(name="bytes", start=0, end=1),
    )
    sources = {
        name: ColumnDataSource({column: [] for column in columns.split()}, name=name)
        for name, columns in {
            "predicted": "x y statement bytes side id",
            "chosen": "x",
            "boundary": "x y label",
            "start": "x y",
            "measured": "x y bytes",
            "measured over time": "x y bytes",
            "peak": "x y label",
        }.items()
    }
    plot.extra_x_ranges = {"time": Range1d(name="time", start=0, end=1)}
    plot.xaxis.axis_label = "statements, forward then backward"
    time_axis = LinearAxis(name="time axis", x_range_name="time", axis_label="measured: ms of one step", visible=False)
    plot.add_layout(time_axis, "above")
    # Steps that are whole in binary units.
    plot.yaxis.ticker = AdaptiveTicker(base=2, mantissas=[1], desired_num_ticks=5, num_minor_ticks=0)
    plot.yaxis.formatter = CustomJSTickFormatter(code=BYTE_TICKS)
    plot.step("x", "y", source=sources["start"], mode="center", line_color=colors["start"], line_dash="4 3",
              legend_label="stock, predicted")  # fmt: skip
    plot.vspan("x", source=sources["chosen"], line_color=colors["chosen"], line_width=2, line_alpha=0.8)
    plot.vspan("x", source=sources["boundary"], line_color=colors["ink"], line_width=1, line_dash="2 3")
    plot.text(
        "x", "y", "label", source=sources["boundary"], x_offset=4, y_offset=-2, text_font_size="11px",
        text_color=colors["ink"], text_baseline="bottom",
    )  # fmt: skip
    # Not `varea_step`: BokehJS 3.9 never returns from drawing one without points.
    plot.vbar("x", 1, "y", source=sources["predicted"], fill_color=colors["predicted"], fill_alpha=0.1, line_color=None)
    predicted = plot.step(
        "x",
        "y",
        source=sources["predicted"],
        mode="center",
        line_color=colors["predicted"],
        legend_label="predicted",
        line_width=1.75,
    )
    measured = plot.step(
        "x", "y", source=sources["measured"], mode="center", line_color=colors["measured"],
        legend_label="measured", name="measured line", visible=False, line_width=1.75,
    )  # fmt: skip
    timed = plot.step(
        "x", "y", source=sources["measured over time"], x_range_name="time", mode="after", visible=False,
        line_color=colors["measured"], legend_label="measured, over time", name="measured over time line",
        line_width=1.75,
    )  # fmt: skip
    plot.scatter(
        "x", "y", source=sources["peak"], size=9, line_width=2, fill_color=None, line_color=colors["predicted"]
    )
    label = plot.text(
        "x", "y", "label", source=sources["peak"], y_offset=-8, text_font_size="12px", text_color=colors["predicted"]
    )
    label.glyph.update(
        name="peak label", background_fill_color=colors["paper"], background_fill_alpha=0.85, padding=(2, 2)
    )
    plot.add_tools(
        HoverTool(
            renderers=[predicted], mode="vline", tooltips=[("", "@statement"), ("predicted", "@bytes"), ("", "@side")]
        ),
        HoverTool(renderers=[measured], mode="vline", tooltips=[("measured", "@bytes")]),
        HoverTool(renderers=[timed], mode="vline", tooltips=[("measured", "@bytes"), ("at", "@x{0.00} ms")]),
    )
    # What has no points yet is not in the legend either.
    start_item, _, measured_item, timed_item = plot.legend[0].items
    start_item.update(name="start legend", visible=False)
    measured_item.update(name="measured legend", visible=False)
    timed_item.update(name="measured over time legend", visible=False)
    # Outside the plot, where no label of a peak can meet it.
    plot.add_layout(plot.legend[0], "above")
    paint(plot, colors)
    return {"item": json_item(plot), "version": bokeh.__version__}
