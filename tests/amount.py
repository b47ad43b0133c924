"""How much a test that draws tries: few in `make test`, more in `make long` and so in CI, and many in a search."""

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
"""``ci``, ``long`` or ``full``; see `tests/conftest.py`."""


def amount[T](few: T, more: T, many: T) -> T:
    """What the profile in force tries."""
    return {"ci": few, "long": more, "full": many}[PROFILE]
