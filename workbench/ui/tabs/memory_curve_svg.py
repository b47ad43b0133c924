"""Memory over the statements of a step as SVG in the page's colours, for pages without a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from workbench.summary import human_bytes

_WIDTH, _HEIGHT = 1100, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 72.0, 12.0, 12.0, 24.0
_STYLES = ("stroke:var(--wb-accent)", "stroke:var(--wb-muted);stroke-dasharray:4 3", "stroke:var(--wb-again)")


def memory_curves(curves: Mapping[str, Sequence[int]], *, forward: int) -> str:
    """Draw step curves of bytes, each stretched to the full width, below a legend of their names.

    Parameters
    ----------
    curves : mapping of str to sequence of int
        Bytes inside each statement, by name; at most three curves.
    forward : int
        Statements of the first curve before its backward begins.
    """
    shown = {name: curve for name, curve in curves.items() if len(curve)}
    most = max((max(curve) for curve in shown.values()), default=0) or 1
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def y(nbytes: float) -> float:
        return bottom - nbytes / (1.1 * most) * (bottom - _TOP)

    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = y(share * most)
        parts.append(f'<path d="M{_LEFT:g} {at:.1f}H{right:g}" style="stroke:var(--wb-hair)"/>')
        parts.append(_text(_LEFT - 6, at + 4, human_bytes(share * most), "end"))
    count = len(next(iter(shown.values()), ()))
    if 0 < forward < count:
        at = _LEFT + forward / count * (right - _LEFT)
        parts.append(f'<path d="M{at:.1f} {_TOP:g}V{bottom:g}" style="stroke:var(--wb-rule)"/>')
        parts.append(_text(at - 6, _HEIGHT - 8, "forward", "end"))
        parts.append(_text(at + 6, _HEIGHT - 8, "backward", "start"))
    for (name, curve), style in reversed(list(zip(shown.items(), _STYLES, strict=False))):
        wide = (right - _LEFT) / len(curve)
        path = "".join(
            f"{'L' if i else 'M'}{_LEFT + i * wide:.1f} {y(b):.1f}H{_LEFT + (i + 1) * wide:.1f}"
            for i, b in enumerate(curve)
        )
        title = f"<title>{escape(name)}: at most {human_bytes(max(curve))}</title>"
        parts.append(f'<path d="{path}" style="{style};fill:none;stroke-width:1.75">{title}</path>')
    stroke = '<svg width="26" height="10" aria-hidden="true"><path d="M1 5H25" style="{};stroke-width:2"/></svg>'
    legend = "".join(
        f"<span>{stroke.format(style)} {escape(name)}, at most {human_bytes(max(curve))}</span>"
        for (name, curve), style in zip(shown.items(), _STYLES, strict=False)
    )
    label = escape("; ".join(f"{name}: at most {human_bytes(max(curve))}" for name, curve in shown.items()), quote=True)
    return (
        f'<div class="wb-curve-legend">{legend}</div><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
