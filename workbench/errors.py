"""Errors and warnings for users. A message should name the input, the legal values and the next step."""

from __future__ import annotations

import difflib
import os
import reprlib
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple

_SHOWN = 200
"""Largest number of characters that `short_repr` shows of a string."""
_COMPARED = 200
"""Largest number of characters of an unknown name for which `suggest_names` searches for similar names. Existing names
are shorter, and comparing long names is slow.
"""

_NAMED = 3
"""Largest number of names, and of reasons, in a warning about many choices."""


class Advice(NamedTuple):
    """The next step for the user, worded for Python, for the command line and for the app."""

    python: str
    command_line: str
    app: str = ""
    """Advice for the app; if empty, the app shows the advice for Python."""


class WorkbenchError(Exception):
    """Base of the errors that the workbench raises for users.

    A message may quote the user's input and is shown on terminals. Therefore unprintable characters are escaped.

    Parameters
    ----------
    message : str
    advice : Advice, optional
        The next step, if its wording differs between Python, the command line and the app.
    """

    def __init__(self, message: str, *, advice: Advice | None = None) -> None:
        super().__init__(message)
        self.advice = advice

    def __str__(self) -> str:
        return self._with_advice(self.advice.python if self.advice else "")

    def on_command_line(self) -> str:
        """Return the message with the advice for the command line."""
        return self._with_advice(self.advice.command_line if self.advice else "")

    def in_app(self) -> str:
        """Return the message with the advice for the app."""
        return self._with_advice((self.advice.app or self.advice.python) if self.advice else "")

    def _with_advice(self, advice: str) -> str:
        return printable(f"{super().__str__()}; {advice}" if advice else super().__str__())


class ProgramError(WorkbenchError):
    """The program is unknown or cannot be built, or Thunder cannot trace it."""


class ChoiceError(WorkbenchError):
    """A choice or another request of the user is illegal, such as an option that its site refuses. Nothing was changed.

    Attributes
    ----------
    site : str
        The id in the refused choice; an empty string if the error does not concern a single site.
    """

    def __init__(self, message: str, site: str = "", *, advice: Advice | None = None) -> None:
        super().__init__(message, advice=advice)
        self.site = site


class ConfigError(WorkbenchError):
    """A config, a saved file or an argument is illegal, or a file cannot be read or written."""


class PlanError(WorkbenchError):
    """A plan or a result of plans cannot be made; for example, a plan is not proven equal to the stock plan."""


class GradientError(WorkbenchError):
    """A second derivative or a forward-mode derivative is requested of code that Thunder compiled.

    The second derivative would lack terms. The compiled code has no forward-mode derivative.
    """


class DeviceError(WorkbenchError):
    """The requested device or executor is unknown or not available. The message contains the reason."""


class SeamError(WorkbenchError):
    """The installed version of Thunder, nvFuser or PyTorch lacks internals that the workbench uses."""


class RunError(WorkbenchError):
    """A run or a GPU check cannot be started, read, found or compared."""


class LessonError(WorkbenchError):
    """A lesson cannot accept a program or an answer, such as a prediction that was changed after it was locked in."""


class DefectError(WorkbenchError):
    """A defect of the workbench: a command or work in the background failed with an unexpected exception."""

    @classmethod
    def of(cls, error: BaseException) -> DefectError:
        """Return the error for an unexpected exception. The message names the exception's type and source line."""
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
        return cls(f"a defect of the workbench, please report it: {type(error).__name__}: {error}{place}")


class UnknownRunError(RunError):
    """The given name does not belong to a run, or belongs to several runs."""


class WorkbenchWarning(UserWarning):
    """Base of all warnings of the workbench."""

    def __str__(self) -> str:
        return printable(super().__str__())


class ConfigWarning(WorkbenchWarning):
    """A config was made for another program or other versions, or contains choices that do not fit and are left out."""


class ProgramWarning(WorkbenchWarning):
    """Gradients of the program are probably wrong because of Thunder's trace."""


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether an error, or an error from which it was raised, says that memory ran out."""
    while error is not None:
        # PyTorch's CPU allocator raises a RuntimeError with this message.
        if (
            isinstance(error, MemoryError)
            or type(error).__name__ == "OutOfMemoryError"
            or "can't allocate memory" in str(error)
        ):
            return True
        error = error.__cause__
    return False


def printable(text: str) -> str:
    """Return `text` for a terminal. Control characters and unprintable characters are escaped.

    Line breaks and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """Return `printable(text)` with line breaks and tabs escaped, too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def short_repr(value: Any) -> str:
    """Return the `repr` of `value`, shortened for a message."""
    return _Short().repr(value)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = _SHOWN
        self.maxdict = self.maxlist = self.maxtuple = 4
        self.maxlevel = 3

    def repr_int(self, value: int, level: int) -> str:
        # Python refuses to print integers with thousands of digits.
        return repr(value) if value.bit_length() <= 256 else f"<a whole number of {value.bit_length()} bits>"

    def repr_str(self, value: str, level: int) -> str:
        return printable(super().repr_str(value, level))


def names_by_reason(reasons: Mapping[str, str]) -> str:
    """Return a text of one line with each reason once, after some of the names that it is for."""
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    told = [f"{', '.join(of[:_NAMED])}{_and_more(len(of) - _NAMED)}: {reason}" for reason, of in names.items()]
    return "; ".join(told[:_NAMED]) + _and_more(sum(map(len, [*names.values()][_NAMED:])))


def _and_more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def suggest_names(name: str, names: list[str]) -> str:
    """Return a hint that names up to three similar `names`; empty if no name is similar to `name`."""
    if len(name) > _COMPARED:
        return ""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
