"""Functions with which browser tests read and use the app in a notebook."""

from __future__ import annotations

from typing import Any

from tests.browser.harness import Lab
from workbench.ui.app.places import find

GRAPH = ".wb-graph"
TALL = {"width": 1500, "height": 1350}
"""Size of a window that shows the whole app, from its buttons to its tabs."""


def open_program(lab: Lab, program: str) -> None:
    """Write and open a notebook that shows the app of a program, with its bench named `bench`. Run all its cells."""
    lab.page.set_viewport_size(TALL)
    cells = [f"import workbench as wb\nbench = wb.open({program})\nbench", "print('all', 'ran')"]
    lab.write_notebook("app.ipynb", cells)
    lab.open_notebook("app.ipynb")
    lab.run_all()
    lab.wait_marker("all ran")
    show_cell(lab, 0)


def show_cell(lab: Lab, index: int) -> None:
    """Scroll to the cell that shows the app, and wait until its graph is rendered."""
    lab.page.evaluate("index => jupyterapp.shell.currentWidget.content.scrollToItem(index, 'start')", index)
    lab.page.wait_for_selector(f"{GRAPH} canvas")
    lab.wait_until(lambda: graph(lab, "state().drawn_ms") > 0)
    # At first, the whole graph fits into the view. At zoom 1, each row is large enough to point at.
    graph(lab, "view.setZoom(1, 0, 0)")


def graph(lab: Lab, what: str, *given: Any) -> Any:
    """Evaluate an expression on the graph view. The expression can use the list `given`. Return its value."""
    return lab.page.evaluate(f"given => document.querySelector('{GRAPH}').__workbench.{what}", list(given))


def click(lab: Lab, id: str, **options: Any) -> None:
    """Click the element of the graph with this id. `options` are passed to Playwright's `click`."""
    at = graph(lab, "position(given[0])", id)
    assert graph(lab, "hit(given[0], given[1])", at["x"], at["y"]) == id
    lab.page.mouse.click(at["x"], at["y"], **options)


def turn(lab: Lab, id: str) -> None:
    """Double-click the element of the graph with this id: an arc or a mark changes to its next legal option."""
    click(lab, id, click_count=2)


def figure(lab: Lab, key: str) -> str:
    """Return the text of a figure in the strip, by the figure's key."""
    return lab.page.locator(f"[data-figure={key}]").first.inner_text()


def press(lab: Lab, button: str) -> None:
    """Press a button of the app's controls, by its name."""
    lab.page.locator(".wb-controls").get_by_role("button", name=button).click()


CONTENT = {"Curve and peak": "alive", "Runs": "experiments", "Single choices": "worth"}
"""CSS class of a tab's content after ``wb-``, if it is not the tab's title in lower case."""


def open_tab(lab: Lab, name: str, where: str = ".wb-app") -> None:
    """Open a tab below the graph, and wait until it has content. If `name` is a top-level tab, open only that."""
    place, tab = find(name)
    shown = lab.page.locator(where)
    shown.get_by_role("tab", name=place, exact=True).click()
    if tab:
        shown.get_by_role("tab", name=tab, exact=True).click()
        shown.locator(f".wb-{CONTENT.get(tab, tab.lower())}").filter(visible=True).first.wait_for()


def sideways(lab: Lab, where: str = ".wb-app") -> list[str]:
    """Return the scrollable elements of the open tab whose content is wider than the element, except program text."""
    found: list[str] = lab.page.locator(where).evaluate(
        """async app => {
            // Wait for some frames, because wide elements get a new layout in the next frame.
            for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame);
            const open = app.querySelector(".wb-place:not(.lm-mod-hidden) > .widget-tab-contents");
            return [open, ...open.querySelectorAll("*")]
                .filter(el => el.clientWidth && el.scrollWidth > el.clientWidth + 1 && !el.matches(".wb-text"))
                .filter(el => ["auto", "scroll"].includes(getComputedStyle(el).overflowX))
                .map(el => `${el.className}: ${el.scrollWidth} in ${el.clientWidth}`);
        }"""
    )
    return found


def live(lab: Lab) -> str:
    """Return the text of the app's line about the current run."""
    return lab.page.locator(".wb-live").inner_text()
