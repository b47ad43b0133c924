"""`thunder-workbench`: the workbench on the command line, for people as tables and for programs as JSON.

Exit status: 0 done, 1 a run or a plan failed, 2 bad usage, 130 interrupted, 141 closed output pipe. Errors
are one line on standard error, or with ``--json`` an object with ``ok`` false and ``error`` on standard output.
"""

import sys
from collections.abc import Sequence
from typing import NoReturn

from workbench.cli import guard


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit with its status.

    Parameters
    ----------
    arguments : sequence of str, optional
        In place of those that the process was started with, and run in this process. By default a process of their own
        runs them, so that a program that crashes is reported as any other error is.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)

    def run() -> int:
        from workbench.cli import entry

        return entry.run(given)

    sys.exit(run() if arguments is not None else guard.run(run, as_json="--json" in given))
