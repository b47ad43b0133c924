"""The commands together, and `main`: a command line run, its exit status, and errors as one line or one document."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from workbench.cli.about import doctor, lab, programs
from workbench.cli.compare import compare
from workbench.cli.options import BAD_USAGE, DONE, FAILED, INTERRUPTED
from workbench.cli.output import only_json, report, short_warnings
from workbench.cli.plan import plan
from workbench.cli.run import run
from workbench.cli.sweep import sweep
from workbench.errors import PlanError, RunError, UnknownRunError, WorkbenchError

app = typer.Typer(
    name="thunder-workbench",
    help="See what Thunder makes of a PyTorch program, change what the compiler decides, run it.",
    epilog="PROGRAM is a built-in name or file.py:factory. Exit status: 0 done, 1 the run failed, 2 bad usage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (doctor, programs, plan, run, compare, sweep):
    app.command()(command)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(lab)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    status: int
    with short_warnings(), only_json() if as_json else contextlib.nullcontext():
        try:
            status = app(given, standalone_mode=False) or DONE
        except WorkbenchError as error:
            # A plan that would be wrong, or a run that cannot be started, is no mistake in what was typed.
            failed = isinstance(error, PlanError | RunError) and not isinstance(error, UnknownRunError)
            status = FAILED if failed else BAD_USAGE
            report(str(error), as_json)
        except typer.TyperException as error:
            status = error.exit_code
            # Without a command the help was printed, and there is nothing to add.
            if given:
                report(error.format_message(), as_json)
        except (typer.Abort, KeyboardInterrupt):
            status = INTERRUPTED
            report("interrupted", as_json)
    sys.exit(status)
