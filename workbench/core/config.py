"""`Config`: all choices for a program. A config is written as a Python file of literals. Reading never executes it."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.metadata
import math
import os
import re
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from packaging.version import InvalidVersion, Version

from workbench.core.executor import executor_names
from workbench.core.lever import lever_of
from workbench.errors import Advice, ConfigError, one_line, short_repr, suggest_names
from workbench.util import paths

FORMAT_VERSION = 1
"""Version of the file format. Increase it if a reader of the old format would misread a new file."""

DEVICES = ("cpu", "cuda", "planned")
PARALLEL = ("fsdp", "fsdp_zero3", "ddp", "tensor")
"""Ways to share a program among ranks.

``fsdp``: each rank has a shard of each parameter, and parameters are gathered once in a step (ZeRO-2).
``fsdp_zero3``: as ``fsdp``, but parameters are gathered in the forward, and again in the backward (ZeRO-3).
``ddp``: each rank has all parameters. ``tensor``: pairs of linear layers are split among ranks.
"""
CAPTURES = ("dynamo", "interpreter", "parts")
"""Ways to turn a program into traces: Dynamo with one graph, Thunder's interpreter, Dynamo with several graphs."""
THUNDER, EAGER = "thunder", "eager"
"""A part of a program with several graphs is either compiled by Thunder, or PyTorch runs it without compilation."""
_FLOATS = ("float16", "bfloat16", "float32", "float64")
MODES: Mapping[str, tuple[str, ...]] = {
    "grad": ("off", "inference"),
    "autocast_cpu": _FLOATS,
    "autocast_cuda": _FLOATS,
    "default_dtype": _FLOATS,
    "deterministic": ("on", "warn"),
    "module": ("eval",),
}
"""Maps each PyTorch mode under which a program may be opened to its possible values.

If a config does not contain a mode, PyTorch's default applies. If the program is a module, the entry ``module`` says
that the module was opened in evaluation mode; without this entry, the module was opened in training mode.
`Config.differences` reports if the module is in the other mode now.
"""

MOST_BYTES = 2 << 20
"""Largest size of a config file that is read, in bytes. It is enough for ten thousand choices with comments."""
_MOST_LEXEMES = 300_000
"""Largest number of tokens in a config file that is read.

This number limits time and memory, because Python's parser needs a few microseconds and one kilobyte for each token.
"""
MOST_RANKS = 1 << 20
_MOST_DIGITS = 1000
"""Largest number of digits of an integer in a config. Python refuses to print integers with thousands of digits."""

_MOST_DIFFERENCES = 5
"""Largest number of differences that a warning names."""
_COMMENT_WIDTH = 108

_PART = r"(thunder|eager):[0-9a-f.]+(\+\w+)*"
"""Pattern of the text that `Config.parts` has for a part."""

_OF_TEXTS = ("choices", "versions", "modes", "parts")
"""Fields that map texts to texts."""
_LEGAL = "a config contains only a docstring, `import workbench as wb`, and `config = wb.Config(...)` with literals"

BEGIN_FOR_TORCH = '"""Choices for PyTorch: '
"""Beginning of a file with choices for plain PyTorch."""
_OTHER_FILES = {
    BEGIN_FOR_TORCH: "a module for plain PyTorch; import it in your script, as its first lines show",
    '{"format": "thunder-workbench plan"': "a saved plan; open it with wb.open(...)",
}
"""Other files that the workbench writes, by their beginning, and what to do with them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """All choices for a program. A config can be exported, replayed and compared.

    Attributes
    ----------
    program : str
        Name of the program.
    executor : {'nvfuser', 'torchcompile', 'torchcompile_aten', 'torch'}
        Name of the executor.
    device : {'cpu', 'cuda', 'planned'}
    choices : mapping of str to str
        Maps the id of a site to an option. At a site without an entry, the program is compiled as by unmodified
        Thunder.
    fingerprint : str
        Digest of the program's statements; see `workbench.compiler.pipeline.compilation.fingerprint`. It changes if
        statements are added, removed or replaced, but not if shapes or line numbers change. Empty if unknown.
    settings : mapping of str to str, int, float or bool
        Keyword arguments of the function that builds the program.
    versions : mapping of str to str
        Versions of the packages with which the choices were made.
    ranks : int
        Number of processes that share the program.
    parallel : str
        One of `PARALLEL`, or empty. Empty means one process, or the way of sharing that a built-in program has by
        default.
    capture : {'dynamo', 'interpreter', 'parts'}
        How the workbench and `jit` turn the program into traces: by Dynamo as one graph, by Thunder's bytecode
        interpreter, or by Dynamo as several graphs (``parts``).
    parts : mapping of str to str
        For a program with several graphs, maps the name of each part (``part1``, ``part2``, …) to its compiler and
        fingerprint, such as ``thunder:1f0c4a7be2d9``. The compiler is ``eager`` if PyTorch runs the part uncompiled.
        After each ``+`` comes an input of which the part reads a copy, because the program overwrites the input before
        the part's backward. In `choices`, the ids of a part's sites begin with the part's name.
    modes : mapping of str to str
        PyTorch modes under which the program was opened; see `MODES`. `jit` sets these modes in each call, except
        ``module``.
    format_version : int

    Raises
    ------
    ConfigError
        If a field has the wrong type, or an illegal value.
    """

    program: str
    executor: str
    device: str
    choices: Mapping[str, str] = dataclasses.field(default_factory=dict)
    fingerprint: str = ""
    settings: Mapping[str, str | int | float | bool] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ranks: int = 1
    parallel: str = ""
    capture: str = "interpreter"
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    modes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    _places: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """For each choice, its place in the file that it comes from; `with_places` sets it."""

    def __post_init__(self) -> None:
        for name in ("program", "executor", "device", "fingerprint", "parallel", "capture"):
            _check_type(name, getattr(self, name), str, "a text")
        _check_type("ranks", self.ranks, int, "a whole number")
        for name in (*_OF_TEXTS, "settings"):
            mapping = getattr(self, name)
            _check_type(name, mapping, Mapping, "a dict")
            for key, value in mapping.items():
                _check_type(f"a key of {name}", key, str, "a text")
                if name == "settings":
                    _check_setting(key, value)
                else:
                    _check_type(f"{name}[{short_repr(key)}]", value, str, "a text")
            # Copy the mapping, so that the caller cannot change this config later.
            object.__setattr__(self, name, dict(mapping))
        _check_version(self.format_version)
        if self.executor not in executor_names():
            raise ConfigError(f"there is no executor {short_repr(self.executor)}; legal: {', '.join(executor_names())}")
        if self.device not in DEVICES:
            raise ConfigError(f"there is no device {short_repr(self.device)}; legal: {', '.join(DEVICES)}")
        if not 1 <= self.ranks <= MOST_RANKS:
            raise ConfigError(f"ranks must be 1 to {MOST_RANKS}, given {short_repr(self.ranks)}")
        if self.parallel and self.parallel not in PARALLEL:
            raise ConfigError(f"parallel={short_repr(self.parallel)} is unknown; legal: {', '.join(PARALLEL)}")
        for mode, given in self.modes.items():
            if given not in MODES.get(mode, ()):
                legal = "; ".join(f"{name}: {', '.join(values)}" for name, values in MODES.items())
                raise ConfigError(f"there is no mode {short_repr(mode)}: {short_repr(given)}; legal: {legal}")
        if self.capture not in CAPTURES:
            raise ConfigError(f"there is no capture {short_repr(self.capture)}; legal: {', '.join(CAPTURES)}")
        for part, told in self.parts.items():
            if not re.fullmatch(r"part[1-9][0-9]{0,5}", part) or not re.fullmatch(_PART, told):
                raise ConfigError(
                    f"parts[{short_repr(part)}] is {short_repr(told)}; legal: 'part1': 'thunder:KEY', 'eager:KEY', or "
                    "'thunder:KEY+INPUT' if the part reads a copy of INPUT"
                )
        if bool(self.parts) is not (self.capture == "parts"):
            raise ConfigError(
                "a config with capture='parts' needs parts=; with any other capture, parts= is not allowed"
            )

    def read_parts(self) -> Iterator[tuple[str, str, str, list[str]]]:
        """Yield name, compiler and key of each part, and the names of the inputs that the part reads from a copy."""
        for name, text in self.parts.items():
            compiler, key, *copied = re.split(r"[:+]", text)
            yield name, compiler, key, copied

    @property
    def uncompiled(self) -> frozenset[str]:
        """Keys of the parts that PyTorch runs. For example, a part with second derivatives."""
        return frozenset(key for _, compiler, key, _ in self.read_parts() if compiler == EAGER)

    def of_part(self, name: str) -> Config:
        """Return the config of one part of a program with several graphs. Its ids lack the part's name."""
        return dataclasses.replace(
            self,
            program=f"{self.program} {name}".strip(),
            choices=choices_of_part(self.choices, name),
            fingerprint="",
            versions={},
            capture="dynamo",
            parts={},
        ).with_places(choices_of_part(self._places, name))

    def with_choices(self, choices: Mapping[str, str | None]) -> Config:
        """Return this config with `choices` added. If an option is None, the choice at its site is removed instead."""
        merged = {**self.choices, **choices}
        return dataclasses.replace(
            self, choices={site: option for site, option in merged.items() if option is not None}
        )

    def with_places(self, places: Mapping[str, str]) -> Config:
        """Return this config, in which messages about a choice begin with the choice's place in a file."""
        copy = dataclasses.replace(self)
        object.__setattr__(copy, "_places", dict(places))
        return copy

    def place_of(self, id: str) -> str:
        """Return the file and line of a choice, for the beginning of a message; empty if it comes from no file."""
        return self._places.get(id, "")

    def differences(self, fingerprint: str, training: bool | None = None) -> str:
        """Describe how a program and the installed packages differ from those of this config; empty if nothing differs.

        Parameters
        ----------
        fingerprint : str
            Fingerprint of the program. It is compared only if the config has a fingerprint.
        training : bool, optional
            Whether the program is a module in training mode; None if the program is not a module.
        """
        here = installed_versions()
        found = [
            f"made with {one_line(package)} {one_line(version)}, here {here.get(package, 'not installed')}"
            for package, version in sorted(self.versions.items())
            if not _same_version(package, here.get(package, ""), version)
        ]
        if self.fingerprint and self.fingerprint != fingerprint:
            found.insert(0, "made for a program with other statements")
        if training is not None and training == ("module" in self.modes):
            theirs, own = ("eval", "train") if training else ("train", "eval")
            found.insert(0, f"made for the module in {theirs}() mode, but the module is in {own}() mode")
        if not found:
            return ""
        more = f" and {len(found) - _MOST_DIFFERENCES} more" if len(found) > _MOST_DIFFERENCES else ""
        return (
            f"the config for {short_repr(self.program)} was {'; '.join(found[:_MOST_DIFFERENCES])}{more}: "
            "its choices may have another effect here"
        )

    def jit(self, fn: Callable[..., Any], *, observer: Any = None, **options: Any) -> Any:
        """Return ``thunder.jit(fn, **options)`` with exactly the choices of this config.

        If `capture` is ``dynamo`` or ``parts``, Dynamo captures `fn`. `fn` is captured and compiled in its first call,
        and again in each call with a new combination of shapes and modes.

        Parameters
        ----------
        fn : callable
            The function or module to compile.
        observer : optional
            Object that is notified of each stage of the compilation; see
            `workbench.compiler.fusion.executors.Observer`.
        **options
            Other arguments of `thunder.jit`.
        """
        from workbench.compiler import api

        return api.jit(self, fn, observer=observer, **options)

    def compile(self, model: Callable[..., Any], **options: Any) -> Any:
        """Return ``torch.compile(model, **options)`` with those choices of this config that plain PyTorch can follow.

        PyTorch's compiler saves or recomputes the chosen tensors, and decides about all other tensors. Thunder is used
        only in the first call with gradients, to find the PyTorch operators that compute the chosen tensors. A
        `ConfigWarning` lists the choices that PyTorch cannot follow.

        Parameters
        ----------
        model : callable
            The function or module to compile.
        **options
            Other arguments of `torch.compile`. The backend is ``inductor`` (the default) or ``aot_eager``.
        """
        from workbench.compiler import api

        return api.torch_compile(self, model, options)

    def checkpoint(self, model: Any) -> Any:
        """Change an eager module so that its backward recomputes tensors as this config chooses, and return the module.

        The module is not compiled. Thunder is used only in the first call with gradients, to find the PyTorch operators
        that compute the chosen tensors. A `ConfigWarning` lists the choices that PyTorch cannot follow.

        Parameters
        ----------
        model : Module
        """
        from workbench.compiler import api

        return api.torch_checkpoint(self, model)

    def text(self, notes: Mapping[str, str] | None = None, *, file: str = "choices.py", compiled: str = "model") -> str:
        """Return the text of a Python file with this config, which `load` can read.

        Parameters
        ----------
        notes : mapping of str to str, optional
            Maps the id of a site to the comment that is written above its choice.
        file : str
            Name of the file. It is part of the docstring at the beginning of the file.
        compiled : str
            Name of the function or module that the docstring compiles.
        """
        lines = [
            f'"""Choices for Thunder: {_plain(self.program)}, device {self.device}, executor {self.executor}.',
            "",
            "A script can apply these choices without the app:",
            "",
            "    import workbench as wb",
            "",
            f"    config = wb.load('{_plain(file)}')",
            f"    fast = config.jit({compiled})  # thunder.jit with exactly these choices",
            "",
            *self._rank_lines(),
            "`wb.load` never executes this file. The arguments of `wb.Config` may only be literals. A choice is a site",
            "and its option; a site that is not named stays as in unmodified Thunder.",
            '"""',
            "",
            "import workbench as wb",
            "",
            "config = wb.Config(",
            f"    format_version={self.format_version},",
            f"    program={_literal(self.program)},",
            *_mapping_lines("settings", self.settings),
            f"    device={_literal(self.device)},",
            f"    executor={_literal(self.executor)},",
            f"    ranks={self.ranks},",
            *([f"    parallel={_literal(self.parallel)},"] if self.parallel else []),
            *([f"    capture={_literal(self.capture)},"] if self.capture != "interpreter" else []),
            *(_mapping_lines("parts", self.parts) if self.parts else []),
            *(_mapping_lines("modes", self.modes) if self.modes else []),
            *self._choice_lines(notes or {}),
            f"    fingerprint={_literal(self.fingerprint)},",
            *_mapping_lines("versions", self.versions),
            ")",
        ]
        return "\n".join(lines) + "\n"

    def write(
        self,
        path: str | os.PathLike[str],
        notes: Mapping[str, str] | None = None,
        *,
        overwrite: bool = False,
        compiled: str = "model",
    ) -> Path:
        """Write the config to a file, and return the path of the file.

        The file is written completely or not at all. An existing file is replaced in one step, and keeps its mode and
        owner. If `path` is a link, the target of the link is replaced.

        Parameters
        ----------
        path : path
        notes, compiled
            See `text`.
        overwrite : bool
            Whether to replace an existing file that is not a config.

        Raises
        ------
        ConfigError
            If the file cannot be written. The message contains the reason. An existing file is unchanged.
        """

        def may_replace(target: Path) -> str:
            return "" if overwrite or is_config(target) else "the file exists and is not a config"

        unchanged = "nothing was written, and the choices still apply"
        try:
            target = paths.check_writable(path)
            return paths.write(
                path, self.text(notes, file=target.name, compiled=compiled).encode(), may_replace=may_replace
            )
        except FileExistsError as error:
            raise ConfigError(
                f"cannot write {one_line(str(path))}: {paths.reason_of(error)}; {unchanged}",
                advice=Advice(
                    "give another name, or overwrite=True to replace it",
                    "give another name, or --force to replace it",
                    "give another name",
                ),
            ) from error
        except OSError as error:
            raise ConfigError(f"cannot write {one_line(str(path))}: {paths.reason_of(error)}; {unchanged}") from error

    def _rank_lines(self) -> list[str]:
        if not self.parallel:
            return []
        return [
            "Ranks share the program: run the script under torchrun, and call",
            "`torch.distributed.init_process_group` before `config.jit`.",
            "",
        ]

    def _choice_lines(self, notes: Mapping[str, str]) -> list[str]:
        if not self.choices:
            return ["    choices={},"]
        lines, last = ["    choices={"], ""
        for site in sorted(self.choices, key=site_order):
            if last and lever_of(site) != last:
                lines.append("")
            last = lever_of(site)
            if note := comment_of(notes.get(site, ""), site):
                lines.append(f"        # {note}")
            lines.append(f"        {_literal(site)}: {_literal(self.choices[site])},")
        return [*lines, "    },"]


def load(path: str | os.PathLike[str]) -> Config:
    """Read a config from a file. The file is parsed, but not executed.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not a config, or contains values that are not literals. The message names the
        line of an illegal statement or value.
    """
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(f"a config is read from a file: give its path; given {short_repr(path)}")
    name = one_line(str(path))
    try:
        data = paths.read(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"cannot read the config {name}: {paths.reason_of(error)}") from error
    return parse(_decode(data, name), name)


def parse(text: str, name: str = "choices.py") -> Config:
    """Read a config from the text of a config file. The text is parsed, but not executed.

    Parameters
    ----------
    text : str
    name : str
        Name of the file, for messages.

    Raises
    ------
    ConfigError
        If the text is not a config, or contains values that are not literals. The message names the line of an illegal
        statement or value.
    """
    name = one_line(name)
    return _read_call(_find_call(text, name), text, name)


def installed_versions() -> dict[str, str]:
    """Return the versions of the installed packages that may change the effect of a choice, for `Config.versions`."""
    versions = {}
    for package in ("lightning-thunder", "torch", "nvfuser-cu128-torch210", "thunder-workbench"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def _same_version(package: str, here: str, version: str) -> bool:
    """Return whether two versions are equal. A development version counts as the release that follows it."""
    if here == version or package != "thunder-workbench":
        return here == version
    try:
        one, other = Version(here), Version(version)
    except InvalidVersion:
        return False
    return Version(one.base_version) == Version(other.base_version)


def choices_of_part(choices: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the choices of the part `name`, with the part's name removed from the ids."""
    return {id.removeprefix(f"{name}:"): option for id, option in choices.items() if id.startswith(f"{name}:")}


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the config {name} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}"
        ) from None


def is_config(path: Path) -> bool:
    """Return whether a file is empty or contains only a config, so that it may be replaced.

    A file with only whitespace counts as empty. The fields of the config may be illegal.
    """
    try:
        data = paths.read(path, MOST_BYTES)
        if data.strip():
            _find_call(_decode(data, path.name), path.name)
    except (OSError, ConfigError):
        return False
    return True


_LEXEME = re.compile(
    r"""
    \#[^\n]*+
    | (?P<prefix>[A-Za-z]*+)
      (?: \"{3} (?:[^"\\]|\\.|"(?!""))*+ "{3} | '{3} (?:[^'\\]|\\.|'(?!''))*+ '{3}
        | "(?:[^"\\\n]|\\.)*+" | '(?:[^'\\\n]|\\.)*+' )
    | \w++
    | [^\w\s]
    """,
    re.VERBOSE | re.DOTALL,
)
"""Pattern of a token of Python code: a comment, a string, a word, or one other character except whitespace.

All repetitions are possessive, so that matching takes linear time.
"""


def _check_lexemes(text: str, name: str) -> None:
    """Raise `ConfigError` if the text contains an f-string or too many tokens.

    Python's parser would take too long: its time is quadratic in the number of f-strings.
    """
    for count, lexeme in enumerate(_LEXEME.finditer(text)):
        if "f" in (lexeme["prefix"] or "").lower():
            line = text.count("\n", 0, lexeme.start()) + 1
            raise _code_error(name, line, lexeme[0])
        if count == _MOST_LEXEMES:
            raise ConfigError(f"the config {name} is too large: it has more than {_MOST_LEXEMES} tokens")


def _find_call(text: str, name: str) -> ast.Call:
    """Return the call ``wb.Config(...)`` in the text of a config file. Raise `ConfigError` if there is other code."""
    if not text.strip():
        raise ConfigError(f"the config {name} is empty; {_LEGAL}")
    if len(text) > MOST_BYTES:
        raise ConfigError(f"the config {name} is too large: it has more than {MOST_BYTES} characters")
    for begin, what in _OTHER_FILES.items():
        if text.startswith(begin):
            raise ConfigError(f"{name} is not a config: it is {what}")
    _check_lexemes(text, name)
    try:
        with warnings.catch_warnings():
            # Ignore warnings about invalid escapes in strings. Python keeps the backslash of such an escape.
            warnings.simplefilter("ignore", SyntaxWarning)
            body = ast.parse(text).body
    except SyntaxError as error:
        raise ConfigError(f"{name}:{error.lineno or 1}: not valid Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{name}: not valid Python: {type(error).__name__}") from None
    calls: list[ast.Call] = []
    for place, statement in enumerate(body):
        match statement:
            case ast.Expr(value=ast.Constant(value=str())) if place == 0:
                pass
            case ast.Import(names=[ast.alias(name="workbench", asname="wb")]) if not calls:
                pass
            case ast.Assign(
                targets=[ast.Name(id="config")],
                value=ast.Call(func=ast.Attribute(value=ast.Name(id="wb"), attr="Config")) as call,
            ) if not calls:
                calls.append(call)
            case _:
                raise _code_at(name, text, statement)
    if not calls:
        raise ConfigError(f"{name} does not contain `config = wb.Config(...)`; {_LEGAL}")
    return calls[0]


def _read_call(call: ast.Call, text: str, name: str) -> Config:
    if call.args:
        raise _code_at(name, text, call.args[0])
    given: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg is None:
            raise _code_at(name, text, keyword.value)
        if keyword.arg in given:
            raise ConfigError(f"{name}:{keyword.lineno}: {one_line(keyword.arg)[:80]} is given twice")
        given[keyword.arg] = _read_literal(keyword.value, text, name)
    for keyword in call.keywords:
        if keyword.arg in _OF_TEXTS and isinstance(keyword.value, ast.Dict):
            for key, node in zip(keyword.value.keys, keyword.value.values, strict=True):
                try:
                    place = f"{keyword.arg}[{short_repr(key and _read_literal(key, text, name))}]"
                    _check_type(place, _read_literal(node, text, name), str, "a text")
                except ConfigError as error:
                    raise ConfigError(f"{name}:{node.lineno}: {error}") from None
    try:
        # Check the version before the keywords, because a newer format may have new keywords.
        _check_version(given.get("format_version", FORMAT_VERSION))
        fields = {field.name: field for field in dataclasses.fields(Config)}
        unknown = next((keyword for keyword in given if keyword not in fields), None)
        if unknown:
            raise ConfigError(
                f"unknown keyword {short_repr(unknown)} in wb.Config(...); legal: {', '.join(fields)}"
                f"{suggest_names(unknown, list(fields))}"
            )
        missing = [field.name for field in fields.values() if _is_required(field) and field.name not in given]
        if missing:
            raise ConfigError(f"wb.Config(...) lacks {', '.join(missing)}")
        config = Config(**given)
    except ConfigError as error:
        raise ConfigError(f"{name}:{call.lineno}: {error}") from None
    return config.with_places({id: f"{name}:{line}: " for id, line in _lines_of_choices(call)})


def _lines_of_choices(call: ast.Call) -> Iterator[tuple[str, int]]:
    """Yield the id of each choice in the file with the line of its option."""
    for keyword in call.keywords:
        if keyword.arg == "choices" and isinstance(keyword.value, ast.Dict):
            for key, option in zip(keyword.value.keys, keyword.value.values, strict=True):
                yield ast.literal_eval(key) if key is not None else "", option.lineno


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _read_literal(node: ast.expr, text: str, name: str) -> Any:
    """Return the value of a literal expression. Raise `ConfigError` if the expression is not a literal."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Constant | ast.Dict | ast.UnaryOp | ast.USub | ast.Load | ast.List | ast.Tuple):
            raise _code_at(name, text, part if isinstance(part, ast.expr) else node)
        if isinstance(part, ast.Dict):
            if None in part.keys:
                raise _code_at(name, text, part)
            seen = set()
            for key in part.keys:
                if isinstance(key, ast.Constant):
                    if key.value in seen:
                        raise ConfigError(f"{name}:{key.lineno}: {short_repr(key.value)} is given twice")
                    seen.add(key.value)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise _code_at(name, text, node) from None


def _code_at(name: str, text: str, node: ast.stmt | ast.expr) -> ConfigError:
    return _code_error(name, node.lineno, ast.get_source_segment(text, node) or "")


def _code_error(name: str, line: int, code: str) -> ConfigError:
    code = one_line(code.partition("\n")[0][:60])
    return ConfigError(f"{name}:{line}: contains code, which was not executed: `{code}`; {_LEGAL}")


def _check_type(label: str, value: Any, type_: type, legal: str) -> None:
    if not isinstance(value, type_) or (isinstance(value, bool) and type_ is int):
        raise ConfigError(f"{label} must be {legal}, given {short_repr(value)}")


def _check_version(version: Any) -> None:
    _check_type("format_version", version, int, "a whole number")
    if version != FORMAT_VERSION:
        age = "newer than this workbench, which reads" if version > FORMAT_VERSION else "unknown; legal:"
        raise ConfigError(f"format_version {short_repr(version)} is {age} {FORMAT_VERSION}")


def _check_setting(key: str, value: Any) -> None:
    what = f"settings[{short_repr(key)}]"
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{what} must be a text, a finite number, or True or False, given {short_repr(value)}")
    if isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
        raise ConfigError(f"{what} must have at most {_MOST_DIGITS} digits, given {short_repr(value)}")


def site_order(site: str) -> tuple[str, bool, list[tuple[int, str]]]:
    """Return the sort key of a site's id. Ids are sorted by lever.

    The settings of a lever come first. Numbers in ids are compared by value, so that layer 2 comes before layer 10.
    """
    lever = lever_of(site)
    parts = re.findall(r"[0-9]+|[^0-9]+", site, re.ASCII)
    return lever, site[len(lever) :].startswith(":"), [(len(p), p) if p[0] in "0123456789" else (-1, p) for p in parts]


def _mapping_lines(name: str, mapping: Mapping[str, Any]) -> list[str]:
    if not mapping:
        return [f"    {name}={{}},"]
    rows = [f"        {_literal(key)}: {_literal(value)}," for key, value in sorted(mapping.items())]
    return [f"    {name}={{", *rows, "    },"]


def _literal(value: str | float) -> str:
    """Return `value` as a Python literal. A string without double quotes is written in double quotes."""
    text = repr(value)
    if isinstance(value, str) and text.startswith("'") and '"' not in value:
        return f'"{text[1:-1]}"'
    return text


def comment_of(note: str, site: str) -> str:
    """Return `note` as one line for a comment, shortened to `_COMMENT_WIDTH` characters.

    Unprintable characters become spaces. The id of a site ends with a place, such as ``layers.0.mlp/silu``. If the note
    begins with this place, the place is omitted.
    """
    words = _one_line(note).removeprefix(_one_line(site.partition(":")[2]))
    return textwrap.shorten(words, _COMMENT_WIDTH, placeholder=" …")


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _plain(name: str) -> str:
    """Return `name` for a docstring: as one line, without backslashes and double quotes."""
    return _one_line(name).translate({ord("\\"): "/", ord('"'): "'"})
