"""List the kernels of a compiled program. If unmodified Thunder runs the same kernels, results are bitwise equal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from workbench.compiler.interop.thunder_api import BoundSymbol, TraceCtx, last_backward_traces, last_traces
from workbench.compiler.memory.offload import ARRIVE, OFFLOAD, RELOAD
from workbench.compiler.trace.fingerprints import fusion_key, statement_key
from workbench.compiler.trace.stable_ids import is_statement

_MOVES = (OFFLOAD, RELOAD, ARRIVE)
"""Name prefixes of statements that only move bytes."""


def kernels(traces: Iterable[TraceCtx]) -> dict[str, str]:
    """Return the kernels of execution traces. A kernel that runs several times is listed once.

    Parameters
    ----------
    traces : iterable of TraceCtx
        Execution traces: a forward and, if it exists, its backward.

    Returns
    -------
    dict of str to str
        Maps a kernel's key to the name of a statement that runs the kernel. The key is `fusion_key` for a fusion, and
        `statement_key` for any other statement. Equal keys mean equal code.
    """
    return {_key(bsym): str(bsym.sym.name) for bsym in _computing_statements(traces)}


def kernels_of(jitted: Callable[..., Any]) -> dict[str, str]:
    """Return the kernels of the last call of a function that ``thunder.jit`` has made, for all parts of a program.

    An operator that Thunder does not know runs uncompiled in PyTorch. Unmodified Thunder compiles such operators with
    Inductor, so the results may not be bitwise equal. The operator is therefore listed under a separate key.
    """
    compiled = getattr(jitted, "_workbench_jitted", (jitted,))
    last = [traces for each in compiled for traces in (last_traces(each), last_backward_traces(each))]
    uncompiled = {f"uncompiled {name}": name for name in getattr(jitted, "_workbench_uncompiled", ())}
    return kernels(traces[-1] for traces in last if traces) | uncompiled


def _computing_statements(traces: Iterable[TraceCtx]) -> Iterator[BoundSymbol]:
    for trace in traces:
        for bsym in trace.bound_symbols:
            if is_statement(bsym) and not bsym.sym.name.startswith(_MOVES):
                yield bsym


def _key(bsym: BoundSymbol) -> str:
    return fusion_key(bsym) if bsym.sym.is_fusion else statement_key(bsym)
