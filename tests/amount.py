"""How much a test that draws tries: few in `make test`, more in `make long` and so in CI, and many in a search."""

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci")
"""``ci``, ``long`` or ``full``; see `tests/conftest.py`."""


def amount(few: int, more: int, many: int) -> int:
    """The count for the profile in force."""
    return {"ci": few, "long": more, "full": many}[PROFILE]
