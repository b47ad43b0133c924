"""Compare the CPU time of two passes that choose cuts between fusions: the workbench's and Thunder's.

A cut is the set of values that one fusion passes to another. The program is the residual chain with 32 layers. Both
passes run in turn in one process, so that the ratio of their CPU seconds does not depend on the machine's load. Each
call gets a new partition, and the workbench's pass starts with an empty cache. In Thunder's source, the weight of a
producer's own arguments is a constant. For another weight, `find_cut` is compiled from a changed copy of its source.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
from thunder.core import rematerialization as thunders
from thunder.core.proxies import TensorProxy
from thunder.core.trace import TraceCtx

import workbench
from tests.compiler.fusion.test_rematerialize import partitioned, thunders_find_cut, whole
from workbench.compiler.fusion.cut_solver import least_cuts
from workbench.compiler.fusion.rematerialize import RematOptions, rematerialize

LAYERS = 32
REPEATS = 3


def cost_bytes(trace: TraceCtx) -> int:
    """Return the sum of the bytes of one element of each tensor that fusions read or write."""
    return sum(
        a.dtype.bytes
        for bsym in trace.bound_symbols
        if bsym.sym.is_fusion
        for a in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs)
        if isinstance(a, TensorProxy)
    )


def compare(bench: workbench.Workbench, weight: float) -> tuple[list[float], list[float]]:
    """Return the CPU seconds of Thunder's pass and of the workbench's. Assert that their results are equal."""
    theirs_s: list[float] = []
    ours_s: list[float] = []

    def timed(times: list[float], work: Callable[[TraceCtx], TraceCtx]) -> TraceCtx:
        trace = partitioned(bench)
        least_cuts.cache_clear()
        start = time.process_time()
        done = work(trace)
        times.append(time.process_time() - start)
        return done

    for _ in range(REPEATS):
        theirs = timed(theirs_s, thunders.rematerialize)
        ours = timed(ours_s, lambda trace: rematerialize(trace, RematOptions(argument_weight=weight)))
        assert cost_bytes(ours) == cost_bytes(theirs)
        assert whole(ours) == whole(theirs)
    return theirs_s, ours_s


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("weight", "at_least"), [(0.0, 5.0), (0.5, 1.5)])
@pytest.mark.parametrize("grad", [False, True])
def test_our_pass_finds_cuts_faster_than_the_pass_of_thunder(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch, grad: bool, weight: float, at_least: float
) -> None:
    bench = workbench.open("residual_chain", layers=LAYERS, grad=grad, device="cpu", executor="torchcompile")
    monkeypatch.setattr(thunders, "find_cut", thunders_find_cut(weight))
    theirs_s, ours_s = benchmark.pedantic(compare, args=(bench, weight), rounds=1)
    ratio = statistics.median(theirs_s) / statistics.median(ours_s)
    benchmark.extra_info.update(thunder_s=theirs_s, ours_s=ours_s, ratio=ratio)
    print(f"grad {grad}, weight {weight}: {ratio:.1f} times faster than Thunder's pass")
    assert ratio >= at_least
