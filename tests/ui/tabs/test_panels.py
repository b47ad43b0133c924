"""In a browser without JupyterLab, panels can be used with keys, and each control has an accessible name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.browser.chromium import find_chromium
from tests.ui.page import page as page_text
from workbench.ui.controls.help import TABS

pytestmark = pytest.mark.browser

PART = {"source": "", "side": "forward", "saved_bytes": 0, "peak_bytes": 0, "step_s": 0.0, "choices": 0, "made": 0}
PART |= {"leads": False}
TURNS = [{"option": "recompute", "count": 3}, {"option": "stock", "count": 0}]
PARTS = [
    PART
    | {"key": "layers", "kind": "module", "label": "layers", "depth": 0, "parent": -1, "id": "t:a", "turns": TURNS}
    | {"leads": True},
    PART
    | {"key": "layers.0", "kind": "module", "label": "0", "depth": 1, "parent": 0, "id": "t:a", "turns": []}
    | {"saved_bytes": 512, "leads": True},
    PART
    | {"key": "layers.0|m.py:3", "kind": "line", "label": "y = x @ w", "depth": 2, "parent": 1, "id": "t:a"}
    | {"turns": [], "source": "m.py:3", "leads": True},
    PART
    | {"key": "layers.0|m.py:3|7", "kind": "statement", "label": "matmul", "depth": 3, "parent": 2, "id": "t:a"}
    | {"turns": []},
    PART
    | {"key": "layers.1", "kind": "module", "label": "1", "depth": 1, "parent": 0, "id": "t:b", "turns": []}
    | {"saved_bytes": 2048},
]
_BAR = {"name": "matmul", "start_s": 0.0, "end_s": 1e-3, "id": "t:a", "tip": ""}
TIMELINE = {"step_s": 1e-3, "lanes": [{"name": "host", "kind": "forward", "bars": [_BAR]}], "head": "", "says": ""}
STATEMENT_OF_LAST = PARTS[3] | {"key": "layers.1|m.py:4|9", "depth": 2, "parent": 4, "id": "t:b"}


@pytest.fixture(scope="module")
def blank() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser.new_page(viewport={"width": 900, "height": 500})
        browser.close()


@pytest.fixture
def mount(blank: Page, tmp_path: Path) -> Callable[..., Page]:
    def open_page(module: str, content: dict[str, Any]) -> Page:
        file = tmp_path / "view.html"
        file.write_text(page_text(module, {"content": content, "selected": ""}))
        blank.goto(file.as_uri())
        blank.wait_for_function("window.ready === true")
        return blank

    return open_page


def names(page: Page) -> list[str]:
    return page.locator(".wb-tree-row.wb-can").evaluate_all("rows => rows.map(row => row.dataset.key)")


def test_keys_move_open_and_choose_in_the_outline(mount):
    page = mount("outline_tab", {"parts": PARTS, "machine": ""})
    assert page.get_by_role("treegrid").count() == 1
    assert names(page) == ["layers", "layers.0", "layers.0|m.py:3", "layers.1"]
    page.locator("[data-key=layers]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert names(page) == ["layers", "layers.0", "layers.1"]
    row = page.locator("[data-key='layers.0']")
    assert row.get_attribute("aria-expanded") == "false"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.key") == "layers"
    page.get_by_role("button", name="recompute × 3").click()
    assert page.evaluate("window.messages") == [
        {"type": "open", "key": "layers.0"},
        {"type": "open", "key": "layers.0|m.py:3"},
        {"type": "go", "id": "t:b"},
        {"type": "choose_in", "key": "layers", "option": "recompute"},
    ]


@pytest.mark.parametrize(
    ("module", "content", "part", "key"),
    [
        ("outline_tab", {"parts": PARTS, "machine": ""}, "[data-key=layers]", "ArrowLeft"),
        ("timeline_tab", TIMELINE, "canvas", "f"),
        ("split", {}, ".wb-split", "ArrowLeft"),
    ],
)
def test_a_key_with_ctrl_or_alt_belongs_to_the_browser(mount, module, content, part, key):
    page = mount(module, content)
    taken = """([part, key, more]) => {
        const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more });
        document.querySelector(part).dispatchEvent(event);
        return event.defaultPrevented;
    }"""
    assert page.evaluate(taken, [part, key, {}])
    for modifier in ("ctrlKey", "altKey", "metaKey"):
        assert not page.evaluate(taken, [part, key, {modifier: True}]), modifier


def test_the_outline_opens_at_the_graphs_selection_and_sorts(mount):
    page = mount("outline_tab", {"parts": PARTS, "machine": ""})
    page.evaluate("model.set('selected', 't:a')")
    assert page.locator("[aria-selected=true]").last.get_attribute("data-key") == "layers.0|m.py:3|7"
    page.get_by_role("button", name="saved").click()
    assert names(page)[:2] == ["layers", "layers.1"]


def test_a_selected_statement_is_shown_once_it_is_sent(mount):
    page = mount("outline_tab", {"parts": [*PARTS[:3], PARTS[4]], "machine": ""})
    assert page.locator("[data-key='layers.0|m.py:3']").get_attribute("aria-expanded") == "false"
    page.evaluate("model.set('selected', 't:a')")
    assert page.locator(".wb-tree-statement").count() == 0
    page.evaluate("parts => model.set('content', { parts, machine: '' })", PARTS)
    assert page.locator("[aria-selected=true]").last.get_attribute("data-key") == "layers.0|m.py:3|7"


def test_the_clicked_part_stays_current_after_updates(mount):
    page = mount("outline_tab", {"parts": PARTS, "machine": ""})
    page.evaluate("model.set('selected', 'order.statements')")
    page.locator("[data-key='layers.1']").click()
    page.evaluate("parts => model.set('content', { parts, machine: 'CPU' })", [*PARTS, STATEMENT_OF_LAST])
    page.evaluate("model.set('selected', 't:b')")
    assert page.locator("[tabindex='0'].wb-can").get_attribute("data-key") == "layers.1"


def test_a_ranked_choice_is_sorted_filtered_shown_and_chosen(mount):
    row = {"lever": "saved", "source": "m.py:3", "count": 1, "option": "recompute", "state": "exact", "why": ""}
    rows = [
        row | {"id": id, "choices": {id: "recompute"}, "label": id, "peak_bytes": peak, "saved_bytes": -8, "step_s": s}
        for id, peak, s in (("saved:a", 0, 1e-6), ("saved:b", -64, 3e-6), ("saved:c", -128, 2e-6))
    ]
    rows[0] |= {"why": "The peak is inside matmul.", "state": "estimated"}
    page = mount("ranking_tab", {"rows": rows, "left": 0, "machine": "H100"})

    def listed() -> list[str]:
        return page.locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.site)")

    assert listed() == ["saved:c", "saved:b", "saved:a"]
    assert page.locator(".wb-count").inner_text() == "3 choices; ≈\u00a0estimated; step times: H100"
    assert "≈" in page.locator("[data-site='saved:a']").inner_text()
    assert "The peak is inside matmul." in page.locator("[data-site='saved:a']").inner_text()
    page.get_by_role("button", name="step, predicted").click()
    assert listed() == ["saved:a", "saved:c", "saved:b"]
    page.get_by_label("only what lowers the peak").check()
    assert listed() == ["saved:c", "saved:b"]
    assert page.locator(".wb-count").inner_text().startswith("2 of 3 choices;")
    page.locator("[data-site='saved:b'] .wb-link").click()
    page.get_by_role("button", name="Choose recompute for saved:c").click()
    page.get_by_role("button", name="Choose all listed").click()
    both = {"saved:c": "recompute", "saved:b": "recompute"}
    assert page.evaluate("window.messages") == [
        {"type": "go", "id": "saved:b"},
        {"type": "choose_all", "choices": {"saved:c": "recompute"}},
        {"type": "choose_all", "choices": both},
    ]


def test_after_a_click_a_row_is_previewed_only_when_the_pointer_moves(mount):
    row = {"lever": "saved", "source": "m.py:3", "count": 1, "option": "recompute", "state": "exact", "why": ""}
    row |= {"saved_bytes": -8, "step_s": 0.0}
    first, second = (
        row | {"id": id, "choices": {id: "recompute"}, "label": id, "peak_bytes": peak}
        for id, peak in (("saved:a", -64), ("saved:b", -32))
    )
    page = mount("ranking_tab", {"rows": [first, second], "left": 0, "machine": "H100"})
    previewed = "window.previews.map(({ choices }) => choices ?? null)"
    page.get_by_role("button", name="Choose recompute for saved:a").hover()
    page.wait_for_function(f"{previewed}.length === 1")
    page.mouse.down()
    page.mouse.up()
    # The row that was chosen leaves the table, so the pointer is over the next row, at which the user did not point.
    page.evaluate("row => model.set('content', { rows: [row], left: 0, machine: 'H100' })", second)
    page.wait_for_function(f"{previewed}.length === 2")
    page.wait_for_timeout(400)
    assert page.evaluate(previewed) == [{"saved:a": "recompute"}, None]
    at = page.get_by_role("button", name="Choose recompute for saved:b").bounding_box()
    page.mouse.move(at["x"] + 5, at["y"] + 5)
    page.wait_for_function(f"{previewed}.length === 3")
    assert page.evaluate(previewed)[2] == {"saved:b": "recompute"}


def test_the_rows_to_which_a_ranking_is_scrolled_are_requested(mount):
    row = {"lever": "saved", "source": "m.py:3", "count": 1, "option": "recompute", "state": "estimated", "why": ""}
    row |= {"peak_bytes": 0, "saved_bytes": 0, "step_s": 0.0}
    ids = [f"saved:{number:03}" for number in range(150)]
    rows = [row | {"id": id, "choices": {id: "recompute"}, "label": id} for id in ids]
    rows[100]["state"] = "exact"
    page = mount("ranking_tab", {"rows": rows, "left": 0, "machine": "H100"})
    page.locator(".wb-scroll").evaluate("box => { box.style.height = '200px'; box.style.overflow = 'auto'; }")
    page.locator(f"[data-site='{ids[99]}']").evaluate("row => row.scrollIntoView({ block: 'center' })")
    page.wait_for_function("window.messages.length")
    (message,) = page.evaluate("window.messages")
    assert message["type"] == "compute"
    asked = [row["id"] for row in message["rows"]]
    assert ids[99] in asked
    assert ids[0] not in asked, "a row out of view was requested"
    assert ids[100] not in asked, "a computed row was requested"
    assert len(asked) < 15


def test_a_ranking_without_figures_says_that_it_is_computed(mount):
    page = mount("ranking_tab", {"rows": [], "left": 0, "machine": ""})
    assert page.locator(".wb-count").inner_text() == "computing…"


def test_all_that_is_listed_is_chosen_with_the_best_option_of_each_site(mount):
    row = {"lever": "saved", "source": "m.py:3", "count": 1, "state": "exact", "why": ""}
    rows = [
        row | {"id": id, "choices": {id: option}, "label": id, "option": option, "about": id}
        | {"peak_bytes": peak, "saved_bytes": peak, "step_s": 0.0}
        for id, option, peak in (
            ("saved:a", "recompute", -64), ("saved:a", "offload", -128), ("saved:b", "recompute", 512),
            ("saved:b", "offload", 0),
        )
    ]  # fmt: skip
    layers = dict.fromkeys(("saved:c.0", "saved:c.1"), "offload")
    rows.append(row | {"id": "saved:c.0", "choices": layers, "label": "c", "option": "offload", "state": "open"})
    rows.append(rows[0] | {"id": "order.statements", "choices": {"order.statements": "stock"}, "peak_bytes": 64})
    rows.append(rows[0] | {"id": "saved:d", "choices": {"saved:d": "recompute"}, "state": "refused"})
    page = mount("ranking_tab", {"rows": rows, "left": 0, "machine": "H100"})
    best = {"saved:a": "offload", "saved:b": "offload", **layers}
    for heading in ("peak", "peak", "choice"):
        page.get_by_role("button", name="Choose all listed (4 sites)").click()
        assert page.evaluate("window.messages.at(-1)") == {"type": "choose_all", "choices": best}
        page.locator(f".wb-sort:has-text('{heading}')").click()
    page.get_by_role("searchbox").fill("recompute")
    page.get_by_role("button", name="Choose all listed (1 site)").click()
    assert page.evaluate("window.messages.at(-1).choices") == {"saved:a": "recompute"}
    page.get_by_role("searchbox").fill("saved:d")
    assert page.locator(".wb-all").is_disabled()


def test_a_long_name_in_the_ranking_is_cut_at_its_end(mount):
    label = "layers.0.attention.scaled_dot_product_attention/scaled_dot_product_attention.intermediate"
    row = {"lever": "saved", "source": "m.py:3", "count": 4, "option": "offload", "state": "exact", "why": ""}
    row |= {"id": "saved:a", "choices": {"saved:a": "offload"}, "label": label}
    page = mount("ranking_tab", {"rows": [row | {"peak_bytes": -8, "saved_bytes": -8, "step_s": 1e-6}], "left": 0})
    link, name = page.locator(".wb-name .wb-link"), page.locator(".wb-name")
    assert link.evaluate("el => el.clientWidth > 100 && getComputedStyle(el).textOverflow === 'ellipsis'")
    assert name.evaluate("el => el.scrollWidth <= el.clientWidth")
    assert "× 4" in name.inner_text()


@pytest.mark.parametrize(
    ("module", "content", "part"),
    [
        ("timeline_tab", {"head": "Nothing was measured yet.", "lanes": [], "medians": []}, ".wb-views"),
        ("experiments", {"rows": [], "plans": []}, ".wb-views"),
    ],
)
def test_a_section_without_actions_is_hidden(mount, module, content, part):
    assert not mount(module, content).locator(part).first.is_visible()


@pytest.mark.parametrize(
    ("module", "content"),
    [
        ("compile_tab", {"rows": [], "state": "none"}),
        ("experiments", {"rows": []}),
        (
            "settings",
            {"rows": [], "runs": {"ways": [{"name": "stock", "label": "without choices", "on": False}]}},
        ),
    ],
    ids=["compile", "experiments", "settings"],
)
def test_no_text_names_a_button_that_cannot_be_pressed(mount, module, content):
    text = mount(module, content).locator("#view").inner_text()
    assert "Compile & run" in text
    why = "No GPU attached: plan only"
    runs = {"runs": {**content["runs"], "cannot_run": why}} if "runs" in content else {}
    page = mount(module, {**content, "cannot_run": why, **runs})
    assert why in page.locator("#view").inner_text()
    assert "Compile & run shows" not in page.locator("#view").inner_text()
    assert "Compile & run makes" not in page.locator("#view").inner_text()
    assert page.get_by_role("checkbox").count() == 0


def test_an_impossible_snapshot_gives_a_reason_and_variants_stay_possible(mount):
    ways = [{"name": "thunder", "label": "as it comes", "on": False}]
    page = mount("settings", {"rows": [], "runs": {"ways": ways, "snapshot": False, "no_snapshot": "of one process"}})
    assert page.get_by_role("checkbox", name="time against thunder").is_enabled()
    assert page.get_by_role("checkbox", name="memory snapshot").is_disabled()
    assert "of one process" in page.locator("#view").inner_text()


def test_a_question_renders_emphasis_and_code_without_their_marks(mount):
    question = "How many *different* fusions has `a * b`, where 2 * x * y is read?"
    page = mount("lesson", {"question": question, "kind": "number", "unit": "", "options": [], "given": []})
    assert "How many different fusions has a * b, where 2 * x * y is read?" in page.locator("#view").inner_text()
    assert page.locator("em").all_inner_texts() == ["different"]
    assert page.locator("code").all_inner_texts() == ["a * b"]


def test_a_focused_option_is_previewed_and_stays_focused_while_effects_arrive(mount):
    options = [{"name": "saved", "current": True, "reason": ""}]
    options += [{"name": name, "current": False, "reason": "", "waiting": True} for name in ("recompute", "offload")]
    site = {"id": "saved:a", "lever": "Saved for the backward", "note": "", "options": options}
    page = mount("inspector", {"title": "a", "eyebrow": "", "sites": [site]})
    page.locator(".wb-choose").nth(1).focus()
    page.keyboard.press("Tab")
    page.wait_for_function("window.previews.at(-1)?.option === 'offload'")
    figures = [{"name": "peak, predicted", "text": "−1 KiB", "tone": "good"}]
    options[1] = {"name": "recompute", "current": False, "reason": "", "figures": figures, "moved": [], "more": 0}
    page.evaluate("content => model.set('content', content)", {"title": "a", "eyebrow": "", "sites": [site]})
    assert page.evaluate("document.activeElement.textContent") == "offload"
    page.evaluate("document.activeElement.blur()")
    page.wait_for_function("window.previews.at(-1).option === undefined")
    # On a busy machine, the option that had the focus before may also request a preview. Therefore, compare only the
    # last two requests.
    assert page.evaluate("window.previews.slice(-2)") == [
        {"type": "preview", "id": "saved:a", "option": "offload"},
        {"type": "preview"},
    ]


def test_links_of_words_have_the_font_of_the_text_and_links_of_names_that_of_code(mount):
    font = "el => getComputedStyle(el).fontFamily"
    best = {"name": "mlp/silu", "option": "recompute", "count": 1, "choices": {}, "peak": {}, "saved": {}}
    edge = {"id": "t1", "label": "matmul", "before": True, "reason": "too large"}
    page = mount("inspector", {"hint": "Click an arc.", "best": [best], "edges": [edge]})
    text = page.locator(".wb-inspector").evaluate(font)
    assert page.get_by_role("button", name="All single choices").evaluate(font) == text
    assert page.get_by_role("button", name="matmul").evaluate(font) != text


def test_a_click_counts_although_effects_arrive_between_press_and_release(mount):
    options = [{"name": "saved", "current": True, "reason": ""}]
    options += [{"name": "recompute", "current": False, "reason": "", "waiting": True}]
    site = {"id": "saved:a", "lever": "Saved for the backward", "note": "", "options": options}
    content = {"title": "a", "eyebrow": "", "sites": [site]}
    page = mount("inspector", content)
    button = page.locator(".wb-choose").nth(1)
    button.hover()
    page.mouse.down()
    page.evaluate("content => model.set('content', content)", content | {"facts": [["size", "8 B"]]})
    page.mouse.up()
    assert page.evaluate("window.messages") == [{"type": "choose", "id": "saved:a", "option": "recompute"}]
    page.locator("dd", has_text="8 B").wait_for()


def test_a_pass_opens_at_its_first_change_and_a_button_goes_to_the_next(mount):
    lines = [[" ", f"a{i}"] for i in range(100)]
    lines[60:60] = [["-", "old"], ["+", "new"], ["+", "newer"]]
    lines[20:20] = [["+", "early"]]
    page = mount("passes_tab", {"names": ["initial", "gradients"], "chosen": 1, "lines": lines})
    assert "change 1 of 2" in page.locator(".wb-passes").inner_text()
    assert page.locator(".wb-new", has_text="early").is_visible()
    assert page.get_by_role("button", name="Previous change").is_disabled()
    page.get_by_role("button", name="Next change").click()
    assert page.locator(".wb-gone", has_text="old").is_visible()
    assert page.get_by_role("button", name="Next change").is_disabled()
    page.get_by_label("side by side").check()
    assert "change 1 of 2" in page.locator(".wb-passes").inner_text()
    page.get_by_role("button", name="Next change").click()
    row = page.locator(".wb-line", has=page.locator(".wb-gone"))
    assert row.inner_text().split() == ["−", "old", "+", "new"]


def test_a_filtered_pass_counts_lines_however_they_are_shown(mount):
    long = "def f(" + ", ".join(f"t_layers_{i}_weight" for i in range(40)) + "):"
    lines = [[" ", long], [" ", "same"], ["-", "old"], ["+", "new"], ["+", "newer"]]
    page = mount("passes_tab", {"names": ["initial", "gradients"], "chosen": 1, "lines": lines})
    words = page.locator(".wb-passes .wb-row .wb-muted")
    assert words.inner_text().startswith("5 lines, 2 added, 1 removed")
    page.get_by_label("side by side").check()
    assert words.inner_text().startswith("5 lines, 2 added, 1 removed")
    page.get_by_label("only what changed").check()
    assert words.inner_text().startswith("3 of 5 lines, 2 added, 1 removed")
    page.get_by_label("side by side").uncheck()
    assert words.inner_text().startswith("3 of 5 lines, 2 added, 1 removed")
    page.get_by_label("only what changed").uncheck()
    page.get_by_label("Search this step").fill("t_layers")
    assert words.inner_text().startswith("1 of 5 lines")


def test_a_pass_shows_its_name_its_time_and_uncut_lines(mount):
    signature = "def computation(" + ", ".join(f"t_layers_{i}_weight" for i in range(40)) + "):"
    steps = [
        {"about": "The program as it was traced.", "left": "4 statements", "took": "1.20 s"},
        {"about": "Forward and backward.", "left": "9 statements, 2 of them fusions", "took": ""},
    ]
    content = {"names": ["initial", "gradients"], "steps": steps, "chosen": 1, "lines": [[" ", signature], ["+", "b"]]}
    page = mount("passes_tab", content)
    text = page.locator(".wb-passes").inner_text()
    assert "Forward and backward. 9 statements, 2 of them fusions." in text
    assert "1.20 s" in page.get_by_role("button", name="initial").inner_text()
    box, line = page.locator(".wb-text"), page.locator(".wb-line code").first
    assert line.evaluate("el => el.scrollWidth <= el.clientWidth"), "the end of a line is cut"
    assert box.evaluate("el => el.scrollWidth > el.clientWidth"), "the end of a wide line cannot be scrolled to"
    page.get_by_label("side by side").check()
    assert box.evaluate("el => el.scrollWidth") < 2600, "the right half is too far away"


def test_the_trace_has_uncut_lines_beside_their_source(mount):
    lines = [
        {"text": "def computation(" + ", ".join(f"t_weight_{i}" for i in range(60)) + "):", "source": "", "id": ""}
    ]
    lines += [
        {
            "text": f"t{i} = torch.nn.functional.linear(t{i}, t_weight, None)" + "  # a remark" * 3,
            "source": "llama.py:23 normed = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + self.eps)",
            "id": "",
        }
        for i in range(3)
    ]
    page = mount("trace", {"lines": lines})
    for code in page.locator(".wb-line code:not(:empty)").all():
        assert code.evaluate("el => el.scrollWidth <= el.clientWidth"), code.inner_text()


def test_the_help_of_a_tab_is_opened_read_and_closed_by_keys(mount):
    page = mount("help", {"title": "Fusions", "lines": list(TABS["Fusions"])})
    button, note = page.get_by_role("button", name="What can I do here?"), page.get_by_role("note")
    assert not note.is_visible()
    button.focus()
    page.keyboard.press("Enter")
    assert "Click a name to select the fusion" in note.inner_text()
    page.evaluate("model.set('content', {title: 'Fit', lines: ['State a peak.']})")
    assert note.inner_text().split("\n")[0] == "Fit"
    page.keyboard.press("Escape")
    assert not note.is_visible()
    assert button.evaluate("el => el === document.activeElement")


FIT = {
    "state": "working", "done": 3, "count": 24, "error": "", "least_bytes": 3 << 30, "stock_bytes": 5 << 30,
    "peak_bytes": 5 << 30,
    "fit": {
        "lines": ["Peak 5 GiB → 4 GiB (limit 4 GiB)"],
        "rows": [{"id": "saved:a", "option": "offload", "source": "m.py:3", "bytes": "1 GiB", "reason": "free"}],
        "steps": [{"label": "Lower the peak by 1 MiB", "effect": "saved:b=offload", "choices": {"saved:b": "offload"}}],
    },
}  # fmt: skip


def test_a_peak_is_stated_in_a_field_or_by_a_slider(mount):
    page = mount("fit_tab", FIT)
    field, slider = page.get_by_label("Peak at most", exact=True), page.get_by_role("slider")
    assert field.input_value() == "5 GiB"
    assert "Curve: 3 of 24\n" in page.locator(".wb-fit").inner_text()
    assert "Lower the peak by 1 MiB: saved:b=offload" in page.locator(".wb-fit").inner_text()
    page.evaluate("content => model.set('content', content)", {**FIT, "done": 5})
    assert re.search(r"Curve: 5 of 24, about \d+ s left", page.locator(".wb-fit").inner_text())
    slider.focus()
    page.keyboard.press("Home")
    assert field.input_value() == "3 GiB"
    field.click()
    page.keyboard.type("4 GiB")
    assert field.input_value() == "4 GiB", "the first click does not select the text"
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Cancel the curve").click()
    page.locator(".wb-link").click()
    page.get_by_role("button", name="Lower the peak by 1 MiB: choose").click()
    assert page.evaluate("window.messages") == [
        {"type": "fit", "peak": "3 GiB"},
        {"type": "fit", "peak": "4 GiB"},
        {"type": "stop"},
        {"type": "go", "id": "saved:a"},
        {"type": "choose_all", "choices": {"saved:b": "offload"}},
    ]
    page.evaluate("content => model.set('content', content)", {**FIT, "state": "done", "fit": None})
    page.get_by_role("button", name="Draw the curve again").click()
    assert page.evaluate("window.messages.at(-1)") == {"type": "find"}
    assert "Enter a peak" in page.locator(".wb-fit").inner_text()


@pytest.mark.parametrize(
    ("module", "content"),
    [
        ("outline_tab", {"parts": PARTS, "machine": ""}),
        ("passes_tab", {"names": ["initial", "gradients"], "chosen": 1, "lines": [["+", "a"]]}),
        ("ranking_tab", {"rows": [], "left": 0, "machine": ""}),
        ("fit_tab", FIT),
    ],
)
def test_every_control_has_a_name_and_is_24_pixels_high(mount, module, content):
    page = mount(module, content)
    controls = page.locator("button, input, select").evaluate_all(
        """found => found.map(el => [
            el.getAttribute("aria-label") || el.closest("label")?.innerText || el.innerText,
            (el.closest("label") ?? el).getBoundingClientRect().height])"""
    )
    assert len(controls) >= 5
    assert [name for name, high in controls if not name.strip() or high < 24] == []


def test_the_best_choices_are_requested_after_the_first_paint_of_the_graph(mount):
    page = mount("inspector", {"hint": "Click an arc.", "waiting": True, "best": []})
    early, late = page.evaluate(
        """async () => {
          const [app, graph, view] = [0, 1, 2].map(() => document.createElement("div"));
          [app.className, graph.className] = ["wb-app", "wb-graph"];
          graph.__workbench = { view: { drawn: 0 } };
          app.append(graph, view);
          window.messages = [];
          await window.mount(view);
          document.body.append(app);
          const asked = async () => {
            await new Promise((next) => setTimeout(next, 250));
            return window.messages.map(({ type }) => type);
          };
          const early = await asked();
          graph.__workbench.view.drawn = 1;
          return [early, await asked()];
        }"""
    )
    assert (early, late) == ([], ["best"])


def test_other_cuts_are_weighed_and_chosen(blank: Page, tmp_path: Path) -> None:
    group = {"count": 2, "size": 3, "sides": "2 forward", "ops": "add", "members": [{"id": "t:a", "name": "nvFusion0"}]}
    content = {"head": "2 fusions", "groups": [group | {"compiled": ""}]}
    state = {"content": content, "selected": "", "cuts": {"state": "", "rows": [], "heads": [], "said": ""}}
    file = tmp_path / "view.html"
    file.write_text(page_text("fusions_tab", state))
    blank.goto(file.as_uri())
    blank.wait_for_function("window.ready === true")
    blank.get_by_role("button", name="Weigh other cuts").click()
    assert not blank.get_by_role("progressbar").is_visible()
    working = {"state": "working", "done": 12, "most": 40, "said": "best so far: 3 compilations", "rows": []}
    blank.evaluate("cuts => window.model.set('cuts', cuts)", working)
    said = "12 of at most 40 plans weighed; best so far: 3 compilations"
    assert blank.get_by_role("status").inner_text() == said
    assert blank.get_by_role("progressbar").evaluate("bar => [bar.value, bar.max]") == [12, 40]
    blank.get_by_role("button", name="Cancel weighing cuts").click()
    rows = [
        {"cells": ["3 of 4", "5 ops", "2 MiB", "1 MiB", "4 µs", "as Thunder cuts"], "chosen": True},
        {"cells": ["2 of 4", "7 ops", "–", "–", "−1.0%", "remat.weight=0.0"], "chosen": False},
    ]
    heads = ["compilations", "largest", "peak", "saved", "step", "choices"]
    done = {"state": "done", "rows": rows, "heads": heads, "said": "by rates"}
    blank.evaluate("cuts => window.model.set('cuts', cuts)", done)
    assert blank.get_by_role("button", name="Weigh again").is_visible()
    table = blank.get_by_role("region", name="Cuts between fusions")
    assert table.get_by_role("row").count() == 3
    assert "in force" in table.get_by_role("row").nth(1).inner_text()
    blank.get_by_role("button", name="Choose remat.weight=0.0").click()
    assert blank.evaluate("window.messages") == [{"type": "cuts"}, {"type": "stop"}, {"type": "cut", "index": 1}]
