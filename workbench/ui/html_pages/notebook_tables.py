"""Tables in Markdown and line charts in SVG. A notebook shows them even without a kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_COLORS = ("#267044", "#b04a00", "#0b6b85", "#5b3aa8", "#9a6700", "#59636e")
_INK, _MUTED, _GRID = "#1f2328", "#59636e", "#e6e9ed"
_FONT = "font-family=\"system-ui,'Segoe UI',Roboto,Arial,sans-serif\""
_WIDTH, _HEIGHT = 720, 340
_LEFT, _TOP, _BOTTOM = 62.0, 50.0, 46.0
_CHARACTER = 6.6
"""Width of a character of the labels, in pixels."""


class Table:
    """A table of figures, shown as Markdown in a notebook and as aligned text at a prompt.

    Parameters
    ----------
    rows : sequence of mapping
        Each row maps columns to cells. The first row defines the columns.

    Raises
    ------
    ValueError
        If a row's columns differ from the first row's.

    Examples
    --------
    >>> Table([{"layers": 1, "saved GB": 3.74}, {"layers": 2, "saved GB": 6.3}])
    layers  saved GB
         1      3.74
         2       6.3
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.columns = tuple(rows[0]) if rows else ()
        for row in rows:
            if tuple(row) != self.columns:
                raise ValueError(f"a row has the columns {', '.join(row)}; the first has {', '.join(self.columns)}")
        self.rows = [tuple(str(cell) for cell in row.values()) for row in rows]
        self._numbers = [all(not isinstance(row[name], str) for row in rows) for name in self.columns]

    def __repr__(self) -> str:
        lines = [self.columns, *self.rows]
        wide = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(line, wide, self._numbers, strict=True)
            ).rstrip()
            for line in lines
        )

    def _repr_markdown_(self) -> str:
        def line(cells: Sequence[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

        rule = line(["--:" if number else "---" for number in self._numbers])
        return "\n".join([line(self.columns), rule, *map(line, self.rows)])


class LinePlot:
    """A chart with lines through points, on linear or logarithmic axes.

    Parameters
    ----------
    lines : mapping of str to mapping of float to float
        The points of each line as a mapping of x to y, by the line's name.
    title, x, y : str
        Text above the chart and along its axes, with units.
    limits : mapping of str to float, optional
        Dashed horizontal lines, by name.
    log : bool
        Whether both axes are logarithmic.

    Raises
    ------
    ValueError
        If there are no points, or if a logarithmic axis cannot show a point.
    """

    def __init__(
        self,
        lines: Mapping[str, Mapping[float, float]],
        *,
        title: str,
        x: str,
        y: str,
        limits: Mapping[str, float] | None = None,
        log: bool = False,
    ) -> None:
        points = [point for line in lines.values() for point in line.items()]
        if not points:
            raise ValueError(f"{title!r} has no point to draw")
        if log and min(value for point in points for value in point) <= 0:
            raise ValueError(f"{title!r} has a point at 0 or below, which a logarithmic axis cannot show")
        self.lines, self.limits, self.title, self.x, self.y, self.log = lines, dict(limits or {}), title, x, y, log

    def __repr__(self) -> str:
        rows = [f"{name}: " + ", ".join(f"{x:g} {y:.4g}" for x, y in line.items()) for name, line in self.lines.items()]
        return "\n".join([f"{self.title} ({self.x}, {self.y})", *rows])

    def _repr_svg_(self) -> str:
        xs = sorted({x for line in self.lines.values() for x in line})
        ys = [*(y for line in self.lines.values() for y in line.values()), *self.limits.values()]
        names = [*self.lines, *self.limits]
        right = 24 + _CHARACTER * max(map(len, names))
        across = _Axis(xs[0], xs[-1], _LEFT, _WIDTH - right, log=self.log)
        up = _Axis(min(ys) if self.log else min(0.0, *ys), max(ys), _HEIGHT - _BOTTOM, _TOP, log=self.log, decades=True)
        parts = [_text(_LEFT, 20, self.title, size=14, weight=600)]
        for tick in up.ticks():
            y = up.pixel_of(tick)
            parts.append(f'<path d="M{_LEFT:g} {y:.1f}H{_WIDTH - right:.1f}" stroke="{_GRID}"/>')
            parts.append(_text(_LEFT - 8, y + 4, f"{tick:g}", anchor="end", fill=_MUTED))
        parts += [
            _text(across.pixel_of(tick), _HEIGHT - 28, f"{tick:g}", anchor="middle", fill=_MUTED)
            for tick in (xs if len(xs) <= 10 else across.ticks())
        ]
        parts.append(_text((_LEFT + _WIDTH - right) / 2, _HEIGHT - 8, self.x, anchor="middle", fill=_MUTED))
        parts.append(_text(_LEFT, _TOP - 14, self.y, fill=_MUTED))
        labels = {name: up.pixel_of(value) for name, value in self.limits.items()}
        for value in self.limits.values():
            at = f"M{_LEFT:g} {up.pixel_of(value):.1f}H{_WIDTH - right:.1f}"
            parts.append(f'<path d="{at}" stroke="{_INK}" stroke-dasharray="5 4"/>')
        for (name, line), color in zip(self.lines.items(), _colors(len(self.lines)), strict=True):
            at_points = [(across.pixel_of(x), up.pixel_of(y)) for x, y in sorted(line.items())]
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in at_points)
            parts.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in at_points]
            labels[name] = at_points[-1][1]
        colors = {**dict.fromkeys(self.limits, _INK), **dict(zip(self.lines, _colors(len(self.lines)), strict=True))}
        parts += [
            _text(_WIDTH - right + 10, y + 4, name, fill=colors[name], weight=600)
            for name, y in _separate_labels(labels, 15, _TOP, _HEIGHT - _BOTTOM).items()
        ]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
            f'height="{_HEIGHT}" role="img" aria-label="{escape(self.title, quote=True)}" {_FONT}>'
            f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>'
        )


class _Axis:
    """An axis that converts values to pixels."""

    def __init__(self, low: float, high: float, first: float, last: float, *, log: bool, decades: bool = False) -> None:
        self.log, self.low, self.first, self.last = log, low, first, last
        self.high = high if high > low else low + (abs(low) or 1)
        if decades and log:
            self.low, self.high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(self.high))
        elif decades:
            step = self._step()
            self.high = math.ceil(self.high / step) * step

    def _step(self) -> float:
        rough = (self.high - self.low) / 5
        size = 10 ** math.floor(math.log10(rough))
        return float(next(by * size for by in (1, 2, 5, 10) if by * size >= rough))

    def pixel_of(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        return self.first + (value - low) / (high - low) * (self.last - self.first)

    def ticks(self) -> list[float]:
        """Return round values along the axis."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            return [10.0**power for power in range(first, last + 1)]
        step = self._step()
        return [round(i * step, 12) for i in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]


def _colors(count: int) -> list[str]:
    return [_COLORS[i % len(_COLORS)] for i in range(count)]


def _separate_labels(labels: Mapping[str, float], distance: float, low: float, high: float) -> dict[str, float]:
    """Return heights for labels, moved so that the labels do not overlap and stay between `low` and `high`."""
    order = sorted(labels, key=labels.__getitem__)
    heights: dict[str, float] = {}
    last = low - distance
    for name in order:
        heights[name] = last = max(labels[name], last + distance)
    for name in reversed(order):
        heights[name] = min(heights[name], high)
        high = heights[name] - distance
    return heights


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", fill: str = _INK, size: int = 12, weight: int = 400
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
        f'font-weight="{weight}">{escape(text)}</text>'
    )
