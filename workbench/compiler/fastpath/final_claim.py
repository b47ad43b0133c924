"""Memoized version of Thunder's last pass, which finds an executor for each statement.

For each plan, Thunder queries its executors about each statement, traces views again, and copies every statement that
it keeps. Thunder gives new values the next free names, so that one more statement renames the values of all later
statements. In this pass, a value that replaces an output of a statement keeps the name of the output, and the names of
all other new values are derived from this name. Therefore the outcome for a statement depends only on the statement and
on the replacements of its inputs, and later plans of a program reuse the outcome. The resulting trace equals that of
Thunder's pass, except for these names.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    BoundSymbolTag,
    CollectionProxy,
    FusionExecutor,
    IntegerProxy,
    OperatorExecutor,
    TensorProxy,
    TraceCtx,
    TraceProvenance,
    _transform_for_operator_executor_execution,
    from_trace,
    prims,
    tracectx,
    tree_flatten,
    variableify,
)
from workbench.compiler.trace.bsym_memo import PlanMemo, identity, ids, names_in
from workbench.compiler.trace.proxy_traits import TOLD_APART_BY
from workbench.compiler.trace.segments import Segment, attach, attached, changed


def claim_operators(trace: TraceCtx, executors: Sequence[Any], memo: PlanMemo | None) -> TraceCtx:
    """Return the trace in which each statement is replaced by the statements that its executor runs.

    Parameters
    ----------
    trace : TraceCtx
        Claimed and fused trace.
    executors : sequence of thunder.Executor
        Executors that are tried in order for each statement.
    memo : PlanMemo or None
        Memo of earlier plans of the program. Without a memo, or if a statement is unsupported, Thunder's own pass runs.
    """
    if memo is not None:
        with suppress(_UnsupportedStatementError):
            return _ClaimWalk(trace, executors, memo).new_trace()
    return _transform_for_operator_executor_execution(trace, executors)


class _UnsupportedStatementError(Exception):
    """The memoized pass does not support the outcome of a statement."""


@dataclasses.dataclass(frozen=True)
class _TracedStatement:
    """The statements that an executor's function records in place of a statement, and their values."""

    bsyms: tuple[BoundSymbol, ...]
    instead: dict[str, tuple[Any, Any]]
    """By name, each output of the original statement that another value replaces, and this value."""
    new: frozenset[str]
    """Names that the original statement does not have."""


class _ClaimedSegment(NamedTuple):
    """The segment in place of a segment, the replacements of its names, and its new names."""

    segment: Segment
    instead: dict[str, tuple[Any, Any]]
    new: frozenset[str]


class _ClaimWalk:
    """One pass over the statements of a trace."""

    def __init__(self, trace: TraceCtx, executors: Sequence[Any], memo: PlanMemo) -> None:
        self._trace, self._executors, self._kept = trace, executors, memo
        self._new = from_trace(trace)
        self._new.names = set(trace.names)
        self._instead: dict[str, tuple[Any, Any]] = {}
        self._left: list[BoundSymbol] = []
        self._named: set[str] = set()
        """The new names of the visited segment."""

    def new_trace(self) -> TraceCtx:
        """Return the trace in which each statement is replaced by the statements that its executor runs."""
        with tracectx(self._new):
            segments = [self._segment(segment) for segment in attached(self._trace) or ()]
            if not segments:
                self._visit(self._trace.bound_symbols)
                self._new.bound_symbols = self._left
        if segments:
            attach(self._new, segments)
        self._new.set_provenance(TraceProvenance("Transform for operator executor execution"))
        return self._new

    def _segment(self, segment: Segment) -> Segment:
        """Return the segment of the statements that executors run in place of a segment's statements.

        The result depends only on the segment and on the replacements of the values in it.
        """
        if not segment.is_plain:
            return self._visit_segment(segment).segment
        concerned = {name: self._instead[name] for name in self._instead.keys() & segment.names}
        key = ("claimed", identity(segment), frozenset([(name, identity(to)) for name, (_, to) in concerned.items()]))
        visited: list[_ClaimedSegment] = []

        def visit() -> _ClaimedSegment:
            visited.append(self._visit_segment(segment))
            return visited[0]

        found: _ClaimedSegment = self._kept.get_or_make(key, (segment, concerned), visit)
        if not visited:
            self._take_names(found.new)
            self._instead.update(found.instead)
        return found.segment

    def _visit_segment(self, segment: Segment) -> _ClaimedSegment:
        """Return the outcome for a segment, and take its names."""
        self._left, self._named = [], set()
        self._visit(segment.bsyms)
        instead = {name: self._instead[name] for name in self._instead.keys() & segment.names}
        return _ClaimedSegment(changed(segment, self._left, self._kept.get_or_make), instead, frozenset(self._named))

    def _take_names(self, names: Set[str]) -> None:
        """Add new names to the new trace. If it has one of them already, the pass does not support the trace."""
        if not names:
            return
        if not names.isdisjoint(self._new.names):
            raise _UnsupportedStatementError
        self._new.names.update(names)
        self._named.update(names)

    def _visit(self, bsyms: Sequence[BoundSymbol]) -> None:
        left = list(reversed(bsyms))
        while left:
            bsym = left.pop()
            how, function = self._kept.get_or_make(
                ("executed", identity(bsym)), bsym, partial(self._executed_form, bsym)
            )
            if how == _KEPT:
                self._append(bsym)
            elif how == _TRACED:
                key = ("traced", identity(bsym))
                self._take(self._kept.get_or_make(key, bsym, partial(self._trace_into, bsym, function)))
            else:
                if BoundSymbolTag.BACKWARD in bsym.tags:
                    for sub in bsym.subsymbols:
                        sub.tags.add(BoundSymbolTag.BACKWARD)
                left.extend(reversed(bsym.subsymbols))

    def _executed_form(self, bsym: BoundSymbol) -> tuple[str, Any]:
        """Return how a statement is executed, and a function or None.

        A statement is executed as it is (`_KEPT`), as its subsymbols (`_INSIDE`), or as the statements that the
        function records (`_TRACED`).
        """
        if any(isinstance(a, CollectionProxy) for a in bsym.flat_proxy_args):
            raise _UnsupportedStatementError
        if bsym.sym.python_impl is not None or bsym.sym.id == prims.PrimIDs.GET_GRAD:
            return _KEPT, None
        for executor in self._executors:
            runs = isinstance(executor, OperatorExecutor) and executor.can_execute(bsym)
            if runs or (isinstance(executor, FusionExecutor) and executor.can_fuse(bsym)):
                if (transform := executor.get_execution_transform(bsym)) is not None:
                    return _TRACED, transform
                return (_TRACED, executor.implmap[bsym.sym.id].symbol) if runs else (_KEPT, None)
        if bsym.sym.executor is not None:
            return _KEPT, None
        if bsym.sym.is_prim:
            raise _UnsupportedStatementError
        return _INSIDE, None

    def _trace_into(self, bsym: BoundSymbol, function: Any) -> _TracedStatement:
        """Return the statements that `function` records for a statement."""
        new = self._new
        counter, objects, names = new.name_ctr, new.obj_name_ctr, len(new.names)
        new.push_scope([])
        result = function(*bsym.args, **bsym.kwargs)
        bsyms = [each.from_bsym(**_location_of(bsym)) for each in new.pop_scope()]
        for each in bsyms:
            each.tags.update(bsym.tags)
        outs, given = tree_flatten(bsym.output)[0], tree_flatten(result)[0]
        taken = {a.name for a in bsym.flat_proxy_args}
        made = {proxy.name: proxy for proxy in _proxies(bsyms) if proxy.name not in taken}
        # The values can be renamed only if the function took no other names from the trace.
        named = len(new.names) - names == len(made) and objects == new.obj_name_ctr
        plain = all(type(proxy) in (TensorProxy, IntegerProxy) for proxy in (*outs, *given, *made.values()))
        if not (bsyms and outs and named and plain and len(outs) == len(given)):
            raise _UnsupportedStatementError
        # Give the names back.
        new.names.difference_update(made)
        new.name_ctr = counter
        named_as = dict[str, Any]()
        """By name of a recorded value, the output whose name it gets."""
        for out, replacement in zip(outs, given, strict=True):
            replacement.tags.update(out.tags)
            free = replacement.name in made and replacement.name not in named_as and out.name not in taken
            if free and _are_alike(out, replacement):
                named_as[replacement.name] = out
                taken.add(out.name)
        with tracectx(TraceCtx(None)):
            swap = {
                variableify(proxy): named_as[name] if name in named_as else proxy.replace_name(f"{outs[0].name}_{at}")
                for at, (name, proxy) in enumerate(made.items())
            }
        instead = {}
        for out, replacement in zip(outs, given, strict=True):
            value = swap.get(variableify(replacement), replacement)
            if value is not out:
                instead[out.name] = (out, value)
        further = frozenset([value.name for value in swap.values()]).difference([out.name for out in outs])
        return _TracedStatement(tuple(each.from_bsym_swap_proxies(swap) for each in bsyms), instead, further)

    def _take(self, traced: _TracedStatement) -> None:
        self._take_names(traced.new)
        self._instead.update(traced.instead)
        for each in traced.bsyms:
            self._append(each)

    def _append(self, bsym: BoundSymbol) -> None:
        """Append a statement. Values in it that have replacements are replaced."""
        if not self._instead.keys().isdisjoint(names_in(bsym)):
            concerned = [self._instead[name] for name in names_in(bsym) if name in self._instead]
            news = [new for _, new in concerned]
            swap = {variableify(old): new for old, new in concerned}
            key = ("swapped", identity(bsym), ids(news))
            bsym = self._kept.get_or_make(key, (bsym, news), lambda: bsym.from_bsym_swap_proxies(swap))
        self._left.append(bsym)


_KEPT, _TRACED, _INSIDE = "kept", "traced", "inside"


def _are_alike(a: Any, b: Any) -> bool:
    """Return whether two values are equal except for their names."""
    told = _OF_TENSOR if type(a) is TensorProxy else _OF_INTEGER
    return type(a) is type(b) and bool(told(a) == told(b))


_OF_TENSOR = operator.attrgetter(*TOLD_APART_BY)
_OF_INTEGER = operator.attrgetter("value", "python_type", "constraint", "tags")


def _location_of(bsym: BoundSymbol) -> dict[str, Any]:
    return {"source_filename": bsym.source_filename, "source_positions": bsym.source_positions}


def _proxies(bsyms: Iterable[BoundSymbol]) -> Iterator[Any]:
    """Yield the inputs and outputs of statements and their subsymbols."""
    for bsym in bsyms:
        yield from bsym.flat_proxy_args
        yield from bsym.flat_proxy_outs
        yield from _proxies(bsym.subsymbols)
