"""Skip a test if the environment lacks a package that the test needs."""

import contextlib
from collections.abc import Iterator

import pytest

from workbench.core.executor import why_no_nvfuser
from workbench.errors import WorkbenchError

needs_nvfuser = pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser() or "-")


@contextlib.contextmanager
def skip_without_nvfuser() -> Iterator[None]:
    """Skip the running test if the workbench refuses nvFuser because the environment has none.

    nvFuser has wheels for only one PyTorch. Most tests that use it have no mark `needs_nvfuser`.
    """
    try:
        yield
    except WorkbenchError as error:
        if (reason := why_no_nvfuser()) and f"executor 'nvfuser' cannot be used: {reason}" in str(error):
            pytest.skip(reason)
        raise
