"""Install the memoized replacements of slow Thunder functions.

Traces do not change, except for the names of values that are written in place; see `alias_renaming`.

The replacements avoid the following work of Thunder:

- Thunder's bytecode interpreter also interprets its own helpers, such as those of ``bool(x)`` and ``x in y``. To look
  up a builtin that a helper uses, it interprets four further frames. Most of the interpreted code is in these frames.
- For each statement, Thunder inspects the signature of the symbol, and searches the arguments twice for dataclasses,
  although dataclasses are rare.
- Before each interpretation, Thunder looks up the source of every frame on the stack, but uses the line of one frame.

Delete a replacement once Thunder avoids the repeated work itself. The conditions are:

- ``globals_lookup`` interprets nothing to find a builtin.
- ``Symbol.normalize`` stores signatures.
- ``tree_flatten`` reads its types from a constant.
- ``InterpreterRuntimeCtx`` requests only one frame.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from workbench.compiler.fastpath import passes, symbols
from workbench.compiler.interop.thread_patches import (
    ModuleStandIn,
    PatchTarget,
    ThreadPatches,
    replace_function,
    replace_in_module,
)
from workbench.compiler.interop.thunder_api import interpreter, opcode_handlers, symbol
from workbench.compiler.trace.bsym_memo import identity

_KINDS = (BuiltinFunctionType, FunctionType, ModuleType, type, type(NotImplemented))
"""Types of global values that Thunder never replaces by a proxy. Numbers and tensors are not among them."""

_known: WeakKeyDictionary[Any, dict[tuple[bool, str], Any]] = WeakKeyDictionary()
"""For each interpretation, the global values and builtins that were already looked up. The key of a value is a pair:
True if a function of the interpreter's own module has read the value, and the name of the value.
"""


def _load_global_once(
    stock: Callable[..., Any], inst: Any, /, stack: Any, co: CodeType, globals_dict: Any, **kwargs: Any
) -> Any:
    """Look up a global as Thunder does; reuse earlier lookups of builtins and of the interpreter's own names."""
    # The lowest bit of the argument is set if a call follows. A call needs a NULL on the stack under the function.
    name = co.co_names[inst.arg >> 1]
    names = interpreter.unwrap(globals_dict)
    own = names is vars(interpreter)
    value = names[name] if own and name in names else None if name in names else _builtin(names, name)
    if not isinstance(value, _KINDS):
        return stock(inst, stack=stack, co=co, globals_dict=globals_dict, **kwargs)
    known = _known.setdefault(interpreter.get_interpreterruntimectx(), {})
    found = known.get((own, name))
    if found is not None and found.value is value:
        if inst.arg & 1:
            stack.append(interpreter.wrap_const(interpreter.Py_NULL()))
        stack.append(found)
        return None
    outcome = stock(inst, stack=stack, co=co, globals_dict=globals_dict, **kwargs)
    if outcome is None:
        known[own, name] = stack.getitem_wrapped(-1)
    return outcome


def _builtin(names: dict[str, Any], name: str) -> Any:
    builtins = names.get("__builtins__")
    return (vars(builtins) if isinstance(builtins, ModuleType) else builtins or {}).get(name)


_instructions = functools.lru_cache(8192)(lambda code: tuple(dis.get_instructions(code)))

_signatures: WeakKeyDictionary[FunctionType, inspect.Signature] = WeakKeyDictionary()


_of_symbols: dict[int, tuple[Any, inspect.Signature]] = {}
"""Maps the address of a symbol to the symbol and its signature. The entry keeps the symbol alive, so that no other
symbol gets the same address.
"""

_MOST_SYMBOLS = 4096
"""Number of entries at which `_of_symbols` is cleared. Without this limit, the table would grow, because a trace may
make its own symbols.
"""


def _signature(function: Any) -> inspect.Signature:
    if type(function) is symbol.Symbol:
        if identity(function) not in _of_symbols:
            if len(_of_symbols) >= _MOST_SYMBOLS:
                _of_symbols.clear()
            _of_symbols[identity(function)] = (function, inspect.signature(function))
        return _of_symbols[identity(function)][1]
    if type(function) is not FunctionType:
        return inspect.signature(function)
    found = _signatures.get(function)
    if found is None:
        found = _signatures[function] = inspect.signature(function)
    return found


_stock_normalize = symbol.Symbol.normalize
_MISSING = inspect.Parameter.empty


class _Parameters:
    """Positional and keyword-only parameters of a function, each with its default."""

    def __init__(self, function: FunctionType) -> None:
        kind = inspect.Parameter
        found = list(_signature(function).parameters.values())
        kinds = [parameter.kind for parameter in found]
        self.by_place = [(p.name, p.default) for p in found if p.kind in (kind.POSITIONAL_ONLY, _BY_PLACE_OR_NAME)]
        self.by_name = [(p.name, p.default) for p in found if p.kind is kind.KEYWORD_ONLY]
        self.never_named = {p.name for p in found if p.kind is kind.POSITIONAL_ONLY}
        self.any_places, self.any_names = kind.VAR_POSITIONAL in kinds, kind.VAR_KEYWORD in kinds


_BY_PLACE_OR_NAME = inspect.Parameter.POSITIONAL_OR_KEYWORD
_parameters: WeakKeyDictionary[FunctionType, _Parameters] = WeakKeyDictionary()


def _normalize(self: Any, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with defaults filled in. If the call does not fit the signature, call Thunder's method."""
    meta, found = self.meta, None
    if type(meta) is symbol.Symbol:  # a Symbol accepts any arguments
        return args, kwargs
    if type(meta) is FunctionType:
        if not kwargs and _takes_any_places(meta):
            return args, {}
        known = _parameters.get(meta)
        if known is None:
            known = _parameters[meta] = _Parameters(meta)
        found = _arrange(known, args, kwargs)
    if found is None:
        found = _stock_normalize(self, *args, **kwargs)
    return found


def _takes_any_places(function: FunctionType) -> bool:
    """Return whether a function accepts any positional arguments, as the generated function of a fusion does."""
    code = function.__code__
    only_places = code.co_flags & inspect.CO_VARARGS and not code.co_argcount and not code.co_kwonlyargcount
    return bool(only_places) and not function.__dict__  # attributes may mark a wrapper of another function


def _arrange(
    parameters: _Parameters, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    if (len(args) > len(parameters.by_place) and not parameters.any_places) or not parameters.never_named.isdisjoint(
        kwargs
    ):
        return None
    left = dict(kwargs)
    given = [left.pop(name, default) for name, default in parameters.by_place[len(args) :]]
    named = {name: left.pop(name, default) for name, default in parameters.by_name}
    if (left and not parameters.any_names) or any(x is _MISSING for x in (*given, *named.values())):
        return None
    return (*args, *given), named | left


class _LazyStack:
    """Replacement for the result of `inspect.stack` that looks up the source of a frame only when the frame is read."""

    def __init__(self, context: int = 1) -> None:
        # Start at frame 2, because frame 1 is the function that selects the stack for its thread.
        self._innermost, self._context = sys._getframe(2), context

    def __getitem__(self, depth: int) -> inspect.FrameInfo:
        frame: FrameType | None = self._innermost
        for _ in range(depth):
            frame = frame and frame.f_back
        if frame is None:
            raise IndexError(depth)
        found = inspect.getframeinfo(frame, self._context)
        return inspect.FrameInfo(frame, *found, positions=found.positions)


def _gather_tags(bsym: Any) -> set[Any]:
    """Return the tags of a statement and its subsymbols in one set. Thunder makes two sets for each subsymbol."""
    found: set[Any] = set()
    left = [bsym]
    while left:
        each = left.pop()
        if each.sym.tags is not None:
            found.update(each.sym.tags)
        found.update(each.tags)
        left.extend(each.subsymbols)
    return found


def _load_global(stock: Callable[..., Any], patches: ThreadPatches) -> Callable[..., Any]:
    """Return the handler for global lookups.

    The handler is called very often, so it checks the thread without another function call.
    """
    here = patches.here

    def load_global(inst: Any, /, **state: Any) -> Any:
        return stock(inst, **state) if here.value is None else _load_global_once(stock, inst, **state)

    return load_global


def _inspect(stock: Any, patches: ThreadPatches) -> Any:
    """Return a stand-in for the module `inspect`. Its `stack` is fast in threads in which the patches are active."""
    here = patches.here

    def stack(context: int = 1) -> Any:
        return stock.stack(context)[1:] if here.value is None else _LazyStack(context)

    return ModuleStandIn(stock, stack=stack)


def _patch_targets() -> list[PatchTarget]:
    return [
        PatchTarget(opcode_handlers, "LOAD_GLOBAL", _load_global),
        replace_in_module(interpreter, "dis", get_instructions=_instructions),
        PatchTarget(interpreter, "inspect", _inspect),
        replace_in_module(symbol, "inspect", signature=_signature),
        replace_function(symbol, "gather_tags", _gather_tags),
        replace_function(symbol.Symbol, "normalize", _normalize),
        replace_function(symbol, "tree_flatten_with_dataclass", symbols.flatten_with_dataclass),
        *symbols.PATCHES,
        *passes.PATCHES,
    ]


_QUICK = ThreadPatches("quick", _patch_targets)
_shipped = threading.local()


def fast_thunder() -> contextlib.AbstractContextManager[None]:
    """Return a context in which this thread uses the replacements. Inside `unpatched_thunder`, it has no effect."""
    return contextlib.nullcontext() if getattr(_shipped, "inside", 0) else _QUICK()


def is_fast() -> bool:
    """Return whether this thread is inside `fast_thunder`."""
    return _QUICK.value is not None


@contextlib.contextmanager
def unpatched_thunder() -> Iterator[None]:
    """In this context, this thread uses Thunder without the replacements, as tests and benchmarks need."""
    before, _QUICK.here.value = _QUICK.here.value, None
    _shipped.inside = getattr(_shipped, "inside", 0) + 1
    try:
        yield
    finally:
        _shipped.inside -= 1
        _QUICK.here.value = before
