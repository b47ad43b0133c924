"""Stable ids: tags carry origins through Thunder's passes, and places are derived from them."""

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
"""Prefix of the names of values recomputed in the backward."""

_NO_STATEMENT = {
    prims.PrimIDs.UNPACK_TRIVIAL,
    prims.PrimIDs.UNPACK_SEQUENCE,
    prims.PrimIDs.RETURN,
    prims.PrimIDs.DEL,
    prims.PrimIDs.COMMENT,
}


@dataclasses.dataclass(frozen=True)
class OriginTag:
    """Origin in a statement's tags. Thunder propagates tags, so it goes from the initial trace through every pass."""

    index: int


def origin_of(bsym: BoundSymbol) -> int:
    """Return the index of a statement's origin, or -1."""
    for tag in bsym.tags:
        if type(tag) is OriginTag:
            return tag.index
    return -1


def is_statement(bsym: BoundSymbol) -> bool:
    """Return False for unpacking, returns, deletions and comments."""
    return bsym.sym.id not in _NO_STATEMENT and bsym.sym.name != "clear_mutable_collection"


def read_line(file: str, line: int) -> str:
    """Return one line of a source file or a notebook cell; empty if it is missing."""
    return linecache.getline(file, line).strip()


def tag_origins(trace: TraceCtx) -> tuple[TraceCtx, tuple[Origin, ...]]:
    """Tag each statement of the initial trace with its origin.

    Returns
    -------
    TraceCtx
        Copy of the trace with an `OriginTag` on all statements and their subsymbols.
    tuple of Origin
        Origins by index.
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
        # Dynamo's graphs leave out statements without a value, such as a query of a tensor's number of dimensions. If
        # these counted, names would depend on the front end.
        if not is_statement(bsym) or not bsym.flat_proxy_outs:
            tagged.bound_symbols.append(bsym)
            continue
        origin = _origin(bsym, counts)
        # A fence precedes the statement that it guards, and is named after it.
        for i, fence in enumerate(fences):
            name = f"{origin.id}!fence" + (f".{i}" if i else "")
            enter(fence, dataclasses.replace(origin, id=name, symbol=fence.sym.name))
        fences.clear()
        enter(bsym, origin)
    tagged.bound_symbols.extend(fences)
    return tagged, tuple(origins)


def file_label(file: str) -> str:
    """Return the name of a source file for the user: a notebook cell by its number, as in tracebacks."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", {})
    return f"In[{numbers[file]}]" if file in numbers else file


def line_prefix(file: str, line: int) -> str:
    """Return the beginning of a message about a user's line: file, line number and text; empty if there is no line."""
    return f"{file_label(file)}:{line} ({read_line(file, line)}): " if line else ""


def origin_text(origin: Origin) -> str:
    """Return the line of a statement as ``FILE:LINE TEXT``; its id if the line is not known."""
    return f"{origin.file}:{origin.line}  {origin.text}" if origin.line else origin.id


def line_text(file: str, line: int) -> str:
    """Return a line of a file in the format of `origin_text`; empty if the line is not known."""
    return f"{file_label(file).rsplit('/', 1)[-1]}:{line}  {read_line(file, line)}" if line else ""


def line_of(bsym: BoundSymbol) -> str:
    """Return `origin_text` of a statement without tags."""
    return origin_text(_origin(bsym, Counter()))


def class_of(bsym: BoundSymbol) -> str:
    """Return the class of a called `torch.autograd.Function`; an empty string for any other statement.

    Thunder's interpreter names such a call by class and address.
    """
    found = _BY_ADDRESS.fullmatch(str(bsym.sym.id)) if bsym.sym.module is None and bsym.subsymbols else None
    return "" if found is None else found[1]


_BY_ADDRESS = re.compile(r"(\w+)_\d+_\d+")


def _symbol(bsym: BoundSymbol) -> str:
    """Return the name of a statement's symbol, which is equal in every process."""
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
    """Argument from which a value without an origin is made."""
    rest: str
    """Rest of the id: symbol and ordinal if the origin became several statements, and the index of the value."""

    def id(self, origins: tuple[Origin, ...]) -> str:
        """Return the stable id."""
        return (origins[self.origin].id if self.origin >= 0 else self.of) + self.rest


def find_places(bsyms: Iterable[BoundSymbol], origins: tuple[Origin, ...]) -> dict[str, ValuePlace]:
    """Return the places of values by proxy name.

    A value without an origin, such as a gathered parameter, is named after the argument from which it is made.
    """
    rows: defaultdict[tuple[int, bool, str], list[BoundSymbol]] = defaultdict(list)
    known: dict[str, int] = {}
    argument: dict[str, str] = {}
    for bsym in bsyms:
        if not is_statement(bsym):
            continue
        index = origin_of(bsym)
        if index < 0:
            # A gradient accumulation has no origin. It belongs to the value to which it adds.
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
