"""Marks of tests that need something that not every environment has."""

import pytest

from workbench.core.executor import why_no_nvfuser

needs_nvfuser = pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser() or "-")
