"""Skip the tests of nvFuser if it is not installed. The tests need no GPU, because they only plan and replay."""

import pytest

from workbench.core.executor import why_no_nvfuser


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder if nvFuser is not installed."""
    if reason := why_no_nvfuser():
        for item in items:
            if "tests/nvfuser/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason=reason))
