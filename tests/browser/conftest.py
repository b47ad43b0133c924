"""Fixtures for browser tests: `lab` is JupyterLab in a tab. All tests here share one server and one browser."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, sync_playwright

from tests.browser.chromium import NoBrowserError, find_chromium
from tests.browser.harness import Lab, LabServer, launch_browser

HERE = Path(__file__).parent
FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


# The scope is the package, not the session: Playwright keeps an event loop in the main thread, which disturbs other
# tests.
@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Start Chromium with an empty profile. Without a Chromium the test is skipped; in CI it fails."""
    try:
        find_chromium()
    except NoBrowserError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    with sync_playwright() as playwright:
        context = launch_browser(playwright, tmp_path_factory.mktemp("chromium"))
        yield context
        context.close()


@pytest.fixture(scope="package")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """Start one JupyterLab, with directories of its own, for all browser tests."""
    server = LabServer(tmp_path_factory.mktemp("jupyterlab"))
    yield server
    server.stop()


@pytest.fixture
def lab(
    request: pytest.FixtureRequest,
    browser: BrowserContext,
    lab_server: LabServer,
    tmp_path: Path,
) -> Iterator[Lab]:
    """Give JupyterLab in a new tab with a new folder. The test fails if anything tried to reach the network."""
    screenshots = Path(os.environ.get("WORKBENCH_SCREENSHOTS", tmp_path / "screenshots"))
    lab = Lab(lab_server, browser, request.node.name, screenshots)
    yield lab
    failed = request.node.stash.get(FAILED, False)
    if failed:
        where = lab.screenshot(f"failed-{lab.name}")
        print(f"screenshot: {where}", "browser console:", *lab.console, sep="\n")
    asked = lab.asked_outside()
    lab.close()
    assert failed or not asked, f"requested addresses beyond this machine: {asked}"
