"""Stable ids of values. The ids do not depend on the names that Thunder gives to the values.

An origin is a statement of the program's own trace. A statement of a later trace has a tag with the origin from which
it comes, because Thunder's passes keep tags. The id of a value begins with the id of the origin of the statement that
computes the value.
"""

from __future__ import annotations

import dataclasses
import linecache
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from workbench.compiler.interop.source_file import SourceFile
from workbench.compiler.interop.thunder_api import BoundSymbol, BoundSymbolTag, TraceCtx, from_trace, prims
from workbench.compiler.trace.bsym_memo import STRUCTURE, made_names, read_names, structure_of
from workbench.core.graph import Origin, operator_name

CLONE_PREFIX = "re_"
"""Prefix of the name of a value that the backward recomputes."""

_NO_STATEMENT = {
    prims.PrimIDs.UNPACK_TRIVIAL,
    prims.PrimIDs.UNPACK_SEQUENCE,
    prims.PrimIDs.RETURN,
    prims.PrimIDs.DEL,
    prims.PrimIDs.COMMENT,
}


@dataclasses.dataclass(frozen=True)
class OriginTag:
    """Tag with the index of a statement's origin. Thunder's passes propagate tags, so the origin stays known."""

    index: int


def origin_of(bsym: BoundSymbol) -> int:
    """Return the index of a statement's origin, or -1 if the statement has no origin."""
    for tag in bsym.tags:
        if type(tag) is OriginTag:
            return tag.index
    return -1


def is_statement(bsym: BoundSymbol) -> bool:
    """Return whether a bound symbol is a statement of the program.

    Thunder's unpackings, `return`, `del`, comments and `clear_mutable_collection` are not.
    """
    return bsym.sym.id not in _NO_STATEMENT and bsym.sym.name != "clear_mutable_collection"


def read_line(file: str, line: int) -> str:
    """Return the text of a line of a source file or notebook cell, or an empty text if the line does not exist."""
    return linecache.getline(file, line).strip()


def tag_origins(trace: TraceCtx) -> tuple[TraceCtx, tuple[Origin, ...]]:
    """Tag each statement of the initial trace with its origin.

    Returns
    -------
    TraceCtx
        Copy of the trace with an `OriginTag` on each statement that has outputs, and on its subsymbols.
    tuple of Origin
        The origins. An `OriginTag` contains the index of an origin in this tuple.
    """
    counts: Counter[tuple[str, str]] = Counter()
    origins: list[Origin] = []
    tagged = from_trace(trace)

    def with_tag(bsym: BoundSymbol, tag: OriginTag) -> BoundSymbol:
        made = bsym.from_bsym(tags=bsym.tags | {tag}, subsymbols=[with_tag(sub, tag) for sub in bsym.subsymbols])
        # The copy shares the statement's `Structure`, because this cache does not depend on tags.
        made.__dict__[STRUCTURE] = structure_of(bsym)
        return made

    fences: list[BoundSymbol] = []

    def enter(bsym: BoundSymbol, origin: Origin) -> None:
        origins.append(origin)
        tagged.bound_symbols.append(with_tag(bsym, OriginTag(len(origins) - 1)))

    for bsym in trace.bound_symbols:
        if bsym.sym.id is prims.PrimIDs.UPDATE_ALIASES:
            fences.append(bsym)
            continue
        # Give no origin to statements without outputs, such as a query of a tensor's number of dimensions. Dynamo's
        # graphs omit such statements. If they were counted, ids would depend on the front end.
        if not is_statement(bsym) or not bsym.flat_proxy_outs:
            tagged.bound_symbols.append(bsym)
            continue
        origin = _origin(bsym, counts)
        # A fence precedes the statement that it protects. The fence's id is made from the id of this statement.
        for i, fence in enumerate(fences):
            name = f"{origin.id}!fence" + (f".{i}" if i else "")
            enter(fence, dataclasses.replace(origin, id=name, symbol=fence.sym.name))
        fences.clear()
        enter(bsym, origin)
    tagged.bound_symbols.extend(fences)
    return tagged, tuple(origins)


def file_label(file: str) -> str:
    """Return the name of a source file for the user. For a notebook cell, this is `In[N]`, as in tracebacks."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return f"In[{numbers[file]}]" if file in numbers else file


def line_prefix(file: str, line: int) -> str:
    """Return ``FILE:LINE (TEXT): `` to begin a message about a user's line, or an empty text if `line` is 0."""
    return f"{file_label(file)}:{line} ({read_line(file, line)}): " if line else ""


def origin_text(origin: Origin) -> str:
    """Return the source line of an origin as ``FILE:LINE  TEXT``, or the origin's id if the line is not known."""
    return f"{origin.file}:{origin.line}  {origin.text}" if origin.line else origin.id


def line_text(file: str, line: int) -> str:
    """Return a line of a file in the format of `origin_text`, or an empty text if `line` is 0."""
    return f"{file_label(file).rsplit('/', 1)[-1]}:{line}  {read_line(file, line)}" if line else ""


def line_of(bsym: BoundSymbol) -> str:
    """Return the `origin_text` of a statement that has no `OriginTag` yet."""
    return origin_text(_origin(bsym, Counter()))


def class_of(bsym: BoundSymbol) -> str:
    """Return the class name of the `torch.autograd.Function` that a statement calls, or an empty text for other calls.

    In Thunder's interpreter, the id of the symbol of such a call is the class name followed by addresses.
    """
    found = _BY_ADDRESS.fullmatch(str(bsym.sym.id)) if bsym.sym.module is None and bsym.subsymbols else None
    return "" if found is None else found[1]


_BY_ADDRESS = re.compile(r"(\w+)_\d+_\d+")


def _symbol(bsym: BoundSymbol) -> str:
    """Return the name of a statement's symbol without addresses, so that it is equal in every process."""
    return class_of(bsym) or str(bsym.sym.name)


def _origin(bsym: BoundSymbol, counts: Counter[tuple[str, str]]) -> Origin:
    where = bsym.source_filename
    symbol = _symbol(bsym)
    scope, file, line = "", where or "", 0
    if isinstance(where, SourceFile):
        scope, file, line = where.scope, where.user_file, where.user_line
    elif bsym.source_positions is not None:
        line = bsym.source_positions.lineno or 0
    ordinal = counts[scope, symbol]
    counts[scope, symbol] += 1
    return Origin(
        id=f"{scope}/{symbol}" + (f".{ordinal}" if ordinal else ""),
        scope=scope,
        symbol=symbol,
        file=file_label(file).rsplit("/", 1)[-1],
        line=line,
        text=read_line(file, line) if line else "",
    )


class ValuePlace(NamedTuple):
    """The parts of a value's stable id."""

    origin: int
    """Index of the origin, or -1 if the value has no origin."""
    of: str
    """Name of the argument from which the value is made, if the value has no origin."""
    rest: str
    """Rest of the id: the operator of the statement, the count of earlier statements with this operator and origin, and
    the index of the output.
    Operator and count are omitted for the first forward statement that has the same symbol as its origin. Count 0 and
    index 0 are omitted.
    """

    def id(self, origins: tuple[Origin, ...]) -> str:
        """Return the stable id."""
        return (origins[self.origin].id if self.origin >= 0 else self.of) + self.rest


def find_places(bsyms: Iterable[BoundSymbol], origins: tuple[Origin, ...]) -> dict[str, ValuePlace]:
    """Map the name of each value to the parts of the value's stable id.

    If a value has no origin, such as a gathered parameter, its id begins with the argument from which it is made.
    """
    rows: defaultdict[tuple[int, bool, str], list[BoundSymbol]] = defaultdict(list)
    known: dict[str, int] = {}
    argument: dict[str, str] = {}
    for bsym in bsyms:
        if not is_statement(bsym):
            continue
        index = origin_of(bsym)
        if index < 0:
            # A sum of two gradients has no origin. Use the origin of the first addend with an origin.
            index = next((known[a.name] for a in bsym.flat_proxy_args if known.get(a.name, -1) >= 0), -1)
        known.update(dict.fromkeys(made_names(bsym), index))
        of = ""
        if index < 0 and bsym.flat_proxy_args:
            first = bsym.flat_proxy_args[0].name
            of = argument.get(first, first if first not in known else "").removeprefix("t_")
            argument.update((out.name, of) for out in bsym.flat_proxy_outs)
        rows[index, BoundSymbolTag.BACKWARD in bsym.tags, of].append(bsym)
    places: dict[str, ValuePlace] = {}
    for (index, backward, of), group in rows.items():
        of_origin = operator_name(origins[index].symbol) if index >= 0 else ""
        counts: Counter[str] = Counter()
        for bsym in group:
            operator = operator_name(_symbol(bsym))
            ordinal = counts[operator]
            counts[operator] += 1
            rest = ""
            if backward or operator != of_origin or ordinal:
                rest = f"{'<' if backward else '>'}{operator}" + (f".{ordinal}" if ordinal else "")
            for i, name in enumerate(_new_names(bsym)):
                places[name] = ValuePlace(index, of, rest + (f"[{i}]" if i else ""))
    return places


def _new_names(bsym: BoundSymbol) -> list[str]:
    given = read_names(bsym)
    return [name for name in made_names(bsym) if name not in given]
