"""Passes that store their results with segments give the results of passes that store nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from workbench.compiler.fastpath.deletions import delete_last_used
from workbench.compiler.fastpath.final_claim import claim_operators
from workbench.compiler.fastpath.split import split
from workbench.compiler.fusion.fusion_passes import Regions
from workbench.compiler.interop.thunder_api import (
    BoundSymbol,
    TensorProxy,
    TraceCtx,
    dtypes,
    from_trace,
    get_always_executors,
    prims,
    tracectx,
)
from workbench.compiler.interop.thunder_api import devices as thunder_devices
from workbench.compiler.trace.bsym_memo import PlanMemo
from workbench.compiler.trace.dead_code import remove_dead
from workbench.compiler.trace.segments import attach, segment_of

PASSES: dict[str, Callable[[TraceCtx, PlanMemo | None], TraceCtx]] = {
    "alive in segment": remove_dead,
    "deletions of segment": delete_last_used,
    "repeats in segment": lambda trace, memo: Regions(memo).remove_repeats(trace),
    "casts in segment": lambda trace, memo: Regions(memo).remove_casts(trace),
    "divided": lambda trace, memo: halves(trace, memo),
    "claimed": lambda trace, memo: claim_operators(trace, get_always_executors(), memo or PlanMemo()),
}
"""Passes, by the name of their stored results."""
SEGMENTS, LENGTH, PROGRAMS = 4, 4, 20


def value(name: str, dtype: Any) -> TensorProxy:
    with tracectx(TraceCtx(None)):
        return TensorProxy(name, shape=(4,), device=thunder_devices.Device("cpu"), dtype=dtype, requires_grad=False)


def statement(draw: random.Random, out: TensorProxy, earlier: list[TensorProxy]) -> BoundSymbol:
    """Return a cast or a sum of earlier values, with the result `out`."""
    alike = [each for each in earlier if each.dtype == out.dtype]
    if alike and draw.random() < 0.4:
        return prims.add.bind(draw.choice(alike), draw.choice(alike), output=out)
    return prims.convert_element_type.bind(draw.choice(earlier), out.dtype, output=out)


def variants(draw: random.Random) -> list[list[list[BoundSymbol]]]:
    """Return two alternatives of each segment of a program. Both make the same values."""
    earlier, found = [value("x", dtypes.float32), value("y", dtypes.bfloat16)], []
    for number in range(SEGMENTS):
        outs = [value(f"t{number}_{at}", draw.choice((dtypes.float32, dtypes.bfloat16))) for at in range(LENGTH)]
        made = [[statement(draw, out, earlier + outs[:at]) for at, out in enumerate(outs)] for _ in range(2)]
        found.append(made)
        earlier += outs
    inputs = earlier[:2]

    def returned() -> dict[str, Any]:
        outputs, gradients = draw.sample(earlier, 2), draw.sample(earlier, 2)
        return {"fw_flat_out": tuple(outputs), "flat_args": inputs, "output": tuple(gradients)}

    found.append([[prims.python_return.bind(returned(), output=None)] for _ in range(2)])
    return found


def halves(trace: TraceCtx, memo: PlanMemo | None) -> TraceCtx:
    """Return one trace with the statements of both halves of a split."""
    forward, backward = split(trace, memo or PlanMemo())
    both = from_trace(forward)
    both.bound_symbols = [*forward.bound_symbols, *(backward.bound_symbols if backward is not None else ())]
    return both


def text(trace: TraceCtx) -> list[tuple[Any, ...]]:
    return [
        (bsym.sym.name, [getattr(arg, "name", arg) for arg in bsym.flat_args], [o.name for o in bsym.flat_proxy_outs])
        for bsym in trace.bound_symbols
    ]


def differences(name: str) -> int:
    """Return how many results of a pass differ from those of the same pass without a memo."""
    draw, memo, found = random.Random(name), PlanMemo(), 0
    for _ in range(PROGRAMS):
        program = variants(draw)
        for _ in range(12):
            chosen = [draw.choice(alternatives) for alternatives in program]
            trace = TraceCtx(None)
            attach(trace, [segment_of(bsyms, memo.get_or_make) for bsyms in chosen])
            whole = from_trace(trace)
            whole.bound_symbols = list(trace.bound_symbols)
            memo.begin()
            found += text(PASSES[name](trace, memo)) != text(PASSES[name](whole, None))
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "claimed" else []) for name in PASSES]
)
def test_a_pass_with_stored_segments_equals_the_pass_without(name: str) -> None:
    assert not differences(name)


# In these programs, the last pass reads nothing from outside of a segment.
@pytest.mark.parametrize("name", [name for name in PASSES if name != "claimed"])
def test_a_stored_segment_depends_on_what_the_pass_read_from_outside(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock = PlanMemo.get_or_make

    def careless(self: PlanMemo, key: Hashable, alive: Any, make: Callable[[], Any]) -> Any:
        # Leave out what the pass read from outside.
        short = key[:2] if isinstance(key, tuple) and key[0] == name else key
        return stock(self, short, alive, make)

    monkeypatch.setattr(PlanMemo, "get_or_make", careless)
    assert differences(name)


def test_a_stored_segment_depends_on_the_statements_outside_of_fusions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.compiler.fusion.fusion_passes._Outside.has_same", lambda *_: True)
    assert differences("repeats in segment")
