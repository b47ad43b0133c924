"""`PrivateApi`: table of the private names that are used of a package; each is looked up and checked at first use."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import SeamError


@dataclasses.dataclass(frozen=True)
class MissingName:
    """A name that the installed package does not have.

    Attributes
    ----------
    name : str
        Its expected place, ``module:attribute``.
    reason : str
        What Python said.
    """

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class PrivateApi:
    """All private names that are used of one package.

    Attributes
    ----------
    package : str
        Common name of the package.
    distributions : sequence of str
        Distribution names of the package; the first installed one gives the version.
    wanted : str
        The version for which the table was written.
    names : mapping of str to str
        Maps our name to ``module`` or ``module:attribute``.
    members : mapping of str to sequence of str
        For a module, a class or an enumeration in the table, those of its attributes that are used.
    """

    package: str
    distributions: Sequence[str]
    wanted: str
    names: Mapping[str, str]
    members: Mapping[str, Sequence[str]]

    @property
    def installed_version(self) -> str:
        """Installed version; empty if it is not installed."""
        for distribution in self.distributions:
            try:
                return importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
        return ""

    def get(self, name: str) -> Any:
        """Return the object of a name in the table, after checking the attributes that are used.

        Raises
        ------
        AttributeError
            If the table has no such name.
        SeamError
            If the installed version lacks what the table contains.
        """
        if name not in self.names:
            raise AttributeError(name)
        value, missing = self._look_up(name)
        if missing:
            raise SeamError(self._message(missing))
        return value

    def examine(self) -> list[MissingName]:
        """Return everything in the table that the installed version lacks."""
        return [gone for name in self.names for gone in self._look_up(name)[1]]

    def _look_up(self, name: str) -> tuple[Any, list[MissingName]]:
        target = self.names[name]
        module, _, attribute = target.partition(":")
        try:
            value: Any = importlib.import_module(module)
            value = _walk(value, attribute) if attribute else value
        except Exception as error:  # noqa: BLE001 - a module of another version may fail to import in any way
            return None, [MissingName(target, f"{type(error).__name__}: {error}")]
        gone = []
        for member in self.members.get(name, ()):
            try:
                _walk(value, member)
            except AttributeError as error:
                gone.append(MissingName(f"{target}{'.' if attribute else ':'}{member}", str(error)))
        return value, gone

    def missing_name_error(self, where: str, name: str) -> SeamError:
        """Return the error that the installed version lacks a name in the table."""
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


def _walk(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, type) and part in getattr(value, "__annotations__", ()):
            # A field of instances, which the class itself need not have.
            return None
        value = getattr(value, part)
    return value
