"""Errors that a user can cause, each with one message: the input, the legal values, the next step."""

from __future__ import annotations

import difflib
import os
import reprlib
import traceback
from typing import Any, NamedTuple

_SHOWN = 200
"""Number of characters of a value that a message shows."""
_COMPARED = 200
"""Longest unknown name that is compared with existing names; no existing name is longer, and comparing takes time.
"""


class Advice(NamedTuple):
    """Next steps for the user, in the syntax of the front end that shows them."""

    python: str
    command_line: str
    app: str = ""
    """If empty, the app shows the advice for Python."""


class WorkbenchError(Exception):
    """Base of all errors that the workbench raises on purpose.

    The message quotes the input. Messages reach terminals, so characters that cannot be printed are shown escaped.

    Parameters
    ----------
    message : str
    advice : Advice, optional
        The next step, if it differs between Python and the command line.
    """

    def __init__(self, message: str, *, advice: Advice | None = None) -> None:
        super().__init__(message)
        self.advice = advice

    def __str__(self) -> str:
        return self._with_advice(self.advice.python if self.advice else "")

    def on_command_line(self) -> str:
        """Return the message for a user of the command line."""
        return self._with_advice(self.advice.command_line if self.advice else "")

    def in_app(self) -> str:
        """Return the message for a user of the app."""
        return self._with_advice((self.advice.app or self.advice.python) if self.advice else "")

    def _with_advice(self, advice: str) -> str:
        return printable(f"{super().__str__()}; {advice}" if advice else super().__str__())


class ProgramError(WorkbenchError):
    """The program is unknown or cannot be built, or Thunder cannot trace it."""


class ChoiceError(WorkbenchError):
    """A choice names a site that does not exist, or an option that the site refuses. Nothing was changed.

    `core/lever.py` checks choices and writes the messages.

    Attributes
    ----------
    site : str
        Id of the site that refused, or an empty string.
    """

    def __init__(self, message: str, site: str = "", *, advice: Advice | None = None) -> None:
        super().__init__(message, advice=advice)
        self.site = site


class ConfigError(WorkbenchError):
    """A config file is broken, contains code, or does not belong to this program."""


class PlanError(WorkbenchError):
    """A plan would be wrong and is not shown; the message names the statement and the undefined value that it reads."""


class GradientError(WorkbenchError):
    """A second derivative is requested through code that Thunder compiled; the derivative would lack terms."""


class DeviceError(WorkbenchError):
    """The requested device or executor is not available; the message gives the reason."""


class SeamError(WorkbenchError):
    """The installed version of Thunder, nvFuser or PyTorch has other internals than the workbench uses."""


class RunError(WorkbenchError):
    """A run cannot be started, read or found."""


class LessonError(WorkbenchError):
    """A lesson cannot accept an answer, such as a prediction that was changed after it was locked in."""


class DefectError(WorkbenchError):
    """The workbench itself failed in the background, with an exception that it does not raise on purpose."""

    @classmethod
    def of(cls, error: BaseException) -> DefectError:
        """Return the error for an unexpected exception, with the exception's type and position."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
        return cls(f"a defect of the workbench, please report it: {type(error).__name__}: {error}{place}")


class UnknownRunError(RunError):
    """The name belongs to no run, or to more than one."""


class WorkbenchWarning(UserWarning):
    """Base of the warnings."""

    def __str__(self) -> str:
        return printable(super().__str__())


class ConfigWarning(WorkbenchWarning):
    """A config was made for another program or other versions, or only some choices fit; these are applied."""


class ProgramWarning(WorkbenchWarning):
    """Gradients are probably wrong because of Thunder's trace, or figures that were shown were wrong."""


def printable(text: str) -> str:
    """Return `text` for a terminal: control characters and characters that cannot be printed are escaped.

    Line breaks stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """Return `text` as `printable` does, with line ends escaped, too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def short_repr(value: Any) -> str:
    """Return `value` as Python writes it, shortened to fit into a message."""
    return _Short().repr(value)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = _SHOWN
        self.maxdict = self.maxlist = self.maxtuple = 4
        self.maxlevel = 3

    def repr_int(self, value: int, level: int) -> str:
        # Python refuses to print a number of thousands of digits.
        return repr(value) if value.bit_length() <= 256 else f"<a whole number of {value.bit_length()} bits>"

    def repr_str(self, value: str, level: int) -> str:
        return printable(super().repr_str(value, level))


def suggest_names(name: str, names: list[str]) -> str:
    """Return a hint with the names that `name` may mean, or an empty string."""
    if len(name) > _COMPARED:
        return ""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
