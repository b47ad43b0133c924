"""The panel of the top-level tab Experiments compares plans and runs, and writes the comparison as a page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.ui.page import page as page_text
from workbench.bench import Workbench
from workbench.errors import ConfigError, RunError
from workbench.ui.tabs import compare_panel as ui_beside
from workbench.ui.tabs.compare_panel import ComparePanel


@pytest.fixture(scope="module")
def beside(mlp_bench: Workbench) -> ComparePanel:
    """Return a panel with two kept plans. One recomputes a value; the other also reorders statements."""
    found = ComparePanel(mlp_bench)
    site = next(s.id for s in mlp_bench.sites("saved") if "recompute" in s.options and "recompute" not in s.illegal)
    mlp_bench.choose({site: "recompute"})
    found.keep()
    mlp_bench.choose({"order.statements": "least peak"})
    found.keep()
    mlp_bench.undo(), mlp_bench.undo()
    return found


@pytest.fixture(scope="module")
def content(beside: ComparePanel) -> dict[str, Any]:
    return beside.compare(["stock", "kept 1", "kept 2"], [])


def test_the_current_plan_the_stock_plan_and_kept_plans_are_listed(beside: ComparePanel) -> None:
    assert [plan["key"] for plan in beside.plans()] == ["now", "stock", "kept 1", "kept 2"]


def test_figures_equal_those_of_the_plans(mlp_bench: Workbench, beside: ComparePanel, content: dict[str, Any]) -> None:
    assert content["names"] == ["stock", "kept 1", "kept 2"]
    assert content["base"] == "stock"
    assert beside.found is not None
    peaks = next(row for row in beside.found.figures if row.name == "peak_bytes")
    assert peaks.values[0] == mlp_bench.stock_plan.peak_bytes
    assert peaks.values[2] == mlp_bench.plan_under(beside._kept["kept 2"]).peak_bytes


def test_statements_are_aligned_and_differences_marked(mlp_bench: Workbench, content: dict[str, Any]) -> None:
    rows = content["steps"]["rows"]
    table = mlp_bench.stock_plan.graph.statements
    assert sum(row["cells"][0]["place"] != "–" for row in rows) == int((table.parent < 0).sum())
    # The stock plan has no recomputed statement. Both other plans have it, in the same row.
    again = next(row for row in rows if row["cells"][0]["place"] == "–")
    assert all(cell["place"] != "–" and cell["mark"] == "wb-differs" for cell in again["cells"][1:])
    assert all(row["alike"] for row in rows if all("differs" not in cell["mark"] for cell in row["cells"]))


def test_the_baseline_can_be_changed(beside: ComparePanel) -> None:
    assert beside.compare(["stock", "kept 1"], [], "kept 1")["base"] == "kept 1"
    assert beside.compare(["stock", "kept 1"], [], "kept 9")["base"] == "stock"


def test_differing_statements_come_first_if_there_are_many(
    beside: ComparePanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ui_beside, "MOST_ROWS", 3)
    steps = beside.compare(["stock", "kept 2"], [])["steps"]
    assert len(steps["rows"]) == 3
    assert not any(row["alike"] for row in steps["rows"])
    assert re.search(r"\d+ further statements are left out", steps["words"])


def test_missing_plans_are_reported(mlp_bench: Workbench, tmp_path: Path) -> None:
    fresh = ComparePanel(mlp_bench)
    with pytest.raises(RunError, match="nothing was compared yet"):
        fresh.write(str(tmp_path / "page.html"))
    key = fresh.keep()
    fresh.forget(key)
    with pytest.raises(RunError, match="was removed"):
        fresh.compare(["now", key], [])


def test_the_page_replaces_an_earlier_page_and_no_other_file(beside: ComparePanel, tmp_path: Path) -> None:
    beside.compare(["stock", "kept 1"], [])
    path = beside.write(str(tmp_path / "page.html"))
    assert "Statements in step" in path.read_text()
    assert beside.write(str(path)) == path
    other = tmp_path / "mine.html"
    other.write_text("mine")
    with pytest.raises(ConfigError):
        beside.write(str(other))
    assert other.read_text() == "mine"


@pytest.fixture
def mount(blank: Page, tmp_path: Path, beside: ComparePanel, content: dict[str, Any]) -> Callable[..., Page]:
    def open_page(*, dark: bool = False, shown: bool = True) -> Page:
        row = {"folder": "/run", "name": "first", "choices": [], "note": "", "state": "done", "accuracy": "ok"}
        listed = {"rows": [row], "plans": beside.plans(), "beside": content if shown else None}
        file = tmp_path / "tab.html"
        file.write_text(page_text("experiments", {"content": listed}, dark=dark, width=1150, css="compared_page.css"))
        blank.set_viewport_size({"width": 1200, "height": 1000})
        blank.goto(file.as_uri())
        blank.wait_for_function("window.ready === true")
        return blank

    return open_page


@pytest.mark.browser
def test_the_ticked_plans_are_requested(mount: Callable[..., Page]) -> None:
    page = mount(shown=False)
    put = page.get_by_role("button", name="Put side by side")
    assert put.is_disabled()
    page.get_by_label("Put the plan without choices side by side with others").check()
    assert put.is_disabled()
    tick = page.get_by_label("Put first side by side with others")
    tick.check()
    assert tick.evaluate("el => el === document.activeElement"), "the ticked box must keep the focus"
    put.click()
    page.get_by_role("button", name="Keep this plan").click()
    page.get_by_role("button", name="Remove kept 2").click()
    assert page.evaluate("window.messages") == [
        {"type": "beside", "base": "", "plans": ["stock"], "runs": ["/run"]},
        {"type": "keep"},
        {"type": "forget", "key": "kept 2"},
    ]


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_equal_statements_are_in_the_same_row_in_each_column(mount: Callable[..., Page], dark: bool) -> None:
    page = mount(dark=dark)
    steps = page.get_by_role("region", name="Statements in step")
    row = steps.locator("tbody tr").nth(4)
    tops = row.locator("td").evaluate_all("cells => cells.map((cell) => cell.getBoundingClientRect().top)")
    assert len(tops) == 6
    assert max(tops) - min(tops) < 1
    alike = steps.locator("tr.wb-alike").first
    assert alike.is_visible()
    page.get_by_label("only those that differ").check()
    assert not alike.is_visible()
    assert steps.locator("tbody tr:visible").count() > 0
    differs = steps.locator("td.wb-differs").first
    assert differs.evaluate("el => getComputedStyle(el).backgroundColor") != page.locator("body").evaluate(
        "el => getComputedStyle(el).backgroundColor"
    )
    page.get_by_label("Baseline").select_option("kept 1")
    page.get_by_label("Put the plan without choices side by side with others").check()
    page.get_by_label("File of the page").fill("other.html")
    page.get_by_role("button", name="Save as a page").click()
    assert page.evaluate("window.messages.at(-1)") == {"type": "write", "path": "other.html"}


@pytest.mark.browser
def test_a_requested_comparison_is_scrolled_into_sight_and_keeps_its_heads(
    mount: Callable[..., Page], content: dict[str, Any]
) -> None:
    page = mount(shown=False)
    tab = page.locator("#view")
    tab.evaluate(
        "el => { el.classList.add('widget-tab-contents'); el.style.cssText = 'height: 150px; overflow: auto'; }"
    )
    page.evaluate(
        "rows => model.set('content', { ...model.get('content'), rows })", 5 * [{"folder": "/r", "name": "r"}]
    )
    for name in ("the plan as it is now", "the plan without choices"):
        page.get_by_label(f"Put {name} side by side with others").check()
    page.get_by_role("button", name="Put side by side").click()
    page.evaluate("beside => model.set('content', { ...model.get('content'), beside })", content)
    top = "el => el.getBoundingClientRect().top"
    assert page.get_by_label("Baseline").evaluate(top) < 60
    # The statements have no scroll bar of their own: while the tab scrolls over them, their heads stay at its top.
    steps = page.get_by_role("region", name="Statements in step")
    steps.locator("tbody tr").nth(20).evaluate("el => el.scrollIntoView()")
    assert 0 <= steps.locator("th").first.evaluate(top) < 20
    # A later change of the list does not scroll again.
    scrolled = tab.evaluate("el => el.scrollTop")
    page.evaluate("model.set('content', { ...model.get('content') })")
    assert tab.evaluate("el => el.scrollTop") == scrolled
