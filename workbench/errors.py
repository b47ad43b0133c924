"""Every error that a person can cause, each with one message: what was given, what is legal, what to do."""

from __future__ import annotations

import difflib


class WorkbenchError(Exception):
    """Base of all errors that the workbench raises on purpose."""


class ProgramError(WorkbenchError):
    """The program is unknown, cannot be built, or Thunder cannot trace it."""


class ChoiceError(WorkbenchError):
    """A choice names no site, or an option that the site refuses. Nothing was changed.

    Attributes
    ----------
    site : str
        Id of the site that refused, or an empty string.
    """

    def __init__(self, message: str, site: str = "") -> None:
        super().__init__(message)
        self.site = site


class ConfigError(WorkbenchError):
    """A config file is broken, holds code, or does not belong to this program."""


class PlanError(WorkbenchError):
    """A plan would be wrong and is not shown: which statement reads what is not defined."""


class DeviceError(WorkbenchError):
    """The device or executor asked for is not there, and why."""


class RunError(WorkbenchError):
    """A run cannot be started, read or found."""


class UnknownRunError(RunError):
    """No run, or more than one, is called so."""


class ConfigWarning(UserWarning):
    """Some choices of a config do not fit this program; the rest is applied."""


def nearest(given: str, known: list[str]) -> str:
    """A hint naming what `given` may have meant, or an empty string."""
    close = difflib.get_close_matches(given, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
