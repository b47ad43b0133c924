"""The Fit tab: a fit to a stated peak, and a plot of step time against peak.

The plot can have several lines; each allows one more kind of choices than the line before it.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import bokeh
import traitlets
from bokeh.embed import json_item
from bokeh.models import AdaptiveTicker, CustomJSTickFormatter, HoverTool, TapTool

from workbench.analysis.memory.peak_by_statement import OFFLOAD
from workbench.bench.fit.fit_result import gap_text
from workbench.bench.session.fit_request import CUTS, USING, WAITS, default_using
from workbench.bench.session.run_names import name_of_fit
from workbench.errors import WorkbenchError
from workbench.summary import human_bytes, human_seconds
from workbench.ui.widgets.panel import Panel, esm
from workbench.ui.widgets.plotting import BYTE_TICKS, DARK, LIBRARY, LIGHT, empty_plot, paint, put_legend_beside

if TYPE_CHECKING:
    from workbench.bench import Workbench
    from workbench.bench.fit.fit_result import Fit
    from workbench.bench.fit.pareto_curve import Curve, CurvePoint, FractionalCurve

_LABEL = "plans"
_STEP = "predicted step, ms"
_ROOM = 0.12
"""Free space around the points, as a share of the axis' range."""
_NEAR = 3.0
"""A measured step that is more than this many times the longest predicted step does not extend the axis."""
_COLUMNS = "x y label why"
_ADDING = {
    "recompute": ("start", "2 3"),
    "offload": ("chosen", "6 3"),
    "cuts": ("start", "10 4"),
    "order": ("measured", "solid"),
}
"""Colour and dashes of each line but the last, by the kind of choices that the line adds to the line before it."""


class FitTab:
    """The two widgets of the tab: a clickable plot, and a form for the peak with the result of a fit.

    Parameters
    ----------
    bench : Workbench
    in_background : callable
        Runs a slow action in the background; called with a description and the action.
    on_message : callable
        As in `Panel`; receives messages that are not for this tab.
    say : callable
        Shows one line of text.

    Attributes
    ----------
    plot : CurvePlot
    panel : Panel
        The keys of its content are ``state done count error wrong least_bytes stock_bytes peak_bytes fitting fit
        each``. ``wrong`` is the reason why the stated peak is refused. ``fitting`` is the stated peak until it is
        answered.
    plain_bytes : int or None
        Predicted peak of plain `torch.compile`. The result of a fit names it if it is lower.
    """

    plain_bytes: int | None = None

    def __init__(
        self,
        bench: Workbench,
        in_background: Callable[[str, Callable[[], None]], None],
        on_message: Callable[[dict[str, Any]], None],
        say: Callable[[str], None],
    ) -> None:
        self._bench, self._in_background, self._say, self._on_message = bench, in_background, say, on_message
        self._curve: Curve | None = None
        self._former: Curve | None = None
        """The previous curve. It is shown if the current curve failed or was cancelled before it had points. It is not
        shown if the choices made by hand have changed since that curve was computed.
        """
        self._fit: Fit | None = None
        self._now: tuple[dict[str, str], float] | None = None
        self._error = self._wrong = self._fitting = ""
        self._wrong_under: dict[str, str] = {}
        """The choices under which `_wrong` refused a peak."""
        self._lock = threading.RLock()
        self.plot = CurvePlot(self._choose_point)
        self.panel = FitPanel(self._receive, content=self._content())
        self.panel.layout.flex, self.panel.layout.min_width, self.panel.layout.width = "3 1 480px", "0", "auto"

    def look(self, is_open: bool) -> None:
        """Begin a curve when the tab is opened. Cancel an unfinished curve when the tab is closed."""
        curve = self._curve
        if not is_open and curve is not None and curve.state == "working":
            curve.cancel()
            self._curve = None
        elif is_open and self._curve is None and not self._error:
            self._begin()

    def close(self) -> None:
        """Cancel the current curve."""
        if self._curve is not None:
            self._curve.cancel()

    def show_plan(self) -> None:
        """Update the tab after the bench's plan or the choices made by hand have changed, or a run has ended."""
        curve = self._curve
        other_machine = (
            self._bench.program.device != "cpu" and curve is not None and curve.machine != self._bench.machine
        )
        if curve is None or other_machine or not self._keeps_choices(curve):
            self._begin()
        else:
            self.panel.in_thread("fit", self._show)

    def _begin(self, *, by_lever: bool = False) -> None:
        self.close()
        self._former, self._error, self._now = self._shown_curve, "", None
        self._wrong = ""
        try:
            self._curve = curve = self._bench.curve(using=self._all if by_lever else None, each=by_lever)
        except WorkbenchError as error:
            self._curve, self._error = None, str(error)
            self.panel.content = self._content()
            return
        curve.observe(self._show)
        self._show()

    def _keeps_choices(self, curve: Curve) -> bool:
        """Return whether a curve keeps exactly the current choices made by hand."""
        return (curve.pinned, curve.by_hand) == (self._bench.pinned, self._bench.by_hand)

    @property
    def _shown_curve(self) -> Curve | None:
        """The curve whose points are shown."""
        curve, former = self._curve, self._former
        if former is None or not self._keeps_choices(former):
            return curve
        ended = curve is None or (not curve.points and curve.state in ("failed", "cancelled"))
        return former if ended else curve

    @property
    def _all(self) -> tuple[str, ...]:
        """All kinds of choices that a fit of this program may use."""
        plan = self._bench.plan
        none = {
            OFFLOAD: OFFLOAD not in default_using(self._bench.program.device),
            WAITS: plan.overlap is None,
            CUTS: not plan.census.count,
        }
        return tuple(name for name in USING if not none.get(name))

    def _receive(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "fit":
            self._in_background(
                "fitting", lambda: self._choose(lambda curve: curve.fit(message["peak"]), message["peak"])
            )
        elif kind in ("find", "each"):
            self._begin(by_lever=kind == "each")
        elif kind == "stop":
            self.close()
        else:
            self._on_message(message)

    def _choose_point(self, source: str, index: int) -> None:
        lines = self._shown_curve.lines if self._shown_curve is not None else ()
        of = {line.using[-1]: line.points for line in lines[:-1]}
        points = lines[-1].points if lines and source == "points" else of.get(source, ())
        if 0 <= index < len(points):
            choices = points[index].choices
            self._in_background("fitting", lambda: self._choose(lambda curve: curve.explain(choices)))

    def _choose(self, find: Callable[[Curve], Fit], asked: str | int = 0) -> None:
        """Find a fit with the shown curve, and make its choices. `asked` is the peak as the user stated it."""
        if self._shown_curve is None:
            self._begin()
        curve = self._shown_curve
        if curve is None:
            self._say(self._error)
            return
        self._wrong, self._fitting = "", str(asked) if asked else "a point of the curve"
        self.panel.content = self._content()
        try:
            self._fit = fit = find(curve)
        except WorkbenchError as error:
            self._wrong, self._wrong_under = error.in_app(), self._bench.choices
            raise
        finally:
            self._fitting = ""
            self.panel.content = self._content()
        self._bench.choose_found(fit.choices, name_of_fit(asked, fit.limit_bytes))
        self._say(fit.lines[0])
        self._show()

    def _show(self) -> None:
        """Draw the current data. The caller must not hold the app's lock, because the method can wait for the curve."""
        curve = self._shown_curve
        if curve is None:
            return
        choices = self._bench.choices
        if curve.points and (self._now is None or self._now[0] != choices):
            self._now = choices, curve.step_s(choices)
        with self._lock:
            if curve is self._shown_curve:
                now = None if self._now is None else (self._bench.plan.peak_bytes, self._now[1])
                stock = self._bench.stock_plan.peak_bytes
                self.plot.show(curve.lines, now, _measured_runs(self._bench), curve.machine.name, stock)
                self.panel.content = self._content()

    def _content(self) -> dict[str, Any]:
        curve, fit, plan = self._curve, self._fit, self._bench.plan
        points = self._shown_curve.points if self._shown_curve is not None else ()
        in_force = fit is not None and self._bench.choices == {**self._bench.pinned, **fit.choices}
        failed = str(curve.error) if curve is not None and curve.error is not None else ""
        return {
            "state": curve.state if curve is not None else "failed" if self._error else "",
            "done": curve.done if curve is not None else 0,
            "count": curve.count if curve is not None else 0,
            "error": self._error or failed,
            "wrong": self._wrong if self._bench.choices == self._wrong_under else "",
            "least_bytes": min(points[0].peak_bytes, plan.peak_bytes) if points else 0,
            "stock_bytes": self._bench.stock_plan.peak_bytes,
            "peak_bytes": plan.peak_bytes,
            "fitting": self._fitting,
            "fit": fit_content(fit, self.plain_bytes) if fit is not None and in_force else None,
            "each": list(self._all),
        }


def fit_content(fit: Fit, plain_bytes: int | None = None) -> dict[str, Any]:
    """Return the panel's data for a fit: lines of text, and a row for each choice.

    `plain_bytes` is the predicted peak of plain `torch.compile`, if it is known.
    """
    lines = fit.lines
    if plain_bytes is not None and plain_bytes < fit.peak_bytes:
        lines.append(f"Plain torch.compile without choices needs less: {human_bytes(plain_bytes)}, predicted")
    return {
        "lines": lines,
        "rows": [
            {
                "id": chosen.id,
                "option": chosen.option,
                "source": chosen.source,
                "bytes": human_bytes(chosen.bytes),
                "reason": chosen.reason,
            }
            for chosen in fit.why
        ],
        "steps": [
            {"label": step.label, "effect": step.effect_in_words, "choices": {step.id: step.option}}
            for step in (fit.looser, fit.tighter)
            if step is not None
        ],
    }


class FitPanel(Panel):
    """The part of the tab with the field and the slider for the peak, the progress, and the result of a fit."""

    _esm = esm("fit_tab")


class CurvePlot(Panel):
    """Step time against peak: a curve, a mark for the current plan, and marks for measured runs.

    Parameters
    ----------
    on_pick : callable
        Called with the name of the line and the index of the point that the user clicked.
    """

    _esm = esm("plot")

    plot = traitlets.Dict().tag(sync=True)

    def __init__(self, on_pick: Callable[[str, int], None]) -> None:
        self._on_pick = on_pick
        super().__init__(self._answer, plot=_plot(dark=False))
        self.layout.flex, self.layout.min_width, self.layout.width = "2 1 420px", "0", "auto"

    def _answer(self, message: dict[str, Any]) -> None:
        if message.get("type") == "library":
            self.send({"type": "library"}, [LIBRARY.read_bytes()])
        elif message.get("type") == "pick":
            self._on_pick(message["source"], message["index"])

    def paint(self, *, dark: bool) -> None:
        """Use the colours of the page's theme."""
        self.plot = _plot(dark=dark)

    def show(
        self,
        lines: Sequence[FractionalCurve],
        current: tuple[int, float] | None,
        measured: Sequence[tuple[str, int, float]],
        machine: str,
        stock_bytes: int,
    ) -> None:
        """Draw the lines of a curve, the current plan, and measured runs.

        The last line allows every kind of choice that the curve was asked to use. If there is nothing to draw, the axis
        of the peak covers 0 to the stock peak, and the axis of the step has no numbers.
        """
        below = {line.using[-1]: _points(line.points) for line in lines[:-1]}
        sources: dict[str, dict[str, list[Any]]] = {
            **{name: below.get(name, _points(())) for name in _ADDING},
            "points": _points(lines[-1].points if lines else ()),
            "now": _marks([("the current plan, predicted", *current)] if current is not None else []),
            "measured": _marks([(f"{name}, measured", peak, step_s) for name, peak, step_s in measured]),
        }
        found = [(x, y) for name in sources if name != "measured" for x, y in _pairs(sources[name])]
        runs = _pairs(sources["measured"])
        # Ignore much longer measured steps, which may come from a busy machine: they would flatten the curve.
        near = [(x, y) for x, y in runs if not found or y <= _NEAR * max(step for _, step in found)]
        every = [*found, *near]
        above = len(runs) - len(near)
        more = ""
        if above:
            slowest = human_seconds(max(y for _, y in runs) / 1e3)
            more = f"\nmeasured steps above the plot: {above}; the longest takes {slowest}"
        self.content = {
            "sources": sources,
            "says": f"Predicted step time against predicted peak: {len(sources['points']['x'])} plans.",
            "set": {
                "peak": _range([x for x, _ in every] or [0, stock_bytes]),
                "step": _range([y for _, y in every]),
                "peak axis": {"axis_label": f"predicted peak (step times are predicted for {machine}){more}"},
                "step axis": {"axis_label": _STEP, "major_label_text_alpha": 1.0 if every else 0.0},
                # The legend does not show a series without points.
                "measured legend": {"visible": bool(measured)},
                "now legend": {"visible": current is not None},
                **{f"{name} legend": {"visible": name in below} for name in _ADDING},
                "points legend": {
                    "visible": bool(sources["points"]["x"]),
                    "label": {"value": f"with {lines[-1].using[-1]}" if below else _LABEL},
                },
            },
            # In a low plot, one line names both axes.
            "low": {
                "peak axis": {"axis_label": "vertical: step in ms; horizontal: predicted peak"},
                "step axis": {"axis_label": None},
            },
        }


def _pairs(source: Mapping[str, list[Any]]) -> list[tuple[float, float]]:
    return list(zip(source["x"], source["y"], strict=True))


def _figures(peak_bytes: int, step_s: float) -> str:
    return f"peak {human_bytes(peak_bytes)}, step {human_seconds(step_s)}"


def _points(points: Sequence[CurvePoint]) -> dict[str, list[Any]]:
    return {
        "x": [point.peak_bytes for point in points],
        "y": [1e3 * point.step_s for point in points],
        "label": [_figures(point.peak_bytes, point.step_s) for point in points],
        "why": [
            f"{point.recomputed} recomputed, {point.offloaded} offloaded{point.moves_text}; "
            f"{gap_text(point.gap, point.beside)}"
            for point in points
        ],
    }


def _marks(marks: Sequence[tuple[str, int, float]]) -> dict[str, list[Any]]:
    return {
        "x": [peak for _, peak, _ in marks],
        "y": [1e3 * step_s for *_, step_s in marks],
        "label": [_figures(peak, step_s) for _, peak, step_s in marks],
        "why": [name for name, *_ in marks],
    }


def _range(values: Sequence[float]) -> Mapping[str, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = _ROOM * (high - low) or 0.05 * high or 1.0
    return {"start": low - room, "end": high + room}


def _measured_runs(bench: Workbench) -> list[tuple[str, int, float]]:
    """Return name, peak and step time of the runs that measured peak and step time."""
    found = []
    for run in bench.own_runs:
        peak, step_s = run.memory["measured_peak_bytes"], run.step_s
        if peak and step_s is not None:
            found.append((run.name or run.run_dir.name, int(peak), step_s))
    return found


@functools.cache
def _plot(*, dark: bool) -> dict[str, Any]:
    """Return the plot without data, in the colours of a theme. Models that change later have names.

    The plot is made once for all apps of a process, because making it takes longer than planning a choice.
    """
    colors = DARK if dark else LIGHT
    plot, sources = empty_plot("peak", "step", dict.fromkeys((*_ADDING, "points", "now", "measured"), _COLUMNS))
    plot.xaxis.ticker = AdaptiveTicker(base=2, mantissas=[1], desired_num_ticks=4, num_minor_ticks=0)
    plot.xaxis.formatter = CustomJSTickFormatter(code=BYTE_TICKS)
    plot.xaxis[0].update(name="peak axis")
    plot.yaxis[0].update(name="step axis", major_label_text_alpha=0.0)
    below = []
    for name, (color, dash) in _ADDING.items():
        plot.step("x", "y", source=sources[name], mode="after", line_color=colors[color], line_dash=dash)
        below.append(
            plot.scatter(
                "x",
                "y",
                source=sources[name],
                size=8,
                marker="square",
                fill_color=colors[color],
                line_color=colors["paper"],
                legend_label=("" if name == "recompute" else "with ") + name,
                nonselection_fill_alpha=1.0,
            )
        )
    plot.step("x", "y", source=sources["points"], mode="after", line_color=colors["predicted"], line_alpha=0.6)
    curve = plot.scatter(
        "x", "y", source=sources["points"], size=9, fill_color=colors["predicted"], line_color=colors["paper"],
        legend_label=_LABEL, nonselection_fill_alpha=1.0,
    )  # fmt: skip
    plot.scatter(
        "x", "y", source=sources["now"], size=16, line_width=2, fill_color=None, line_color=colors["start"],
        legend_label="in force",
    )  # fmt: skip
    measured = plot.scatter(
        "x", "y", source=sources["measured"], size=10, marker="diamond", fill_color=colors["measured"],
        line_color=colors["paper"], legend_label="measured",
    )  # fmt: skip
    plot.add_tools(
        HoverTool(renderers=[*below, curve, measured], tooltips=[("", "@label"), ("", "@why")]),
        TapTool(renderers=[*below, curve]),
    )
    for item, name in zip(plot.legend[0].items, (*_ADDING, "points", "now", "measured"), strict=True):
        item.update(name=f"{name} legend", visible=False)
    paint(plot, colors)
    put_legend_beside(plot)
    return {"item": json_item(plot), "version": bokeh.__version__, "pickable": [*_ADDING, "points"]}
