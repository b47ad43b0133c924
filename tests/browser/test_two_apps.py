"""In one notebook, only apps of the same bench share choices.

A cell may be executed again while the bench runs its program.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.app import TALL, sideways
from tests.browser.harness import Lab
from tests.browser.test_accessibility import set_theme

pytestmark = pytest.mark.browser

OPEN = "import workbench as wb\nbench = wb.open('mlp', device='cpu', executor='torch', layers=1)\nbench"
OTHER = "other = wb.open('mlp', device='cpu', executor='torch', layers=2)\nother"
APPS = ".jp-Notebook .wb-app"
CHANGE = "−"
"""The minus sign of a change from stock."""
TURNABLE = "next(s.id for s in bench.sites('saved') if s.values and 'recompute' not in s.illegal)"


@pytest.mark.long
def test_apps_of_one_bench_agree_and_a_cell_may_run_again_during_a_run(lab: Lab) -> None:
    lab.page.set_viewport_size(TALL | {"height": 3000})
    lab.write_notebook("apps.ipynb", [OPEN, "bench", OTHER, "print('all', 'ran')"])
    lab.open_notebook("apps.ipynb")
    lab.run_all()
    lab.wait_marker("all ran", timeout_s=240)
    lab.wait_until(lambda: lab.page.locator(APPS).count() == 3)

    # A choice in one app appears also in the second app of the same bench, but not in the app of another bench.
    site = lab.kernel_eval(f"print({TURNABLE})")
    # The predicted step time appears when the rates of the CPU are measured.
    lab.wait_until(lambda: all("≈" in figures(lab, app) for app in range(3)))
    before = [figures(lab, app) for app in range(3)]
    lab.page.evaluate(
        f"id => Array.from(document.querySelectorAll('{APPS} .wb-graph'))[0].__workbench.view.turn(id)", site
    )
    # Each app shows the new figures when its own message arrives.
    lab.wait_until(lambda: CHANGE in figures(lab, 0) == figures(lab, 1))
    assert figures(lab, 2) == before[2]
    assert lab.kernel_eval("print(other.choices)") == "{}"

    # Start a run of the bench. Meanwhile, execute again the cell that opened the bench. The run ends normally.
    lab.page.locator(APPS).nth(1).get_by_role("button", name="Compile & run").click()
    lab.wait_until(lambda: lab.kernel_eval("print(len(bench.runs))") == "1")
    lab.kernel_eval("first, run = bench, bench.runs[0]")
    lab.run_cell(0)
    lab.wait_until(lambda: lab.kernel_eval("print(bench is first)") == "False", timeout_s=120)
    lab.wait_until(lambda: lab.kernel_eval("print(run.state)") == "done", timeout_s=240)
    lab.wait_until(lambda: CHANGE not in figures(lab, 0))
    # The second app still has the old bench, and shows the bench's run.
    lab.wait_until(lambda: "Done" in lab.page.locator(APPS).nth(1).locator(".wb-live").inner_text())
    assert CHANGE in figures(lab, 1)
    assert "Nothing has run yet" in lab.page.locator(APPS).nth(0).locator(".wb-live").inner_text()
    assert not [line for line in lab.console if "uncaught" in line]

    # After a change of the theme, the memory view of the second app is still drawn.
    memory = lab.page.locator(APPS).nth(1).locator(".wb-memory")
    said = memory.inner_text()
    assert "(max " in said
    for theme in ("Dark", "Light"):
        set_theme(lab, theme)
        lab.page.wait_for_timeout(100)
        assert memory.inner_text() == said

    # In a narrower window, the measurements of the second app stay visible.
    lab.page.locator(APPS).nth(1).get_by_role("tab", name="Experiments", exact=True).click()
    lab.page.locator(APPS).nth(1).locator("[data-run]").first.wait_for()
    for width in (1440, 1100, 700):
        lab.page.set_viewport_size(TALL | {"width": width})
        lab.wait_until(lambda: sideways(lab, f"{APPS} >> nth=1") == [], timeout_s=10)
        assert lab.page.locator(APPS).nth(1).get_by_role("button", name="Delete").is_visible()


def figures(lab: Lab, app: int) -> str:
    """Return the text of the strip of the app with index `app`."""
    found: Any = lab.page.locator(APPS).nth(app).locator(".wb-strip").inner_text()
    return str(found)


@pytest.mark.long
def test_tabs_of_equal_programs_have_different_names(lab: Lab) -> None:
    cells = [
        f"import workbench as wb\nwb.open('mlp', device='planned', executor='torch', layers={layers}).show(tab=True)"
        for layers in (1, 2, 2)
    ]
    lab.write_notebook("names.ipynb", cells)
    lab.open_notebook("names.ipynb")
    lab.run_all()
    labels = (
        "() => [...jupyterapp.shell.widgets('main')].map(({ title }) => title.label).filter((one) => /^mlp/.test(one))"
    )
    lab.wait_until(lambda: len(lab.page.evaluate(labels)) == 3, timeout_s=120)
    assert sorted(lab.page.evaluate(labels)) == ["mlp, 1 layer", "mlp, 2 layers", "mlp, 2 layers (2)"]
