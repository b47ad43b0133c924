"""Numbers of examples for property tests: few in `make test`, more in `make long` and in CI, many in a search."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
"""``ci``, ``long`` or ``full``; see `tests/conftest.py`."""


def amount[T](few: T, more: T, many: T) -> T:
    """Return the number for the active Hypothesis profile."""
    return {"ci": few, "long": more, "full": many}[PROFILE]


def beyond(count: int, cases: Iterable[Any], mark: pytest.MarkDecorator = pytest.mark.long) -> list[Any]:
    """Mark the cases after the first ones: `make test`, or `make quick`, leaves them to `make long` or `make test`."""
    each = list(cases)
    return [*each[:count], *(pytest.param(case, marks=mark) for case in each[count:])]
