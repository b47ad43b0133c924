"""In panels as wide as a JupyterLab cell or narrower, a text is not cut off if the panel has space for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.ui.page import UI
from tests.ui.page import page as page_text
from workbench.ui.app.places import PLACES
from workbench.ui.controls.figure_strip import Baseline, _fusions, _step_time

pytestmark = pytest.mark.browser

CELL = 1008
"""Pixels of width of a cell's output in a JupyterLab that is 1440 pixels wide and has its file browser open."""


@pytest.fixture
def mount(blank: Page, tmp_path: Path) -> Callable[..., Page]:
    def open_page(module: str, content: dict[str, Any], width: int, **state: Any) -> Page:
        file = tmp_path / "view.html"
        text = page_text(module, {"content": content, "selected": "", "marked": [], **state}, width=width)
        # The style of the panels depends on the width of the app.
        file.write_text(text.replace("<body ", '<body class="wb-app" ', 1).replace("padding:16px", f"width:{width}px"))
        blank.set_viewport_size({"width": 1440, "height": 900})
        blank.goto(file.as_uri())
        blank.wait_for_function("window.ready === true")
        return blank

    return open_page


def test_a_live_value_is_named_on_one_line_with_its_source_line(mount):
    row = {"value": "t2329", "statement": "softmax", "bytes": "32.0 KiB", "id": "t:t2329"}
    rows = [row | {"source": "modeling_ernie4_5.py:1103"}] * 3
    rows += [{"value": "t_model_embed_tokens_weight", "statement": "argument", "source": "", "bytes": "8 B", "id": ""}]
    listed = {"head": "4 storages", "rows": rows}
    page = mount("peak_table", {"predicted": listed, "measured": listed}, 400)
    heights = page.locator("tbody tr").evaluate_all("rows => rows.map((row) => row.clientHeight)")
    assert max(heights) == min(heights), "a name has two lines"
    for box in page.locator(".wb-scroll").all():
        assert box.evaluate("el => el.scrollWidth <= el.clientWidth"), "a column is not visible"
    inside = """(el) => {
        const range = document.createRange(), text = el.lastChild;
        range.selectNode(text);
        const right = (of) => of.getBoundingClientRect().right;
        return text.data === ":1103" && right(range) <= right(el.closest("td"));
    }"""
    assert all(place.evaluate(inside) for place in page.locator("tbody tr:first-child .wb-place").all())


def test_the_name_of_a_site_breaks_after_a_dot_or_a_slash(mount):
    site = {"lever": "saved", "source": "modeling_ernie4_5.py:259 hidden_states = hidden_states * 1", "bytes": 16384}
    label = "model.layers.0.input_layernorm/rsqrt"
    site |= {"id": f"saved:{label}", "label": label, "choice": "save", "outcome": "save"}
    options = ("save", "recompute", "a rather long option of a lever")
    site["options"] = [{"name": name, "reason": ""} for name in options]
    page = mount("sites", {"rows": [site]}, 620)
    link = page.locator("tbody .wb-link")
    ends = link.evaluate("""(el) => {
        const ends = [], range = document.createRange(), walk = document.createTreeWalker(el, NodeFilter.SHOW_TEXT);
        let top = null, before = "";
        for (let node = walk.nextNode(); node; node = walk.nextNode()) {
          for (let at = 0; at < node.data.length; at++) {
            range.setStart(node, at); range.setEnd(node, at + 1);
            const here = range.getBoundingClientRect().top;
            if (top !== null && here > top + 4) ends.push(before);
            [top, before] = [here, node.data[at]];
          }
        }
        return ends;
    }""")
    assert link.inner_text() == label
    assert ends
    assert set(ends) <= {".", "/"}
    # A line may break between two names, but not between a name and its number, so there is one break opportunity.
    page = mount("sites", {"rows": [site | {"label": "reshape.1/view.23"}]}, CELL)
    assert page.locator("tbody .wb-link wbr").count() == 1


def test_the_interval_of_a_step_is_not_cut_in_the_strip(mount):
    run: Any = SimpleNamespace(times={"step_s": 0.0581, "low_s": 0.0458, "high_s": 0.108}, against={}, beside_load="")
    values = _step_time(run, "measured", Baseline("stock", None))
    others = [{"key": key, "title": key, "values": [{"text": "1", "kind": "predicted"}]} for key in "abcde"]
    page = mount("figure_strip", {"figures": [{"key": "step", "title": "Step time", "values": values}, *others]}, CELL)
    step = page.locator("[data-figure=step]")
    assert "45.8–108 ms" in step.inner_text()
    for line in step.locator(".wb-value, .wb-kind").all():
        assert line.evaluate("el => el.scrollWidth <= el.clientWidth"), line.inner_text()


def test_unique_fusions_are_not_cut_in_the_strip_of_a_program_on_ranks(mount):
    plan: Any = SimpleNamespace(census=SimpleNamespace(count=109, unique=20, largest=30), counts={"compilations": 109})
    stock: Any = SimpleNamespace(census=SimpleNamespace(unique=15), counts={"compilations": 132})
    values = _fusions(plan, stock, "stock")
    others = [{"key": key, "title": key, "values": [{"text": "1", "kind": "predicted"}]} for key in "abcdef"]
    page = mount(
        "figure_strip", {"figures": [{"key": "fusions", "title": "Unique fusions", "values": values}, *others]}, 1180
    )
    for line in page.locator("[data-figure=fusions] :is(.wb-value, .wb-kind, .wb-figure-title)").all():
        assert line.evaluate("el => el.scrollWidth <= el.clientWidth"), line.inner_text()


@pytest.mark.parametrize("width", [1083, CELL])
def test_no_figure_of_a_program_on_ranks_is_cut(mount, width: int):
    shown = [{"text": "2.42 MiB", "kind": "predicted"}, {"text": "1.12 MiB", "kind": "measured"}]
    figures = [{"key": key, "title": "Saved for backward", "values": shown} for key in ("a", "b", "overlap", *"cdef")]
    page = mount("figure_strip", {"figures": figures}, width)
    for line in page.locator(".wb-figure :is(.wb-value, .wb-number, .wb-kind, .wb-figure-title)").all():
        assert line.evaluate("el => el.scrollWidth <= el.clientWidth || !el.clientWidth"), line.inner_text()


@pytest.mark.parametrize("width", [372, 240])
def test_figures_are_not_cut_in_a_small_window(mount, width: int):
    """In a window that is 520 pixels wide, a tab is 372 pixels wide."""
    run: Any = SimpleNamespace(times={"step_s": 0.095, "low_s": 0.0433, "high_s": 0.154}, against={}, beside_load="")
    figures = [{"key": "step", "title": "Step time", "values": _step_time(run, "measured", Baseline("stock", None))}]
    checked = [
        ("ok", "measured"),
        ("4.8e-07", "largest error"),
        ("bitwise", "as Thunder's"),
        ("proven", "same results"),
    ]
    figures.append({"key": "accuracy", "title": "Accuracy", "values": [{"text": a, "kind": b} for a, b in checked]})
    page = mount("figure_strip", {"figures": figures * 3}, width)
    for line in page.locator(".wb-figure :is(.wb-value, .wb-number, .wb-kind, .wb-figure-title)").all():
        assert line.evaluate("el => el.scrollWidth <= el.clientWidth || !el.clientWidth"), line.inner_text()


def test_a_row_of_a_fit_is_one_line_with_the_code_on_hover(mount):
    source = "mynet.py:17 h = self.down(F.gelu(self.up(self.norm(h))))"
    reason = "without it the peak is 16.0 MiB higher; costs 9.01 ms"
    row = {"id": "saved:enc1/gelu>add", "option": "recompute", "bytes": "16.0 MiB", "reason": reason, "source": source}
    page = mount("fit_tab", {"state": "done", "fit": {"lines": ["Peak"], "steps": [], "rows": [row] * 3}}, CELL)
    code = page.locator("tbody code").first
    assert code.inner_text() == "mynet.py:17"
    assert code.get_attribute("title") == source
    assert page.locator("tbody tr").first.bounding_box()["height"] < 50
    page.get_by_role("button", name="Export").click()
    assert {"type": "export"} in page.evaluate("messages")


def test_each_button_is_visible_in_a_small_window_with_an_open_file_browser(mount):
    page = mount("controls", {"program": "llama", "place": ["2 layers · CPU"], "ranks": 1}, 137)
    for part in page.locator(".wb-bar :is(button, input)").all():
        assert part.evaluate("el => el.getBoundingClientRect().right") <= 137, part.inner_text()


def test_a_statements_name_and_source_line_are_not_cut_if_they_fit(mount):
    row = {"value": "t1321", "statement": "_log_softmax_backward_data", "bytes": "128 KiB", "id": "t:t1321"}
    page = mount("peak_table", {"predicted": {"head": "1 storage", "rows": [row | {"source": "llama.py:130"}]}}, 620)
    for cell in page.locator("tbody td").all():
        assert cell.evaluate("el => el.scrollWidth <= el.clientWidth"), cell.inner_text()


@pytest.mark.parametrize("width", [CELL, 848, 592, 440])
@pytest.mark.parametrize("program", ["llama", "fsdp_llama", "LlamaForCausalLM", "Qwen2VLForConditionalGeneration"])
def test_the_header_is_one_line_at_each_width(mount, program: str, width: int):
    content = {"program": program, "place": ["planned, torchcompile_aten executor"], "ranks": 1}
    plan = {"target": "plan", "name": "Plan", "about": "", "file": "plan.json"}
    page = mount("controls", content, width, targets=[plan])
    bar = page.locator(".wb-bar:not(.wb-ranks)")
    assert bar.bounding_box()["height"] <= 40
    parts = bar.locator(":is(.wb-program, button, input)").evaluate_all(
        """all => all.map((el) => el.getBoundingClientRect())
            .map(({ left, right, top, bottom }) => [left, right, (top + bottom) / 2])"""
    )
    assert len(parts) == 11
    assert all(abs(middle - parts[0][2]) <= 2 for _, _, middle in parts[1:])
    assert all(left >= before - 0.5 for (_, before, _), (left, _, _) in itertools.pairwise(parts)), "buttons overlap"
    assert parts[-1][1] <= width
    for button in bar.locator("button").all():
        assert button.evaluate("el => el.scrollWidth <= el.clientWidth"), button.inner_text()
        assert button.evaluate("el => el.offsetWidth >= 24 && el.offsetHeight >= 24")
    for name in ("Compile & run", "Cancel", "Undo", "Redo", "Export", "Save plan", "Open in a tab", "Full screen"):
        assert bar.get_by_role("button", name=name).count() == 1


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (CELL, "32 layers, input 2×4096, bf16 · planned for H100"),  # a window of 1440 pixels
        (848, "32 layers, bf16 · planned for H100"),  # a window of 1280 pixels
        (468, "32 layers, bf16 · H100"),  # a window of 900 pixels
    ],
)
def test_the_header_shows_the_longest_words_that_fit(mount, width: int, shown: str):
    whole = "32 layers, input 2×4096, bf16 · planned for H100"
    place = [whole, "32 layers, bf16 · planned for H100", "32 layers, bf16 · H100", "32 layers · H100"]
    page = mount("controls", {"program": "llama", "executor": "nvfuser", "place": place, "ranks": 1}, width)
    words = page.locator(".wb-program > .wb-muted")
    assert words.inner_text() == shown
    assert words.evaluate("el => el.scrollWidth <= el.clientWidth")
    assert whole in page.locator(".wb-program").get_attribute("title")


@pytest.mark.parametrize("width", [CELL, 1012, 880, 840, 764, 632, 372])
def test_all_places_are_in_one_row_and_the_tabs_of_each_too(blank: Page, width: int) -> None:
    def bar(titles: Iterable[str]) -> str:
        tabs = "".join(
            f'<li class="lm-TabBar-tab lm-mod-current"><div class="lm-TabBar-tabLabel">{name}</div></li>'
            for name in titles
        )
        return f'<div class="lm-TabBar"><ul class="lm-TabBar-content" style="padding-left: 0">{tabs}</ul></div>'

    blank.set_viewport_size({"width": 1440, "height": 900})
    for place, tabs in PLACES.items():
        blank.set_content(
            f"<style>.lm-TabBar-content {{ display: flex; list-style: none; margin: 0; }} .lm-TabBar-tab {{ overflow:"
            f' hidden; }} {(UI / "style.css").read_text()} body {{ font: 13px "DejaVu Sans", sans-serif; }}</style>'
            f'<div class="wb-app" style="width:{width}px"><div class="wb-places">{bar(PLACES)}'
            f'<div class="widget-tab-contents"><div class="wb-place">{bar(tabs)}</div></div></div></div>'
        )
        for row, count in ((".wb-places > .lm-TabBar", len(PLACES)), (".wb-place > .lm-TabBar", len(tabs))):
            boxes = blank.locator(f"{row} li").evaluate_all(
                """tabs => tabs.map((tab) => [
                    tab.offsetTop, tab.getBoundingClientRect().right, tab.scrollWidth - tab.clientWidth,
                ])"""
            )
            assert len(boxes) == count
            assert len({top for top, _, _ in boxes}) == 1, f"the row of {place} is broken"
            # Where the tabs are beside the places, the two buttons at the end of the row have 54 pixels.
            buttons = 54 if width > 760 and row.startswith(".wb-place ") else 0
            assert max(right for _, right, _ in boxes) <= width + 8 - buttons
            assert max(cut for _, _, cut in boxes) <= 0, f"a title is cut in the row of {place}"


def run_row(name: str) -> dict[str, Any]:
    row = {"folder": name, "name": name, "note": "", "created": "26 Nov 10:43:12", "pinned": False, "state": "done"}
    row |= {"choices": ["saved:layers.0.attention.qkv/linear: recompute"], "predicted": "628 KiB", "accuracy": "ok"}
    return row | {"measured": "628 KiB", "off": "+0.0 %", "compile": "2.16 s", "step": "17.2 ms"}


@pytest.mark.parametrize("width", [CELL, 632, 372])
def test_each_value_of_a_run_is_visible_under_its_column_name(mount, width: int):
    page = mount("experiments", {"rows": [run_row("20261126-104312-llama")], "plans": []}, width)
    table = page.locator(".wb-experiments .wb-scroll")
    page.evaluate("async () => { for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame); }")
    assert table.evaluate("el => el.scrollWidth <= el.clientWidth"), "the table scrolls sideways"
    cells = table.get_by_role("row").last.get_by_role("cell")
    edge = table.evaluate("el => el.getBoundingClientRect().right")
    assert cells.evaluate_all("all => Math.max(...all.map((el) => el.getBoundingClientRect().right))") <= edge
    heads = cells.evaluate_all("all => all.map((el) => getComputedStyle(el, '::before').content)")
    assert ('"compile"' in heads) == (width < CELL)
    assert table.get_by_role("columnheader").count() > 8, "a screen reader does not find the columns"


def test_a_run_is_renamed_in_place_and_its_details_have_its_id_and_choices(mount):
    row = {**run_row("1 recomputed"), "id": "20261126-104312-llama", "named": ""}
    other = {**run_row("my best"), "folder": "b", "id": "20261126-104313-llama", "named": "1 recomputed"}
    page = mount("experiments", {"rows": [row, other], "plans": []}, CELL)
    assert page.locator(".wb-run-details summary").all_inner_texts() == ["details", "1 recomputed"]
    run = page.locator("[data-run]").first
    assert not run.get_by_text("20261126-104312-llama").is_visible()
    run.locator("summary").click()
    assert "20261126-104312-llama" in run.locator(".wb-run-details").inner_text()
    assert row["choices"][0] in run.locator(".wb-run-details").inner_text()
    field = run.get_by_role("textbox", name="Name of 1 recomputed")
    assert field.evaluate("el => el.scrollWidth <= el.clientWidth")
    field.fill("the least peak")
    field.press("Tab")
    assert page.evaluate("messages") == [{"type": "rename", "folder": "1 recomputed", "name": "the least peak"}]


def test_a_signature_of_hundreds_of_parameters_is_read_without_scrolling(mount):
    signature = "def computation(" + ", ".join(f"t_layers_{i}_attention_qkv_weight" for i in range(300)) + "):"
    told = {"text": signature, "source": "", "id": ""}
    page = mount("trace", {"lines": [told, {"text": "  return t", "source": "", "id": ""}]}, 1400)
    assert page.locator(".wb-text").evaluate("el => el.scrollWidth <= el.clientWidth")
    lines = page.locator(".wb-line")
    assert lines.first.locator(".wb-no").inner_text() == "1"
    assert lines.nth(1).locator(".wb-no").inner_text() == ""
    parts = lines.locator("code").first.evaluate_all(
        "() => Array.from(document.querySelectorAll('.wb-line > code:nth-child(2)'), (el) => el.textContent.trim())"
    )
    assert signature.startswith(" ".join(parts[:5]))
    page.get_by_role("searchbox").fill("t_layers_299")
    assert "1 of 2 lines" in page.locator(".wb-trace").inner_text()
