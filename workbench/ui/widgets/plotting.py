"""Shared parts of Bokeh plots: the JavaScript library, formatters of bytes, and the colours of both themes."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import bokeh
from bokeh.models import ColumnDataSource, Range1d
from bokeh.plotting import figure

LIBRARY = pathlib.Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"
BYTE_TICKS = """
const units = ["B", "KiB", "MiB", "GiB", "TiB"]
const largest = Math.max(...ticks.map(Math.abs))
let scale = 1, unit = 0
while (largest / scale >= 1024 && unit < units.length - 1) { scale *= 1024; unit++ }
const step = ticks.length > 1 ? Math.abs(ticks[1] - ticks[0]) / scale : 1
const digits = Math.min(6, Math.max(0, 1 + Math.ceil(-Math.log10(step))))
return `${parseFloat((tick / scale).toFixed(digits))} ${units[unit]}`
"""
"""JavaScript that formats ticks. All ticks of an axis have one unit, and enough digits to differ from each other."""
BYTES_IN_WORDS = """
const units = ["B", "KiB", "MiB", "GiB", "TiB"]
let size = Math.abs(value), unit = 0
while (size >= 999.5 && unit < units.length - 1) { size /= 1024; unit++ }
return `${value < 0 ? "−" : ""}${size.toFixed(unit === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2)} ${units[unit]}`
"""
"""Formatter for the point under the pointer. It writes bytes like `workbench.summary.human_bytes`."""
LIGHT = {
    "paper": "#ffffff",
    "ink": "#59636e",
    "hair": "#e6e9ed",
    "predicted": "#0b57d0",
    "measured": "#b04a00",
    "start": "#6e7781",
    "chosen": "#267044",
    "parameters and inputs": "#8c959f",
    "saved": "#2da44e",
    "gradients": "#8b6fd0",
    "transient": "#54a3ff",
}
DARK = {
    "paper": "#111111",
    "ink": "#a3acb7",
    "hair": "#2d3136",
    "predicted": "#79aeff",
    "measured": "#f2a952",
    "start": "#8b949e",
    "chosen": "#63c48a",
    "parameters and inputs": "#8b949e",
    "saved": "#46b366",
    "gradients": "#a793ea",
    "transient": "#4d8fdb",
}


def empty_plot(x: str, y: str, columns: Mapping[str, str]) -> tuple[Any, dict[str, ColumnDataSource]]:
    """Return a plot without data, and its empty data sources by name.

    Parameters
    ----------
    x, y : str
        Names of the Bokeh models of the two ranges.
    columns : mapping of str to str
        Names of each source's columns, separated by spaces, by the source's name.
    """
    plot = figure(
        height=300,
        sizing_mode="stretch_width",
        tools="xpan,xwheel_zoom,xbox_zoom,reset",
        active_scroll=None,
        x_range=Range1d(name=x, start=0, end=1),
        y_range=Range1d(name=y, start=0, end=1),
    )
    return plot, {name: ColumnDataSource({c: [] for c in of.split()}, name=name) for name, of in columns.items()}


def paint(plot: Any, colors: dict[str, str]) -> None:
    """Set the colours of a plot and its legend to those of a theme."""
    plot.background_fill_color = plot.border_fill_color = None
    plot.outline_line_color = None
    plot.xgrid.grid_line_color = None
    plot.ygrid.grid_line_color = colors["hair"]
    plot.toolbar.logo = None
    for axis in (*plot.xaxis, *plot.yaxis):
        axis.axis_label_text_color = axis.major_label_text_color = colors["ink"]
        axis.axis_line_color = axis.major_tick_line_color = colors["hair"]
        axis.minor_tick_line_color = None
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = "12px"
    legend = plot.legend[0]
    legend.orientation, legend.location = "horizontal", "left"
    # Without this space, a name in the legend touches the line sample of the next name.
    legend.spacing = 16
    legend.background_fill_alpha, legend.border_line_color = 0, None
    legend.label_text_color, legend.label_text_font_size = colors["ink"], "12px"


def put_legend_beside(plot: Any) -> None:
    """Move the legend to the right of a plot. There it covers no point, and takes none of the scarce height."""
    legend = plot.legend[0]
    plot.add_layout(legend, "right")
    legend.update(orientation="vertical", spacing=0, padding=0, margin=10, label_text_font_size="11px")
    legend.update(glyph_height=12, label_height=15, label_standoff=4)
