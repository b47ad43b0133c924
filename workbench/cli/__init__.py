"""`thunder-workbench`: the workbench on the command line, with tables for users and JSON for programs.

Exit status: 0 done, 1 a run, a plan or a check failed, 2 bad usage, 130 interrupted, 141 closed output pipe. An
error is one line on standard error. With ``--json``, it is a JSON object on standard output: ``ok`` is false, and
``error`` has the message.
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
        Arguments to use in place of the process's own. The command then runs in this process. By default, a child
        process runs the command, so that the crash of a program is reported like any other error.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)

    def run() -> int:
        from workbench.cli import entry

        return entry.run(given)

    sys.exit(run() if arguments is not None else guard.run(run, as_json="--json" in given))
