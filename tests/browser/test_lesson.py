"""Use a lesson in a real JupyterLab without a network: lock in predictions, see answers, and get a hint."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import Locator

from tests.browser.harness import Lab
from tests.notebooks.source import NOTEBOOKS

pytestmark = pytest.mark.browser

UNRUN = """() => Array.from(jupyterapp.shell.currentWidget.content.model.cells)
    .filter(cell => cell.type === 'code' && !cell.executionCount).length"""


def write_part(lab: Lab, upto: str) -> dict[str, int]:
    """Write the lesson up to the cell whose source is `upto`. Return each code cell's index by its last line."""
    notebook = nbformat.read(NOTEBOOKS / "lessons" / "4_rematerialization.ipynb", as_version=4)
    last = next(i for i, cell in enumerate(notebook.cells) if cell.source == upto)
    del notebook.cells[last + 1 :]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, lab.folder / "lesson.ipynb")
    return {cell.source.splitlines()[-1]: i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"}


def shown(lab: Lab, index: int) -> Locator:
    """Scroll to a cell, and return its output."""
    lab.page.evaluate("index => jupyterapp.shell.currentWidget.content.scrollToItem(index, 'center')", index)
    return lab.page.locator(f'.jp-Cell[data-windowed-list-index="{index}"] .jp-Cell-outputArea')


def says(lab: Lab, index: int, words: str) -> None:
    """Run a cell, and wait until its output contains the text `words`."""
    lab.run_cell(index)
    shown(lab, index).get_by_text(words).first.wait_for(timeout=60_000)


@pytest.mark.long
def test_a_lesson_takes_predictions_and_shows_the_answer(lab: Lab) -> None:
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    at = write_part(lab, "e1.check(...)")
    lab.open_notebook("lesson.ipynb")
    lab.run_all()
    lab.wait_until(lambda: lab.page.evaluate(UNRUN) == 0, timeout_s=200)
    says(lab, at["q2.reveal()"], "Lock in a prediction first")

    number = shown(lab, at["q1"])
    lock = number.get_by_role("button", name="Lock in")
    assert lock.is_disabled(), "an empty prediction must not be locked"
    number.get_by_role("spinbutton").fill("8")
    lock.click()
    number.get_by_text("Locked in").wait_for()
    assert number.get_by_role("spinbutton").is_disabled()
    says(lab, at["q1.reveal()"], "the workbench says")
    shown(lab, at["q1"]).get_by_text("✓ Right").wait_for()

    options = shown(lab, at["q2"])
    options.get_by_label("a", exact=False).first.wait_for()
    for name in ("a", "b"):
        options.locator(f'input[value="{name}"]').check()
    lab.screenshot("lesson-open", options)
    options.get_by_role("button", name="Lock in").click()
    options.get_by_text("Locked in").wait_for()
    assert options.get_by_role("button", name="Lock in").count() == 0, (
        "a locked prediction must have no button to lock it"
    )
    assert options.locator('input[value="a"]').is_disabled()
    lab.screenshot("lesson-locked", options)
    says(lab, at["q2.reveal()"], "left out")
    shown(lab, at["q2"]).get_by_text("Not what happens").wait_for()
    lab.screenshot("lesson-light")

    lab.page.evaluate(
        "([index, code]) => jupyterapp.shell.currentWidget.content.model.cells.get(index).sharedModel.setSource(code)",
        [at["e1.check(...)"], "e1.check(0.9)"],
    )
    says(lab, at["e1.check(...)"], "Make arguments cheaper")

    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    try:
        lab.page.wait_for_selector('body[data-jp-theme-light="false"]', state="attached")
        lab.page.wait_for_selector("#jupyterlab-splash", state="detached")
        shown(lab, at["e1.check(...)"])
        lab.screenshot("lesson-dark-hint")
        shown(lab, at["q1"])
        lab.screenshot("lesson-dark")
    finally:
        lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")
    assert not [line for line in lab.console if "uncaught" in line or "Could not" in line]
