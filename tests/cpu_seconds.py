"""Measure the CPU seconds of each test and its child processes. Elapsed time would depend on the machine's load."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> Iterator[int]:
    """Yield the ids of all running descendants of a process."""
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, listed.read_text().split()):
            yield child
            yield from descendants(child)


def used_s() -> float:
    """Return the CPU seconds of this process and all its descendants."""
    total_s = sum(os.times()[:4])
    try:
        for pid in descendants(os.getpid()):
            # Split the line after the process's name, which may contain spaces. Fields 14 to 17 are CPU times; see
            # proc(5).
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            total_s += sum(map(int, fields[11:15])) / _TICKS_PER_S
    except OSError:  # a process has ended, so its seconds now count for its parent: try again
        return used_s()
    return total_s


class Costs:
    """In each pytest process, this plugin measures the CPU seconds of the tests that run there.

    The main process prints the sums.

    Parameters
    ----------
    shown : int
        Maximum number of tests, and of files, in the summary.
    """

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._before_s = 0.0
        self.tests: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._before_s = used_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        # Read CPU seconds only at teardown, because a fixture may forbid opening files in other phases. For browser
        # tests, read CPU seconds in all phases, because the seconds of a tab are lost when the tab is closed.
        if call.when == "teardown" or item.get_closest_marker("browser"):
            now_s = used_s()
            report.cpu_s = max(now_s - self._before_s, 0.0)
            self._before_s = max(now_s, self._before_s)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid] += getattr(report, "cpu_s", 0.0)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        files: Counter[str] = Counter()
        for nodeid, seconds in self.tests.items():
            files[nodeid.partition("::")[0]] += seconds
        for what, seconds_of in (("tests", self.tests), ("files", files)):
            all_s = sum(seconds_of.values())
            terminalreporter.section(f"CPU seconds of the most expensive {what} (all {what}: {all_s:.0f} s)")
            for name, seconds in seconds_of.most_common(self._shown):
                terminalreporter.write_line(f"{seconds:8.1f} s  {name}")
