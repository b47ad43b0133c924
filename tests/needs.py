"""Marks that skip a test if the environment lacks a package that the test needs."""

import pytest

from workbench.core.executor import why_no_nvfuser

needs_nvfuser = pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser() or "-")
