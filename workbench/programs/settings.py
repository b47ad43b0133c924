"""Settings of a program's factory: read from its signature, parsed, and checked before the factory is called."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

from workbench.errors import ProgramError, short_repr, suggest_names

type Scalar = str | int | float | bool

_REQUIRED = inspect.Parameter.empty
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclasses.dataclass(frozen=True)
class ProgramSetting:
    """One parameter of a factory.

    Attributes
    ----------
    name : str
    type : type, optional
        ``int``, ``float``, ``bool`` or ``str``, from the parameter's annotation or its default; None if neither has one
        of these types.
    default : str, int, float, bool or None
        The parameter's default; None if it has none.
    options : tuple
        Legal values if the parameter's type is a ``Literal``; empty for other types.
    required : bool
    """

    name: str
    type: type[Scalar] | None
    default: Scalar | None
    options: tuple[Scalar, ...] = ()
    required: bool = False

    @property
    def legal(self) -> str:
        """Legal values, in words."""
        if self.options:
            return "one of " + ", ".join(map(str, self.options))
        return {int: "a whole number", float: "a number", bool: "true or false", str: "a text", None: "any value"}[
            self.type
        ]

    def parse(self, raw: Any) -> Scalar:
        """Return `raw` as a value of this setting's type; a text is parsed as on the command line.

        Raises
        ------
        ValueError
            If the value is not legal.
        """
        value = _convert(raw, self.type)
        if self.options and value not in self.options:
            raise ValueError
        return value


def settings_of(factory: Callable[..., Any]) -> tuple[tuple[ProgramSetting, ...], bool]:
    """Return the settings that `factory` has, and whether it also accepts other settings (``**settings``)."""
    try:
        hints = typing.get_type_hints(factory)
    except (NameError, TypeError):  # a name in an annotation may not exist at run time; treat the parameters as untyped
        hints = {}
    settings, open_ended = [], False
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            open_ended = True
        elif parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            settings.append(_setting(parameter, hints.get(parameter.name)))
    return tuple(settings), open_ended


def check_settings(program: str, factory: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return `values`, parsed to the types of `factory`'s parameters.

    Raises
    ------
    ProgramError
        If a setting is unknown, missing or of the wrong type; the message lists the legal settings or values.
    """
    settings, open_ended = settings_of(factory)
    known = {setting.name: setting for setting in settings}
    parsed: dict[str, Scalar] = {}
    for name, value in values.items():
        if name not in known and not open_ended:
            legal = f"legal: {', '.join(known)}" if known else "it has none"
            raise ProgramError(
                f"{program} has no setting {short_repr(name)}; {legal}{suggest_names(name, list(known))}"
            )
        setting = known.get(name, ProgramSetting(name, None, None))
        try:
            parsed[name] = setting.parse(value)
        except ValueError:
            raise ProgramError(f"{program}: {name} must be {setting.legal}, given {short_repr(value)}") from None
    missing = [setting for setting in settings if setting.required and setting.name not in parsed]
    if missing:
        need = ", ".join(f"{setting.name} ({setting.legal})" for setting in missing)
        raise ProgramError(f"{program} needs a value for {need}")
    return parsed


def _setting(parameter: inspect.Parameter, hint: Any) -> ProgramSetting:
    required = parameter.default is _REQUIRED
    default = None if required else parameter.default
    options: tuple[Scalar, ...] = ()
    if typing.get_origin(hint) is Literal:
        options = typing.get_args(hint)
        hint = type(options[0])
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next((one for one in typing.get_args(hint) if one is not type(None)), None)
    if hint not in (int, float, bool, str):
        hint = type(default) if isinstance(default, str | int | float) else None
    return ProgramSetting(parameter.name, hint, default, options, required)


def _convert(raw: Any, type_: type[Scalar] | None) -> Scalar:
    """Return `raw` as a value of `type_`.

    A text is parsed. Any other value must already have the type, but a `float` may also be given as an `int`.
    """
    if not isinstance(raw, str | int | float):
        raise ValueError
    if type_ is bool or (type_ is None and str(raw).lower() in ("true", "false")):
        return _to_bool(raw)
    if type_ is str:
        if not isinstance(raw, str):
            raise ValueError
        return raw
    if isinstance(raw, bool):
        if type_ is None:
            return raw
        raise ValueError
    if type_ is int:
        if isinstance(raw, float):
            raise ValueError
        return int(raw)
    if type_ is float:
        return float(raw)
    return _guess(raw)


def _to_bool(raw: Scalar) -> bool:
    if isinstance(raw, bool):
        return raw
    word = raw.lower() if isinstance(raw, str) else ""
    if word not in _TRUE + _FALSE:
        raise ValueError
    return word in _TRUE


def _guess(raw: str | float) -> Scalar:
    """Return the value for a parameter without a type: a number if `raw` is the text of a number, otherwise `raw`."""
    if isinstance(raw, str):
        for number in (int, float):
            try:
                return number(raw)
            except ValueError:
                continue
    return raw
