"""Distribution of tests over processes: one process runs a whole file, one runs all browser tests, long files first."""

from __future__ import annotations

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

BROWSER = "tests/browser/"

LONGEST = (
    "tests/notebooks/test_stories.py",
    "tests/gpu_check/test_rehearsal.py",
    "tests/waits/test_gloo.py",
    "tests/models/test_models.py",
    "tests/compiler/layers/test_layers.py",
    "tests/levers/test_random_choices.py",
    "tests/runs/test_run_processes.py",
    "tests/levers/test_order.py",
    "tests/waits/test_dynamo_capture.py",
    "tests/compiler/driver/test_capture_cache.py",
    "tests/compiler/frontend/test_training_step.py",
    "tests/compiler/lowering/test_decompositions.py",
    "tests/compiler/memory/test_fake_execution.py",
    "tests/examples/test_examples.py",
)
"""Files whose tests take minutes, the longest first. `--cpu=20` shows the times."""


def unit(nodeid: str) -> str:
    """Return the unit of a test. One process runs a unit, so that module fixtures and JupyterLab are made only once."""
    return BROWSER if nodeid.startswith(BROWSER) else nodeid.partition("::")[0]


def slowest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort the tests so that no process begins a long file when other processes have nearly finished."""
    slow = {unit(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> int:
        its = unit(item.nodeid)
        if its == BROWSER:
            return 0
        if its in LONGEST:
            return 1 + LONGEST.index(its)
        return 1 + len(LONGEST) + (its not in slow)

    return sorted(items, key=rank)


class ByUnit(LoadScopeScheduling):
    """A scheduler that gives a process one unit after another, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
