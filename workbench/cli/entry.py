"""All commands, and `run`, which executes a command line, reports errors, and returns the exit status."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Sequence

import typer

from workbench.cli import output
from workbench.cli.about import doctor, lab, programs
from workbench.cli.cache import cache
from workbench.cli.check import check
from workbench.cli.compare import compare
from workbench.cli.cuts import cuts
from workbench.cli.fit import fit
from workbench.cli.gpu_check import gpu_check
from workbench.cli.plan import plan
from workbench.cli.report import report
from workbench.cli.run import run as run_program
from workbench.cli.statuses import BAD_USAGE, DONE, FAILED, INTERRUPTED, UNREAD
from workbench.cli.sweep import sweep
from workbench.errors import DefectError, PlanError, RunError, UnknownRunError, WorkbenchError

NAME = "thunder-workbench"
TRACEBACK_VARIABLE = "WORKBENCH_TRACEBACK"
"""Environment variable that makes a defect's complete traceback visible."""

app = typer.Typer(
    name=NAME,
    help="Show how Thunder compiles a PyTorch program, change the compiler's decisions, run the program.",
    epilog="PROGRAM is a built-in name or file.py:factory. Exit status: 0 done, 1 a run, a plan or a check failed, "
    "2 bad usage, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in (
    ("doctor", doctor),
    ("programs", programs),
    ("plan", plan),
    ("check", check),
    ("fit", fit),
    ("cuts", cuts),
    ("run", run_program),
    ("compare", compare),
    ("sweep", sweep),
    ("report", report),
    ("gpu-check", gpu_check),
    ("cache", cache),
):
    app.command(name)(command)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(lab)


def run(arguments: Sequence[str]) -> int:
    """Run a command line, report errors, and return the exit status."""
    as_json = "--json" in arguments
    with output.short_warnings(), output.own_output(as_json):
        try:
            status = _run_reported(list(arguments), as_json)
            output.flush()
        except output.OutputError as error:
            if error.unread:
                return UNREAD
            output.complain(str(error))
            return FAILED
        return status


def _run_reported(arguments: list[str], as_json: bool) -> int:
    try:
        return _invoke(arguments)
    except output.OutputError:
        raise
    except WorkbenchError as error:
        output.report(error.on_command_line(), as_json)
        # A wrong plan, or a run that cannot be started, is a failure, but not an error in the command line.
        failed = isinstance(error, PlanError | RunError) and not isinstance(error, UnknownRunError)
        return FAILED if failed else BAD_USAGE
    except typer.TyperException as error:
        # Without arguments, typer has printed the help, so no error is reported.
        if arguments:
            output.report(error.format_message(), as_json)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort) as error:
        output.report(f"interrupted: {error}" if str(error) else "interrupted", as_json)
        return INTERRUPTED
    except BaseException as error:  # noqa: BLE001  # a program gets a document whatever happens
        # Rich and Typer print the help themselves. A closed pipe then causes a `BrokenPipeError`, not an `OutputError`.
        if BrokenPipeError in (type(error), type(error.__context__)):
            return UNREAD
        output.flush()
        output.report(_defect(error), as_json)
        return FAILED


def _invoke(arguments: list[str]) -> int:
    """Parse and run a command line, without typer's `main`, which handles Ctrl-C and a broken pipe differently."""
    try:
        command = _command()
        # Copy the list, because parsing removes arguments from it and the caller still needs them.
        with command.make_context(NAME, list(arguments)) as context:
            return int(command.invoke(context) or DONE)
    except typer.Exit as stop:
        return stop.exit_code


@functools.cache
def _command() -> typer.core.TyperGroup:
    """Return all commands with their options. The result is cached, because making it takes noticeable time."""
    return typer.main.get_group(app)


def _defect(error: BaseException) -> str:
    if os.environ.get(TRACEBACK_VARIABLE):
        output.complain("".join(traceback.format_exception(error)))
    return f"{DefectError.of(error)}; {TRACEBACK_VARIABLE}=1 prints the whole traceback"
