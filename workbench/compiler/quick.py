"""Thunder in less time: what it does again and again with one outcome is done once; every trace stays what it was.

Its bytecode interpreter interprets its own helpers too (what ``bool(x)`` and ``x in y`` do), and looks each builtin in
them up by four more frames of interpreted code: most of what it interprets is that. Each statement that it binds has
the signature of its symbol inspected, and each nesting of arguments is walked twice to find dataclasses that are not
there. Before each interpretation it looks up the source of every frame on the stack, to know the line of one. A part
can go once Thunder no longer does that: ``globals_lookup`` interprets nothing to find a builtin, ``Symbol.normalize``
keeps signatures, ``tree_flatten`` has its types in a constant, ``InterpreterRuntimeCtx`` asks for one frame.
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from workbench.compiler import quick_passes
from workbench.compiler.thunder_api import codeutils, interpreter, opcode_handlers, pytree, symbol, utils

_KINDS = (BuiltinFunctionType, FunctionType, ModuleType, type, type(NotImplemented))
"""What Thunder never puts a proxy in the place of, as it does with numbers and tensors."""

_known: WeakKeyDictionary[Any, dict[tuple[bool, str], Any]] = WeakKeyDictionary()
"""Of each interpretation, what names stood for: names of the interpreter's own module or not, and builtins of both."""

_load_global = opcode_handlers["LOAD_GLOBAL"]


def _load_global_once(inst: Any, /, stack: Any, co: CodeType, globals_dict: Any, **kwargs: Any) -> Any:
    """A global, looked up as ever, but for a builtin or a name of the interpreter's own that was looked up before."""
    name = co.co_names[inst.arg >> 1]  # the lowest bit says whether a call follows, which wants a null below
    names = interpreter.unwrap(globals_dict)
    own = names is vars(interpreter)
    value = names[name] if own and name in names else None if name in names else _builtin(names, name)
    if not isinstance(value, _KINDS):
        return _load_global(inst, stack=stack, co=co, globals_dict=globals_dict, **kwargs)
    known = _known.setdefault(interpreter.get_interpreterruntimectx(), {})
    found = known.get((own, name))
    if found is not None and found.value is value:
        if inst.arg & 1:
            stack.append(interpreter.wrap_const(interpreter.Py_NULL()))
        stack.append(found)
        return None
    outcome = _load_global(inst, stack=stack, co=co, globals_dict=globals_dict, **kwargs)
    if outcome is None:
        known[own, name] = stack.getitem_wrapped(-1)
    return outcome


def _builtin(names: dict[str, Any], name: str) -> Any:
    builtins = names.get("__builtins__")
    return (vars(builtins) if isinstance(builtins, ModuleType) else builtins or {}).get(name)


class _Standing:
    """A module of Python's, in the place of itself, with functions of it that keep what they gave."""

    def __init__(self, module: ModuleType, **functions: Callable[..., Any]) -> None:
        self._module = module
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


_instructions = functools.lru_cache(8192)(lambda code: tuple(dis.get_instructions(code)))

_signatures: WeakKeyDictionary[FunctionType, inspect.Signature] = WeakKeyDictionary()


_of_symbols: dict[int, tuple[Any, inspect.Signature]] = {}
"""Of symbols that stand in for others, as those of PyTorch's executor do; each with its symbol, which stays."""


def _signature(function: Any) -> inspect.Signature:
    if type(function) is symbol.Symbol:
        if id(function) not in _of_symbols:
            _of_symbols[id(function)] = (function, inspect.signature(function))
        return _of_symbols[id(function)][1]
    if type(function) is not FunctionType:
        return inspect.signature(function)
    found = _signatures.get(function)
    if found is None:
        found = _signatures[function] = inspect.signature(function)
    return found


_stock_normalize = symbol.Symbol.normalize
_positional: WeakKeyDictionary[FunctionType, int | None] = WeakKeyDictionary()
"""How many arguments a function takes that can all be given by their place, none else; -1 for any number of them."""


def _normalize(self: Any, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by place as they are, where a symbol takes no others."""
    if not kwargs and type(self.meta) is FunctionType:
        if self.meta not in _positional:
            _positional[self.meta] = _taken_by_place(self.meta)
        if _positional[self.meta] in (-1, len(args)):
            return args, {}
    found: tuple[tuple[Any, ...], dict[str, Any]] = _stock_normalize(self, *args, **kwargs)
    return found


def _taken_by_place(function: FunctionType) -> int | None:
    kinds = [parameter.kind for parameter in _signature(function).parameters.values()]
    if kinds == [inspect.Parameter.VAR_POSITIONAL]:
        return -1
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len(kinds) if all(kind in by_place for kind in kinds) else None


class _Stack:
    """As `inspect.stack`, but a frame's source is looked up when the frame is asked for."""

    def __init__(self, context: int = 1) -> None:
        self._innermost, self._context = sys._getframe(1), context

    def __getitem__(self, depth: int) -> inspect.FrameInfo:
        frame: FrameType | None = self._innermost
        for _ in range(depth):
            frame = frame and frame.f_back
        if frame is None:
            raise IndexError(depth)
        found = inspect.getframeinfo(frame, self._context)
        return inspect.FrameInfo(frame, *found, positions=found.positions)


_tree_flatten = pytree.tree_flatten
_tree_flatten_with_dataclass = pytree.tree_flatten_with_dataclass
_legal: set[type] = set()
"""Types that Thunder flattens."""
_plain: set[type] = set()
"""Types of leaves that are no dataclasses."""


def _flatten(args: Any, namespace: str = pytree.OPTREE_NAMESPACE) -> Any:
    kind = type(args)
    if kind in _legal:
        return pytree.optree.tree_flatten(args, none_is_leaf=True, namespace=namespace)
    found = _tree_flatten(args, namespace)
    if not isinstance(args, type):  # of a class it matters which
        _legal.add(kind)
    return found


def _flatten_with_dataclass(tree: Any) -> Any:
    """Flattened at once where no leaf is a dataclass, which Thunder would have to make known first."""
    if type(tree) not in _legal:
        return _tree_flatten_with_dataclass(tree)
    leaves, spec = _flatten(tree)
    for leaf in leaves:
        kind = type(leaf)
        if kind in _plain:
            continue
        if dataclasses.is_dataclass(kind):
            return _tree_flatten_with_dataclass(tree)
        _plain.add(kind)
    return leaves, spec


def _gather_tags(bsym: Any) -> set[Any]:
    """Into one set: Thunder makes two for each statement inside."""
    found: set[Any] = set()
    left = [bsym]
    while left:
        each = left.pop()
        if each.sym.tags is not None:
            found.update(each.sym.tags)
        found.update(each.tags)
        left.extend(each.subsymbols)
    return found


_QUICK: tuple[tuple[Any, str, Any], ...] = (
    (interpreter, "dis", _Standing(dis, get_instructions=_instructions)),
    (interpreter, "inspect", _Standing(inspect, stack=_Stack)),
    (symbol, "inspect", _Standing(inspect, signature=_signature)),
    (symbol, "gather_tags", _gather_tags),
    (symbol.Symbol, "normalize", _normalize),
    (symbol, "tree_flatten_with_dataclass", _flatten_with_dataclass),
    *((module, "tree_flatten", _flatten) for module in (codeutils, pytree, symbol, utils)),
    *quick_passes.METHODS,
)
"""A module or class of Thunder's, a name in it, and what stands there instead."""

_SHIPPED = tuple((module, name, getattr(module, name)) for module, name, _ in _QUICK)


def hasten() -> None:
    """Put what is quicker in its place, for all that Thunder compiles in this process."""
    opcode_handlers["LOAD_GLOBAL"] = _load_global_once
    for module, name, instead in (*_QUICK, *quick_passes.places(quick=True)):
        setattr(module, name, instead)


@contextlib.contextmanager
def as_shipped() -> Iterator[None]:
    """Inside, Thunder takes the time that it takes without the workbench, where that is what is measured."""
    opcode_handlers["LOAD_GLOBAL"] = _load_global
    for module, name, before in (*_SHIPPED, *quick_passes.places(quick=False)):
        setattr(module, name, before)
    try:
        yield
    finally:
        hasten()
