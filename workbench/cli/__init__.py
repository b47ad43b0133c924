"""`thunder-workbench`: the workbench on the command line, for people as tables and for programs as JSON.

Exit status: 0 done, 1 a run failed, 2 bad usage. Errors are one line on standard error, or with ``--json`` an object
with ``ok`` false and ``error`` on standard output.
"""

from workbench.cli.entry import main

__all__ = ["main"]
