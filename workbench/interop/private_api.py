"""`PrivateApi`: a table of the private names of a package that the workbench uses, checked when they are used."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.errors import SeamError

TORCH_VERSIONS = ">=2.10,<2.13"
"""The versions of PyTorch for which the workbench is made; `pyproject.toml` has the same range."""

_FIRST_ERRORS: dict[str, str] = {}
"""Why the first import of a package failed. Later imports may fail for another reason, which misleads."""


def installed_torch() -> str:
    """Return the installed version of PyTorch without the suffix of its build; empty if it is not installed."""
    return _version("torch").partition("+")[0]


@dataclasses.dataclass(frozen=True)
class MissingName:
    """A name that the installed package does not have.

    Attributes
    ----------
    name : str
        The expected location, as ``module:attribute``.
    reason : str
        Type and message of Python's exception.
    """

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class PrivateApi:
    """All private names of a package that the workbench uses.

    Attributes
    ----------
    package : str
        Name of the package, for messages.
    distributions : sequence of str
        Names of distributions that may contain the package. The first installed distribution determines the
        version.
    wanted : str
        The version of the package, or the range of versions, for which the table was written.
    names : mapping of str to str
        Maps a name that the workbench imports to its location, as ``module`` or ``module:attribute``.
    members : mapping of str to sequence of str
        Maps a name in `names` to those attributes of its object that the workbench uses.
    importing : callable
        Returns a context manager in which the package is imported.
    """

    package: str
    distributions: Sequence[str]
    wanted: str
    names: Mapping[str, str]
    members: Mapping[str, Sequence[str]]
    importing: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext

    @property
    def installed_version(self) -> str:
        """Installed version of the package; empty if the package is not installed."""
        return next(filter(None, map(_version, self.distributions)), "")

    def get(self, name: str) -> Any:
        """Return the object for a name in the table, after a check that the object has the attributes in `members`.

        Raises
        ------
        AttributeError
            If the name is not in the table.
        SeamError
            If the package cannot be imported, or if the installed version lacks the object or one of the attributes.
        """
        if name not in self.names:
            raise AttributeError(name)
        value, missing = self._look_up(name)
        if missing:
            raise SeamError(self._why_not_imported(self.names[name]) or self._message(missing))
        return value

    def examine(self) -> list[MissingName]:
        """Return all names and attributes in the table that the installed version does not have."""
        return [gone for name in self.names for gone in self._look_up(name)[1]]

    def _look_up(self, name: str) -> tuple[Any, list[MissingName]]:
        target = self.names[name]
        module, _, attribute = target.partition(":")
        try:
            with self.importing():
                value: Any = importlib.import_module(module)
            value = _walk(value, attribute) if attribute else value
        except Exception as error:  # noqa: BLE001 - a module of another version may fail to import in any way
            reason = f"{type(error).__name__}: {error}"
            if (package := module.partition(".")[0]) not in sys.modules:
                _FIRST_ERRORS.setdefault(package, reason)
            return None, [MissingName(target, reason)]
        gone = []
        for member in self.members.get(name, ()):
            try:
                _walk(value, member)
            except AttributeError as error:
                gone.append(MissingName(f"{target}{'.' if attribute else ':'}{member}", str(error)))
        return value, gone

    def _why_not_imported(self, target: str) -> str:
        """Return why the top-level package of `target` cannot be imported; empty if it can or is not installed."""
        package = target.partition(":")[0].partition(".")[0]
        try:
            with self.importing():
                importlib.import_module(package)
        except ModuleNotFoundError as error:
            if error.name == package:
                return ""
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - a package for another version of PyTorch may fail in any way
            reason = _FIRST_ERRORS.get(package, f"{type(error).__name__}: {error}")
        else:
            return ""
        return (
            f"{self.package} {self.installed_version} cannot be imported with PyTorch {installed_torch()}: {reason}. "
            f"The workbench is made for {self.package} {self.wanted} and PyTorch {TORCH_VERSIONS}; "
            "see docs/upgrading.md"
        )

    def missing_name_error(self, where: str, name: str) -> SeamError:
        """Return the error for a name that is missing at the location `where` in the installed version."""
        return SeamError(self._message([MissingName(f"{where}: {name}", "not found")]))

    def _message(self, missing: Sequence[MissingName]) -> str:
        gone = ", ".join(each.name for each in missing)
        found = (
            f"{self.package} {self.installed_version}"
            if self.installed_version
            else f"{self.package}, which is not installed,"
        )
        return (
            f"{found} does not have {gone}, which the workbench uses; it is made for {self.wanted}. "
            f"Install that version, or follow docs/upgrading.md"
        )


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _walk(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, type) and part in getattr(value, "__annotations__", ()):
            # Instances have an annotated field even if the class does not.
            return None
        value = getattr(value, part)
    return value
