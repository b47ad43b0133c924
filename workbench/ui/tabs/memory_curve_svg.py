"""Draw memory over the statements of a step as SVG, with the colours of a page or as a picture with its own colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from workbench.summary import human_bytes
from workbench.ui.graph.svg import INK, MUTED

_SIZE = (1100, 260)
_LEFT, _RIGHT, _TOP, _BOTTOM = 72.0, 12.0, 12.0, 24.0
_STYLES = ("stroke:var(--wb-accent)", "stroke:var(--wb-muted);stroke-dasharray:4 3", "stroke:var(--wb-again)")
_ROUND = (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
_COLORS = f"--wb-hair:#e6e9ed;--wb-rule:#d0d7de;--wb-accent:#0b57d0;--wb-muted:{MUTED};--wb-again:#b04a00"
"""Colours of the picture. They are the colours of ``style.css`` on a white page."""


def memory_curves(curves: Mapping[str, Sequence[int]], *, forward: int) -> str:
    """Draw curves of bytes as steps, and a legend above them. Each curve is stretched to the full width.

    Parameters
    ----------
    curves : mapping of str to sequence of int
        Peak bytes inside each statement, by the curve's name; at most three curves.
    forward : int
        Number of statements in the forward of the first curve.
    """
    shown = {name: curve for name, curve in curves.items() if len(curve)}
    width, height = _SIZE
    stroke = '<svg width="26" height="10" aria-hidden="true"><path d="M1 5H25" style="{};stroke-width:2"/></svg>'
    legend = "".join(
        f"<span>{stroke.format(style)} {escape(words)}</span>"
        for words, style in zip(_legend(shown), _STYLES, strict=False)
    )
    return (
        f'<div class="wb-curve-legend">{legend}</div><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{_label(shown)}">{"".join(_plot(shown, forward, width, height))}</svg>'
    )


def memory_picture(
    curves: Mapping[str, Sequence[int]], *, forward: int, title: str = "", width: int = 720, height: int = 260
) -> str:
    """Draw the curves of `memory_curves` as a self-contained ``<svg>`` element, with colours, title and legend."""
    shown = {name: curve for name, curve in curves.items() if len(curve)}
    head = [f'<text x="12" y="20" class="b" style="fill:{INK}">{escape(title)}</text>'] if title else []
    y = 20.0 * len(head)
    for words, style in zip(_legend(shown), _STYLES, strict=False):
        y += 18
        head.append(f'<path d="M12 {y - 4:g}H38" style="{style};stroke-width:2"/>{_text(44, y, words, "start")}')
    y += 4
    return (
        f'<svg class="wb-picture" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + y:g}" '
        f'width="{width}" height="{height + y:g}" style="max-width:100%;height:auto;{_COLORS}" role="img" '
        f'aria-label="{_label(shown)}">'
        f"<style>text{{font:12px system-ui,'Segoe UI',Roboto,Arial,sans-serif;fill:{MUTED}}}"
        f'.b{{font-weight:600}}</style><rect width="100%" height="100%" fill="#ffffff"/>{"".join(head)}'
        f'<g transform="translate(0 {y:g})">{"".join(_plot(shown, forward, width, height))}</g></svg>'
    )


def _plot(curves: Mapping[str, Sequence[int]], forward: int, width: int, height: int) -> list[str]:
    most = max((max(curve) for curve in curves.values()), default=0) or 1
    right, bottom = width - _RIGHT, height - _BOTTOM

    def y(nbytes: float) -> float:
        return bottom - nbytes / (1.1 * most) * (bottom - _TOP)

    parts = []
    for nbytes in _ticks(most):
        at = y(nbytes)
        parts.append(f'<path d="M{_LEFT:g} {at:.1f}H{right:g}" style="stroke:var(--wb-hair)"/>')
        parts.append(_text(_LEFT - 6, at + 4, human_bytes(nbytes), "end"))
    count = len(next(iter(curves.values()), ()))
    if 0 < forward < count:
        at = _LEFT + forward / count * (right - _LEFT)
        parts.append(f'<path d="M{at:.1f} {_TOP:g}V{bottom:g}" style="stroke:var(--wb-rule)"/>')
        parts.append(_text(at - 6, height - 8, "forward", "end"))
        parts.append(_text(at + 6, height - 8, "backward", "start"))
    for (name, curve), style in reversed(list(zip(curves.items(), _STYLES, strict=False))):
        wide = (right - _LEFT) / len(curve)
        path = "".join(
            f"{'L' if i else 'M'}{_LEFT + i * wide:.1f} {y(b):.1f}H{_LEFT + (i + 1) * wide:.1f}"
            for i, b in enumerate(curve)
        )
        title = f"<title>{escape(name)}: at most {human_bytes(max(curve))}</title>"
        parts.append(f'<path d="{path}" style="{style};fill:none;stroke-width:1.75">{title}</path>')
    return parts


def _ticks(most: float) -> list[float]:
    """Return at most six round numbers of bytes, from zero up to `most`."""
    unit = 1024 ** int(math.log(max(most, 1), 1024))
    step = max(1, next(size for size in _ROUND if 5 * size >= most / unit) * unit)
    return [step * i for i in range(int(most // step) + 1)]


def _legend(curves: Mapping[str, Sequence[int]]) -> list[str]:
    return [f"{name}, at most {human_bytes(max(curve))}" for name, curve in curves.items()]


def _label(curves: Mapping[str, Sequence[int]]) -> str:
    return escape("; ".join(f"{name}: at most {human_bytes(max(curve))}" for name, curve in curves.items()), quote=True)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
