"""Identity of a program before tracing: a digest of its code and of the data that tracing reads from it.

A capture on disk is reused only for the same program, down to the line numbers of its functions. The digest is of
objects in memory, not of files, because a function in memory may differ from its file. If an object of a program cannot
be compared, the program has no identity and its capture is not reused; `UnknownError` describes the object.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import gc
import hashlib
import importlib
import importlib.util
import logging
import os
import re
import sys
import sysconfig
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    DynamicClassAttribute,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from workbench.interop.torch_private import (
    OPDEFS,
    CustomOpDef,
    FakeTensor,
    FakeTensorMode,
    OpOverload,
    OpOverloadPacket,
)
from workbench.programs.code_reads import CodeRead, reads_of

_MOST = 500_000
"""Maximum number of objects to read; a program with more objects has no identity."""

_OF_OPERATORS = ("_qualname", "_init_fn", "_abstract_fn", "_setup_context_fn", "_backward_fn")

_MOST_WRAPPED = 8
"""Maximum number of decorators on one function."""

_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_SITE = sysconfig.get_paths()["purelib"] + os.sep
_WORKBENCH = os.path.dirname(os.path.dirname(__file__)) + os.sep
_VERSIONED = ("torch", "thunder", "nvfuser", "numpy")
"""Packages whose code is not digested, because the key of the capture cache contains their versions."""

_NAMED = (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
    GenericAlias,
    UnionType,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    logging.Logger,
    logging.Handler,
    type(threading.Lock()),
    type(threading.RLock()),
    threading.local,
    re.Pattern,
    range,
    slice,
    FakeTensorMode,
    OpOverload,
    OpOverloadPacket,
)
"""Types whose objects are identified by their text, or have no effect on the computation."""


_ENVIRONMENT = (os.environ, os.getenv)
_OF_SHELLS = frozenset({"_", "COLUMNS", "LINES", "OLDPWD", "PWD", "SHLVL", "PYTEST_CURRENT_TEST", "PYTHONHASHSEED"})
"""Environment variables that differ between processes, and that say nothing about the program."""

_ABSENT: Any = object()


class UnknownError(Exception):
    """An object of a program cannot be compared."""


@dataclasses.dataclass(frozen=True)
class TracedFunction:
    """A witness of a trace: a function that tracing visited, and its name, by which a different process finds it.

    If all witnesses of a trace hold in a process, tracing there gives the same trace.

    Attributes
    ----------
    module, name : str
        The module that contains the function, and the function's qualified name there.
    way : tuple of str
        Path from the object of that name to the function, if the object wraps the function; empty if it does not.
    digest : str
        Digest of the function's code with its line numbers, and of the values outside the function that it reads.
    """

    module: str
    name: str
    way: tuple[str, ...]
    digest: str

    def holds(self, kinds: frozenset[type | str]) -> bool:
        """Return whether this process has the same function under this name.

        `kinds` are the classes of the program's objects; see `program_digest`.
        """
        try:
            return _DigestWriter(kinds).digest(self._resolve()) == self.digest
        except (UnknownError, AttributeError, KeyError, IndexError, ValueError, TypeError):
            return False

    def _resolve(self) -> Any:
        at: Any = sys.modules[self.module]
        for part in self.name.split("."):
            at = _static(at, part)
        for step in self.way:
            at = _wrapped_functions(at)[step]
        return at


@dataclasses.dataclass(frozen=True)
class OperatorWitness:
    """A witness of a trace: an operator of a library that the program calls.

    Attributes
    ----------
    name : str
        ``library::name``.
    digest : str
        Digest of the functions that are registered for the operator.
    """

    name: str
    digest: str

    @classmethod
    def of(cls, name: str) -> OperatorWitness:
        """Return the witness of the operator `name`, as it is registered now.

        Raises
        ------
        UnknownError
            If the operator was not registered by `torch.library.custom_op`, so that its implementation cannot be
            inspected.
        """
        if name not in OPDEFS:
            raise UnknownError(f"it calls {name}, which is compiled")
        return cls(name, digest_of(OPDEFS[name]))

    def holds(self, kinds: frozenset[type | str]) -> bool:  # the same parameter as in `TracedFunction`
        """Return whether this process has the same operator under this name."""
        try:
            return self.of(self.name) == self
        except (UnknownError, KeyError):
            return False


def is_versioned(file: str) -> bool:
    """Return whether a file belongs to Python, the workbench, or a package in `_VERSIONED`."""
    if file.startswith((_WORKBENCH, "<frozen", "<workbench>", "<graph>")):
        return True
    if file.startswith(_SITE):
        return file[len(_SITE) :].split(os.sep, 1)[0] in _VERSIONED
    return file.startswith(_STDLIB)


def digest_of(*objects: Any) -> str:
    """Return a digest of some objects and of the objects to which they refer.

    Functions in globals and in modules are digested by name only, because tracing visits a function that is called.

    Raises
    ------
    UnknownError
        If one of these objects cannot be compared.
    """
    return _DigestWriter().digest(objects)


def program_digest(*objects: Any) -> tuple[str, frozenset[CodeType], frozenset[type | str]]:
    """Return a digest of some objects, with the code and the classes that are part of it.

    Returns
    -------
    digest : str
    codes : frozenset of CodeType
        Code of the functions in the digest, except functions for whose file `is_versioned` is true.
    kinds : frozenset of type and str
        Classes of all objects in the digest, and their base classes. Each is listed as a class and as its ``str``.

    Raises
    ------
    UnknownError
        If an object cannot be compared.
    """
    reader = _DigestWriter()
    digest = reader.digest(objects)
    kinds = {base for kind in set(map(type, reader.alive)) for base in kind.__mro__}
    return digest, frozenset(reader.codes), frozenset([*kinds, *map(str, kinds)])


def witnesses(
    codes: Iterable[CodeType],
    functions: Iterable[FunctionType],
    known_codes: frozenset[CodeType],
    kinds: frozenset[type | str],
) -> tuple[TracedFunction, ...]:
    """Return the witnesses of a trace. If all of them hold in a process, tracing there gives the same trace.

    Parameters
    ----------
    codes : iterable of CodeType
        Code that tracing visited.
    functions : iterable of FunctionType
        Functions with such code, as far as they are known.
    known_codes : set of CodeType
        Code that is part of the program's own digest.
    kinds : set of type and str
        The classes of the program's objects, from `program_digest`.

    Raises
    ------
    UnknownError
        If a different process could not find a function by its name.
    """
    passed = {code.co_filename for code in codes} | {f.__code__.co_filename for f in functions}
    left = {code for code in codes if not is_versioned(code.co_filename)}
    mine = {f for f in functions if not is_versioned(f.__code__.co_filename)}
    left -= {f.__code__ for f in mine}
    if left:
        # For the code in `left`, no function is known. Find each function by its code's name or, if that fails, among
        # the functions that the garbage collector tracks; `gc.freeze` hides functions from this search.
        files: dict[str, list[ModuleType]] = {}
        for module in list(sys.modules.values()):
            files.setdefault(str(getattr(module, "__file__", None)), []).append(module)
        by_name = set(filter(None, (_by_name(code, files.get(code.co_filename, ())) for code in left)))
        wanted = frozenset(left) - {f.__code__ for f in by_name}
        mine |= by_name
        sharing: dict[CodeType, list[FunctionType]] = {}
        for function in gc.get_referrers(*wanted):
            if isinstance(function, FunctionType) and function.__code__ in wanted:
                sharing.setdefault(function.__code__, []).append(function)
        for alike in sharing.values():
            # Functions that one decorator makes share their code. Leave out functions from files that tracing did not
            # visit, because these functions belong to other programs.
            mine.update([f for f in alike if _file_of(f) in passed] or alike)
    found: dict[TracedFunction, None] = {}
    covered, lost = set(_with_nested(known_codes)), {}
    for function in mine:
        try:
            outer = _witness_of(function, kinds) or _witness_of_decorator(function, kinds)
            found[outer] = None
            covered.update(_with_nested([outer._resolve().__code__]))
        except (UnknownError, AttributeError, KeyError) as error:
            lost[function.__code__] = error
    for code in (*left, *lost):
        if code not in covered:
            why = f": {lost[code]}" if isinstance(lost.get(code), UnknownError) else ""
            raise UnknownError(f"{code.co_qualname} cannot be found by its name{why}")
    return tuple(found)


def _by_name(code: CodeType, modules: Iterable[ModuleType]) -> FunctionType | None:
    """Return the function with this code if one of `modules` has it under the code's qualified name; else None."""
    for module in modules:
        found: Any = module
        try:
            for part in code.co_qualname.split("."):
                found = _static(found, part)
        except (AttributeError, KeyError):
            continue
        if isinstance(found, FunctionType) and found.__code__ is code:
            return found
    return None


def _file_of(function: FunctionType) -> str:
    """Return the file of a function's module. A wrapper made by `functools.wraps` has the wrapped function's module."""
    return str(getattr(sys.modules.get(function.__module__), "__file__", function.__code__.co_filename))


def _with_nested(codes: Iterable[CodeType]) -> Iterator[CodeType]:
    for code in codes:
        yield code
        yield from _with_nested(each for each in code.co_consts if isinstance(each, CodeType))


def _witness_of(function: FunctionType, kinds: frozenset[type | str]) -> TracedFunction | None:
    """Return the witness of a function that is defined at the top level of a module or in a class; else None."""
    name = function.__qualname__
    return (
        None if "<locals>" in name else _find_wrapped(function.__module__, name, lambda found: found is function, kinds)
    )


def _witness_of_decorator(function: FunctionType, kinds: frozenset[type | str]) -> TracedFunction:
    """Return the witness of the library's decorator that made a function. It ignores the decorator's arguments."""
    code = function.__code__
    if not code.co_filename.startswith(_SITE):
        raise UnknownError("another function creates it while running")
    name = code.co_qualname.partition(".<locals>")[0]
    return _find_wrapped(
        function.__globals__["__name__"], name, lambda found: code in _with_nested([found.__code__]), kinds
    )


def _find_wrapped(
    module: str, name: str, matches: Callable[[FunctionType], bool], kinds: frozenset[type | str]
) -> TracedFunction:
    at: Any = sys.modules[module]
    for part in name.split("."):
        at = _static(at, part)
    ways: deque[tuple[Any, tuple[str, ...]]] = deque([(at, ())])
    seen = set()
    while ways:
        found, way = ways.popleft()
        if isinstance(found, FunctionType) and matches(found):
            return TracedFunction(module, name, way, _DigestWriter(kinds).digest(found))
        if id(found) in seen or len(way) > _MOST_WRAPPED:
            continue
        seen.add(id(found))
        ways.extend((inner, (*way, step)) for step, inner in _wrapped_functions(found).items())
    raise UnknownError("its name now belongs to another function")


def _static(holder: Any, name: str) -> Any:
    """Return an attribute as it is stored: for a method of a class, the plain function or the `classmethod` object."""
    if isinstance(holder, type):
        return vars(holder)[name]
    return getattr(holder, name)


def _wrapped_functions(wrapper: Any) -> dict[str, Any]:
    """Return the functions that a decorator's result wraps, by the attribute or closure variable that holds them."""
    found: dict[str, Any] = {}
    for name in ("__wrapped__", "__func__", "fget", "func"):
        inner = getattr(wrapper, name, None)
        if isinstance(inner, FunctionType | functools.partial | staticmethod | classmethod):
            found[name] = inner
    if isinstance(wrapper, FunctionType):
        for name, cell in zip(wrapper.__code__.co_freevars, wrapper.__closure__ or (), strict=True):
            try:
                if isinstance(cell.cell_contents, FunctionType):
                    found[f"closure {name}"] = cell.cell_contents
            except ValueError:  # a name that the enclosing function has not yet bound
                continue
    return found


class _DigestWriter:
    """Writes the identity of objects into a digest. If an object occurs again, only its number is written.

    Parameters
    ----------
    kinds : set of type, optional
        Classes of a program's objects, from `program_digest`. If a library keeps a cache by class, only the cache's
        entries for these classes are digested. Other programs in the process may add entries for their own classes.
    """

    def __init__(self, kinds: frozenset[type | str] | None = None, *, in_library: bool = False) -> None:
        self._kinds = kinds
        self._in_library = in_library
        self._hash = hashlib.sha256()
        self._numbers: dict[int, int] = {}
        self.alive: list[Any] = []
        self._storages: dict[int, int] = {}
        self.codes: set[CodeType] = set()
        self._classes: set[type] = set()

    def digest(self, objects: Any) -> str:
        try:
            self._digest_value(objects)
        except RecursionError:
            raise UnknownError("it is nested too deeply") from None
        return self._hash.hexdigest()

    def _say(self, *words: object) -> None:
        self._hash.update(repr(words).encode(errors="backslashreplace"))

    def _digest_value(self, value: Any) -> None:
        kind = type(value)
        if value is None or value is ... or kind in (bool, int, float, complex, str, bytes):
            self._say(kind.__name__, value)
            return
        if id(value) in self._numbers:
            self._say("again", self._numbers[id(value)])
            return
        self._numbers[id(value)] = len(self._numbers)
        self.alive.append(value)  # keep the object alive, so that no other object gets its id
        if len(self._numbers) > _MOST:
            raise UnknownError(f"it contains more than {_MOST:,} objects")
        self._say(f"{kind.__module__}.{kind.__qualname__}")
        self._attributes_of_class(kind)
        for kinds, read in _READERS:
            if isinstance(value, kinds):
                read(self, value)
                return
        self._object(value)

    def _tensor(self, tensor: torch.Tensor) -> None:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter, FakeTensor) or tensor.layout != torch.strided:
            raise UnknownError(f"it contains a tensor of a special type, {type(tensor).__name__}")
        storage = tensor.untyped_storage()
        number = self._storages.setdefault(storage._cdata, len(self._storages))
        self.alive.append(storage)
        self._say(
            *(tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, str(tensor.device)),
            *(tensor.requires_grad, tensor.is_leaf, tensor.is_conj(), tensor.is_neg()),
            *(number, storage.nbytes(), isinstance(tensor, torch.nn.Parameter)),
        )

    def _digest_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self._digest_value(value)
        self._say("end")

    def _mapping(self, mapping: Mapping[Any, Any]) -> None:
        for key, value in list(mapping.items()):
            if self._is_of_another(key):
                continue
            self._digest_value(key)
            self._digest_value(value)
        self._say("end")
        if type(mapping) not in (dict, OrderedDict, MappingProxyType):
            self._attributes(mapping)

    def _set(self, values: Iterable[Any]) -> None:
        # A set has no order, so digest each element separately and sort the digests.
        kept = [value for value in values if not self._is_of_another(value)]
        self._say(sorted(_DigestWriter(self._kinds, in_library=self._in_library).digest(value) for value in kept))

    def _is_of_another(self, key: Any) -> bool:
        """Return whether a key in a library's cache is a library class without objects in the program."""
        if self._kinds is None or not self._in_library:
            return False
        if isinstance(key, type):
            return key not in self._kinds and _is_installed(key.__module__)
        spelled = isinstance(key, str) and key.startswith("<class '")
        return spelled and key not in self._kinds and _is_installed(key[len("<class '") :])

    def _variable(self, variable: ContextVar[Any]) -> None:
        self._say(variable.name)
        self._digest_value(variable.get(None))

    def _class(self, kind: type) -> None:
        self._say(kind.__module__, kind.__qualname__)
        self._attributes_of_class(kind)

    def _attributes_of_class(self, kind: type) -> None:
        """Digest the data in the bodies of a class and its base classes, because methods may read these data."""
        for base in kind.__mro__:
            top = base.__module__.partition(".")[0]
            if base in self._classes or top in _VERSIONED or top in sys.stdlib_module_names:
                continue
            self._classes.add(base)
            names = {k: v for k, v in vars(base).items() if not k.startswith("__")}
            if not is_users(base.__module__):
                plain = {k: repr(v) for k, v in names.items() if isinstance(v, bool | int | float | str | tuple)}
                self._say(base.__qualname__, dict(sorted(plain.items())))
                continue
            self._say(base.__qualname__)
            if issubclass(base, enum.Enum):  # its private names are Python's own
                names = {k: v for k, v in names.items() if not k.startswith("_")} | dict(base.__members__)
            for name, value in sorted(names.items()):
                if isinstance(value, FunctionType):
                    self._say("attribute", name, value.__qualname__)
                elif name != "_abc_impl":
                    self._say("attribute", name)
                    self._digest_value(value)
        self._say("end")

    def _enum(self, member: enum.Enum) -> None:
        self._say(member.name)
        self._digest_value(member.value)

    def _module(self, module: ModuleType) -> None:
        """Digest the data of a user's module. Identify other modules by name."""
        self._say(module.__name__)
        if not is_users(module.__name__):
            return
        for name, value in sorted(vars(module).items()):
            if not name.startswith("__"):
                self._say("global", name)
                self._named_or_value(value)

    def _named_or_value(self, value: Any) -> None:
        if isinstance(value, FunctionType | type | ModuleType):
            self._say(getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__))
        else:
            self._digest_value(value)

    def _descriptor(self, value: Any) -> None:
        """Digest the functions of a property or the like by name, because tracing visits a function that is called."""
        for name in ("fget", "fset", "fdel", "func", "__func__"):
            self._say(name)
            self._named_or_value(getattr(value, name, None))
        if is_users(type(value).__module__):
            self._attributes(value)

    def _code(self, code: CodeType) -> None:
        self.codes.add(code)
        self._say(
            *(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags),
            *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_exceptiontable),
            *(code.co_filename, code.co_firstlineno, code.co_linetable),
        )
        self._digest_all(code.co_consts)

    def _function(self, function: FunctionType) -> None:
        self._say(function.__module__, function.__qualname__)
        if is_versioned(function.__code__.co_filename):
            # All lambda functions of a module have one name, so tell them apart by their lines and columns.
            self._say(function.__code__.co_firstlineno, function.__code__.co_linetable)
            self._contents(function)
            return
        self._code(function.__code__)
        around = self._in_library
        self._in_library = function.__code__.co_filename.startswith(_SITE)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for read in reads_of(function.__code__):
            if read.kind == "global":
                if read.name in function.__globals__:
                    self._read(function.__globals__[read.name], read, function)
            elif read.kind == "import":
                self._read(_imported(read, function), read, function)
            elif read.name in cells:
                content = _content_of(cells[read.name])
                if isinstance(content, ModuleType | FunctionType | type):
                    self._read(content, read, function)
        self._contents(function)
        self._in_library = around

    def _read(self, value: Any, read: CodeRead, function: FunctionType) -> None:
        """Digest the value that a function's code reads; `value` is the value of the first name of `read`."""
        self._say(read.kind, read.name, read.attributes)
        versioned = False
        for name in read.attributes:
            if any(value is each for each in _ENVIRONMENT):
                break
            if isinstance(value, ModuleType | type):
                home = value.__module__ if isinstance(value, type) else value.__name__
                if isinstance(value, type) and is_users(home):
                    break  # all data of the class are digested
                versioned = not is_users(home) and not _is_installed(home)
                versioned |= home.partition(".")[0] in _VERSIONED
            elif not (versioned or (isinstance(value, FunctionType) and name in vars(value))):
                break  # the object is digested with its attributes
            value = _attribute(value, name, versioned)
        if value is _ABSENT and read.kind == "import":
            # If tracing imports the module, this digest lacks its data: digest the function again after tracing.
            self.codes.difference_update(_with_nested([function.__code__]))
        if any(value is each for each in _ENVIRONMENT):
            self._environment(read, function)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, ModuleType):
            self._digest_value(value)
        elif versioned and not _is_light(value):
            self._say(type(value).__qualname__)
        else:
            self._named_or_value(value)

    def _environment(self, read: CodeRead, function: FunctionType) -> None:
        """Digest the environment variable that code reads. If its name is computed, digest all variables."""
        kind, key = read.key or ("", "")
        name = function.__globals__.get(key) if kind == "global" else key
        if kind and isinstance(name, str):
            self._say("environment", name, os.environ.get(name))
        else:
            self._say("environment", sorted(each for each in os.environ.items() if each[0] not in _OF_SHELLS))

    def _contents(self, function: FunctionType) -> None:
        """Digest the defaults of a function and the values in its closure."""
        self._digest_value(function.__defaults__)
        self._digest_value(function.__kwdefaults__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._say("closure", name)
            content = _content_of(cell)
            if isinstance(content, ModuleType | type) and not is_versioned(function.__code__.co_filename):
                self._named_or_value(content)  # the code's reads tell what is read from it
            else:
                self._digest_value(content)

    def _object(self, value: Any) -> None:
        if type(value) is object:  # the object is a unique marker without content
            return
        if type(value).__module__ == "typing":
            self._say(str(value))
            return
        if not hasattr(value, "__dict__") and not _slots(type(value)):
            raise UnknownError(f"it contains a {type(value).__module__}.{type(value).__qualname__}")
        self._attributes(value)

    def _attributes(self, value: Any) -> None:
        for name, content in sorted(getattr(value, "__dict__", {}).items()):
            if name.endswith("_hash") and isinstance(content, int):  # a cached hash differs in each process
                continue
            self._say("attribute", name)
            if isinstance(value, torch.nn.Module) and "_hooks" in name and isinstance(content, dict):
                # Leave out the keys: they come from a counter of all hooks in the process.
                self._digest_all(content.values())
            else:
                self._digest_value(content)
        for name in _slots(type(value)):
            self._say("slot", name)
            self._digest_value(getattr(value, name, None))


def is_users(module: str) -> bool:
    """Return whether a module belongs to neither Python nor an installed package, so that a user may edit it."""
    if module.partition(".")[0] in _VERSIONED:
        return False
    found = sys.modules.get(module)
    places = [getattr(found, "__file__", None), *getattr(found, "__path__", ())]
    file = next((str(place) for place in places if place is not None), None)
    if file is None:  # a module of the interpreter, or of a notebook
        return module.partition(".")[0] not in sys.stdlib_module_names
    return not file.startswith(_SITE) and not is_versioned(file)


def _content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that the enclosing function has not yet bound
        return None


def _imported(read: CodeRead, function: FunctionType) -> Any:
    """Return the module that a function's code imports, without running a user's module.

    Return None if the module belongs to an installed package, and `_ABSENT` if it is a user's and is not imported.
    """
    try:
        name = importlib.util.resolve_name(read.name, str(function.__globals__.get("__package__") or ""))
        top = name.partition(".")[0]
        if top in sys.modules:
            if _is_installed(top) and top not in _VERSIONED:
                return None  # other programs decide whether its modules were imported before
            fixed = top in _VERSIONED or (top in sys.stdlib_module_names and not is_users(top))
        else:
            found = importlib.util.find_spec(top)
            origin = next(iter([found.origin, *(found.submodule_search_locations or ())]), None) if found else _SITE
            if origin is not None and origin.startswith(_SITE) and top not in _VERSIONED:
                return None
            fixed = top in _VERSIONED or origin in ("built-in", "frozen") or is_versioned(origin or "")
        return importlib.import_module(name) if fixed else sys.modules.get(name, _ABSENT)
    except ImportError:
        return None
    except Exception as error:
        raise UnknownError(f"it imports {read.name}: {error}") from error


def _attribute(value: Any, name: str, versioned: bool) -> Any:
    """Return an attribute, for a class as it is stored. Do not run a user's or a library's code for the attribute."""
    if isinstance(value, type):
        return next((vars(base)[name] for base in value.__mro__ if name in vars(base)), _ABSENT)
    if versioned:
        try:
            return getattr(value, name)
        except Exception:  # noqa: BLE001  # an operator that is not built in, for example
            return _ABSENT
    return vars(value).get(name, _ABSENT)


def _is_light(value: Any, depth: int = 3) -> bool:
    """Return whether a value consists of a few numbers and texts."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype | torch.device):
        return True
    if not depth or not isinstance(value, list | tuple | set | frozenset | dict) or len(value) > 1000:
        return False
    items = [*value, *value.values()] if isinstance(value, dict) else value
    return all(_is_light(item, depth - 1) for item in items)


def _is_installed(name: str) -> bool:
    """Return whether a module, or an object in it, belongs to an installed library."""
    home = sys.modules.get(name.partition(".")[0])
    return str(getattr(home, "__file__", "")).startswith(_SITE)


def _slots(kind: type) -> list[str]:
    found = [vars(each).get("__slots__", ()) for each in kind.__mro__ if each.__module__ != "builtins"]
    names = [name for slots in found for name in ((slots,) if isinstance(slots, str) else slots)]
    return [name for name in names if name not in ("__dict__", "__weakref__")]


_READERS: tuple[tuple[Any, Callable[[_DigestWriter, Any], None]], ...] = (
    (torch.Tensor, _DigestWriter._tensor),
    (enum.Enum, _DigestWriter._enum),
    (_NAMED, lambda reader, value: reader._say("" if type(value).__module__ == "_thread" else str(value)[:500])),
    (ContextVar, _DigestWriter._variable),
    (weakref.ReferenceType, lambda reader, value: reader._digest_value(value())),
    (type, _DigestWriter._class),
    (ModuleType, _DigestWriter._module),
    (FunctionType, _DigestWriter._function),
    (CodeType, _DigestWriter._code),
    (
        property | classmethod | staticmethod | functools.cached_property | DynamicClassAttribute,
        _DigestWriter._descriptor,
    ),
    (MethodType, lambda reader, value: reader._digest_all((value.__self__, value.__func__))),
    # An operator is identified by its registrations. Its other fields only locate it in PyTorch's dispatcher.
    (CustomOpDef, lambda reader, value: reader._digest_all(getattr(value, name) for name in _OF_OPERATORS)),
    (functools.partial, lambda reader, value: reader._digest_all((value.func, value.args, value.keywords))),
    (int | float | complex | str | bytes, lambda reader, value: reader._say(repr(value))),
    (Mapping, _DigestWriter._mapping),
    (list | tuple | deque, _DigestWriter._digest_all),
    (set | frozenset, _DigestWriter._set),
)
"""Digest method for each type. The first entry whose type matches an object is used."""
