"""nvFuser plans and builds its definitions without a GPU; without its wheel there is nothing to test."""

import pytest

from workbench.core.executor import why_no_nvfuser


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of this folder are skipped where nvFuser cannot be had."""
    if reason := why_no_nvfuser():
        for item in items:
            if "tests/nvfuser/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason=reason))
