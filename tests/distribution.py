"""How processes share the tests: file by file, those in a browser together, and what takes longest first."""

from __future__ import annotations

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

BROWSER = "tests/browser/"


def unit(nodeid: str) -> str:
    """What one process runs as a whole, so that fixtures of a file are made once, and JupyterLab is started once."""
    return BROWSER if nodeid.startswith(BROWSER) else nodeid.partition("::")[0]


def slowest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests in an order in which no long file is begun when the other processes are about to end."""
    slow = {unit(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> int:
        its = unit(item.nodeid)
        return 0 if its == BROWSER else 1 if its in slow else 2

    return sorted(items, key=rank)


class ByUnit(LoadScopeScheduling):
    """Gives a process one unit after another, in the order in which the tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
