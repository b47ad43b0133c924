"""Use the app in a real JupyterLab without a network: keys, tabs, menus, a refused export, windows, themes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.app import GRAPH, click, figure, graph, open_program, open_tab, press, sideways, turn
from tests.browser.harness import Lab
from workbench.core.config import is_config
from workbench.ui.app.places import PLACES

pytestmark = pytest.mark.browser

FIRST_LEGAL = "next(s.id for s in bench.sites('saved') if s.values and 'recompute' not in s.illegal)"


IN_A_LAYER = FIRST_LEGAL.replace("s.values and", "s.id.startswith('saved:layers.0') and")

HELD = """
import threading
from workbench.compiler import api
let, plan = threading.Event(), api.plan
api.plan = lambda *given: let.wait(60) and plan(*given)
"""
"""Code for the kernel that makes each plan wait until the event `let` is set."""


CONTROLS = """
import gc
from workbench.ui.controls.controls import Controls
controls = next(one for one in gc.get_objects() if isinstance(one, Controls))
"""
REASON = "The worker was killed by SIGKILL, by hand or by the system when memory ran out"
FAILED = {"state": "failed", "busy": False, "text": REASON, "elapsed_s": 9, "stages": []}


def drawn_in_order(lab: Lab) -> list[str]:
    """Return the texts that the graph draws, in order. For each curve that the graph draws, the list has `arcs`."""
    return lab.page.evaluate(
        f"""() => {{
            const view = document.querySelector("{GRAPH}").__workbench.view, told = [];
            const {{ context }} = view.pen, {{ fillText, bezierCurveTo }} = context;
            context.fillText = function (text, ...at) {{ told.push(text); fillText.call(this, text, ...at); }};
            context.bezierCurveTo = function (...at) {{ told.push("arcs"); bezierCurveTo.apply(this, at); }};
            view.draw();
            delete context.fillText;
            delete context.bezierCurveTo;
            return told;
        }}"""
    )


def asked(lab: Lab) -> list[str]:
    """Return the ids of arcs that show a requested option, whose plan is not finished."""
    return [arc["id"] for arc in graph(lab, "state().arcs") if arc["asked"] is not None]


def test_the_app_responds_to_keys_tabs_and_refusals(lab: Lab) -> None:
    open_program(lab, "'llama', device='cpu'")
    # The label of folded layers is drawn after the arcs that cross it, so that it stays readable.
    assert drawn_in_order(lab).index("arcs") < drawn_in_order(lab).index(
        "2 identical layers shown as one, click to unfold"
    )
    before = lab.kernel_eval("print(bench.choices)")
    id = lab.kernel_eval(f"print({FIRST_LEGAL})")
    lab.kernel_eval(HELD)
    turn(lab, id)
    lab.wait_until(lambda: asked(lab) == [id])
    lab.wait_until(lambda: "≈" in figure(lab, "saved"))
    lab.screenshot("planning")
    # While a thread makes the plan, the kernel answers.
    assert lab.kernel_eval("print(bench.choices)") == before
    lab.kernel_eval("let.set()")
    lab.wait_until(lambda: lab.kernel_eval("print(bench.choices)") != before)
    lab.wait_until(lambda: not asked(lab) and "≈" not in figure(lab, "saved"))
    lab.page.keyboard.press("u")
    lab.wait_until(lambda: lab.kernel_eval("print(bench.choices)") == before)
    lab.page.keyboard.press("r")
    lab.wait_until(lambda: lab.kernel_eval("print(bench.choices)") != before)

    # The user can make a choice for both identical layers, or for one layer alone.
    turn(lab, lab.kernel_eval(f"print({IN_A_LAYER})"))
    for name, alone in (("this layer alone", True), ("all 2 identical layers", False)):
        lab.page.get_by_role("group", name="What a choice applies to").get_by_role("button", name=name).click()
        lab.page.get_by_role("button", name=name, pressed=True).wait_for()
        if alone:
            lab.screenshot("alone")
    lab.page.locator(".wb-graph canvas").first.focus()
    lab.page.keyboard.press("u")
    lab.wait_until(lambda: lab.kernel_eval("print(bench.choices)") != before)

    # Use keys alone: select a statement, which is announced to screen readers, unfold and fold identical layers, and
    # move a point along the memory curve.
    canvas, told = lab.page.locator(f"{GRAPH} canvas").first, lab.page.locator(f"{GRAPH} [role=status]")
    canvas.press("Escape")
    lab.wait_until(lambda: graph(lab, "state().selected") == "" == told.text_content())
    canvas.press("ArrowDown")  # selects the first statement in sight
    lab.wait_until(lambda: graph(lab, "state().selected") != "" != told.text_content())
    for folded in (False, True):
        canvas.press("o")
        lab.wait_until(lambda: ("shown as one" in " ".join(drawn_in_order(lab))) == folded)  # noqa: B023
    curve = lab.page.get_by_role("figure", name="Memory along the statements: predicted peak").filter(visible=True)
    curve.focus()
    curve.press("ArrowRight")
    peak = curve.get_by_role("status")
    lab.wait_until(lambda: "predicted" in (peak.text_content() or ""))
    before_it, first = graph(lab, "state().selected"), peak.text_content()
    curve.press("ArrowLeft")
    lab.wait_until(lambda: graph(lab, "state().selected") != before_it and peak.text_content() != first)

    # The height of the app in a cell does not depend on the open tab.
    height = "app => app.getBoundingClientRect().height"
    before_it = lab.page.locator(".wb-app").evaluate(height)
    for tab in (tab for tabs in PLACES.values() for tab in tabs):
        open_tab(lab, tab)
        if tab == "Passes":
            lab.page.wait_for_selector(".wb-passes .wb-line")
        assert lab.page.locator(".wb-app").evaluate(height) == before_it, f"the tab {tab} changed the cell's height"
        lab.screenshot(f"tab-{tab.lower()}")
    open_tab(lab, "Passes")
    lab.page.locator(".wb-passes").get_by_role("button", name="gradients").click()
    lab.page.wait_for_selector(".wb-passes .wb-new")
    open_tab(lab, "Memory")
    lab.page.locator(".wb-alive tr.wb-can").first.click()
    lab.wait_until(lambda: graph(lab, "state().selected").startswith(("t:", "f:")))

    lab.page.locator(".wb-export-more").click()
    lab.page.get_by_role("textbox", name="File to export to").fill("/no/such/folder/x.py")
    press(lab, "Export to /no/such/folder/x.py")
    lab.page.wait_for_selector(".wb-error")
    assert "/no/such/folder" in lab.page.locator(".wb-error").inner_text()

    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    lab.wait_until(lambda: graph(lab, "state().dark"))
    lab.page.wait_for_timeout(500)
    lab.screenshot("dark")
    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")

    lab.page.wait_for_selector("#jupyterlab-splash", state="detached")
    lab.page.set_viewport_size({"width": 900, "height": 1600})
    lab.wait_until(lambda: below(lab, ".wb-inspector", GRAPH))
    assert not clipped(lab)
    lab.screenshot("narrow")
    open_tab(lab, "Sites")
    names = lab.page.locator(".wb-sites td:nth-child(2)")
    assert min(names.evaluate_all("cells => cells.map(cell => cell.clientWidth)")) > 100, (
        "the column of names is only one letter wide"
    )
    # In a narrow window, the cells of a row are stacked, each with the name of its column. For screen readers, the
    # table stays a table.
    lab.page.evaluate("() => jupyterapp.shell.collapseLeft()")
    for width in (900, 520):
        lab.page.set_viewport_size({"width": width, "height": 1600})
        for tab in ("Memory", "Single choices", "Fit", "Outline", "Sites", "Settings"):
            open_tab(lab, tab)
            lab.wait_until(lambda: sideways(lab) == [], timeout_s=10)
    for state in ({"cannot_run": REASON}, {"run": FAILED}):
        lab.kernel_eval(f"{CONTROLS}\ncontrols.update(**{state})")
        shown = lab.page.locator(".wb-state", has_text=REASON)
        shown.focus()
        whole = "text => [text.scrollWidth - text.clientWidth, text.scrollHeight - text.clientHeight]"
        assert max(shown.evaluate(whole)) <= 1, "the reason is cut"
    open_tab(lab, "Sites")
    cells = lab.page.locator(".wb-sites").get_by_role("row").get_by_role("cell")
    assert (
        cells.filter(has=lab.page.locator("select")).first.evaluate(
            "cell => getComputedStyle(cell, '::before').content"
        )
        == '"choice"'
    )
    lab.screenshot("narrow-sites")

    assert not lab.page.locator(".jp-RenderedSVG").first.is_visible()
    lab.page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }")
    lab.page.locator(".wb-app.jupyter-widgets-disconnected").first.wait_for()
    said = "() => getComputedStyle(document.querySelector('.wb-app'), '::before').content"
    assert "run the cell again" in lab.page.evaluate(said)
    run = "() => getComputedStyle(document.querySelector('.wb-app .wb-primary')).pointerEvents"
    assert lab.page.evaluate(run) == "none"
    lab.page.locator(".wb-app").first.evaluate("app => app.classList.remove('jupyter-widgets-disconnected')")
    lab.page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.shutdown(); }")
    lab.page.locator(".wb-app.jupyter-widgets-disconnected").first.wait_for()
    lab.page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:save'); }")
    lab.page.evaluate("async () => { await jupyterapp.serviceManager.sessions.shutdownAll(); }")
    lab.open_notebook("app.ipynb")
    lab.page.locator(".jp-RenderedSVG").first.wait_for(state="visible")
    assert lab.page.locator(".wb-app").count() == 0
    # The picture shows the plan at the time when the notebook was saved.
    kept = next(output["data"]["image/svg+xml"] for output in lab.outputs() if "image/svg+xml" in output["data"])
    assert "Choices in force" in kept
    assert "vs no choices" in kept
    error = lab.page.get_by_text("Error displaying widget").first
    error.wait_for(state="attached")
    assert not error.is_visible()
    lab.screenshot("without-kernel")


def test_a_click_selects_and_the_menu_chooses_by_pointer_and_keys(lab: Lab) -> None:
    open_program(lab, "'mlp', device='cpu', executor='torch'")
    id = lab.kernel_eval(f"print({FIRST_LEGAL})")

    def choice() -> str:
        return lab.kernel_eval(f"print(bench.site({id!r}).choice)")

    inspector, menu = lab.page.locator(".wb-inspector"), lab.page.locator(f"{GRAPH} [role=menu]")
    click(lab, id)
    inspector.locator(".wb-option").first.wait_for()
    assert choice() == "save"
    click(lab, id, button="right")
    # JupyterLab's own menu stays closed.
    assert lab.page.locator("[role=menu]:visible").count() == 1
    menu.get_by_role("menuitem", name="Choose recompute").first.hover()
    lab.wait_until(lambda: "recompute for" in lab.page.locator(".wb-preview").inner_text())
    lab.screenshot("menu")
    assert choice() == "save", "a preview chooses nothing"
    menu.get_by_role("menuitem", name="Choose recompute").first.click()
    lab.wait_until(lambda: choice() == "recompute")
    lab.wait_until(lambda: not asked(lab))

    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    lab.wait_until(lambda: graph(lab, "state().dark"))
    lab.page.wait_for_selector("#jupyterlab-splash", state="detached")
    lab.page.locator(f"{GRAPH} canvas").first.focus()
    lab.page.keyboard.press("Shift+F10")
    assert "Choose save" in (menu.get_by_role("menuitem").first.text_content() or "")
    lab.screenshot("menu-dark")
    lab.page.keyboard.press("Enter")
    lab.wait_until(lambda: choice() == "save")
    lab.wait_until(lambda: not asked(lab))
    lab.page.keyboard.press("Space")
    lab.wait_until(lambda: choice() == "recompute")
    lab.wait_until(lambda: not asked(lab))
    inspector.get_by_role("button", name="save", exact=True).click()
    lab.wait_until(lambda: choice() == "save")
    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")


def below(lab: Lab, lower: str, upper: str) -> bool:
    """Return whether the element `lower` begins below the end of the element `upper`."""
    boxes = [lab.page.locator(selector).first.bounding_box() for selector in (upper, lower)]
    return None not in boxes and boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"]


def clipped(lab: Lab) -> list[str]:
    """Return buttons and figures that extend beyond the left or right edge of the app."""
    return lab.page.evaluate(
        """() => {
            const app = document.querySelector(".wb-app"), edge = app.getBoundingClientRect();
            return Array.from(app.querySelectorAll("button, .wb-figure, canvas"))
                .filter(el => el.offsetWidth && !el.closest(".wb-scroll"))
                .map(el => [el.getBoundingClientRect(), el.outerHTML.slice(0, 120)])
                .filter(([box]) => box.left < edge.left - 1 || box.right > edge.right + 1)
                .map(([, html]) => html);
        }"""
    )


SITE = "saved:blocks.1/gelu>mul.1"
CHOSEN = "print(sorted({*bench.choices.values()}), len(bench.choices))"


def places(lab: Lab) -> list[dict[str, float]]:
    """Return the boxes of the app's parts on the page."""
    found: list[dict[str, float]] = lab.page.locator(".wb-app").evaluate(
        "app => [...app.children].map(part => part.getBoundingClientRect().toJSON())"
    )
    return found


@pytest.mark.long
def test_a_choice_for_all_layers_is_exported_for_pytorch(lab: Lab) -> None:
    open_program(lab, "'mlp', device='cpu', executor='torch', layers=5")

    # Three of the five layers are shown as one. In the inspector, a click on a group of layers chooses for the group.
    click(lab, SITE)
    lab.page.locator(".wb-groups").get_by_role("button", name="all 5 layers", exact=True).first.click()
    lab.wait_until(lambda: lab.kernel_eval(CHOSEN) == "['recompute'] 5")
    lab.kernel_eval("_ = bench.undo()")
    scopes = lab.page.get_by_role("group", name="What a choice applies to")
    scopes.get_by_role("button", name="all 5 layers").click()
    scopes.get_by_role("button", name="all 5 layers", pressed=True).wait_for()
    option = lab.page.locator(".wb-inspector .wb-option").filter(has=lab.page.get_by_role("button", name="recompute"))
    lab.wait_until(lambda: option.locator(".wb-groups tbody tr").count() == 4)
    assert option.locator(".wb-groups tbody td:first-child").all_inner_texts() == [
        "all 5 layers",
        "layer 0",
        "layers 1–3",
        "layer 4",
    ]
    lab.screenshot("all-layers")
    option.get_by_role("button", name="recompute").click()
    lab.wait_until(lambda: lab.kernel_eval(CHOSEN) == "['recompute'] 5")
    scopes.get_by_role("button", name="this layer alone").click()
    lab.page.keyboard.press("Escape")
    # In the menu of an arc, each option has a further entry, which chooses it in all five layers.
    lab.kernel_eval("_ = bench.choose({'saved:blocks.3/gelu>mul.1': 'save'})")
    click(lab, SITE, button="right")
    lab.screenshot("all-layers-menu")
    lab.page.get_by_role("menuitem", name="Choose offload in all 5 layers").click()
    lab.wait_until(lambda: lab.kernel_eval(CHOSEN) == "['offload'] 5")

    before = places(lab)
    lab.page.get_by_role("button", name="What the file is for").click()
    box = lab.page.get_by_role("dialog", name="Export")
    assert "config = wb.Config(" in box.get_by_label("The file").inner_text()
    box.get_by_role("button", name="torch.compile").click()
    lab.wait_until(lambda: "PyTorch can follow all 5 choices." in box.inner_text())
    assert "def compile(" in box.get_by_label("The file").inner_text()
    assert places(lab) == before, "the box moved parts of the app"
    lab.screenshot("export-torch")
    # The figures are grey until they are those of the limit in the field. Enter starts the fit.
    limit = box.get_by_label("Peak of torch.compile at most")
    limit.fill("100%")
    assert box.locator(".wb-old").count() == 1
    limit.press("Enter")
    lab.wait_until(lambda: "Step, predicted" in box.inner_text())
    assert box.locator(".wb-old").count() == 0
    limit.fill("")
    box.get_by_role("button", name="Fit", exact=True).click()
    lab.wait_until(lambda: "without choices:" in box.inner_text())
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    button = box.get_by_role("button", name="Export to mlp_torch.py").bounding_box()
    assert button is not None
    assert button["y"] + button["height"] < 900, "the button of the box is below the window"
    box.get_by_role("button", name="Export to mlp_torch.py").click()
    lab.wait_until((lab.folder / "mlp_torch.py").exists)
    assert (lab.folder / "mlp_torch.py").read_text().count(': "offload",') == 5
    assert not box.is_visible(), "the box is open after its file was written"
    lab.page.get_by_role("button", name="What the file is for").click()
    box.get_by_role("button", name="Thunder").click()
    lab.page.keyboard.press("Escape")
    assert not box.is_visible()
    lab.page.locator(".wb-controls").get_by_role("button", name="Export").click()
    lab.wait_until((lab.folder / "mlp.choices.py").exists)
    assert is_config(lab.folder / "mlp.choices.py")


CELL = ".jp-Notebook .wb-app"


def places_in_view(lab: Lab) -> dict[str, Any]:
    """Return the upper and lower edges of parts of the app and of the notebook's visible area, in pixels."""
    found: dict[str, Any] = lab.page.evaluate(
        """async cell => {
            for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame);
            const edges = el => (({ top, bottom }) => [top, bottom].map(Math.round))(el.getBoundingClientRect());
            const app = document.querySelector(cell), part = name => edges(app.querySelector(name));
            return { window: edges(app.closest(".jp-WindowedPanel-outer")), app: edges(app), graph: part(".wb-graph"),
                     strip: part(".wb-strip"), status: part(".wb-status"), places: part(".wb-places") };
        }""",
        CELL,
    )
    return found


def scroll_by(lab: Lab, pixels: int) -> None:
    lab.page.evaluate("by => document.querySelector('.jp-WindowedPanel-outer').scrollBy(0, by)", pixels)


@pytest.mark.long
def test_strip_and_status_line_stay_in_view_and_no_tab_changes_the_height(lab: Lab) -> None:
    open_program(lab, "'mlp', device='cpu'")
    for width in (900, 1280, 1920, 2560):
        lab.page.set_viewport_size({"width": width, "height": 900})
        lab.page.evaluate("jupyterapp.shell.currentWidget.content.scrollToItem(0, 'start')")
        seen = places_in_view(lab)
        for part in ("graph", "places"):
            # Scroll until the middle of the part is in the middle of the notebook.
            scroll_by(lab, (sum(seen[part]) - sum(seen["window"])) // 2)
            seen = places_in_view(lab)
            assert seen["strip"][0] >= seen["window"][0], f"at {width}, the strip is above the view of the {part}"
            assert seen["status"][1] <= seen["window"][1] + 1, f"at {width}, the status line is below the {part}'s view"
            assert seen["status"][0] >= seen["strip"][1], f"at {width}, the strip covers the status line"
        heights = set()
        for tab in (tab for tabs in PLACES.values() for tab in tabs):
            open_tab(lab, tab, CELL)
            top, bottom = places_in_view(lab)["app"]
            heights.add(bottom - top)
        assert len(heights) == 1
