"""Use a program on ranks in a real JupyterLab: drag bars, choose a machine, and find the best order."""

from __future__ import annotations

import pytest

from tests.browser.app import figure, graph, open_program, open_tab, press
from tests.browser.harness import Lab

pytestmark = pytest.mark.browser

PROGRAM = "'fsdp_llama', device='planned', executor='nvfuser', ranks=8"
GATHER = "waits:lm_head_weight>all_gather"
REDUCTION = "waits:transformer_wte_weight<reduce_scatter"


def drag_wait(lab: Lab, id: str, node: int) -> None:
    """Drag a collective's wait, which is the filled end of its bar, to the start of a node in the same column."""
    graph(lab, "view.fit()")
    bar = next(bar for bar in graph(lab, "state().bars") if bar["id"] == id)
    box = lab.page.locator(".wb-graph canvas").first.bounding_box()
    assert box is not None
    x, y = box["x"] + bar["x"], box["y"] + bar["wait"]
    assert graph(lab, "hit(given[0], given[1])", x, y) == f"{id}!wait"
    # Do not use `position`: it zooms and scrolls to the node, and so it would move the bar.
    edge = box["y"] + graph(lab, "view.places.locate(given[0])", node_id(lab, bar["side"], node))["y"]
    lab.page.mouse.move(x, y)
    lab.page.mouse.down()
    lab.page.mouse.move(x, edge, steps=5)
    lab.screenshot("dragging")
    lab.page.mouse.up()


def node_id(lab: Lab, side: int, node: int) -> str:
    """Return the id of a node by its index in a column, from the top. A negative index counts from the bottom."""
    place = f"view.places.scene.columns[{side}].at({node})"
    return graph(lab, f"state().ids.at(document.querySelector('.wb-graph').__workbench.{place})")


def choices(lab: Lab) -> str:
    return lab.kernel_eval("print(bench.choices)")


def said(lab: Lab, text: str) -> str:
    """Wait for a message of the app that contains `text`. Return the whole message."""
    message = lab.page.locator(".wb-message").filter(has_text=text)
    message.wait_for(timeout=60_000)
    return message.inner_text()


def cut_off(lab: Lab) -> list[str]:
    """Return controls and figures that overlap, or whose text is cut off."""
    return lab.page.evaluate(
        """() => {
            const shown = Array.from(document.querySelectorAll(
                ".wb-controls :is(button, label), .wb-message, .wb-value, .wb-check, .wb-effect > *"
            )).filter(el => el.offsetWidth);
            const boxes = shown.map(el => el.getBoundingClientRect());
            const over = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
                && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1;
            return shown.filter((el, i) => el.scrollWidth > el.clientWidth + 1 || el.offsetWidth < 12
                || !el.closest(".wb-inspector") && shown.some((other, j) => i !== j && !other.closest(".wb-inspector")
                    && !el.contains(other) && !other.contains(el)
                    && over(boxes[i], boxes[j]))).map(el => el.outerHTML.slice(0, 120));
        }"""
    )


@pytest.mark.long
def test_bars_are_dragged_a_machine_is_chosen_and_the_best_order_is_found(lab: Lab) -> None:
    open_program(lab, PROGRAM)

    # The gather's wait is at the top. It may move down to the statement that reads the gathered weight, near the end.
    drag_wait(lab, GATHER, 100)
    lab.wait_until(lambda: f"'{GATHER}!wait': 'at(" in choices(lab), 30)
    said(lab, "set to at(")
    placed = choices(lab)

    # The reduction may not move to a place before the statement that computes its gradient.
    drag_wait(lab, REDUCTION, -1)
    refusal = said(lab, "is refused")
    assert refusal.startswith(f"{REDUCTION}!wait: 'at(")
    maker = "transformer.wte/embedding<torch.ops.aten.embedding_backward"
    assert f"it needs the result of {maker}; the earliest position is at(end)" in refusal
    assert choices(lab) == placed
    lab.page.locator(".wb-inspector dl.wb-effect").first.wait_for()
    assert not cut_off(lab)
    lab.screenshot("refused")
    press(lab, "Undo")
    lab.wait_until(lambda: choices(lab) == "{}")

    ranks = lab.page.locator(".wb-ranks")
    # A narrow tile shows only the first word of its title.
    title = lab.page.locator("[data-figure=overlap]").first
    assert "simulated on H100" in str(title.get_attribute("aria-label"))
    ranks.get_by_role("combobox").select_option("PCIe box")
    said(lab, "now simulated on PCIe box")
    lab.wait_until(lambda: title.get_attribute("aria-label") == "Communication, simulated on PCIe box")
    assert "H100" not in figure(lab, "overlap")
    assert lab.kernel_eval("print(bench.machine.name)") == "PCIe box"

    ranks.get_by_role("textbox").fill("0.001")
    ranks.get_by_role("button").click()
    assert "the least of all orders" in said(lab, "no order has at most 1048 bytes in flight")
    ranks.get_by_role("textbox").fill("")
    ranks.get_by_role("button").click()
    assert "lower bound" in said(lab, "simulated on PCIe box: step ")
    assert "'waits.wait': 'late'" in choices(lab)
    assert not cut_off(lab)
    lab.screenshot("found")

    open_tab(lab, "Settings")
    # The program cannot run here, so the settings offer no measurements.
    assert lab.page.locator(".wb-setting .wb-reason", has_text="No GPU attached: plan only").count() == 1
    assert lab.page.get_by_role("checkbox", name="time against thunder").count() == 0
    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    lab.wait_until(lambda: graph(lab, "state().dark"))
    lab.page.wait_for_timeout(500)
    lab.screenshot("dark")
    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")
    lab.page.wait_for_selector("#jupyterlab-splash", state="detached")
    lab.page.set_viewport_size({"width": 900, "height": 1600})
    lab.page.wait_for_timeout(500)
    assert not cut_off(lab)
    lab.screenshot("narrow")

    press(lab, "Undo")
    lab.wait_until(lambda: choices(lab) == "{}")
