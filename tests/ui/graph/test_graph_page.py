"""In a browser without JupyterLab, the graph view draws elements in their places, and sends clicks and keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.ui.page import encoded
from tests.ui.page import page as page_text
from tests.ui.synthetic import Builder, llama
from workbench.core.graph import BACKWARD, FORWARD
from workbench.ui.app.places import find
from workbench.ui.graph.layout import compute
from workbench.ui.graph.layout_arrays import Columns
from workbench.ui.graph.payload import pack, payload

pytestmark = pytest.mark.browser

SITE = "saved:layers.0.attn/linear#0"
DECODE = """(value) => {
    const decode = (value) => Array.isArray(value) ? value.map(decode)
        : !value || typeof value !== "object" ? value
        : "base64" in value ? new DataView(Uint8Array.from(atob(value.base64), (c) => c.charCodeAt(0)).buffer)
        : Object.fromEntries(Object.entries(value).map(([k, v]) => [k, decode(v)]));
    return decode(value);
}"""
VIEW = "document.getElementById('view').__workbench"


@pytest.fixture
def mount(blank: Page, tmp_path: Path) -> Callable[..., Page]:
    def open_page(layers: int = 4, *, dark: bool = False, unfolded: tuple[str, ...] = (), near: bool = True) -> Page:
        graph, sites = llama(layers)
        data = payload(graph, compute(graph, sites, unfolded=unfolded), sites)
        file = tmp_path / "view.html"
        file.write_text(page_text("graph", {"data": data, "selected": "", "height": 660, "dark": False}, dark=dark))
        blank.set_viewport_size({"width": 900, "height": 720})
        blank.goto(file.as_uri())
        blank.wait_for_function("window.ready === true")
        blank.wait_for_function(f"{VIEW}.state().drawn_ms > 0")
        if near:
            blank.evaluate(f"{VIEW}.view.setZoom(1, 0, 0)")
        return blank

    return open_page


def shown(page: Page) -> dict[str, Any]:
    state: dict[str, Any] = page.evaluate(f"{VIEW}.state()")
    return {name: value for name, value in state.items() if name != "drawn_ms"}


def test_the_focused_element_is_outlined(mount) -> None:
    page = mount()
    page.locator("canvas").first.focus()
    names = []
    while page.evaluate("document.activeElement !== document.body"):
        page.keyboard.press("Tab")
        at = page.evaluate(
            """() => {
                const el = document.activeElement, { outlineStyle, borderColor } = getComputedStyle(el);
                const seen = outlineStyle !== "none" || (el.tagName === "INPUT" && borderColor === "rgb(11, 87, 208)");
                return [el.dataset.do ?? el.className ?? el.tagName, el === document.body || seen];
            }"""
        )
        names.append(at[0])
        assert at[1], f"{at[0]} has the focus, but no outline"
    assert {"wb-map", "legend", "in", "out", "fit"} <= set(names)


@pytest.mark.parametrize("layers", [4, 24])
def test_the_end_of_the_forward_is_labelled_below_the_last_statement_at_fit(mount, layers: int) -> None:
    words, below = mount(layers, unfolded=("layers",), near=False).evaluate(
        f"""() => {{
            const {{ view }} = {VIEW}, {{ context }} = view.pen, written = [], fill = context.fillText;
            context.fillText = (text, x, y) => {{ written.push([text, y]); fill.call(context, text, x, y); }};
            view.draw();
            const [text, y] = written.find(([text]) => text.startsWith("forward ends"));
            return [text, view.places.heightPx - y];
        }}"""
    )
    assert words == "forward ends, backward begins"
    assert below >= 6, "the lower half of the letters is cut"


def test_the_arrow_to_the_backward_ends_below_the_box_of_a_module(blank: Page, tmp_path: Path) -> None:
    made = Builder()
    x = made.value((4,))
    for line, count in enumerate((1, 60)):
        origin = made.origin("gpt", "sin", line, "x = x.sin()")
        for _ in range(count):
            made.add("sin", FORWARD, origin, [x], [x := made.value((4,))])
        made.add("cos", BACKWARD, origin, [x], [made.value((4,))])
    file, graph = tmp_path / "view.html", made.graph()
    data = payload(graph, compute(graph), ())
    file.write_text(page_text("graph", {"data": data, "selected": "", "height": 660, "dark": False}))
    blank.goto(file.as_uri())
    blank.wait_for_function(f"window.ready && {VIEW}.state().drawn_ms > 0")
    foot, ends = blank.evaluate(
        f"""() => {{
            const {{ view }} = {VIEW}, {{ places, pen: {{ context }} }} = view;
            const drawn = [], {{ lineTo }} = context;
            view.setZoom(0.3, 0, 0);
            context.lineTo = (x, y) => {{ drawn.push([x, y]); lineTo.call(context, x, y); }};
            view.draw();
            const [at] = places.bands(), {{ module }} = places.scene, x = places.columns().sides[1][0] + 14;
            const ends = drawn.filter(([at]) => at === x).map(([, y]) => y);
            return [places.y(module.y[at] + module.height[at]), ends];
        }}"""
    )
    assert ends
    assert min(ends) >= foot


def test_a_large_graph_is_sent_packed_and_is_the_same_on_the_page(blank: Page, tmp_path: Path) -> None:
    graph, sites = llama(24)
    plain = payload(graph, compute(graph, sites, unfolded=("layers",)), sites)
    small = pack(plain)
    assert set(small) == {"packed"}
    assert pack(few := payload(*(one := llama(2))[:1], compute(*one), one[1])) is few
    found = []
    for data in (plain, small):
        file = tmp_path / "view.html"
        file.write_text(page_text("graph", {"data": data, "selected": "", "height": 660, "dark": False}))
        blank.goto(file.as_uri())
        blank.wait_for_function(f"window.ready && {VIEW}.state().nodes > 0 && {VIEW}.state().zoom < 1")
        found.append(shown(blank))
    assert found[0] == found[1]

    # While the page unpacks a compressed graph, another graph may arrive, or a request to select or reveal an element.
    # Only the last graph is drawn.
    other = payload(*(drawn := llama(2))[:1], compute(*drawn), drawn[1])
    blank.evaluate(
        f"""(data) => {{
            const other = ({DECODE})(data), packed = model.get("data");
            model.set("data", packed);
            model.set("data", other);
        }}""",
        encoded(other),
    )
    blank.wait_for_function(f"!{VIEW}.view.coming")
    blank.wait_for_timeout(100)
    assert shown(blank)["nodes"] == len(compute(*drawn).nodes)
    blank.evaluate(
        f"""([data, site]) => {{
            model.set("data", ({DECODE})(data));
            model.set("asked", {{ [site]: 1 }});
            {VIEW}.view.onReveal({{ type: "reveal", id: site }});
        }}""",
        [encoded(small), SITE],
    )
    blank.wait_for_function(f"!{VIEW}.view.coming && {VIEW}.state().nodes === {found[0]['nodes']}")
    assert next(arc["asked"] for arc in shown(blank)["arcs"] if arc["id"] == SITE) == 1
    assert blank.evaluate(f"{VIEW}.view.places.locate('{SITE}').y") == pytest.approx(330, abs=300)


def test_a_browser_without_decompression_requests_the_graph_plain(blank: Page, tmp_path: Path) -> None:
    graph, sites = llama(24)
    data = pack(payload(graph, compute(graph, sites, unfolded=("layers",)), sites))
    text = page_text("graph", {"data": data, "selected": "", "height": 660, "dark": False})
    file = tmp_path / "view.html"
    file.write_text(text.replace("<script type", "<script>delete window.DecompressionStream</script><script type", 1))
    blank.goto(file.as_uri())
    blank.wait_for_function("window.ready === true")
    assert messages(blank) == [{"type": "plain"}]


def point(page: Page, id: str) -> dict[str, float]:
    """Return the position of the element `id`. Assert that the view's hit test finds this element there."""
    at: dict[str, float] = page.evaluate(f"id => {VIEW}.position(id)", id)
    assert page.evaluate(f"({{x, y}}) => {VIEW}.hit(x, y)", at) == id
    return at


def messages(page: Page) -> list[dict[str, Any]]:
    return page.evaluate("window.messages")


def selected(page: Page) -> str:
    return page.evaluate("model.get('selected')")


def choose(option: str) -> dict[str, str]:
    """Return the message that requests an option of `SITE`."""
    return {"type": "choose", "id": SITE, "option": option}


@pytest.mark.parametrize("id", [SITE, "t:t1"])
@pytest.mark.parametrize("button", ["left", "middle", "right"])
def test_a_single_click_of_any_button_changes_no_choice(mount, id: str, button: str):
    page = mount()
    for _ in range(2):  # also if the element is already selected
        page.mouse.click(**point(page, id), button=button)
        page.wait_for_timeout(600)  # longer than the time between the clicks of a double click
    assert messages(page) == []
    assert selected(page) == (id if button == "left" else "")


def test_a_double_click_on_an_arc_requests_the_next_option_once(mount):
    page = mount()
    page.mouse.dblclick(**point(page, SITE))
    assert messages(page) == [{"type": "turn", "id": SITE}]
    assert selected(page) == SITE
    page.mouse.dblclick(**point(page, "t:t1"))
    assert len(messages(page)) == 1, "a double click on a statement must choose nothing"


def test_two_clicks_on_different_arcs_request_nothing_if_the_graph_moves_between_the_clicks(mount):
    page = mount()
    at = point(page, SITE)
    page.mouse.click(**at)
    other = next(arc["id"] for arc in shown(page)["arcs"] if arc["id"] != SITE)
    down = page.evaluate(f"([a, b]) => {VIEW}.view.places.locate(b).y - {VIEW}.view.places.locate(a).y", [SITE, other])
    page.evaluate(f"down => {{ {VIEW}.view.places.top += down; }}", down)
    page.mouse.down(click_count=2)
    page.mouse.up(click_count=2)
    assert selected(page) == other
    assert messages(page) == []


def test_a_zoomed_out_graph_shows_modules_and_a_double_click_or_enter_zooms_in(mount):
    page = mount(4, unfolded=("layers",), near=False)
    shown = page.evaluate(f"{VIEW}.state().modules")
    assert {one["scope"].rpartition(".")[2] for one in shown} >= {"attn", "mlp"}
    assert all(one["height"] >= 11 for one in shown)
    edges = [edge for one in shown for edge in (one["y"], one["y"] + one["height"])]
    assert edges == sorted(edges), "modules overlap"
    first = shown[-1]
    box, left = page.locator("canvas").first.bounding_box(), page.evaluate(f"{VIEW}.view.places.columns().sides[0][0]")
    at = box["x"] + left + 20, box["y"] + first["y"] + first["height"] / 2
    page.mouse.move(*at)
    assert page.locator(".wb-tip").inner_text().splitlines()[0] == first["scope"]
    for button in ("left", "right"):
        page.mouse.click(*at, button=button)
        assert selected(page) == f"module:{first['scope']}"
        assert not page.evaluate(f"{VIEW}.view.places.labelled()")
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    assert page.evaluate(f"{VIEW}.view.places.labelled()")
    page.keyboard.press("f")
    page.wait_for_timeout(600)
    page.mouse.dblclick(*at)
    assert [message["type"] for message in messages(page)] == ["relax"], "no plan changed"
    assert page.evaluate(f"{VIEW}.view.places.labelled()")
    assert page.evaluate(f"{VIEW}.state().modules") == []
    assert page.evaluate(f"{VIEW}.view.places.top") > 0
    page.keyboard.press("f")
    page.locator("input[type=search]").fill("silu")
    assert page.evaluate(f"{VIEW}.state().modules") == [], "modules cover the matches of the search"


def test_every_shown_arc_and_statement_can_be_pointed_at(mount):
    page = mount(1)
    state = page.evaluate(f"{VIEW}.state()")
    for id in [arc["id"] for arc in state["arcs"]] + [id for id in state["ids"] if not id.startswith("f:")]:
        point(page, id)


def test_only_an_arc_that_is_pointed_at_for_a_moment_requests_a_preview(mount):
    page = mount()
    at = point(page, SITE)
    page.mouse.move(at["x"], at["y"])
    page.mouse.move(5, 5)
    page.wait_for_timeout(500)
    assert page.evaluate("window.previews") == []
    page.mouse.move(at["x"], at["y"])
    page.wait_for_function("window.previews.length === 1")
    page.mouse.move(at["x"] + 1, at["y"])
    page.mouse.move(5, 5)
    page.wait_for_function("window.previews.length === 2")
    assert page.evaluate("window.previews") == [{"type": "preview", "id": SITE}, {"type": "preview"}]


def test_the_page_and_python_compute_equal_columns(mount):
    page = mount()
    for width in (360, 520, 860):
        page.evaluate("width => { document.getElementById('view').style.width = `${width}px`; }", width)
        page.wait_for_function(f"{VIEW}.view.places.width === {VIEW}.view.canvas.clientWidth")
        found, shown = page.evaluate(f"{VIEW}.view.places.columns()"), page.evaluate(f"{VIEW}.view.places.width")
        wanted = Columns.fit(shown)
        assert [*found["label"], *found["sides"][0], *found["sides"][1]] == pytest.approx(
            [*wanted.label, *wanted.forward, *wanted.backward]
        )
    page.evaluate("() => { document.getElementById('view').style.width = '860px'; }")


def test_keys_move_the_selection_choose_undo_and_redo(mount):
    page = mount()
    page.mouse.click(**point(page, "t:t1"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("model.get('selected')") == "t:t2"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("model.get('selected')") == "saved:layers.0.attn_norm/mul#0"
    page.keyboard.press("Space")
    page.keyboard.press("u")
    page.keyboard.press("r")
    sent = [{"type": "turn", "id": "saved:layers.0.attn_norm/mul#0"}, {"type": "undo"}, {"type": "redo"}]
    assert messages(page) == sent
    page.keyboard.press("ArrowRight")
    assert page.evaluate("model.get('selected')").startswith("t:")


def test_a_sheet_lists_the_keys_and_closes_by_the_same_key_by_escape_or_without_focus(mount):
    page = mount()
    sheet, canvas = page.get_by_role("dialog", name="Keys of the graph"), page.locator("canvas").first
    for close in ("?", "Escape"):
        canvas.focus()
        page.keyboard.press("?")
        assert "undo, redo" in sheet.inner_text()
        page.keyboard.press(close)
        assert sheet.count() == 0
        assert canvas.evaluate("el => el === document.activeElement")
    page.keyboard.press("?")
    page.locator("[data-do=fit]").focus()
    assert sheet.count() == 0


SHOW = ["Show in the outline", "Show in the trace", "Show on the memory curve"]


def test_the_menu_opens_a_tab_that_shows_the_element(mount):
    page = mount()
    for item, name in zip(SHOW, ("Outline", "Trace", "Curve and peak"), strict=True):
        page.mouse.click(**point(page, "t:t1"), button="right")
        page.get_by_role("menuitem", name=item).click()
        assert selected(page) == "t:t1"
        assert messages(page)[-1] == {"type": "tab", "name": name}
        assert find(name).tab == name


def menu(page: Page) -> list[str]:
    """Return the items of the open menu, without their notes; an empty list if no menu is open."""
    names = "items => items.map(item => item.firstChild.textContent)"
    return page.locator("[role=menu] [role=menuitem]").evaluate_all(names)


def test_a_right_click_opens_a_menu_and_its_items_choose_unfold_and_select(mount):
    page = mount()
    page.mouse.click(**point(page, SITE), button="right")
    assert menu(page) == ["Choose recompute", "Unfold 4 identical layers", "Select", *SHOW, "Copy id"]
    page.wait_for_function("window.previews.length === 1")
    assert page.evaluate("window.previews") == [{"type": "preview", "id": SITE, "option": "recompute"}]
    page.get_by_role("menuitem", name="Choose recompute").click()
    assert messages(page) == [choose("recompute")]
    assert (menu(page), selected(page)) == ([], "")
    page.wait_for_function("window.previews.length === 2")
    assert page.evaluate("window.previews")[1] == {"type": "preview"}

    page.mouse.click(**point(page, SITE), button="right")
    page.get_by_role("menuitem", name="Select").click()
    assert selected(page) == SITE
    page.mouse.click(**point(page, SITE), button="right")
    assert "Select" not in menu(page)
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.get_by_role("menuitem", name="Copy id").click()
    assert page.evaluate("window.copied") == SITE
    page.mouse.click(**point(page, SITE), button="right")
    page.get_by_role("menuitem", name="Unfold").click()
    assert messages(page) == [choose("recompute"), {"type": "fold", "stem": "layers", "folded": True}]


@pytest.mark.parametrize("key", ["ContextMenu", "Shift+F10"])
def test_keys_open_the_menu_of_the_selection_move_in_the_menu_and_choose(mount, key: str):
    page = mount()
    canvas = page.locator("canvas").first
    canvas.press(key)
    assert menu(page) == [], "the menu opened without a selection"
    page.mouse.click(**point(page, SITE))
    focused = "document.activeElement.firstChild?.textContent"
    canvas.press(key)
    seen = []
    for step in ("ArrowDown", "End", "ArrowDown", "ArrowUp", "Home"):
        page.keyboard.press(step)
        seen.append(page.evaluate(focused))
    assert seen == ["Unfold 4 identical layers", "Copy id", "Choose recompute", "Copy id", "Choose recompute"]
    for end in ("Escape", "Tab"):
        page.keyboard.press(end)
        assert (menu(page), page.evaluate("document.activeElement.tagName")) == ([], "CANVAS")
        canvas.press(key)
    assert selected(page) == SITE, "Escape must close the menu and keep the selection"
    assert messages(page) == []
    page.keyboard.press("Enter")
    assert messages(page) == [choose("recompute")]
    assert (menu(page), page.evaluate("document.activeElement.tagName")) == ([], "CANVAS")


def test_a_click_elsewhere_and_another_graph_close_the_menu(mount):
    page = mount()
    page.mouse.click(**point(page, SITE), button="right")
    page.mouse.click(880, 700)
    assert menu(page) == []
    page.mouse.click(**point(page, SITE), button="right")
    page.mouse.click(**point(page, "t:t1"))
    assert (menu(page), selected(page)) == ([], "t:t1")
    page.mouse.click(**point(page, SITE), button="right")
    assert menu(page)
    page.evaluate("model.set('data', { ...model.get('data') })")
    assert (menu(page), page.evaluate("document.activeElement.tagName")) == ([], "CANVAS")
    page.mouse.click(**point(page, SITE), button="right")
    page.mouse.move(200, 200)
    page.mouse.wheel(0, 60)
    page.wait_for_function("!document.querySelector('[role=menu]')")
    assert messages(page) == []


@pytest.mark.parametrize("dark", [False, True])
def test_the_menu_is_inside_the_graph_and_has_its_colours(mount, dark: bool):
    page = mount(1, dark=dark)
    last = shown(page)["ids"][-1]
    page.mouse.click(**point(page, last), button="right")
    inside, outside = page.locator("[role=menu]").bounding_box(), page.locator("#view").bounding_box()
    assert outside["x"] <= inside["x"]
    assert inside["x"] + inside["width"] <= outside["x"] + outside["width"]
    assert inside["y"] + inside["height"] <= outside["y"] + outside["height"]
    style = "element => [getComputedStyle(element).backgroundColor, getComputedStyle(element.firstChild).color]"
    papers = ["rgb(17, 17, 17)", "rgb(232, 234, 237)"] if dark else ["rgb(255, 255, 255)", "rgb(31, 35, 40)"]
    assert page.locator("[role=menu]").evaluate(style) == papers


def test_a_saved_plan_has_a_menu_without_choices(blank: Page, tmp_path: Path):
    graph, sites = llama(4)
    data = payload(graph, compute(graph, sites), sites, read_only=True)
    del data["tables"]["choice"]  # as in a plan that was saved before there were menus
    file = tmp_path / "view.html"
    state = {"data": data, "selected": "", "height": 660, "dark": False, "read_only": True}
    file.write_text(page_text("graph", state))
    blank.goto(file.as_uri())
    blank.wait_for_function(f"window.ready && {VIEW}.state().drawn_ms > 0")
    blank.evaluate(f"{VIEW}.view.setZoom(1, 0, 0)")
    blank.mouse.click(**point(blank, SITE), button="right")
    assert menu(blank) == ["Select", "Copy id"]
    blank.keyboard.press("Enter")
    blank.mouse.dblclick(**point(blank, SITE))
    blank.keyboard.press("Space")
    assert selected(blank) == SITE
    assert messages(blank) == []


def test_a_folded_layer_unfolds_by_a_click_and_represents_all_its_sites(mount):
    page = mount()
    box = page.locator("canvas").first.bounding_box()
    section = page.evaluate(f"{VIEW}.state().sections[0]")
    page.mouse.click(box["x"] + 60, box["y"] + section["y"] + 10)
    assert messages(page) == [{"type": "fold", "stem": "layers", "folded": True}]
    for layer in range(4):
        assert page.evaluate(f"id => {VIEW}.position(id)", f"saved:layers.{layer}.attn/linear#0") is not None


def test_a_resized_view_is_never_empty(mount):
    page = mount()
    pixel = page.evaluate(f"""async () => {{
      const el = document.getElementById("view"), {{ canvas, pen: {{ context }} }} = {VIEW}.view;
      return await new Promise((done) => {{
        let first = true;
        // This observer runs after the view's own observer, in the same frame.
        new ResizeObserver(() => {{
          if (!first) done(Array.from(context.getImageData(canvas.width >> 1, 2, 1, 1).data));
          else {{ first = false; el.style.width = "700px"; }}
        }}).observe(el);
      }});
    }}""")
    assert pixel == [255, 255, 255, 255]


def found(page: Page) -> str:
    return page.locator(".wb-found").inner_text()


def test_search_walks_through_its_matches_as_an_editor_does(mount):
    page = mount(4, unfolded=("layers",))
    tools = page.locator('[data-do="fit"]').bounding_box()
    page.locator("canvas").first.focus()
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    state = page.evaluate(f"{VIEW}.state()")
    assert state["matches"] == 4
    assert found(page) == "1 of 4"
    assert page.locator('[data-do="fit"]').bounding_box() == tools, "the count of matches moved the tools"
    assert page.evaluate("model.get('selected')") == ""
    for key, at in (("Enter", 0), ("Enter", 1), ("Shift+Enter", 0), ("Shift+Enter", 3), ("Enter", 0)):
        page.keyboard.press(key)
        assert found(page) == f"{at + 1} of 4"
        assert page.evaluate("model.get('selected')") == state["found"][at]
    page.get_by_role("button", name="Next match").click()
    assert page.evaluate("model.get('selected')") == state["found"][1]
    page.get_by_role("button", name="Previous match").click()
    assert page.evaluate("model.get('selected')") == state["found"][0]
    # The key selects the query, so that another query replaces it.
    page.locator("canvas").first.focus()
    page.keyboard.press("/")
    page.keyboard.type("no such thing")
    assert page.locator("input[type=search]").input_value() == "no such thing"
    assert found(page) == "…", "the entries of folded layers are not known yet"
    rows = {"id": [], "name": [], "full": [], "values": [], "origin": []}
    page.evaluate("rows => emit('msg:custom', {type: 'index', strings: [], origins: [], rows})", rows)
    assert found(page) == "none"
    assert page.get_by_role("button", name="Next match").is_disabled()
    page.keyboard.press("Escape")
    assert found(page) == ""
    assert page.evaluate(f"{VIEW}.state().matches") is None


def test_search_finds_exact_names_first_and_modules_by_their_path(mount):
    page = mount(4, unfolded=("layers",))
    strings = f"((scene) => {VIEW}.state().found.map((id) => scene.strings[scene.node.name[scene.at.get(id).index]]))"
    page.locator("input[type=search]").fill("mul")
    names = page.evaluate(f"{strings}({VIEW}.view.places.scene)")
    assert names[0] == "mul"
    assert set(names[names.index("matmul") :]) == {"matmul"}
    page.locator("input[type=search]").fill("layers.2")
    assert found(page).startswith("1 of ")
    page.keyboard.press("Enter")
    top = page.evaluate(f"{VIEW}.view.places.scene.sections[2]")
    y = page.evaluate(f"((s) => s.node.y[s.at.get(model.get('selected')).index])({VIEW}.view.places.scene)")
    assert top["first"] == "layers.2"
    assert top["y"] <= y < top["y"] + 60


def test_search_does_not_move_what_is_in_view_and_hides_the_tooltip(mount):
    page = mount(4, unfolded=("layers",), near=False)
    at = page.evaluate(f"{VIEW}.position({VIEW}.state().ids[3])")
    page.evaluate(f"{VIEW}.view.setZoom(1, 0, 0)")
    page.mouse.move(at["x"], 300)
    page.wait_for_selector(".wb-tip", state="visible")
    page.keyboard.press("Escape")
    page.locator("canvas").first.focus()
    page.keyboard.press("/")
    page.wait_for_selector(".wb-tip", state="hidden")
    view = f"(({{zoom, top}}) => [zoom, top])({VIEW}.state())"
    before = page.evaluate(view)
    page.keyboard.type("embedding")
    assert found(page).startswith("1 of")
    assert page.evaluate(view) == before, "the view moved, although the match was in view"
    # At fit, the whole graph is in view. Enter zooms in, and the match stays at its height on the screen.
    page.evaluate(f"{VIEW}.view.fit()")
    before = page.evaluate(view)
    page.locator("input[type=search]").fill("cross_entropy")
    assert page.evaluate(view) == before
    height = f"{VIEW}.view.places.locate({VIEW}.state().current).y"
    was = page.evaluate(height)
    page.keyboard.press("Enter")
    assert page.evaluate(f"{VIEW}.state().zoom") == 1
    assert abs(page.evaluate(height) - was) < 60


def test_search_requests_the_index_and_then_the_unfolding_of_a_match(mount):
    page = mount(4)
    page.locator("canvas").first.focus()
    page.keyboard.press("/")
    assert page.evaluate("messages.filter(({ type }) => type === 'index').length") == 1
    page.keyboard.type("layers.3")
    assert found(page) == "…"
    rows = {"id": ["t:t900"], "name": [0], "full": [0], "values": ["t900"], "origin": [0]}
    index = {"type": "index", "strings": ["mul"], "origins": [["layers.3.mlp", "llama.py:12", "mul"]], "rows": rows}
    page.evaluate("index => emit('msg:custom', index)", index)
    assert found(page) == "1 of 1"
    assert "Enter shows it" in page.locator(".wb-found").get_attribute("title")
    page.keyboard.press("Enter")
    assert page.evaluate("messages.at(-1)") == {"type": "unveil", "id": "t:t900"}


def test_enter_before_the_index_comes_shows_the_match_when_it_comes(mount):
    page = mount(4)
    page.locator("canvas").first.focus()
    page.keyboard.press("/")
    page.keyboard.type("layers.3")
    page.keyboard.press("Enter")
    rows = {"id": ["t:t900"], "name": [0], "full": [0], "values": ["t900"], "origin": [0]}
    index = {"type": "index", "strings": ["mul"], "origins": [["layers.3.mlp", "llama.py:12", "mul"]], "rows": rows}
    page.evaluate("index => emit('msg:custom', index)", index)
    assert page.evaluate("messages.at(-1)") == {"type": "unveil", "id": "t:t900"}


def test_another_plan_moves_neither_the_graph_nor_the_current_match(mount):
    page = mount(4, unfolded=("layers",))
    rows = {"id": ["t:t900", "t:t901"], "name": [0, 0], "full": [0, 0], "values": ["t900", "t901"], "origin": [0, 0]}
    index = {"type": "index", "strings": ["mul"], "origins": [["layers.9", "llama.py:12", "mul"]], "rows": rows}
    page.locator("canvas").first.focus()
    page.keyboard.press("/")
    page.evaluate("index => emit('msg:custom', index)", index)
    page.keyboard.type("softmax")
    page.evaluate(f"{VIEW}.view.scroll(2000)")
    top = page.evaluate(f"{VIEW}.state().top")
    renew = """index => {
        model.set('data', {...model.get('data')});
        emit('change:data');
        return new Promise((done) => setTimeout(() => { emit('msg:custom', index); done(); }, 300));
    }"""
    page.evaluate(renew, index)
    assert page.evaluate(f"{VIEW}.state().top") == top
    # The page finds matches outside of the scene only after it has received the index again.
    page.locator("input[type=search]").fill("layers.9")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert found(page) == "2 of 2"
    page.evaluate(renew, index)
    assert found(page) == "2 of 2"


def test_wheel_and_drag_move_the_graph_and_fit_shows_the_whole_graph(mount):
    page = mount(30, unfolded=("layers",))
    page.locator("canvas").first.focus()
    page.mouse.move(400, 400)
    page.mouse.wheel(0, 500)
    page.wait_for_function(f"{VIEW}.state().top === 500")
    page.mouse.down()
    page.mouse.move(400, 300)
    page.mouse.up()
    assert page.evaluate(f"{VIEW}.state().top") == 600
    page.keyboard.press("f")
    state = page.evaluate(f"{VIEW}.state()")
    assert state["top"] == 0
    assert state["zoom"] < 0.05


def test_the_graph_opens_at_fit_and_zooms_in_where_the_pointer_is(mount):
    page = mount(30, unfolded=("layers",), near=False)
    state = page.evaluate(f"{VIEW}.state()")
    assert state["zoom"] < 0.05
    # If the window changes its size before the user has zoomed, the graph still fits into it.
    page.evaluate("document.getElementById('view').style.height = '300px'")
    page.wait_for_function(f"{VIEW}.state().zoom < {state['zoom'] / 2}")
    point(page, SITE)
    assert page.evaluate(f"{VIEW}.state().zoom") == 1


def test_a_graph_of_one_module_opens_with_its_statements_and_not_as_one_box(mount):
    page = mount(1, near=False)
    scene = f"{VIEW}.view.places.scene"
    page.evaluate(f"for (const [name, of] of Object.entries({scene}.module)) {scene}.module[name] = of.slice(0, 1)")
    height = page.evaluate(f"{scene}.height")
    page.evaluate("height => { document.getElementById('view').style.height = `${height}px`; }", round(0.45 * height))
    page.wait_for_function(f"{VIEW}.view.places.heightPx < {0.45 * height}")
    page.evaluate(f"{VIEW}.view.fit()")
    state = page.evaluate(f"{VIEW}.state()")
    assert (state["zoom"], state["modules"]) == (pytest.approx(0.6), [])


def test_the_legend_opens_over_the_graph_and_closes(mount):
    page = mount()
    page.get_by_role("button", name="Legend").click()
    box = page.locator(".wb-legend-box")
    for word in ("Saved", "Recomputed", "Offloaded", "The cut", "Fusion", "forward", "backward", "Selected"):
        assert word in box.inner_text()
    assert "collective" not in box.inner_text(), "the legend must not name collectives: this program has none"
    inside, outside = box.bounding_box(), page.locator("#view").bounding_box()
    assert inside["y"] >= outside["y"]
    assert inside["x"] + inside["width"] <= outside["x"] + outside["width"]
    page.keyboard.press("Escape")
    assert box.count() == 0


@pytest.mark.parametrize("width", [1100, 705, 545, 400])
def test_a_row_names_the_lines_that_the_graph_has_as_far_as_whole_words_fit(mount, width: int):
    page = mount()
    page.locator("#view").evaluate("(el, width) => { el.style.width = `${width}px`; }", width)
    page.evaluate("() => new Promise(requestAnimationFrame)")
    styles = {arc["style"] for arc in shown(page)["arcs"]}
    names = page.evaluate("Array.from(document.querySelectorAll('.wb-key'), (el) => el.textContent)")
    words = {0: "saved", 1: "recomputed", 2: "on the CPU"}
    assert [name for name in names if name in words.values()] == [words[style] for style in sorted(styles)]
    assert "on its way, from issue to wait" not in names, "this program has no collectives"
    row, parts = page.evaluate(
        """() => {
            const box = (el) => el.getBoundingClientRect(), row = box(document.querySelector(".wb-key-row"));
            const seen = Array.from(document.querySelectorAll(".wb-key")).filter((el) => box(el).top < row.bottom);
            return [row.right, seen.map((el) => box(el).right)];
        }"""
    )
    assert all(right <= row + 0.5 for right in parts)
    assert parts or width == 400
    foot = page.locator(".wb-foot")
    assert foot.evaluate("el => el.scrollWidth <= el.clientWidth")


@pytest.mark.parametrize(("width", "least_px"), [(704, 60), (593, 50), (540, 35), (480, 20)])
def test_a_query_is_in_sight_and_the_buttons_beside_it_do_not_overlap(mount, width: int, least_px: int):
    page = mount()
    page.locator("#view").evaluate("(el, width) => { el.style.width = `${width}px`; }", width)
    page.locator(".wb-find input").fill("softmax")
    # More kinds of lines than this program has, as with fusions and collectives.
    page.locator(".wb-key").last.evaluate("el => el.after(...[1, 2, 3].map(() => el.cloneNode(true)))")
    assert page.locator(".wb-find input").bounding_box()["width"] >= least_px
    parts = page.locator(".wb-foot > button, .wb-find > *").evaluate_all(
        "els => els.map((el) => el.getBoundingClientRect()).filter((at) => at.width).map((at) => [at.left, at.right])"
    )
    assert all(right <= left for (_, right), (left, _) in itertools.pairwise(parts))
    assert page.locator(".wb-foot").evaluate("el => el.scrollWidth <= el.clientWidth")


def test_the_theme_follows_the_page(mount):
    assert mount(1, dark=True).evaluate(f"{VIEW}.state().dark") is True
    assert mount(1).evaluate(f"{VIEW}.state().dark") is False


def test_a_button_shows_views_and_their_number(mount):
    page = mount()
    button = page.locator("[data-do=views]")
    assert button.is_hidden()
    page.evaluate(
        """() => {
            const data = { ...model.get("data"), views: { count: 7, hidden: 7 } };
            model.set("data", data);
        }"""
    )
    assert button.text_content() == "Show 7 reshapes and other views"
    button.click()
    assert messages(page) == [{"type": "views", "shown": True}]


def test_the_overview_shows_the_part_in_view_and_moves_it_by_drag_and_keys(mount):
    page = mount(8, unfolded=("layers",), near=False)
    overview = page.locator(".wb-map")
    assert overview.get_attribute("aria-valuetext") == "all of it"
    page.evaluate(f"{VIEW}.view.setZoom(1, 0, 0)")
    page.wait_for_function("document.querySelector('.wb-map').ariaValueText !== 'all of it'")
    assert overview.get_attribute("aria-valuenow") == "0"
    box = overview.bounding_box()
    bottom = box["y"] + box["height"] - 3
    page.mouse.move(box["x"] + 20, box["y"] + 3)
    page.mouse.down()
    page.mouse.move(box["x"] + 20, bottom, steps=4)
    page.mouse.up()
    page.wait_for_function("document.querySelector('.wb-map').ariaValueNow === '100'")
    end = page.evaluate(f"{VIEW}.state().top")
    assert end > 1000
    overview.press("PageUp")
    assert page.evaluate(f"{VIEW}.state().top") < end - 300
    overview.press("Home")
    assert page.evaluate(f"{VIEW}.state().top") == 0
    page.mouse.click(box["x"] + 20, box["y"] + box["height"] / 2)
    assert page.evaluate(f"{VIEW}.state().top") == pytest.approx(end / 2, rel=0.1)
    assert messages(page) == []


@pytest.mark.parametrize("name", ["torch.embedding", "torch.cross_entropy"])
def test_the_selection_stays_in_place_when_folds_change(mount, name):
    stock, _ = llama(4)
    made = stock.statements.outputs[stock.statements.name.index(name)][0]
    held = f"t:{stock.values.name[made]}"
    page = mount(4)
    before = point(page, held)
    page.evaluate("id => model.set('selected', id)", held)
    graph, sites = llama(4, recompute=frozenset({"saved:layers.1.mlp/silu#0"}))
    data = payload(graph, compute(graph, sites), sites)
    page.evaluate("([text, decode]) => model.set('data', eval(decode)(text))", [encoded(data), DECODE])
    assert [section["count"] for section in page.evaluate(f"{VIEW}.state().sections")] == [1, 1, 2]
    after = page.evaluate(
        f"id => {VIEW}.view.places.locate(id).y + {VIEW}.view.canvas.getBoundingClientRect().top", held
    )
    assert after == pytest.approx(before["y"], abs=0.01)
