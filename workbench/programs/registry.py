"""The built-in programs by name. A new program is a new file in `builtin/`, with a factory decorated by `@program`."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from workbench.errors import ProgramError, short_repr, suggest_names
from workbench.programs import catalogue
from workbench.programs.settings import ProgramSetting, check_settings, settings_of

type Factory = Callable[..., tuple[Any, ...]]

_FACTORIES: dict[str, Factory] = {}
_PARALLEL: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class ProgramInfo:
    """A built-in program, as `thunder-workbench programs` shows it."""

    name: str
    summary: str
    settings: tuple[ProgramSetting, ...]


def program[F: Factory](factory: F) -> F:
    """Register a factory as a built-in program under the factory's name. This is a decorator.

    The factory returns ``(callable, args)`` or ``(callable, args, kwargs)``. It makes its tensors on torch's default
    device, which is the program's device while the factory is called. For a planned device, these are fake tensors,
    which take no memory. The factory's parameters are the program's settings.
    """
    _FACTORIES[factory.__name__] = factory
    return factory


def parallel[F: Factory](kind: str) -> Callable[[F], F]:
    """Mark a built-in program as shared by several ranks. This is a decorator, written above `program`.

    Parameters
    ----------
    kind : str
        Kind of sharing, one of `workbench.core.config.PARALLEL`.
    """

    def mark(factory: F) -> F:
        _PARALLEL[factory.__name__] = kind
        return factory

    return mark


def parallel_of(name: str) -> str:
    """Return the kind of sharing of a built-in program, as in `parallel`; empty if a single process runs it."""
    entry = catalogue.entries().get(name)
    return _PARALLEL.get(name, entry.parallel if entry is not None else "")


def check_built_in(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse an unknown built-in program or illegal settings. This imports neither PyTorch nor the program's file.

    Raises
    ------
    ProgramError
        If the program or a setting is unknown, or a value is illegal; the message lists the legal values.
    """
    check_settings(name, _stand_in(name), settings)


def find(name: str) -> Factory:
    """Return the built-in factory called `name`.

    Raises
    ------
    ProgramError
        If no factory has this name; the message lists the existing factories.
    """
    _stand_in(name)
    if name not in _FACTORIES:
        importlib.import_module(f"workbench.programs.builtin.{catalogue.entries()[name].module}")
    return _FACTORIES[name]


def describe() -> tuple[ProgramInfo, ...]:
    """Return the built-in programs with their settings, sorted by name."""
    return tuple(
        ProgramInfo(name, (inspect.getdoc(stand_in) or "").partition("\n")[0], settings_of(stand_in)[0])
        for name, stand_in in _stand_ins().items()
    )


def _stand_in(name: str) -> Callable[..., Any]:
    known = _stand_ins()
    if name not in known:
        raise ProgramError(
            f"there is no program {short_repr(name)}; built in: {', '.join(known)}; your own: file.py:factory"
            f"{suggest_names(name, list(known))}"
        )
    return known[name]


def _stand_ins() -> dict[str, Callable[..., Any]]:
    """Map the name of each factory to a function with the factory's parameters and docstring.

    The factories are defined in the files of `builtin/`, or registered in this process by `program`.
    """
    written = {name: entry.stand_in for name, entry in catalogue.entries().items()}
    return dict(sorted({**_FACTORIES, **written}.items()))


def at_least(least: int, **settings: int) -> None:
    """Check that each of the given settings of a factory is at least `least`.

    Raises
    ------
    ProgramError
        If a setting is smaller; the message names the setting.
    """
    for name, value in settings.items():
        if value < least:
            raise ProgramError(f"{name} must be at least {least}, given {value}")
