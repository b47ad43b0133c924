"""After hundreds of choices, undos and plans, kernel and page have not leaked memory, and the last plan is right."""

from __future__ import annotations

import json
import random

import pytest

from tests.browser.app import TALL, graph, open_tab, show_cell
from tests.browser.harness import Lab

pytestmark = [pytest.mark.browser, pytest.mark.long]

TABS = ("Single choices", "Outline", "Fusions", "Passes", "Sites", "Settings", "Trace", "Curve and peak")
ACTIONS_PER_TAB = 20
WARM_UP, ACTIONS = ACTIONS_PER_TAB * len(TABS), 500
MOST_GROWTH = 1.05
OPEN = "import workbench as wb\nbench = wb.open('mlp', device='cpu', layers=2)\nbench"
SETTLED = """() => !document.querySelector(".wb-older")
    && !document.querySelector(".wb-graph").__workbench.state().arcs.some(arc => arc.asked !== null)"""
DEFAULTS = "bench.choose({s.id: s.default for s in bench.sites() if s.id in bench.choices}); None"
KERNEL_BYTES = """
import ctypes, gc, os
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
with open("/proc/self/statm") as file:
    print(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
"""
EQUAL = """
fresh = wb.open('mlp', device='cpu', layers=2, config=bench.config)
print(
    fresh.choices == bench.choices,
    fresh.plan.text() == bench.plan.text(),
    fresh.plan.peak_bytes == bench.plan.peak_bytes,
    fresh.plan.saved_bytes == bench.plan.saved_bytes,
)
"""


def test_hundreds_of_choices_leak_nothing_and_end_in_the_plan_of_a_fresh_bench(lab: Lab) -> None:
    lab.page.set_viewport_size(TALL)
    lab.write_notebook("soak.ipynb", [OPEN, "print('all', 'ran')"])
    lab.open_notebook("soak.ipynb")
    lab.run_all()
    lab.wait_marker("all ran", timeout_s=240)
    show_cell(lab, 0)
    draw = random.Random(0)
    settings = json.loads(
        lab.kernel_eval(
            "import json; print(json.dumps({s.id: [o for o in s.options if o not in s.illegal] for s in bench.sites() "
            "if s.id in ('saved.inputs', 'saved.stage', 'order.statements')}))"
        )
    )

    for number in range(WARM_UP):
        act(lab, draw, settings, number)
    before = measured(lab)
    for number in range(ACTIONS):
        act(lab, draw, settings, number)
    after = measured(lab)

    said = [f"{then / 2**20:.1f} → {now / 2**20:.1f} MiB" for then, now in zip(before, after, strict=True)]
    print(f"{ACTIONS} actions: kernel {said[0]}, page {said[1]}")
    assert after[0] < MOST_GROWTH * before[0], f"the kernel grew: {said[0]}"
    assert after[1] < MOST_GROWTH * before[1], f"the page grew: {said[1]}"
    assert lab.kernel_eval(EQUAL, timeout_s=240) == "True True True True"
    assert not [line for line in lab.console if "uncaught" in line]


def act(lab: Lab, draw: random.Random, settings: dict[str, list[str]], number: int) -> None:
    """Do one random action of a user, and wait until the page shows its plan."""
    kind = draw.random()
    if kind < 0.6:
        turnable = [arc["id"] for arc in graph(lab, "state().arcs") if arc["label"]]
        graph(lab, "view.turn(given[0])", draw.choice(turnable))
    elif kind < 0.9:
        button = lab.page.locator(".wb-controls").get_by_role("button", name="Undo" if kind < 0.8 else "Redo")
        button.evaluate("button => button.click()")  # if the button is disabled, this does nothing
    else:
        id = draw.choice(sorted(settings))
        # If the current choices do not allow the option, the bench refuses it and changes nothing.
        lab.kernel_eval(
            f"try:\n    bench.choose({{{id!r}: {draw.choice(settings[id])!r}}})\nexcept wb.ChoiceError:\n    pass"
        )
    if number % ACTIONS_PER_TAB == 0:
        open_tab(lab, TABS[number // ACTIONS_PER_TAB % len(TABS)])
    settle(lab)


def settle(lab: Lab) -> None:
    """Wait until the page shows the plan of the current choices."""
    lab.page.wait_for_timeout(30)
    lab.wait_until(lambda: bool(lab.page.evaluate(SETTLED)))


def measured(lab: Lab) -> tuple[int, int]:
    """Choose the default options and open *Memory*. Return the bytes of the kernel and of the page then."""
    lab.kernel_eval(DEFAULTS)
    open_tab(lab, "Memory")
    settle(lab)
    return kernel_bytes(lab), page_bytes(lab)


def kernel_bytes(lab: Lab) -> int:
    """Return the bytes of the kernel's process after a garbage collection."""
    return int(lab.kernel_eval(KERNEL_BYTES))


def page_bytes(lab: Lab) -> int:
    """Return the bytes of the page's JavaScript objects after a garbage collection."""
    tools = lab.page.context.new_cdp_session(lab.page)
    tools.send("HeapProfiler.enable")
    tools.send("HeapProfiler.collectGarbage")
    tools.send("Performance.enable")
    metrics = {one["name"]: one["value"] for one in tools.send("Performance.getMetrics")["metrics"]}
    tools.detach()
    return int(metrics["JSHeapUsedSize"])
