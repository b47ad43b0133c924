"""ZeRO-3: the forward does not save the parameters that it gathers. The backward gathers them again."""

from __future__ import annotations

import numpy as np
import pytest

import workbench as wb
from workbench.compiler.api import Plan
from workbench.core.graph import BACKWARD, FORWARD, Kind

pytestmark = pytest.mark.slow

HEAD = "saved:head_weight>all_gather"


def gathers(plan: Plan, side: int) -> int:
    statements = plan.graph.statements
    return sum(
        "all_gather" in statements.name[row] and statements.side[row] == side
        for row in np.flatnonzero(statements.kind == Kind.COLLECTIVE)
    )


def saved_whole(plan: Plan) -> list[str]:
    """Return the names of saved full parameters: saved values in a storage that a collective allocated."""
    graph = plan.graph
    collective = graph.statements.kind == Kind.COLLECTIVE
    made = {int(graph.values.storage[v]) for r in np.flatnonzero(collective) for v in graph.statements.outputs[r]}
    return [graph.values.name[v] for v in graph.saved() if int(graph.values.storage[v]) in made]


def test_shards_are_saved_instead_of_full_parameters(sharded: wb.Workbench, regathered: wb.Workbench) -> None:
    once, again = sharded.stock_plan, regathered.stock_plan
    assert len(saved_whole(once)) == 6
    assert saved_whole(again) == []
    assert (gathers(once, FORWARD), gathers(once, BACKWARD)) == (9, 0)
    # The backward reads no bias, so it gathers no bias. It gathers the embedding's weight, because the loss adds the
    # square of this weight.
    assert (gathers(again, FORWARD), gathers(again, BACKWARD)) == (9, 6)
    assert again.saved_bytes < once.saved_bytes
    assert again.peak_bytes < once.peak_bytes


def test_zero3_changes_the_number_of_fusions_by_at_most_one() -> None:
    plans = [
        wb.open(
            "fsdp_llama", device="planned", executor="nvfuser", ranks=8, parallel=parallel, settings={"layers": 1}
        ).stock_plan
        for parallel in ("fsdp", "fsdp_zero3")
    ]
    once, again = plans
    assert saved_whole(once)
    assert saved_whole(again) == []
    assert gathers(again, BACKWARD) == len({*saved_whole(once)})
    assert abs(again.fusions.count - once.fusions.count) <= 1
    assert again.peak_bytes < once.peak_bytes


def test_saving_a_parameter_removes_one_gather_of_the_backward(regathered: wb.Workbench) -> None:
    site = regathered.site(HEAD)
    assert (site.choice, site.default) == ("recompute", "recompute")
    kept = regathered._planner.plan({HEAD: "save"})
    assert len(saved_whole(kept)) == 1
    assert gathers(kept, BACKWARD) == gathers(regathered.stock_plan, BACKWARD) - 1


def test_recomputing_a_single_parameter_adds_one_gather_to_the_backward(sharded: wb.Workbench) -> None:
    plan = sharded._planner.plan({HEAD: "recompute"})
    assert len(saved_whole(plan)) == len(saved_whole(sharded.stock_plan)) - 1
    assert gathers(plan, BACKWARD) == 1


def test_the_gather_of_the_backward_has_a_separate_site(regathered: wb.Workbench) -> None:
    id = "waits:head_weight>all_gather~"
    first, last = (regathered.site(i).range for i in (id, "waits:embed_weight>all_gather~"))
    assert first != last
    plan = regathered._planner.plan({id: "just_in_time", f"{id}!wait": "late"})
    assert plan.unmatched == ()


@pytest.mark.parametrize("limit", [1, 2])
def test_a_limit_in_flight_leaves_few_full_parameters_in_the_backward(regathered: wb.Workbench, limit: int) -> None:
    choices = {"waits.wait": "late", "waits.gradients": "earliest"}
    early = regathered._planner.plan({**choices, "waits.issue": "earliest"})
    few = regathered._planner.plan({**choices, "waits.issue": f"in_flight({limit})"})
    assert early.overlap is not None
    assert few.overlap is not None
    begin = early.graph.first_backward
    # Both plans have the same reductions in flight, so a difference in bytes comes from gathers.
    most = [int(p.overlap.simulation.in_flight_bytes[begin:].max()) for p in (early, few)]
    assert most[1] < most[0]
    assert few.overlap.order.inversions == 0


def test_gradients_are_reduced_as_soon_as_they_exist(regathered: wb.Workbench) -> None:
    stock = regathered.stock_plan.overlap
    for choices in ({}, {"waits.bucket": "layer"}):
        early = regathered._planner.plan({**choices, "waits.gradients": "earliest"}).overlap
        assert early is not None
        assert stock is not None
        assert sum(early.order.distances) / len(early.order.distances) > sum(stock.order.distances) / len(
            stock.order.distances
        )


def test_a_config_keeps_the_parallel_mode(regathered: wb.Workbench, programs, tmp_path) -> None:
    config = wb.load(regathered.export(tmp_path / "shared.py"))
    assert (config.ranks, config.parallel) == (2, "fsdp_zero3")
    again = wb.open(programs.Blocks(), *regathered.program.args, config=config)
    assert again.plan.text() == regathered.plan.text()


def test_a_config_for_several_ranks_is_refused_in_a_single_process(regathered: wb.Workbench) -> None:
    with pytest.raises(wb.errors.ConfigError, match="2 ranks share Blocks by 'fsdp_zero3', but this process is not in"):
        regathered.config.jit(regathered.program.callable)
