"""In both themes, colours of texts have a contrast of at least 4.5 to 1 with their backgrounds (WCAG 2.2, AA)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

UI = Path(__file__).parents[2] / "workbench" / "ui" / "frontend"
ENOUGH = 4.5
INKS = ("ink", "muted", "accent", "good", "bad", "saved", "again", "away")


def luminance(color: str) -> float:
    """Return the relative luminance of ``#rrggbb``, as WCAG defines it."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def panels(dark: bool) -> dict[str, str]:
    """Return the colours of a theme in ``style.css``. JupyterLab replaces some of them by equally light colours."""
    css = (UI / "style.css").read_text()
    light_block, dark_block = re.findall(r"\{([^{}]*--wb-ink:[^{}]*)\}", css)
    pairs = re.findall(r"--wb-([\w-]+):[^;]*?(#[0-9a-f]{6})", light_block + (dark_block if dark else ""))
    return dict(pairs)


def canvas(dark: bool) -> dict[str, list[str]]:
    """Return the colours with which ``graph_scene.js`` draws a theme: lists of colours by name."""
    source = (UI / "graph/graph_scene.js").read_text()
    block = re.search(rf"const {'DARK' if dark else 'LIGHT'} = \{{(.*?)\}};", source, re.DOTALL)
    assert block is not None
    found = re.findall(r"(\w+): (\[[^\]]*\]|\"#[0-9a-f]{6}\")", block.group(1))
    return {name: re.findall(r"#[0-9a-f]{6}", value) for name, value in found}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_panels_are_readable(dark):
    colors = panels(dark)
    pairs = [(ink, paper) for ink in INKS for paper in ("paper", "band", "hair")]
    pairs += [(ink, paper) for ink in ("ink", "muted", "bad") for paper in ("warn-paper", "new-paper")]
    weak = {pair: round(contrast(*(colors[name] for name in pair)), 2) for pair in pairs}
    assert not {pair: found for pair, found in weak.items() if found < ENOUGH}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_graph_is_readable(dark):
    colors = canvas(dark)
    paper, band = colors["paper"][0], colors["band"][0]
    written = [
        *((colors[name][0], on) for name in ("ink", "muted", "fusionText", "select") for on in (paper, band)),
        *((color, paper) for color in colors["arcs"]),
        *((colors["texts"][side], colors["fills"][side]) for side in (0, 1)),
        *((colors["soft"][side], colors["fills"][side]) for side in (0, 1)),
        *((color, paper) for color in colors["texts"]),
        (paper, colors["select"][0]),
    ]
    weak = {pair: round(contrast(*pair), 2) for pair in written if contrast(*pair) < ENOUGH}
    assert not weak


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_buttons_are_readable(dark):
    colors = panels(dark)
    assert contrast(colors["on-accent"], colors["accent"]) >= ENOUGH
