"""Draw a sweep as a log-log plot, in an HTML page that needs no network."""

from __future__ import annotations

from pathlib import Path

from bokeh.embed import file_html
from bokeh.palettes import Category10_10
from bokeh.plotting import figure as new_figure
from bokeh.resources import INLINE

from workbench.errors import RunError
from workbench.runs.sweep.sweep import SweepResult
from workbench.util import paths


def write_plot(result: SweepResult, path: str | Path) -> Path:
    """Draw measured compile times over the first setting of a sweep, with the fitted exponents in the legend.

    Parameters
    ----------
    result : SweepResult
    path : path
        The HTML file to write.

    Raises
    ------
    RunError
        If the file cannot be written.
    """
    drawn = new_figure(
        title=f"{result.sweep.program}: compile_s, measured",
        x_axis_type="log",
        y_axis_type="log",
        x_axis_label=next(iter(result.sweep.settings), ""),
        y_axis_label="compile_s",
        width=1000,
        height=500,
    )
    exponents = result.exponents()
    for at, (label, series) in enumerate(result.series().items()):
        color = Category10_10[at % 10]
        legend = f"{label} (exponent {exponents[label]:.2f})" if label in exponents else label
        x, y = zip(*series, strict=True)
        drawn.line(x, y, color=color, legend_label=legend)
        drawn.scatter(x, y, color=color, legend_label=legend)
    # Put the legend beside the plot, where it cannot cover a point.
    if drawn.legend:
        drawn.add_layout(drawn.legend[0], "right")
    try:
        return paths.write(path, file_html(drawn, INLINE, "sweep").encode())
    except OSError as error:
        raise RunError(f"the plot {path} cannot be written: {paths.reason_of(error)}") from error
