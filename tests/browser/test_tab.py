"""The app in a tab of a real JupyterLab is completely visible, and shares its bench with the app in the cell."""

from __future__ import annotations

import pytest

from tests.browser.app import open_tab, press, show_cell
from tests.browser.harness import Lab
from workbench.ui.app.places import PLACES

pytestmark = pytest.mark.browser

TAB = ".wb-tab"
OPEN = ".wb-place:not(.lm-mod-hidden) > .widget-tab-contents"
TURNABLE = "next(s.id for s in bench.sites('saved') if s.values and 'recompute' not in s.illegal)"


def test_the_tab_shows_the_whole_app_and_makes_choices(lab: Lab) -> None:
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    cells = [
        "import workbench as wb\nbench = wb.open('mlp', device='cpu')\nbench.show(tab=True)",
        "print('all', 'ran')",
    ]
    lab.write_notebook("tab.ipynb", cells)
    lab.open_notebook("tab.ipynb")
    notebook = lab.page.evaluate("() => jupyterapp.shell.currentWidget.id")
    lab.run_all()
    lab.page.wait_for_selector(f"{TAB} .wb-graph canvas", timeout=240_000)
    lab.wait_until(lambda: in_tab(lab, "state().drawn_ms") > 0)
    assert out_of_sight(lab, [".wb-controls", ".wb-strip", ".wb-graph", ".wb-inspector", ".widget-tab-contents"]) == []

    # A double click in the tab makes a choice in the shared bench, so the app in the cell shows the choice.
    lab.page.evaluate("id => jupyterapp.shell.activateById(id)", notebook)
    site = lab.kernel_eval(f"print({TURNABLE})")
    lab.page.evaluate("() => jupyterapp.commands.execute('thunder-workbench:open-tab')")
    lab.page.locator(TAB).wait_for(state="visible")
    assert lab.page.locator(TAB).count() == 1
    places = boxes(lab)
    at = in_tab(lab, "position(given[0])", site)
    # Pointing at an arc shows a preview and makes no choice.
    lab.page.mouse.move(at["x"], at["y"])
    preview = lab.page.locator(f"{TAB} .wb-preview")
    lab.wait_until(lambda: "recompute for" in preview.inner_text() and "saved −" in preview.inner_text())
    assert "vs no choices" not in lab.page.locator(f"{TAB} .wb-strip").inner_text()
    assert boxes(lab) == places, "a preview moved parts of the app"
    lab.page.mouse.dblclick(at["x"], at["y"])
    lab.wait_until(lambda: "set to recompute" in lab.page.locator(f"{TAB} .wb-message").inner_text())
    lab.wait_until(lambda: style(lab, site) == 1)
    assert boxes(lab) == places, "a choice moved parts of the app"
    lab.screenshot("tab-light")

    # In the tab "Single choices", a click on a row selects the row's site, and the row's button makes the choice.
    open_tab(lab, "Single choices", TAB)
    row = lab.page.locator(f"{TAB} .wb-worth tbody tr").filter(has=lab.page.locator(".wb-good")).first
    row.wait_for(timeout=60_000)
    lab.wait_until(lambda: "to compute" not in lab.page.locator(f"{TAB} .wb-count").inner_text(), timeout_s=120)
    id, option = row.get_attribute("data-site"), row.get_attribute("data-option")
    row.click()
    lab.wait_until(lambda: in_tab(lab, "state().selected") == id)
    lab.screenshot("tab-worth")
    row.get_by_role("button", name="Choose").click()
    lab.wait_until(lambda: f"set to {option}" in lab.page.locator(f"{TAB} .wb-message").inner_text())

    # With keys, open the outline beside the graph, move in it, and make a choice. The graph selects the same statement.
    pane = lab.page.locator(f"{TAB} .wb-beside")
    assert pane.locator("[role=row]").filter(visible=True).count() == 0
    bar = pane.get_by_role("button", name="Outline")
    bar.focus()
    lab.page.keyboard.press("Enter")
    assert bar.get_attribute("aria-expanded") == "true"
    rows = pane.locator(".wb-can")
    rows.first.wait_for()
    rows.first.focus()
    lab.page.keyboard.press("ArrowDown")
    lab.page.keyboard.press("Enter")
    lab.wait_until(lambda: in_tab(lab, "state().selected") != id)
    assert pane.locator(".wb-tree").evaluate("tree => tree.scrollWidth <= tree.clientWidth"), "columns are cut"
    lab.screenshot("tab-outline-light")
    # Keys make the outline narrower, and the graph gets the freed space. The outline hides columns that do not fit.
    wide, room = box(lab, ".wb-beside")["width"], box(lab, ".wb-graph")["width"]
    pane.get_by_role("separator", name="Width of the outline").focus()
    for _ in range(3):
        lab.page.keyboard.press("ArrowLeft")
    lab.wait_until(lambda: box(lab, ".wb-beside")["width"] == wide - 72)
    assert box(lab, ".wb-graph")["width"] > room
    assert pane.locator(".wb-tree").evaluate("tree => tree.scrollWidth <= tree.clientWidth"), "columns are cut"
    pane.get_by_role("separator", name="Width of the outline").dblclick()
    lab.wait_until(lambda: box(lab, ".wb-beside")["width"] == wide)
    # With an open outline and a zoomed graph, the forward's and the backward's column are visible, also in a narrow
    # window.
    for width in (1440, 900, 700):
        lab.page.set_viewport_size({"width": width, "height": 900})
        lab.wait_until(lambda: in_tab(lab, "view.places.width") == in_tab(lab, "view.canvas.clientWidth"))
        in_tab(lab, "view.setZoom(1)")
        right = in_tab(lab, "view.places.columns().sides[1][1]")
        assert right <= in_tab(lab, "view.places.width"), f"the right column is cut at {width} pixels"
        lab.screenshot(f"tab-{width}")
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    message = lab.page.locator(f"{TAB} .wb-message")
    said = message.inner_text()
    pane.locator(".wb-act button").first.click()
    lab.wait_until(lambda: message.inner_text() != said and "set to" in message.inner_text())
    lab.page.locator(TAB).get_by_role("button", name="Undo").click()
    lab.wait_until(lambda: style(lab, site) == 1)

    # Move the bar between graph and inspector with keys. A tab that is opened later has the bar at the same position.
    wide = box(lab, ".wb-graph")["width"]
    lab.page.locator(f"{TAB} .wb-split-x").focus()
    for _ in range(3):
        lab.page.keyboard.press("ArrowLeft")
    assert box(lab, ".wb-graph")["width"] < wide - 40
    narrow = box(lab, ".wb-graph")["width"]
    lab.page.evaluate("() => jupyterapp.shell.currentWidget.close()")
    lab.page.wait_for_selector(TAB, state="detached")
    lab.page.evaluate("id => jupyterapp.shell.activateById(id)", notebook)
    assert lab.kernel_eval(f"print(bench.site({site!r}).choice)") == "recompute"
    show_cell(lab, 0)
    press(lab, "Open in a tab")
    lab.page.wait_for_selector(f"{TAB} .wb-graph canvas")
    lab.wait_until(lambda: abs(box(lab, ".wb-graph")["width"] - narrow) < 2)
    assert bar.get_attribute("aria-expanded") == "true", "the next tab forgot that the outline was open"
    rows.first.wait_for()
    lab.page.locator(f"{TAB} .wb-split-x").dblclick()
    lab.wait_until(lambda: abs(box(lab, ".wb-graph")["width"] - wide) < 2)

    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    lab.wait_until(lambda: in_tab(lab, "state().dark"))
    lab.page.wait_for_selector("#jupyterlab-splash", state="detached")
    lab.screenshot("tab-dark")
    # A reload of the page keeps the tab, which still makes choices.
    lab.page.evaluate("() => jupyterapp.commands.execute('docmanager:save-all')")
    lab.page.reload()
    lab.page.wait_for_selector(f"{TAB} .wb-graph canvas", timeout=60_000)
    lab.wait_until(lambda: in_tab(lab, "state().drawn_ms") > 0)
    assert lab.page.locator(TAB).count() == 1
    # After a reload, the cell does not draw its hidden graph.
    assert style(lab, site, TAB) == 1
    lab.page.locator(TAB).get_by_role("button", name="Undo").click()
    lab.wait_until(lambda: "Undid" in lab.page.locator(f"{TAB} .wb-message").inner_text())
    notebook = lab.page.evaluate("() => [...jupyterapp.shell.widgets('main')].find(each => each.sessionContext).id")
    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")
    assert not [line for line in lab.console if "uncaught" in line or "Could not" in line]
    ended = "id => [...jupyterapp.shell.widgets('main')].find(each => each.id === id).sessionContext.shutdown()"
    lab.page.evaluate(ended, notebook)
    lab.page.wait_for_selector(f"{TAB}.wb-kernel-gone")


MODEL_MISSING = """([tries]) => {
    const { rendermime } = jupyterapp.shell.currentWidget.content, make = rendermime.createRenderer;
    rendermime.createRenderer = function (type) {
        const made = make.call(this, type);
        if (tries-- > 0)
            made.renderModel = async () => {
                made.addClass("jupyter-widgets");
                made.node.textContent = "Error displaying widget: model not found";
            };
        return made;
    };
}"""
"""Let the next renderers of the notebook find no model, as those of ipywidgets after a reload on a busy machine."""


def test_the_tab_waits_for_an_app_that_the_page_has_not_read_from_the_kernel(lab: Lab) -> None:
    cells = ["import workbench as wb\nwb.open('mlp', layers=1, device='cpu', executor='torch').app()"]
    lab.write_notebook("tab.ipynb", cells)
    lab.open_notebook("tab.ipynb")
    lab.run_all()
    lab.page.wait_for_selector(".wb-controls[data-app]", timeout=240_000)
    lab.page.evaluate(MODEL_MISSING, [3])
    # The page cannot connect to the kernel again. It tries to show the app nevertheless.
    lab.page.evaluate(
        """() => {
          const { kernel } = jupyterapp.shell.currentWidget.sessionContext.session;
          kernel.reconnect = () => Promise.reject(new Error("no connection"));
        }"""
    )
    lab.page.evaluate("() => { void jupyterapp.commands.execute('thunder-workbench:open-tab'); }")
    lab.page.wait_for_selector(f"{TAB} .wb-graph canvas", timeout=60_000)
    assert "model not found" not in lab.page.locator(TAB).inner_text()


RUNS = """
import gc
from workbench.ui.controls.controls import Controls
controls = next(one for one in gc.get_objects() if isinstance(one, Controls))
stages = [{"name": f"stage {n}", "seconds": 1.0} for n in range(12)]
"""
"""Code to execute in the kernel. It finds the app's controls, so the test can show a run's states without a run."""


def test_the_graph_has_about_half_of_the_tab_and_nothing_moves(lab: Lab) -> None:
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    source = "import workbench as wb\nbench = wb.open('mlp', device='cpu')\nbench.show(tab=True)"
    lab.write_notebook("share.ipynb", [source])
    lab.open_notebook("share.ipynb")
    notebook = lab.page.evaluate("() => jupyterapp.shell.currentWidget.id")
    lab.run_all()
    lab.page.wait_for_selector(f"{TAB} .wb-graph canvas", timeout=240_000)
    lab.wait_until(lambda: in_tab(lab, "state().drawn_ms") > 0)
    # 1152×720 pixels are 125 % of 1440×900.
    for width, height, least in ((1152, 720, 0.45), (1280, 720, 0.45), (1440, 900, 0.55)):
        size = {"width": width, "height": height}
        lab.page.set_viewport_size(size)
        lab.wait_until(lambda: share_of_graph(lab) >= least, timeout_s=10)  # noqa: B023
        lab.screenshot(f"tab-share-{size['width']}")
        open_tab(lab, "Settings", TAB)
        last = box(lab, ".wb-place:not(.lm-mod-hidden) > .lm-TabBar li:last-child")
        assert last["x"] + last["width"] <= box(lab, ".wb-help-button")["x"], "the button of the help covers a tab"
    assert box(lab, ".wb-controls")["height"] <= 40
    assert box(lab, ".wb-strip")["height"] <= 64

    # Opening a tab below the graph, a message, and a run that begins and ends move no part of the app.
    places = boxes(lab)
    for name in (tab for tabs in PLACES.values() for tab in tabs):
        open_tab(lab, name, TAB)
        lab.page.wait_for_timeout(100)
        assert boxes(lab) == places, f"the tab {name} moved parts of the app"
    # A click on a figure opens its tab; for the peak, the user can type a limit at once.
    lab.page.locator(f"{TAB} [data-figure=peak]").click()
    lab.wait_until(
        lambda: lab.page.locator(f"{TAB} .wb-peak input[type=text]").evaluate("el => el === document.activeElement")
    )
    # A key opens the box of Export, and further keys select a target. In a field, the key is a letter.
    lab.page.keyboard.press("e")
    field = lab.page.locator(f"{TAB} .wb-peak input[type=text]")
    assert field.input_value() == "e"
    field.evaluate("el => el.blur()")
    lab.page.keyboard.press("e")
    exported = lab.page.locator(f"{TAB} .wb-export-box")
    for _ in range(2):
        lab.page.keyboard.press("ArrowLeft")
    assert exported.get_by_role("button", pressed=True).all_inner_texts() == ["Saved plan"]
    lab.page.keyboard.press("Enter")
    lab.wait_until(lambda: "Written to" in lab.page.locator(f"{TAB} .wb-status").inner_text())
    assert not exported.is_visible()
    assert boxes(lab) == places
    # The command palette has an entry for each tab. A top-level tab remembers which of its tabs was last open.
    for name, then in (("Fit", "Fit"), ("Memory", "Curve and peak"), ("Choices", "Fit"), ("Passes", "Passes")):
        lab.page.evaluate("name => jupyterapp.commands.execute('thunder-workbench:open-place', { name })", name)
        lab.wait_until(lambda: selected_tabs(lab)[-1] == then)  # noqa: B023
        assert boxes(lab) == places
    lab.page.locator(TAB).get_by_role("tab", name="Passes", exact=True).focus()
    lab.page.keyboard.press("ArrowRight")
    lab.page.keyboard.press("Enter")
    lab.wait_until(lambda: selected_tabs(lab) == ["Program", "Trace"])
    lab.page.evaluate("id => jupyterapp.shell.activateById(id)", notebook)
    lab.kernel_eval(RUNS)
    run = "run={{'state': '{0}', 'busy': {1}, 'text': '{0} ' * 30, 'stages': stages, 'elapsed_s': 3.0}}"
    for change, shown in (
        ("message={'text': 'a long message ' * 40, 'bad': True}", "a long message"),
        (run.format("compiling", True), "compiling"),
        (run.format("failed", False), "failed"),
        ("message=None, " + run.format("done", False), "done"),
    ):
        lab.kernel_eval(f"controls.update({change})")
        lab.page.evaluate("() => jupyterapp.commands.execute('thunder-workbench:open-tab')")
        lab.wait_until(lambda: shown in lab.page.locator(f"{TAB} .wb-status").inner_text())  # noqa: B023
        assert boxes(lab) == places, f"{shown!r} moved parts of the app"
        lab.page.evaluate("id => jupyterapp.shell.activateById(id)", notebook)
    lab.page.evaluate("() => jupyterapp.commands.execute('thunder-workbench:open-tab')")

    # Drag the bar between graph and tabs: it follows the pointer, and the graph may have a third or most of the height.
    bar = lab.page.locator(f"{TAB} .wb-split-y")
    for to in (380, 760):
        at = bar.bounding_box()
        lab.page.mouse.move(at["x"] + at["width"] / 2, at["y"] + 4)
        lab.page.mouse.down()
        lab.page.mouse.move(at["x"] + at["width"] / 2, to, steps=4)
        lab.page.mouse.up()
        assert abs(bar.bounding_box()["y"] + 4 - to) <= 2, "the bar does not follow the pointer"
        assert out_of_sight(lab, [".wb-graph", ".wb-status", ".widget-tab-contents"]) == []
    # A tab that is opened later has the bar at the same position.
    high = box(lab, ".wb-graph")["height"]
    lab.page.evaluate("() => jupyterapp.shell.currentWidget.close()")
    lab.page.wait_for_selector(TAB, state="detached")
    lab.page.evaluate("id => jupyterapp.shell.activateById(id)", notebook)
    show_cell(lab, 0)
    press(lab, "Open in a tab")
    lab.page.wait_for_selector(f"{TAB} .wb-graph canvas")
    lab.wait_until(lambda: abs(box(lab, ".wb-graph")["height"] - high) <= 1, timeout_s=10)
    bar.dblclick()
    lab.wait_until(lambda: boxes(lab) == places, timeout_s=10)

    # With keys, hide the inspector and the tabs. Each leaves a rail, and a tab that is opened later remembers this.
    lab.page.locator(f"{TAB} .wb-graph canvas").first.focus()
    lab.page.keyboard.press("i")
    lab.wait_until(lambda: box(lab, ".wb-inspector")["width"] <= 26, timeout_s=10)
    assert lab.page.locator(f"{TAB} .wb-inspector h3").filter(visible=True).count() == 0
    lab.page.keyboard.press("d")
    lab.wait_until(lambda: box(lab, ".wb-places")["height"] <= 26, timeout_s=10)
    assert share_of_graph(lab) > 0.7
    lab.screenshot("tab-folded")
    lab.page.evaluate("() => jupyterapp.shell.currentWidget.close()")
    lab.page.wait_for_selector(TAB, state="detached")
    press(lab, "Open in a tab")
    lab.page.wait_for_selector(f"{TAB} .wb-graph canvas")
    rail = lab.page.locator(f"{TAB} .wb-inspector").get_by_role("button", name="Inspector")
    lab.wait_until(lambda: rail.get_attribute("aria-expanded") == "false", timeout_s=10)
    assert box(lab, ".wb-inspector")["width"] <= 26
    # The rail shows the inspector again, and the title of a place shows the place.
    rail.click()
    assert rail.get_attribute("aria-expanded") == "true"
    lab.page.locator(TAB).get_by_role("tab", name="Memory", exact=True).click()
    lab.wait_until(lambda: boxes(lab) == places, timeout_s=10)
    # Enter on a bar hides the area after it, and an arrow key shows the area.
    bar.focus()
    bar.press("Enter")
    lab.wait_until(lambda: box(lab, ".wb-places")["height"] <= 26, timeout_s=10)
    bar.press("ArrowUp")
    lab.wait_until(lambda: boxes(lab) == places, timeout_s=10)


def selected_tabs(lab: Lab) -> list[str]:
    """Return the titles of the open top-level tab and of its open tab."""
    return lab.page.locator(TAB).get_by_role("tab", selected=True).filter(visible=True).all_inner_texts()


def share_of_graph(lab: Lab) -> float:
    """Return the share of the tab's height that the graph has."""
    tab = lab.page.locator(TAB).bounding_box()
    assert tab is not None
    return box(lab, ".wb-graph")["height"] / tab["height"]


def in_tab(lab: Lab, what: str, *given: object) -> object:
    """Evaluate an expression on the tab's graph view. The expression can use the list `given`. Return its value."""
    return lab.page.evaluate(f"given => document.querySelector('{TAB} .wb-graph').__workbench.{what}", list(given))


def style(lab: Lab, site: str, place: str = ".jp-Notebook") -> int:
    """Return the style of a site's arc in the graph of the cell, which the tab hides, or of `place`."""
    arcs = f"Array.from(document.querySelectorAll('{place} .wb-graph'), el => el.__workbench.state().arcs)[0]"
    return next(arc["style"] for arc in lab.page.evaluate(f"() => {arcs}") if arc["id"] == site)


def box(lab: Lab, part: str) -> dict[str, float]:
    """Return the position and size of a part of the tab, in pixels of the page."""
    found = lab.page.locator(f"{TAB} {part}").first.bounding_box()
    assert found is not None
    return dict(found)


def boxes(lab: Lab) -> list[dict[str, float]]:
    """Return the positions and sizes of the tab's parts and of each figure."""
    parts = [".wb-controls", ".wb-strip", ".wb-graph", ".wb-inspector", ".wb-status", ".wb-places", OPEN]
    # Read all boxes at once, because the strip may replace its figures between two calls.
    found: list[dict[str, float]] = lab.page.evaluate(
        """([parts, figures]) => {
            const found = [...parts.map(part => document.querySelector(part)), ...document.querySelectorAll(figures)];
            return found.map(one => one.getBoundingClientRect())
                .map(({ x, y, width, height }) => ({ x, y, width, height }));
        }""",
        [[f"{TAB} {part}" for part in parts], f"{TAB} .wb-figure"],
    )
    return found


def out_of_sight(lab: Lab, parts: list[str]) -> list[str]:
    """Return the parts that extend beyond the edges of the tab."""
    tab = lab.page.locator(TAB).bounding_box()
    assert tab is not None
    right, bottom = tab["x"] + tab["width"], tab["y"] + tab["height"]
    found = {part: box(lab, part) for part in parts}
    return [
        part
        for part, at in found.items()
        if at["x"] < tab["x"] or at["y"] < tab["y"] or at["x"] + at["width"] > right or at["y"] + at["height"] > bottom
    ]


@pytest.mark.long
def test_the_tab_of_a_program_in_parts_has_a_row_of_parts(lab: Lab) -> None:
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    source = (
        "import torch, workbench as wb\n"
        "def speaks(x, w):\n"
        "    y = torch.sin(x @ w)\n"
        "    print('half way')\n"
        "    return (y @ w).cos().sum()\n"
        "x, w = (torch.randn(8, 8, requires_grad=True) for _ in range(2))\n"
        "bench = wb.open(speaks, x, w, device='cpu')\n"
        "bench.show(tab=True)"
    )
    lab.write_notebook("parts.ipynb", [source, "print('all', 'ran')"])
    lab.open_notebook("parts.ipynb")
    lab.run_all()
    lab.page.wait_for_selector(f"{TAB} .wb-graph canvas", timeout=240_000)
    row = lab.page.locator(f"{TAB} .wb-parts")
    assert row.get_by_role("button").all_inner_texts() == ["part1", "part2"]
    assert lab.page.evaluate("() => jupyterapp.shell.currentWidget.title.label") == "speaks"
    shown = lab.page.locator(f"{TAB} .wb-controls .wb-program")
    lab.wait_until(lambda: "part1" in shown.inner_text())
    row.get_by_role("button", name="part2").click()
    lab.wait_until(lambda: shown.count() == 1 and "part2" in shown.inner_text())
    lab.wait_until(lambda: in_tab(lab, "state().drawn_ms") > 0)
    # The app of this part of the program is completely visible, below the row of buttons for parts.
    assert out_of_sight(lab, [".wb-controls", ".wb-strip", ".wb-graph", ".wb-inspector", ".widget-tab-contents"]) == []
    assert box(lab, ".wb-controls")["y"] >= row.bounding_box()["y"] + row.bounding_box()["height"]
    assert lab.page.locator(TAB).count() == 1
    lab.screenshot("tab-parts")
