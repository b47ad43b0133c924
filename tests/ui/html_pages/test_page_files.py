"""A browser shows the HTML pages of a saved plan and of a comparison from disk, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import ConsoleMessage, Page, Request

import workbench
from workbench.bench import SavedPlan
from workbench.summary import human_bytes

pytestmark = pytest.mark.browser


@pytest.fixture
def opened(blank: Page) -> Iterator[Callable[[Path], Page]]:
    """Yield a function that opens a page. After the test, assert that no page had an error or used the network."""
    said: list[str] = []
    asked: list[str] = []

    def complains(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(message.text)

    def asks(request: Request) -> None:
        asked.append(request.url)

    def fails(error: Exception) -> None:
        said.append(str(error))

    listeners = (("console", complains), ("request", asks), ("pageerror", fails))
    for event, listener in listeners:
        blank.on(event, listener)  # type: ignore[call-overload]

    def open_page(path: Path) -> Page:
        blank.set_viewport_size({"width": 1100, "height": 900})
        blank.goto(path.as_uri())
        return blank

    yield open_page
    for event, listener in listeners:
        blank.remove_listener(event, listener)
    assert not said
    assert [url for url in asked if not url.startswith("file:")] == []
    assert len(asked) == 1


@pytest.fixture
def saved(saved_mlp: Path) -> SavedPlan:
    found = workbench.open(saved_mlp)
    assert isinstance(found, SavedPlan)
    return found


def overflow_px(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found


def test_the_page_of_a_saved_plan_draws_its_graph(
    opened: Callable[[Path], Page], saved: SavedPlan, tmp_path: Path
) -> None:
    page = opened(saved.report(tmp_path / "plan.html"))
    page.wait_for_function("document.querySelector('#wb-graph canvas')?.width > 0")
    peak = page.locator("[data-figure=peak]").first.inner_text()
    assert human_bytes(saved.peak_bytes) in peak
    assert page.locator("#wb-alive tbody tr").count() > 0
    assert page.get_by_role("img", name="predicted: at most").is_visible()
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.locator("#wb-theme").click()
    assert page.evaluate(paper) != light
    assert overflow_px(page) <= 0


def test_the_page_of_a_comparison_filters_differences_without_a_script(
    opened: Callable[[Path], Page], saved: SavedPlan, tmp_path: Path
) -> None:
    least = saved.choose({"order.statements": "least peak"})
    again = saved.choose({next(s.id for s in saved.sites("saved") if "recompute" in s.options): "recompute"})
    found = workbench.compare(saved, least, again, names=("stock", "least", "again"))
    page = opened(found.write(tmp_path / "compared.html"))
    assert page.locator("script").count() == 0
    rows = page.locator(".wb-steps tbody tr")
    assert rows.count() == len(found.statements)
    page.get_by_label("only those that differ").check()
    shown = rows.evaluate_all("rows => rows.filter((row) => row.offsetParent !== null).length")
    assert shown == len(found.differing_statements) > 0
    # One of the plans has no statements. The page says this in a note, and still shows the plan's figures.
    assert page.locator(".wb-bad").filter(has_text="statements cannot be compared").count() == 1
    peaks = page.locator("tr").filter(has=page.get_by_text("peak", exact=True)).first.locator("td").all_inner_texts()
    assert all(text != "–" for text in peaks)
    assert overflow_px(page) <= 0
