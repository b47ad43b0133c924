"""What a choice did in one of identical layers says what it does in another one, where statements are fused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import workbench as wb
from workbench.bench.alike import Alike, Estimate
from workbench.compiler.pipeline import Plan

pytestmark = pytest.mark.slow

LAYERS = 7
SHAPES = {"dim": 64, "heads": 2, "hidden": 96, "vocab": 96, "sequence": 32, "device": "planned"}


@pytest.fixture(scope="module")
def bench() -> wb.Workbench:
    return wb.open("llama", layers=LAYERS, executor="nvfuser", **SHAPES)


def in_layers(bench: wb.Workbench, *layers: int) -> Iterator[tuple[tuple[str, str], ...]]:
    """Each kind of choice, as the same in the layers given."""
    first, *others = layers
    for site in bench.stock_plan.sites:
        if not site.values or f":layers.{first}." not in site.id:
            continue
        ids = [site.id, *(site.id.replace(f":layers.{first}.", f":layers.{other}.") for other in others)]
        sites = [bench.stock_plan.site_of.get(id) for id in ids]
        for option in site.options:
            if all(one is not None and option != one.choice and option not in one.illegal for one in sites):
                yield tuple((id, option) for id in ids)


def planned(bench: wb.Workbench, choices: dict[str, str]) -> Plan:
    return bench.plan_under(choices)


def moved(before: Plan, after: Plan) -> tuple[int, int]:
    return after.peak_bytes - before.peak_bytes, after.saved_bytes - before.saved_bytes


def figures(estimate: Estimate) -> tuple[int, int]:
    return estimate.peak_bytes, estimate.saved_bytes


@pytest.mark.parametrize("in_force", [False, True])
def test_an_estimate_is_what_the_plan_comes_to(bench: wb.Workbench, in_force: bool) -> None:
    kinds, alike, shown, moving = list(in_layers(bench, 2, 4)), Alike(), 0, 0
    # Choices far enough away are nothing to these layers.
    force = dict(first for (first,) in in_layers(bench, 0)) if in_force else {}
    force = dict(list(force.items())[:1])
    before = planned(bench, force)
    for (there, option), (here, same) in kinds[:: max(1, len(kinds) // 14)]:
        alike.learn(before, planned(bench, {**force, there: option}), {there: option})
        estimate = alike.estimate(before, {here: same})
        if estimate is None:
            continue
        shown += 1
        exact = moved(before, planned(bench, {**force, here: same}))
        moving += any(exact)
        assert figures(estimate) == exact
        assert estimate.like == "layers.2"
    assert shown >= 10
    assert moving >= 3


def test_nothing_is_said_where_nothing_is_known(bench: wb.Workbench) -> None:
    (there, option), (here, _), (beside, _), (last, _) = next(in_layers(bench, 2, 4, 5, LAYERS - 1))
    before, alike = bench.stock_plan, Alike()
    assert alike.estimate(before, {here: option}) is None
    alike.learn(before, planned(bench, {there: option}), {there: option})
    assert alike.estimate(before, {here: option}) is not None
    # Several at once, the last layer, beside a layer that was chosen otherwise, and under another setting.
    assert alike.estimate(before, {here: option, beside: option}) is None
    assert alike.estimate(before, {last: option}) is None
    assert alike.estimate(planned(bench, {beside: option}), {here: option}) is None
    assert alike.estimate(planned(bench, {"remat.weight": "0.0"}), {here: option}) is None
    assert alike.estimate(before, {"remat.weight": "0.0"}) is None
    assert alike.estimate(before, {"no such": "site"}) is None


def test_a_bench_learns_from_choices_and_from_effects(bench: wb.Workbench) -> None:
    kinds = in_layers(bench, 2, 4)
    (there, option), (here, _) = next(kinds)
    (other, choice), (elsewhere, _) = next(kinds)
    bench.effect({other: choice})
    assert bench.alike.estimate(bench.plan, {elsewhere: choice}) is not None
    bench.choose({there: option})
    bench.undo()
    assert bench.alike.estimate(bench.plan, {here: option}) is not None
