"""The built-in programs by name. A new one is one new file in `builtin/`, with a factory under `@program`."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

from workbench.errors import ProgramError, nearest, shown
from workbench.programs.settings import Setting, settings_of

type Factory = Callable[..., tuple[Any, ...]]

_FACTORIES: dict[str, Factory] = {}
_PARALLEL: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class ProgramInfo:
    """A built-in program, as `thunder-workbench programs` shows it."""

    name: str
    summary: str
    settings: tuple[Setting, ...]


def program[F: Factory](factory: F) -> F:
    """Decorator: make a factory a built-in program, under the function's name.

    The factory returns ``(callable, args)`` or ``(callable, args, kwargs)`` and makes its tensors on torch's default
    device, which is set around it; under fake tensors nothing is allocated. Its parameters are the program's settings.
    """
    _FACTORIES[factory.__name__] = factory
    return factory


def parallel[F: Factory](kind: str) -> Callable[[F], F]:
    """Decorator, above `program`: a built-in program that several ranks share, and how, one of `config.PARALLEL`."""

    def mark(factory: F) -> F:
        _PARALLEL[factory.__name__] = kind
        return factory

    return mark


def parallel_of(name: str) -> str:
    """How ranks share a built-in program; empty for one that is for a single process."""
    _import_builtin()
    return _PARALLEL.get(name, "")


def factories() -> dict[str, Factory]:
    """Built-in factories by name."""
    _import_builtin()
    return dict(sorted(_FACTORIES.items()))


def find(name: str) -> Factory:
    """The built-in factory called `name`.

    Raises
    ------
    ProgramError
        If there is none, naming those that exist.
    """
    known = factories()
    if name not in known:
        raise ProgramError(
            f"there is no program {shown(name)}; built in: {', '.join(known)}; your own: file.py:factory"
            f"{nearest(name, list(known))}"
        )
    return known[name]


def describe() -> tuple[ProgramInfo, ...]:
    """The built-in programs with their settings, by name."""
    return tuple(
        ProgramInfo(name, (inspect.getdoc(factory) or "").partition("\n")[0], settings_of(factory)[0])
        for name, factory in factories().items()
    )


def at_least(least: int, **settings: int) -> None:
    """Check that each of a factory's settings is `least` or more.

    Raises
    ------
    ProgramError
        Naming the setting that is not.
    """
    for name, value in settings.items():
        if value < least:
            raise ProgramError(f"{name} must be at least {least}, given {value}")


@functools.cache
def _import_builtin() -> None:
    package = importlib.import_module("workbench.programs.builtin")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
