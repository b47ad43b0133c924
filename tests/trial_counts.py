"""Numbers of examples for property tests: `make test` uses few, `make long` and CI more, a search many."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
"""``ci``, ``long`` or ``full``; see `tests/conftest.py`."""


def amount[T](few: T, more: T, many: T) -> T:
    """Return the number of examples for the active Hypothesis profile."""
    return {"ci": few, "long": more, "full": many}[PROFILE]


def beyond(count: int, cases: Iterable[Any], mark: pytest.MarkDecorator = pytest.mark.long) -> list[Any]:
    """Mark the cases after the first `count` ones with `mark`, so that only `make long`, or `make test`, runs them."""
    each = list(cases)
    return [*each[:count], *(pytest.param(case, marks=mark) for case in each[count:])]
