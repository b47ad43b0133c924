"""A quick replan only reorders collectives in the forward and backward. It gives the same plan as a full replan."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import from_trace
from thunder.executors.passes import del_last_used

import workbench as wb
from workbench.compiler import api
from workbench.compiler.api import Plan
from workbench.compiler.planner.planner import BASES_KEPT
from workbench.core.graph import Graph
from workbench.errors import ChoiceError

pytestmark = pytest.mark.slow

POLICIES = [
    {"waits.wait": "late"},
    {"waits.issue": "consumer", "waits.wait": "early", "waits.gradients": "earliest"},
    {"waits.issue": "just_in_time", "waits.wait": "late"},
    {"waits.issue": "in_flight(3)", "waits:lm_head_weight>all_gather": "earliest"},
]
DELETES = ("python_del", "clear_mutable_collection")


def told(graph: Graph) -> list[tuple]:
    """Return, for each statement in order, its columns and the names of values that it reads, computes and frees."""
    statements, name = graph.statements, graph.values.name
    columns = zip(
        statements.name,
        statements.kind.tolist(),
        statements.side.tolist(),
        statements.parent.tolist(),
        statements.flags.tolist(),
        statements.transient_bytes.tolist(),
        statements.inputs,
        statements.outputs,
        statements.frees,
        strict=True,
    )
    return [
        (*plain, [name[v] for v in i], [name[v] for v in o], sorted(name[v] for v in f)) for *plain, i, o, f in columns
    ]


def values(graph: Graph) -> dict[str, tuple]:
    found, storages = graph.values, graph.storages
    return {
        name: (
            found.shape[v],
            found.dtype[v],
            int(found.bytes[v]),
            int(found.flags[v]),
            int(found.producer[v]),
            int(storages.bytes[found.storage[v]]) if found.storage[v] >= 0 else -1,
        )
        for v, name in enumerate(found.name)
    }


def deleted(bsym: BoundSymbol) -> tuple[str, list[str], list[str]]:
    """Return a statement's name, the names of its arguments and, if it deletes values, its text."""
    gone = bsym.sym.name in DELETES
    return bsym.sym.name, [a.name for a in bsym.flat_proxy_args], bsym.python(0) if gone else []


def printed(plan: Plan) -> str:
    """Return the text of the plan's traces without object numbers, which differ between equal plans."""
    return re.sub(r"(ProcessGroup|ReduceOps_SUM)_\d+", r"\1", plan.text())


def assert_same(quick: Plan, anew: Plan) -> None:
    assert told(quick.graph) == told(anew.graph)
    assert values(quick.graph) == values(anew.graph)
    assert quick.timeline.live_bytes.tolist() == anew.timeline.live_bytes.tolist()
    assert quick.timeline.statement_peak_bytes.tolist() == anew.timeline.statement_peak_bytes.tolist()
    assert quick.sites == anew.sites
    assert quick.counts == anew.counts
    assert quick.census == anew.census
    assert quick.unmatched == anew.unmatched
    assert printed(quick) == printed(anew)
    assert quick.overlap is not None
    assert anew.overlap is not None
    assert quick.overlap.to_json() == pytest.approx(anew.overlap.to_json())


@pytest.mark.parametrize("choices", POLICIES, ids=str)
def test_a_quick_replan_of_a_policy_equals_a_full_replan(planned: wb.Workbench, choices: dict[str, str]) -> None:
    quick = api.plan(planned._captured, choices)
    assert quick.unordered is planned.stock_plan
    assert_same(quick, api.replan(planned._captured, choices)[0])


@given(data=st.data())
@settings(max_examples=4, phases=[Phase.generate])
def test_a_quick_replan_of_positions_by_hand_equals_a_full_replan(planned: wb.Workbench, data: st.DataObject) -> None:
    outcome = planned._captured.planned.bases[()].outcome.value
    choices = {}
    for schedule in outcome.communication.values():
        names = (*schedule.names, "end")
        for collective in data.draw(st.lists(st.sampled_from(schedule.collectives), max_size=5, unique=True)):
            slots = st.integers(schedule.low[collective.issue], schedule.high[collective.wait])
            issue, wait = sorted((data.draw(slots), data.draw(slots)))
            choices[f"waits:{collective.place}"] = f"at({names[issue]})"
            choices[f"waits:{collective.place}!wait"] = f"at({names[wait]})"
    assert_same(
        api.plan(planned._captured, choices) if choices else planned.stock_plan,
        api.replan(planned._captured, choices)[0],
    )


@given(data=st.data())
@settings(max_examples=3, phases=[Phase.generate])
@pytest.mark.parametrize("bucket", ["layer", "1MiB"])
def test_quick_orders_on_top_of_buckets_equal_the_full_replan(
    sharded: wb.Workbench, bucket: str, data: st.DataObject
) -> None:
    others = {"waits.bucket": bucket}
    order = {
        "waits.issue": data.draw(st.sampled_from(["earliest", "consumer", "just_in_time", "in_flight(2)"])),
        "waits.wait": data.draw(st.sampled_from(["stock", "late", "early"])),
        "waits.gradients": data.draw(st.sampled_from(["stock", "earliest"])),
    }
    quick = api.plan(sharded._captured, {**others, **order})
    assert quick.counts["buckets"] > 0
    assert quick.unordered is sharded.plan_under(others)
    assert_same(quick, api.replan(sharded._captured, {**others, **order})[0])


@given(seed=st.integers(0, 2**32 - 1), spread=st.sampled_from([1, 3, 10**6]))
@settings(max_examples=30)
def test_an_order_takes_the_smallest_key_of_the_ready_statements(planned: wb.Workbench, seed: int, spread: int) -> None:
    draw = random.Random(seed)
    for schedule in planned._captured.planned.bases[()].outcome.value.communication.values():
        # With a small spread, the order of the keys is almost legal. With a large spread, it is random.
        keys = [(slot + draw.randrange(spread), 0, 0, 1.0, 0) for slot in schedule.slot]
        order, left = [], set(range(len(keys)))
        while left:
            order.append(min((i for i in left if left.isdisjoint(schedule.before[i])), key=lambda i: (keys[i], i)))
            left.remove(order[-1])
        assert schedule.arrange(keys) == order


@pytest.mark.parametrize("choices", POLICIES, ids=str)
def test_values_are_deleted_where_thunder_deletes_them(planned: wb.Workbench, choices: dict[str, str]) -> None:
    split = api.plan(planned._captured, choices).split
    for trace in (split.forward, split.backward):
        bare = from_trace(trace)
        bare.bound_symbols = [b for b in trace.bound_symbols if b.sym.name not in DELETES]
        thunders = del_last_used(bare, clear_mutable_collections=trace is split.backward)
        assert [b.sym.name for b in trace.bound_symbols].count("python_del") > 10
        assert [deleted(b) for b in trace.bound_symbols] == [deleted(b) for b in thunders.bound_symbols]


def test_a_quick_order_on_top_of_other_choices_equals_the_full_replan(replicated: wb.Workbench) -> None:
    saved = next(site for site in replicated.sites("saved") if "recompute" in site.options and not site.illegal)
    others = {saved.id: "recompute"}
    choices = {**others, "waits.gradients": "earliest"}
    quick = api.plan(replicated._captured, choices)
    assert quick.unordered is not None
    assert quick.unordered.saved_bytes == replicated.plan_under(others).saved_bytes
    assert_same(quick, api.replan(replicated._captured, choices)[0])


@pytest.mark.parametrize("choices", [{"waits.issue": "in_flight(0)"}, {"waits.wait": "never"}])
def test_an_unknown_option_is_refused_as_in_the_full_replan(planned: wb.Workbench, choices: dict[str, str]) -> None:
    with pytest.raises(ChoiceError) as anew:
        api.replan(planned._captured, choices)
    with pytest.raises(ChoiceError) as quick:
        api.plan(planned._captured, choices)
    assert str(quick.value) == str(anew.value)


def test_an_unknown_site_is_unmatched_as_in_the_full_replan(planned: wb.Workbench) -> None:
    choices = {"waits:nothing>all_gather": "earliest"}
    assert api.plan(planned._captured, choices).unmatched == tuple(choices)
    assert api.replan(planned._captured, choices)[0].unmatched == tuple(choices)


def test_the_effect_of_an_order_equals_the_change_of_the_simulation(planned: wb.Workbench) -> None:
    choices = {"waits.issue": "in_flight(2)", "waits.wait": "late", "waits.gradients": "earliest"}
    before, after = planned.plan.overlap, planned.plan_under({**planned.choices, **choices}).overlap
    assert before is not None
    assert after is not None
    effect = planned.effect(choices).overlap
    assert effect is not None
    assert effect.step_s == pytest.approx(after.simulation.step_s - before.simulation.step_s)
    assert effect.step_s < 0
    assert effect.exposed_communication_s < 0
    assert effect.in_flight_peak_bytes < 0
    diff = planned.choose(choices)
    planned.undo()
    assert diff.overlap == effect


def test_a_program_for_one_process_has_no_change_of_overlap(alone: wb.Workbench) -> None:
    site, option = next(
        (site, option)
        for site in alone.sites()
        for option in site.options
        if option not in (site.choice, *site.illegal)
    )
    assert alone.effect({site.id: option}).overlap is None
    assert alone.choose({site.id: option}).overlap is None
    alone.undo()


def test_the_stock_plan_stays_cached_after_many_trials(sharded: wb.Workbench) -> None:
    stock = api.plan(sharded._captured, {})
    for bucket in ("layer", "1MiB", "2MiB", "3MiB", "4MiB"):
        api.plan(sharded._captured, {"waits.bucket": bucket})
    assert len(sharded._captured.planned.bases) == BASES_KEPT
    assert api.plan(sharded._captured, {}) is stock
