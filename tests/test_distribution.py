"""How processes share the tests: the browser's first, then the longest files, and none is begun last."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import distribution


def item(nodeid: str, *marks: str) -> pytest.Item:
    found: Any = SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: name in marks or None)
    return cast(pytest.Item, found)


def test_the_browser_then_the_longest_then_what_is_slow() -> None:
    first, second, *_ = distribution.LONGEST
    items = [
        item("tests/test_quick.py::test_a"),
        item("tests/test_slow.py::test_a"),
        item("tests/test_slow.py::test_b", "slow"),
        item(f"{second}::test_a", "slow"),
        item("tests/browser/test_app.py::test_a", "browser"),
        item(f"{first}::test_a"),
    ]
    assert [each.nodeid.partition("::")[0] for each in distribution.slowest_first(items)] == [
        "tests/browser/test_app.py",
        first,
        second,
        "tests/test_slow.py",
        "tests/test_slow.py",
        "tests/test_quick.py",
    ]


def test_the_longest_files_are_there() -> None:
    root = Path(__file__).parents[1]
    assert [name for name in distribution.LONGEST if not (root / name).is_file()] == []
