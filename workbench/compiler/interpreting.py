"""Thunder's bytecode interpreter in half of the time: what it does again and again with one outcome is done once.

It interprets its own helpers too (what ``bool(x)`` and ``x in y`` do), and looks each builtin in them up by four more
frames of interpreted code: most of what it interprets is that. The traces are the same, statement by statement. It can
go once ``thunder.core.interpreter.globals_lookup`` interprets nothing to find a builtin.
"""

from __future__ import annotations

import contextlib
import dis
import functools
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from workbench.compiler.thunder_api import interpreter, opcode_handlers

_KINDS = (BuiltinFunctionType, FunctionType, ModuleType, type, type(NotImplemented))
"""What Thunder never puts a proxy in the place of, as it does with numbers and tensors."""

_known: WeakKeyDictionary[Any, dict[tuple[bool, str], Any]] = WeakKeyDictionary()
"""Of each interpretation, what names stood for: names of the interpreter's own module or not, and builtins of both."""

_load_global = opcode_handlers["LOAD_GLOBAL"]
_dis = interpreter.dis


class _Dis:
    """The module `dis`, which lists the instructions of a code object once."""

    get_instructions = staticmethod(functools.lru_cache(8192)(lambda code: tuple(dis.get_instructions(code))))

    def __getattr__(self, name: str) -> Any:
        return getattr(dis, name)


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


def hasten() -> None:
    """Let the interpreter look up a builtin once in an interpretation, and list a function's instructions once."""
    opcode_handlers["LOAD_GLOBAL"] = _load_global_once
    interpreter.dis = _Dis()


@contextlib.contextmanager
def as_shipped() -> Iterator[None]:
    """Inside, the interpreter takes the time that it takes without the workbench, where that is what is measured."""
    opcode_handlers["LOAD_GLOBAL"] = _load_global
    interpreter.dis = _dis
    try:
        yield
    finally:
        hasten()
