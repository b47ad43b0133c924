"""Use the runs panel in a real JupyterLab: list and cancel the run of a busy kernel.

All windows of one browser share one long poll.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Request

from tests.browser.harness import Lab

pytestmark = pytest.mark.browser

START = """import workbench as wb
bench = wb.open('mlp', device='cpu', executor='torchcompile')
run = bench.run()
print('run', 'started')"""
BUSY = """import time
print('kernel', 'busy')
end = time.monotonic() + 600
while run.state != 'cancelled' and time.monotonic() < end:
    pass
print('it was', run.state)"""


@pytest.mark.long
def test_a_run_of_a_busy_kernel_is_listed_and_cancelled(lab: Lab) -> None:
    lab.page.set_viewport_size({"width": 1440, "height": 900})
    lab.write_notebook("busy.ipynb", [START, BUSY])
    lab.open_notebook("busy.ipynb")
    lab.page.evaluate("() => { void jupyterapp.commands.execute('thunder-workbench:show-runs'); }")
    lab.page.locator(".wb-runs").wait_for(state="visible")
    held: dict[Request, Page] = {}
    follow(lab.page, held)
    others = [window(lab, f"{lab.name}-{n}", held) for n in range(2)]
    lab.run_all()
    lab.wait_marker("kernel busy", timeout_s=240)

    live = lab.page.locator('.wb-run[data-state="running"]')
    live.wait_for(timeout=60_000)
    lab.wait_until(lambda: "(max " in live.inner_text(), timeout_s=60)
    assert "mlp" in live.inner_text()
    assert "mlp" in lab.page.locator(".wb-runs-status").inner_text()
    lab.screenshot("runs-live")
    for other in others:
        other.locator(".wb-runs-status").get_by_text("mlp").wait_for(timeout=20_000)
    live.get_by_role("button", name="Log").click()
    lab.page.locator(".wb-runs-log").get_by_text("environment").wait_for()

    live.get_by_role("button", name="Cancel").click()
    lab.page.locator('.wb-run[data-state="cancelled"]').first.wait_for(timeout=60_000)
    # The status bar is redrawn after the list of runs.
    status = lab.page.locator(".wb-runs-status")
    lab.wait_until(lambda: bool(re.fullmatch(r"(1 run|\d+ runs), none running", status.inner_text())), timeout_s=20)
    lab.page.get_by_role("tab", name="busy.ipynb").click()
    lab.wait_marker("it was cancelled", timeout_s=60)
    lab.screenshot("runs-cancelled")
    # A long poll occupies one of the browser's six connections to a server, so only one window polls for all.
    for other in others:
        other.locator(".wb-runs-status").get_by_text("none running").wait_for(timeout=20_000)
    lab.wait_until(lambda: len(set(held.values())) == 1, timeout_s=10)
    # When the window that polls is closed, another window polls.
    for other in others:
        other.close()
    lab.wait_until(lambda: set(held.values()) == {lab.page}, timeout_s=10)
    assert not [line for line in lab.console if "uncaught" in line]


def test_the_card_of_the_launcher_makes_a_notebook(lab: Lab) -> None:
    lab.page.goto(f"{lab.server.url}/lab/workspaces/{lab.name}?reset")
    lab.page.locator(".jp-LauncherCard", has_text="Thunder Workbench").first.click()
    lab.page.locator(".jp-Notebook").get_by_text("bench.show(tab=True)").first.wait_for(timeout=60_000)
    # The status bar shows a run's stage whole after a name of some words.
    status = lab.page.locator(".wb-runs-status")
    status.evaluate("el => { el.textContent = 'llama, 4 recomputed: Building the program'; }")
    assert status.evaluate("el => el.scrollWidth <= el.clientWidth")
    assert not [line for line in lab.console if "uncaught" in line]


def window(lab: Lab, workspace: str, held: dict[Request, Page]) -> Page:
    """Open another window of the browser with the same JupyterLab. Return its page."""
    page = lab.page.context.new_page()
    follow(page, held)
    page.goto(f"{lab.server.url}/lab/workspaces/{workspace}?reset")
    page.locator(".wb-runs-status").wait_for()
    return page


def follow(page: Page, held: dict[Request, Page]) -> None:
    """Keep the window's open long polls in `held`: add each when it is sent, and remove it when it ends."""

    def over(request: Request) -> None:
        held.pop(request, None)

    def asked(request: Request) -> None:
        if "thunder-workbench/runs?since=" in request.url and not request.url.endswith("since=0"):
            held[request] = page

    page.on("request", asked)
    page.on("requestfinished", over)
    page.on("requestfailed", over)
    page.on("close", lambda _: [over(request) for request in list(held) if held[request] is page])
