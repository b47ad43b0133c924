"""axe-core finds no serious or critical fault in the app, in a cell and in a tab of a real JupyterLab."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest

from tests.browser.app import open_tab, press, show_cell
from tests.browser.harness import Lab
from workbench.ui.app.places import PLACES

pytestmark = pytest.mark.browser

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
CELL, TAB = ".jp-Notebook .wb-app", ".wb-tab"
# Each of these tabs of the app is checked twice: in a notebook cell with one theme, and in a tab of JupyterLab with the
# other theme.
TABS = tuple(tab for tabs in PLACES.values() for tab in tabs)


@pytest.mark.long
@pytest.mark.parametrize(
    ("where", "themes"),
    [(CELL, ("Light", "Dark")), (TAB, ("Dark", "Light"))],
    ids=["in a cell", "in a tab"],
)
def test_axe_finds_no_serious_fault(lab: Lab, where: str, themes: tuple[str, str]) -> None:
    lab.page.set_viewport_size({"width": 1100, "height": 1400})
    cells = ["import workbench as wb\nbench = wb.open('mlp', device='cpu')\nbench", "print('all', 'ran')"]
    lab.write_notebook("axe.ipynb", cells)
    lab.open_notebook("axe.ipynb")
    lab.run_all()
    lab.wait_marker("all ran")
    show_cell(lab, 0)
    if where == TAB:
        lab.page.set_viewport_size({"width": 1440, "height": 900})
        press(lab, "Open in a tab")
        lab.page.wait_for_selector(f"{TAB} .wb-graph canvas")
    select_arc(lab, where)
    lab.page.evaluate(AXE.read_text())
    try:
        for theme, tabs in zip(themes, (TABS[1::2], TABS[::2]), strict=True):
            set_theme(lab, theme)
            assert faults(lab, where, tabs) == []
            assert faults_of_boxes(lab, where) == []
            if where == CELL and theme == "Light":
                lab.page.locator(f"{CELL} [data-do=legend]").click()
    finally:
        set_theme(lab, "Light")


def select_arc(lab: Lab, where: str) -> None:
    """Select an arc of a site with options, so that the inspector shows them."""
    view = f"document.querySelector('{where} .wb-graph').__workbench"
    lab.wait_until(lambda: lab.page.evaluate(f"{view}?.state().drawn_ms > 0"))
    lab.page.evaluate(f"{view}.view.select({view}.state().arcs[0].id)")
    lab.page.locator(f"{where} .wb-option").first.wait_for()


def set_theme(lab: Lab, name: str) -> None:
    lab.page.evaluate(
        "name => jupyterapp.commands.execute('apputils:change-theme', { theme: `JupyterLab ${name}` })", name
    )
    dark = str(name == "Dark").lower()
    lab.page.wait_for_function(f"(document.body.dataset.jpThemeLight === 'false') === {dark}")
    lab.page.wait_for_selector("#jupyterlab-splash", state="detached")


def faults_of_boxes(lab: Lab, where: str) -> list[str]:
    """Open what lies over the app: export, menu, search, keys, help, then an inspector without a selection."""
    shown, page = lab.page.locator(where), lab.page
    canvas, found = shown.locator(".wb-graph canvas").first, []

    def look(name: str, box: str) -> None:
        shown.locator(box).filter(visible=True).first.wait_for()
        found.extend(f"{name}: {fault}" for fault in serious(lab, where, 10))

    shown.locator(".wb-export-more").click()
    look("export", ".wb-export-box pre")
    page.keyboard.press("Escape")
    canvas.focus()
    page.keyboard.press("Shift+F10")
    look("menu", ".wb-menu")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("linear")
    look("search", ".wb-found:not(:empty)")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    look("keys", ".wb-key-sheet")
    page.keyboard.press("Escape")
    shown.locator(".wb-help-button").click()
    look("help", ".wb-note-box")
    page.keyboard.press("Escape")
    canvas.focus()
    page.keyboard.press("Escape")
    look("nothing selected", ".wb-inspector .wb-keys")
    select_arc(lab, where)
    return found


def serious(lab: Lab, part: str, least: int) -> list[str]:
    """Return the serious and critical findings of axe-core in a part of the page as text."""
    told = lab.page.evaluate(
        """async ([where, values]) => {
            // Only the number of passed rules is needed. Selectors for all elements would take axe a long time.
            const asked = { runOnly: values, resultTypes: ["violations"], selectors: false };
            const { violations, passes } = await axe.run(where, asked);
            const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
            const told = serious.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
            return { looked: passes.length, serious: told };
        }""",
        [part, RULES],
    )
    assert told["looked"] > least, "axe checked hardly anything of the app"
    return list(told["serious"])


def faults(lab: Lab, where: str, tabs: tuple[str, ...]) -> list[str]:
    """Open the given tabs of the app in turn. Return the serious and critical findings of axe-core as text."""
    found = []
    # The first check covers the whole app. Later checks cover only the open tab, because axe takes time for each
    # element.
    for name, part in zip(tabs, (where, *[f"{where} .wb-places"] * len(tabs)), strict=False):
        open_tab(lab, name, where)
        lab.page.wait_for_timeout(100)
        found += [f"{name}: {fault}" for fault in serious(lab, part, 10 if part == where else 5)]
    return found
