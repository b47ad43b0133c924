"""Numbers of examples and cases of tests: few for `make test`, more for `make long`, many for the profile `full`."""

import itertools
import os
from collections.abc import Iterable
from typing import Any

import pytest

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
"""Name of the active Hypothesis profile: ``ci``, ``long`` or ``full``; see `tests/conftest.py`."""


def amount[T](few: T, more: T, many: T) -> T:
    """Return the number of examples for the active Hypothesis profile."""
    return {"ci": few, "long": more, "full": many}[PROFILE]


def beyond(
    count: int, cases: Iterable[Any], mark: pytest.MarkDecorator = pytest.mark.long, *, rows: bool = False
) -> list[Any]:
    """Return the cases, all marked except the first `count`. With the default mark, only `make long` runs marked cases.

    With `rows`, a case is a tuple of values for several arguments.
    """
    each = list(cases)
    return [*each[:count], *(pytest.param(*(case if rows else (case,)), marks=mark) for case in each[count:])]


def combined(*values: Iterable[Any], few: int | None = None, quick: int | None = None) -> list[Any]:
    """Return all combinations of the values of several arguments, most of them with a mark for `make long`.

    `make test` runs as many combinations as the argument with the most values has values. They contain each value of
    each argument, and many of the pairs of values of two arguments.

    Parameters
    ----------
    few : int, optional
        Number of combinations for `make test`, if fewer are enough.
    quick : int, optional
        Number of combinations for `make quick`. If None, the test's own marks decide.
    """
    each = [list(argument) for argument in values]
    kept = [
        tuple((row + row // len(of) * place) % len(of) for place, of in enumerate(each))
        for row in range(few or max(map(len, each)))
    ]
    cases = []
    for at in (*kept, *(other for other in itertools.product(*map(range, map(len, each))) if other not in kept)):
        marks = [pytest.mark.slow] * (quick is not None and len(cases) >= quick)
        if len(cases) >= len(kept):
            marks = [pytest.mark.slow, pytest.mark.long]
        cases.append(pytest.param(*(of[index] for of, index in zip(each, at, strict=True)), marks=marks))
    return cases
