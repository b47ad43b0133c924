"""Part `tests`: run the tests of the test suite that are marked `gpu`, one by one."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import workbench
from workbench.errors import RunError
from workbench.gpu_check.parts.check_part import WRONG, CheckStep, Conditions, Figures, Known
from workbench.runs.log import untrusted_files

_ROOT = Path(workbench.__file__).parents[1]
_COLLECTED = 5
"""Exit status of pytest if no test was selected."""


def steps(conditions: Conditions) -> Iterator[CheckStep]:
    """Yield a step that lists the tests, and a step for each test. A rehearsal only lists them.

    If the package is installed without its tests, the only step says so.
    """
    if not (_ROOT / "tests").is_dir():
        yield CheckStep(
            "tests", lambda _: {"tests": None, "reason": "the tests are not installed; use a checkout"}, first=True
        )
        return
    names = collect_tests()
    yield CheckStep("collected", lambda _: {"tests": names}, first=True)
    if not conditions.rehearse:
        for name in names:
            yield CheckStep(name, functools.partial(_test, name), first=True)


def collect_tests() -> list[str]:
    """Return the ids of the tests that need a GPU.

    Raises
    ------
    RunError
        If pytest cannot collect them.
    """
    marked = _marked_files()
    if not marked:
        return []
    done = _pytest("--collect-only", "-q", "-m", "gpu", *marked)
    if done.returncode not in (0, _COLLECTED):
        raise RunError(
            f"the tests cannot be collected: {untrusted_files.one_line(done.stdout[-2000:] + done.stderr[-2000:])}"
        )
    return [line.strip() for line in done.stdout.splitlines() if "::" in line]


def _marked_files() -> list[str]:
    found = (path for path in sorted((_ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in path.read_text())
    return [str(path.relative_to(_ROOT)) for path in found]


def run_all() -> Figures:
    """Run all tests that need a GPU in one process.

    Raises
    ------
    RunError
        Without a checkout, or if no test needs a GPU.
    """
    names = _marked_files() if (_ROOT / "tests").is_dir() else []
    if not names:
        raise RunError("no test marked gpu is installed; use a checkout")
    return _outcome("-m", "gpu", *names)


def _test(name: str, _: Known) -> Figures:
    return _outcome(name)


def _outcome(*selected: str) -> Figures:
    done = _pytest("-q", "-rN", "--no-header", "--tb=short", *selected)
    last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "")
    passed = done.returncode == 0 and "passed" in last
    return {"outcome": last, **({} if passed else {WRONG: untrusted_files.one_line(done.stdout[-1500:])})}


def _pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
