"""axe-core finds no serious or critical fault of the app in a real JupyterLab: in a cell and a tab, in both themes."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
import pytest

from tests.browser.app import press, show_cell
from tests.browser.harness import Lab

pytestmark = pytest.mark.browser

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
CELL, TAB = ".jp-Notebook .wb-app", ".wb-tab"
# Each of these tabs is checked twice: in the notebook cell with one theme, and in JupyterLab's tab with the other one.
TABS = (
    "Memory",
    "Worth it",
    "Outline",
    "Compile",
    "Timeline",
    "Fusions",
    "Passes",
    "Experiments",
    "Sites",
    "Settings",
    "Trace",
)


def test_axe_finds_no_serious_fault(lab: Lab) -> None:
    lab.page.set_viewport_size({"width": 1100, "height": 1400})
    cells = ["import workbench as wb\nbench = wb.open('mlp', device='cpu')\nbench", "print('all', 'ran')"]
    lab.write_notebook("axe.ipynb", cells)
    lab.open_notebook("axe.ipynb")
    lab.run_all()
    lab.wait_marker("all ran")
    show_cell(lab, 0)
    select_arc(lab, CELL)
    lab.page.evaluate(AXE.read_text())
    assert faults(lab, CELL, TABS[1::2]) == []
    lab.page.locator(f"{CELL} [data-do=legend]").click()
    set_theme(lab, "Dark")
    assert faults(lab, CELL, TABS[::2]) == []
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    press(lab, "Open in a tab")
    lab.page.wait_for_selector(f"{TAB} .wb-graph canvas")
    select_arc(lab, TAB)
    assert faults(lab, TAB, TABS[1::2]) == []
    set_theme(lab, "Light")
    assert faults(lab, TAB, TABS[::2]) == []


def select_arc(lab: Lab, where: str) -> None:
    """Select an arc that can be chosen, so that the inspector shows its options."""
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


def faults(lab: Lab, where: str, tabs: tuple[str, ...]) -> list[str]:
    """Return the serious or critical findings of axe-core in the app, with each tab open in turn."""
    found = []
    # The first check covers all of the app, later ones only the changed part, because axe needs long for each element.
    for name, part in zip(tabs, (where, *[f"{where} .jupyter-widget-tab"] * len(tabs)), strict=False):
        lab.page.locator(where).get_by_role("tab", name=name, exact=True).click()
        lab.page.wait_for_timeout(100)
        told = lab.page.evaluate(
            """async ([where, values]) => {
                // For passed rules only the number is needed: axe would need long to find a selector for each element.
                const asked = { runOnly: values, resultTypes: ["violations"], selectors: false };
                const { violations, passes } = await axe.run(where, asked);
                const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
                const told = serious.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`));
                return { looked: passes.length, serious: told };
            }""",
            [part, RULES],
        )
        assert told["looked"] > (10 if part == where else 5), "axe checked hardly anything of the app"
        found += [f"{name}: {fault}" for fault in told["serious"]]
    return found
