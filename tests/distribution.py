"""Distribute tests over processes and over runs.

A process gets whole files, long files first; one process gets all browser tests.
"""

from __future__ import annotations

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

BROWSER = "tests/browser/"

LONGEST = (
    "tests/test_installed.py",
    "tests/notebooks/test_stories.py",
    "tests/gpu_check/test_rehearsal.py",
    "tests/models/test_models.py",
    "tests/compiler/memory/test_fake_execution.py",
    "tests/levers/waits/test_gloo.py",
    "tests/runs/test_run_processes.py",
    "tests/test_threads.py",
    "tests/compiler/driver/test_capture_cache.py",
    "tests/compiler/frontend/test_training_step.py",
    "tests/compiler/layers/test_layers.py",
    "tests/bench/fit/test_cut_search.py",
    "tests/compiler/lowering/test_decompositions.py",
    "tests/test_process_state.py",
    "tests/levers/test_random_choices.py",
)
"""Files outside of `BROWSER` whose tests take the most CPU seconds, longest first. `--cpu=20` prints the seconds."""


def unit(nodeid: str) -> str:
    """Return the unit of a test: its file, or all browser tests.

    One process runs a whole unit, so that each module fixture runs only once, and JupyterLab starts only once.
    """
    return BROWSER if nodeid.startswith(BROWSER) else nodeid.partition("::")[0]


def slowest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in this order: browser tests, the longest files, other files with slow tests, all other files.

    Then no process starts a long file when the other processes have no tests left.
    """
    slow = {unit(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def rank(item: pytest.Item) -> int:
        its = unit(item.nodeid)
        if its == BROWSER:
            return 0
        if its in LONGEST:
            return 1 + LONGEST.index(its)
        return 1 + len(LONGEST) + (its not in slow)

    return sorted(items, key=rank)


def in_part(items: list[pytest.Item], part: str) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests of a part of all files, and the other tests.

    Parameters
    ----------
    items : list of pytest.Item
    part : str
        ``K/N``: each N-th of the sorted files, from the K-th file on. The N parts together contain each test once.
    """
    which, _, parts = part.partition("/")
    if not (which.isdecimal() and parts.isdecimal() and 1 <= int(which) <= int(parts)):
        raise pytest.UsageError(f"--part {part}: give K/N with 1 <= K <= N, such as 2/4")
    files = sorted({item.nodeid.partition("::")[0] for item in items})
    chosen = set(files[int(which) - 1 :: int(parts)])
    inside = [item for item in items if item.nodeid.partition("::")[0] in chosen]
    return inside, [item for item in items if item.nodeid.partition("::")[0] not in chosen]


class ByUnit(LoadScopeScheduling):
    """A scheduler for pytest-xdist. Each free process gets the next unit, in the order of collection.

    This order requires the option ``--no-loadscope-reorder``.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
