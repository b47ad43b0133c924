"""Numbers of examples for property tests: few in `make test`, more in `make long` and in CI, many in a search."""

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
"""``ci``, ``long`` or ``full``; see `tests/conftest.py`."""


def amount[T](few: T, more: T, many: T) -> T:
    """Return the number for the active Hypothesis profile."""
    return {"ci": few, "long": more, "full": many}[PROFILE]
