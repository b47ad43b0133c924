"""Find the values outside of a function that its code reads, such as ``config.steps`` or ``os.environ["DEBUG"]``."""

from __future__ import annotations

import dataclasses
import dis
import functools
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

_STRAIGHT = frozenset({"CACHE", "COPY_FREE_VARS", "EXTENDED_ARG", "MAKE_CELL", "NOP", "PUSH_NULL", "RESUME"})
"""Instructions that leave the top of the stack as it is, or that only add a marker below the next value."""
_LOCALS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR"})
_CELLS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_WITH_NAME = frozenset(dis.hasname) - {dis.opmap["LOAD_SUPER_ATTR"]}
_WITH_VARIABLE = frozenset([*dis.haslocal, *dis.hasfree])
_WITH_CONSTANT = frozenset({"LOAD_CONST", "RETURN_CONST"})


@dataclasses.dataclass(frozen=True)
class CodeRead:
    """A value outside of a function that the function's code reads.

    Attributes
    ----------
    kind : str
        Where the first name is found: ``global``, ``closure`` or ``import``.
    name : str
        The name of the global or of the variable in the closure, or the imported module, with its leading dots.
    attributes : tuple of str
        The attributes that the code reads from the value of the name: each one is an attribute of the one before.
    key : tuple of str
        The constant that follows or precedes the value, as in ``value["key"]``, ``value.get("key")`` or ``"key" in
        value``: ``("constant", key)``, or ``("global", name)`` for the value of a global. Empty if there is none.
    """

    kind: str
    name: str
    attributes: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    def attribute(self, name: str) -> CodeRead:
        """Return the read of an attribute of this value."""
        return dataclasses.replace(self, attributes=(*self.attributes, name))


@functools.lru_cache(4096)
def reads_of(code: CodeType) -> tuple[CodeRead, ...]:
    """Return the values outside of a function that its code reads, including the code of its nested functions.

    A local variable counts as each of the values that are assigned to it. Reads by a computed name, such as ``getattr(
    config, name)``, count as reads of `config` without attributes.
    """
    return tuple(dict.fromkeys(_reads(code, {})))


def _reads(code: CodeType, outer: Mapping[str, list[CodeRead]]) -> list[CodeRead]:
    instructions = _instructions(code)
    variables = {name: list(reads) for name, reads in outer.items()}
    found = _scan(instructions, variables)
    if variables != outer:  # in a loop, a variable can be read before the instruction that assigns it
        found = _scan(instructions, variables)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found.extend(_reads(inner, variables))
    return found


def _instructions(code: CodeType) -> list[tuple[str, Any]]:
    """Return the names of the instructions with their arguments. `dis.get_instructions` takes ten times as long."""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    variables = (*code.co_varnames, *cells, *code.co_freevars)
    found: list[tuple[str, Any]] = []
    high = 0
    for number, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        name, argument = dis.opname[number], high | low
        high = argument << 8 if name == "EXTENDED_ARG" else 0
        if name in _STRAIGHT:
            continue
        value: Any = argument
        if name in ("LOAD_GLOBAL", "LOAD_ATTR"):  # the lowest bit says whether the value is called
            value = code.co_names[argument >> 1]
        elif number in _WITH_NAME:
            value = code.co_names[argument]
        elif number in _WITH_VARIABLE:
            value = variables[argument]
        elif name in _WITH_CONSTANT:
            value = code.co_consts[argument]
        found.append((name, value))
    return found


def _scan(instructions: Sequence[tuple[str, Any]], variables: dict[str, list[CodeRead]]) -> list[CodeRead]:
    found: list[CodeRead] = []
    top: list[CodeRead] = []  # the values that the top of the stack may be
    imported: list[CodeRead] = []  # below the top of the stack, the module of `from module import name`
    before: object = None
    for at, (name, argument) in enumerate(instructions):
        if name == "IMPORT_NAME":
            level, names = instructions[at - 2][1], instructions[at - 1][1]
            first = argument if names or level else argument.partition(".")[0]
            top = imported = [CodeRead("import", "." * (level or 0) + first)]
        elif name == "IMPORT_FROM":
            top = [read.attribute(argument) for read in imported]
        elif name == "SWAP" and top and instructions[at - 1][0] == "IMPORT_FROM":
            imported = top  # in `import a.b.c as name`, the module a.b
        elif name in ("STORE_FAST", "STORE_DEREF") and top:
            known = variables.setdefault(argument, [])
            known.extend(read for read in top if read not in known)
            top = []
        elif name in ("LOAD_ATTR", "LOAD_METHOD") and top:
            top = [read.attribute(argument) for read in top]
        else:
            if top and top is not imported:
                key = _key(name, argument, before)
                found.extend(dataclasses.replace(read, key=key) for read in top)
            constant = at > 0 and instructions[at - 1][0] == "LOAD_CONST"
            before = instructions[at - 1][1] if constant else None
            if name in _GLOBALS:
                top = [CodeRead("global", argument)]
            elif name in _CELLS:
                top = list(variables.get(argument, ())) or [CodeRead("closure", argument)]
            elif name in _LOCALS:
                top = list(variables.get(argument, ()))
            else:
                top = []
    return found


def _key(name: str, argument: object, before: object) -> tuple[str, ...]:
    """Return the key with which an instruction reads a container that is on top of the stack; see `CodeRead.key`."""
    if name == "LOAD_CONST" and isinstance(argument, str):
        return ("constant", argument)
    if name == "LOAD_GLOBAL":
        return ("global", str(argument))
    return ("constant", before) if name == "CONTAINS_OP" and isinstance(before, str) else ()
