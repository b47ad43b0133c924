"""The strip of figures is a band of fixed height. A tile shows its further lines on hover or focus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from tests.ui.page import page as page_text

pytestmark = pytest.mark.browser

MOST_HIGH = 64
CHANGE = {"delta": "−64.0 KiB", "delta_vs": "vs stock", "delta_tone": "good", "delta_tip": "vs stock"}
RATES = "8 × H100: a datasheet"


def value(text: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"text": text, "kind": kind, **more}


WITHIN_NOISE = {**CHANGE, "delta": "within noise"}

PLANNED = [
    {"key": "peak", "title": "Peak memory", "values": [value("1.27 MiB", "predicted")]},
    {"key": "saved", "title": "Saved for backward", "values": [value("1.07 MiB", "predicted")]},
    {"key": "step", "title": "Step time", "values": [value("–", "not measured yet")]},
    {"key": "accuracy", "title": "Accuracy", "values": [value("–", "not checked yet")]},
]
ON_RANKS = [
    {
        "key": "peak",
        "title": "Peak memory",
        "values": [
            value("1.27 MiB", "predicted", **CHANGE),
            value("1.31 MiB", "measured", tip="predicted: 1.27 MiB", beside=True),
        ],
    },
    {
        "key": "saved",
        "title": "Saved for backward",
        "values": [value("1.07 MiB", "predicted", **CHANGE), value("60 tensors", "", **CHANGE)],
    },
    {
        "key": "fusions",
        "title": "Unique fusions",
        "values": [value("20 of 41", "predicted"), value("41", "compilations"), value("30 ops", "in the largest")],
    },
    {"key": "offload", "title": "Offloaded", "values": [value("64.0 KiB", "predicted"), value("2 µs", "of copying")]},
    {"key": "compile", "title": "Compile time", "values": [value("–", "not measured yet")]},
    {"key": "step", "title": "Step time", "values": [value("12.4 ms", "measured", **WITHIN_NOISE)]},
    {
        "key": "overlap",
        "title": "Communication, simulated on H100",
        "values": [
            value("367 µs", "exposed", tip=RATES, **CHANGE),
            value("1.25 ms", "step", tip=RATES, **CHANGE),
            value("1.15 ms", "at least, in any order", tip=RATES),
        ],
    },
    {"key": "accuracy", "title": "Accuracy", "values": [value("ok", "measured"), value("proven", "same results")]},
]


@pytest.fixture
def mount(blank: Page, tmp_path: Path) -> Callable[..., Page]:
    def open_page(figures: list[dict[str, Any]], width: int) -> Page:
        file = tmp_path / "view.html"
        text = page_text("figure_strip", {"content": {"figures": figures}}, width=width)
        file.write_text(text.replace("<body ", '<body class="wb-app" ', 1).replace("padding:16px", f"width:{width}px"))
        blank.set_viewport_size({"width": 1920, "height": 720})
        blank.goto(file.as_uri())
        blank.wait_for_function("window.ready === true")
        return blank

    return open_page


AFTER_A_CHOICE = [
    {
        "key": "peak",
        "title": "Peak memory",
        "values": [
            value("192 MiB", "predicted", **CHANGE),
            value("192 MiB", "earlier plan", beside=True, earlier=True),
        ],
    },
    {
        "key": "saved",
        "title": "Saved for backward",
        "values": [value("172 MiB", "predicted", **CHANGE), value("60 tensors", "", **CHANGE)],
    },
    {"key": "fusions", "title": "Fusions", "values": [value("0", "predicted")]},
    {"key": "compile", "title": "Compile time", "values": [value("44.90 s", "earlier plan", earlier=True)]},
    {
        "key": "step",
        "title": "Step time",
        "values": [
            value("≈ 578 ms", "predicted", **CHANGE),
            value("15.23 s", "earlier plan", beside=True, earlier=True),
            value("12.71–18.62 s", "95 %", earlier=True),
        ],
    },
    {
        "key": "accuracy",
        "title": "Accuracy",
        "values": [
            value("ok", "earlier plan", earlier=True, tone="good"),
            value("5.2e-02", "largest error", earlier=True),
            value("proven", "same results", tone="good"),
        ],
    },
]


def is_whole(part: Locator) -> bool:
    """Return whether a text of a tile is visible and not cut."""
    return bool(
        part.evaluate(
            """el => {
                const box = el.getBoundingClientRect(), tile = el.closest(".wb-figure-box").getBoundingClientRect();
                return box.width > 0 && el.scrollWidth <= el.clientWidth + 1
                    && box.bottom <= tile.bottom + 1 && box.right <= tile.right + 1;
            }"""
        )
    )


@pytest.mark.parametrize("width", [1560, 1080, 920, 780])
def test_the_strip_is_a_band_whose_height_does_not_depend_on_its_figures(mount, width: int):
    page = mount(PLANNED, width)
    strip = page.locator(".wb-strip")
    height = strip.bounding_box()["height"]
    assert height <= MOST_HIGH
    page.evaluate("figures => model.set('content', { figures })", ON_RANKS)
    assert strip.bounding_box()["height"] == height
    assert strip.evaluate("el => el.scrollWidth <= el.clientWidth")


@pytest.mark.parametrize("width", [1560, 1080, 920])
def test_each_tile_shows_its_figure_and_its_change(mount, width: int):
    page = mount(ON_RANKS, width)
    for key in ("peak", "saved", "step", "overlap"):
        first = page.locator(f"[data-figure={key}] .wb-value").first
        assert is_whole(first.locator(".wb-number")), key
        assert is_whole(first.locator(".wb-delta")), key
    assert is_whole(page.locator("[data-figure=overlap] .wb-delta").nth(1))
    assert page.locator("[data-figure=fusions] .wb-number").all_inner_texts() == [
        "20 of 41",
        "41 compilations",
        "30 ops",
    ]


@pytest.mark.parametrize("width", [2500, 1430, 957, 910, 900, 840, 780, 460])
@pytest.mark.parametrize("figures", [PLANNED, ON_RANKS, AFTER_A_CHOICE], ids=["planned", "on ranks", "after a choice"])
def test_the_words_that_say_what_a_figure_is_are_whole(mount, figures, width: int):
    page = mount(figures, width)
    for figure in figures:
        tile = page.locator(f"[data-figure={figure['key']}]")
        if 760 < width <= 900 and len(figures) > 6 and figure["key"] == "compile":
            assert not tile.is_visible()
            continue
        first = figure["values"][0]
        words = tile.locator(".wb-first-kind")
        assert words.inner_text() == first["kind"]
        assert is_whole(words), (figure["key"], first["kind"])
        assert is_whole(tile.locator(".wb-number").first), figure["key"]
        assert tile.locator(".wb-figure-title").evaluate("el => el.scrollWidth <= el.clientWidth"), figure["key"]
        # A figure beside the first one names its unit, also in a narrow tile.
        expected = [value["text"] for value in figure["values"] if value.get("beside")]
        assert tile.locator(".wb-must .wb-number").all_inner_texts() == expected
        for beside in tile.locator(".wb-must").all():
            for part in beside.locator(".wb-number, .wb-kind").all():
                assert is_whole(part), part.inner_text()


def test_figures_of_an_earlier_plan_are_grey_and_predictions_are_light(mount):
    page = mount(AFTER_A_CHOICE, 957)
    ink = "el => [getComputedStyle(el).color, getComputedStyle(el).fontWeight]"
    muted = page.locator(".wb-figure-title").first.evaluate(ink)[0]
    number = {key: page.locator(f"[data-figure={key}] .wb-number") for key in ("peak", "compile", "step", "accuracy")}
    assert number["compile"].first.evaluate(ink) == [muted, "600"]
    assert number["peak"].first.evaluate(ink)[0] != muted
    assert number["peak"].first.evaluate(ink)[1] == number["step"].first.evaluate(ink)[1] == "400"
    assert [number["accuracy"].nth(at).evaluate(ink)[0] == muted for at in range(3)] == [True, True, False]


def test_a_tile_opens_its_tab_by_pointer_and_key(mount):
    page = mount([{**figure, "opens": "Fit" if figure["key"] == "peak" else ""} for figure in PLANNED], 1080)
    page.evaluate("window.sent = []; model.send = (message) => window.sent.push(message); null")
    page.get_by_role("group", name="Peak memory").locator(".wb-number").click()
    page.get_by_role("group", name="Saved for backward").click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Peak memory: open Fit").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("window.sent") == 2 * [{"type": "place", "name": "Fit"}]


def test_a_tile_in_focus_shows_all_its_lines_and_moves_nothing(mount):
    page = mount(ON_RANKS, 1080)
    strip = page.locator(".wb-strip")
    height = strip.bounding_box()["height"]
    peak, measured = page.get_by_role("group", name="Peak memory"), page.get_by_text("predicted: 1.27 MiB")
    assert not measured.is_visible()
    page.keyboard.press("Tab")
    assert peak.evaluate("el => el === document.activeElement")
    assert measured.is_visible()
    assert strip.bounding_box()["height"] == height
    # The tile keeps the focus when new figures arrive.
    page.evaluate("figures => model.set('content', { figures })", ON_RANKS)
    assert measured.is_visible()
    communication = page.get_by_role("group", name="Communication")
    communication.focus()
    for part in communication.locator(".wb-number, .wb-kind:not(:empty), .wb-delta").all():
        assert is_whole(part), part.inner_text()
    # Figures that were simulated at the same rates name the rates once.
    assert communication.get_by_text(RATES).filter(visible=True).count() == 1
    edge = strip.bounding_box()
    box = page.locator("[data-figure=accuracy] .wb-figure-box")
    page.get_by_role("group", name="Accuracy").hover()
    assert box.bounding_box()["x"] + box.bounding_box()["width"] <= edge["x"] + edge["width"] + 1
