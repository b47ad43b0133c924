"""Find the values outside of a function that its code reads, such as ``config.steps`` or ``os.environ["DEBUG"]``."""

from __future__ import annotations

import dataclasses
import dis
import functools
from collections.abc import Mapping
from types import CodeType

_STRAIGHT = frozenset({"CACHE", "COPY_FREE_VARS", "EXTENDED_ARG", "MAKE_CELL", "NOP", "PUSH_NULL", "RESUME"})
"""Instructions that leave the top of the stack as it is, or that only add a marker below the next value."""
_LOCALS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR"})
_CELLS = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


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
    instructions = [each for each in dis.get_instructions(code) if each.opname not in _STRAIGHT]
    variables = {name: list(reads) for name, reads in outer.items()}
    _scan(instructions, variables)  # an assignment can be behind a read, in a loop
    found = _scan(instructions, variables)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found.extend(_reads(inner, variables))
    return found


def _scan(instructions: list[dis.Instruction], variables: dict[str, list[CodeRead]]) -> list[CodeRead]:
    found: list[CodeRead] = []
    top: list[CodeRead] = []  # the values that the top of the stack may be
    imported: list[CodeRead] = []  # below the top of the stack, the module of `from module import name`
    before: object = None
    for at, each in enumerate(instructions):
        name, argument = each.opname, each.argval
        if name == "IMPORT_NAME":
            level, names = instructions[at - 2].argval, instructions[at - 1].argval
            first = argument if names or level else argument.partition(".")[0]
            top = imported = [CodeRead("import", "." * (level or 0) + first)]
        elif name == "IMPORT_FROM":
            top = [read.attribute(argument) for read in imported]
        elif name == "SWAP" and top and instructions[at - 1].opname == "IMPORT_FROM":
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
            constant = at > 0 and instructions[at - 1].opname == "LOAD_CONST"
            before = instructions[at - 1].argval if constant else None
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
