"""The joint trace computes what the program's own trace does: both taken apart to primitives and numbered by value.

Thunder's gradient rules and executors take composite ops apart in ways of their own; down to primitives the forward is
the same terms. Too slow for every plan: each primitive is run with fake tensors once more (docs/proof.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch

import workbench
from tests.levers.fuzz import drawn_program
from workbench.analysis.numbering import Numbered, Walk
from workbench.analysis.terms import Terms
from workbench.bench import Workbench
from workbench.compiler.copies import is_copy
from workbench.compiler.reader import read_joint
from workbench.compiler.thunder_api import BoundSymbol, TraceCtx, from_trace

SEEDS = (*range(7001, 7007), 7008, 7009)
"""Of random programs that Thunder takes and that return something."""
BUILT_IN = ("batch_norm", "dropout_mlp", "residual_chain", "swap")


def primitives(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    for bsym in bsyms:
        if bsym.subsymbols and not bsym.sym.is_prim and not is_copy(bsym):
            yield from primitives(bsym.subsymbols)
        else:
            yield bsym


def numbered(bench: Workbench, trace: TraceCtx, terms: Terms) -> Numbered:
    stage = bench._captured.stage
    apart = from_trace(trace)
    apart.names = set(trace.names)
    apart.bound_symbols = list(primitives(trace.bound_symbols))
    graph = read_joint(apart, stage.origins, frozenset(), cache=stage.cache, arguments=stage.arguments)
    return Walk(terms, graph, drops_casts=False).result()


def differences(bench: Workbench, joint: TraceCtx | None = None) -> set[str]:
    """What of the forward differs between the program's own trace and a joint trace."""
    stage, terms = bench._captured.stage, Terms()
    assert stage.program is not None
    program, made = (numbered(bench, trace, terms) for trace in (stage.program, joint or stage.joint))
    assert len(program.outputs) == len(made.outputs)
    assert any(number >= 0 for number in program.outputs) or program.written
    return {name for name in ("outputs", "written", "draws") if getattr(program, name) != getattr(made, name)}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_of_a_built_in_program(name: str) -> None:
    assert differences(workbench.open(name, device="cpu", executor="torch")) == set()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_random_program(seed: int) -> None:
    function, args, kwargs = drawn_program("torch", seed).build()
    bench = workbench.open(function, *args, device="cpu", executor="torch", capture="interpreter", **kwargs)
    assert differences(bench) == set()


def test_of_a_program_whose_dropout_is_drawn_again() -> None:
    assert differences(workbench.open("checkpoint_dropout", device="cpu", executor="torch")) == {"draws"}


def written_and_read(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.sin(x)
    y.mul_(w)
    return torch.cos(y) - torch.exp(w)


@pytest.mark.parametrize("change", ["swapped operands", "another operand"])
def test_a_joint_trace_that_computes_something_else_is_found(change: str) -> None:
    bench = workbench.open(written_and_read, torch.ones(3), torch.ones(3), device="cpu", executor="torch")
    assert differences(bench) == set()
    joint = bench._captured.stage.joint
    broken = from_trace(joint)
    broken.names = set(joint.names)
    broken.bound_symbols = [changed(bsym, change) for bsym in primitives(joint.bound_symbols)]
    assert differences(bench, broken) == {"outputs"}


def changed(bsym: BoundSymbol, change: str) -> Any:
    if change == "swapped operands" and bsym.sym.name == "sub":
        return bsym.from_bsym(args=tuple(reversed(bsym.args[:2])))
    if change == "another operand" and bsym.sym.name == "mul":
        return bsym.from_bsym(args=(bsym.args[0], bsym.args[0]))
    return bsym
