"""Run the JavaScript tests of the page's modules in Node. `make extensions` checks the types of the modules."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MODULES = Path(__file__).parents[2] / "modules"
LEAST_MAJOR = 20
"""Oldest major version of Node that has a test runner and the array methods of the tests."""


@pytest.mark.slow
def test_the_modules_of_the_page_pass_their_node_tests() -> None:
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout if node else ""
    if not version or int(version.lstrip("v").partition(".")[0]) < LEAST_MAJOR:
        pytest.skip(f"Node {LEAST_MAJOR} or later is not installed")
    files = sorted(str(path) for path in MODULES.glob("*.test.mjs"))
    assert len(files) >= 3
    done = subprocess.run([str(node), "--test", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
