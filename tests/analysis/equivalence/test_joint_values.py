"""The check of joint traces accepts a trace with the values of the program's trace, and names values that differ."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import workbench
from tests.levers.fuzz import drawn_program
from tests.trial_counts import beyond
from workbench.analysis.equivalence.terms import Terms, may_write, may_write_memory
from workbench.bench import Workbench
from workbench.compiler.interop.thunder_api import BoundSymbol, TraceCtx, from_trace
from workbench.compiler.pipeline import value_check
from workbench.compiler.pipeline.value_check import lost_in_tracing, primitives
from workbench.compiler.planner import planner
from workbench.compiler.trace.copy_sets import leaves
from workbench.compiler.trace.lazy_value import LazyValue
from workbench.core.graph import StatementFlag

CHANGED = {
    "swapped operands": "sub",
    "another operand": "mul",
    "another number": "add",
    "swapped results": "add",
}
"""Changes to a joint trace. Each has the text that the check's message must contain."""
SEEDS = (*range(7001, 7007), 7008, 7009)
"""Seeds of random programs that Thunder accepts and that return something."""
BUILT_IN = ("batch_norm", "dropout_mlp", "residual_chain", "swap")


def lost(bench: Workbench, joint: TraceCtx | None = None) -> str:
    context = bench._captured.context
    if joint is not None:
        context = dataclasses.replace(context, gradients=LazyValue(lambda: joint), few=None)
    return lost_in_tracing(context)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_the_joint_trace_of_a_builtin_program_loses_nothing(name: str) -> None:
    assert lost(workbench.open(name, device="cpu", executor="torch")) == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", beyond(3, SEEDS))
def test_the_joint_trace_of_a_random_program_loses_nothing(seed: int) -> None:
    function, args, kwargs = drawn_program("torch", seed).build()
    bench = workbench.open(function, *args, device="cpu", executor="torch", capture="interpreter", **kwargs)
    assert lost(bench) == ""


def test_the_joint_trace_of_recomputed_dropout_loses_nothing() -> None:
    """This check compares only the forward. Another check reports that the backward draws random numbers again."""
    assert lost(workbench.open("checkpoint_dropout", device="cpu", executor="torch")) == ""


def written_and_read(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.sin(x)
    y.mul_(w)
    return torch.cos(y) - torch.exp(w), w + 0.0


def pooled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.max_pool2d(x * w, 2) + 1


def test_an_op_of_an_executor_counts_as_the_composite_that_it_replaces() -> None:
    x = torch.rand(1, 2, 4, 4, requires_grad=True)
    bench = workbench.open(pooled, x, torch.rand(4), device="cpu", executor="torch")
    joint = bench._captured.context.joint
    assert any(bsym.sym.name == "max_pool2d_with_indices" for bsym in primitives(joint.bound_symbols))
    assert lost(bench) == ""


def test_no_graph_is_read_if_both_traces_have_the_same_primitives(monkeypatch: pytest.MonkeyPatch) -> None:
    """The composites of this program are one call for Thunder's executors, and in-place copies count as primitives."""
    monkeypatch.setattr(value_check, "read_joint", None)
    x = torch.ones(3, requires_grad=True)
    bench = workbench.open(written_and_read, x, torch.ones(3), device="cpu", executor="torch")
    assert bench.plan.proof.proven
    assert lost(bench) == ""


@pytest.mark.parametrize("change", CHANGED)
def test_a_joint_trace_with_another_result_is_found(change: str) -> None:
    bench = workbench.open(written_and_read, torch.ones(3), torch.ones(3), device="cpu", executor="torch")
    assert lost(bench) == ""
    captured = bench._captured
    joint = captured.context.joint
    broken = from_trace(joint)
    broken.names = set(joint.names)
    broken.bound_symbols = [changed(bsym, change) for bsym in primitives(joint.bound_symbols)]
    assert CHANGED[change] in lost(bench, broken)
    captured.planned.bases.clear()
    context = dataclasses.replace(captured.context, gradients=LazyValue(lambda: broken))
    stock = planner.plan(dataclasses.replace(captured, lazy_context=LazyValue(lambda: context)), {})
    assert not stock.proof.proven
    assert CHANGED[change] in stock.proof.fault
    assert any("under any choices" in warning for warning in stock.warnings)


def changed(bsym: BoundSymbol, change: str) -> Any:
    if change == "swapped operands" and bsym.sym.name == "sub":
        return bsym.from_bsym(args=tuple(reversed(bsym.args[:2])))
    if change == "another operand" and bsym.sym.name == "mul":
        return bsym.from_bsym(args=(bsym.args[0], bsym.args[0]))
    if change == "another number" and bsym.sym.name == "add":
        return bsym.from_bsym(args=(bsym.args[0], -bsym.args[1]))
    if change == "swapped results" and bsym.sym.name == "python_return":
        (returned,) = bsym.args
        return bsym.from_bsym(args=({**returned, "output": returned["output"][::-1]},))
    return bsym


@pytest.mark.parametrize("name", [*BUILT_IN, "adam", "lost_update"])
def test_a_program_may_write_memory_if_a_name_of_its_operators_says_so(name: str) -> None:
    """The check reads the program's graph, which is slow, only if an operator's name says that it may write memory."""
    context = workbench.open(name, device="cpu", executor="torch")._captured.context
    assert context.program is not None
    graph = context.read_graph(context.program)
    plain = dataclasses.replace(graph.statements, flags=graph.statements.flags & ~StatementFlag.INPLACE)
    by_names = any(may_write_memory(str(bsym.sym.name)) for bsym in leaves(context.program.bound_symbols))
    assert by_names == may_write(dataclasses.replace(graph, statements=plain), Terms())
    assert by_names == (name in ("batch_norm", "swap", "adam", "lost_update"))
