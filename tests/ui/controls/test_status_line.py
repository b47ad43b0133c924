"""The status line in a page: one line of fixed height, in which the newer of message and preview is visible."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.ui.page import page as page_text

pytestmark = pytest.mark.browser

LONG = (
    "layers.1.mlp.gate/linear in 30 layers set to recompute: "
    + "predicted peak −171 KiB, 30 other sites changed too (mlp/silu × 30). " * 4
)
MESSAGE = {"text": LONG, "bad": False}
REASON = "Failed: The worker was killed by SIGKILL, by hand or by the system when memory ran out"
STAGES = [{"name": "fusions", "seconds": 1.5}, {"name": "gradients", "seconds": 0.25}]
RUN = {"state": "compiling", "busy": True, "text": "Compiling, fusion 12 of 292: nvFusion11", "stages": STAGES}
RUN |= {"elapsed_s": 12.0}
FIGURES = [{"name": name, "text": "≈ −1.25 MiB", "tone": "good"} for name in ("peak", "saved", "step, predicted")]
PREVIEW = {
    "what": "recompute for layers.0.mlp/silu",
    "figures": FIGURES,
    "how": "estimated; the plan may differ a little",
}


@pytest.fixture
def mount(blank: Page, tmp_path: Path) -> Callable[..., Page]:
    def open_page(said: dict[str, Any], width: int = 1100, samples: bytes = b"") -> Page:
        file = tmp_path / "view.html"
        state = {"content": {}, "said": said, "pointed": 0, "samples": samples}
        text = page_text("status_line", state, width=width).replace("<body ", '<body class="wb-app" ', 1)
        file.write_text(text.replace("padding:16px", f"width:{width}px;padding:300px 0 0"))
        blank.set_viewport_size({"width": 1440, "height": 720})
        blank.goto(file.as_uri())
        blank.wait_for_function("window.ready === true")
        return blank

    return open_page


def set_traits(page: Page, **traits: Any) -> None:
    page.evaluate("traits => Object.entries(traits).forEach(([name, value]) => model.set(name, value))", traits)


def point(page: Page, content: dict[str, Any]) -> None:
    """Point at an option with the preview `content`."""
    page.evaluate(
        "content => { model.set('pointed', model.get('pointed') + 1); model.set('content', content); }", content
    )


@pytest.mark.parametrize("width", [1400, 1100, 700, 372])
def test_the_line_has_one_height_whatever_it_says(mount, width: int):
    page = mount({}, width)
    line = page.locator(".wb-status")
    box = line.bounding_box()
    assert 24 <= box["height"] <= 28
    assert "Hover to preview a change." in line.inner_text()
    samples = struct.pack("<4d", 0.0, 1e8, 1.0, 2e9)
    for said in (
        {"message": MESSAGE},
        {"message": MESSAGE, "run": RUN},
        {"run": RUN},
        {"cannot_run": "No GPU attached"},
    ):
        for content in ({}, PREVIEW):
            set_traits(page, said=said)
            point(page, content)
            page.evaluate(
                "bytes => emit('msg:custom', { type: 'samples' }, [new DataView(Uint8Array.from(bytes).buffer)])",
                list(samples),
            )
            assert line.bounding_box() == box
            parts = line.evaluate(
                """el => Array.from(el.children).filter(part => part.offsetWidth).map(part => {
                    const box = part.getBoundingClientRect();
                    return [box.left, box.right, box.top, box.bottom];
                })"""
            )
            assert all(one[1] <= other[0] + 1 for one, other in itertools.pairwise(parts)), "parts overlap"
            assert all(top >= box["y"] and bottom <= box["y"] + box["height"] for _, _, top, bottom in parts)
            assert parts[-1][1] <= box["x"] + box["width"]


def test_a_preview_hides_the_message_until_the_preview_ends(mount):
    page = mount({"message": MESSAGE})
    message, preview = page.locator(".wb-message"), page.locator(".wb-preview")
    assert message.is_visible()
    point(page, PREVIEW)
    assert preview.is_visible()
    assert "recompute for layers.0.mlp/silu" in preview.inner_text()
    assert "≈ −1.25 MiB" in preview.inner_text()
    assert not message.is_visible()
    set_traits(page, content={})
    assert message.is_visible()
    assert not preview.is_visible()


def test_a_message_during_a_preview_stays_until_the_user_points_again(mount):
    page = mount({})
    message, preview = page.locator(".wb-message"), page.locator(".wb-preview")
    point(page, PREVIEW)
    set_traits(page, said={"message": {"text": "Planning…", "bad": False}})
    assert message.inner_text().startswith("Planning…")
    # A new plan renews the preview of the same option. Neither the renewed preview nor a run's progress replaces the
    # message.
    set_traits(page, content={"what": "silu is recompute now", "how": "nothing would change"})
    set_traits(page, said={"message": {"text": "Planning…", "bad": False}, "run": RUN})
    assert message.is_visible()
    assert not preview.is_visible()
    point(page, PREVIEW)
    assert preview.is_visible()


@pytest.mark.parametrize("can", [True, False])
def test_a_written_file_is_a_link_where_the_page_can_open_it(mount, can: bool):
    page = mount({})
    page.evaluate(
        """can => {
            window.opened = [];
            document.addEventListener("thunder-workbench:open-file", (event) => {
                if (!can) return;
                event.preventDefault();
                if (!event.detail.ask) window.opened.push(event.detail.path);
            });
        }""",
        can,
    )
    text = "Written to llama.choices.py. In a script: fast = wb.load('llama.choices.py').jit(model)"
    set_traits(page, said={"message": {"text": text, "bad": False, "file": "llama.choices.py"}})
    assert page.locator(".wb-message-text").inner_text() == text
    link = page.get_by_role("button", name="llama.choices.py")
    assert link.count() == can
    if can:
        link.click()
        assert page.evaluate("window.opened") == ["llama.choices.py"]


def test_a_text_that_is_cut_is_shown_whole_in_focus_and_in_its_title(mount):
    page = mount({"message": MESSAGE, "run": {**RUN, "state": "failed", "busy": False, "text": REASON}}, 700)
    text, state = page.locator(".wb-message-text"), page.locator(".wb-state")
    cut = "el => el.scrollWidth > el.clientWidth || el.offsetWidth > el.parentElement.offsetWidth"
    height = page.locator(".wb-status").bounding_box()
    for part, whole in ((text, LONG), (state, REASON)):
        assert part.evaluate(cut)
        assert whole.strip() in part.get_attribute("title")
        page.keyboard.press("Tab")
        if part is state:
            page.keyboard.press("Tab")
        assert part.evaluate("el => el === document.activeElement")
        assert not part.evaluate(cut)
        assert page.locator(".wb-status").bounding_box() == height
    assert "fusions 1.50 s" in state.get_attribute("title")
    page.keyboard.press("Shift+Tab")
    assert text.evaluate(cut)
    page.keyboard.press("Enter")
    assert page.evaluate("window.messages") == [{"type": "dismiss"}]


def test_the_name_in_a_preview_is_not_cut_in_a_narrow_window(mount):
    page = mount({"cannot_run": "No GPU attached: plan only"}, 372)
    state = page.locator(".wb-state")
    assert state.evaluate("el => el.scrollWidth <= el.clientWidth"), "the reason is cut"
    point(page, PREVIEW)
    assert page.locator("strong").evaluate("el => el.scrollWidth <= el.clientWidth"), "the name is cut"


def test_the_curve_of_a_run_is_redrawn_in_another_theme(mount):
    samples = struct.pack("<4d", 0.0, 100.0, 1.0, 200.0)
    run = {"state": "done", "busy": False, "text": "Done", "stages": [], "elapsed_s": 1.0}
    blank = mount({"run": run}, samples=samples)
    ink = """() => { const canvas = document.querySelector(".wb-spark"), c = canvas.getContext("2d");
        const data = c.getImageData(0, 0, canvas.width, canvas.height).data;
        for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 250) return data.slice(at, at + 3).join();
        return ""; }"""
    blank.wait_for_function(ink, timeout=5000)  # the curve is drawn when the canvas has a size
    light = blank.evaluate(ink)
    blank.evaluate("document.body.dataset.jpThemeLight = 'false'")
    blank.wait_for_function(f"light => ({ink})() && ({ink})() !== light", arg=light, timeout=5000)
