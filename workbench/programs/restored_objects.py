"""Undo what a program's Python code changes while the workbench traces a copy of the program.

The copy has tensors, modules and optimizers of its own, and everything that these hold. Other objects of the user are
not copied: a list of losses that is a global variable, or a dictionary in which a hook keeps activations.
"""

from __future__ import annotations

import contextlib
import dis
import functools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from workbench.programs.identity import is_users
from workbench.programs.tensors import contents_of

_DICTIONARIES = (dict, OrderedDict, defaultdict, Counter)
_SEQUENCES = (list, deque)
_OF_A_MODULE = frozenset(vars(torch.nn.Module()))
"""Attributes that PyTorch gives each module. Most are empty dictionaries, and a model has ten thousands of them."""
_MOST_ITEMS = 1000
"""The search does not look at the items of a longer container, such as a data set."""


@contextlib.contextmanager
def restored_objects(*objects: Any) -> Iterator[None]:
    """At the end of the context, restore what code of `objects` may have changed in it.

    This covers lists, dictionaries, sets, the attributes of modules and of objects of a user's own classes, and the
    variables that a user's own functions assign. It does not cover tensors and objects of installed packages.
    """
    search = _Search()
    for each in objects:
        search.visit(each)
    try:
        yield
    finally:
        for restore in search.restores:
            restore()


class _Search:
    def __init__(self) -> None:
        self.restores: list[Callable[[], None]] = []
        self._is_users = functools.cache(is_users)
        self._seen: dict[int, Any] = {}
        """The visited objects by id. They stay alive, so that no other object gets the id of one of them."""

    def visit(self, root: Any) -> None:
        waiting = [root]
        while waiting:
            value = waiting.pop()
            if isinstance(value, torch.Tensor | str | bytes | int | float | complex | None) or id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            waiting.extend(self._inside(value))

    def _inside(self, value: Any) -> list[Any]:
        kind = type(value)
        if kind in _DICTIONARIES:
            self._keep_dictionary(value)
            return list(value.values()) if len(value) <= _MOST_ITEMS else []
        if kind in _SEQUENCES or kind is set:
            self._keep_items(value)
        if kind in _SEQUENCES or isinstance(value, tuple | set | frozenset):
            return list(value) if len(value) <= _MOST_ITEMS else []
        if isinstance(value, FunctionType):
            return self._in_function(value) if self._is_users(value.__module__ or "") else []
        if isinstance(value, MethodType):
            return [value.__self__, value.__func__]
        if isinstance(value, functools.partial):
            return [value.func, *value.args, *value.keywords.values()]
        if isinstance(value, staticmethod | classmethod):
            return [value.__func__]
        if isinstance(value, property):
            return [value.fget, value.fset]
        if isinstance(value, ModuleType):
            return list(vars(value).values()) if self._is_users(value.__name__) else []
        if isinstance(value, type):
            return list(vars(value).values()) if self._is_users(value.__module__) else []
        return self._in_object(value)

    def _in_object(self, value: Any) -> list[Any]:
        attributes = getattr(value, "__dict__", None)
        classes = [each for each in type(value).__mro__ if self._is_users(each.__module__)]
        is_module = isinstance(value, torch.nn.Module)
        if type(attributes) is not dict or not (classes or is_module):
            return []
        if not isinstance(value, torch.nn.modules.lazy.LazyModuleMixin):  # the first call gives it its parameters
            self._keep_dictionary(attributes)
        empty = [name for name in _OF_A_MODULE if is_module and not attributes.get(name)]
        return [*(item for name, item in attributes.items() if name not in empty), *classes]

    def _in_function(self, function: FunctionType) -> list[Any]:
        for cell in function.__closure__ or ():
            self._keep_cell(cell)
        for name in _globals_written(function.__code__):
            self._keep_global(function.__globals__, name)
        return list(contents_of(function).values())

    def _keep_dictionary(self, value: dict[Any, Any]) -> None:
        before = list(value.items())

        def restore() -> None:
            if not _same([each for pair in before for each in pair], [each for pair in value.items() for each in pair]):
                value.clear()
                for pair in before:
                    value.__setitem__(*pair)

        self.restores.append(restore)

    def _keep_items(self, value: Any) -> None:
        before = list(value)

        def restore() -> None:
            if not _same(before, list(value)):
                value.clear()
                (value.update if isinstance(value, set) else value.extend)(before)

        self.restores.append(restore)

    def _keep_cell(self, cell: CellType) -> None:
        try:
            before = cell.cell_contents
        except ValueError:  # a name that the enclosing function has not yet bound
            return
        self.restores.append(functools.partial(setattr, cell, "cell_contents", before))

    def _keep_global(self, known: dict[str, Any], name: str) -> None:
        if name in known:
            self.restores.append(functools.partial(known.__setitem__, name, known[name]))
        else:
            self.restores.append(functools.partial(known.pop, name, None))


def _same(before: list[Any], after: list[Any]) -> bool:
    return len(before) == len(after) and all(one is other for one, other in zip(before, after, strict=True))


@functools.lru_cache(4096)
def _globals_written(code: CodeType) -> frozenset[str]:
    own = (each.argval for each in dis.get_instructions(code) if each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"))
    return frozenset(own).union(*(_globals_written(each) for each in code.co_consts if isinstance(each, CodeType)))
