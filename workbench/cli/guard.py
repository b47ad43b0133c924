"""Run the command in a child process, and report how the child ended, whatever happened.

The child is forked before anything large is imported, which takes a millisecond. Nothing less would be enough, because
a program may exit, abort or crash the process that loads it, during any command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from workbench.cli.statuses import FAILED, INTERRUPTED, UNREAD

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_PRESS_S = 0.5
"""A terminal interrupts both processes, and the parent forwards its signal; two signals within this time count as
one.
"""
_PR_SET_PDEATHSIG = 1


def run(work: Callable[[], int], *, as_json: bool) -> int:
    """Do the command's work in a child process.

    Parameters
    ----------
    work : callable
        It reports its own errors, and returns an exit status.
    as_json : bool
        Whether to print a JSON document if `work` ended without a report.

    Returns
    -------
    int
        Exit status of `work`. The function returns in both processes; the child then exits with this status.
    """
    open_missing_streams()
    parent = os.getpid()
    ended, says_how = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    child = os.fork()
    if not child:
        os.close(ended)
        _end_with(parent)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _Interrupt())
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            status = work()
        except KeyboardInterrupt:
            # The signal came while the child was starting or ending.
            status = INTERRUPTED
        _settle_streams()
        with contextlib.suppress(OSError):
            os.write(says_how, bytes([status & 0xFF]))
        return status
    os.close(says_how)
    received = _pass_on(child)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    _, how = os.waitpid(child, 0)
    reported = _reported_status(ended)
    if reported is not None:
        return reported
    return _notify(os.waitstatus_to_exitcode(how), received, as_json)


def open_missing_streams() -> None:
    """Open standard streams that are closed, so that no other file takes their place. Using them is still an error."""
    for descriptor, mode in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


class _Interrupt:
    """Handle Ctrl-C in the child, once for each press, although the parent may forward it."""

    def __init__(self) -> None:
        self._at_s = -_SAME_PRESS_S

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if now_s - self._at_s >= _SAME_PRESS_S:
            self._at_s = now_s
            signal.default_int_handler(signum, frame)


def _end_with(parent: int) -> None:
    """Make the child end when its parent is killed."""
    with contextlib.suppress(AttributeError, OSError):  # if the system has no such call, the child continues by itself
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(FAILED)


def _pass_on(child: int) -> list[int]:
    """Forward this process's signals to the child; return a list of them, which is filled later."""
    received: list[int] = []

    def handle(signum: int, _: FrameType | None) -> None:
        received.append(signum)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signum)

    for signum in _PASSED_ON:
        # Signals that are ignored from the start, as by nohup, stay ignored.
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, handle)
    return received


def _reported_status(descriptor: int) -> int | None:
    # The child's own children may hold the other end open, so read only the data that is there now.
    os.set_blocking(descriptor, False)
    try:
        status = os.read(descriptor, 1)
    except BlockingIOError:
        return None
    finally:
        os.close(descriptor)
    return status[0] if status else None


def _notify(code: int, received: list[int], as_json: bool) -> int:
    """Report how a child ended that could not report it itself; return the exit status."""
    from workbench.cli import output

    if -code == signal.SIGPIPE:
        return UNREAD
    if -code in (signal.SIGTERM, signal.SIGHUP) and -code in received:
        # End as if there had been no child.
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    with contextlib.suppress(output.OutputError):
        if -code == signal.SIGINT:
            output.report("interrupted", as_json)
            return INTERRUPTED
        output.report(f"the command did not complete: {_describe_end(code)}", as_json)
    return FAILED


def _describe_end(code: int) -> str:
    if code >= 0:
        return f"the program ended the process, with exit status {code}"
    try:
        name = f"{signal.Signals(-code).name} ({signal.strsignal(-code)})"
    except ValueError:
        name = f"signal {-code}"
    if -code == signal.SIGKILL:
        return f"it was killed by {name}, by hand or by the system when memory ran out"
    return f"the program crashed the process with {name}"


def _settle_streams() -> None:
    """Flush buffered output, and drop data that cannot be written, so that exiting raises no further error."""
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            with contextlib.suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
