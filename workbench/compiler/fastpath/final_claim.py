"""Memoized version of Thunder's last pass, which finds an executor for each statement.

For each plan, Thunder queries its executors about each statement, traces views again, and copies every statement that
it keeps. The outcome for a statement depends only on the statement, the free names, and the replacements of its inputs.
Therefore later plans of a program reuse the outcome. The resulting trace equals that of Thunder's pass, names included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

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
        names = set(trace.names)
        try:
            return _ClaimWalk(trace, executors, memo).new_trace()
        except _UnsupportedStatementError:
            trace.names.intersection_update(names)
    return _transform_for_operator_executor_execution(trace, executors)


class _UnsupportedStatementError(Exception):
    """The memoized pass does not support the outcome of a statement."""


@dataclasses.dataclass(frozen=True)
class _TracedStatement:
    """The statements that an executor's function records in place of a statement, and their values."""

    bsyms: tuple[BoundSymbol, ...]
    given: tuple[Any, ...]
    """For each output of the original statement, the value that replaces it."""
    made: tuple[Any, ...]
    """Intermediate values and outputs, in order of creation."""


class _Prefixes:
    """The prefixes of the new names of a segment; None before its first visit."""

    found: list[str] | None = None


class _ClaimWalk:
    """One pass over the statements of a trace."""

    def __init__(self, trace: TraceCtx, executors: Sequence[Any], memo: PlanMemo) -> None:
        self._trace, self._executors, self._kept = trace, executors, memo
        self._new = from_trace(trace)
        self._instead: dict[str, tuple[Any, Any]] = {}
        self._left: list[BoundSymbol] = []
        self._made: list[tuple[str, str]] = []
        """Prefix and name of each new value of the visited segment."""

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

        The result depends on the replacements of the segment's inputs, and on the names of new values. These names are
        the next free names. Only their prefixes depend on the segment alone.
        """
        if not segment.is_plain:
            return self._visit_segment(segment)[0]
        new = self._new
        concerned = {name: self._instead[name] for name in self._instead.keys() & segment.names}
        key = (identity(segment), frozenset([(name, identity(to)) for name, (_, to) in concerned.items()]))
        alive = segment, concerned
        prefixes: list[str] | None = self._kept.get_or_make(("prefixes", *key), alive, _Prefixes).found
        if prefixes is None:
            found = self._visit_segment(segment)
            self._kept.get_or_make(("prefixes", *key), alive, _Prefixes).found = [prefix for prefix, _ in self._made]
            names = tuple([name for _, name in self._made])
            self._kept.get_or_make(("claimed", *key, names), alive, lambda: found)
            return found[0]
        counter = new.name_ctr
        names = tuple([new.make_name(prefix=prefix) for prefix in prefixes])

        def visit() -> tuple[Segment, dict[str, tuple[Any, Any]]]:
            # Give the names back, because the visit takes them again.
            new.names.difference_update(names)
            new.name_ctr = counter
            return self._visit_segment(segment)

        made, instead = self._kept.get_or_make(("claimed", *key, names), alive, visit)
        self._instead.update(instead)
        return made

    def _visit_segment(self, segment: Segment) -> tuple[Segment, dict[str, tuple[Any, Any]]]:
        """Return the new segment, and the replacements of its names."""
        self._left, self._made = [], []
        self._visit(segment.bsyms)
        instead = {name: self._instead[name] for name in self._instead.keys() & segment.names}
        return changed(segment, self._left, self._kept.get_or_make), instead

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
                self._take(bsym, self._traced_form(bsym, function))
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

    def _traced_form(self, bsym: BoundSymbol, function: Any) -> _TracedStatement:
        """Return the statements that `function` records for a statement, with the next free names of the new trace."""
        new = self._new
        first: list[_TracedStatement] = []

        def trace() -> _TracedStatement:
            first.append(self._trace_into(bsym, function))
            return first[0]

        known: _TracedStatement = self._kept.get_or_make(("traced", identity(bsym)), bsym, trace)
        names = [each.name for each in known.made] if first else [new.make_name(prefix=p.prefix) for p in known.made]
        self._made += [(proxy.prefix, name) for proxy, name in zip(known.made, names, strict=True)]
        if all(name == proxy.name for name, proxy in zip(names, known.made, strict=True)):
            return known
        # Rename the values to the names that Thunder's pass would use in this plan.
        key = ("renamed", identity(bsym), tuple(names))
        return self._kept.get_or_make(key, bsym, lambda: _rename(known, names))

    def _trace_into(self, bsym: BoundSymbol, function: Any) -> _TracedStatement:
        new = self._new
        objects, names = new.obj_name_ctr, len(new.names)
        new.push_scope([])
        result = function(*bsym.args, **bsym.kwargs)
        bsyms = [each.from_bsym(**_location_of(bsym)) for each in new.pop_scope()]
        for each in bsyms:
            each.tags.update(bsym.tags)
        outs, given = tree_flatten(bsym.output)[0], tree_flatten(result)[0]
        ours = {a.name for a in bsym.flat_proxy_args}
        made = {proxy.name: proxy for proxy in _proxies(bsyms) if proxy.name not in ours}
        # A later plan can rename the values only if the function took no other names from the trace.
        named = len(new.names) - names == len(made) and objects == new.obj_name_ctr
        plain = all(type(proxy) in (TensorProxy, IntegerProxy) for proxy in (*outs, *given, *made.values()))
        if not (bsyms and named and plain and len(outs) == len(given)):
            raise _UnsupportedStatementError
        for out, instead in zip(outs, given, strict=True):
            instead.tags.update(out.tags)
        in_order = sorted(made.values(), key=lambda proxy: int(proxy.name.removeprefix(proxy.prefix)))
        return _TracedStatement(tuple(bsyms), tuple(given), tuple(in_order))

    def _take(self, bsym: BoundSymbol, traced: _TracedStatement) -> None:
        outs = tree_flatten(bsym.output)[0]
        self._instead.update((out.name, (out, new)) for out, new in zip(outs, traced.given, strict=True))
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


def _location_of(bsym: BoundSymbol) -> dict[str, Any]:
    return {"source_filename": bsym.source_filename, "source_positions": bsym.source_positions}


def _proxies(bsyms: Iterable[BoundSymbol]) -> Iterator[Any]:
    """Yield the inputs and outputs of statements and their subsymbols."""
    for bsym in bsyms:
        yield from bsym.flat_proxy_args
        yield from bsym.flat_proxy_outs
        yield from _proxies(bsym.subsymbols)


def _rename(statement: _TracedStatement, names: Sequence[str]) -> _TracedStatement:
    """Return the recorded statements with `names` for the values in `made`."""
    if not {proxy.name for proxy in statement.made}.isdisjoint(names):
        # Thunder's swap follows chains: if t2 becomes t1 and t1 becomes t0, then t2 becomes t0. Therefore, first give
        # all values unused names.
        statement = _rename(statement, [f"unused{at}_{name}" for at, name in enumerate(names)])
    with tracectx(TraceCtx(None)):
        made = [proxy.replace_name(name) for proxy, name in zip(statement.made, names, strict=True)]
    by_name = {old.name: new for old, new in zip(statement.made, made, strict=True)}
    swap = {variableify(old): new for old, new in zip(statement.made, made, strict=True)}
    bsyms = tuple(bsym.from_bsym_swap_proxies(swap) for bsym in statement.bsyms)
    return _TracedStatement(bsyms, tuple(by_name.get(given.name, given) for given in statement.given), tuple(made))
