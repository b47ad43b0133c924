"""What a choice did in one of identical layers says what it does in another one, where statements are fused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import workbench as wb
from workbench.bench.alike import Alike, Estimate
from workbench.compiler.pipeline import Plan

pytestmark = pytest.mark.slow

LAYERS = 8
SHAPES = {"dim": 64, "heads": 2, "hidden": 96, "vocab": 96, "sequence": 32, "dtype": "bfloat16", "device": "planned"}


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
    # The last layer, beside a layer that was chosen otherwise, and under another setting.
    assert alike.estimate(before, {last: option}) is None
    assert alike.estimate(planned(bench, {beside: option}), {here: option}) is None
    assert alike.estimate(planned(bench, {"remat.weight": "0.0"}), {here: option}) is None
    assert alike.estimate(before, {"remat.weight": "0.0"}) is None
    assert alike.estimate(before, {"no such": "site"}) is None
    # Two kinds at once, and one that is in force in one of the layers already.
    (_, choice), (there_too, _) = list(in_layers(bench, 4, 2))[1]
    assert alike.estimate(before, {here: option, there_too: choice}) is None
    assert alike.estimate(planned(bench, {there: option}), {there: option, here: option, beside: option}) is None


def test_several_layers_at_once_come_to_the_sum_where_they_are_apart(bench: wb.Workbench) -> None:
    """What a choice moved outside of its layer, too, may meet what the others move: of that nothing is said."""
    kinds, before, alike = list(in_layers(bench, 3, 2, 4, 5)), bench.stock_plan, Alike()
    shown, moving = 0, 0
    for (there, option), *others in kinds[:: max(1, len(kinds) // 8)]:
        alike.learn(before, planned(bench, {there: option}), {there: option})
        for chosen in (dict(others[1:]), {there: option, **dict(others)}):
            estimate = alike.estimate(before, chosen)
            if estimate is None:
                continue
            exact = moved(before, planned(bench, chosen))
            shown, moving = shown + 1, moving + any(exact)
            assert figures(estimate) == exact, chosen
            assert (estimate.layers, estimate.supposed) == (len(chosen), 0)
    assert shown >= 8
    assert moving >= 2


def test_where_a_choice_reaches_further_than_its_neighbours_nothing_is_said(bench: wb.Workbench) -> None:
    """It may reach all the way to the first layer, which is further from another one."""
    before, alike = bench.stock_plan, Alike()
    there, here, beside = (f"saved:layers.{layer}.attention_norm/convert_element_type" for layer in (3, 4, 5))
    alike.learn(before, planned(bench, {there: "recompute"}), {there: "recompute"})
    assert alike.estimate(before, {here: "recompute"}) is None
    assert alike.estimate(before, {here: "recompute", beside: "recompute"}) is None


def test_few_outer_layers_are_taken_to_be_as_the_inner_ones(bench: wb.Workbench) -> None:
    kinds, before, alike, shown = list(in_layers(bench, 3, 1, 2, 4, 5, 6)), bench.stock_plan, Alike(), 0
    for (there, option), second, *inner, outer in kinds[:: max(1, len(kinds) // 8)]:
        alike.learn(before, planned(bench, {there: option}), {there: option})
        chosen = dict([second, (there, option), *inner])
        estimate = alike.estimate(before, chosen)
        # One in four is too many.
        assert alike.estimate(before, dict([second, *inner[:2], outer])) is None
        if estimate is None:
            continue
        shown += 1
        exact = moved(before, planned(bench, chosen))
        assert (estimate.layers, estimate.supposed) == (5, 1)
        assert "1 of these layers taken to be like it" in estimate.words
        assert [np.sign(figure) for figure in figures(estimate)] == [np.sign(figure) for figure in exact]
    assert shown >= 2


def test_a_bench_learns_from_choices_and_from_effects(bench: wb.Workbench) -> None:
    kinds = in_layers(bench, 2, 4)
    (there, option), (here, _) = next(kinds)
    (other, choice), (elsewhere, _) = next(kinds)
    bench.effect({other: choice})
    assert bench.alike.estimate(bench.plan, {elsewhere: choice}) is not None
    bench.choose({there: option})
    bench.undo()
    assert bench.alike.estimate(bench.plan, {here: option}) is not None
