"""Measure the time of each statement: insert clocks between the statements of a jitted callable, without recompiling.

A tick is an inserted statement that reads the clock. It prints as ``wb_tick_7 = wb_now()``, and calls one C function
without a Python frame. A tick marks the end of one statement and the start of the next statement. The times stay in
local variables until a last inserted statement stores all times at once.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from workbench.compiler.interop.source_file import SourceFile
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    PrimIDs,
    Proxy,
    Symbol,
    TraceCtx,
    from_trace,
    transform_to_torch_types,
)
from workbench.compiler.memory.graph_builder import display_name
from workbench.compiler.trace.stable_ids import is_statement
from workbench.core.graph import BACKWARD, FORWARD

_NOW, _HAND_OVER, _NOTE = "wb_now", "wb_hand_over", "wb_note"


@dataclasses.dataclass(frozen=True)
class TimedStatement:
    """A statement between two ticks.

    Attributes
    ----------
    name : str
        The name that Thunder prints, such as ``torch.tanh``.
    side : int
        `workbench.core.graph.FORWARD` or ``BACKWARD``.
    outputs : tuple of str
        Names of the values that the statement computes.
    source : str
        ``file.py:12``, or empty if unknown.
    """

    name: str
    side: int
    outputs: tuple[str, ...]
    source: str


@dataclasses.dataclass(frozen=True)
class Tick:
    """A tick, with the interval that it ends.

    Attributes
    ----------
    statement : int
        Index of the statement in `StatementClocks.statements`; -1 for the tick before the first statement of a trace.
    frees : bool
        True if the tick ends the deletions after the statement; False if it ends the statement itself.
    """

    statement: int
    frees: bool


class StatementClocks:
    """Clocks for the traces of a jitted callable that has been called.

    Times are in `times_ns` in the order of `ticks`. The forward appends its times when it ends, and then the backward
    appends its times. The sides of a program are the forward and, if it exists, the backward. If `start` was called for
    one side only, a step has only the times of this side.

    Parameters
    ----------
    jitted : callable
        Result of `thunder.jit`. Only its latest specialization gets clocks.
    clock : callable
        Returns nanoseconds. A tick takes only slightly more time than a call of this function.
    frees : bool
        Whether a separate tick ends the deletions after a statement. If False, the statement's time includes the
        deletions, and a trace has fewer ticks.

    Attributes
    ----------
    statements : tuple of TimedStatement
        Statements of the plan's execution graph, without members of fusions.
    ticks : tuple of Tick
        The ticks of the forward, then the ticks of the backward; see `ticks_of`.
    times_ns : list of int
        Times of the steps since `clear`. Call `clear` before each step.
    addresses : dict of int to tuple of int
        Maps the index of a statement to the addresses of its outputs in the last step, read right after the statement.
        The address is 0 for an output that is not a strided tensor. Empty if `frees` is false.
    """

    def __init__(self, jitted: Any, clock: Callable[[], int] = time.perf_counter_ns, *, frees: bool = False) -> None:
        self._frees = frees
        self._cache: list[Any] = jitted._lc_cs.interpreter_cache
        self._without = self._cache[-1]
        self.times_ns: list[int] = []
        self.addresses: dict[int, tuple[int, ...]] = {}
        self.statements: tuple[TimedStatement, ...] = ()
        self.ticks: tuple[Tick, ...] = ()
        context = {_NOW: clock, _HAND_OVER: self.times_ns.extend}
        forward = transform_to_torch_types(self._insert_ticks(self._without.computation_traces[-1], FORWARD, context))
        self._changes = {FORWARD: {"computation_fn": forward.python_callable()}}
        if self._without.backward_fn is not None:
            backward = self._insert_ticks(self._without.backward_traces[-1], BACKWARD, context)
            self._changes[BACKWARD] = {"backward_fn": backward.python_callable()}

    @property
    def sides(self) -> tuple[int, ...]:
        """Sides of the program: the forward, and the backward if the program has one."""
        return tuple(self._changes)

    def start(self, *sides: int) -> None:
        """Make the next calls record times on the given sides. Without arguments, record times on all sides."""
        changes = [self._changes[side] for side in sides or self.sides]
        self._cache[-1] = self._without._replace(**functools.reduce(operator.or_, changes))

    def ticks_of(self, side: int) -> tuple[Tick, ...]:
        """Return the ticks of one side."""
        begins = [at for at, tick in enumerate(self.ticks) if tick.statement < 0]
        ends = [*begins[1:], len(self.ticks)]
        of = {
            self.statements[self.ticks[at + 1].statement].side: (at, end) for at, end in zip(begins, ends, strict=True)
        }
        return self.ticks[slice(*of[side])] if side in of else ()

    def complete(self, *sides: int) -> bool:
        """Return whether the last step has recorded all ticks of the given sides. Without arguments, check all sides.

        If ticks are missing, Thunder has run a different specialization, which has no clocks.
        """
        return len(self.times_ns) == sum(len(self.ticks_of(side)) for side in sides or self.sides)

    def stop(self) -> None:
        """Make the next calls run without clocks."""
        self._cache[-1] = self._without

    def clear(self) -> None:
        """Clear times and addresses, before the next step."""
        self.times_ns.clear()
        self.addresses.clear()

    def _insert_ticks(self, trace: TraceCtx, side: int, context: dict[str, Any]) -> TraceCtx:
        statements, ticks = list(self.statements), list(self.ticks)
        before = len(ticks)
        clocked = from_trace(trace)
        clocked.names = set(trace.names)

        def tick(entry: Tick) -> None:
            clocked.bound_symbols.append(_TICK.bind(len(ticks) - before, output=None, _call_ctx=context))
            ticks.append(entry)

        open_: Tick | None = None
        for bsym in trace.bound_symbols:
            if is_statement(bsym) or bsym.sym.id is PrimIDs.RETURN:
                if open_ is not None:
                    tick(open_)
                open_ = None
            if bsym.sym.id is PrimIDs.RETURN and len(ticks) > before:
                count = len(ticks) - before
                clocked.bound_symbols.append(_HAND_OVER_TICKS.bind(count, output=None, _call_ctx=context))
            if is_statement(bsym):
                if not statements or statements[-1].side != side:
                    tick(Tick(-1, frees=False))
                statements.append(_describe(bsym, side))
            clocked.bound_symbols.append(bsym)
            if is_statement(bsym) and self._frees:
                tick(Tick(len(statements) - 1, frees=False))
                noted = (len(statements) - 1, *_outputs(bsym))
                clocked.bound_symbols.append(_NOTE_OUTPUTS.bind(*noted, output=None, _call_ctx={_NOTE: self._note}))
            elif is_statement(bsym):
                open_ = Tick(len(statements) - 1, frees=False)
            elif bsym.sym.id is PrimIDs.DEL and statements and statements[-1].side == side and self._frees:
                open_ = Tick(len(statements) - 1, frees=True)
        self.statements, self.ticks = tuple(statements), tuple(ticks)
        return clocked

    def _note(self, statement: int, *outputs: Any) -> None:
        self.addresses[statement] = tuple(_address(output) for output in outputs)


def _address(output: Any) -> int:
    if isinstance(output, torch.Tensor) and output.layout is torch.strided:
        return output.untyped_storage().data_ptr()
    return 0


def _outputs(bsym: BoundSymbol) -> list[Proxy]:
    """Return the outputs of a statement that are not also inputs, each once."""
    given = {arg.name for arg in bsym.flat_proxy_args}
    return list({out.name: out for out in bsym.flat_proxy_outs if out.name not in given}.values())


def _print_tick(bsym: BoundSymbol, outputs: Any, arguments: Sequence[Any], keywords: Any) -> str:
    return f"{_local(bsym.args[0])} = {_NOW}()"


def _print_hand_over(bsym: BoundSymbol, outputs: Any, arguments: Sequence[Any], keywords: Any) -> str:
    return f"{_HAND_OVER}(({''.join(f'{_local(index)}, ' for index in range(bsym.args[0]))}))"


def _print_note(bsym: BoundSymbol, outputs: Any, arguments: Sequence[Any], keywords: Any) -> str:
    statement, *noted = bsym.args
    return f"{_NOTE}({', '.join((str(statement), *(proxy.name for proxy in noted)))})"


def _local(index: int) -> str:
    return f"wb_tick_{index}"


_NOTE_OUTPUTS = Symbol("workbench_note", meta=None, is_prim=True, python_printer=_print_note)
_TICK = Symbol("workbench_tick", meta=None, is_prim=True, python_printer=_print_tick)
_HAND_OVER_TICKS = Symbol("workbench_hand_over", meta=None, is_prim=True, python_printer=_print_hand_over)


def _describe(bsym: BoundSymbol, side: int) -> TimedStatement:
    where: str | None = bsym.source_filename
    line = bsym.source_positions.lineno if bsym.source_positions else 0
    if isinstance(where, SourceFile):
        line, where = where.user_line, where.user_file
    return TimedStatement(
        name=display_name(bsym),
        side=side,
        outputs=tuple(proxy.name for proxy in _outputs(bsym)),
        source=f"{where.rsplit('/', 1)[-1]}:{line}" if where and line else "",
    )
