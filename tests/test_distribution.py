"""Browser tests start first, and the longest files after them, so that no process starts a long file last."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import distribution


def item(nodeid: str, *marks: str) -> pytest.Item:
    found: Any = SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: name in marks or None)
    return cast(pytest.Item, found)


def test_browser_tests_come_first_then_the_longest_files_then_slow_ones() -> None:
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


def test_the_parts_contain_each_test_once_and_whole_files() -> None:
    items = [item(f"tests/test_{file}.py::test_{at}") for file in "cabed" for at in range(3)]
    parts = [distribution.in_part(items, f"{at}/2") for at in (1, 2)]
    names = [[each.nodeid for each in inside] for inside, _ in parts]
    assert sorted(names[0] + names[1]) == sorted(each.nodeid for each in items)
    assert {name.partition("::")[0] for name in names[0]} == {f"tests/test_{file}.py" for file in "ace"}
    assert parts[0] == (parts[1][1], parts[1][0])


@pytest.mark.parametrize("part", ["0/4", "5/4", "2", "/", "a/b", "-1/4", "1/0"])
def test_an_invalid_part_is_refused(part: str) -> None:
    with pytest.raises(pytest.UsageError, match="K/N"):
        distribution.in_part([], part)


def test_the_files_listed_as_longest_exist() -> None:
    root = Path(__file__).parents[1]
    assert [name for name in distribution.LONGEST if not (root / name).is_file()] == []
