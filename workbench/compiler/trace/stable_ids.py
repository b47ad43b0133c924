"""Stable ids of values. Tags carry a statement's origin through Thunder's passes; an id is computed from an origin."""

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
from workbench.core.graph import Origin

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
    """Return the index of a statement's origin; -1 if it has none."""
    for tag in bsym.tags:
        if type(tag) is OriginTag:
            return tag.index
    return -1


def is_statement(bsym: BoundSymbol) -> bool:
    """Return whether a bound symbol computes something: it is no unpacking, `return`, `del` or comment."""
    return bsym.sym.id not in _NO_STATEMENT and bsym.sym.name != "clear_mutable_collection"


def read_line(file: str, line: int) -> str:
    """Return the text of a line of a source file or notebook cell; empty if there is no such line."""
    return linecache.getline(file, line).strip()


def tag_origins(trace: TraceCtx) -> tuple[TraceCtx, tuple[Origin, ...]]:
    """Tag each statement of the initial trace with its origin.

    Returns
    -------
    TraceCtx
        Copy of the trace with an `OriginTag` on all statements and their subsymbols.
    tuple of Origin
        The origins; an `OriginTag` contains the index of one of them.
    """
    counts: Counter[tuple[str, str]] = Counter()
    origins: list[Origin] = []
    tagged = from_trace(trace)

    def with_tag(bsym: BoundSymbol, tag: OriginTag) -> BoundSymbol:
        made = bsym.from_bsym(tags=bsym.tags | {tag}, subsymbols=[with_tag(sub, tag) for sub in bsym.subsymbols])
        # The structure does not include tags.
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
        # Do not number statements without outputs, such as a query of a tensor's number of dimensions. Dynamo's graphs
        # omit them, so ids would depend on the front end.
        if not is_statement(bsym) or not bsym.flat_proxy_outs:
            tagged.bound_symbols.append(bsym)
            continue
        origin = _origin(bsym, counts)
        # A fence precedes the statement that it guards, and gets its name from this statement.
        for i, fence in enumerate(fences):
            name = f"{origin.id}!fence" + (f".{i}" if i else "")
            enter(fence, dataclasses.replace(origin, id=name, symbol=fence.sym.name))
        fences.clear()
        enter(bsym, origin)
    tagged.bound_symbols.extend(fences)
    return tagged, tuple(origins)


def file_label(file: str) -> str:
    """Return the name of a source file as the user knows it: for a notebook cell, `In[N]`, as in tracebacks."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return f"In[{numbers[file]}]" if file in numbers else file


def line_prefix(file: str, line: int) -> str:
    """Return the beginning of a message about a user's line: file, line number and text; empty if `line` is 0."""
    return f"{file_label(file)}:{line} ({read_line(file, line)}): " if line else ""


def origin_text(origin: Origin) -> str:
    """Return the source line of an origin as ``FILE:LINE  TEXT``; if the line is not known, return the origin's id."""
    return f"{origin.file}:{origin.line}  {origin.text}" if origin.line else origin.id


def line_text(file: str, line: int) -> str:
    """Return a line of a file in the format of `origin_text`; empty if `line` is 0."""
    return f"{file_label(file).rsplit('/', 1)[-1]}:{line}  {read_line(file, line)}" if line else ""


def line_of(bsym: BoundSymbol) -> str:
    """Return the `origin_text` of a statement that has no `OriginTag` yet."""
    return origin_text(_origin(bsym, Counter()))


def class_of(bsym: BoundSymbol) -> str:
    """Return the class name of a `torch.autograd.Function` that a statement calls; empty for any other statement.

    Thunder's interpreter gives the symbol of such a call the name of the class followed by addresses.
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
    """Parts of the stable id of a value."""

    origin: int
    """Index of the origin; -1 if there is none."""
    of: str
    """For a value without an origin, the argument from which the value is made."""
    rest: str
    """Rest of the id: symbol and ordinal if several statements have this origin, and the index of the output."""

    def id(self, origins: tuple[Origin, ...]) -> str:
        """Return the stable id."""
        return (origins[self.origin].id if self.origin >= 0 else self.of) + self.rest


def find_places(bsyms: Iterable[BoundSymbol], origins: tuple[Origin, ...]) -> dict[str, ValuePlace]:
    """Return a map from proxy names to the places of values.

    The id of a value without an origin, such as a gathered parameter, begins with the argument from which it is made.
    """
    rows: defaultdict[tuple[int, bool, str], list[BoundSymbol]] = defaultdict(list)
    known: dict[str, int] = {}
    argument: dict[str, str] = {}
    for bsym in bsyms:
        if not is_statement(bsym):
            continue
        index = origin_of(bsym)
        if index < 0:
            # The sum of two gradients has no origin; use the origin of the first addend that has one.
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
        symbol = origins[index].symbol if index >= 0 else ""
        counts: Counter[str] = Counter()
        for bsym in group:
            symbol_here = _symbol(bsym)
            ordinal = counts[symbol_here]
            counts[symbol_here] += 1
            rest = ""
            if backward or symbol_here != symbol or ordinal:
                rest = f"{'<' if backward else '>'}{symbol_here}" + (f".{ordinal}" if ordinal else "")
            for i, name in enumerate(_new_names(bsym)):
                places[name] = ValuePlace(index, of, rest + (f"[{i}]" if i else ""))
    return places


def _new_names(bsym: BoundSymbol) -> list[str]:
    given = read_names(bsym)
    return [name for name in made_names(bsym) if name not in given]
