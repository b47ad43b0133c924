"""Lever `sharing`: identical fusions are compiled only once, and no result changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters as dynamo_counters

import workbench
from workbench.compiler.api import jit
from workbench.core.executor import why_no_nvfuser

pytestmark = pytest.mark.slow


class Counting:
    """An observer of compilations that records the name of each compiled fusion."""

    def __init__(self) -> None:
        self.compiled: list[str] = []

    def stage(self, name: str, seconds: float) -> None:
        """Ignore the event."""

    def fusion_begin(self, name: str, index: int, count: int) -> None:
        """Ignore the event."""

    def fusion_end(self, name: str, index: int, count: int, seconds: float, *_: Any, **__: Any) -> None:
        self.compiled.append(name)


def gradients(program: Any, compiled: Any) -> list[torch.Tensor]:
    _, args, _ = program
    output = compiled(*args)
    output.sum().backward()
    return [output.detach(), *(argument.grad for argument in args)]


def test_sharing_compiles_each_structure_once_and_gives_right_results() -> None:
    bench = workbench.open("residual_chain", device="cpu", executor="torchcompile", layers=3, grad=True)
    fusions = bench.plan.census.count
    moved = bench.choose({"sharing.identical": "shared"})
    counted = Counting()
    program, reference = bench.program.build(), bench.program.build()
    found = gradients(program, jit(bench.config, program[0], observer=counted))
    for one, other in zip(found, gradients(reference, reference[0]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert len(counted.compiled) == bench.plan.counts["compilations"] == bench.plan.census.unique < fusions
    assert moved.counts["compilations"] == bench.plan.counts["compilations"] - fusions


def two_halves(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.tanh(x) * 2) @ w, (torch.tanh(y) * 2) @ w


def test_fusions_whose_inputs_differ_in_strides_are_compiled_separately() -> None:
    """torch.compile compiles again for other strides, so such fusions cannot share one compiled fusion."""
    x, y, w = (torch.randn(64, 64) for _ in range(3))
    for second, compilations in ((y, 1), (y.t(), 2)):
        bench = workbench.open(two_halves, x, second, w, executor="torchcompile")
        bench.choose({"sharing.identical": "shared"})
        counted, before = Counting(), dynamo_counters["stats"]["unique_graphs"]
        found = jit(bench.config, two_halves, observer=counted)(x, second, w)
        torch.testing.assert_close(found, two_halves(x, second, w))
        # Dynamo also captures the program itself.
        assert dynamo_counters["stats"]["unique_graphs"] - before == compilations + 1
        assert (len(counted.compiled), bench.plan.counts["compilations"]) == (compilations, compilations)
        assert (bench.plan.census.count, bench.plan.census.unique) == (2, compilations)


@pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser())
def test_nvfuser_fusions_whose_inputs_differ_in_the_order_of_strides_are_compiled_separately() -> None:
    x, y, w = (torch.randn(64, 128) for _ in range(3))
    # nvFuser's definition depends on the order of the strides, and on which dimensions are contiguous.
    for second, compilations in ((y[:, :64], 1), (y[:, 64:], 1), (y[:, ::2].t(), 2)):
        bench = workbench.open(
            two_halves, x[:, :64], second, w[:, :64].contiguous(), device="planned", executor="nvfuser"
        )
        bench.choose({"sharing.identical": "shared"})
        assert (bench.plan.census.unique, bench.plan.counts["compilations"]) == (compilations, compilations)


@pytest.mark.skipif(bool(why_no_nvfuser()), reason=why_no_nvfuser())
def test_sharing_changes_only_compilation() -> None:
    bench = workbench.open("residual_chain", device="planned", executor="nvfuser", layers=32, grad=True)
    before = bench.plan
    bench.choose({"sharing.identical": "shared"})
    # Two fusions can be identical even if different inputs require gradients, because compilers ignore this.
    assert before.census.unique == bench.plan.census.unique == 6
    assert (before.counts["compilations"], bench.plan.counts["compilations"]) == (129, 6)
    assert str(before.split.forward.bound_symbols) == str(bench.plan.split.forward.bound_symbols)
    assert bench.plan.peak_bytes == before.peak_bytes
