"""In a notebook cell, strip and status line stay in view while the app scrolls, and the app's height is fixed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.app import open_program, open_tab
from tests.browser.harness import Lab
from workbench.ui.app.places import PLACES

pytestmark = pytest.mark.browser

CELL = ".jp-Notebook .wb-app"


def places_in_view(lab: Lab) -> dict[str, Any]:
    """Return the upper and lower edges of parts of the app and of the notebook's visible area, in pixels."""
    found: dict[str, Any] = lab.page.evaluate(
        """async cell => {
            for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame);
            const edges = el => (({ top, bottom }) => [top, bottom].map(Math.round))(el.getBoundingClientRect());
            const app = document.querySelector(cell), part = name => edges(app.querySelector(name));
            return { window: edges(app.closest(".jp-WindowedPanel-outer")), app: edges(app), graph: part(".wb-graph"),
                     strip: part(".wb-strip"), status: part(".wb-status"), places: part(".wb-places") };
        }""",
        CELL,
    )
    return found


def scroll_by(lab: Lab, pixels: int) -> None:
    lab.page.evaluate("by => document.querySelector('.jp-WindowedPanel-outer').scrollBy(0, by)", pixels)


def test_strip_and_status_line_stay_in_view_and_no_tab_changes_the_height(lab: Lab) -> None:
    open_program(lab, "'mlp', device='cpu'")
    for width in (900, 1280, 1920, 2560):
        lab.page.set_viewport_size({"width": width, "height": 900})
        lab.page.evaluate("jupyterapp.shell.currentWidget.content.scrollToItem(0, 'start')")
        seen = places_in_view(lab)
        for part in ("graph", "places"):
            # Scroll until the middle of the part is in the middle of the notebook.
            scroll_by(lab, (sum(seen[part]) - sum(seen["window"])) // 2)
            seen = places_in_view(lab)
            assert seen["strip"][0] >= seen["window"][0], f"at {width}, the strip is above the view of the {part}"
            assert seen["status"][1] <= seen["window"][1] + 1, f"at {width}, the status line is below the {part}'s view"
            assert seen["status"][0] >= seen["strip"][1], f"at {width}, the strip covers the status line"
        heights = set()
        for tab in (tab for tabs in PLACES.values() for tab in tabs):
            open_tab(lab, tab, CELL)
            top, bottom = places_in_view(lab)["app"]
            heights.add(bottom - top)
        assert len(heights) == 1
