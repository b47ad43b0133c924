"""Run the command in a child process, and report how the child ended, even if it crashed.

A child process is necessary, because a program may exit, abort or crash the process that loads it. The child is forked
before large packages are imported, so that the fork takes only a millisecond.
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
"""Time within which two signals count as one press of Ctrl-C. The child gets two signals for a press: the terminal
signals both processes, and the parent forwards its own signal.
"""
_PR_SET_PDEATHSIG = 1


def run(work: Callable[[], int], *, as_json: bool) -> int:
    """Do the command's work in a child process.

    Parameters
    ----------
    work : callable
        Executes the command, reports its errors, and returns an exit status.
    as_json : bool
        Whether to print a JSON document if the child ends without a report.

    Returns
    -------
    int
        Exit status of `work`, or of the reported error if the child ended without a status. The function returns in
        both processes, and the caller exits with this status.
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
    """Open closed standard streams, so that no other file gets their descriptors. Using them is still an error."""
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
    """Handler of Ctrl-C in the child. It raises one `KeyboardInterrupt` for each press, even if two signals arrive."""

    def __init__(self) -> None:
        self._at_s = -_SAME_PRESS_S

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if now_s - self._at_s >= _SAME_PRESS_S:
            self._at_s = now_s
            signal.default_int_handler(signum, frame)


def _end_with(parent: int) -> None:
    """Make the child end when its parent is killed."""
    with contextlib.suppress(AttributeError, OSError):  # without this system call, the child outlives its parent
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(FAILED)


def _pass_on(child: int) -> list[int]:
    """Forward this process's signals to the child. Return a list, to which the handler adds each forwarded signal."""
    received: list[int] = []

    def handle(signum: int, _: FrameType | None) -> None:
        received.append(signum)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signum)

    for signum in _PASSED_ON:
        # A signal that was ignored from the start, for example by nohup, stays ignored.
        if signal.getsignal(signum) is not signal.SIG_IGN:
            signal.signal(signum, handle)
    return received


def _reported_status(descriptor: int) -> int | None:
    # The child's own children may keep the other end open, so read without waiting for more data.
    os.set_blocking(descriptor, False)
    try:
        status = os.read(descriptor, 1)
    except BlockingIOError:
        return None
    finally:
        os.close(descriptor)
    return status[0] if status else None


def _notify(code: int, received: list[int], as_json: bool) -> int:
    """Report the end of a child that did not report its end itself; return the exit status."""
    from workbench.cli import output

    if -code == signal.SIGPIPE:
        return UNREAD
    if -code in (signal.SIGTERM, signal.SIGHUP) and -code in received:
        # End by the same signal, as this process would have done without a child.
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
    """Flush buffered output, and drop data that cannot be written, so that the exit causes no further error."""
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            with contextlib.suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
