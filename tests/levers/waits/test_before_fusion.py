"""If lever `waits` acts before fusion, waits split fusions. An exported config compiles to the planned traces."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType

import pytest
import thunder
import torch

import workbench as wb
from workbench.compiler.api import Plan
from workbench.compiler.frontend import fake_process_group
from workbench.compiler.pipeline.collective_schedule import CollectiveRole
from workbench.core.graph import FORWARD, Kind
from workbench.errors import ChoiceError
from workbench.levers.waits import constraints

pytestmark = pytest.mark.slow

BEFORE = {"waits.stage": "before_fusion"}
ORDER = {"waits.issue": "consumer", "waits.wait": "late", "waits.gradients": "earliest"}


def collectives(plan: Plan) -> list[str]:
    """Return the names of the plan's collectives, in the order of the plan."""
    statements = plan.graph.statements
    return [name for name, kind in zip(statements.name, statements.kind, strict=True) if kind == Kind.COLLECTIVE]


def test_waits_before_fusion_split_fusions_and_the_effect_counts_the_new_fusions(planned: wb.Workbench) -> None:
    planned.choose(ORDER)
    try:
        after, extra = planned.plan, planned.effects("waits.stage")["before_fusion"].fusions
        before = planned._planner.plan(ORDER | BEFORE)
    finally:
        planned.undo()
    assert extra == before.census.count - after.census.count > 0
    assert sorted(collectives(before)) == sorted(collectives(after))
    assert before.overlap is not None
    assert before.overlap.order.inversions == 0


def test_a_late_wait_before_fusion_comes_right_before_its_reader(planned: wb.Workbench) -> None:
    """A late wait that is placed before fusion splits the fusion that reads its result.

    Late waits that are placed after fusion come before the fusion, one after the other.
    """
    late = {"waits.wait": "late"}
    most = [in_a_row(planned._planner.plan(choices)) for choices in (late, late | BEFORE)]
    assert most == [2, 1]


def in_a_row(plan: Plan) -> int:
    """Return the largest number of waits in the forward without another statement between them."""
    statements = plan.graph.statements
    kinds = statements.kind[(statements.parent < 0) & (statements.side == FORWARD)].tolist()
    return max(len(list(run)) for kind, run in itertools.groupby(kinds) if kind == Kind.WAIT)


def test_without_a_policy_the_stage_of_waits_changes_nothing(planned: wb.Workbench) -> None:
    assert planned._planner.plan(BEFORE).text() == planned.stock_plan.text()


@pytest.mark.parametrize("issue", ["earliest", "just_in_time", "in_flight(2)"])
def test_every_joint_order_keeps_all_dependencies(planned: wb.Workbench, issue: str) -> None:
    context = planned._captured.context
    plan = planned._planner.plan({**ORDER, **BEFORE, "waits.issue": issue})
    trace = dict(plan.steps.value)["choices before fusion"][0]
    position = {id(bsym): at for at, bsym in enumerate(trace.bound_symbols)}
    schedule = constraints.joint_schedule(context.claimed, context)
    at = [position[id(bsym)] for bsym in schedule.statements]
    assert all(at[e] < at[i] for i, before in enumerate(schedule.before) for e in before)
    compute = [at[i] for i, role in enumerate(schedule.roles) if role is CollectiveRole.COMPUTE]
    assert compute == sorted(compute)


def test_if_waits_are_placed_before_fusion_a_position_by_hand_still_applies(planned: wb.Workbench) -> None:
    id = "waits:lm_head_weight>all_gather!wait"
    choices = {**ORDER, **BEFORE}
    moved = planned._planner.plan({**choices, id: "early"})
    assert moved.text() != planned._planner.plan(choices).text()
    assert moved.census.count == planned._planner.plan(choices).census.count
    assert moved.unmatched == ()


def test_the_search_for_an_order_places_waits_after_fusion(planned: wb.Workbench) -> None:
    planned.choose({**ORDER, **BEFORE})
    try:
        found = planned.search_waits()
        planned.choose(found.choices)
        assert "waits.stage" not in planned.config.choices
        assert planned.plan.overlap is not None
        assert planned.plan.overlap.simulation.step_s == pytest.approx(found.best.step_s)
        planned.undo()
    finally:
        planned.undo()


def test_placing_waits_before_fusion_is_refused_without_fusions(sharded: wb.Workbench) -> None:
    with pytest.raises(ChoiceError, match="the torch executor makes no fusions"):
        sharded.choose(BEFORE)


@pytest.mark.filterwarnings("error::workbench.errors.ConfigWarning")
@pytest.mark.parametrize("way", ["dynamo", "interpreter"])
def test_an_exported_config_compiles_to_the_planned_traces(
    way: str, programs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Regions run their PyTorch functions without compiling.
    stock = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **given: stock(f, **given) if "backend" in given else f)
    module, x = programs.Normed(), torch.randn(4, 10)
    bench = wb.open(module, x, ranks=2, parallel="fsdp", device="cpu", executor="torchcompile", capture=way)
    bench.choose({**ORDER, **BEFORE, "waits:inner_3_weight>all_gather!wait": "early"})
    config = wb.load(bench.export(tmp_path / "cut.py"))
    with fake_process_group.fake_group(fake_process_group.Ranks(2, "fsdp"), module, "cpu") as shared:
        jitted = config.jit(module, transforms=shared)
        jitted(x)
        traces = [thunder.last_traces(jitted)[-1], thunder.last_backward_traces(jitted)[-1]]
    planned = [bench.plan.split.forward, bench.plan.split.backward]
    assert [[str(b) for b in t.bound_symbols] for t in traces] == [[str(b) for b in t.bound_symbols] for t in planned]
