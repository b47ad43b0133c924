"""Use the tabs Fit and Fusions in a real JupyterLab: click a point of the curve, state a peak, and weigh cuts."""

from __future__ import annotations

import pytest

from tests.browser.app import graph, open_program, open_tab
from tests.browser.harness import Lab

pytestmark = pytest.mark.browser

POINTS = """() => {
  const has = (view) => view.model.document?.get_model_by_name("points");
  const root = Object.values(Bokeh.index.roots ?? Bokeh.index).find(has);
  const { x, y } = root.model.document.get_model_by_name("points").data, box = root.el.getBoundingClientRect();
  return [...x].map((value, i) => ({
    x: box.x + root.frame.bbox.left + root.frame.x_scale.compute(value) - root.frame.bbox.left,
    y: box.y + root.frame.y_scale.compute([...y][i]), peak_bytes: value,
  }));
}"""
"""Script that returns the positions of the curve's points on the page."""

BRIGHTNESS = """selector => {
    const drawn = document.querySelector(selector), copy = document.createElement("canvas");
    Object.assign(copy, { width: drawn.width, height: drawn.height });
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(drawn, 0, 0);
    const { data } = context.getImageData(0, 0, copy.width, copy.height);
    return data.reduce((sum, value, i) => i % 4 < 3 ? sum + value : sum, 0) / (data.length * 3 / 4);
}"""


@pytest.mark.long
def test_clicking_a_point_and_stating_a_peak_apply_a_fit(lab: Lab) -> None:
    open_program(lab, "'mlp', device='cpu', layers=1")
    open_tab(lab, "Fit")
    lab.page.wait_for_selector(".wb-fit :text('is the least peak found')")
    lab.page.locator(".wb-fit").scroll_into_view_if_needed()
    points = lab.page.evaluate(POINTS)
    assert len(points) > 1
    lab.page.mouse.move(points[0]["x"], points[0]["y"])
    lab.page.wait_for_selector(".bk-Tooltip:visible")
    lab.screenshot("fit-hover")
    lab.page.mouse.click(points[0]["x"], points[0]["y"])
    lab.wait_until(lambda: lab.kernel_eval("print(bench.plan.peak_bytes)") == str(points[0]["peak_bytes"]))
    lab.page.wait_for_selector(".wb-fit table")
    assert lab.page.evaluate(POINTS) == points
    lab.screenshot("fit-point")
    lab.page.get_by_role("button", name="Compare levers", exact=True).click()
    lab.page.wait_for_selector(".wb-fit :text-matches('^(Curve|Searching for the least peak):')")
    lab.page.wait_for_selector(".wb-fit :text('is the least peak found')")
    lower = lab.page.evaluate(POINTS)
    assert lower[0]["peak_bytes"] < points[0]["peak_bytes"]
    lab.page.mouse.move(lower[0]["x"], lower[0]["y"])
    lab.page.wait_for_selector(".bk-Tooltip:visible")
    lab.screenshot("fit-each")
    lab.page.mouse.click(lower[0]["x"], lower[0]["y"])
    lab.wait_until(lambda: lab.kernel_eval("print(bench.plan.peak_bytes)") == str(lower[0]["peak_bytes"]))
    lab.page.get_by_label("Peak at most", exact=True).fill("1 GiB")
    lab.page.locator(".wb-peak").get_by_role("button", name="Fit", exact=True).click()
    lab.wait_until(lambda: lab.kernel_eval("print(bench.choices)") == "{}")
    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' })")
    lab.wait_until(lambda: graph(lab, "state().dark"))
    lab.wait_until(lambda: lab.page.evaluate(BRIGHTNESS, "canvas.wb-map") < 80)
    lab.page.wait_for_timeout(500)
    lab.screenshot("fit-dark")
    lab.page.evaluate("() => jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Light' })")


@pytest.mark.long
def test_cuts_are_weighed_and_cancelled(lab: Lab) -> None:
    open_program(lab, "'llama', device='planned', executor='nvfuser', layers=2")
    open_tab(lab, "Fusions")
    lab.page.get_by_role("button", name="Weigh other cuts").click()
    said = lab.page.locator(".wb-fusions [role=status]")
    lab.page.wait_for_selector(".wb-fusions :text('best so far: ')")
    said.scroll_into_view_if_needed()
    lab.screenshot("cuts-working")
    lab.page.get_by_role("button", name="Cancel weighing cuts").click()
    lab.page.wait_for_selector(".wb-fusions :text('Cancelled after')")
    assert lab.page.get_by_role("region", name="Cuts between fusions").is_visible()
    lab.screenshot("cuts-cancelled")
    lab.wait_until(lambda: lab.kernel_eval("print(bench.choices)") == "{}")
