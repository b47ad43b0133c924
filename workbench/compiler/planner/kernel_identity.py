"""Kernels that a compiled program runs. If they are the same as unmodified Thunder's, every bit must be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from workbench.compiler.interop.thunder_api import BoundSymbol, TraceCtx, last_backward_traces, last_traces
from workbench.compiler.memory.offload import ARRIVE, OFFLOAD, RELOAD
from workbench.compiler.trace.fingerprints import fusion_key, statement_key
from workbench.compiler.trace.stable_ids import is_statement

_MOVES = (OFFLOAD, RELOAD, ARRIVE)
"""Statements that only move bytes."""


def kernels(traces: Iterable[TraceCtx]) -> dict[str, str]:
    """Return the kernels of execution traces, each once, however often it runs.

    Parameters
    ----------
    traces : iterable of TraceCtx
        Execution traces: a forward and, if it exists, its backward.

    Returns
    -------
    dict of str to str
        Maps a key to the name of a statement. A fusion's key is its structure; any other statement's key is its symbol
        with constants, shapes and data types. Kernels with equal keys run equal code.
    """
    return {_key(bsym): str(bsym.sym.name) for bsym in _computing_statements(traces)}


def kernels_of(jitted: Callable[..., Any]) -> dict[str, str]:
    """Return the `kernels` of the last call of a ``thunder.jit`` result, over all its parts if it has several."""
    compiled = getattr(jitted, "_workbench_jitted", (jitted,))
    last = [traces for each in compiled for traces in (last_traces(each), last_backward_traces(each))]
    return kernels(traces[-1] for traces in last if traces)


def _computing_statements(traces: Iterable[TraceCtx]) -> Iterator[BoundSymbol]:
    for trace in traces:
        for bsym in trace.bound_symbols:
            if is_statement(bsym) and not bsym.sym.name.startswith(_MOVES):
                yield bsym


def _key(bsym: BoundSymbol) -> str:
    return fusion_key(bsym) if bsym.sym.is_fusion else statement_key(bsym)
