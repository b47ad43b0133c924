"""Under each policy, lever `waits` gives the stated order of collectives on ranks. Illegal positions are refused."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from thunder.core import prims
from thunder.core.trace import TraceCtx, from_trace
from thunder.distributed.utils import limit_in_flight_allgathers
from thunder.executors.passes import del_last_used

import workbench as wb
from workbench.analysis.cost.collective_overlap import Overlap
from workbench.analysis.equivalence.prove import fault, prove
from workbench.compiler.memory.graph_builder import read_execution
from workbench.compiler.trace.validate import validate
from workbench.errors import ChoiceError, PlanError, ProgramError, RunError
from workbench.levers.waits import constraints
from workbench.levers.waits.positions import sort_keys

pytestmark = pytest.mark.slow

LATE = {"waits.wait": "late", "waits.gradients": "earliest"}


def overlap(bench: wb.Workbench, choices: dict[str, str]) -> Overlap:
    found = bench._planner.plan(choices).overlap
    assert found is not None
    return found


def statements(trace: TraceCtx) -> list[str]:
    """Return the text of each statement, without comments. Statements that delete values are left out."""
    return [str(b).split("#")[0] for b in trace.bound_symbols if b.sym.id is not prims.PrimIDs.DEL]


def in_flight(trace: TraceCtx) -> int:
    """Return the largest number of gathers that are in flight at once: issued, and before their waits."""
    now = most = 0
    gathers: set[str] = set()
    for bsym in trace.bound_symbols:
        if "all_gather" in bsym.sym.name:
            gathers.update(out.name for out in bsym.flat_proxy_outs)
            now += 1
        elif bsym.sym.name == "torch_wait_prim_impl" and bsym.flat_proxy_args[0].name in gathers:
            now -= 1
        most = max(most, now)
    return most


def test_the_stock_order_issues_gathers_in_another_order_than_that_of_their_readers(planned: wb.Workbench) -> None:
    stock = overlap(planned, {})
    assert stock.order.inversions > 0
    assert stock.order.without_compute > stock.order.collectives // 3


def test_late_waits_alone_keep_the_order_of_issue(planned: wb.Workbench) -> None:
    assert overlap(planned, LATE).order.inversions == overlap(planned, {}).order.inversions


def test_consumer_order_has_no_inversions_and_a_smaller_stall(planned: wb.Workbench) -> None:
    late = overlap(planned, LATE)
    ordered = overlap(planned, {**LATE, "waits.issue": "consumer"})
    assert ordered.order.inversions == 0
    assert ordered.simulation.stall_s[0] < late.simulation.stall_s[0]


def test_just_in_time_has_at_most_a_quarter_of_the_bytes_in_flight(planned: wb.Workbench) -> None:
    just = overlap(planned, {**LATE, "waits.issue": "just_in_time"})
    largest = max(site.bytes for site in planned.sites("waits"))
    assert just.order.inversions == 0
    assert just.simulation.in_flight_peak_bytes <= overlap(planned, {}).simulation.in_flight_peak_bytes // 4
    assert just.simulation.in_flight_bytes[: planned.plan.graph.first_backward].max() >= largest


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_in_flight_k_has_at_most_k_gathers_in_flight(planned: wb.Workbench, limit: int) -> None:
    plan = planned._planner.plan({**LATE, "waits.issue": f"in_flight({limit})"})
    assert in_flight(plan.split.forward) == limit
    assert plan.overlap is not None
    assert plan.overlap.order.inversions == 0


def test_gradients_are_reduced_as_soon_as_they_exist(planned: wb.Workbench) -> None:
    stock, early = overlap(planned, {}), overlap(planned, {"waits.gradients": "earliest"})
    assert sum(early.order.distances) > 2 * sum(stock.order.distances)
    assert early.simulation.step_s < stock.simulation.step_s


def test_every_policy_keeps_every_statement(planned: wb.Workbench) -> None:
    stock = planned.stock_plan.split
    changed = planned._planner.plan({**LATE, "waits.issue": "in_flight(4)"}).split
    for before, after in ((stock.forward, changed.forward), (stock.backward, changed.backward)):
        assert statements(before) != statements(after)
        assert sorted(statements(before)) == sorted(statements(after))


def test_no_order_beats_the_lower_bound(planned: wb.Workbench) -> None:
    policies = [{}, LATE, *({**LATE, "waits.issue": p} for p in ("consumer", "just_in_time", "in_flight(2)"))]
    found = [overlap(planned, choices) for choices in policies]
    assert all(each.lower_bound_s <= each.simulation.step_s + 1e-12 for each in found)
    assert max(e.lower_bound_s for e in found) == pytest.approx(min(e.lower_bound_s for e in found))


@given(data=st.data())
@settings(max_examples=20)
def test_any_legal_placement_by_hand_gives_a_valid_trace(planned: wb.Workbench, data: st.DataObject) -> None:
    split = planned.stock_plan.split
    context = planned._captured.context
    edited = []
    for trace in (split.forward, split.backward):
        schedule = constraints.schedule(trace, context)
        names = (*schedule.names, "end")
        choices = {}
        for collective in schedule.collectives:
            slots = st.integers(schedule.low[collective.issue], schedule.high[collective.wait])
            issue, wait = sorted((data.draw(slots), data.draw(slots)))
            choices[f"waits:{collective.place}"] = f"at({names[issue]})"
            choices[f"waits:{collective.place}!wait"] = f"at({names[wait]})"
        order = schedule.arrange(sort_keys(schedule, choices))
        position = {statement: at for at, statement in enumerate(order)}
        assert sorted(order) == list(range(len(order)))
        assert all(position[e] < position[i] for i, before in enumerate(schedule.before) for e in before)
        edited.append(constraints.reorder(trace, schedule, order))
    validate(*edited)


def test_a_position_outside_the_legal_range_is_refused_with_the_bound(planned: wb.Workbench) -> None:
    site = planned.site("waits:transformer_wte_weight>all_gather!wait")
    earliest, latest = re.fullmatch(r"at\(STATEMENT\) from (at\(.+\)) to (at\(.+\))", site.range).groups()
    before = planned.choices
    with pytest.raises(ChoiceError, match=re.escape(f"the latest position is {latest}")):
        planned.choose({site.id: "at(end)"})
    with pytest.raises(ChoiceError, match="'nowhere' is not a statement of the same trace"):
        planned.choose({site.id: "at(nowhere)"})
    assert planned.choices == before
    planned.choose({site.id: earliest})
    assert planned.site(site.id).choice == earliest
    planned.undo()


def test_a_wait_before_its_own_issue_is_refused(planned: wb.Workbench) -> None:
    id = "waits:lm_head_weight>all_gather"
    earliest, latest = re.fullmatch(r"at\(STATEMENT\) from (at\(.+\)) to (at\(.+\))", planned.site(id).range).groups()
    with pytest.raises(ChoiceError, match="its wait must be later"):
        planned.choose({id: latest, f"{id}!wait": earliest})


def test_a_collective_without_a_reader_has_no_consumer_order(planned: wb.Workbench) -> None:
    with pytest.raises(ChoiceError, match="the trace returns it"):
        planned.choose({"waits:lm_head_weight<reduce_scatter": "consumer"})


def test_validation_refuses_the_trace_of_thunders_limit_in_flight(planned: wb.Workbench) -> None:
    """Thunder pairs the n-th gather with the n-th wait, which is wrong here: waits have another order than gathers."""
    forward = planned._planner.plan(LATE).split.forward
    plain = from_trace(forward)
    plain.bound_symbols = [b for b in forward.bound_symbols if b.sym.id is not prims.PrimIDs.DEL]
    broken = del_last_used(limit_in_flight_allgathers(plain, 3, False))
    with pytest.raises(PlanError, match="torch_wait_prim_impl reads"):
        validate(broken, None)


def test_the_proof_refuses_the_trace_of_thunders_limit_in_flight(sharded: wb.Workbench) -> None:
    """The proof needs no rule for this fault: a wait for a wrong gather returns another value than in stock."""
    split = sharded._planner.plan({"waits.wait": "late"}).split
    plain = from_trace(split.forward)
    plain.bound_symbols = [b for b in split.forward.bound_symbols if b.sym.id is not prims.PrimIDs.DEL]
    context = sharded._captured.context
    broken = read_execution(del_last_used(limit_in_flight_allgathers(plain, 1, False)), split.backward, context)
    proof = prove(sharded.stock_plan.graph, broken)
    assert not proof.proven
    assert "wait" in proof.difference
    assert "whose content then differs from the stock plan" in fault(context.graph, broken)
    assert fault(context.graph, sharded.stock_plan.graph) == ""


def test_a_write_stays_between_the_reads_around_it() -> None:
    """Batch norm reads its statistics and then writes them in place. No order may move such a read after the write."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 8, 1))
    bench = wb.open(model, torch.randn(2, 3, 4, 4), ranks=2, parallel="ddp", device="cpu", executor="torch")
    split = bench.stock_plan.split
    context = bench._captured.context
    for trace in (split.forward, split.backward):
        schedule = constraints.schedule(trace, context)
        order = schedule.arrange([(0, 0, -i, 0.0, i) for i in range(len(schedule.statements))])
        writes = [i for i, b in enumerate(schedule.statements) if "copy_" in b.sym.name]
        position = {statement: at for at, statement in enumerate(order)}
        for write in writes:
            name = schedule.statements[write].args[1].name
            for i, bsym in enumerate(schedule.statements):
                if i < write and any(a.name == name for a in bsym.flat_proxy_args):
                    assert position[i] < position[write]
    assert any("copy_" in b.sym.name for b in split.forward.bound_symbols)
    assert bench._planner.plan({"waits.gradients": "earliest"}).overlap is not None


def test_replicated_gradients_overlap_with_the_backward(replicated: wb.Workbench) -> None:
    stock, early = overlap(replicated, {}), overlap(replicated, {"waits.gradients": "earliest"})
    assert stock.order.collectives == early.order.collectives == 10
    assert sum(early.order.distances) > 2 * sum(stock.order.distances)


def test_the_plan_includes_its_overlap_in_json(planned: wb.Workbench) -> None:
    found = planned.stock_plan.to_json()["overlap"]
    assert found["simulated"] is True
    assert found["collectives"] == 34
    assert {
        "step_s",
        "exposed_communication_s",
        "idle_compute_s",
        "in_flight_peak_bytes",
        "inversions",
        "lower_bound_s",
    } <= set(found)


def test_a_program_for_one_process_has_no_overlap_and_nothing_to_order(alone: wb.Workbench) -> None:
    assert "overlap" not in alone.plan.to_json()
    with pytest.raises(ChoiceError, match="no collectives"):
        alone.choose({"waits.wait": "late"})


def test_an_exported_config_keeps_ranks_and_order(planned: wb.Workbench, tmp_path) -> None:
    planned.choose({"waits.issue": "in_flight(3)", "waits:lm_head_weight>all_gather!wait": "late"})
    config = wb.load(planned.export(tmp_path / "order.py"))
    planned.undo()
    assert config.ranks == 8
    assert config.choices == {"waits.issue": "in_flight(3)", "waits:lm_head_weight>all_gather!wait": "late"}


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (("fsdp_llama",), {"ranks": 0}, "ranks must be at least 1, given 0"),
        (("mlp",), {"ranks": 2}, "does not say how 2 ranks share it"),
        (
            ("mlp",),
            {"ranks": 2, "parallel": "zero9"},
            "parallel='zero9' is unknown; legal: fsdp, fsdp_zero3, ddp, tensor",
        ),
        ((torch.tanh, torch.ones(2)), {"ranks": 2, "parallel": "ddp"}, "a module with parameters is needed"),
        ((torch.nn.ReLU(), torch.ones(2)), {"ranks": 2, "parallel": "fsdp"}, "the module has no parameters"),
    ],
)
def test_an_impossible_parallel_program_is_refused(args, options, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        wb.open(*args, **options)


def test_a_scalar_parameter_cannot_be_sharded() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    with pytest.raises(ProgramError, match="scale has no dimension to shard along"):
        wb.open(Scaled(), torch.ones(2), ranks=2, parallel="fsdp")


def test_indivisible_rows_are_padded_and_the_module_is_unchanged() -> None:
    model = torch.nn.Linear(5, 7)
    before = set(vars(model))
    bench = wb.open(model, torch.ones(2, 5), ranks=3, parallel="fsdp", device="cpu", executor="torch")
    assert sorted(site.bytes for site in bench.sites("waits") if ">all_gather!" in site.id) == [9 * 4, 9 * 5 * 4]
    assert set(vars(model)) == before
    assert not torch.distributed.is_initialized()


def test_a_plan_for_absent_ranks_does_not_run(planned: wb.Workbench) -> None:
    with pytest.raises(RunError, match="planned as rank 0 of 8"):
        planned.run()
