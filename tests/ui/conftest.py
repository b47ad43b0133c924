"""A fixture with a browser page for tests without JupyterLab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.browser.chromium import find_chromium


# The scope is the module, because Playwright keeps an event loop in the main thread. For a whole session, this loop
# would disturb other tests.
@pytest.fixture(scope="module")
def blank() -> Iterator[Page]:
    """Yield one page for all tests of a module."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        yield browser.new_page(viewport={"width": 900, "height": 720})
        browser.close()
