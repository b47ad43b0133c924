"""Notice changes of Python values that Thunder's interpreter has read, and changes that it makes while it traces.

The interpreter runs a program's Python code only while it traces. Thunder checks in each call whether the numbers and
strings that the code read are still the same. It does not check functions, the lengths of containers, whether an
attribute exists, or which tensors and modules a module holds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import os
import pickle
import random
import sys
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from workbench.compiler.frontend.trace_errors import remedy
from workbench.compiler.interop.thunder_patches import CHANGES_STATE, is_cached_property, record_functions
from workbench.errors import ProgramError
from workbench.interop.torch_private import tree_iter
from workbench.programs.tensors import contents_of

_MOST = 8
"""Largest number of states with compiled code; PyTorch's default limit for Dynamo is the same."""

_NO_CONTENT = (torch.Tensor, ModuleType, CodeType, str, bytes, int, float, complex, type(None), torch.dtype)
_LIBRARIES = ("torch.", "thunder.", "numpy.", "workbench.")
_ANY_NAME = frozenset(("vars", "__dict__", "getattr", "attrgetter", "__getattribute__"))
_ENVIRONMENT = frozenset(("environ", "getenv"))


class HeldState:
    """Shallow copies of all containers and attributes that a program can reach.

    With `functions`, the state also has attributes of classes and of modules outside of the libraries, if the functions
    name the attributes.

    Parameters
    ----------
    program : callable or torch.nn.Module
    functions : collection of function, optional
        Functions that the interpreter has visited. The globals that these functions read belong to the state. Of an
        object, only attributes that these functions name belong to it. Without functions, all attributes do.
    classes : collection of type, optional
        Further classes whose attributes belong to the state.
    """

    def __init__(self, program: Any, functions: Collection[FunctionType] = (), classes: Collection[type] = ()) -> None:
        own = [each for each in functions if not f"{each.__module__}.".startswith(_LIBRARIES)]
        names = set[str]().union(*(_names_of(each.__code__) for each in functions))
        told = set[str]().union(*(_names_of(each.__code__) for each in own))
        self.names = names if functions and told.isdisjoint(_ANY_NAME) else None
        """Names of the attributes that belong to the state; None for all."""
        self._named = names if functions else frozenset[str]()
        self._kept: list[tuple[Callable[[Any], Any], Any, Any, str]] = []
        self._seen: set[int] = set()
        named: list[FunctionType | type] = [*own, *classes]
        self._walk([(program, ""), *((each, each.__name__) for each in named)])
        if not told.isdisjoint(_ENVIRONMENT):
            self._walk([(dict(os.environ), "os.environ")])
            self._keep(_environment, os.environ, "os.environ")

    def changes(self) -> Iterator[str]:
        """Yield the name of each container or attribute whose content is not the kept content."""
        for read, holder, kept, path in self._kept:
            for name in _differences(kept, read(holder)):
                if read is _attributes and name not in kept and is_cached_property(holder, name, vars(holder)[name]):
                    continue
                yield path if name is None else f"{path}.{name}".lstrip(".")

    def holds(self) -> bool:
        """Return whether nothing has changed."""
        return next(self.changes(), None) is None

    def restore(self) -> None:
        """Give each container and each object its kept content again."""
        for read, holder, kept, _ in self._kept:
            if next(_differences(kept, read(holder)), _SAME) is _SAME:
                continue
            if isinstance(holder, list):
                holder[:] = kept
            elif isinstance(holder, deque):
                holder.clear()
                holder.extend(kept)
            elif isinstance(holder, FunctionType):
                _restore_function(holder, kept)
            elif isinstance(holder, dict | set):
                holder.clear()
                holder.update(kept)
            elif read is _generator_state:
                holder.__setstate__(pickle.loads(kept[0]))
            elif read is _attributes:
                vars(holder).clear()
                vars(holder).update(kept)

    def _walk(self, todo: list[tuple[Any, str]]) -> None:
        while todo:
            value, path = todo.pop()
            if self._named and isinstance(value, type | ModuleType) and id(value) not in self._seen:
                self._seen.add(id(value))
                if _is_own(value):
                    held = self._keep(functools.partial(_named_attributes, self._named), value, path)
                    # The functions that the interpreter visits are walked in any case.
                    others = [(name, each) for name, each in held.items() if not isinstance(each, FunctionType)]
                    todo += ((each, f"{path}.{name}") for name, each in others)
            if isinstance(value, _NO_CONTENT) or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            todo.append((type(value), type(value).__name__))
            if isinstance(value, np.random.Generator):
                value = value.bit_generator
            # Other code may draw between calls, so only draws while the interpreter traces are changes.
            if isinstance(value, _GENERATORS) and not isinstance(value, random.SystemRandom) and not self._named:
                self._keep(_generator_state, value, path)
            for read in _readers(value):
                content = self._keep(read, value, path)
                pairs = content.items() if isinstance(content, dict) else enumerate(content)
                todo += ((each, f"{path}.{name}".lstrip(".")) for name, each in pairs)

    def _keep(self, read: Callable[[Any], Any], holder: Any, path: str) -> Any:
        if read is _attributes and self.names is not None:
            names = self.names
            read = functools.partial(_some_attributes, names)
        content = read(holder)
        self._kept.append((read, holder, content, path))
        return content


def _restore_function(function: FunctionType, kept: dict[str, Any]) -> None:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for name in _differences(kept, contents_of(function)):
        if name in cells and name in kept:
            cells[name].cell_contents = kept[name]
        elif name in cells:
            del cells[name].cell_contents


def _readers(value: Any) -> Iterator[Callable[[Any], Any]]:
    """Yield the functions that read the content of a value, each as a new dictionary or list."""
    if isinstance(value, dict):
        yield dict
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield list
    elif isinstance(value, FunctionType):
        if not f"{value.__module__}.".startswith(_LIBRARIES):
            yield contents_of
    elif isinstance(value, MethodType):
        yield _method
    elif isinstance(value, functools.partial):
        yield _partial
    if hasattr(value, "__dict__") and not isinstance(value, FunctionType | type):
        yield _attributes


def _attributes(value: Any) -> dict[str, Any]:
    return dict(vars(value))


def _some_attributes(names: Collection[str], value: Any) -> dict[str, Any]:
    return {name: each for name, each in vars(value).items() if name in names}


_GENERATORS = (random.Random, np.random.RandomState, np.random.BitGenerator)


def _generator_state(value: Any) -> list[bytes]:
    return [pickle.dumps(value.__getstate__())]


def _is_own(value: type | ModuleType) -> bool:
    """Return whether a class or a module belongs neither to a library nor to Python."""
    name = value.__module__ if isinstance(value, type) else value.__name__
    return not f"{name}.".startswith(_LIBRARIES) and name.partition(".")[0] not in sys.stdlib_module_names


def _named_attributes(names: Collection[str], value: type | ModuleType) -> dict[str, Any]:
    """Return the attributes of a module, or of a class and its bases outside of the libraries, with these names."""
    bases = filter(_is_own, reversed(value.__mro__)) if isinstance(value, type) else (value,)
    return {name: each for base in bases for name, each in vars(base).items() if name in names}


def _method(value: MethodType) -> list[Any]:
    return [value.__self__, value.__func__]


def _partial(value: functools.partial[Any]) -> list[Any]:
    return [value.func, value.args, value.keywords]


def _environment(value: Any) -> dict[str, str]:
    return dict(value)


_SAME = object()


def _differences(kept: Any, now: Any) -> Iterator[Any]:
    """Yield the keys at which two dictionaries differ; None if two lists differ."""
    if isinstance(kept, dict):
        if kept.keys() != now.keys():
            yield from (name for name in kept.keys() ^ now.keys())
        yield from (name for name, value in kept.items() if name in now and not _is_same(value, now[name]))
    elif len(kept) != len(now) or not all(map(_is_same, kept, now)):
        yield None


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, MethodType):
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    return isinstance(one, int | float | complex | str | bytes) and repr(one) == repr(other)


@functools.lru_cache(4096)
def _names_of(code: CodeType) -> frozenset[str]:
    """Return the names and the strings in a code object and in the functions that it defines."""
    found = {*code.co_names, *(each for each in code.co_consts if isinstance(each, str))}
    return frozenset(found.union(*(_names_of(each) for each in code.co_consts if isinstance(each, CodeType))))


@contextlib.contextmanager
def refuse_changes(program: Any, args: Any, kwargs: Any) -> Iterator[None]:
    """Refuse a program that changes a Python value while it is traced in this context, and undo the change.

    The compiled program would not change the value. The interpreter would also store values of its trace.

    Raises
    ------
    ProgramError
        The message names the changed value.
    """
    before = HeldState({"": program, "args": args, "kwargs": kwargs})
    try:
        yield
    finally:
        changed = list(before.changes())
        before.restore()
    if changed:
        reason = f"{CHANGES_STATE} {changed[0]}"
        raise ProgramError(f"Thunder's interpreter cannot trace it: {remedy(reason)} ({reason})")


class _Identity:
    """Equal only to an identity of the same object. It does not keep the object alive, if Python allows that."""

    def __init__(self, value: Any) -> None:
        try:
            self._read: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._read = lambda: value

    def __eq__(self, other: object) -> bool:
        value = self._read()
        return value is not None and isinstance(other, _Identity) and value is other._read()


_EQUAL = (str, bytes, int, float, complex, type(None), torch.dtype, torch.device, torch.Size, enum.Enum)
_CONTAINERS = (dict, list, tuple, set, frozenset, deque, MethodType, functools.partial)


def _likeness(value: Any, names: Collection[str] | None, seen: dict[int, int], fixed: bool = False) -> Any:
    """Return a description of an argument. Compiled code for it also fits other arguments with an equal description.

    A plain object is described by its class and its attributes with these names. A module, a function, and an object
    without such attributes are described by their identity, too. Thunder itself checks the tensors of arguments. It
    does not check the tensors that a module or a function holds, so these (`fixed`) are described by their identity.
    """
    if isinstance(value, _EQUAL):
        return type(value), repr(value)
    if isinstance(value, torch.Tensor):
        return _Identity(value) if fixed else type(value)
    if isinstance(value, ModuleType | CodeType | type):
        return _Identity(value)
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = len(seen)
    fixed = fixed or isinstance(value, torch.nn.Module | FunctionType | MethodType | functools.partial)
    parts = []
    for read in _readers(value):
        content = read(value)
        for name, each in content.items() if isinstance(content, dict) else enumerate(content):
            if read is not _attributes or names is None or name in names:
                parts.append((_likeness(name, names, seen, True), _likeness(each, names, seen, fixed)))
    known = isinstance(value, _CONTAINERS) or (parts and not fixed)
    return type(value), None if known else _Identity(value), parts


class _Compiled:
    """The code that is compiled for one state of a program."""

    def __init__(self) -> None:
        self.cache: list[Any] = []
        self.functions: set[FunctionType] = set()
        self.objects: Any = None
        self.state: HeldState | None = None

    def takes(self, objects: list[Any]) -> bool:
        """Return whether the code is right for the program's state now and for these objects among the arguments."""
        if self.state is None or self.objects != _likeness(objects, self.state.names, {}):
            return False
        return self.state.holds()


def follow_state(program: Any, jitted: Any) -> Callable[..., Any]:
    """Return the call of a result of `thunder.jit`, which compiles again if the program's Python values have changed.

    Parameters
    ----------
    program : callable or torch.nn.Module
    jitted : callable or torch.nn.Module
        Result of `thunder.jit` for this program, traced by the interpreter.
    """
    call = jitted.forward if isinstance(jitted, torch.nn.Module) else jitted
    stats = jitted._lc_cs
    known: list[_Compiled] = []
    held = _tensors_of(program)

    @functools.wraps(call)
    def call_in_state(*args: Any, **kwargs: Any) -> Any:
        objects = [
            each
            for each in tree_iter((args, kwargs))
            if not isinstance(each, _NO_CONTENT) and not dataclasses.is_dataclass(each)
        ]
        found = next((each for each in known if each.takes(objects)), None)
        if found is None:
            if replaced := held ^ _tensors_of(program):
                name, _ = min(replaced)
                raise ProgramError(
                    f"{name} of the module is another tensor than when the module was compiled: compile the module "
                    "again with config.jit, or write into the tensor, as module.load_state_dict does"
                )
            found = _Compiled()
        stats.interpreter_cache = found.cache
        with record_functions() as functions:
            made = call(*args, **kwargs)
        if functions:
            found.functions |= functions
            found.state = HeldState(program, found.functions, {type(each) for each in objects})
            found.objects = _likeness(objects, found.state.names, {})
            known[:] = [found, *(each for each in known if each is not found)][:_MOST]
        return made

    return call_in_state


def _tensors_of(program: Any) -> set[tuple[str, int]]:
    """Return the names of a module's parameters and buffers, each with the tensor's identity."""
    if not isinstance(program, torch.nn.Module):
        return set()
    named = (*program.named_parameters(remove_duplicate=False), *program.named_buffers(remove_duplicate=False))
    return {(name, id(tensor)) for name, tensor in named}
