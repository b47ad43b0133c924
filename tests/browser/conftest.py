"""Fixtures for browser tests. `lab` is JupyterLab in a browser tab. All tests share one server and one browser."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, sync_playwright

from tests.browser.chromium import NoBrowserError, find_chromium
from tests.browser.harness import SCREENSHOTS, Lab, LabServer, launch_browser

HERE = Path(__file__).parent
FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder the mark `browser`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


# The scope is the package, because Playwright keeps an event loop in the main thread. For a whole session, this loop
# would disturb other tests.
@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Start Chromium with an empty profile. If no Chromium is found, skip the test, or fail it in CI."""
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
    """Start one JupyterLab for all browser tests. Its configuration, data and files are in new directories."""
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
    """Yield JupyterLab in a new tab, with a new folder. Fail the test if page, server or kernel used the network."""
    screenshots = Path(os.environ.get(SCREENSHOTS, tmp_path / "screenshots"))
    lab = Lab(lab_server, browser, request.node.name, screenshots)
    yield lab
    failed = request.node.stash.get(FAILED, False)
    if failed:
        where = lab.image(f"failed-{lab.name}")
        print(f"screenshot: {where}", "browser console:", *lab.console, sep="\n")
    asked = lab.asked_outside()
    lab.close()
    assert failed or not asked, f"requested addresses beyond this machine: {asked}"
