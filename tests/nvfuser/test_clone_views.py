"""nvFuser may return a view in place of a clone, and a replay detects this. In a plan, PyTorch makes needed copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import thunder
import torch

from tests.nvfuser import replays
from workbench.compiler.interop import devices
from workbench.programs import resolve

type Outputs = tuple[torch.Tensor, ...]


def of_what_is_written(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    before = a.clone()
    a.add_(torch.sin(a) * b)
    return (before,)


def written_itself(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    own = a.clone()
    own.add_(b)
    return (own * 2.0,)


def of_what_is_computed(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    y = torch.exp(a)
    before = y.clone()
    y.add_(b)
    return before, y


def of_a_view(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    before = a.transpose(0, 1).clone()
    a.add_(b)
    return (before,)


def of_a_clone(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    before = a.clone().clone()
    a.add_(b)
    return (before,)


WRITTEN = (of_what_is_written, written_itself, of_what_is_computed, of_a_view, of_a_clone)


def given() -> Outputs:
    torch.manual_seed(0)
    return torch.randn(4, 6), torch.randn(4, 6)


@pytest.mark.parametrize("fences", ["keep", "drop"])
@pytest.mark.parametrize("program", WRITTEN)
def test_a_clone_keeps_its_value_when_the_original_is_written(program: Callable[..., Outputs], fences: str) -> None:
    bench = replays.planned(program, *given())
    if any(fences in site.options for site in bench.sites("copies")):
        bench.choose({"copies.fences": fences})
    replays.holds(bench, replays.eager(program, *given()))


def test_unmodified_thunder_with_nvfuser_overwrites_a_clone() -> None:
    """If a later Thunder copies, this test fails. Then delete `workbench.compiler.fusion.nvfuser_clone_hazards`."""
    known = replays.eager(of_what_is_written, *given())
    program = resolve(of_what_is_written, *given(), device="planned")
    assert program.fake_mode is not None
    jitted = thunder.jit(program.callable, executors=[devices.nvfuser_module().ex])
    with devices.planned_gpu(program.fake_mode):
        entry, _, _ = jitted._lc_cd.get_computation_and_inputs(*program.args)
    assert replays.differences(replays.replay(entry.computation_traces[-1], None, known.before), known) == ["output 0"]


def both_returned(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    y = torch.exp(a) * b
    return y, y.clone()


def given_back(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    return a.clone(), torch.sin(a) * b


@pytest.mark.parametrize("program", [both_returned, given_back])
def test_a_returned_clone_shares_no_memory_with_its_original(
    program: Callable[..., Outputs],
) -> None:
    known = replays.eager(program, *given())
    found = replays.replayed(replays.planned(program, *given()), known)
    pointers = [tensor.data_ptr() for tensor in (*found.outputs, *found.arguments.values())]
    assert len(set(pointers)) == len(pointers)


def stays_inside(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    return (torch.sin(a.clone()) * b,)


def test_a_clone_that_only_a_fusion_reads_stays_in_the_fusion() -> None:
    (fusion,) = replays.fusions(replays.planned(stays_inside, *given()))
    assert "clone" in [member.sym.name for member in fusion.subsymbols]


def in_one_memory(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    y = torch.exp(a)
    return y, y.transpose(0, 1), torch.sin(b)


def in_parts(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    y = torch.exp(a @ b.transpose(0, 1))
    return y[:, :2], y[:, 2:], torch.relu(b)


def of_what_the_fusion_reads(a: torch.Tensor, b: torch.Tensor) -> Outputs:
    z = a @ b.transpose(0, 1)
    return torch.exp(z[:, :2]), z[:, 2:].transpose(0, 1), z


@pytest.mark.parametrize(
    ("program", "shared"),
    [(in_one_memory, [0, 0, 2]), (in_parts, [0, 0, 2]), (of_what_the_fusion_reads, [0, 1, 1])],
)
def test_outputs_share_memory_in_a_replay_as_in_the_plan(program: Callable[..., Outputs], shared: list[int]) -> None:
    known = replays.eager(program, *given())
    bench = replays.planned(program, *given())
    graph, found = bench.plan.graph, replays.replayed(bench, known)

    def alike(storages: list[Any]) -> list[int]:
        return [storages.index(storage) for storage in storages]

    assert alike([int(graph.values.storage[value]) for value in graph.ends.outputs]) == shared
    assert alike([output.untyped_storage().data_ptr() for output in found.outputs]) == shared
    assert not replays.differences(found, known)
